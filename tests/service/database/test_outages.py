"""Full disks and lost databases: answers are 503 in words, nothing is lost, nothing is charged twice."""

import re
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from privest_service.database import Database
from privest_service.datasets.ingest import Ingested
from privest_service.datasets.models import Dataset
from privest_service.datasets.registration import Draft, Registrar
from privest_service.datasets.schemas import SCHEMA
from privest_service.datasets.store import Store
from privest_service.problems import DatabaseUnavailable
from testing.postgres import Postgres, administer
from testing.server import (
    HANG_GUARD,
    SPD3,
    Server,
    body_of,
    books_balance,
    npy,
    problem,
    slow_rows,
    spd,
    until,
    worker_on,
)
from testing.world import SCHEMA_TEXT, World

_DURABLE = """
fsync = off
full_page_writes = off
max_wal_size = 32MB
"""
"""Settings of a cluster that is killed while its machine runs: the kernel has what was committed."""


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A directory, on a disk of its own where this process may mount one."""
    place = Path(tempfile.mkdtemp(prefix="privest-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    subprocess.run(mount, check=False, capture_output=True)
    try:
        yield place
    finally:
        if place.is_mount():
            subprocess.run(["umount", "--lazy", str(place)], check=True)
        rmtree(place)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """A disk with no byte left, for a while."""
    if not disk.is_mount():
        pytest.skip("the disk that is filled is a tmpfs, and mounting one is not allowed here")
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    try:
        yield
    finally:
        filler.unlink()


# Full disks


def unready(server: Server) -> httpx.Response | None:
    """Ask the probe for readiness; None where it says that all is well."""
    answer = server.admin.get("/readyz")
    return None if answer.is_success else answer


@pytest.mark.costly
def test_a_full_disk_refuses_what_it_cannot_hold_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(32) as disk, ExitStack() as end:
        server = Server(tmp_path, f"sqlite:///{disk}/privest.db", data_dir=disk / "data")
        end.callback(server.stop)
        owner = server.owner()
        dataset = owner.dataset()
        slow = owner.dataset(spd(175, dim=33), slow_rows()[1])
        assert owner.estimate(dataset, key="before").json()["state"] == "committed"
        incoming = list(server.data_dir.glob("incoming/*"))
        large = npy(np.tile(spd(60), (500, 1, 1)))
        inline = body_of("", 0.1) | {"dataset": {"inline": {"schema": SPD3, "rows": spd(60).tolist()}}}
        running = owner.estimate(slow, steps=50, wait=0).json()["id"]
        worker = worker_on(server, owner, slow)
        worker.suspend()  # it comes to its end while there is no room, and not before
        with filled(disk):
            worker.resume()
            for answer in (
                owner.upload(large, SPD3),
                owner.upload(npy(spd(60, seed=1)), SPD3),
                owner.estimate(dataset, key="while", epsilon=0.2),
                owner.post("/v1/estimates/frechet-mean", headers={"Idempotency-Key": "inline"}, json=inline),
                owner.get(f"/v1/owners/{owner.id}/ledger/export"),
                server.admin.post("/v1/analysts", json={"name": "An analyst"}),
            ):
                assert re.search("is full|no room", problem(answer, 503, "unavailable")["detail"])
                assert int(answer.headers["Retry-After"]) > 0
            page = httpx.post(f"{server.url}/dashboard/sign-in", data={"key": owner.key})
            assert page.status_code == 503
            assert "is full" in page.text
            assert int(page.headers["Retry-After"]) > 0
            # What needs no room is answered.
            assert owner.plan(dataset).status_code == 200
            assert owner.budget()["queries"] == 2
            # It is alive, and no place to send queries to.
            assert server.admin.get("/healthz").status_code == 200
            # What was seen a moment ago, when there was room, may still be told.
            problem(until(lambda: unready(server)), 503, "unavailable")
            until(lambda: "the end of a job waits" in server.log.read_text())
        assert owner.ended(running)["state"] == "committed"
        assert owner.estimate(dataset, key="while", epsilon=0.2).json()["state"] == "committed"
        assert owner.upload(large, SPD3).status_code == 201
        assert owner.budget()["queries"] == 3
        assert list(server.data_dir.glob("incoming/*")) == incoming
        assert len(list(server.data_dir.glob("rows/*/*"))) == 3
        assert books_balance(server)


# SQLite


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_file_that_another_process_keeps_locked_is_given_up_in_time(database_url: str) -> None:
    database = Database(database_url, patience=0.4)
    other = sqlite3.connect(database_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def told(_: int) -> str | None:
        try:
            database.run(lambda session: session.execute(text("DELETE FROM sessions")))
        except DatabaseUnavailable as error:
            return error.detail
        return None

    ratios = list[float]()
    for _ in range(3):  # a busy machine may hold up one of them
        begun = time.monotonic()
        assert told(0)
        alone = time.monotonic() - begun
        with ThreadPoolExecutor(20) as pool:
            assert all(pool.map(told, range(20)))
            with database.read() as session:
                assert session.scalar(text("SELECT count(*) FROM sessions")) == 0
        ratios.append((time.monotonic() - begun) / alone - 1)
        if ratios[-1] < 10:
            break
    assert min(ratios) < 10  # in turn they would wait for twenty times as long
    other.execute("ROLLBACK")
    assert told(0) is None
    database.close()


# PostgreSQL


@dataclass(frozen=True)
class Site:
    """A service on a PostgreSQL of these tests' own, which is on a small disk."""

    postgres: Postgres
    disk: Path
    server: Server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with small_disk(160) as disk:
        (disk / "data").mkdir()
        postgres = Postgres(disk / "data", _DURABLE)
        server = Server(tmp_path_factory.mktemp("site"), postgres.start().format("postgres"))
        yield Site(postgres, disk, server)
        server.stop()
        postgres.stop()


def test_a_database_whose_disk_is_full_charges_nothing(site: Site) -> None:
    owner = site.server.owner(epsilon=50.0)
    dataset, charged = owner.dataset(), 0
    with filled(site.disk):
        while True:  # pages that there are take some more
            answer = owner.estimate(dataset, key=f"key-{charged}", epsilon=0.05, reuse=False)
            if answer.status_code != 200:
                break
            charged += 1
        assert "is full" in problem(answer, 503, "unavailable")["detail"]
        assert int(answer.headers["Retry-After"]) > 0
        assert owner.budget()["queries"] == charged
    answer = owner.estimate(dataset, key=f"key-{charged}", epsilon=0.05, reuse=False)
    assert answer.json()["state"] == "committed"
    assert owner.budget()["queries"] == charged + 1
    assert books_balance(site.server)


@pytest.mark.costly
def test_a_database_that_hangs_is_given_up_in_time_and_taken_up_again(site: Site) -> None:
    postgres, server = site.postgres, site.server
    owner = server.owner()
    dataset = owner.dataset()
    visitor = httpx.Client(base_url=server.url, timeout=HANG_GUARD)
    visitor.post("/dashboard/sign-in", data={"key": owner.key})
    assert visitor.get("/dashboard").status_code == 200
    calls: list[Callable[[], httpx.Response]] = [
        # What was seen a moment ago, before the database hung, may still be told once.
        lambda: until(lambda: unready(server)),
        lambda: owner.estimate(dataset, key="hung"),
        lambda: owner.plan(dataset),
        lambda: owner.upload(npy(spd(60, seed=1)), SPD3),
        lambda: owner.get(f"/v1/owners/{owner.id}/budget"),
        lambda: visitor.get("/dashboard"),
    ]
    postgres.processes[0].suspend()  # before the others are listed, as it starts them
    for process in postgres.processes:
        process.suspend()
    try:
        with ThreadPoolExecutor(len(calls)) as pool:
            asked = [pool.submit(call) for call in calls]
            assert server.admin.get("/healthz").status_code == 200
            assert not all(each.done() for each in asked)  # it did not wait for the database
            *answers, page = (each.result() for each in asked)  # which hangs until all have theirs
    finally:
        for process in postgres.processes:
            process.resume()
    for answer in answers:
        problem(answer, 503, "unavailable")
        assert answer.headers["Retry-After"]
    assert page.status_code == 503
    until(lambda: server.admin.get("/readyz").status_code == 200)
    assert owner.estimate(dataset, key="hung").json()["state"] == "committed"
    assert owner.budget()["queries"] == 1
    assert visitor.get("/dashboard").status_code == 200
    assert books_balance(server)


def test_a_server_that_takes_no_writes_is_one_that_is_not_there(site: Site) -> None:
    """A standby, say, that is not yet told to take over."""
    server, url = site.server, site.server.database_url
    owner = server.owner()
    dataset = owner.dataset()
    administer(url, "ALTER SYSTEM SET default_transaction_read_only = on")
    try:
        administer(url, "SELECT pg_reload_conf()")
        until(lambda: server.admin.get("/readyz").status_code == 503)
        assert problem(owner.estimate(dataset, key="standby"), 503, "unavailable")["detail"]
        problem(owner.upload(npy(spd(60, seed=1)), SPD3), 503, "unavailable")
        assert owner.plan(dataset).status_code == 200  # which only reads
    finally:
        administer(url, "ALTER SYSTEM RESET default_transaction_read_only")
        administer(url, "SELECT pg_reload_conf()")
    until(lambda: server.admin.get("/readyz").status_code == 200)
    assert owner.estimate(dataset, key="standby").json()["state"] == "committed"
    assert owner.budget()["queries"] == 1


def test_a_database_that_is_killed_under_load_loses_and_doubles_no_charge(site: Site) -> None:
    postgres, server = site.postgres, site.server
    owner = server.owner(epsilon=30.0)
    dataset, keys, over = owner.dataset(), count(), threading.Event()

    def ask(key: str) -> httpx.Response:
        return owner.estimate(dataset, key=key, epsilon=0.05, reuse=False)

    def call() -> dict[str, int]:
        met = {}
        while not over.is_set():
            key = f"key-{next(keys)}"
            met[key] = ask(key).status_code
        return met

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(call) for _ in range(3)]
        try:
            until(lambda: owner.budget()["queries"] > 5)
            postgres.abort()
            until(lambda: server.admin.get("/readyz").status_code == 503)
            problem(owner.plan(dataset), 503, "unavailable")
            problem(ask("while it is down"), 503, "unavailable")
        finally:
            over.set()
            postgres.start()
        met = {key: status for each in calls for key, status in each.result().items()}
        met["while it is down"] = 503
    assert set(met.values()) == {200, 503}
    until(lambda: server.admin.get("/readyz").status_code == 200)
    states = Counter(ask(key).json()["state"] for key in met)
    # Of a claim whose word of its commit was lost, nobody knows: it is not run, and ends with its lease.
    assert states["committed"] >= len(met) - 1
    assert owner.budget()["queries"] == len(met)
    assert books_balance(server)


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_rows_stay_where_nobody_knows_whether_they_were_noted(database: Database, tmp_path: Path) -> None:
    """A database that is lost at the COMMIT may have kept what it was told."""
    world, store = World.make(database), Store(tmp_path)
    draft = store.incoming / "draft"
    draft.touch()

    def lost(work: Callable[[Session], object]) -> None:
        database.run(work)
        raise DatabaseUnavailable

    losing: Any = SimpleNamespace(run=lost)
    nobody: Any = None
    registrar = Registrar(losing, store, nobody, b"", tmp_path, 1, 1, 1.0)
    schema = SCHEMA.validate_json(SCHEMA_TEXT)
    with pytest.raises(DatabaseUnavailable):
        registrar._adopt(Draft("ds_1", world.owner, schema, "ds_1", None, False), draft, Ingested(50, "rows"))
    with database.read() as session:
        assert session.get(Dataset, "ds_1") is not None
    assert store.path(world.owner, "ds_1").exists()

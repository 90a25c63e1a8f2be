"""Registrations: the turns of owners, and what is left of uploads that came to nothing."""

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from privest_service.database import Database
from privest_service.datasets.registration import Arrived, Registrar
from privest_service.datasets.schemas import SCHEMA
from privest_service.datasets.store import Store
from privest_service.problems import TooLarge, Unavailable
from privest_service.workers.service import Workers
from testing import remote_jobs
from testing.server import HANG_GUARD, SPD3, npy, spd
from testing.workers import in_workers
from testing.world import World

on_one_database = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests of processes, in which the ledger plays no part."""


def registrar_of(database: Database, store: Store, workers: Workers, room: int, timeout: float) -> Registrar:
    """One with room for so many bytes."""
    return Registrar(database, store, workers, b"s" * 32, store.incoming, room, room, timeout)


@on_one_database
def test_an_owner_with_many_uploads_holds_up_no_other(database: Database, tmp_path: Path) -> None:
    async def use(workers: Workers) -> None:
        registrar, begun = registrar_of(database, Store(tmp_path), workers, 0, 1.0), list[str]()

        async def upload(owner: str) -> None:
            async with registrar.turn(owner):
                begun.append(owner)
                await workers.in_worker("intake", abs, 1)

        await asyncio.gather(*map(upload, "aaaab"))
        assert sorted(begun) == [*"aaaab"]
        assert begun.index("b") < 2  # behind one upload of the other owner at most
        assert not registrar._turns

    in_workers(use)


@on_one_database
def test_a_slow_upload_keeps_no_other_owner_waiting(database: Database, tmp_path: Path) -> None:
    """Two of one owner never hold both intake processes; the slow one ends when the test lets it."""
    store, ended = Store(tmp_path), tmp_path / "ended"
    rows, slow = npy(spd(60)), [tmp_path / name for name in ("first", "second")]

    async def use(workers: Workers) -> None:
        registrar = registrar_of(database, store, workers, 2**30, 600.0)
        schema = SCHEMA.validate_python(SPD3)

        async def hostile(number: int) -> None:
            async with registrar.turn("a"):
                await workers.in_worker("intake", remote_jobs.waits, str(slow[number]), str(ended))

        async def source(arrived: Path) -> Arrived:
            arrived.write_bytes(rows)
            return Arrived("npy")

        world = World.make(database)
        held = [asyncio.create_task(hostile(number)) for number in range(2)]
        while not slow[0].exists():
            await asyncio.sleep(0.01)
        for _ in range(3):
            assert (await registrar.register(world.owner, source, schema)).dataset.n == 60
        assert not slow[1].exists()
        assert not any(task.done() for task in held)
        ended.touch()
        await asyncio.gather(*held)
        assert slow[1].exists()

    in_workers(use, 600.0, intake_timeout=600.0)


@on_one_database
def test_sources_of_an_owner_are_read_one_at_a_time_and_none_without_room(
    database: Database, tmp_path: Path
) -> None:
    """The workers are not started, so that each registration ends behind its source."""
    store = Store(tmp_path)
    registrar = registrar_of(database, store, Workers(timeout=HANG_GUARD), 100, 30.0)
    held, together = list[int](), 10

    def arriving() -> int:
        return sum(path.stat().st_size for path in store.incoming.glob("*/upload"))

    async def source(arrived: Path) -> Arrived:
        arrived.write_bytes(bytes(10))
        async with asyncio.timeout(HANG_GUARD):
            while not held[4:] and arriving() < together:
                await asyncio.sleep(0.01)
        held.append(arriving())
        return Arrived("npy")

    async def refused(*owners: str) -> set[type]:
        schema = SCHEMA.validate_python(SPD3)
        tried = [registrar.register(owner, source, schema) for owner in owners]
        return {type(each) for each in await asyncio.gather(*tried, return_exceptions=True)}

    assert asyncio.run(refused(*"aaaa")) == {Unavailable}
    assert held == [10] * 4
    together = 20
    assert asyncio.run(refused(*"ab")) == {Unavailable}
    assert held[4] == 20  # owners do not wait for each other
    store.path("a", "ds_full").parent.mkdir()
    store.path("a", "ds_full").write_bytes(bytes(100))
    assert asyncio.run(refused("a")) == {TooLarge}
    assert len(held) == 6
    assert not list(store.incoming.iterdir())


@on_one_database
def test_an_uploads_folder_is_made_and_removed_beside_the_loop(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser may have left files without number in it; also if the caller goes away meanwhile."""
    store, arriving = Store(tmp_path), asyncio.Event()
    registrar = registrar_of(database, store, Workers(timeout=HANG_GUARD), 100, 30.0)
    threads = list[tuple[str, int]]()

    def noted(where: Any, name: str) -> None:
        done = getattr(where, name)

        def note(*args: Any, **kwargs: Any) -> Any:
            threads.append((name, threading.get_ident()))
            return done(*args, **kwargs)

        monkeypatch.setattr(where, name, note)

    async def source(arrived: Path) -> Arrived:
        arriving.set()
        await asyncio.Event().wait()
        return Arrived("npy")

    async def left() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(registrar.register, "a", source, SCHEMA.validate_python(SPD3))
            await arriving.wait()
            assert list(store.incoming.iterdir())
            group.cancel_scope.cancel()

    noted(Path, "mkdir")
    noted(Path, "touch")
    noted(shutil, "rmtree")
    asyncio.run(left())
    assert {name for name, _ in threads} >= {"mkdir", "touch", "rmtree"}
    assert threading.get_ident() not in {thread for _, thread in threads}
    assert not list(store.incoming.iterdir())

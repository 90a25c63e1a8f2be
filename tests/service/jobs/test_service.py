"""The queue: who has how much of it, and whose job is next."""

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest

from privest_service.database import Database
from privest_service.datasets.store import Store
from privest_service.estimates.engine import Engine
from privest_service.jobs.models import Job
from privest_service.problems import Unavailable
from testing.server import until
from testing.world import World, claimed


def refusal(world: World, database: Database, room: int) -> str:
    """Why one more job of this world's analyst is not taken."""
    with pytest.raises(Unavailable) as refused:
        world.submit(database, "one more", room=room)
    return str(refused.value.detail)


@pytest.mark.parametrize(("room", "share"), [(4, 2), (12, 3)])
def test_one_caller_leaves_room_in_the_queue_for_others(database: Database, room: int, share: int) -> None:
    greedy, other = World.make(database), World.make(database)
    first, *_ = [greedy.submit(database, f"key {number}", room=room) for number in range(share)]
    assert refusal(greedy, database, room).startswith("Too many of your jobs are waiting")
    assert greedy.submit(database, "key 0", room=room) == first  # what is known needs no room
    assert other.submit(database, "key", room=room)
    assert claimed(database) == first
    assert greedy.submit(database, "one more", room=room)


def test_a_queue_of_one_takes_one(database: Database) -> None:
    world = World.make(database)
    world.submit(database, "key", room=1)
    assert refusal(world, database, 1).startswith("Too many jobs are waiting")


def test_whoever_has_fewest_jobs_under_way_is_next(database: Database) -> None:
    greedy, other = World.make(database), World.make(database)
    many = [greedy.submit(database, f"key {number}") for number in range(3)]
    few = [other.submit(database, f"key {number}") for number in range(2)]
    assert [claimed(database) for _ in range(5)] == [many[0], few[0], many[1], few[1], many[2]]
    assert claimed(database) is None


def test_one_submitter_never_holds_all_workers(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes while a greedy one's jobs run need not wait for the end of one."""
    greedy, other = World.make(database), World.make(database)
    engine, runs = Engine(database, Store(tmp_path), workers=3, job_timeout=30.0), list[Future[str]]()
    monkeypatch.setattr(engine._runners, "call", lambda *_: runs.append(Future()) or runs[-1])

    def next_job() -> str | None:
        found = engine._claim()
        if found is not None:
            engine._run(found)
        return found and found.job.id

    many = [greedy.submit(database, f"key {number}") for number in range(4)]
    assert [next_job() for _ in range(3)] == [*many[:2], None]
    late = other.submit(database, "key")
    assert next_job() == late
    assert next_job() is None
    runs[0].set_exception(OSError())  # which ends the first
    assert until(next_job) == many[2]
    runs[1].set_exception(OSError())
    assert until(next_job) == many[3]
    for run in runs[2:]:
        run.set_exception(OSError())
    engine._ends.shutdown()
    assert not engine._running


@pytest.mark.parametrize("again", [True, False])
def test_a_run_that_reads_no_rows_is_begun_once_more_where_it_was_lost(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    world, runs = World.make(database), list[Future[str]]()
    engine = Engine(database, Store(tmp_path), workers=1, job_timeout=30.0)
    monkeypatch.setattr(engine._runners, "call", lambda *_: runs.append(Future()) or runs[-1])
    job_id = world.submit(database, "key")
    found = engine._claim()
    assert found is not None
    engine._run(replace(found, run=replace(found.run, again=again)))
    runs[0].set_exception(BrokenProcessPool())
    if again:
        until(lambda: len(runs) == 2)
        runs[1].set_exception(BrokenProcessPool())  # lost once more, and that is the end
    engine._ends.shutdown()
    assert len(runs) == 1 + again
    assert not engine._running
    with database.read() as session:
        assert session.get_one(Job, job_id).state == "failed"


def test_a_single_worker_is_for_everybody(database: Database, tmp_path: Path) -> None:
    world = World.make(database)
    engine = Engine(database, Store(tmp_path), workers=1, job_timeout=30.0)
    first = world.submit(database, "key")
    found = engine._claim()
    assert found is not None
    assert found.job.id == first

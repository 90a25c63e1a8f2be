"""What workers do beside jobs: places of plans, limits of uploads, and what a hostile upload reaches."""

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from privest_service.datasets.confinement import missing
from privest_service.datasets.parsing import prepare
from privest_service.datasets.store import Store
from privest_service.limits import PLANS, Limiter, in_thread
from privest_service.problems import Unavailable
from privest_service.workers import service as workers_module
from privest_service.workers.service import Workers
from privest_service.workers.turns import Priority
from testing import confined, remote_jobs
from testing.server import HANG_GUARD, npy, spd, until
from testing.workers import in_workers


def test_plans_have_a_worker_of_their_own_and_few_threads_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = tmp_path / "released"
    until_released = ["sh", "-c", f"until [ -e {released} ]; do sleep 0.05; done"]

    limiter = Limiter()

    async def use(workers: Workers) -> None:
        async def planned(whose: str, work: Callable[..., object], *given: object) -> object:
            return await in_thread(workers.call_worker, whose, work, *given, priority="charged")

        async def refused(work: Callable[..., object], *given: object) -> str:
            with pytest.raises(Unavailable) as told:
                await planned("somebody", work, *given)
            return str(told.value.detail).partition(".")[0]

        callers = [f"caller {number}" for number in range(16)]
        waiting = [
            asyncio.create_task(planned(each, subprocess.check_call, until_released)) for each in callers
        ]
        await asyncio.to_thread(until, lambda: limiter._held[PLANS, ""] == len(callers))
        more = await asyncio.gather(*(refused(os.getpid) for _ in range(40)))
        assert set(more) == {"There are too many plans"}
        assert await workers.in_worker("intake", os.getpid)
        assert await workers.in_worker("fetch", os.getpid)
        assert not any(each.done() for each in waiting)
        released.touch()
        assert await asyncio.gather(*waiting) == [0] * len(callers)
        # What is given up holds neither a place nor the worker.
        with monkeypatch.context() as soon:
            soon.setattr(workers_module, "_PLAN_SECONDS", 0.5)
            assert await refused(time.sleep, 2 * HANG_GUARD) == "This could not be processed"
        assert await planned("somebody", os.getpid)

    in_workers(use, limiter=limiter)


def test_plans_of_one_caller_leave_places_to_others_and_free_ones_to_charges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: Future[str] = Future()
    limiter = Limiter()
    workers = Workers(timeout=HANG_GUARD, limiter=limiter)
    monkeypatch.setattr(workers, "_start", lambda *_: ended)
    with ThreadPoolExecutor(30) as pool:

        def refused(caller_id: str, times: int, priority: Priority) -> list[str]:
            """Return the refusals of so many calls at once; the others go on."""
            before = limiter._held[PLANS, ""]
            asked = [
                pool.submit(workers.call_worker, caller_id, str, priority=priority) for _ in range(times)
            ]
            until(lambda: limiter._held[PLANS, ""] - before + sum(each.done() for each in asked) == times)
            return [str(getattr(each.exception(), "detail", None)) for each in asked if each.done()]

        try:
            own = "You have too many plans. Try again when some have ended."
            all_ = "There are too many plans. Try again later."
            assert refused("one", 6, "free") == [own, own]
            assert refused("another", 4, "free") == []
            assert refused("a third", 4, "free") == []
            assert refused("a fourth", 1, "free") == [all_]
            assert refused("a fourth", 4, "charged") == []
            assert refused("a fifth", 1, "charged") == [all_]
        finally:
            ended.set_result("")
    assert not limiter._held


def test_a_call_that_may_not_wait_is_refused_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: Future[str] = Future()
    workers = Workers(timeout=HANG_GUARD)
    monkeypatch.setattr(workers, "_start", lambda *_: ended)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(workers.call_worker, "one", str, priority="charged")
        until(lambda: bool(workers._turns._running))
        with pytest.raises(Unavailable):
            workers.call_worker("another", str, priority="idle")
        ended.set_result("made")
        assert other.result() == "made"
    assert workers.call_worker("another", str, priority="idle") == "made"


def test_uploads_have_a_time_limit_of_their_own(tmp_path: Path) -> None:
    """The limit ends only the upload that takes too long, and is never longer than that of jobs."""
    assert Workers(timeout=HANG_GUARD, intake_timeout=3 * HANG_GUARD)._intake_timeout == HANG_GUARD

    async def use(workers: Workers) -> None:
        both = [
            asyncio.create_task(workers.in_worker(work, remote_jobs.waits, str(tmp_path / work), ""))
            for work in ("intake", "fetch")
        ]
        with pytest.raises(Unavailable):
            await both[0]
        while not (tmp_path / "fetch").exists():
            await asyncio.sleep(0.01)
        assert not both[1].done()
        (tmp_path / "fetch").unlink()
        await both[1]

    in_workers(use, 600.0, intake_timeout=0.5)


def test_a_hostile_upload_reaches_nothing_from_the_worker_that_parses(tmp_path: Path) -> None:
    """Like `test_confinement`, in the service's own worker, where one owner's rows and the secrets lie."""
    if missing(tmp_path):
        pytest.skip("this machine offers less")
    store = Store(tmp_path)
    others = store.path("ow_other", "ds_other")
    others.parent.mkdir(mode=0o700)
    others.write_bytes(npy(spd(60)))
    (tmp_path / "secret").write_bytes(b"s" * 32)
    folder = store.incoming / "ds_own"
    folder.mkdir(mode=0o700)

    async def use(workers: Workers) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            about = os.getpid(), listener.getsockname()[1]
            for file in (others, tmp_path / "secret"):
                found = await workers.in_worker(
                    "intake", confined.try_all, str(folder), [], str(file), *about
                )
                assert found["ways"] == []

    in_workers(use, prepare=prepare)

"""Worker processes of this machine: loaded once, replaced where they break down."""

import gc
import os
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
from pebble import ProcessPool

from privest_service.workers import pool as worker_pool
from privest_service.workers.pool import Processes
from testing import confined
from testing.server import HANG_GUARD, until


def test_a_pool_that_cannot_start_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked whether it is active, pebble's starts its processes: what that raises would end the feeder."""
    processes = Processes(1, 2**31)
    try:
        assert processes.call(float(HANG_GUARD), os.getpid).result()
        with monkeypatch.context() as patch:

            def unstartable(_: object) -> bool:
                raise BrokenProcessPool

            patch.setattr(ProcessPool, "active", property(unstartable))
            processes.restart_if_broken()
            assert processes._pool is None
        assert processes.call(float(HANG_GUARD), os.getpid).result()
    finally:
        processes.stop()


class Stuck:
    """Takes a minute to be read, before a worker can say that it took it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return time.sleep, (60.0,)


@pytest.mark.costly
def test_workers_that_take_up_nothing_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_STALLED", 1.0)
    processes = worker_pool.Processes(1, 2**31)
    lost, waiting = processes.call(60.0, print, Stuck()), processes.call(60.0, abs, -1)
    until(lambda: (processes.restart_if_broken(), lost.done() and waiting.done())[1])
    for call in (lost, waiting):
        with pytest.raises(BrokenProcessPool):
            call.result()
    monkeypatch.setattr(worker_pool, "_STALLED", 60.0)
    assert processes.call(HANG_GUARD, abs, -1).result(HANG_GUARD) == 1
    busy = processes.call(60.0, time.sleep, 2.5)
    until(busy.running)
    monkeypatch.setattr(worker_pool, "_STALLED", 1.0)
    processes.stop()  # waits for what is under way
    assert busy.done()
    assert busy.exception() is None

    processes = worker_pool.Processes(1, 2**31)
    lost = processes.call(60.0, print, Stuck())
    processes.stop()  # and not for what never will be
    with pytest.raises(BrokenProcessPool):
        lost.result(HANG_GUARD)


def test_what_is_loaded_before_workers_are_forked_is_there() -> None:
    """The fork server passes over a module that it does not find: each worker would load all of it anew."""
    processes = worker_pool.Processes(1, 2**31)
    try:
        loaded = processes.call(HANG_GUARD, confined.loaded).result()
    finally:
        processes.stop()
    assert {*worker_pool._PRELOADED} <= loaded


def test_workers_look_for_garbage_in_what_they_load_themselves() -> None:
    """What they were forked with is shared, as long as nobody looks through it."""
    processes = Processes(1, 2**31)
    try:
        assert processes.call(float(HANG_GUARD), gc.isenabled).result()
        assert processes.call(float(HANG_GUARD), gc.get_freeze_count).result() > 100_000
    finally:
        processes.stop()


def test_what_workers_are_forked_from_stays_light() -> None:
    """Every service starts such a process; the database, HTTP and keys are for the web process."""
    assert heavy_in(worker_pool._PRELOADED) == set()
    assert "sqlalchemy" in heavy_in(["privest_service.estimates.schemas"])


def heavy_in(modules: list[str]) -> set[str]:
    """What is heavy of that which a process has loaded after it imported modules."""
    heavy = {
        "sqlalchemy",
        "alembic",
        "cryptography",
        "uvicorn",
        "jinja2",
        "scipy.stats",
        "pyarrow",
        "obstore",
    }
    code = f"import sys; [__import__(name) for name in {modules}]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return heavy & {*loaded.split()}

"""Work that the web process hands to worker processes, beside jobs: uploads, sources, plans, ledgers."""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as WorkerTimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from typing import Any, Literal, TypeVar

from pebble import ProcessExpired, ProcessFuture

from privest_service.limits import FREE_PLANS, PLANS, Limiter
from privest_service.problems import TooLarge, Unavailable
from privest_service.workers.pool import Processes
from privest_service.workers.turns import NoTurnError, Priority, Turns

T = TypeVar("T")

Work = Literal["intake", "fetch", "plan", "verify"]
"""What workers do beside jobs: uploads, sources elsewhere, heavy plans, whole ledgers."""

_PLAN_SECONDS = 60.0
"""Seconds to wait for a plan, with the wait for its turn."""

_PLANNING_PROCESSES = 2
"""Processes that plan. With two, no caller's long plan keeps another's query waiting: see `Turns`."""

_LOST = (WorkerTimeoutError, ProcessExpired, BrokenProcessPool, CancelledError, NoTurnError, OSError)
"""Errors that mean that a worker's call was lost."""


def _of_drivers() -> dict[str, str]:
    """The environment, in which drivers of sources may look, without the service's own part of it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PRIVEST_")}


class Workers:
    """Worker processes for uploads, sources, heavy plans and whole ledgers.

    Args:
        timeout: seconds that one call may take.
        intake_timeout, intake_workers, memory: as the settings of these names.
        prepare: done in each process that parses uploads before its first call.
        limiter: of what callers may hold.
    """

    def __init__(
        self,
        *,
        timeout: float,
        intake_timeout: float = 300.0,
        intake_workers: int = 2,
        memory: int = 2**31,
        prepare: Callable[[], None] | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self._timeout, self._intake_timeout = timeout, min(intake_timeout, timeout)
        self._several, self._memory, self._prepare = intake_workers, memory, prepare
        self._limiter = limiter or Limiter()
        self._pools: dict[Work, Processes] = {}
        self._turns = Turns(_PLANNING_PROCESSES)

    def start(self) -> None:
        """Make ready; no process starts before it is needed."""
        # Each kind of work has workers of its own, so that none waits behind another, and no claimed job
        # behind any of them while its lease runs.
        self._pools = {
            "intake": Processes(self._several, self._memory, self._prepare),
            "fetch": Processes(self._several, self._memory, environment=_of_drivers()),
            "plan": Processes(_PLANNING_PROCESSES, self._memory),
            "verify": Processes(1, self._memory),
        }
        for pool in self._pools.values():
            pool.start()

    def stop(self) -> None:
        """Wait for all calls to end, and end the processes."""
        for pool in self._pools.values():
            pool.stop()

    def restart_if_broken(self) -> None:
        """Replace the processes that broke down; to be called now and then."""
        for pool in self._pools.values():
            pool.restart_if_broken()

    def _start(self, work: Work, function: Callable[..., T], *args: Any) -> ProcessFuture[T]:
        try:
            seconds = self._intake_timeout if work == "intake" else self._timeout
            return self._pools[work].call(seconds, function, *args)
        except (KeyError, RuntimeError):  # not started yet, or no more
            raise Unavailable(retry_after=1) from None

    async def in_worker(self, work: Work, function: Callable[..., T], *args: Any) -> T:
        """Run in a worker process what a hostile caller may make crash, hang or slow; no thread waits for it.

        Raises:
            TooLarge: it needs more memory than a worker may take.
            Unavailable: it came to no end.
        """
        try:
            return await asyncio.wrap_future(self._start(work, function, *args))
        except MemoryError:
            raise TooLarge(
                "This needs more memory than a worker has. Nothing was stored. Send less."
            ) from None
        except _LOST:
            raise Unavailable(
                "This could not be processed. Nothing was stored. Try again, or send less."
            ) from None

    def fetch_worker(self, seconds: float, function: Callable[..., T], *args: Any) -> T:
        """Call a driver of a source in a worker process, and wait in this thread.

        Raises:
            Unavailable: it came to no end in time.
        """
        future = self._start("fetch", function, *args)
        try:
            return future.result(seconds)
        except (*_LOST, MemoryError):
            future.cancel()
            raise Unavailable(retry_after=1) from None

    def call_worker(
        self, caller_id: str, function: Callable[..., T], *args: Any, priority: Priority = "free"
    ) -> T:
        """Run in a planning process what is too heavy for this one, and wait in this thread.

        Callers take turns: see `Turns`. A call of the priority `idle` runs only if no other runs or waits.

        Raises:
            TooManyRequests: the caller has too many calls that run or wait.
            Unavailable: the call did not end in time, there are too many, or processes are not idle.
        """
        hold, deadline = self._limiter.hold, time.monotonic() + _PLAN_SECONDS
        limited = nullcontext() if priority == "charged" else hold(FREE_PLANS, caller_id)
        try:
            with hold(PLANS, caller_id), limited, self._turns.turn(caller_id, priority, _PLAN_SECONDS):
                future = self._start("plan", function, *args)
                try:
                    return future.result(deadline - time.monotonic())
                finally:
                    future.cancel()
        except (*_LOST, MemoryError):
            raise Unavailable("This could not be processed. Nothing was charged. Try again later.") from None

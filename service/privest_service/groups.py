"""What waits in one line is done together, in the order in which it came; or apart, where that takes long."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, to_thread

from privest_service.problems import DatabaseUnavailable

T = TypeVar("T")
R = TypeVar("R")

MOST = 32
"""Most of a group, by size: whoever comes next should not wait long for a transaction."""

_PATIENCE = 30.0
"""Seconds to wait for a turn: a little longer than the first of those that wait for a lock does."""

_LINES = 2
"""Lines, each of which does one group at a time, in a thread with a connection to the database.

A transaction of eight owners' charges takes little longer than one of one owner's. More lines make
smaller groups.
"""


class ApartError(Exception):
    """Nothing was done about something in its group, where others would wait for it: do it by itself."""


class Turns:
    """Has what is about the same done one after another, each apart from its group."""

    def __init__(self) -> None:
        self._locks = WeakValueDictionary[Hashable, asyncio.Lock]()

    @asynccontextmanager
    async def turn(self, about: Hashable) -> AsyncIterator[None]:
        """Wait until nothing else about this is done, and keep it so meanwhile.

        Raises:
            DatabaseUnavailable: half a minute was not enough. Nothing was done.
        """
        lock = self._locks.setdefault(about, asyncio.Lock())
        try:
            async with asyncio.timeout(_PATIENCE):
                await lock.acquire()
        except TimeoutError:
            raise DatabaseUnavailable(
                "Others are changing the same data. Nothing was written. Try again.", retry_after=5
            ) from None
        try:
            yield
        finally:
            lock.release()


class _Waits(NamedTuple, Generic[T, R]):
    """Something that waits to be done, how large it is, and what hears of its outcome."""

    what: T
    size: int
    outcome: "asyncio.Future[R | BaseException]"


class Groups(Generic[T, R]):
    """Collects what waits in a line while the group before is done in a thread; waiting holds none.

    What is about the same is always in the same line, with other things.
    """

    def __init__(self) -> None:
        self._waiting = dict[int, list[_Waits[T, R]]]()
        self._tasks = set[asyncio.Task[None]]()
        self._threads: CapacityLimiter | None = None

    async def do(
        self,
        about: Hashable,
        what: T,
        act: Callable[[Sequence[T]], Sequence[R | Exception]],
        size: int = 1,
    ) -> R:
        """Have something done in its turn, together with what else waits in its line.

        Args:
            about: what it is about, which tells its line. What only looks holds up nobody, and is about None:
                one line makes the largest groups.
            what: is to be done.
            act: does several in their order, and tells what came of each.
            size: of it, where things differ in what they take. A group is closed at a size.

        Raises:
            Exception: what came of it, or of all in its group.
        """
        outcome, line = asyncio.get_running_loop().create_future(), hash(about) % _LINES
        waits = _Waits(what, size, outcome)
        if line in self._waiting:
            self._waiting[line].append(waits)
        else:
            self._waiting[line] = [waits]
            task = asyncio.create_task(self._in_turn(line, act))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        found = await outcome
        if isinstance(found, BaseException):
            raise found
        return found

    async def _in_turn(self, line: int, act: Callable[[Sequence[T]], Sequence[R | Exception]]) -> None:
        self._threads = self._threads or CapacityLimiter(_LINES)
        try:
            while waiting := self._waiting[line]:
                count = _first(waiting)
                group, self._waiting[line] = waiting[:count], waiting[count:]
                try:
                    outcomes = await to_thread.run_sync(
                        act, [each.what for each in group], limiter=self._threads
                    )
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # each of the group is told, and the line goes on
                    outcomes = [error] * count
                for each, outcome in zip(group, outcomes, strict=True):
                    if not each.outcome.done():  # whoever waited may be gone
                        each.outcome.set_result(outcome)
        finally:
            del self._waiting[line]


def _first(waiting: Sequence[_Waits[T, R]]) -> int:
    """How many of those that wait are a group: as many as are small enough together, or a large one."""
    total = 0
    for count, each in enumerate(waiting):
        total += each.size
        if count and total > MOST:
            return count
    return len(waiting)

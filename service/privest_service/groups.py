"""What waits in one line is done together: in the order in which it came, group after group."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")
R = TypeVar("R")

_MOST = 32
"""Most of a group: whoever comes next should not wait long for a transaction."""

_LINES = 2
"""Lines, each of which does one group at a time, in a thread with a connection to the database.

A transaction of eight owners' charges takes little longer than one of one owner's. More lines make
smaller groups.
"""


class Groups(Generic[T, R]):
    """Collects what waits in a line while the group before is done in a thread; waiting holds none.

    What is about the same is always in the same line, with other things.
    """

    def __init__(self) -> None:
        self._waiting = dict[int, list[tuple[T, asyncio.Future[R | Exception]]]]()
        self._tasks = set[asyncio.Task[None]]()
        self._threads: CapacityLimiter | None = None

    async def do(self, about: Hashable, what: T, act: Callable[[Sequence[T]], Sequence[R | Exception]]) -> R:
        """Have something done in its turn, together with what else waits in its line.

        Args:
            about: what it is about, which tells its line. What only looks holds up nobody, and is about None:
                one line makes the largest groups.
            what: is to be done.
            act: does several in their order, and tells what came of each.

        Raises:
            Exception: what came of it, or of all in its group.
        """
        outcome, line = asyncio.get_running_loop().create_future(), hash(about) % _LINES
        if line in self._waiting:
            self._waiting[line].append((what, outcome))
        else:
            self._waiting[line] = [(what, outcome)]
            task = asyncio.create_task(self._in_turn(line, act))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        found = await outcome
        if isinstance(found, Exception):
            raise found
        return found

    async def _in_turn(self, line: int, act: Callable[[Sequence[T]], Sequence[R | Exception]]) -> None:
        self._threads = self._threads or CapacityLimiter(_LINES)
        while waiting := self._waiting[line]:
            self._waiting[line] = waiting[_MOST:]
            group = waiting[:_MOST]
            try:
                outcomes = await to_thread.run_sync(act, [what for what, _ in group], limiter=self._threads)
            except Exception as error:  # each of the group is told
                outcomes = [error] * len(group)
            for (_, future), outcome in zip(group, outcomes, strict=True):
                if not future.done():  # whoever waited may be gone
                    future.set_result(outcome)
        del self._waiting[line]

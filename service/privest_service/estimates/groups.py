"""What waits for the same accounts is done together: in the order in which it came, group after group."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")
R = TypeVar("R")

_MOST = 32
"""Most of a group: whoever comes next should not wait long for a transaction."""

_THREADS = 8
"""Groups that are done at a time, each with a connection to the database."""


class Groups(Generic[T, R]):
    """Collects what waits for the same while the group before is done in a thread; waiting holds none."""

    def __init__(self) -> None:
        self._waiting = dict[Hashable, list[tuple[T, asyncio.Future[R | Exception]]]]()
        self._tasks = set[asyncio.Task[None]]()
        self._threads: CapacityLimiter | None = None

    async def do(self, about: Hashable, what: T, act: Callable[[Sequence[T]], Sequence[R | Exception]]) -> R:
        """Have something done in its turn, together with what else waits for the same.

        Args:
            about: what it waits for.
            what: is to be done.
            act: does several in their order, and tells what came of each.

        Raises:
            Exception: what came of it, or of all in its group.
        """
        outcome = asyncio.get_running_loop().create_future()
        if about in self._waiting:
            self._waiting[about].append((what, outcome))
        else:
            self._waiting[about] = [(what, outcome)]
            task = asyncio.create_task(self._in_turn(about, act))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        found = await outcome
        if isinstance(found, Exception):
            raise found
        return found

    async def _in_turn(self, about: Hashable, act: Callable[[Sequence[T]], Sequence[R | Exception]]) -> None:
        self._threads = self._threads or CapacityLimiter(_THREADS)
        while waiting := self._waiting[about]:
            self._waiting[about] = waiting[_MOST:]
            group = waiting[:_MOST]
            try:
                outcomes = await to_thread.run_sync(act, [what for what, _ in group], limiter=self._threads)
            except Exception as error:  # each of the group is told
                outcomes = [error] * len(group)
            for (_, future), outcome in zip(group, outcomes, strict=True):
                if not future.done():  # whoever waited may be gone
                    future.set_result(outcome)
        del self._waiting[about]

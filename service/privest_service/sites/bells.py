"""Bells: requests that wait for the same thing, and are woken when it may be there."""

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

_REMEMBERED = 10_000
"""Most numbers that are waited for of which it is known since when."""


Told = tuple[int, bytes] | None
"""What a bell tells: an answer and its number; None where there is something to be looked at."""


class Bells:
    """Wakes the requests of this process that wait for what a name stands for."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[asyncio.Queue[Told]]] = defaultdict(set)
        self._since = OrderedDict[tuple[str, int], float]()

    def waited(self, name: str, number: int) -> float:
        """Seconds since somebody here first waited for a number under a name; from now on it is known."""
        since = self._since.setdefault((name, number), time.monotonic())
        while len(self._since) > _REMEMBERED:
            self._since.popitem(last=False)
        return time.monotonic() - since

    def forget(self, name: str, number: int) -> None:
        """Forget since when somebody waited."""
        self._since.pop((name, number), None)

    def ring(self, name: str, told: Told = None) -> None:
        """Wake all who wait under a name."""
        for each in self._waiting.get(name, ()):
            each.put_nowait(told)

    @contextmanager
    def listening(self, name: str) -> Iterator[Callable[[float], Awaitable[Told]]]:
        """Listen, so that nothing is missed between a look and the wait after it.

        What is yielded waits until it rings, for what is told then, or for so many seconds, and then for
        nothing: another process may have what is waited for.
        """
        rung = asyncio.Queue[Told]()
        self._waiting[name].add(rung)

        async def heard(seconds: float) -> Told:
            try:
                return await asyncio.wait_for(rung.get(), seconds)
            except TimeoutError:
                return None

        try:
            yield heard
        finally:
            self._waiting[name].discard(rung)
            if not self._waiting[name]:
                del self._waiting[name]

"""Bells: requests that wait for the same thing, and are woken when it may be there."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager


class Bells:
    """Wakes the requests of this process that wait for what a name stands for."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def ring(self, name: str) -> None:
        """Wake all who wait under a name."""
        for each in self._waiting.get(name, ()):
            each.set()

    @contextmanager
    def listening(self, name: str) -> Iterator[Callable[[float], Awaitable[None]]]:
        """Listen, so that nothing is missed between a look and the wait after it.

        What is yielded waits until it rings, or for so many seconds: another process may have what is waited
        for.
        """
        rung = asyncio.Event()
        self._waiting[name].add(rung)

        async def heard(seconds: float) -> None:
            try:
                await asyncio.wait_for(rung.wait(), seconds)
            except TimeoutError:
                return
            rung.clear()

        try:
            yield heard
        finally:
            self._waiting[name].discard(rung)
            if not self._waiting[name]:
                del self._waiting[name]

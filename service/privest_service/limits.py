"""Limits on what one caller, and all callers together, may hold of this process at a time.

Whoever is beyond its own share is told 429, whoever comes when all shares together are taken 503, both with
`Retry-After`. The administrator, who may have to stop others, is counted and never refused.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, fail_after, to_thread

from privest_service.problems import Problem, TooManyRequests, Unavailable

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Limit:
    """A limit on how much of something may be held at a time.

    Attributes:
        what: it is, as whoever is refused reads it.
        each: for one caller.
        all: for all callers together.
    """

    what: str
    each: int
    all: int


REQUESTS = Limit("requests under way", 128, 1024)
"""Requests from the head to the end of the answer, with streams and long waits."""

WAITS = Limit("answers waited for", 64, 512)
"""Requests with `Prefer: wait`. A caller that finds no place is answered at once."""

JOB_STREAMS = Limit("streams of jobs' states", 12, 256)
PAGE_STREAMS = Limit("open pages", 12, 256)

UPLOADS = Limit("datasets being registered", 8, 32)
"""Uploads. Their files go to the disk as they arrive, before anything is known of them."""

EXPORTS = Limit("exports", 2, 4)
"""Exports. Each holds a connection to the database for as long as it is written."""

VERIFICATIONS = Limit("verifications", 1, 4)

REPORTS = Limit("reports", 2, 4)
"""Reports for auditors. Each is a file until all of it is sent."""

PLANS = Limit("plans", 4, 16)
"""Calls of planning processes. A thread waits for each; `workers.turns` says which runs next."""

FREE_PLANS = Limit("plans", 4, 12)
"""Calls for which nothing is charged. They are limited to fewer, so that plans to be charged find a place."""

THREADS = 6
"""Most threads, and so database connections, that one caller holds at a time. Further work waits."""

LONG = 2**14
"""Bytes from which on a document is read in a thread: in the event loop all callers would wait for it."""

CONNECTIONS = 16
"""Most connections of this process to the database."""

_STRANGERS = 8
"""Threads that recognise callers. A caller cannot hold one after that."""

_STRANGERS_SECONDS = 10.0
"""Longest wait for one of these threads. All of them wait for a database that hangs."""

_BODIES, _ALL_BODIES = 4, 32
"""Most bodies of the largest size in memory: of one caller's requests, and of all callers'."""

_CHARGES = 8
"""Threads that charge queries, with a connection each. No other work of a caller can hold them."""

_LOCK_SECONDS = 30.0
"""Longest wait for locks: a little longer than a charge waits for another process, five times."""

_ALL = ""
"""Name under which the counts of all callers together are kept."""

_turns: ContextVar[asyncio.Semaphore | None] = ContextVar("turns", default=None)
"""The present caller's turns for threads; the service itself needs none."""


class Limiter:
    """Counts what is held in this process.

    Args:
        largest_body: bytes that the body of a request may have which brings no file.
    """

    def __init__(self, largest_body: int = 2**20) -> None:
        self.largest_body = largest_body
        self.bodies = Limit("bytes of requests", _BODIES * largest_body, _ALL_BODIES * largest_body)
        self._held, self._lock = Counter[tuple[Limit, str]](), Lock()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._strangers = CapacityLimiter(_STRANGERS)

    @contextmanager
    def hold(self, limit: Limit, who: str, amount: int = 1) -> Generator[None]:
        """Hold so much of something.

        Raises:
            TooManyRequests: the caller would hold more than its share.
            Unavailable: all together would hold more than there is.
        """
        if refused := self._take(limit, who, amount):
            raise refused
        try:
            yield
        finally:
            self._give_back(limit, who, amount)

    @contextmanager
    def hold_if_free(self, limit: Limit, who: str) -> Generator[bool]:
        """Hold one of something, or be told that there is none."""
        held = self._take(limit, who, 1) is None
        try:
            yield held
        finally:
            if held:
                self._give_back(limit, who, 1)

    def _take(self, limit: Limit, who: str, amount: int) -> Problem | None:
        mine, everybodys = (limit, who), (limit, _ALL)
        with self._lock:
            if who != "admin":
                if self._held[mine] + amount > limit.each:
                    return TooManyRequests(
                        f"You have too many {limit.what}. Try again when some have ended.",
                        headers={"Retry-After": "1"},
                    )
                if self._held[everybodys] + amount > limit.all:
                    return Unavailable(f"There are too many {limit.what}. Try again later.", retry_after=5)
            self._held[mine] += amount
            self._held[everybodys] += amount
        return None

    def _give_back(self, limit: Limit, who: str, amount: int) -> None:
        with self._lock:
            for key in ((limit, who), (limit, _ALL)):
                self._held[key] -= amount
                if not self._held[key]:
                    del self._held[key]

    async def recognise(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what finds out who calls, in a thread that no known caller can hold.

        Raises:
            Unavailable: no such thread was free in time.
        """
        try:
            with fail_after(_STRANGERS_SECONDS):  # which does not interrupt a thread
                return await to_thread.run_sync(lambda: function(*args, **kwargs), limiter=self._strangers)
        except TimeoutError:
            raise Unavailable(
                "Too many callers wait for their keys to be looked up. Try again in a few seconds.",
                retry_after=5,
            ) from None

    @contextmanager
    def on_behalf_of(self, who: str, body: int = 0) -> Generator[None]:
        """Have what is done here, and all that it starts, take its turns among this caller's threads.

        Long bodies are worked on one at a time, because that keeps the interpreter busy.
        """
        long = body >= LONG
        name = f"{who} long" if long else who
        turns = self._turns.get(name)
        if turns is None:
            turns = self._turns[name] = asyncio.Semaphore(1 if long else THREADS)
        before = _turns.set(turns)
        try:
            yield
        finally:
            _turns.reset(before)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what blocks in a thread, of which the present caller has few at a time."""
    async with _turns.get() or nullcontext():
        return await to_thread.run_sync(lambda: function(*args, **kwargs))


class ChargeLine:
    """Runs charges; those of the same callers or owners one after another, waiting without a thread."""

    def __init__(self) -> None:
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._threads = CapacityLimiter(_CHARGES)

    async def run(self, keys: Sequence[str], charge: Callable[[], T]) -> T:
        """Run a charge in a thread, once no other one of these keys runs, in the order in which they came.

        Args:
            keys: ids of the caller and then of owners, in an order that all charges keep.
            charge: what blocks.

        Raises:
            Unavailable: half a minute was not enough. Nothing was done.
        """
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(_LOCK_SECONDS):
                    for key in keys:
                        lock = self._locks.setdefault(key, asyncio.Lock())
                        await lock.acquire()
                        held.callback(lock.release)
            except TimeoutError:
                raise Unavailable(
                    "Others are changing the same data. Nothing was written. Try again.", retry_after=5
                ) from None
            return await to_thread.run_sync(charge, limiter=self._threads)

"""Rate limits: known callers are counted by who they are, and wrong keys by their address."""

import math
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import structlog
from limits import RateLimitItem, RateLimitItemPerMinute, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from privest_service.problems import TooManyRequests
from privest_service.security.principals import Principal

T = TypeVar("T")

_FAILURES = RateLimitItemPerMinute(60, namespace="failures")

_SILENCE = 60.0
"""Fewest seconds between two log messages about a counter that fails."""

_SWEEP = 60.0
"""Seconds after which counters of those who did not come again are forgotten."""

log = structlog.get_logger()


class _Moments(MemoryStorage):
    """The moments that moving windows are counted by, forgotten as they grow old.

    The library's own storage starts a thread for nearly every request, which copies all moments.
    """

    def __init__(self) -> None:
        super().__init__()
        self._moments = dict[str, tuple[int, deque[float]]]()
        self._guard, self._swept = Lock(), 0.0

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count so many under a key, unless it would be more than `limit` in `expiry` seconds."""
        moment = time.time()
        with self._guard:
            if moment - self._swept >= _SWEEP:
                self._swept = moment
                for each in list(self._moments):
                    self._forget(each, moment)
            _, found = self._moments.setdefault(key, (expiry, deque()))
            self._since(found, moment - expiry)
            if len(found) + amount > limit:
                return False
            found.extend([moment] * amount)
            return True

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:  # noqa: ARG002
        """When the first was counted of those that count yet, and their number."""
        moment = time.time()
        with self._guard:
            found = self._moments.get(key, (expiry, deque[float]()))[1]
            self._since(found, moment - expiry)
            return (found[0] if found else moment), len(found)

    def _forget(self, key: str, moment: float) -> None:
        expiry, found = self._moments[key]
        self._since(found, moment - expiry)
        if not found:
            del self._moments[key]

    @staticmethod
    def _since(found: deque[float], oldest: float) -> None:
        while found and found[0] < oldest:
            found.popleft()


class RateLimiter:
    """Counts in this process. What cannot be counted may pass: budgets do not depend on it.

    The limit is on the requests of one principal, like `600/minute`.
    """

    def __init__(self, limit: str) -> None:
        self._limit = parse(limit)
        self._limiter = MovingWindowRateLimiter(_Moments())
        self._told = float("-inf")

    def count(self, principal: Principal) -> None:
        """One request; the administrator, who may have to stop others, is not limited.

        Raises:
            TooManyRequests: it is one too many.
        """
        if principal.role != "admin" and not self._asked(
            lambda: self._limiter.hit(self._limit, principal.id), otherwise=True
        ):
            raise self._later(self._limit, principal.id, f"You sent more than {self._limit}")

    def check_failures(self, address: str) -> None:
        """Let an address try a key that a person may have chosen.

        Raises:
            TooManyRequests: too many from there opened nothing.
        """
        if not self._asked(lambda: self._limiter.test(_FAILURES, address), otherwise=True):
            raise self._later(_FAILURES, address, "Too many wrong keys came from your address")

    def guessed_wrong(self, address: str) -> None:
        """Count a wrong guess of a key from this address."""
        self._asked(lambda: self._limiter.hit(_FAILURES, address), otherwise=True)

    def _later(self, limit: RateLimitItem, who: str, why: str) -> TooManyRequests:
        free = self._asked(
            lambda: self._limiter.get_window_stats(limit, who).reset_time, otherwise=time.time()
        )
        seconds = max(1, math.ceil(free - time.time()))
        return TooManyRequests(f"{why}. Try again in {seconds} s.", headers={"Retry-After": str(seconds)})

    def _asked(self, ask: Callable[[], T], *, otherwise: T) -> T:
        """Return the counter's answer, or `otherwise` if the counter fails."""
        try:
            return ask()
        except Exception as error:
            if time.monotonic() - self._told >= _SILENCE:
                self._told = time.monotonic()
                log.error("requests are not counted", error=type(error).__name__)
            return otherwise

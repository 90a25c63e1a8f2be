"""Rate limits: known callers are counted by who they are, and wrong keys by their address."""

import math
import time
from collections.abc import Callable
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

log = structlog.get_logger()


class RateLimiter:
    """Counts in this process. What cannot be counted may pass: budgets do not depend on it.

    The limit is on the requests of one principal, like `600/minute`.
    """

    def __init__(self, limit: str) -> None:
        self._limit = parse(limit)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
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

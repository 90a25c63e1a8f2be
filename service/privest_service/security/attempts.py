"""How often an address may fail to sign in."""

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

_FAILURES = RateLimitItemPerMinute(10)


class Attempts:
    """Counts failures by address, in this process, over the last minute."""

    def __init__(self) -> None:
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    def may_try(self, address: str) -> bool:
        """Whether the address has failures left."""
        return self._limiter.test(_FAILURES, address)

    def failed(self, address: str) -> None:
        """Count one."""
        self._limiter.hit(_FAILURES, address)

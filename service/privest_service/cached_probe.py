"""Looks at what may be slow or hang: never waited for longer than said, and not taken again at once."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT = 1.0
"""Seconds for which the result of a health check stands."""

PATIENCE = 1.5
"""Seconds to wait for a health check before treating it as failed."""


class CachedProbe(Generic[T]):
    """Runs a check in a thread of its own, one at a time, so that checks that hang never pile up.

    If `look` raises, nothing was seen. Its answer stands for `kept` seconds.
    """

    def __init__(self, look: Callable[[], T], *, kept: float = KEPT) -> None:
        self._look, self._kept = look, kept
        self._lock = threading.Lock()
        self._begun = float("-inf")
        self._last: Future[T] | None = None

    def begin(self) -> tuple[Future[T], float]:
        """Return the latest check and the seconds since it began. An outdated one is begun anew."""
        with self._lock:
            age = time.monotonic() - self._begun
            if self._last is None or (self._last.done() and age >= self._kept):
                self._begun, self._last, age = time.monotonic(), Future(), 0.0
                threading.Thread(target=self._run, args=(self._last,), name="look", daemon=True).start()
            return self._last, age

    def seen(self) -> T | None:
        """Return the latest result, or None if the check fails or takes too long. For threads."""
        under_way, age = self.begin()
        try:
            return under_way.result(max(0.0, PATIENCE - age))
        except TimeoutError:
            return None

    def _run(self, seen: Future[T]) -> None:
        try:
            seen.set_result(self._look())
        except BaseException:
            self._last = None  # the next one may see
            raise

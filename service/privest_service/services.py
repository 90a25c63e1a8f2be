"""What one running service is made of."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from privest_service.database import Database
from privest_service.datasets.store import Store
from privest_service.estimates.engine import Engine
from privest_service.estimates.remembered import Remembered
from privest_service.problems import TooManyRequests
from privest_service.readiness import Readiness
from privest_service.security.rates import Rates
from privest_service.settings import Settings


@dataclass(frozen=True)
class Services:
    """Shared by all requests of one process."""

    settings: Settings
    database: Database
    store: Store
    engine: Engine
    readiness: Readiness
    rates: Rates
    plans: Remembered = field(default_factory=Remembered)
    _busy: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    @contextmanager
    def at_most(self, count: int, what: str, whose: str) -> Iterator[None]:
        """Do something that only so many may do at a time for one principal, in this process.

        To be entered in the event loop, where nothing comes between the look and the count.

        Raises:
            TooManyRequests: so many do.
        """
        key = what, whose
        if self._busy[key] >= count:
            raise TooManyRequests("the same is going on for you as often as it may at a time")
        self._busy[key] += 1
        try:
            yield
        finally:
            self._busy[key] -= 1
            if not self._busy[key]:
                del self._busy[key]

"""What one running service is made of."""

from collections import Counter
from dataclasses import dataclass, field

from privest_service.database import Database
from privest_service.datasets.store import Store
from privest_service.estimates.engine import Engine
from privest_service.security.attempts import Attempts
from privest_service.settings import Settings


@dataclass(frozen=True)
class Services:
    """Shared by all requests of one process."""

    settings: Settings
    database: Database
    store: Store
    engine: Engine
    attempts: Attempts = field(default_factory=Attempts)
    streams: Counter[str] = field(default_factory=Counter[str])
    """Of changes, that are open, by whose they are."""

"""What one running service is made of."""

from dataclasses import dataclass

from privest_service.database import Database
from privest_service.datasets.store import Store
from privest_service.estimates.engine import Engine
from privest_service.settings import Settings


@dataclass(frozen=True)
class Services:
    """Shared by all requests of one process."""

    settings: Settings
    database: Database
    store: Store
    engine: Engine

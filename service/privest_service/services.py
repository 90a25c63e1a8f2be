"""What one running service is made of."""

from dataclasses import dataclass, field

from privest_service.database import Database
from privest_service.datasets.store import Store
from privest_service.estimates.engine import Engine
from privest_service.estimates.remembered import Remembered
from privest_service.limits import Limiter
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
    limiter: Limiter
    plans: Remembered = field(default_factory=Remembered)

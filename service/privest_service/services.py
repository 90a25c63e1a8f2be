"""What one running service is made of."""

from dataclasses import dataclass, field

from privest_service.database import Database
from privest_service.datasets.store import Store
from privest_service.estimates.engine import Engine
from privest_service.estimates.plan_cache import PlanCache
from privest_service.limits import Limiter
from privest_service.readiness import Readiness
from privest_service.security.rate_limit import RateLimiter
from privest_service.settings import Settings


@dataclass(frozen=True)
class Services:
    """Shared by all requests of one process."""

    settings: Settings
    database: Database
    store: Store
    engine: Engine
    readiness: Readiness
    rates: RateLimiter
    limiter: Limiter
    plans: PlanCache = field(default_factory=PlanCache)

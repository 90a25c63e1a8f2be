"""Whether this replica can answer queries, and if not, which part of it cannot, in fixed words."""

import asyncio
from collections.abc import Callable
from functools import partial

import structlog
from sqlalchemy.exc import SQLAlchemyError

from privest_service.cached_probe import PATIENCE, CachedProbe
from privest_service.database import Database
from privest_service.datasets.store import Store
from privest_service.estimates.engine import Engine
from privest_service.problems import DatabaseUnavailable
from privest_service.workers.pool import require_worker

_ENDING = "the service is about to end"
_DATABASE = "the database does not answer, or takes no writes"
_REVISION = "the database has the tables of another version of this service"
_STORE = "the data directory cannot be written"
_WORKERS = "the workers are down"

_WORKER_KEPT = 10.0
"""Seconds for which one worker that could be started stands for all. Starting one takes 20 ms."""

_WORKER_PATIENCE = 20.0
"""Seconds to wait for a worker to start. The first has to import all that workers need."""

log = structlog.get_logger()


class Readiness:
    """Looks at all parts at once.

    Database and store must take writes, the database's tables must be of this revision, and the engine must
    be able to run jobs.
    """

    def __init__(self, database: Database, revision: str, store: Store, engine: Engine) -> None:
        self._engine = engine
        self._disks = {
            _DATABASE: CachedProbe(partial(_of_database, database, revision)),
            _STORE: CachedProbe(partial(_of, store.require_writable, _STORE)),
        }
        self._worker = CachedProbe(partial(_of, require_worker, _WORKERS), kept=_WORKER_KEPT)
        self._told: str | None = None

    async def fault(self) -> str | None:
        """Tell what is wrong, in two seconds at most. Changes are logged."""
        fault = _ENDING if self._engine.draining else await self._of_disks() or self._of_workers()
        if fault != self._told:
            log.warning("not ready", why=fault) if fault else log.info("ready again")
        self._told = fault
        return fault

    async def _of_disks(self) -> str | None:
        begun = {words: look.begin() for words, look in self._disks.items()}
        if under_way := [asyncio.wrap_future(seen) for seen, age in begun.values() if age < PATIENCE]:
            await asyncio.wait(under_way, timeout=PATIENCE)
        for words, (seen, _) in begun.items():
            if fault := seen.result() if seen.done() else words:
                return fault
        return None

    def _of_workers(self) -> str | None:
        if not self._engine.healthy:
            return _WORKERS
        seen, age = self._worker.begin()
        if seen.done():
            return seen.result()
        return _WORKERS if age > _WORKER_PATIENCE else None


def _of_database(database: Database, revision: str) -> str | None:
    try:
        return None if database.revision() == revision else _REVISION
    except (SQLAlchemyError, DatabaseUnavailable):
        return _DATABASE


def _of(require: Callable[[], None], words: str) -> str | None:
    try:
        require()
    except Exception:
        return words
    return None

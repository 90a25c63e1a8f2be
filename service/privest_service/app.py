"""The application: routes of all domains over the services of one process."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version

from fastapi import Depends, FastAPI

from privest_service import health, problems
from privest_service.cached_probe import CachedProbe
from privest_service.connections import endpoints as connections
from privest_service.dashboard import router as dashboard
from privest_service.database import Database
from privest_service.database.migrate import head
from privest_service.datasets import endpoints as datasets
from privest_service.datasets.service import clear, sweep
from privest_service.datasets.store import Store
from privest_service.datasets.submissions import NewHandle, NewUpload
from privest_service.estimates import endpoints as estimates
from privest_service.estimates.engine import Engine
from privest_service.inputs import add_schemas, validate_path_params
from privest_service.ledger import endpoints as ledger
from privest_service.limits import CONNECTIONS, Limiter
from privest_service.owners import endpoints as owners
from privest_service.problems import ProblemDocument
from privest_service.proxy_middleware import proper, unstored
from privest_service.readiness import Readiness
from privest_service.security import endpoints as security
from privest_service.security.rate_limit import RateLimiter
from privest_service.services import Services
from privest_service.settings import Settings
from privest_service.telemetry import metrics, requests

_DESCRIPTION = """\
Private statistical estimation, charged to the budget of whoever owns the data.

Adjacency throughout: one record replaced, the number of records public. A record is the unit of privacy.
"""

_PATIENCE = 10.0
"""Seconds that the database may take over a statement while somebody waits."""


def create_app(settings: Settings | None) -> FastAPI:
    """The application; without settings only its interface, for openapi.yaml."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        assert settings is not None  # noqa: S101 - the interface alone is never served
        store = Store(settings.data_dir)
        limiter = Limiter(settings.max_request_bytes)
        database = Database(settings.url, signer=settings.signer, pool_size=CONNECTIONS, patience=_PATIENCE)
        engine = Engine(
            database,
            store,
            workers=settings.workers,
            job_timeout=settings.job_timeout,
            engine=settings.engine,
            memory=settings.worker_memory,
            intake_workers=settings.intake_workers,
            intake_timeout=settings.intake_timeout,
            housekeeping=partial(sweep, database, store),
            limiter=limiter,
        )
        clear(database, store)
        engine.start()
        tempfile.tempdir = str(store.incoming)  # uploads spill over to the same disk as the rows
        readiness = Readiness(database, head(database), store, engine)
        rates = RateLimiter(settings.rate_limit)
        app.state.services = Services(settings, database, store, engine, readiness, rates, limiter)
        metrics.watch(CachedProbe(partial(health.queue, database)).seen)
        try:
            yield
        finally:
            metrics.watch(None)
            engine.stop()
            database.close()

    app = FastAPI(
        title="Privest",
        version=version("privest"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,
        docs_url=None,
        redoc_url=None,
        # Off even where the environment asks for it: it tells paths, query strings, messages of exceptions,
        # and how long every request took.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        dependencies=[Depends(validate_path_params)],
    )
    problems.install(app)
    add_schemas(app, ProblemDocument)
    add_schemas(app, NewUpload, NewHandle, suffix="-Input")
    app.add_middleware(proper)
    requests.install(app)
    app.add_middleware(unstored)
    # The limits stand here and not at the app, where what they answer could not be made a problem document.
    for router in (
        datasets.router,
        owners.router,
        security.router,
        connections.router,
        estimates.router,
        ledger.router,
        ledger.keys_router,
        health.router,
        health.counted,
    ):
        app.include_router(router, max_body_size=settings.max_request_bytes if settings else None)
    app.include_router(datasets.uploads, max_body_size=settings.max_upload_bytes if settings else None)
    if settings:
        dashboard.install(app, settings.max_upload_bytes, settings.max_request_bytes)
    return app

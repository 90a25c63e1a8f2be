"""The application: routes of all domains over the parts of one process."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version

import structlog
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from privest_service import error_handlers, examples, health
from privest_service.acts.service import seal_history, tell_what_was_left_out
from privest_service.cached_probe import CachedProbe
from privest_service.conditional_requests import tagged
from privest_service.connections import endpoints as connections
from privest_service.connections import sources
from privest_service.connections.schemas import NewObjectStore
from privest_service.connections.service import resolve
from privest_service.dashboard import router as dashboard
from privest_service.database import Database
from privest_service.database.migrate import head
from privest_service.datasets import endpoints as datasets
from privest_service.datasets.confinement import missing
from privest_service.datasets.housekeeping import clear, sweep
from privest_service.datasets.parsing import prepare
from privest_service.datasets.registration import Registrar
from privest_service.datasets.store import Store
from privest_service.datasets.submissions import FileForm, NewHandle, NewUpload
from privest_service.estimates import endpoints as estimates
from privest_service.estimates.charging import Rules
from privest_service.estimates.engine import Engine
from privest_service.estimates.requests import expire
from privest_service.estimates.schemas import JobView
from privest_service.estimates.service import Planner, Submissions
from privest_service.exports import endpoints as exports
from privest_service.exports.witnesses import send_due
from privest_service.inputs import add_schemas
from privest_service.ledger import endpoints as ledger
from privest_service.ledger.renewals import open_due
from privest_service.limits import CONNECTIONS, Limiter
from privest_service.notices import endpoints as notices
from privest_service.notices.deliverer import Deliverer
from privest_service.notices.sending import NotSentError, Put
from privest_service.problems import NotFound, ProblemDocument, Unavailable
from privest_service.proxy_middleware import proper, unstored
from privest_service.published import endpoints as published
from privest_service.readiness import Readiness
from privest_service.reports import endpoints as reports
from privest_service.security import endpoints as security
from privest_service.security.authentication import Authenticator
from privest_service.security.rate_limit import RateLimiter
from privest_service.security.tokens import tokens_of
from privest_service.settings import Settings
from privest_service.sites import endpoints as sites
from privest_service.sites.bells import Bells
from privest_service.sites.connector import Connector
from privest_service.sites.link import Hub
from privest_service.sites.runs import joint_runs
from privest_service.sites.taking import Taking
from privest_service.telemetry import metrics, requests
from privest_service.upload_errors import RefusedUploadError
from privest_service.workers.service import Workers

_TITLE = "Privest API"
"""Generators name packages after it: `privest-client` is the name of ours."""

_SERVERS = [{"url": "http://127.0.0.1:8000", "description": "`privest serve`"}]
"""Servers of openapi.yaml. The document that a running service sends is about that service."""

_DESCRIPTION = """\
Private statistical estimation, charged to the budget of whoever owns the data.

Adjacency throughout: one record replaced, the number of records public. A record is the unit of privacy.
"""

_SENT = [
    "authorization",
    "content-type",
    "idempotency-key",
    "if-none-match",
    "prefer",
    "privest-reason",
    "x-request-id",
]
_TOLD = ["allow", "etag", "location", "retry-after", "www-authenticate", "x-request-id"]
"""Headers that pages of allowed origins may send, and those of answers that they may read."""

log = structlog.get_logger()

_PUT_SECONDS = 60.0
"""Seconds that an object store may take for a notice: less than its delivery is leased for."""

_PATIENCE = 10.0
"""Seconds that the database may take over a statement while somebody waits."""


def _put(database: Database, workers: Workers, secret: bytes) -> Put:
    """The way of notices into the object stores of owners' connections."""

    def put(owner_id: str, name: str, key: str, content: bytes) -> None:
        try:
            with database.read() as session:
                connection, _ = resolve(session, owner_id, f"{name}:", secret)
            if not isinstance(connection, NewObjectStore):
                raise NotFound
            workers.fetch_worker(_PUT_SECONDS, sources.put, connection, key, content)
        except NotFound:
            raise NotSentError("There is no connection of this name to an object store.") from None
        except (RefusedUploadError, Unavailable):
            raise NotSentError("The object store did not take it.") from None

    return put


def _parts(
    settings: Settings, database: Database, store: Store, limiter: Limiter, workers: Workers, engine: Engine
) -> list[object]:
    """All that endpoints ask for by its type."""
    authenticator = Authenticator(
        database,
        RateLimiter(settings.rate_limit),
        settings.admin_key.get_secret_value(),
        settings.secret,
        tokens_of(settings),
    )
    registrar = Registrar(
        database,
        store,
        workers,
        settings.secret,
        settings.data_dir,
        settings.max_dataset_bytes,
        settings.max_owner_bytes,
        settings.intake_timeout,
    )
    planner = Planner(workers.call_worker)
    return [
        settings,
        database,
        store,
        limiter,
        workers,
        engine,
        authenticator,
        registrar,
        planner,
        Submissions(
            database,
            planner,
            engine.notify,
            settings.secret,
            Rules(settings.max_waiting_jobs, settings.decide_within),
        ),
        Readiness(database, head(), store, engine),
        Bells(),
    ]


def _hub(settings: Settings) -> Hub | None:
    """The hub of this service, where it is a site."""
    if settings.hub_key is None:
        return None
    files = (settings.hub_ca_file, settings.hub_certificate_file)
    authorities, certificate = (None if each is None else str(each) for each in files)
    return Hub.through_proxies(
        settings.hub_url, settings.hub_key.get_secret_value(), authorities, certificate
    )


def _connector(hub: Hub, database: Database, parts: list[object], analyst: str) -> Connector:
    """What keeps a site and its hub together."""
    (planner,) = (part for part in parts if isinstance(part, Planner))
    (submissions,) = (part for part in parts if isinstance(part, Submissions))
    return Connector(hub, Taking(database, planner, submissions, analyst))


@asynccontextmanager
async def _running(settings: Settings | None, app: FastAPI) -> AsyncIterator[None]:
    """All parts of the service, from its start to its end."""
    assert settings is not None  # noqa: S101 - the interface alone is never served
    store = Store(settings.data_dir)
    limiter = Limiter(settings.max_request_bytes)
    database = Database(settings.url, signer=settings.signer, pool_size=CONNECTIONS, patience=_PATIENCE)
    workers = Workers(
        timeout=settings.job_timeout,
        intake_timeout=settings.intake_timeout,
        intake_workers=settings.intake_workers,
        memory=settings.worker_memory,
        prepare=prepare,
        limiter=limiter,
    )
    hub = _hub(settings)
    engine = Engine(
        database,
        store,
        workers=settings.workers,
        job_timeout=settings.job_timeout,
        engine=settings.engine,
        memory=settings.worker_memory,
        housekeeping=[
            workers.restart_if_broken,
            partial(sweep, database, store),
            partial(expire, database),
            partial(open_due, database),
            partial(tell_what_was_left_out, database),
        ],
    )
    engine.joint_runs = partial(joint_runs, hub)
    put = _put(database, workers, settings.secret)
    deliverer = Deliverer(database, settings, put, [partial(send_due, database)])
    parts = _parts(settings, database, store, limiter, workers, engine)
    app.state.parts = {type(part): part for part in parts}
    connector = hub and _connector(hub, database, parts, settings.hub_analyst)
    clear(database, store)
    seal_history(database)
    if left_out := missing(store.incoming):
        log.warning("uploads are parsed with less confinement than could be", missing=left_out)
    workers.start()
    engine.start()
    deliverer.start()
    if connector:
        connector.start()
    tempfile.tempdir = str(store.incoming)  # uploads spill over to the same disk as the rows
    metrics.watch(CachedProbe(partial(health.queue, database)).seen)
    try:
        yield
    finally:
        metrics.watch(None)
        if connector:
            connector.stop()
        deliverer.stop()
        engine.stop()
        workers.stop()
        database.close()


def create_app(settings: Settings | None) -> FastAPI:
    """The application; without settings only its interface, for openapi.yaml."""

    app = FastAPI(
        title=_TITLE,
        servers=None if settings else _SERVERS,
        version=version("privest"),
        description=_DESCRIPTION,
        lifespan=partial(_running, settings),
        generate_unique_id_function=lambda route: route.name,
        separate_input_output_schemas=False,
        docs_url=None,  # the dashboard has it: FastAPI's own page takes its scripts from elsewhere
        redoc_url=None,
        # Off even where the environment asks for it: it tells paths, query strings, messages of exceptions,
        # and how long every request took.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    error_handlers.install(app)
    add_schemas(app, ProblemDocument, NewUpload, FileForm, NewHandle, JobView)
    examples.install(app)
    app.add_middleware(proper)
    requests.install(app)
    app.add_middleware(tagged)
    app.add_middleware(unstored)
    if settings and settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,  # who has a key, and no cookie: dashboards are not called
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=_SENT,
            expose_headers=_TOLD,
        )
    # The limits stand here and not at the app, where what they answer could not be made a problem document.
    for router in (
        datasets.router,
        datasets.grants,
        ledger.owners,
        security.router,
        connections.router,
        estimates.router,
        published.router,
        ledger.router,
        exports.router,
        notices.router,
        reports.router,
        sites.router,
        ledger.keys_router,
        health.router,
        health.counted,
    ):
        app.include_router(router, max_body_size=settings.max_request_bytes if settings else None)
        if settings and router is estimates.router:  # nearly all requests: found first, where they are served
            app.router.routes.insert(0, app.router.routes.pop())
    app.include_router(datasets.uploads, max_body_size=settings.max_upload_bytes if settings else None)
    app.include_router(sites.answers, max_body_size=sites.LARGEST_ANSWER)
    if settings:
        dashboard.install(app, settings.max_upload_bytes, settings.max_request_bytes)
    return app

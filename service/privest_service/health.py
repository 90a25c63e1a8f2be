"""Endpoints for operators and their machines: probes of a replica, and its metrics."""

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel

from privest_service.database import Database
from privest_service.jobs import service as jobs
from privest_service.parts import running
from privest_service.problems import DatabaseUnavailable, Forbidden, Unavailable, documented
from privest_service.readiness import Readiness
from privest_service.security.admission import Route, Strict
from privest_service.security.dependencies import ReadDep
from privest_service.telemetry import metrics

router = APIRouter(tags=["operations"], route_class=Strict)


class Health(BaseModel):
    """The answer to a probe."""

    status: str = "ok"


# Both probes in the event loop: all threads may be waiting for a database that hangs.
# Some load balancers probe with HEAD, whose answers the server sends without their bodies.


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz() -> Health:
    """The process is alive."""
    return Health()


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=documented(Unavailable))
async def readyz(readiness: Annotated[Readiness, running(Readiness)]) -> Health:
    """The process can answer queries: database and data directory take writes, and workers can be started."""
    if fault := await readiness.fault():
        raise Unavailable(fault, retry_after=5)
    return Health()


# The probes know nobody; here somebody is asked for.
counted = APIRouter(tags=["operations"], route_class=Route)


@counted.get("/metrics", response_class=PlainTextResponse, responses=documented(Forbidden))
def read_metrics(request: Request, caller: ReadDep) -> Response:
    """Counts of this replica, and the queue of all replicas, in the formats of Prometheus."""
    caller.must_be("admin")
    content, media_type = metrics.exposition(request.headers.get("accept", ""))
    return Response(content, media_type=media_type)


def queue(database: Database) -> tuple[int, float] | None:
    """Count the waiting jobs and the oldest one's seconds; None if the database does not answer."""
    try:
        with database.read() as session:
            return jobs.queue(session)
    except DatabaseUnavailable:
        return None

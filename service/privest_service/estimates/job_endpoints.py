"""Lists of the questions that a caller asked."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from privest_service.database.cursors import CURSOR
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.plans import stored_plan
from privest_service.estimates.schemas import Privacy, State
from privest_service.estimates.views import privacy_of
from privest_service.inputs import Id, Moment, QuestionTag
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.problems import documented
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, ReadDep

router = APIRouter(prefix="/v1", tags=["estimates"], route_class=Route)


class JobLine(BaseModel):
    """A question in a list; the job itself has its answer."""

    id: str
    kind: str
    state: State
    asked_at: datetime
    datasets: list[str]
    privacy: Annotated[Privacy | None, Field(description="null where its estimator is not there any more")]
    dummy: bool
    tag: Annotated[str | None, Field(description="words of whoever asked")] = None


class JobPage(BaseModel):
    """Questions of a caller, newest first, and the cursor of the next page."""

    jobs: list[JobLine]
    next: Annotated[str | None, Field(description="`cursor` of the next page; null where none follows")]


@router.get("/jobs", responses=documented())
def list_jobs(
    caller: ReadDep,
    database: DatabaseDep,
    state: Annotated[list[State] | None, Query(description="one of these states")] = None,
    dataset: Annotated[Id | None, Query(description="about this dataset, alone or with others")] = None,
    tag: Annotated[QuestionTag | None, Query(description="asked with this tag")] = None,
    since: Annotated[Moment | None, Query(description="asked then or later")] = None,
    until: Annotated[Moment | None, Query(description="asked before then")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str, Query(pattern=f"^({CURSOR})?$", description="`next` of the page before")] = "",
) -> JobPage:
    """The questions that the caller asked, newest first, in pages."""
    caller.must_be("owner", "analyst")
    conditions = [
        *([Job.state.in_(state)] if state else []),
        *([Job.tag == tag] if tag else []),
        *([Job.created_at >= since] if since else []),
        *([Job.created_at < until] if until else []),
    ]
    with database.read() as session:
        found, further = jobs.submitted(
            session, caller.id, *conditions, dataset_id=dataset, limit=limit, cursor=cursor
        )
        lines = [_line(job, jobs.parts_of(session, job) or [job]) for job in found]
    return JobPage(jobs=lines, next=further)


def _line(job: Job, parts: Sequence[Job]) -> JobLine:
    plan = stored_plan(job.kind, job.plan) if job.kind in KINDS else None
    return JobLine(
        id=job.id,
        kind=job.kind,
        state=job.state,  # pyright: ignore[reportArgumentType]
        asked_at=job.created_at,
        datasets=[str(part.dataset_id) for part in parts],
        privacy=privacy_of(plan) if plan else None,
        dummy=job.dummy,
        tag=job.tag,
    )

"""Many questions in one call: their price, and all of them asked or none."""

from typing import Annotated

from fastapi import APIRouter, Header

from privest_service.estimates import service, views, workloads
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.dependencies import PlannerDep, SubmissionsDep
from privest_service.estimates.endpoints import IDEMPOTENCY_KEY, REFUSALS, require_idempotency_key
from privest_service.problems import GrantRefuses, NotFound, Unavailable, documented
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, EstimateDep, ReadDep

router = APIRouter(prefix="/v1", tags=["estimates"], route_class=Route)

_LONGEST_KEY = 190
"""Longest key under which several questions are asked, each under that key and its place."""


@router.post("/plans", responses=documented(NotFound, GrantRefuses, Unavailable))
def plan_workload(
    body: workloads.PlannedWorkload,  # pyright: ignore[reportInvalidTypeForm]
    caller: ReadDep,
    database: DatabaseDep,
    planner: PlannerDep,
) -> workloads.WorkloadView:
    """The price of up to 50 questions, each and together, and whether limits cover them. Charges nothing."""
    return workloads.price(database, planner, caller, body)


@router.post(
    "/estimates",
    status_code=202,
    responses=REFUSALS,
    openapi_extra={"parameters": [IDEMPOTENCY_KEY]},
)
def estimate_workload(
    body: workloads.Workload,  # pyright: ignore[reportInvalidTypeForm]
    asker: EstimateDep,
    submissions: SubmissionsDep,
    idempotency_key: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> workloads.JobList:
    """Ask up to 50 questions together, in their order: all of them are charged, or none. Poll their jobs.

    They are about registered datasets, and none of them waits for an approval.
    """
    key, caller = require_idempotency_key(idempotency_key, _LONGEST_KEY), asker.principal
    asked = [(KINDS[each.kind], each.body) for each in workloads.registered(body)]
    answers = submissions.submit_all(caller, asked, key)
    with submissions.database.read() as session:
        jobs_of = [
            views.job_view(
                session, caller, service.require_job(session, caller, each.job_id), reused=each.reused
            )
            for each in answers
        ]
    return workloads.JobList(jobs=jobs_of)

"""Questions that their owner decides on: what is asked, its price, what it tells, and the decision."""

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from privest.estimators.federation import Part
from privest_service.dashboard.entries import places_of
from privest_service.dashboard.forms import texts
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.page_version import page_version
from privest_service.dashboard.pages.ledger import names_of_datasets
from privest_service.dashboard.session_auth import FormDep, ManagingOwnerDep, OwnerDep, Visitor
from privest_service.database import Database
from privest_service.estimates import requests
from privest_service.estimates.dependencies import EngineDep
from privest_service.estimates.plans import stored_plan
from privest_service.estimates.service import require_job
from privest_service.estimates.views import Verdict, request_view
from privest_service.inputs import Id, checked
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.problems import Fault, Invalid, Problem
from privest_service.reports.words import title
from privest_service.security.dependencies import DatabaseDep

router = APIRouter(prefix="/dashboard/questions", route_class=Page)

_LISTED, _PAGE = 200, 50
"""Most that wait on the one page of these, and questions on a page of those that were decided."""


@router.get("")
def read(
    request: Request,
    visitor: OwnerDep,
    database: DatabaseDep,
    which: Literal["waiting", "decided"] | requests.Outcome = "waiting",
    before: Id = "",
    done: str = "",
) -> Response:
    """All that wait, oldest first, or those that were decided or ended otherwise, newest first."""
    outcome = None if which in ("waiting", "decided") else which
    with database.read() as session:
        if which == "waiting":
            found = [(job, None) for job in requests.waiting_for(session, visitor.id, _LISTED)]
        else:
            found = requests.decided_by(session, visitor.id, outcome, most=_PAGE, before=before)
        rows = [(request_view(session, job), job, decision) for job, decision in found]
        names = names_of_datasets(session, visitor.id)
        seen = page_version(session, visitor.id)
    return render(
        request,
        "questions.html",
        seen=seen,
        which=which,
        rows=[row for row in rows if row[0] is not None],
        further=found[-1][0].id if which != "waiting" and len(found) == _PAGE else None,
        dataset_names=names,
        title=title,
        done={"approve": "Approved: it is charged, or waits for others.", "deny": "Denied."}.get(done),
    )


@router.get("/{job_id}")
def read_one(request: Request, job_id: Id, visitor: OwnerDep, database: DatabaseDep) -> Response:
    """One question: to be decided, or with what became of it."""
    return _page(request, job_id, visitor, database, {}, None)


def _page(
    request: Request,
    job_id: str,
    visitor: Visitor,
    database: Database,
    given: dict[str, str],
    problem: Problem | None,
) -> Response:
    with database.read() as session:
        job = require_job(session, visitor.principal, job_id)
        waits = requests.is_open(session, job)
        asked = request_view(session, job) if job.owner_id == visitor.id else None
        plan = stored_plan(job.kind, session.get_one(Job, job.part_of or job.id).plan)
        decision = next(iter(jobs.decisions_on(session, job_id)), None)
        gone = requests.ended_with(session, job)
        names, places = names_of_datasets(session, visitor.id), places_of(session, visitor.id, job_id)
    if problem is not None and not waits:  # somebody or something was faster
        return render(request, "refused.html", status=problem.status, problem=problem, less="")
    if asked is None:
        return redirect(request, "/questions")
    return render(
        request,
        "decision.html",
        status=problem.status if problem else 200,
        asked=asked,
        waits=waits,
        finding=None if plan is None or isinstance(plan, Part) else plan.finding,
        job=job,
        decision=decision,
        gone=gone,
        places=places,
        dataset_names=names,
        title=title,
        given=given,
        problem=problem,
    )


@router.post("/{job_id}")
def decide(
    request: Request,
    job_id: Id,
    visitor: ManagingOwnerDep,
    database: DatabaseDep,
    engine: EngineDep,
    form: FormDep,
) -> Response:
    """Approve or deny, as `POST /v1/jobs/{id}/decision` does."""
    given = texts(form)

    def change(session: Session) -> None:
        if given.get("sure") != "yes":
            raise Invalid(faults=[Fault(location="sure", rule="must be ticked: nobody can undo a decision")])
        told = {"decision": given.get("decision"), "reason": given.get("reason") or None}
        verdict = checked(Verdict.model_validate, told)
        requests.decide(session, visitor.principal, job_id, verdict.decision, verdict.reason)

    try:
        database.run(change)
    except Problem as problem:
        return _page(request, job_id, visitor, database, given, problem)
    engine.notify()
    return redirect(request, f"/questions?done={given['decision']}")

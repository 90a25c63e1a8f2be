"""Questions that wait for their owner: what is asked, its price, what it tells, and the decision."""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from privest_service.dashboard.forms import texts
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.page_version import page_version
from privest_service.dashboard.session_auth import FormDep, ManagingOwnerDep, OwnerDep, Visitor
from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.estimates import requests
from privest_service.estimates.dependencies import EngineDep
from privest_service.estimates.request_views import request_view
from privest_service.estimates.schemas import Verdict
from privest_service.estimates.service import require_job
from privest_service.inputs import Id, checked
from privest_service.problems import Fault, Invalid, Problem
from privest_service.reports.formatting import told_apart
from privest_service.reports.words import title
from privest_service.security.dependencies import DatabaseDep

router = APIRouter(prefix="/dashboard/questions", route_class=Page)

_LISTED = 200


@router.get("")
def read(request: Request, visitor: OwnerDep, database: DatabaseDep, done: str = "") -> Response:
    """All that wait, oldest first."""
    with database.read() as session:
        found = [request_view(session, job) for job in requests.waiting_for(session, visitor.id, _LISTED)]
        own, _ = datasets.visible(session, visitor.principal)
        seen = page_version(session, visitor.id)
    return render(
        request,
        "questions.html",
        seen=seen,
        requests=[each for each in found if each is not None],
        dataset_names=told_apart(own),
        title=title,
        done={"approve": "Approved: it is charged, or waits for others.", "deny": "Denied."}.get(done),
    )


@router.get("/{job_id}")
def read_one(request: Request, job_id: Id, visitor: OwnerDep, database: DatabaseDep) -> Response:
    """One question."""
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
        asked = request_view(session, job) if requests.is_open(session, job) else None
        own, _ = datasets.visible(session, visitor.principal)
    if asked is None:
        return redirect(request, "/questions") if problem is None else _over(request, problem)
    return render(
        request,
        "decision.html",
        status=problem.status if problem else 200,
        asked=asked,
        dataset_names=told_apart(own),
        title=title,
        given=given,
        problem=problem,
    )


def _over(request: Request, problem: Problem) -> Response:
    """Somebody or something was faster: what became of it."""
    return render(request, "refused.html", status=problem.status, problem=problem)


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

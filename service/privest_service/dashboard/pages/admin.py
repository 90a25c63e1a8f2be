"""The administrator's view: owners and analysts, made and listed; workers, queue, limits and health."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from privest_service import limits
from privest_service.dashboard.forms import largest_of_form, number, texts
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.session_auth import AdminDep, FormDep, Visitor, admin
from privest_service.database import Database, now
from privest_service.estimates.dependencies import EngineDep
from privest_service.inputs import Id, checked
from privest_service.jobs import service as jobs
from privest_service.ledger import service as ledger
from privest_service.ledger import views
from privest_service.ledger.models import Account
from privest_service.ledger.schemas import NewOwner
from privest_service.ledger.views import share
from privest_service.limits import in_thread
from privest_service.parts import running
from privest_service.problems import Invalid
from privest_service.readiness import Readiness
from privest_service.reports.formatting import duration
from privest_service.security import service as security
from privest_service.security.dependencies import DatabaseDep, SettingsDep
from privest_service.security.models import Analyst, Owner
from privest_service.security.schemas import NewAnalyst
from privest_service.security.service import require_owner

router = APIRouter(prefix="/dashboard/admin", route_class=Page, dependencies=[Depends(admin)])

_PAGE = 50

_FIRST = {"epsilon": "1", "delta": "1e-6", "composition": "gdp"}
"""Budget that the form for a new owner begins with."""

_LIMITS = (
    limits.REQUESTS,
    limits.WAITS,
    limits.JOB_STREAMS,
    limits.PAGE_STREAMS,
    limits.UPLOADS,
    limits.EXPORTS,
    limits.VERIFICATIONS,
    limits.REPORTS,
    limits.PLANS,
)
"""What one caller, and all together, may hold at a time, as the page lists it."""


@router.get("")
def read(
    request: Request, visitor: AdminDep, database: DatabaseDep, after: Id = "", frozen: bool = False
) -> Response:
    """All owners, by their ids."""
    return _owners(request, visitor, database, after=after, frozen=frozen)


def _owners(
    request: Request,
    visitor: Visitor,
    database: Database,
    *,
    after: str = "",
    frozen: bool = False,
    **told: Any,
) -> Response:
    statement = (
        select(Owner, Account)
        .join(
            Account,
            and_(
                Account.owner_id == Owner.id,
                Account.scope == "owner",
                Account.subject == "",
                Account.window == Owner.window,
            ),
        )
        .where(Owner.id > after)
    )
    if frozen:
        statement = statement.where(Owner.frozen_by.is_not(None))
    with database.read() as session:
        rows = session.execute(statement.order_by(Owner.id).limit(_PAGE)).all()
    content: dict[str, Any] = {"problem": None, "made": None, "given": {}} | told
    begun, largest = _FIRST | content["given"], None
    try:
        largest = largest_of_form(begun, begun["composition"])
    except Invalid as error:
        content["problem"] = content["problem"] or error
    return render(
        request,
        "admin.html",
        largest=largest,
        begun=begun,
        status=content["problem"].status if content["problem"] else 200,
        visitor=visitor,
        rows=[
            (owner, account, views.budget(account), share(ledger.limits_of(account), account))
            for owner, account in rows
        ],
        further=rows[-1][0].id if len(rows) == _PAGE else None,
        frozen=frozen,
        **content,
    )


@router.post("/owners")
def create_owner(request: Request, visitor: AdminDep, database: DatabaseDep, form: FormDep) -> Response:
    """Make an owner with its budget, and show its first key once.

    Where the form asks to `see` it, only show the largest question of the budget.
    """
    given = texts(form)
    if "see" in given:
        return _owners(request, visitor, database, given=given)
    try:
        amounts = {name: number(given.get(name, ""), name) for name in ("epsilon", "delta")}
        budget = amounts | {"composition": given.get("composition", "gdp")}
        body = checked(NewOwner.model_validate, {"name": given.get("name", ""), "budget": budget})
    except Invalid as problem:
        return _owners(request, visitor, database, problem=problem, given=given)
    limits = body.budget.limits()
    made = database.run(lambda session: ledger.create_owner(session, body.name, limits))
    return _owners(request, visitor, database, made=made)


@router.get("/analysts")
def analysts(request: Request, visitor: AdminDep, database: DatabaseDep, after: Id = "") -> Response:
    """All analysts, by their ids."""
    return _analysts(request, visitor, database, after=after)


def _analysts(
    request: Request, visitor: Visitor, database: Database, *, after: str = "", **told: Any
) -> Response:
    with database.read() as session:
        statement = select(Analyst).where(Analyst.id > after).order_by(Analyst.id).limit(_PAGE)
        rows = session.scalars(statement).all()
    content: dict[str, Any] = {"problem": None, "made": None, "given": {}} | told
    return render(
        request,
        "admin_analysts.html",
        status=content["problem"].status if content["problem"] else 200,
        visitor=visitor,
        rows=rows,
        further=rows[-1].id if len(rows) == _PAGE else None,
        **content,
    )


@router.post("/analysts")
def create_analyst(request: Request, visitor: AdminDep, database: DatabaseDep, form: FormDep) -> Response:
    """Make an analyst; its first key is shown once."""
    given = texts(form)
    try:
        body = checked(NewAnalyst.model_validate, {"name": given.get("name", "")})
    except Invalid as problem:
        return _analysts(request, visitor, database, problem=problem, given=given)
    made = database.run(lambda session: security.create_analyst(session, body.name))
    return _analysts(request, visitor, database, made=made)


@router.get("/service")
async def service(
    request: Request,
    visitor: AdminDep,
    database: DatabaseDep,
    engine: EngineDep,
    settings: SettingsDep,
    readiness: Annotated[Readiness, running(Readiness)],
) -> Response:
    """How workers and queue do, what is limited, and whether this replica is ready."""
    fault = await readiness.fault()

    def look() -> dict[str, Any]:
        with database.read() as session:
            waiting, oldest = jobs.queue(session)
            return {
                "jobs": jobs.in_states(session, "reserved", "claimed"),
                "waiting": waiting,
                "oldest": duration(timedelta(seconds=oldest)) if waiting else None,
                "overdue": len(jobs.overdue(session, now())),
            }

    told = await in_thread(look)
    return render(
        request,
        "service.html",
        visitor=visitor,
        fault=fault,
        engine=engine,
        settings=settings,
        limits=_LIMITS,
        **told,
    )


@router.post("/owners/{owner_id}/freeze")
def freeze(request: Request, owner_id: str, database: DatabaseDep, form: FormDep) -> Response:
    """Stop all queries of an owner, or let them go on."""

    def change(session: Session) -> None:
        require_owner(session, owner_id)
        ledger.set_frozen(session, owner_id, form.get("frozen") == "yes", by="admin")

    database.run(change)
    return redirect(request, "/admin")

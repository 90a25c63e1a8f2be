"""The administrator's view: all owners, what is frozen, and how workers and queue do."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from privest_service.dashboard.budget_summary import share
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.session_auth import FormDep, admin
from privest_service.database import now
from privest_service.estimates.dependencies import EngineDep
from privest_service.inputs import Id
from privest_service.jobs import service as jobs
from privest_service.ledger import service as ledger
from privest_service.ledger import views
from privest_service.ledger.models import Account
from privest_service.security.dependencies import DatabaseDep, SettingsDep
from privest_service.security.models import Owner
from privest_service.security.service import require_owner

router = APIRouter(prefix="/dashboard/admin", route_class=Page, dependencies=[Depends(admin)])

_PAGE = 50


@router.get("")
def read(
    request: Request,
    database: DatabaseDep,
    engine: EngineDep,
    settings: SettingsDep,
    after: Id = "",
    frozen: bool = False,
) -> Response:
    """All owners, by their ids."""
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
        counted = jobs.in_states(session, "reserved", "claimed")
        overdue = len(jobs.overdue(session, now()))
    return render(
        request,
        "admin.html",
        rows=[
            (owner, account, views.budget(account), share(ledger.limits_of(account), account))
            for owner, account in rows
        ],
        further=rows[-1][0].id if len(rows) == _PAGE else None,
        frozen=frozen,
        engine=engine,
        settings=settings,
        jobs=counted,
        overdue=overdue,
    )


@router.post("/owners/{owner_id}/freeze")
def freeze(request: Request, owner_id: str, database: DatabaseDep, form: FormDep) -> Response:
    """Stop all queries of an owner, or let them go on."""

    def change(session: Session) -> None:
        require_owner(session, owner_id)
        ledger.set_frozen(session, owner_id, form.get("frozen") == "yes", by="admin")

    database.run(change)
    return redirect(request, "/admin")

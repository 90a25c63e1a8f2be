"""Budgets and their entries."""

from collections.abc import AsyncIterator
from functools import partial
from tempfile import TemporaryFile
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.background import BackgroundTask

from privest_service.ledger import service, views
from privest_service.ledger.export import Form, Heads, heads, write_out
from privest_service.ledger.models import Account
from privest_service.ledger.schemas import Budget, BudgetChange, LedgerPage, SigningKey, SigningKeys
from privest_service.ledger.units import EPSILON, PROBABILITY, Limits, as_exact
from privest_service.limits import EXPORTS
from privest_service.problems import AccountFrozen, Invalid, NotFound, WindowReplaced, documented
from privest_service.security.admission import Route
from privest_service.security.dependencies import ManageDep, ReadDep, ServicesDep
from privest_service.security.service import require_owner
from privest_service.services import Services

router = APIRouter(prefix="/v1/owners/{owner_id}", tags=["ledger"], route_class=Route)


def _account(session: Session, owner_id: str, window: int | None = None) -> Account:
    require_owner(session, owner_id)
    return service.owner_account(session, owner_id, window=window)


@router.get("/budget", responses=documented(NotFound))
def read_budget(owner_id: str, caller: ReadDep, services: ServicesDep) -> Budget:
    """What is spent and what is left."""
    caller.must_be_owner(owner_id)
    with services.database.read() as session:
        return views.budget(_account(session, owner_id))


@router.patch("/budget", responses=documented(NotFound, AccountFrozen, WindowReplaced))
def change_budget(owner_id: str, body: BudgetChange, caller: ManageDep, services: ServicesDep) -> Budget:
    """Raise a budget, freeze it, end the freeze, or renew it; an administrator alone ends its own freeze."""
    caller.must_be_owner(owner_id)

    def change(session: Session) -> Budget:
        account = _account(session, owner_id)
        if body.frozen is not None:  # first, as all who hold owners and accounts hold them in this order
            by = "admin" if caller.role == "admin" else "owner"
            service.set_frozen(session, owner_id, body.frozen, by=by)
        if body.window is not None:
            account = service.open_window(session, owner_id, body.replaces)
        if body.epsilon is not None or body.delta is not None:
            now = service.limits_of(account)
            try:
                limits = Limits.of(
                    as_exact(now.epsilon, EPSILON) if body.epsilon is None else body.epsilon,
                    as_exact(now.delta, PROBABILITY) if body.delta is None else body.delta,
                    now.composition,
                )
            except ValueError as error:
                raise Invalid(str(error)) from None
            service.raise_limits(session, account.id, limits)
        session.refresh(account)
        return views.budget(account)

    return services.database.run(change)


@router.get("/ledger", responses=documented(NotFound))
def read_ledger(
    owner_id: str,
    caller: ReadDep,
    services: ServicesDep,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[int | None, Query(ge=1, lt=2**63, description="`next` of the page before")] = None,
    window: Annotated[int | None, Query(ge=1, lt=2**31, description="by default the present one")] = None,
) -> LedgerPage:
    """Movements of budget, newest first."""
    caller.must_be_owner(owner_id)
    with services.database.read() as session:
        return views.page(session, _account(session, owner_id, window).id, limit=limit, before=cursor)


@router.get("/ledger/heads", responses=documented(NotFound))
def read_heads(owner_id: str, caller: ReadDep, services: ServicesDep) -> Heads:
    """Where the chains of this owner's accounts end, signed: keep it, to see later that nothing was cut."""
    caller.must_be_owner(owner_id)
    with services.database.read() as session:
        require_owner(session, owner_id)
        accounts = session.scalars(select(Account).where(Account.owner_id == owner_id).order_by(Account.id))
        return heads(services.settings.signer, list(accounts))


async def _with_room(caller: ReadDep, services: ServicesDep) -> AsyncIterator[None]:
    """A place among exports, until all of one is sent: it is a file until then."""
    with services.limiter.hold(EXPORTS, caller.id):
        yield


@router.get(
    "/ledger/export",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/jsonl": {"schema": {"type": "string"}}, "text/csv": {}}},
        **documented(NotFound),
    },
)
def export_ledger(
    owner_id: str,
    caller: ReadDep,
    services: ServicesDep,
    _: Annotated[None, Depends(_with_room)],
    form: Annotated[
        Form,
        Query(alias="format", description="`jsonl` for `privest verify-ledger`, `csv` for entries alone"),
    ] = "jsonl",
) -> StreamingResponse:
    """All accounts, entries and receipts of this owner."""
    caller.must_be_owner(owner_id)
    return exported(services, owner_id, form)


def exported(services: Services, owner_id: str, form: Form) -> StreamingResponse:
    """A ledger as a file."""
    # Written out first: a caller that reads slowly must not hold a connection of the database.
    with services.database.read(snapshot=True) as session:
        require_owner(session, owner_id)
        file = TemporaryFile()  # noqa: SIM115 - closed once it is sent
        write_out(session, owner_id, file, form)
    file.seek(0)
    kind = "text/csv" if form == "csv" else "application/jsonl"
    disposition = f'attachment; filename="ledger-{owner_id}.{form}"'
    return StreamingResponse(
        iter(partial(file.read, 2**16), b""),
        media_type=kind,
        headers={"Content-Disposition": disposition},
        background=BackgroundTask(file.close),
    )


keys_router = APIRouter(prefix="/v1/ledger", tags=["ledger"], route_class=Route)


@keys_router.get("/keys", responses=documented())
def read_keys(caller: ReadDep, services: ServicesDep) -> SigningKeys:
    """The public key that entries, receipts and heads are signed with now: note it, and compare."""
    caller.must_be("admin", "owner", "analyst")
    signer = services.settings.signer
    return SigningKeys(keys=[SigningKey(id=signer.id, public_key=signer.public_key)])

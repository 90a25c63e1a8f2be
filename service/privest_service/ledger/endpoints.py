"""Budgets and their entries."""

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from privest_service.ledger import promises, renewals, service, views
from privest_service.ledger.models import Account
from privest_service.ledger.schemas import (
    Budget,
    BudgetChange,
    CreatedOwner,
    LedgerPage,
    NewOwner,
    SigningKey,
    SigningKeys,
)
from privest_service.ledger.units import EPSILON, PROBABILITY, Limits, as_exact
from privest_service.problems import (
    AccountFrozen,
    Invalid,
    NotFound,
    WindowNotAllowed,
    WindowReplaced,
    documented,
)
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, ManageDep, ReadDep, SettingsDep
from privest_service.security.models import Owner
from privest_service.security.principals import Principal
from privest_service.security.service import require_owner

router = APIRouter(prefix="/v1/owners/{owner_id}", tags=["ledger"], route_class=Route)
owners = APIRouter(prefix="/v1/owners", tags=["owners"], route_class=Route)


@owners.post("", status_code=201, responses=documented())
def create_owner(body: NewOwner, caller: ManageDep, database: DatabaseDep) -> CreatedOwner:
    """Make an owner with its budget; the key is shown once."""
    caller.must_be("admin")
    limits = body.budget.limits()

    def create(session: Session) -> tuple[Owner, str]:
        owner, key = service.create_owner(session, body.name, limits)
        if body.budget.renewal is not None:
            renewals.set_renewal(session, owner.id, body.budget.renewal.renewal())
        if body.budget.pace is not None:
            renewals.set_pace(session, owner.id, body.budget.pace)
        return owner, key

    owner, key = database.run(create)
    return CreatedOwner(id=owner.id, name=owner.name, budget=body.budget, key=key)


def _account(session: Session, owner_id: str, window: int | None = None) -> Account:
    require_owner(session, owner_id)
    return service.owner_account(session, owner_id, window=window)


@router.get("/budget", responses=documented(NotFound))
def read_budget(owner_id: str, caller: ReadDep, database: DatabaseDep) -> Budget:
    """The budget: its limit, what is spent and what is left."""
    caller.must_be_owner(owner_id)
    with database.read() as session:
        return _told(session, _account(session, owner_id))


def _told(session: Session, account: Account) -> Budget:
    """A budget with what its windows promise."""
    return views.budget(account).model_copy(update={"windows": promises.windows_of(session, account)})


@router.patch("/budget", responses=documented(NotFound, AccountFrozen, WindowReplaced, WindowNotAllowed))
def change_budget(owner_id: str, body: BudgetChange, caller: ManageDep, database: DatabaseDep) -> Budget:
    """Raise a budget, freeze it, end the freeze, renew it, or say how it is renewed and how fast it is spent.

    An administrator alone ends its own freeze.
    """
    caller.must_be_owner(owner_id)
    return database.run(lambda session: changed(session, caller, owner_id, body))


def changed(session: Session, caller: Principal, owner_id: str, body: BudgetChange) -> Budget:
    """A budget once it is changed as a request says.

    Raises:
        AccountFrozen: the caller would end an administrator's freeze.
        Invalid: a limit would fall, or leave no room for any query.
        NotFound: there is no such owner.
        WindowNotAllowed: it would follow too soon, or be one too many.
        WindowReplaced: the window to be replaced is not the present one.
    """
    account = _account(session, owner_id)
    if body.frozen is not None:  # first, as all who hold owners and accounts hold them in this order
        by = "admin" if caller.role == "admin" else "owner"
        service.set_frozen(session, owner_id, body.frozen, by=by)
    if body.renewal is not None:
        renewals.set_renewal(session, owner_id, body.renewal.renewal())
    if body.pace is not None:
        renewals.set_pace(session, owner_id, body.pace)
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
    session.flush()
    session.refresh(account)
    return _told(session, account)


@router.get("/ledger", responses=documented(NotFound))
def read_ledger(
    owner_id: str,
    caller: ReadDep,
    database: DatabaseDep,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[int | None, Query(ge=1, lt=2**63, description="`next` of the page before")] = None,
    window: Annotated[int | None, Query(ge=1, lt=2**31, description="by default the present one")] = None,
) -> LedgerPage:
    """Movements of budget, newest first."""
    caller.must_be_owner(owner_id)
    with database.read() as session:
        return views.page(session, _account(session, owner_id, window).id, limit=limit, before=cursor)


keys_router = APIRouter(prefix="/v1/ledger", tags=["ledger"], route_class=Route)


@keys_router.get("/keys", responses=documented())
def read_keys(caller: ReadDep, settings: SettingsDep) -> SigningKeys:
    """The public key that entries, receipts and heads are signed with now: note it, and compare."""
    caller.must_be("admin", "owner", "analyst")
    signer = settings.signer
    return SigningKeys(keys=[SigningKey(id=signer.id, public_key=signer.public_key)])

"""Budgets and their entries."""

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from privest_service.ledger import service, views
from privest_service.ledger.models import Account
from privest_service.ledger.schemas import Budget, BudgetChange, LedgerPage
from privest_service.ledger.units import EPSILON, PROBABILITY, Limits, as_exact
from privest_service.owners.service import require_owner
from privest_service.problems import Forbidden, Invalid, NotFound, documented
from privest_service.security.dependencies import CallerDep, ServicesDep

router = APIRouter(prefix="/v1/owners/{owner_id}", tags=["ledger"])


def _account(session: Session, owner_id: str) -> Account:
    return session.get_one(Account, require_owner(session, owner_id).account_id)


@router.get("/budget", responses=documented(Forbidden, NotFound))
def read_budget(owner_id: str, caller: CallerDep, services: ServicesDep) -> Budget:
    """What is spent and what is left."""
    caller.must_be_owner(owner_id)
    with services.database.read() as session:
        return views.budget(session, _account(session, owner_id))


@router.patch("/budget", responses=documented(Forbidden, NotFound))
def change_budget(owner_id: str, body: BudgetChange, caller: CallerDep, services: ServicesDep) -> Budget:
    """Raise a budget, freeze it, or end the freeze."""
    caller.must_be_owner(owner_id)
    with services.database.write() as session:
        account = _account(session, owner_id)
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
        if body.frozen is not None:
            service.set_frozen(session, account.id, body.frozen)
        session.refresh(account)
        return views.budget(session, account)


@router.get("/ledger", responses=documented(Forbidden, NotFound))
def read_ledger(
    owner_id: str,
    caller: CallerDep,
    services: ServicesDep,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[int | None, Query(ge=1, lt=2**63, description="`next` of the page before")] = None,
) -> LedgerPage:
    """Movements of budget, newest first."""
    caller.must_be_owner(owner_id)
    with services.database.read() as session:
        return views.page(session, _account(session, owner_id).id, limit=limit, before=cursor)

"""Alerts: what an owner is told of when a charge takes a budget over a mark."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from privest_service.ledger.entries import limits_of
from privest_service.ledger.models import Account
from privest_service.ledger.units import Charge
from privest_service.ledger.views import share
from privest_service.notices import service as notices

_MARKS = (95, 80)
"""Percent of a window's budget; of those that one charge passes, the highest is told."""


def tell(session: Session, accounts: Sequence[Account], charges: Sequence[Charge]) -> None:
    """Tell owners whose accounts were just charged that most of a window's budget is spent."""
    for account, charge in zip(accounts, charges, strict=True):
        if account.scope == "owner" and (mark := _passed(account, charge)) is not None:
            spent = share(limits_of(account), account)
            facts = {"percent": mark, "window": account.window, "spent": round(spent, 4)}
            notices.notify(session, account.owner_id, "budget.spent", facts)


def _passed(account: Account, charge: Charge) -> int | None:
    limits = limits_of(account)
    for mark in _MARKS:
        for name in limits.counted:
            after, limit = 100 * getattr(account, f"{name}_spent"), mark * getattr(limits, name)
            if after >= limit > after - 100 * getattr(charge, name):
                return mark
    return None

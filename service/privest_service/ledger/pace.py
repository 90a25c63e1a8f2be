"""The pace of a budget: what seven days may take of the present window."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from privest_service.database import now
from privest_service.ledger.entries import AMOUNTS, limits_of
from privest_service.ledger.models import WHOLE, Account, Entry
from privest_service.ledger.units import Charge
from privest_service.problems import PaceExceeded

SPAN = timedelta(days=7)
"""A week that ends now, and not one of the calendar, in two of which the same two days could spend twice."""


def require_pace(session: Session, accounts: Sequence[Account], charges: Sequence[Charge]) -> None:
    """Whether owners' accounts may be charged this much within seven days; the caller holds their rows.

    Raises:
        PaceExceeded: one may not.
    """
    for account, charge in zip(accounts, charges, strict=True):
        if account.scope != "owner" or account.pace is None or account.pace == WHOLE:
            continue
        limits, taken = limits_of(account), spent_lately(session, account)
        for name in limits.counted:
            allowed = getattr(limits, name) * account.pace // WHOLE
            if taken[name] + getattr(charge, name) > allowed:
                most = f"{100 * account.pace / WHOLE:g} %"
                raise PaceExceeded(f"Seven days may take {most} of a window's budget.", scope="owner")


def spent_lately(session: Session, account: Account) -> dict[str, int]:
    """What the last seven days took of an owner's budget, less what they gave back, whatever the window.

    Every entry bears the sums after it, so this is the difference to those of the last entry before.
    """
    since = now() - SPAN
    taken: dict[str, int] = dict.fromkeys(AMOUNTS, 0)
    latest = and_(Entry.account_id == Account.id, Entry.seq == Account.seq, Entry.at > since)
    theirs = (Account.owner_id == account.owner_id, Account.scope == "owner")
    for each in session.scalars(select(Account).join(Entry, latest).where(*theirs)):
        before = session.scalars(
            select(Entry)
            .where(Entry.account_id == each.id, Entry.at <= since)
            .order_by(Entry.seq.desc())
            .limit(1)
        ).first()
        for name in AMOUNTS:
            taken[name] += getattr(each, f"{name}_spent") - (
                getattr(before, f"{name}_spent") if before else 0
            )
    return taken

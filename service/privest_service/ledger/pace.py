"""The pace of a budget: what seven days may take of the present window."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session, aliased

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
    """What the last seven days took of an owner's budget, less what was given back of it, in any window.

    Every entry bears the sums after it, so this is the difference to those of the last entry before. What was
    given back of earlier days is not part of it: it makes room in the budget, and none in these seven days.
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
            taken[name] += getattr(each, f"{name}_spent")
        if before:
            earlier = _given_back(session, each, before)
            for name in AMOUNTS:
                taken[name] += earlier[name] - getattr(before, f"{name}_spent")
    return taken


def _given_back(session: Session, account: Account, before: Entry) -> dict[str, int]:
    """What entries after another one gave back of charges until then."""
    if account.queries - before.queries == account.seq - before.seq:  # all of them are debits
        return dict.fromkeys(AMOUNTS, 0)
    charged = aliased(Entry)
    theirs = (charged.account_id == Entry.account_id, charged.job_id == Entry.job_id)
    found = session.execute(
        select(*(-func.coalesce(func.sum(getattr(Entry, name)), 0) for name in AMOUNTS))
        .join(charged, and_(*theirs, charged.kind == "debit", charged.seq <= before.seq))
        .where(Entry.account_id == account.id, Entry.seq > before.seq, Entry.kind == "void")
    ).one()
    return dict(zip(AMOUNTS, map(int, found), strict=True))

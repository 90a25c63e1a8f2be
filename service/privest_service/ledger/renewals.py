"""Budgets over time: the rules of an owner's windows, changed, and windows that open by themselves."""

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from math import ceil
from typing import Literal

import structlog
from pydantic import JsonValue
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from privest.privacy.accounting import epsilon_for
from privest_service import acts
from privest_service.database import Database, now
from privest_service.ledger import entries, service, windows
from privest_service.ledger.models import WHOLE, Account, Entry, WindowRules
from privest_service.ledger.units import EPSILON, Limits, mu_above
from privest_service.ledger.windows import LEAST_DAYS, PERIODS, Every
from privest_service.problems import Invalid
from privest_service.security.models import Owner

Promise = Literal["per-window", "lifetime"]
"""Whether a budget's (ε, δ) holds for each window, or for all windows together."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Renewal:
    """How the windows of a budget follow each other.

    Attributes:
        every: the period at whose beginning one opens by itself; None for by hand alone.
        promise: what the budget's (ε, δ) is promised for.
        most: the largest number of windows, those that were opened already included; None for any.
        least_days: fewest days between the beginnings of two windows; None for those of the period.
    """

    every: Every | None
    promise: Promise
    most: int | None
    least_days: int | None


def set_renewal(session: Session, owner_id: str, renewal: Renewal) -> None:
    """Say how the windows of a budget follow each other from now on.

    A promise for all windows together divides the budget among them, and stays for ever, with their number.

    Raises:
        Invalid: there were more windows already, or more is spent of this one than would be its part.
    """
    owner = service.held_owner(session, owner_id)
    rules = _rules(session, owner)
    if renewal.most is not None and renewal.most < owner.window:
        raise Invalid(f"There were {owner.window} windows already. Choose at least that number as most.")
    lifetime = rules.total_epsilon is not None
    if lifetime and (renewal.promise, renewal.most) != ("lifetime", rules.most):
        raise Invalid(
            "This budget is promised for all of its windows together. That stays, with their number."
        )
    if renewal.promise == "lifetime" and not lifetime:
        _divide(session, owner, rules, renewal.most)
    rules.every, rules.most = renewal.every, renewal.most
    rules.least_days = LEAST_DAYS[renewal.every] if renewal.least_days is None else renewal.least_days
    windows.plan(rules, owner.window, now())
    _tell(session, rules)


def set_pace(session: Session, owner_id: str, share: float) -> None:
    """Let seven days take at most this share of a window's budget; 1 lets them take all."""
    owner = service.held_owner(session, owner_id)
    rules = _rules(session, owner)
    rules.pace = int(Fraction(repr(share)) * WHOLE)
    _tell(session, rules)


def would_open(
    session: Session, account: Account, most: int | None, least_days: int | None
) -> dict[Every, datetime | None]:
    """When the window after an owner's present one would open by itself, by the period that a rule names.

    Args:
        session: to read what is in force in.
        account: the owner's, of the present window.
        most: the largest number of windows that the rule would allow; None for any.
        least_days: fewest days that it would have between two windows; None for those of the period.
    """
    rules = session.get(WindowRules, account.owner_id) or _without(session, account)
    if most is not None and account.window >= most:
        return dict.fromkeys(PERIODS)
    least = LEAST_DAYS if least_days is None else dict.fromkeys(PERIODS, least_days)
    return {every: windows.due(every, rules.began_at, least[every], now()) for every in PERIODS}


def _tell(session: Session, rules: WindowRules) -> None:
    details: dict[str, JsonValue] = {
        "every": rules.every,
        "promise": "per-window" if rules.total_epsilon is None else "lifetime",
        "most": rules.most,
        "least_days": rules.least_days,
        "pace": rules.pace / WHOLE,
    }
    acts.record(session, rules.owner_id, "budget.rules", subject=rules.owner_id, details=details)


def _rules(session: Session, owner: Owner) -> WindowRules:
    """The rules of an owner's windows; new ones allow what was allowed without."""
    rules = session.get(WindowRules, owner.id, populate_existing=True)
    if rules is None:
        rules = _without(session, service.owner_account(session, owner.id))
        session.add(rules)
        session.flush()
    return rules


def _without(session: Session, account: Account) -> WindowRules:
    """New rules, which allow what was allowed without any."""
    began = session.scalars(select(Entry.at).where(Entry.account_id == account.id, Entry.seq == 1)).one()
    return WindowRules(owner_id=account.owner_id, least_days=0, pace=WHOLE, began_at=began)


def _divide(session: Session, owner: Owner, rules: WindowRules, most: int | None) -> None:
    """Promise for all windows together what the first one has until now, and leave it its part."""
    if most is None:
        raise Invalid("A promise for the lifetime of a budget needs the largest number of windows: most.")
    if owner.window > 1:
        raise Invalid("Windows were opened already, each with a promise of its own.")
    account = entries.locked(session, service.owner_account(session, owner.id).id)
    whole = service.limits_of(account)
    service.set_cap(session, account.id, part_of(whole, most))
    rules.total_epsilon, rules.total_delta = whole.epsilon, whole.delta


def part_of(limits: Limits, number: int) -> Limits:
    """The limits of each of so many windows that share a budget.

    All that is limited is divided, and rounded down, so that the sums over all windows stay within the whole.
    For `gdp`, ε is then the least that these sums guarantee at the part's δ.

    Raises:
        Invalid: nothing would be left for a window.
    """
    delta, mu_squared, slack = limits.delta // number, limits.mu_squared // number, limits.slack // number
    part = Limits(limits.composition, limits.epsilon // number, delta, mu_squared, slack)
    if 0 in {getattr(part, name) for name in limits.counted if getattr(limits, name)}:
        raise Invalid("The budget is too small to be divided among so many windows.")
    if part.composition == "basic":
        return part
    epsilon = epsilon_for(mu_above(mu_squared), part.room.delta)
    return Limits("gdp", ceil(Fraction(epsilon) * EPSILON), delta, mu_squared, slack)


_DUE = (
    select(WindowRules.owner_id)
    .join(Owner, Owner.id == WindowRules.owner_id)
    .where(WindowRules.due_at <= bindparam("now"), Owner.frozen_by.is_(None))
)


def open_due(database: Database) -> None:
    """Open the windows whose time has come: a task of housekeeping, of any replica.

    Each is opened in a transaction of its own that holds the owner, as every charge does: so a charge is in
    the old window or in the new one, and of two replicas the second finds that nothing is due. A budget that
    is frozen gets its window once the freeze ends.
    """
    with database.looking() as connection:
        waiting = connection.execute(_DUE, {"now": now()}).scalars().all()
    for owner_id in waiting:
        if (window := database.run(lambda session, each=owner_id: _open_if_due(session, each))) is not None:
            log.info("window opened", owner=owner_id, window=window)


def _open_if_due(session: Session, owner_id: str) -> int | None:
    owner = service.held_owner(session, owner_id)
    rules = session.get_one(WindowRules, owner_id, populate_existing=True)
    if rules.due_at is None or rules.due_at > now() or owner.frozen_by is not None:
        return None
    return service.open_window(session, owner_id, owner.window).window

"""What several windows of a budget promise together."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from privest.privacy.accounting import epsilon_for
from privest_service.ledger import windows
from privest_service.ledger.charges import spent_lately
from privest_service.ledger.entries import AMOUNTS
from privest_service.ledger.models import WHOLE, Account, Entry, WindowRules
from privest_service.ledger.schemas import Amount, Together, Windows
from privest_service.ledger.service import limits_of
from privest_service.ledger.units import EPSILON, PROBABILITY, Limits, as_number, mu_above


def together(some: Iterable[tuple[Limits, int]]) -> Together:
    """What windows promise together, of limits each and so many of each: all of one composition.

    Their charges are one sequence, whose sums stay below the sums of the limits. So what holds for one budget
    holds for these sums (docs/privacy.md): for `gdp` at the sum of the δ, the least ε with
    Σ slack + δ_Gμ(ε) <= Σ Δ and μ² = Σ μ², where plain sums give Σ E.
    """
    listed = list(some)
    epsilon, delta, mu_squared, slack = (
        sum(getattr(limits, name) * number for limits, number in listed) for name in AMOUNTS
    )
    plain, number = as_number(epsilon, EPSILON), sum(number for _, number in listed)
    if delta >= PROBABILITY:
        return Together(windows=number, promise=None)  # any mechanism at all keeps that
    found = plain
    if listed[0][0].composition == "gdp" and number > 1:
        room = Limits("gdp", epsilon, delta, mu_squared, slack).room
        found = min(plain, epsilon_for(mu_above(mu_squared), room.delta))
    return Together(windows=number, promise=Amount(epsilon=found, delta=as_number(delta, PROBABILITY)))


def windows_of(session: Session, account: Account) -> Windows:
    """How the windows of an owner's budget follow each other, and what they promise together.

    The account is the owner's, of the present window.
    """
    rules = session.get(WindowRules, account.owner_id, populate_existing=True)
    present, most = limits_of(account), rules.most if rules else None
    opened = _opened(session, account.owner_id)
    so_far = sum(number for _, number in opened)
    in_all = None if most is None else together([*opened, (present, max(most - so_far, 0))])
    if rules is not None and rules.total_epsilon is not None and rules.total_delta is not None:
        total = Amount(
            epsilon=as_number(rules.total_epsilon, EPSILON), delta=as_number(rules.total_delta, PROBABILITY)
        )
        in_all = Together(windows=rules.most or so_far, promise=total)
    in_a_year = windows.most_in_a_year(rules)
    began = session.scalars(select(Entry.at).where(Entry.account_id == account.id, Entry.seq == 1)).one()
    paced = rules is not None and rules.pace < WHOLE
    return Windows(
        every=windows.known(rules.every) if rules else None,
        promise="per-window" if rules is None or rules.total_epsilon is None else "lifetime",
        most=most,
        least_days=rules.least_days if rules else 0,
        opened=began,
        next=rules.due_at if rules else None,
        pace=rules.pace / WHOLE if rules and paced else None,
        paced_left=_left_this_week(session, account) if paced else None,
        so_far=together(opened),
        in_a_year=None if in_a_year is None else together([(present, in_a_year)]),
        in_all=in_all,
    )


def _opened(session: Session, owner_id: str) -> list[tuple[Limits, int]]:
    """The limits of all windows that were opened, and how many have each."""
    columns = (Account.composition, *(getattr(Account, f"{name}_limit") for name in AMOUNTS))
    theirs = (Account.owner_id == owner_id, Account.scope == "owner")
    rows = session.execute(select(*columns, func.count()).where(*theirs).group_by(*columns))
    return [(Limits(of, *amounts), number) for of, *amounts, number in map(tuple[Any, ...], rows)]


def _left_this_week(session: Session, account: Account) -> float:
    """The share of a window's budget that may still be spent at present, by its pace."""
    limits, taken = limits_of(account), spent_lately(session, account)
    used = max(
        taken[name] / getattr(limits, name) if getattr(limits, name) else 0.0 for name in limits.counted
    )
    return max(0.0, (account.pace or WHOLE) / WHOLE - used)

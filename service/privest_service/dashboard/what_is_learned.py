"""What analysts learn of one record, as how often the best attacker guesses right: so far, and at most."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from sqlalchemy import Float, cast, func, select
from sqlalchemy.orm import Session

from privest_service.ledger.models import Account
from privest_service.ledger.service import limits_of
from privest_service.ledger.units import Charge, Limits
from privest_service.ledger.views import chance_of_guessing

_AMOUNTS = ("epsilon", "delta", "mu_squared", "slack")

_NOTHING = Charge(0, 0, 0, 0)


@dataclass(frozen=True)
class Learned:
    """How often an attacker who saw all that somebody was answered, in every window, guesses right.

    Attributes:
        name: of whoever was answered.
        now: after what was charged so far.
        most: once all caps, or the budget, of the present window are spent.
    """

    name: str
    now: float
    most: float


def everybody(session: Session, account: Account) -> Learned:
    """What all who were answered from an owner's budget learn together, should they tell each other."""
    limits, before = limits_of(account), _before(session, account, "owner").get("", _NOTHING)
    whole = Charge(**{name: getattr(limits, name) for name in _AMOUNTS})
    return Learned(
        "All together, and you",
        chance_of_guessing(limits, before + _spent(account), ""),
        chance_of_guessing(limits, before + whole, ""),
    )


def by_analyst(
    session: Session, account: Account, names: Mapping[str, str], in_force: Collection[str]
) -> list[Learned]:
    """What each analyst learns over all of its grants.

    Args:
        session: to read accounts in.
        account: the owner's.
        names: of the analysts, by their ids.
        in_force: subjects of the grants that are not revoked; of others nothing more is to be learned.
    """
    found = session.scalars(
        select(Account).where(
            Account.owner_id == account.owner_id,
            Account.scope == "analyst",
            Account.window == account.window,
        )
    )
    groups: dict[str, list[Account]] = {}
    for each in found:
        groups.setdefault(each.subject.partition("/")[2], []).append(each)
    limits, earlier, told = limits_of(account), _before(session, account, "analyst"), list[Learned]()
    for analyst, theirs in groups.items():
        before = _sum([earlier.get(each.subject, _NOTHING) for each in theirs])
        spent, most = _sum([_spent(each) for each in theirs]), _most(limits, theirs, in_force)
        now, then = (chance_of_guessing(limits, before + each, "") for each in (spent, most))
        told.append(Learned(names.get(analyst, analyst), now, then))
    return sorted(told, key=lambda each: (-each.now, -each.most, each.name))


def _before(session: Session, account: Account, scope: str) -> dict[str, Charge]:
    """What the windows before the present one spent, by subject: each one's charges are releases, too."""
    # As floats, whose errors the chance is rounded up for: sums of many windows may be beyond an integer.
    sums = [func.sum(cast(getattr(Account, f"{name}_spent"), Float)) for name in _AMOUNTS]
    theirs = (Account.owner_id == account.owner_id, Account.scope == scope, Account.window < account.window)
    found = session.execute(select(Account.subject, *sums).where(*theirs).group_by(Account.subject))
    return {subject: Charge(*map(ceil, amounts)) for subject, *amounts in map(tuple[Any, ...], found)}


def _spent(account: Account) -> Charge:
    return Charge(**{name: getattr(account, f"{name}_spent") for name in _AMOUNTS})


def _most(limits: Limits, grants: Sequence[Account], in_force: Collection[str]) -> Charge:
    """All that grants may come to: their caps, or what was spent where they ended; within the budget."""
    caps = [limits_of(each) if each.subject in in_force else _spent(each) for each in grants]
    whole = _sum(caps)
    return Charge(**{name: min(getattr(whole, name), getattr(limits, name)) for name in _AMOUNTS})


def _sum(amounts: Sequence[Charge | Limits]) -> Charge:
    return Charge(**{name: sum(getattr(each, name) for each in amounts) for name in _AMOUNTS})

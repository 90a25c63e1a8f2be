"""What a question takes of the budget and of the caps that its caller may know."""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add

from sqlalchemy.orm import Session

from privest.estimators.federation import Federated, Plan
from privest.privacy.cost import PrivacyTarget
from privest_service.datasets.models import Dataset
from privest_service.datasets.service import grant_subject
from privest_service.datasets.terms import is_within, limits_of_grant
from privest_service.estimates.questions import QueryTarget, ResolvedQuery
from privest_service.estimates.schemas import Room
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.schemas import Amount
from privest_service.ledger.units import EPSILON, PROBABILITY, Charge, Limits, as_number
from privest_service.ledger.views import epsilon_of, largest_query, largest_within, share, share_of_charge
from privest_service.security.models import Owner
from privest_service.security.principals import Principal

_CALLED = {"owner": "your budget", "dataset": "the cap on this dataset", "analyst": "your cap"}


def charges_of(planned: Plan) -> list[Charge]:
    """What a plan costs each of its datasets, in the order in which they were named."""
    plans = planned.parts if isinstance(planned, Federated) else [planned]
    return [Charge.of(plan.target, plan.cost) for plan in plans]


def room_of(
    session: Session, caller: Principal, question: ResolvedQuery, charges: Sequence[Charge]
) -> Room | None:
    """What a question takes of the account with least room, of those that its caller may know; None of none.

    An owner knows its budget and the caps on its datasets, an analyst the caps of its own grants alone, and
    the most that these allow for one question.

    Args:
        session: to read accounts in.
        caller: who asks.
        question: what is asked.
        charges: of each of its datasets.
    """
    found = dict[int, tuple[Account, list[Charge]]]()
    for subject, charge in zip(question.about, charges, strict=True):
        for account in known_accounts(session, caller, subject):
            found.setdefault(account.id, (account, []))[1].append(charge)
    if not found:
        return None
    taken = [(account, reduce(add, charges)) for account, charges in found.values()]
    account, charge = min(taken, key=_left_after)
    limits, delta = ledger.limits_of(account), question.about[0].target.delta
    times, largest = min(times_covered(*each) for each in taken), [largest_query(account, delta)]
    for subject, charged in zip(question.about, charges, strict=True):
        if most := limits_of_grant(session, subject.dataset_id, caller.id):
            largest.append(largest_within(most, delta))
            times = times if is_within(charged, most) else 0
    return Room(
        scope=account.scope,  # pyright: ignore[reportArgumentType]
        limit=Amount(epsilon=as_number(limits.epsilon, EPSILON), delta=as_number(limits.delta, PROBABILITY)),
        cost=_cost(limits, charge),
        share=share_of_charge(limits, charge),
        left=max(0.0, 1 - share(limits, account)),
        epsilon=min((epsilon for epsilon in largest if epsilon is not None), default=None),
        times=times,
        covered=times > 0,
    )


def _cost(limits: Limits, charge: Charge) -> Amount:
    """What a charge is as an ε, and the δ at which it is told: of a gdp budget what is not kept for slack."""
    delta = limits.room.delta if limits.composition == "gdp" else as_number(charge.delta, PROBABILITY)
    return Amount(epsilon=epsilon_of(limits, charge), delta=delta)


def _left_after(taken: tuple[Account, Charge]) -> float:
    account, charge = taken
    limits = ledger.limits_of(account)
    return max(0.0, 1 - share(limits, account)) - share_of_charge(limits, charge)


def times_covered(account: Account, charge: Charge) -> int:
    """How many times an account covers a charge: in whole units, as the ledger counts."""
    names = ledger.limits_of(account).counted
    left = {name: getattr(account, f"{name}_limit") - getattr(account, f"{name}_spent") for name in names}
    return min(left[name] // amount for name in names if (amount := getattr(charge, name)))


def warnings_of(room: Room | None, delta: float) -> list[str]:
    """What an analyst should know of a question of this δ beside the limit that it counts against."""
    if room is None or delta <= room.limit.delta:
        return []
    return [
        f"δ of this question, {delta:.3g}, is above that of {_CALLED[room.scope]}, {room.limit.delta:.3g}, "
        f"where it costs ε = {room.cost.epsilon:.3g}: take a δ that is no larger"
    ]


def known_accounts(session: Session, caller: Principal, subject: QueryTarget) -> Iterator[Account]:
    """The accounts with limits that a question about a dataset is charged to and its caller may look at."""
    owner, dataset = session.get_one(Owner, subject.owner_id), session.get(Dataset, subject.dataset_id)
    own, subjects = owner.id == caller.id, dict[ledger.Scope, str]()
    if dataset is not None:  # rows that came with a question are none yet
        subjects["dataset"] = dataset.lineage
        subjects["analyst"] = grant_subject(dataset.id, caller.id)
    known = ("owner", "dataset") if own else ("analyst",)
    for account in ledger.accounts_in_force(session, owner, subjects):
        if account.scope in known and (account.scope == "owner" or ledger.limits_of(account).capped):
            yield account


def in_words(room: Room, target: PrivacyTarget) -> str:
    """What a refused question costs, and what is left for it."""
    largest = "" if room.epsilon is None else f": room for ε = {room.epsilon:.4g} at that δ"
    return (
        f"It costs ε = {target.epsilon:.6g} at δ = {target.delta:.3g}, which is {_percent(room.share)} of "
        f"{_CALLED[room.scope]}. {_percent(room.left)} of it is left{largest}."
    )


def account_room(account: Account, charge: Charge) -> str:
    """What a question costs an account, and what is left of it, in the words of its owner."""
    limits = ledger.limits_of(account)
    called = "the analyst's cap" if account.scope == "analyst" else _CALLED[account.scope]
    left = _percent(max(0.0, 1 - share(limits, account)))
    return f"It costs {_percent(share_of_charge(limits, charge))} of {called}, of which {left} is left."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share > 1 else f"{100 * share:.3g} %"

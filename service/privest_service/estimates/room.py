"""What a question takes of the budget and of the caps that its caller may know."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from sqlalchemy.orm import Session

from privest.estimators.federation import Federated, Plan
from privest.privacy.accounting import PrivacyTarget
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


@dataclass(frozen=True)
class Known:
    """Limits on a query that its caller may know, for each of its datasets in their order.

    Attributes:
        question: the query.
        accounts: those of `known_accounts`.
        terms: the most that one query may cost by the caller's grant; None where no grant sets a limit.
    """

    question: ResolvedQuery
    accounts: Sequence[Sequence[Account]]
    terms: Sequence[Limits | None]

    @classmethod
    def of(cls, session: Session, caller: Principal, question: ResolvedQuery) -> "Known":
        """Read the limits on a query that a caller may know."""
        about = question.about
        return cls(
            question,
            [list(known_accounts(session, caller, subject)) for subject in about],
            [
                None
                if caller.id == subject.owner_id
                else limits_of_grant(session, subject.dataset_id, caller.id)
                for subject in about
            ],
        )

    def largest_epsilon(self, *, slack: bool, share: float = 1.0) -> float | None:
        """Return the largest ε, in whole units, that the query may have.

        It is 0 where the limits admit no ε at the query's δ. None where there are no limits, or one for δ = 0
        on a gdp budget, where the cost depends on the releases.

        Args:
            slack: whether its run uses slack.
            share: most of what is left of each account that it may take.
        """
        times = Counter(account.id for accounts in self.accounts for account in accounts)
        found = list[float | None]()
        for subject, accounts, most in zip(self.question.about, self.accounts, self.terms, strict=True):
            delta, rate = subject.target.delta, subject.target.slack_per_mu_squared if slack else None
            for account in accounts:
                left = largest_query(account, delta, share, times=times[account.id], slack_rate=rate)
                found.append(left)
            if most:
                found.append(largest_within(most, delta, slack_rate=rate))
        return None if None in found else min((each for each in found if each is not None), default=None)


def room_of(
    session: Session, caller: Principal, question: ResolvedQuery, charges: Sequence[Charge]
) -> Room | None:
    """Return the budget impact of a query on the tightest account that its caller may know, or None.

    An owner knows its budget and the caps on its datasets, an analyst the caps of its own grants alone, and
    the most that these allow for one query.

    Args:
        session: to read accounts in.
        caller: who asks.
        question: the query.
        charges: the charge of each of its datasets.
    """
    known = Known.of(session, caller, question)
    charged = dict[int, tuple[Account, list[Charge]]]()
    for accounts, charge in zip(known.accounts, charges, strict=True):
        for account in accounts:
            charged.setdefault(account.id, (account, []))[1].append(charge)
    if not charged:
        return None
    taken = [(account, reduce(add, charges)) for account, charges in charged.values()]
    account, charge = min(taken, key=_left_after)
    limits = ledger.limits_of(account)
    times = min(times_covered(*each) for each in taken)
    if any(most and not is_within(each, most) for most, each in zip(known.terms, charges, strict=True)):
        times = 0
    return Room(
        scope=account.scope,  # pyright: ignore[reportArgumentType]
        limit=Amount(epsilon=as_number(limits.epsilon, EPSILON), delta=as_number(limits.delta, PROBABILITY)),
        cost=_cost(limits, charge),
        share=share_of_charge(limits, charge),
        left=max(0.0, 1 - share(limits, account)),
        epsilon=known.largest_epsilon(slack=any(each.slack for each in charges)),
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


def warnings_of(room: Room | None, target: PrivacyTarget) -> list[str]:
    """Return what a caller should know of a query with this target before it asks."""
    if room is None:
        return []
    found = list[str]()
    if target.delta > room.limit.delta:
        found.append(
            f"δ of this question, {target.delta:.3g}, is above that of {_CALLED[room.scope]}, "
            f"{room.limit.delta:.3g}, where it costs ε = {room.cost.epsilon:.3g}: take a δ that is no larger"
        )
    if not room.covered:
        found.append(f"this would be refused{_largest_in_words(room)}")
    return found


def _largest_in_words(room: Room) -> str:
    if room.epsilon is None:
        return ""
    if room.epsilon == 0.0:
        return ": no ε fits at this δ"
    return f": room for ε = {room.epsilon:.15g} at this δ"  # exact, so that it can be asked with


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


def in_words(room: Room, question: ResolvedQuery) -> str:
    """Say what a refused query costs, and the largest that is admitted in its place."""
    target = question.target
    within = target.epsilon <= room.limit.epsilon and target.delta <= room.limit.delta
    # Alone, within the limit and with nothing spent, a query is only refused for the δ that is kept back.
    alone = room.left == 1.0 and len(question.about) == 1 and within
    kept = " A tenth of δ is kept for queries with random batches." if alone else ""
    return (
        f"It costs ε = {target.epsilon:.6g} at δ = {target.delta:.3g}, which is {_percent(room.share)} of "
        f"{_CALLED[room.scope]}. {_percent(room.left)} of it is left{_largest_in_words(room)}.{kept}"
    )


def account_room(account: Account, charge: Charge) -> str:
    """What a question costs an account, and what is left of it, in the words of its owner."""
    limits = ledger.limits_of(account)
    called = "the analyst's cap" if account.scope == "analyst" else _CALLED[account.scope]
    left = _percent(max(0.0, 1 - share(limits, account)))
    return f"It costs {_percent(share_of_charge(limits, charge))} of {called}, of which {left} is left."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share > 1 else f"{100 * share:.3g} %"

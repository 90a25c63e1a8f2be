"""What a question takes of the budget and of the caps that its caller may know."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy.orm import Session

from privest.estimators.federation import Federated, Plan
from privest.privacy.cost import Cost, PrivacyTarget
from privest_service.datasets.models import Dataset
from privest_service.datasets.service import grant_subject
from privest_service.estimates.questions import QueryTarget, ResolvedQuery
from privest_service.estimates.schemas import Room
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.units import Charge
from privest_service.ledger.views import largest_query, share, share_of_charge
from privest_service.security.models import Owner
from privest_service.security.principals import Principal

Price = tuple[PrivacyTarget, Cost]

_CALLED = {"owner": "your budget", "dataset": "the cap on this dataset", "analyst": "your cap"}


def room_of(
    session: Session, caller: Principal, question: ResolvedQuery, prices: Sequence[Price]
) -> Room | None:
    """What a question takes of the account with least room, of those that its caller may know; None of none.

    An owner knows its budget and the caps on its datasets, an analyst the caps of its own grants alone.

    Args:
        session: to read accounts in.
        caller: who asks.
        question: what is asked.
        prices: of each of its datasets.
    """
    taken = dict[int, tuple[Account, list[Price]]]()
    for subject, price in zip(question.about, prices, strict=True):
        for account in known_accounts(session, caller, subject):
            taken.setdefault(account.id, (account, []))[1].append(price)
    rooms = [_room(account, paid) for account, paid in taken.values()]
    return min(rooms, key=lambda room: room.left - room.share, default=None)


def of_view(
    session: Session, caller: Principal, question: ResolvedQuery, told: dict[str, Any]
) -> dict[str, Any] | None:
    """The room of a question whose plan is there as it is told, in JSON."""
    prices = [
        (PrivacyTarget(each["epsilon"], each["delta"]), Cost(each["mu"] ** 2, each["slack"]))
        for each in ([part["privacy"] for part in told["parts"]] or [told["privacy"]])
    ]
    found = room_of(session, caller, question, prices)
    return found and found.model_dump()


def figures(session: Session, caller: Principal, question: ResolvedQuery, planned: Plan) -> str:
    """What a refused question costs, and what is left for it, in words."""
    plans = planned.parts if isinstance(planned, Federated) else [planned]
    room = room_of(session, caller, question, [(plan.target, plan.cost) for plan in plans])
    return "" if room is None else _in_words(room, planned.target)


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


def _room(account: Account, paid: Sequence[Price]) -> Room:
    limits, delta = ledger.limits_of(account), paid[0][0].delta
    pure = delta == 0 and limits.composition == "gdp"  # whose ε has no such bound in one formula
    return Room(
        scope=account.scope,  # pyright: ignore[reportArgumentType]
        share=sum(share_of_charge(limits, Charge.of(*price)) for price in paid),
        left=max(0.0, 1 - share(limits, account)),
        epsilon=None if pure else largest_query(account, delta),
    )


def _in_words(room: Room, target: PrivacyTarget) -> str:
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

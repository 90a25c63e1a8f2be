"""What of a budget each analyst, and each dataset, took."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service.datasets.models import Dataset, Grant
from privest_service.ledger.models import Account
from privest_service.ledger.service import limits_of
from privest_service.ledger.units import Charge, Limits
from privest_service.ledger.views import epsilon_of, share_of_charge
from privest_service.reports.formatting import name_of_all, told_apart
from privest_service.security.models import Analyst


@dataclass(frozen=True)
class Part:
    """What one analyst, or one dataset, took of a budget of these limits."""

    id: str
    label: str
    spent: float
    queries: int
    limits: Limits
    charge: Charge

    @property
    def epsilon(self) -> float:
        """The ε that this guarantees by itself. It takes long to find, and few pages show it."""
        return epsilon_of(self.limits, self.charge)


def by_analyst(
    session: Session, account: Account, names: Mapping[str, str], own: str = "You, the owner"
) -> list[Part]:
    """Who spent it: each analyst over all of its grants, and the rest, which is the owner's own."""
    grants = session.scalars(
        select(Account).where(
            Account.owner_id == account.owner_id,
            Account.scope == "analyst",
            Account.window == account.window,
        )
    ).all()
    groups: dict[str, list[Account]] = {}
    for each in grants:
        groups.setdefault(each.subject.partition("/")[2], []).append(each)
    parts = {analyst: (names.get(analyst, analyst), theirs) for analyst, theirs in groups.items()}
    return _parts(account, parts, ("own", own))


def by_dataset(session: Session, account: Account, datasets: Sequence[Dataset]) -> list[Part]:
    """Split the budget that was spent by dataset.

    Datasets declared to hold the same rows count together. The rest was spent on rows that are gone.
    """
    same: dict[str, list[Dataset]] = {}
    for dataset in datasets:
        same.setdefault(dataset.lineage, []).append(dataset)
    accounts = session.scalars(
        select(Account).where(
            Account.owner_id == account.owner_id,
            Account.scope == "dataset",
            Account.window == account.window,
        )
    )
    names = told_apart(datasets)
    parts = {
        same[each.subject][0].id: (name_of_all([names[one.id] for one in same[each.subject]]), [each])
        for each in accounts
        if each.subject in same
    }
    return _parts(account, parts, ("gone", "Deleted or sent with a question"))


def _parts(
    whole: Account, parts: Mapping[str, tuple[str, Sequence[Account]]], rest: tuple[str, str]
) -> list[Part]:
    found = [
        _part_of(whole, key, label, _sums(accounts), sum(each.queries for each in accounts))
        for key, (label, accounts) in parts.items()
    ]
    counted = _sums([each for _, accounts in parts.values() for each in accounts])
    left = {name: getattr(whole, f"{name}_spent") - amount for name, amount in counted.items()}
    queries = whole.queries - sum(part.queries for part in found)
    if queries > 0:
        found.append(_part_of(whole, *rest, {name: max(amount, 0) for name, amount in left.items()}, queries))
    return sorted(found, key=lambda part: (-part.spent, part.label))


def _sums(accounts: Sequence[Account]) -> dict[str, int]:
    names = ("epsilon", "delta", "mu_squared", "slack")
    return {name: sum(getattr(each, f"{name}_spent") for each in accounts) for name in names}


def _part_of(whole: Account, key: str, label: str, sums: Mapping[str, int], queries: int) -> Part:
    limits, charge = limits_of(whole), Charge(**sums)
    return Part(key, label, share_of_charge(limits, charge), queries, limits, charge)


def platforms_of(session: Session, through: Iterable[str | None]) -> dict[str, str]:
    """The names of service accounts that asked for others, by their ids."""
    asked = {each for each in through if each is not None}
    rows = session.execute(select(Analyst.id, Analyst.name).where(Analyst.id.in_(asked))) if asked else ()
    return dict(row.tuple() for row in rows)


def analysts_of(session: Session, owner_id: str) -> dict[str, str]:
    """The analysts to whom this owner ever granted anything: their names by their ids."""
    granted = (
        select(Grant.analyst_id)
        .join(Dataset, Dataset.id == Grant.dataset_id)
        .where(Dataset.owner_id == owner_id)
    )
    rows = session.execute(
        select(Analyst.id, Analyst.name).where(Analyst.id.in_(granted)).order_by(Analyst.name)
    )
    return told_apart(rows)

"""Where a budget stands and how it came there, from a few look-ups however long its ledger is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Load, Session

from privest.estimators.registry import ESTIMATORS
from privest.privacy.calibration import epsilon_for
from privest_service.dashboard.formatting import count, told_apart
from privest_service.database import now
from privest_service.datasets.models import Dataset, Grant
from privest_service.jobs.models import Job
from privest_service.ledger import views
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.schemas import Budget
from privest_service.ledger.service import limits_of
from privest_service.ledger.units import EPSILON, Charge, Limits, as_number, mu_above
from privest_service.ledger.views import part, share, share_of_charge
from privest_service.security.models import Analyst

_POINTS = 240
"""Most points in the chart of a budget's history. The chart is about a thousand pixels wide."""

WITHOUT_ANSWERS = Load(Job).defer(Job.plan).defer(Job.result).defer(Job.receipt).defer(Job.analyst_receipt)
"""Query option for jobs that leaves out the columns that may be long."""

_PRESENT = timedelta(days=30)
"""Span of recent history from which the present rate of spending is computed."""

_LONGEST = timedelta(days=100 * 365)
"""Longest time-to-exhaustion reported; longer forecasts are capped here."""

_SHORTEST = timedelta(hours=1)
"""Shortest span over which a rate of spending says anything."""


@dataclass(frozen=True)
class BudgetSnapshot:
    """What was left after one entry, as shares of the budget; by plain sums it may be less than nothing."""

    at: datetime
    left: float
    left_basic: float
    seq: int
    kind: str
    epsilon: float
    what: str
    submitter: str | None


@dataclass(frozen=True)
class BudgetSummary:
    """A budget, what is spent of it as a share, how it came to that, and how long it lasts at this rate."""

    budget: Budget
    spent: float
    history: list[BudgetSnapshot]
    lasts: timedelta | None


def standing(session: Session, account: Account) -> BudgetSummary:
    """Where an account stands."""
    history = _history(session, account)
    return BudgetSummary(
        budget=views.budget(account),
        spent=share(limits_of(account), account),
        history=history,
        lasts=_lasts(history),
    )


_WITHOUT_A_JOB = {"limit": "limit set", "loss": "forgotten at a restore"}
"""Labels of entries that belong to no job."""


def _plain_sums(limits: Limits, entry: Entry) -> float:
    return max(part(entry.epsilon_spent, limits.epsilon), part(entry.delta_spent, limits.delta))


def _history(session: Session, account: Account) -> list[BudgetSnapshot]:
    limits = limits_of(account)
    last = account.seq
    places = range(1, last + 1)
    if last > _POINTS:
        places = sorted({1 + round(i * (last - 1) / (_POINTS - 1)) for i in range(_POINTS)})
    found = session.execute(
        select(Entry, Job)
        .options(WITHOUT_ANSWERS)
        .outerjoin(Job, Job.id == Entry.job_id)
        .where(Entry.account_id == account.id, Entry.seq.in_(places))
        .order_by(Entry.seq)
    )
    return [
        BudgetSnapshot(
            at=entry.at,
            left=1 - share(limits, entry),
            left_basic=1 - _plain_sums(limits, entry),
            seq=entry.seq,
            kind=entry.kind,
            epsilon=as_number(abs(entry.epsilon), EPSILON),
            what=title(job.kind) if job else _WITHOUT_A_JOB[entry.kind],
            submitter=job.submitter_id if job else None,
        )
        for entry, job in found
    ]


def title(kind: str) -> str:
    """What a kind of estimate is called in a table; one that is no more is called by its name."""
    return ESTIMATORS[kind].title if kind in ESTIMATORS else kind.replace("-", " ")


def unit(kind: str) -> str:
    """The unit of the distances by which answers of a kind may be off, with a space; most have none."""
    return f" {ESTIMATORS[kind].unit}" if kind in ESTIMATORS and ESTIMATORS[kind].unit else ""


def _lasts(history: Sequence[BudgetSnapshot]) -> timedelta | None:
    """How long something is left if it goes on as in the last month; None where that cannot be said."""
    if not history:
        return None
    moment = now()
    first = next((each for each in history if each.kind == "debit"), None)
    if first is None:
        return None
    before = [each for each in history if each.at <= moment - _PRESENT and each.seq >= first.seq]
    start = before[-1] if before else history[max(history.index(first) - 1, 0)]
    since = max(start.at if before else first.at, moment - _PRESENT)
    spent, passed = start.left - history[-1].left, moment - since
    if spent <= 0 or passed < _SHORTEST:
        return None
    return min(max(history[-1].left, 0.0) / spent, _LONGEST / passed) * passed


@dataclass(frozen=True)
class Part:
    """What one analyst, or one dataset, took of a budget."""

    id: str
    label: str
    spent: float
    epsilon: float
    queries: int


def by_analyst(session: Session, account: Account, names: Mapping[str, str]) -> list[Part]:
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
    return _parts(account, parts, ("own", "You, the owner"))


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
            Account.subject.in_(same),
            Account.window == account.window,
        )
    ).all()
    names = told_apart(datasets)
    parts = {same[each.subject][0].id: (_name_of_all(same[each.subject], names), [each]) for each in accounts}
    return _parts(account, parts, ("gone", "Deleted or sent with a question"))


def _name_of_all(same: Sequence[Dataset], names: Mapping[str, str]) -> str:
    first, others = names[same[0].id], len(same) - 1
    return first if not others else f"{first}, and {count(others, 'other')} with the same rows"


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
    return Part(key, label, share_of_charge(limits, charge), epsilon_of(limits, charge), queries)


def epsilon_of(limits: Limits, charge: Charge) -> float:
    """The ε that a sum of charges guarantees by itself, at the budget's δ."""
    if limits.composition == "basic":
        return as_number(charge.epsilon, EPSILON)
    return epsilon_for(mu_above(charge.mu_squared), limits.room.delta)


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
    return dict(rows.all())

"""Where a budget stands and how it came there, from a few look-ups however long its ledger is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import select
from sqlalchemy.orm import Load, Session

from privest.estimators.registry import ESTIMATORS
from privest_service.database import now
from privest_service.jobs.models import Job
from privest_service.ledger import views
from privest_service.ledger.entries import AMOUNTS
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.schemas import Budget
from privest_service.ledger.service import limits_of
from privest_service.ledger.units import Limits
from privest_service.ledger.views import Price, part, price_of, share
from privest_service.reports.words import title

_POINTS = 120
"""Most points in the chart of a budget's history: a mark is eight pixels wide, the chart about a thousand."""

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
    closer: str
    """Which of ε and δ is closer to its limit by plain sums."""
    seq: int
    kind: str
    price: Price | None
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


_WITHOUT_A_JOB = {"limit": "budget set", "loss": "forgotten at a restore"}
"""Labels of entries that belong to no job."""


def _plain_sums(limits: Limits, entry: Any) -> tuple[float, str]:
    """What is spent by plain sums, and whether of ε or of δ."""
    return max((part(entry.delta_spent, limits.delta), "δ"), (part(entry.epsilon_spent, limits.epsilon), "ε"))


def _history(session: Session, account: Account) -> list[BudgetSnapshot]:
    limits = limits_of(account)
    last = account.seq
    places = range(1, last + 1)
    if last > _POINTS:
        places = sorted({1 + round(i * (last - 1) / (_POINTS - 1)) for i in range(_POINTS)})
    sums = (getattr(Entry, f"{name}_spent") for name in AMOUNTS)
    chosen = (  # columns alone: whole rows would take most of the page's time
        select(Entry.seq, Entry.at, Entry.kind, *(getattr(Entry, name) for name in AMOUNTS), *sums)
        .add_columns(Job.kind.label("asked"), Job.submitter_id)
        .outerjoin(Job, Job.id == Entry.job_id)
        .where(Entry.account_id == account.id, Entry.seq.in_(places))
        .order_by(Entry.seq)
    )
    found = cast("Iterable[Any]", session.execute(chosen))
    return [
        BudgetSnapshot(
            at=entry.at,
            left=1 - share(limits, entry),
            left_basic=1 - plain,
            closer=closer,
            seq=entry.seq,
            kind=entry.kind,
            price=price_of(limits, entry),
            what=title(entry.asked) if entry.asked else _WITHOUT_A_JOB[entry.kind],
            submitter=entry.submitter_id,
        )
        for entry in found
        for plain, closer in [_plain_sums(limits, entry)]
    ]


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

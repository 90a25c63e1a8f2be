"""Budgets and entries as their owner reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from privest.memo import memoized
from privest.privacy.accounting import Cost, PrivacyTarget, best_guess, epsilon_for, epsilon_within
from privest.privacy.budget import least_slack
from privest_service.jobs.models import Job
from privest_service.ledger.entries import AMOUNTS
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.schemas import Amount, Budget, EntryView, LedgerPage, Spent
from privest_service.ledger.service import limits_of
from privest_service.ledger.units import (
    EPSILON,
    MU_SQUARED,
    PROBABILITY,
    Charge,
    Limits,
    as_number,
    epsilon_below,
    mu_above,
    mu_below,
    number_above,
    probability_units,
)


def budget(account: Account) -> Budget:
    """Return limit, spent, remaining and largest further query of an account.

    For gdp, spent ε is the least with slack limit + δ_Gμ(ε) <= Δ at the spent μ², rounded up. Remaining is
    the largest ε that one more query without slack may have at δ = Δ − slack limit, and the largest query
    has the largest ε that is admitted at the δ of the budget itself.
    """
    limits = limits_of(account)
    basic = Amount(
        epsilon=as_number(account.epsilon_spent, EPSILON),
        delta=as_number(account.delta_spent, PROBABILITY),
    )
    mu = mu_above(account.mu_squared_spent)
    if limits.composition == "gdp":
        room = limits.room
        untouched = account.mu_squared_spent == 0 and account.slack_spent == 0
        spent = Amount(
            epsilon=0.0 if untouched else epsilon_for(mu, room.delta),
            delta=0.0 if untouched else as_number(limits.delta, PROBABILITY),
        )
        left = largest_query(account, room.delta) or 0.0
        remaining = Amount(epsilon=left, delta=room.delta if left else 0.0)
        delta = as_number(limits.delta, PROBABILITY)
        largest = largest_query(account, delta) or 0.0
        largest = Amount(epsilon=largest, delta=delta if largest else 0.0)
    else:
        spent = basic
        remaining = Amount(
            epsilon=as_number(limits.epsilon - account.epsilon_spent, EPSILON),
            delta=as_number(limits.delta - account.delta_spent, PROBABILITY),
        )
        largest = remaining
    return Budget(
        composition=limits.composition,
        window=account.window,
        frozen=account.frozen,
        frozen_by=account.frozen_by,  # pyright: ignore[reportArgumentType]
        limit=Amount(epsilon=as_number(limits.epsilon, EPSILON), delta=as_number(limits.delta, PROBABILITY)),
        spent=Spent(
            epsilon=spent.epsilon,
            delta=spent.delta,
            mu=mu,
            slack=as_number(account.slack_spent, PROBABILITY),
        ),
        remaining=remaining,
        largest_query=largest,
        share=share(limits, account),
        queries=account.queries,
        basic=basic,
    )


def largest_query(
    account: Account, delta: float, share: float = 1.0, *, times: int = 1, slack_rate: float | None = None
) -> float | None:
    """Return the largest ε, in whole units, that is admitted at this δ; 0 if there is none.

    None at δ = 0 on a gdp budget, where the cost depends on the releases.

    Args:
        account: the budget or cap.
        delta: δ of the query.
        share: most of what is left of ε, or of μ² and slack, that the queries may take together.
        times: number of queries with this ε and δ that have to fit together.
        slack_rate: `slack_per_mu_squared` of a query that draws random batches, whose certificate uses slack.
    """
    limits = limits_of(account)
    left = {
        name: max(0, getattr(account, f"{name}_limit") - getattr(account, f"{name}_spent"))
        for name in limits.counted
    }
    return _largest(limits, left, delta, Fraction(share) / times, times, slack_rate=slack_rate)


def largest_within(limits: Limits, delta: float, *, slack_rate: float | None = None) -> float | None:
    """Return what `largest_query` does for an account with these limits of which nothing is spent."""
    left = {name: getattr(limits, name) for name in limits.counted}
    return _largest(limits, left, delta, Fraction(1), 1, slack_rate=slack_rate)


def largest_single(limits: Limits) -> Amount:
    """Return the largest query that a budget with these limits admits while nothing of it is spent.

    It is without slack, and at the δ of the budget.
    """
    delta = as_number(limits.delta, PROBABILITY)
    return Amount(epsilon=largest_within(limits, delta) or 0.0, delta=delta)


def _largest(
    limits: Limits,
    left: Mapping[str, int],
    delta: float,
    share: Fraction,
    times: int,
    *,
    slack_rate: float | None,
) -> float | None:
    if limits.composition == "basic":
        fits = probability_units(delta) * times <= left["delta"]
        return as_number(floor(share * left["epsilon"]), EPSILON) if fits else 0.0
    if delta == 0:
        return None
    mu_squared, slack = (floor(share * left[name]) for name in ("mu_squared", "slack"))
    if slack_rate is not None:
        if Fraction(least_slack(delta)) * PROBABILITY > slack:
            return 0.0
        # Beyond the least slack, a run uses no more than this rate times the μ² of its (ε, δ).
        covered = Fraction(slack, PROBABILITY) / Fraction(slack_rate) * MU_SQUARED
        mu_squared = min(mu_squared, floor(covered))
    return epsilon_below(epsilon_within(mu_below(mu_squared), delta))


def share(
    limits: Limits, sums: Account | Entry | Charge | Row[*tuple[Any, ...]], after: str = "_spent"
) -> float:
    """What sums take of the limits, of the two that count the one of which more is gone.

    In μ² and slack on a gdp budget: there charges add up, so that shares of queries do.
    """
    return max(part(getattr(sums, name + after), getattr(limits, name)) for name in limits.counted)


def share_of_charge(limits: Limits, charge: Charge) -> float:
    """What one charge takes of the limits."""
    return share(limits, charge, "")


@memoized
def epsilon_of(limits: Limits, charge: Charge) -> float:
    """The ε that a sum of charges guarantees by itself, at the budget's δ."""
    if limits.composition == "basic":
        return as_number(charge.epsilon, EPSILON)
    return epsilon_for(mu_above(charge.mu_squared), limits.room.delta)


@dataclass(frozen=True)
class Price:
    """What a question takes of a budget, as every page and report tells it.

    Attributes:
        epsilon: that it guarantees by itself, at the budget's δ.
        share: of the budget.
    """

    epsilon: float
    share: float


def price(limits: Limits, charge: Charge) -> Price:
    """The price of a charge; that of a negative one is what is given back."""
    amounts = Charge(*(abs(getattr(charge, name)) for name in AMOUNTS))
    return Price(epsilon_of(limits, amounts), share_of_charge(limits, amounts))


def price_of(limits: Limits, entry: Entry | Row[*tuple[Any, ...]]) -> Price | None:
    """The price that an entry moved; None of one that sets a limit."""
    if entry.kind == "limit":
        return None
    return price(limits, Charge(*(getattr(entry, name) for name in AMOUNTS)))


def part(amount: int, limit: int) -> float:
    """What an amount is of a limit."""
    if limit == 0:  # δ of a pure budget
        return 0.0 if amount <= 0 else 1.0
    return amount / limit


def chance_of_guessing(limits: Limits, sums: Account | Charge | Limits, after: str = "_spent") -> float:
    """How often an attacker who knows all other records guesses right between two values of one record.

    The answers together cost the sums, as these limits count them. With `after` empty the sums are a charge,
    or all that other limits admit. Without any answer it is ½.
    """
    first, second = (getattr(sums, name + after) for name in limits.counted)
    if limits.composition == "gdp":
        slack = min(number_above(second, PROBABILITY), 1.0)
        return best_guess(Cost(number_above(first, MU_SQUARED), slack))
    if second >= PROBABILITY:
        return 1.0
    epsilon, delta = number_above(first, EPSILON), number_above(second, PROBABILITY)
    return best_guess(PrivacyTarget(epsilon, delta)) if epsilon else 0.5 + delta / 2


def page(session: Session, account_id: int, *, limit: int, before: int | None) -> LedgerPage:
    """Entries of an account before a place in its chain, newest first."""
    rows = session.execute(
        select(Entry, Job)
        .outerjoin(Job, Job.id == Entry.job_id)
        .where(Entry.account_id == account_id, *([Entry.seq < before] if before is not None else []))
        .order_by(Entry.seq.desc())
        .limit(limit)
    ).all()
    entries = [_view(entry, job) for entry, job in rows]
    more = bool(entries) and entries[-1].seq > 1
    return LedgerPage(entries=entries, next=str(entries[-1].seq) if more else None)


def _view(entry: Entry, job: Job | None) -> EntryView:
    return EntryView(
        seq=entry.seq,
        kind=entry.kind,  # pyright: ignore[reportArgumentType]
        job=entry.job_id,
        estimate=job.kind if job else None,
        dataset=job.dataset_id if job else None,
        submitter=job.submitter_id if job else None,
        person=job.person if job else None,
        through=job.through if job else None,
        state=job.state if job else None,
        epsilon=as_number(entry.epsilon, EPSILON),
        delta=as_number(entry.delta, PROBABILITY),
        mu_squared=as_number(entry.mu_squared, MU_SQUARED),
        slack=as_number(entry.slack, PROBABILITY),
        at=entry.at,
        prev=entry.prev,
        hash=entry.hash,
    )

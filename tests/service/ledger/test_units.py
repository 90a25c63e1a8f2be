"""Whole units: a query is charged exactly what it runs with, so that k parts of a budget fit into it."""

from decimal import Decimal
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privest.data.metadata import VectorsMetadata
from privest.privacy.accounting import Cost, PrivacyTarget
from privest.privacy.budget import PrivacyBudget, cost_of_all, gaussian_budgets
from privest.privacy.mechanisms import NoisySum, noisy_sum
from privest_service.database import Database
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.questions import QueryTarget, ResolvedQuery, digest_of
from privest_service.ledger import views
from privest_service.ledger.units import (
    EPSILON,
    MU_SQUARED,
    PROBABILITY,
    Charge,
    Limits,
    chargeable,
    probability_units,
)
from privest_service.problems import BudgetExceeded
from testing.books import Books

epsilons = st.floats(1e-12, 1e6)
deltas = st.one_of(st.just(0.0), st.floats(1e-20, 0.5))


def charged(epsilon: float, delta: float = 0.0) -> Charge:
    """The charge of a query in its own (ε, δ), whatever its run costs."""
    return Charge.of(chargeable(PrivacyTarget(epsilon, delta)), Cost())


@given(epsilon=epsilons, delta=deltas)
def test_a_query_is_charged_exactly_what_it_runs_with_and_never_more_than_was_asked(
    epsilon: float, delta: float
) -> None:
    target = chargeable(PrivacyTarget(epsilon, delta, 0.5))
    charge = Charge.of(target, Cost())
    for asked, runs, units, per_one in (
        (epsilon, target.epsilon, charge.epsilon, EPSILON),
        (delta, target.delta, charge.delta, PROBABILITY),
    ):
        whole = floor(Fraction(repr(asked)) * per_one)
        if whole == 0:  # below one unit, which is what it is charged
            assert (runs, units) == (asked, 1 if asked else 0)
        else:
            assert units == whole
            assert Fraction(repr(runs)) == Fraction(units, per_one)
    assert chargeable(target) == target
    assert target.slack_per_mu_squared == 0.5
    assert probability_units(delta) == charge.delta


@pytest.mark.parametrize("written", ["0.1", "1e-9", "1", "0.333333333", "3", "999999.999999999"])
def test_what_is_written_in_whole_units_is_not_touched(written: str) -> None:
    """So no estimate changes whose ε has nine decimals or fewer."""
    assert chargeable(PrivacyTarget(float(written), 1e-5)) == PrivacyTarget(float(written), 1e-5)


@given(k=st.integers(1, 200), whole=st.sampled_from(["1", "0.1", "3", "10"]))
def test_k_parts_of_a_budget_fit_and_one_more_does_not(k: int, whole: str) -> None:
    limits = Limits.of(Decimal(whole), Decimal("1e-5"), "basic")
    part = charged(float(whole) / k, 1e-5 / k)
    assert part.epsilon * k <= limits.epsilon < part.epsilon * (k + 1)
    assert part.delta * k <= limits.delta < part.delta * (k + 1)


@given(k=st.integers(1, 200))
def test_the_releases_of_all_admitted_queries_are_within_the_budget_in_exact_arithmetic(k: int) -> None:
    """The exact sum of the ε of all releases, by their noise and sensitivity, is at most the budget's ε."""
    target = chargeable(PrivacyTarget(1 / k, 0.0))
    budget = PrivacyBudget.of(target, 1000)
    parts = [
        noisy_sum(
            "laplace",
            n=1000,
            size=1,
            clip=1.0,
            loss=budget.part(share).whole * (1 - 1e-12),
            count=2,
            statistic="s",
            diameter=1.0,
        )
        for share in (0.1, 0.3, 0.1)
    ]
    assert cost_of_all(parts, target)
    run = sum(Fraction(each.epsilon) * each.count for each in parts)
    assert run * k <= 1


@pytest.mark.few(3)
@pytest.mark.parametrize("k", [3, 7, 49, 200])
@pytest.mark.both
def test_the_ledger_admits_k_parts_of_a_budget_and_refuses_one_more(database: Database, k: int) -> None:
    books = Books(database)
    account, part = books.open(Limits.of(1, 1e-5, "basic")), charged(1 / k, 1e-5 / k)
    for _ in range(k):
        books.reserve({account: part})
    with pytest.raises(BudgetExceeded):
        books.reserve({account: part})
    found = books.account(account)
    assert Fraction(found.epsilon_spent, EPSILON) <= 1
    assert Fraction(found.delta_spent, PROBABILITY) <= Fraction("1e-5")
    assert books.faults() == []


# The largest query


def release(target: PrivacyTarget) -> Charge:
    """The charge of a run that spends all of (ε, δ) on one sum with Gaussian noise."""
    budget = PrivacyBudget.of(target, 1000)
    once: NoisySum = noisy_sum(
        "gaussian",
        n=1000,
        size=1,
        clip=1.0,
        loss=budget.whole * (1 - 1e-12),
        count=1,
        statistic="s",
        diameter=1.0,
    )
    return Charge.of(target, cost_of_all([once], target))


def fits(charge: Charge, limits: Limits) -> bool:
    """Whether limits cover a charge."""
    return all(getattr(charge, name) <= getattr(limits, name) for name in limits.counted)


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(1e-3, 20),
    exponent=st.floats(-12, -2),
    asked=st.floats(-12, -2),
    composition=st.sampled_from(["basic", "gdp"]),
)
def test_the_largest_query_is_admitted_and_the_next_larger_is_not(
    epsilon: float, exponent: float, asked: float, composition: str
) -> None:
    limits = Limits.of(epsilon, 10.0**exponent, composition)  # pyright: ignore[reportArgumentType]
    delta = chargeable(PrivacyTarget(1.0, 10.0**asked)).delta
    largest = views.largest_within(limits, delta)
    assert largest is not None
    if largest:
        assert fits(release(PrivacyTarget(largest, delta)), limits)
    more = chargeable(PrivacyTarget(largest * (1 + 3e-9) + 3e-9, delta))
    assert not fits(release(more), limits)


@settings(max_examples=40, deadline=None)
@given(
    used=st.integers(0, 10**6),
    asked=st.floats(-8, -3),
    cap=st.floats(0.1, 3),
)
def test_the_largest_query_of_random_batches_leaves_slack_for_all_that_they_may_use(
    used: int, asked: float, cap: float
) -> None:
    """A run takes its slack by the rate of the owner's budget, and a cap may have another."""
    owner, capped = Limits.of(1, 1e-5, "gdp"), Limits.of(cap, 1e-6, "gdp")
    rate, delta = owner.slack_per_mu_squared, 10.0**asked
    assert rate is not None
    for limits in (owner, capped):
        left = {"mu_squared": limits.mu_squared, "slack": limits.slack - limits.slack * used // 10**6}
        found = views._largest(limits, left, delta, Fraction(1), 1, slack_rate=rate)  # pyright: ignore[reportPrivateUsage]
        assert found is not None
        if not found:
            continue
        for mu, slack in gaussian_budgets(PrivacyTarget(found, delta, rate)):
            assert Fraction(slack) * PROBABILITY <= left["slack"]
            assert Fraction(mu) ** 2 * MU_SQUARED <= left["mu_squared"]


def test_a_budget_and_its_largest_query() -> None:
    """Nothing of δ is kept on a basic budget, and a tenth on a gdp one."""
    assert views.largest_single(Limits.of(1, 1e-5, "basic")).epsilon == 1.0
    gdp = views.largest_single(Limits.of(1, 1e-5, "gdp"))
    assert (gdp.epsilon, gdp.delta) == (0.993093398, 1e-5)


# Keys


def test_what_was_asked_before_is_reused_although_it_is_planned_with_less() -> None:
    """The digest of a query is of ε and δ as requested, as it was before they were rounded."""
    third = PrivacyTarget(1 / 3, 1000**-1.5)
    about = QueryTarget("ds_x", "own_x", VectorsMetadata(1000, 3, 1.0), chargeable(third), third)
    asked = ResolvedQuery("anl_x", KINDS["frechet-mean"], (about,), {"steps": 3})
    facts = {"dataset": "ds_x", "epsilon": 1 / 3, "delta": 1000**-1.5}
    assert asked.digest == digest_of({"kind": "frechet-mean", "options": {"steps": 3}} | facts)
    assert asked.target.epsilon == 0.333333333
    unrounded = QueryTarget("ds_x", "own_x", about.shape, third)
    assert ResolvedQuery("anl_x", asked.kind, (unrounded,), asked.options).name != asked.name

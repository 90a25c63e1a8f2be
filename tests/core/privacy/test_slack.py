"""Slack that is searched: charged ε over the ε of another accountant, and what of it budgets allow."""

import functools
from math import sqrt

import pytest

from privest.data.metadata import LabelledMetadata, PointsMetadata
from privest.estimators import federation
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.privacy import budget
from privest.privacy.accounting import Cost, PrivacyTarget, gaussian_delta, mu_for
from privest.privacy.budget import PrivacyBudget, gaussian_budgets, left_of
from privest.privacy.mechanisms import SubsampledSum
from privest.privacy.subsampling import noise_for, runs_of
from testing.sampled_runs import RUNS, true_epsilon


@pytest.mark.few(3)
@pytest.mark.parametrize("delta", [1e-5, 1e-6])
@pytest.mark.parametrize(("rate", "steps"), RUNS)
def test_what_is_charged_is_what_is_lost(rate, steps, delta):
    """A second accountant, dp-accounting, agrees to 2 %, and never finds more than is charged."""
    target = PrivacyTarget(1.0, delta)
    run = noise_for("poisson", rate, steps, gaussian_budgets(target))
    assert 1.0 <= target.epsilon / true_epsilon([run], delta) <= 1.02


def test_a_slack_that_is_fixed_charges_more():
    """The fault that the search mends: a share of 1/200 of δ, as was used before."""
    target = PrivacyTarget(1.0, 1e-6, slack_per_mu_squared=0.0)
    rate, steps = RUNS[0]
    run = noise_for("poisson", rate, steps, gaussian_budgets(target))
    assert target.epsilon / true_epsilon([run], 1e-6) > 1.5


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.0, 1e-9, 3e-7, 1e-5, 1e-3, None])
def test_slack_is_used_as_fast_as_the_budget_at_most(epsilon, rate):
    budgets = gaussian_budgets(PrivacyTarget(epsilon, 1e-6, rate))
    slacks = [slack for _, slack in budgets]
    assert slacks == sorted(slacks)
    assert slacks[0] == 1e-6 / 200
    if rate is not None:
        assert all(slack <= rate * mu_for(epsilon, 1e-6) ** 2 for slack in slacks[1:])
    for mu, slack in budgets:
        assert slack + gaussian_delta(epsilon, mu) <= 1e-6


def test_full_sums_and_batches_share_each_of_the_budgets():
    whole = PrivacyBudget.for_gaussian_batches(PrivacyTarget(1.0, 1e-6), 1000)
    for share in (0.1, 0.5, 0.999):
        left = whole.part(0.8).for_batches(share)
        assert 1 <= len(left) <= len(whole.budgets)
        spent = whole.whole**2 * (1 - 0.8 * share)
        for mu, slack in left:
            assert budget.covers(Cost(spent + mu**2, slack), PrivacyTarget(1.0, 1e-6))
        assert left[0][0] == pytest.approx(sqrt(0.8 * share) * whole.whole, rel=1e-9)
    assert left_of(whole.budgets, whole.whole**2) == ()


def planned(rate):
    spec = FrechetMeanSpec(solver="rsgd", rate=0.01, steps=20, clip=1.0)
    shape = PointsMetadata(1000, {"name": "euclidean", "dim": 3}, radius=1.0)
    return frechet_mean.plan(spec, shape, PrivacyTarget(1.0, 1e-6, rate))


def test_a_budget_that_counts_slack_gets_more_noise_and_spends_less_of_it():
    strict, counted, free = map(planned, (0.0, 3e-7, None))
    noises = [
        next(r.scale for r in plan.releases if isinstance(r, SubsampledSum))
        for plan in (strict, counted, free)
    ]
    assert noises[0] > noises[2]
    assert noises[1] >= noises[2] * 0.99
    assert strict.cost.slack == 1e-6 / 200 < free.cost.slack
    assert counted.cost.slack <= max(1e-6 / 200, 3e-7 * mu_for(1.0, 1e-6) ** 2)
    for plan in (strict, counted, free):
        assert budget.covers(plan.cost, plan.target)


def test_batches_of_fixed_size_are_charged_what_their_curve_loses():
    run = noise_for("fixed", 0.01, 100, gaussian_budgets(PrivacyTarget(1.0, 1e-6)))
    assert 1.0 <= 1.0 / true_epsilon([run], 1e-6) <= 1.02


@pytest.mark.costly
def test_batches_of_several_owners_with_many_kinds_of_noise_are_charged_what_they_lose():
    """Accelerated descents, whose noise changes on the way."""
    spec = LogisticSpec(solver="nag-opt", batch_size=100, steps=200)
    facts = (("a", "b", "c"), "y", ("0", "1"), 2.0, (0.0,) * 3, (1.0,) * 3)
    shapes = [LabelledMetadata(n, *facts) for n in (3000, 9000)]
    targets = [PrivacyTarget(1.0, 1e-6), PrivacyTarget(2.0, 1e-6)]
    plan = federation.plan(functools.partial(logistic_regression.plan, spec), shapes, targets)
    for part in plan.parts:
        runs = runs_of(r for r in part.releases if isinstance(r, SubsampledSum))
        assert len(runs) > 5
        assert 1.0 <= part.target.epsilon / true_epsilon(runs, 1e-6, cell=2e-3) <= 1.02

"""The currency: sums round up, nonsense is refused, and each mechanism costs what its density says."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privest.privacy import budget
from privest.privacy.calibration import gaussian_delta, mu_for
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.mechanisms import NoisySum, noisy_sum

amounts = st.floats(0.0, 1e300) | st.floats(0.0, 1e-300) | st.sampled_from([0.0, 5e-324, 1e-16, 0.1, 1.0])


@settings(max_examples=200, derandomize=True)
@given(st.lists(st.tuples(amounts, st.floats(0.0, 0.2)), max_size=8))
def test_sums_are_never_below_the_exact_sum(parts):
    total = sum((Cost(m, s) for m, s in parts), Cost())
    mu, slack = (sum(map(Fraction, column)) for column in zip(*parts, strict=True)) if parts else (0, 0)
    assert Fraction(total.mu_squared) >= mu
    assert Fraction(total.slack) >= min(slack, Fraction(1))
    assert Fraction(total.mu_squared) <= mu * (1 + Fraction(1, 2**48)) + Fraction(5e-324) * 8


def test_nothing_costs_nothing():
    assert Cost() + Cost() == Cost(0.0, 0.0)
    assert Cost(0.1) + Cost() == Cost(0.1)
    assert (Cost(slack=0.7) + Cost(slack=0.7)).slack == 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1e-300, -1.0])
def test_costs_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="cost"):
        Cost(bad, 0.0)
    with pytest.raises(ValueError, match="cost"):
        Cost(0.0, bad)
    with pytest.raises(ValueError, match="cost"):
        Cost(0.0, 1.1)
    with pytest.raises(ValueError, match="cost"):
        Cost(1.7e308) + Cost(1.7e308)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf")])
def test_targets_need_a_positive_epsilon(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        PrivacyTarget(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2.0, float("nan"), float("inf")])
def test_targets_need_a_delta_below_one(delta):
    with pytest.raises(ValueError, match="delta"):
        PrivacyTarget(1.0, delta)


positive = st.floats(-30, 30).map(lambda e: 10.0**e)


@settings(max_examples=200, derandomize=True)
@given(clip=positive, scale=st.floats(-6, 6).map(lambda e: 10.0**e), size=st.integers(1, 5000))
def test_gaussian_cost_is_at_least_the_exact_ratio(clip, scale, size):
    release = NoisySum("gaussian", 10, size, clip, 2 * clip, clip * scale, 0.0)
    ratio = Fraction(release.sensitivity) / Fraction(release.scale)
    assert Fraction(2 * clip) <= Fraction(release.sensitivity)
    assert ratio**2 <= Fraction(release.cost.mu_squared) <= ratio**2 * (1 + Fraction(1, 2**49))


@settings(max_examples=200, derandomize=True)
@given(clip=positive, scale=st.floats(-2, 6).map(lambda e: 10.0**e), size=st.integers(1, 5000))
def test_laplace_epsilon_is_at_least_the_exact_ratio(clip, scale, size):
    release = NoisySum("laplace", 10, size, clip, 2 * clip, clip * scale, 0.0)
    ratio = Fraction(release.sensitivity) / Fraction(release.scale)
    assert ratio <= Fraction(release.epsilon) <= ratio * (1 + Fraction(1, 2**50))


@pytest.mark.parametrize("size", [1, 2, 20])
def test_laplace_densities_differ_by_at_most_epsilon_and_reach_it(size):
    """log p(z − Δ) − log p(z) = (|z| − |z − Δ|)/scale over a shift of the full sensitivity."""
    release = noisy_sum("laplace", n=100, size=size, clip=0.7, loss=1.3)
    rng = np.random.default_rng(size)
    shift = rng.standard_normal(size)
    shift *= release.sensitivity / np.linalg.norm(shift)
    z = np.concatenate([rng.standard_normal((5000, size)) * 3, shift * np.linspace(-3, 3, 601)[:, None]])
    ratio = (np.linalg.norm(z, axis=1) - np.linalg.norm(z - shift, axis=1)) / release.scale
    assert np.abs(ratio).max() <= release.epsilon * (1 + 1e-12)
    assert np.abs(ratio).max() >= release.epsilon * (1 - 1e-9)
    assert release.epsilon <= 1.3


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("loss", [0.0, -1.0, float("nan"), float("inf"), 5e-324, 1e-200, 1e200])
def test_losses_that_float64_cannot_carry_are_refused(noise, loss):
    with pytest.raises(ValueError, match="too"):
        noisy_sum(noise, n=10, size=3, clip=1.0, loss=loss)


@pytest.mark.parametrize("delta", [1e-12, 1e-05, 0.3])
def test_slack_is_paid_for_out_of_delta(delta):
    """The budget that a planner divides, and the check of a plan, both take the slack from δ."""
    target = PrivacyTarget(1.0, delta)
    for mu, slack in budget.gaussian_budgets(target):
        assert slack > 0
        assert delta * (1 - 1e-6) < slack + gaussian_delta(1.0, mu) <= delta
        assert budget.covers(Cost(mu * mu * (1 - 1e-12), slack), target)
    whole = mu_for(1.0, delta) ** 2 * (1 - 1e-9)
    assert budget.covers(Cost(whole), target)
    assert not budget.covers(Cost(whole, slack), target)

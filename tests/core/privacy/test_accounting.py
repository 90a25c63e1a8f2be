"""Costs, conversions between (ε, δ) and μ, and the guessing probability."""

import functools
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from privest.privacy import budget
from privest.privacy.accounting import (
    Cost,
    PrivacyTarget,
    best_guess,
    epsilon_for,
    epsilon_within,
    gaussian_delta,
    mu_for,
    mu_of_pure,
)
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


EPSILONS = [1e-12, 1e-8, 1e-6, 1e-3, 1e-2, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0, 1e3, 1e5]
DELTAS = [0.9, 0.5, 0.1, *(10.0**-k for k in range(3, 15))]
PAIRS = [(epsilon, delta) for epsilon in EPSILONS for delta in DELTAS]

mp = mpmath.mp.clone() if hasattr(mpmath.mp, "clone") else mpmath.mp
mp.dps = 60


def exact_delta(epsilon, mu):
    """Dong, Roth and Su 2022, Corollary 1, with both tails written as erfc."""
    e, m = mp.mpf(epsilon), mp.mpf(mu)

    def tail(x):
        return mp.erfc(x / mp.sqrt(2)) / 2

    return tail(e / m - m / 2) - mp.exp(e) * tail(e / m + m / 2)


@functools.cache
def exact_mu(epsilon, delta):
    """Bracketed by bisection on the exact curve: no start from the code under test."""
    low, high = mp.mpf("1e-30"), mp.mpf(10)
    while exact_delta(epsilon, high) <= delta:
        high *= 2
    for step in range(90):
        middle = mp.sqrt(low * high) if step < 12 else (low + high) / 2
        low, high = (middle, high) if exact_delta(epsilon, middle) <= delta else (low, middle)
    return low


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mu_is_never_above_the_optimum_and_near_it(epsilon):
    for delta in DELTAS:
        mu = mu_for(epsilon, delta)
        assert exact_delta(epsilon, mu) <= mp.mpf(delta), (delta, "not covered")
        assert 0 <= 1 - mp.mpf(mu) / exact_mu(epsilon, delta) <= 1e-9, delta


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_epsilon_is_never_below_the_optimum_and_near_it(epsilon):
    """Near: at most 1e-8 above what a μ larger by 1e-9 needs (a small ε is ill-conditioned in μ)."""
    for delta in DELTAS:
        mu = float(exact_mu(epsilon, delta))
        found = epsilon_for(mu, delta)
        assert exact_delta(found, mu) <= mp.mpf(delta), delta
        if found > 0:
            assert exact_delta(mp.mpf(found) * (1 - mp.mpf("1e-8")), mu * (1 + 1e-9)) >= mp.mpf(delta), delta
        assert found >= epsilon_within(mu, delta)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_what_a_remainder_admits_fits_it(epsilon):
    for delta in DELTAS:
        mu = float(exact_mu(epsilon, delta))
        within = epsilon_within(mu, delta)
        assert within == 0 or mu_for(within, delta) <= mu, delta
        if mu_for(epsilon, delta) < mu * (1 - 1e-9):
            assert within >= epsilon, delta


@pytest.mark.parametrize("epsilon", [0.0, -1e-6, -0.5, -30.0, *EPSILONS])
def test_delta_is_accurate(epsilon):
    for mu in (1e-12, 1e-6, 1e-3, 0.1, 0.28, 0.29, 1.0, 3.0, 9.9, 10.1, 30.0, 440.0):
        exact = exact_delta(epsilon, mu)
        found = gaussian_delta(epsilon, mu)
        if exact > mp.mpf("1e-290"):
            assert abs(found / exact - 1) <= 1e-9, (mu, found, mp.nstr(exact, 20))
        else:
            assert 0 <= found <= 1e-280


def test_without_loss_nothing_is_told():
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(0.0, 0.0) == 0.0
    assert gaussian_delta(-1.0, 0.0) == pytest.approx(1 - float(mp.exp(-1)), rel=1e-15)
    assert epsilon_for(0.0, 1e-9) == 0.0


@pytest.mark.parametrize(
    "epsilon", [0.0, 5e-324, 1e-300, 1e-9, 0.1, 0.999, 1.0, 1.001, 5.0, 36.0, 100.0, 699.9]
)
def test_mu_of_a_pure_mechanism(epsilon):
    """G_μ lies below the trade-off of ε at its kink (p, p), p = 1/(1+e^ε): equivalently Φ(−μ/2) <= p."""
    mu = mu_of_pure(epsilon)
    p = 1 / (1 + mp.exp(mp.mpf(epsilon)))
    assert mp.erfc(mp.mpf(mu) / 2 / mp.sqrt(2)) / 2 <= p
    if epsilon > 1e-290:
        assert mp.erfc(mp.mpf(mu) * (1 - mp.mpf("1e-9")) / 2 / mp.sqrt(2)) / 2 > p


@pytest.mark.parametrize("epsilon", [700.1, 1e3, 1e4])
def test_mu_of_a_hardly_private_mechanism_is_a_bound(epsilon):
    assert mp.erfc(mp.mpf(mu_of_pure(epsilon)) / 2 / mp.sqrt(2)) / 2 <= 1 / (1 + mp.exp(mp.mpf(epsilon)))


def test_the_privacy_loss_distribution_agrees():
    """dp-accounting's pessimistic discretisation is above the closed form and close to it."""
    for sigma, epsilon in [(1.0, 1.0), (2.0, 0.5), (0.7, 3.0)]:
        distribution = privacy_loss_distribution.from_gaussian_mechanism(
            sigma, value_discretization_interval=1e-4
        )
        theirs = distribution.get_delta_for_epsilon(epsilon)
        ours = gaussian_delta(epsilon, 1 / sigma)
        assert ours <= theirs <= ours * (1 + 1e-3)


@pytest.mark.parametrize("mu", [1e150, 1.3e154, 1.35e154, 1e200, 1e308])
def test_losses_beyond_float64_are_not_called_small(mu):
    assert epsilon_for(mu, 1e-6) >= min(mu, 1e150) ** 2 / 2
    assert epsilon_within(mu, 1e-6) <= epsilon_for(mu, 1e-6)


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 1e-100, 1e-40, 1.0, 1e100, 1e300, 1.7e308])
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-40, 1e-6, 1 - 1e-16])
def test_the_ends_of_float64_are_calm(epsilon, delta):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mu = mu_for(epsilon, delta)
        back = epsilon_for(mu, delta)
        assert mu > 0
        assert back >= 0
        if 1e-200 < mu < 1e100 and delta > 1e-290:
            assert exact_delta(epsilon, mu) <= mp.mpf(delta)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_nonsense_is_refused(bad):
    for call in (
        lambda: mu_for(bad, 1e-6),
        lambda: mu_for(0.0, 1e-6),
        lambda: mu_for(1.0, bad),
        lambda: mu_for(1.0, 0.0),
        lambda: mu_for(1.0, 1.0),
        lambda: epsilon_for(bad, 1e-6),
        lambda: epsilon_for(1.0, bad),
        lambda: epsilon_within(bad, 1e-6),
        lambda: epsilon_within(1.0, 0.0),
    ):
        with pytest.raises(ValueError, match="must"):
            call()


@pytest.mark.few(3)
@pytest.mark.sparse
@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1254, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("slack", [0.0, 1e-12, 1e-3, 0.5])
def test_of_a_normal_release_it_is_the_integral_over_the_likelier_density(mu, slack):
    """With probability `slack` the attacker sees the value itself, otherwise a normal number."""

    def seen(x, value):
        return mp.npdf(x, value * mp.mpf(mu), 1)

    ends = [-mp.inf, 0, mp.mpf(mu) / 2, mp.mpf(mu), mp.inf]
    right = mp.quad(lambda x: max(seen(x, 0), seen(x, 1)) / 2, ends)
    exact = mp.mpf(slack) + (1 - mp.mpf(slack)) * right
    found = best_guess(Cost(mu**2, slack))
    assert exact <= found <= exact + (exact - mp.mpf("0.5")) * 2e-8 + mp.mpf("1e-15")


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-3, 0.5])
def test_of_epsilon_and_delta_it_is_the_best_that_the_definition_leaves(epsilon, delta):
    """A linear program in two numbers: how often the guess is "first" under either value.

    Every guess obeys p <= e^ε q + δ and 1 − q <= e^ε (1 − p) + δ with 0 <= q <= p <= 1, and p + 1 − q is
    largest at a corner of that.
    """
    e, d = mp.exp(mp.mpf(epsilon)), mp.mpf(delta)
    both = (1 - d) / (1 + e)  # where both hold with equality
    corners = [(mp.mpf(1), mp.mpf(1)), (e * both + d, both), (d, mp.mpf(0)), (mp.mpf(1), 1 - d)]
    tiny = e * mp.mpf("1e-55")
    assert all(p <= e * q + d + tiny and 1 - q <= e * (1 - p) + d + tiny for p, q in corners)
    exact = max((p + 1 - q) / 2 for p, q in corners)
    found = best_guess(PrivacyTarget(epsilon, delta))
    assert exact <= found <= exact + (exact - mp.mpf("0.5")) * 1e-8 + mp.mpf("1e-15")


def test_nothing_released_tells_nothing_and_more_tells_more():
    assert best_guess(Cost()) == 0.5
    assert best_guess(Cost(1e6)) == best_guess(Cost(0.0, 1.0)) == best_guess(PrivacyTarget(900.0, 0.0)) == 1.0
    grown = [best_guess(Cost(mu**2, slack)) for slack in (0.0, 1e-6, 0.1) for mu in np.linspace(0, 4, 40)]
    for each in np.split(np.array(grown), 3):
        assert np.all(np.diff(each) > 0)

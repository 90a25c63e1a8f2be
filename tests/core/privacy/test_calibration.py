"""The trade between (ε, δ) and μ against 60-digit arithmetic, and against the privacy loss distribution."""

import functools
import warnings

import mpmath
import pytest
from dp_accounting.pld import privacy_loss_distribution

from privest.privacy.calibration import epsilon_for, epsilon_within, gaussian_delta, mu_for, mu_of_pure

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

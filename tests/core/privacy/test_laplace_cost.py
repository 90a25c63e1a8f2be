"""What Laplace noise costs on a budget in μ, against other formulas, its loss's own law, and simulation."""

from fractions import Fraction
from math import exp, pi

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln
from scipy.stats import ks_1samp

from privest.arrays import lengths
from privest.privacy.calibration import gaussian_delta, mu_of_pure
from privest.privacy.laplace_cost import mu_of_laplace
from privest.privacy.mechanisms import noisy_sum
from testing.accounting import laplace_mu_squared
from testing.laplace_losses import LaplaceLosses

SIZES = [1, 2, 3, 10, 55]
RATIOS = [0.01, 0.3, 1.0, 4.0, 20.0]


@pytest.mark.parametrize("size", [*SIZES, 200])
@pytest.mark.parametrize("ratio", [1e-6, *RATIOS[:-1]])
def test_it_is_what_bessel_and_struve_functions_give_rounded_up(size, ratio):
    with mpmath.workdps(50):
        exact = mpmath.sqrt(laplace_mu_squared(Fraction(ratio), size))
        assert exact <= mpmath.mpf(mu_of_laplace(ratio, size)) <= exact * (1 + mpmath.mpf(1e-9))


def log_rest(ratio, size):
    """log P(|z₁| > ratio/2) by a sum over d, d − 2, …, 1 or 0: parts of the integral of tᵛK_ν."""
    x = mpmath.mpf(ratio) / 2
    ends = mpmath.linspace(0, mpmath.acosh(1 + 100 / x), 20)  # beyond, the integrand is e^−100 of its largest
    rest = (
        mpmath.exp(-x)
        if size % 2
        else 2 / mpmath.pi * mpmath.quad(lambda t: mpmath.exp(-x * mpmath.cosh(t)) / mpmath.cosh(t), ends)
    )
    for d in range(2 + size % 2, size + 1, 2):
        nu = mpmath.mpf(d) / 2
        unit = 2 ** (nu - 1) * mpmath.sqrt(mpmath.pi) * mpmath.gamma(nu + mpmath.mpf(1) / 2)
        rest += x**nu * mpmath.besselk(nu - 1, x) / unit
    return mpmath.log(rest)


@pytest.mark.parametrize("size", [1, 2, 3, 10, 101])
@pytest.mark.parametrize("ratio", [0.5, 4.0, 50.0, 999.0, 2e4])
def test_so_it_is_where_hardly_anything_is_hidden(size, ratio):
    """The upper tail tells: Φ(−μ/2) = P(|z₁| > ratio/2)/2, which its logarithm keeps."""
    with mpmath.workdps(40):
        found = mpmath.mpf(mu_of_laplace(ratio, size))
        log_tail = log_rest(ratio, size) - mpmath.log(2)
        for mu, above in [(found, True), (found * (1 - mpmath.mpf(1e-9)), False)]:
            half = mu / 2 / mpmath.sqrt(2)
            assert (mpmath.log(mpmath.erfc(half) / 2) <= log_tail) == above


@settings(max_examples=200, derandomize=True)
@given(ratio=st.floats(-300, 8).map(lambda e: 10.0**e), size=st.integers(1, 10**6), more=st.floats(1.0, 1.5))
def test_it_grows_with_the_ratio_and_is_between_no_noise_and_what_every_mechanism_of_that_epsilon_costs(
    ratio, size, more
):
    mu = mu_of_laplace(ratio, size)
    assert 0.0 < mu <= mu_of_laplace(more * ratio, size) * (1 + 1e-12)
    assert mu <= mu_of_pure(ratio)
    assert mu_of_laplace(ratio, size + 1) <= mu * (1 + 1e-12)


def test_without_loss_it_costs_nothing():
    assert mu_of_laplace(0.0, 3) == 0.0
    assert 0.0 < mu_of_laplace(5e-324, 3) < 1e-300


@pytest.mark.parametrize(("size", "factor"), [(1, 1.0), (3, 4.0), (10, 14.943), (55, 85.61)])
def test_what_is_won_over_the_worst_mechanism_of_the_same_epsilon(size, factor):
    """It is π·(Γ((d + 1)/2)/Γ(d/2))² where ε is small."""
    assert factor == pytest.approx(pi * exp(2 * (gammaln((size + 1) / 2) - gammaln(size / 2))), rel=1e-3)
    assert (mu_of_pure(0.001) / mu_of_laplace(0.001, size)) ** 2 == pytest.approx(factor, rel=1e-3)


# The law of the loss


def deltas(ratio, size, epsilons):
    """δ at each ε; on the line by integrating what Laplace's two densities differ by."""
    if size == 1:
        return -np.expm1((epsilons - ratio) / 2)
    return LaplaceLosses(ratio, size).deltas(epsilons)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ratio", RATIOS)
def test_the_whole_curve_is_below_that_of_the_gaussian_mechanism(size, ratio):
    """They meet at ε = 0, where a μ less by a part in 10⁶ is too little, and nowhere else."""
    epsilons = ratio * np.append(0.0, np.geomspace(1e-3, 0.9999, 60))
    found, mu = deltas(ratio, size, epsilons), mu_of_laplace(ratio, size)
    allowed = np.array([gaussian_delta(epsilon, mu) for epsilon in epsilons])
    assert found[0] == pytest.approx(allowed[0], rel=1e-8)
    if allowed[0] < 0.9999:
        assert found[0] > gaussian_delta(0.0, mu * (1 - 1e-6))
    assert (found <= allowed * (1 + 1e-9)).all()
    assert (found[20:] < allowed[20:]).all()


@pytest.mark.parametrize(("size", "ratio"), [(2, 0.2), (2, 6.0), (3, 1.0), (10, 3.0), (55, 20.0)])
def test_the_law_of_the_loss_is_that_of_noise_that_is_drawn(size, ratio):
    """A false alarm in 10⁶ runs for each, by Kolmogorov and Smirnov; the seed is fixed."""
    rng = np.random.default_rng(size)
    normal = rng.standard_normal((20_000, size))
    z = rng.gamma(size, size=(20_000, 1)) * normal / lengths(normal)[:, None]
    shifted = z - ratio * np.eye(size)[0]
    losses = LaplaceLosses(ratio, size)
    table = ratio * np.sin(np.linspace(-pi / 2, pi / 2, 400))
    law = 1 - losses.tails(table)[1]

    def p_value(factor):
        drawn = factor * (lengths(z) - lengths(shifted))
        return ks_1samp(drawn, lambda loss: np.interp(loss, table, law)).pvalue

    assert p_value(1.0) > 1e-6
    assert p_value(0.8) < 1e-6


@pytest.mark.parametrize("size", [1, 10])
def test_a_release_is_charged_so(size):
    release = noisy_sum("laplace", n=1000, size=size, clip=0.5, loss=0.7)
    mu = mu_of_laplace(release.epsilon, size)
    assert Fraction(mu) ** 2 <= Fraction(release.cost.mu_squared) <= Fraction(mu * mu * (1 + 1e-12))

"""The cost of Laplace noise, alone and composed."""

from contextlib import nullcontext
from fractions import Fraction
from math import exp, inf, log1p, nextafter, pi, sqrt

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammaln, kv
from scipy.stats import ks_1samp

from privest.arrays import lengths
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model.logistic_regression import LOGISTIC_REGRESSION, LogisticSpec
from privest.privacy import laplace_accounting
from privest.privacy.accounting import PrivacyTarget, epsilon_for, gaussian_delta, mu_of_pure
from privest.privacy.gate import Gate
from privest.privacy.laplace_accounting import InSpace, OnALine, cost_of_pure, mu_of_laplace
from privest.privacy.mechanisms import SubsampledRun, amplified, noisy_sum, subsampled_sum, unamplified
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


SCHEMES = ["poisson", "fixed"]


def on_a_line(epsilon):
    return OnALine(epsilon, epsilon / 2)


def batch(epsilon, rate, scheme):
    """The law of a sum over a batch that is ε-private."""
    far = unamplified(epsilon, rate, scheme) / 2
    return OnALine(amplified(2 * far, rate, scheme), far, rate, scheme == "fixed")


def curve(law, alphas):
    """H_α for α of at least 1, by the tails beyond the point where the densities' ratio is α."""
    q, ends = law.rate, (2 * law.far, 0.0) if law.fixed else (law.far, -law.far)

    def excess(x, alpha):
        p, other = ((1 - q) * stats.laplace.pdf(x) + q * stats.laplace.pdf(x - end) for end in ends)
        return p - alpha * other

    def above(alpha):
        if excess(ends[0], alpha) <= 0:
            return 0.0
        least = (
            0.0
            if alpha == 1.0 and not law.fixed
            else brentq(excess, -1e-9, ends[0], args=(alpha,), xtol=1e-14)
        )
        p, other = ((1 - q) * stats.laplace.sf(least) + q * stats.laplace.sf(least - end) for end in ends)
        return float(p - alpha * other)

    return np.array([above(alpha) for alpha in alphas])


def composed(law, count, cell):
    """dp-accounting's composition of a law, from its curve, mirrored below one."""
    steps = int(law.epsilon / cell) + 2
    above = curve(law, np.exp(cell * np.arange(1, steps + 1)))
    at_one = curve(law, [1.0])
    below = [1 - exp(-cell * i) + exp(-cell * i) * h for i, h in enumerate(above, 1)][::-1]
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        cell, -steps, steps, np.minimum.accumulate(np.concatenate([below, at_one, above]))
    )
    return pmf.self_compose(count)


def laplace(ratio, count):
    """dp-accounting's own Laplace mechanism, composed."""
    one = privacy_loss_distribution.from_laplace_mechanism(
        1 / ratio, value_discretization_interval=ratio / 200
    )
    return one.self_compose(count)


def covered(distribution, mu, reach):
    """Whether the δ of a distribution is below that of a μ-Gaussian mechanism, but for their rounding."""
    epsilons = np.linspace(0.0, reach, 40)
    deltas = distribution.get_delta_for_epsilon(epsilons)
    return all(d <= gaussian_delta(e, mu) * (1 + 1e-6) + 1e-12 for e, d in zip(epsilons, deltas, strict=True))


@pytest.mark.parametrize("whole", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("count", [2, 3, 10, 100])
def test_releases_of_one_number_cost_what_another_accountant_finds(whole, count):
    """No less by dp-accounting, and a part in 250 less would be too little."""
    ratio = whole / count
    mu = sqrt(cost_of_pure(on_a_line(ratio), mu_of_laplace(ratio, 1), count).mu_squared)
    distribution = laplace(ratio, count)
    assert covered(distribution, mu, whole)
    assert not covered(distribution, mu * (1 - 1 / 250), whole)
    assert mu < 0.91 * mu_of_laplace(ratio, 1) * sqrt(count)


@pytest.mark.few(4)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("rate", "count"), [(0.01, 1), (0.01, 30), (0.1, 10), (0.5, 3), (1.0, 4)])
def test_batches_cost_what_another_accountant_finds_for_their_pair(rate, count, scheme):
    each = 1.0 / count
    law = batch(each, rate, scheme)
    mu = sqrt(cost_of_pure(law, mu_of_pure(law.epsilon), count).mu_squared)
    distribution = composed(law, count, each / 150)
    assert covered(distribution, mu * (1 + 1e-3), 1.0)  # the other curve has a coarser grid
    assert not covered(distribution, mu * (1 - 1 / 80), 1.0)
    if rate < 0.6:
        assert mu < 0.76 * mu_of_pure(law.epsilon) * sqrt(count)


def test_what_is_charged_for_many_is_near_what_is_lost():
    """1.29 times what is lost before, and 1.70 times: one number, a hundred times and ten times."""
    for count, most, before in [(100, 1.03, 1.29), (30, 1.07, 1.33), (10, 1.38, 1.70)]:
        ratio, mu = 1 / count, mu_of_laplace(1 / count, 1)
        lost = laplace(ratio, count).get_epsilon_for_delta(1e-6)
        charged = epsilon_for(sqrt(cost_of_pure(on_a_line(ratio), mu, count).mu_squared), 1e-6)
        assert lost <= charged <= most * lost
        assert epsilon_for(mu * sqrt(count), 1e-6) == pytest.approx(before * lost, rel=0.01)


# The law of the loss, by formulas that core does not use


@pytest.mark.parametrize("size", [2, 3, 5, 16])
@pytest.mark.parametrize("ratio", [0.01, 1.0, 6.0])
def test_the_law_in_space_is_that_of_hyperboloids(size, ratio):
    """As the shift s grows, δ grows by what flows through |z| − |z − s| = ε, at s/2."""
    log_unit = size / 2 * np.log(2) + 0.5 * np.log(np.pi) + gammaln((size + 1) / 2)

    def density(x):  # of one coordinate
        return exp(-log_unit) * x ** (size / 2) * kv(size / 2, x)

    def grown(s, epsilon):
        return (1 - (epsilon / s) ** 2) ** ((size - 1) / 2) * density(s / 2)

    losses = ratio * np.array([0.0, 0.1, 0.5, 0.8])
    p, q = InSpace(ratio, size).tails(losses)
    for epsilon, found in zip(losses, p - np.exp(losses) * q, strict=True):
        expected = (
            exp(epsilon / 2) * quad(grown, epsilon, ratio, args=(epsilon,), epsrel=1e-11, epsabs=0.0)[0]
        )
        assert found == pytest.approx(expected, rel=1e-8)
    assert (p - np.exp(losses) * q) == pytest.approx(LaplaceLosses(ratio, size).deltas(losses), rel=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("far", [0.01, 1.0, 5.0])
def test_the_law_of_a_batch_is_that_of_its_densities(rate, far, scheme):
    law = OnALine(amplified(2 * far, rate, scheme), far, rate, scheme == "fixed")
    losses = law.epsilon * np.array([0.0, 0.2, 0.6, 0.9, 0.999])
    p, q = law.tails(losses)
    assert p - np.exp(losses) * q == pytest.approx(curve(law, np.exp(losses)), rel=1e-6, abs=1e-9 * rate)
    assert curve(law, [exp(law.epsilon * (1 + 1e-9))])[0] < 1e-12


# That the pair on a line dominates


def planes(rng, count):
    """Neighbours: what a record and its replacement add, of length 1 at most, in two dimensions."""
    for _ in range(count):
        lengths = rng.choice([1.0, rng.random()], 2)
        angles = rng.choice([0.0, np.pi, rng.random() * 2 * np.pi], 2)
        yield [r * np.array([np.cos(t), np.sin(t)]) for r, t in zip(lengths, angles, strict=True)]


def test_no_neighbours_in_the_plane_lose_more_over_poisson_batches_than_the_pair_on_a_line():
    """Quadrature over the plane, at its rounding of 10⁻⁴; half the scale on the line is too little."""
    x = np.linspace(-14, 14, 561)
    grid = np.stack(np.meshgrid(x, x), axis=-1)

    def noise(v, far):
        return np.exp(-np.linalg.norm(grid - far * v, axis=-1)) / (2 * np.pi)

    rng, weaker = np.random.default_rng(0), 0
    for v, w in planes(rng, 40):
        rate, far = rng.choice([0.05, 0.3, 1.0]), rng.choice([0.3, 1.0, 3.0])
        without = (1 - rate) * noise(0 * v, far)
        one, other = without + rate * noise(v, far), without + rate * noise(w, far)
        epsilon = amplified(2 * far, rate, "poisson")
        alphas = np.exp(epsilon * np.array([0.0, 0.3, 0.6]))
        bounds, too_low = (curve(OnALine(epsilon, f, rate), alphas) for f in (far, far / 2))
        for alpha, bound, low in zip(alphas, bounds, too_low, strict=True):
            for p, q in [(one, other), (other, one)]:
                found = np.maximum(p - alpha * q, 0.0).sum() * (x[1] - x[0]) ** 2
                assert found <= bound + 1e-4
                weaker += found > low + 1e-4
    assert weaker > 0


@pytest.mark.parametrize("size", [2, 3, 10, 55])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 8.0])
def test_in_any_dimension_less_is_lost_than_on_a_line(size, ratio):
    losses = ratio * np.linspace(0.0, 0.99, 30)
    assert (LaplaceLosses(ratio, size).deltas(losses) < -np.expm1((losses - ratio) / 2)).all()


# Bounds, blocks and rounding


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    far=st.floats(-100, 1.4).map(lambda e: 10.0**e),
    rate=st.floats(-12, 0).map(lambda e: 10.0**e),
    scheme=st.sampled_from(SCHEMES),
    count=st.integers(1, 10**9),
    less=st.floats(1.001, 1.5),
)
def test_it_is_never_more_than_one_by_one_and_less_noise_costs_more(far, rate, scheme, count, less):
    def cost(far):
        epsilon = nextafter(amplified(2 * far, rate, scheme), inf)
        mu = mu_of_pure(epsilon)
        return cost_of_pure(OnALine(epsilon, far, rate, scheme == "fixed"), mu, count), mu

    if count * mu_of_pure(amplified(3 * far, rate, scheme)) ** 2 > 1e300:
        return
    found, mu = cost(far)
    assert found.slack == 0.0
    assert 0.0 < found.mu_squared <= count * mu * mu * (1 + 1e-9)
    assert found.mu_squared <= cost(less * far)[0].mu_squared * (1 + 1e-8)


@pytest.mark.parametrize("size", [1, 3, 10])
def test_blocks_and_what_is_left_of_them_are_all_charged(size):
    """A release more never costs less, and one block after another costs as much as together, nearly."""
    ratio, mu = 0.01, mu_of_laplace(0.01, size)
    law = on_a_line(ratio) if size == 1 else InSpace(ratio, size)
    counts = [1, 2, 3, 200, 201, 511, 512, 513, 514, 1024, 1025, 5000]
    costs = [cost_of_pure(law, mu, count).mu_squared for count in counts]
    assert costs == sorted(costs)
    each = [c / n for c, n in zip(costs, counts, strict=True)]
    assert each[-1] == pytest.approx(each[4], rel=0.02)
    # The mean loss is at most that of the Gaussian mechanism, μ²/2, and all of μ² tends to it.
    if size == 1:
        assert 2 * (ratio - 1 + exp(-ratio)) <= each[-1] <= 1.001 * 2 * (ratio - 1 + exp(-ratio))
    assert each[-1] == pytest.approx(ratio**2 / size, rel=0.02)


def test_a_sum_that_is_asked_for_often_is_charged_so():
    release = noisy_sum("laplace", n=1000, size=1, clip=0.5, loss=0.01, count=100)
    mu = mu_of_laplace(release.epsilon, 1)
    assert release.cost == cost_of_pure(on_a_line(release.epsilon), mu, 100)
    assert release.cost.mu_squared < 0.65 * 100 * mu * mu
    wide = noisy_sum("laplace", n=1000, size=100, clip=0.5, loss=0.01, count=100)
    assert 100 * Fraction(mu_of_laplace(wide.epsilon, 100)) ** 2 <= Fraction(wide.cost.mu_squared)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_batch_is_charged_so(scheme):
    run = SubsampledRun(scheme, 0.01, 2.0, 50)
    release = subsampled_sum(run, statistic="gradient", n=10_000, size=3, clip=1.0, law="laplace")
    far = nextafter(release.sensitivity / release.scale, inf)
    law = OnALine(release.epsilon, far, 0.01, scheme == "fixed")
    assert release.cost == cost_of_pure(law, mu_of_pure(release.epsilon), 50)
    # Its total variation is what a record moves at all: no μ is below that of one release.
    assert release.cost.mu_squared > mu_of_laplace(-2 * log1p(-0.01 * (1 - exp(-far))), 1) ** 2


# Faults that these tests would see


def too_little(monkeypatch, **changed):
    for name, value in changed.items():
        monkeypatch.setattr(laplace_accounting, name, value)
    mu = sqrt(cost_of_pure(on_a_line(0.1), mu_of_laplace(0.1, 1), 10).mu_squared)
    return not covered(laplace(0.1, 10), mu, 1.0)


def test_faults_are_seen(monkeypatch):
    """A release that is not composed, and losses that are rounded down."""
    assert not too_little(monkeypatch)
    whole = laplace_accounting._composed
    assert too_little(
        monkeypatch, _composed=lambda law, cell, cells, n: whole(law, cell, cells, max(1, n - 1))
    )
    assert too_little(monkeypatch, _composed=lambda law, cell, cells, n: whole(law, 0.99 * cell, cells, n))


# What a question may ask


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [1e-9, 1e3, 1e6])
@pytest.mark.parametrize("options", [{}, {"batch_size": 20, "solver": "nag", "steps": 30}])
def test_an_epsilon_that_is_extreme_is_refused_before_the_charge_or_answered(options, epsilon, delta):
    """A classifier is charged, which has sums over all records and over batches, with both laws of noise."""
    facts = (("a", "b"), "y", ("0", "1"), 2.0, (0.0,) * 2, (1.0,) * 2)
    shape = LabelledMetadata(200, *facts)
    refused = (epsilon, delta) in [(1e-9, 0.0), (1e6, 1e-6) if options else None]
    with pytest.raises(ValueError, match=r"float64|too costly") if refused else nullcontext():
        plan = LOGISTIC_REGRESSION.plan(LogisticSpec(**options), shape, PrivacyTarget(epsilon, delta))
    if refused:
        return
    rows = shape.dummy(200, np.random.default_rng(0))
    gate = Gate(Records(rows, threads=1), plan.statistics, plan.releases)
    assert np.isfinite(LOGISTIC_REGRESSION.run(plan, gate).coefficients).all()
    assert np.isfinite(plan.cost.mu_squared)
    assert gate.remaining == 0

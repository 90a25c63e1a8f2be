"""Independent Laplace noise: its law, its cost by a second route, and the L1 bounds behind its scale."""

from fractions import Fraction
from math import exp, log, sqrt

import mpmath
import numpy as np
import pytest
from flint import arb
from scipy import stats

from privest.estimators.frechet_mean.column_means import ColumnSum
from privest.estimators.range_finding.column_ranges import ColumnCounts
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import l1_diameter
from privest.privacy.cross_check import second_opinion
from privest.privacy.mechanisms import noisy_sum
from privest.privacy.noise import Uniforms, independent_laplace_cells
from testing.accounting import pure_mu_squared
from testing.neighbours import CASES
from testing.noise import ScaledNoise

FINE = 2.0**-32


def test_its_law_is_laplace_in_every_coordinate() -> None:
    """Kolmogorov's distance of 100,000 draws is above .0062 once in 1,000 times; the seed is fixed."""
    drawn = ScaledNoise(seed=5).draw("independent-laplace", 0.7, 100_000, FINE) * FINE
    assert stats.kstest(drawn, stats.laplace(scale=0.7).cdf).statistic < 0.0062
    first, second = drawn[::2], drawn[1::2]
    assert abs(np.corrcoef(np.abs(first), np.abs(second))[0, 1]) < 0.02  # four standard errors


def test_cells_are_those_of_exact_logarithms() -> None:
    """Arb computes ±log u to 200 bits from the same words; the grid is so coarse that edges come up."""
    rng = np.random.default_rng(3)
    words = rng.integers(0, 2**64 - 1, 4_000, dtype=np.uint64, endpoint=True)
    taken = iter(words)

    def draw(size: int) -> np.ndarray:
        return np.array([next(taken) for _ in range(size)], dtype=np.uint64)

    uniforms = Uniforms(draw, 2_000)
    cells = independent_laplace_cells(1.0, uniforms, 2.0**-20)
    signs = np.sign(uniforms.signs)
    for place in range(0, 2_000, 7):
        m, n = uniforms.bits(place, 1)
        u = arb((2 * m + 1, -n - 1), (1, -n - 1))
        exact = -u.log() * float(signs[place]) * 2.0**20
        assert abs(exact - int(cells[place])) < 0.5 + 1e-6


def test_its_cost_is_the_l1_distance_over_its_scale() -> None:
    release = noisy_sum("independent-laplace", n=100, size=40, clip=1.0, loss=0.7, diameter=2.0)
    assert Fraction(release.sensitivity) / Fraction(release.scale) <= Fraction(0.7)
    assert release.sensitivity >= 2.0
    assert release.epsilon == pytest.approx(0.7, rel=1e-9)
    with mpmath.workdps(60):
        assert release.cost.mu_squared >= pure_mu_squared(
            Fraction(release.sensitivity) / Fraction(release.scale)
        )
    found = second_opinion([release], 0.0)
    assert found.epsilon is not None
    assert found.epsilon == pytest.approx(0.7, rel=1e-6)


def test_the_likelihood_ratio_of_neighbours_is_within_epsilon() -> None:
    """At random points, by the density itself."""
    release = noisy_sum("independent-laplace", n=1, size=5, clip=1.0, loss=0.9, diameter=2.0)
    rng = np.random.default_rng(1)
    shift = rng.laplace(size=5)
    shift *= 2.0 / np.abs(shift).sum()
    for _ in range(1_000):
        z = 3 * release.scale * rng.standard_normal(5)
        ratio = float(np.sum(np.abs(z - shift) - np.abs(z))) / release.scale
        assert exp(ratio) <= exp(0.9)
    far = np.sign(shift) * 100
    assert float(np.sum(np.abs(far) - np.abs(far - shift))) / release.scale == pytest.approx(0.9, rel=1e-6)


OWN = [case for case in CASES if hasattr(case.statistic, "l1_diameter")]


@pytest.mark.parametrize("case", OWN, ids=lambda case: type(case.statistic).__name__)
def test_no_two_records_are_further_apart_than_the_l1_diameter(case) -> None:
    """Random pairs seen from random points; the histograms and sums of columns come close to it."""
    rng, worst = np.random.default_rng(2), 0.0
    of_record, of_point = case.sizes
    bound = l1_diameter(case.statistic, case.clip)
    for _ in range(300):
        point = case.point(rng.standard_normal(of_point) * 10.0 ** rng.uniform(-1, 1))
        pair = rng.standard_normal((2, of_record)) * 10.0 ** rng.uniform(-1, 2, (2, 1))
        one, other = (case.statistic.clipped_sum(point, case.record(row), case.clip) for row in pair)
        worst = max(worst, float(np.abs(one - other).sum()))
    assert worst <= bound * (1 + 1e-9)
    if isinstance(case.statistic, ColumnCounts | ColumnSum):
        assert worst >= 0.7 * bound


@pytest.mark.parametrize("counts", ["ColumnCounts", "DistanceCounts", "DistanceShares", "ScoreHistogram"])
def test_histograms_have_one_laplace_variate_a_bin(counts: str) -> None:
    """Noise by the Euclidean length of a record would grow with the root of the number of bins."""
    found = [case.statistic for case in CASES if type(case.statistic).__name__ == counts]
    assert found
    for statistic in found:
        release = PrivacyBudget(10_000, True, 1.0).release(statistic, "counts", 1.0)
        if statistic.size > 3:
            assert release.noise == "independent-laplace"
        assert release.deviation <= sqrt(2) * l1_diameter(statistic, 1.0) / 10_000 * (1 + 1e-6)


def test_a_budget_takes_the_noise_that_is_smaller() -> None:
    budget = PrivacyBudget(10_000, True, 1.0)
    histogram = budget.release(ColumnCounts(1, 64), "counts", 1.0)
    assert histogram.noise == "independent-laplace"
    assert histogram.deviation == pytest.approx(sqrt(2) * 2 / 10_000, rel=1e-6)
    gradient = next(case.statistic for case in CASES if type(case.statistic).__name__ == "SquaredDistance")
    assert budget.release(gradient, "gradient", 1.0).noise == "laplace"
    assert log(20) > 1.96 * sqrt(2)  # why an interval of Laplace noise is wider than of normal noise

"""Histograms of large tables count a sample, which costs no privacy and no honesty."""

from dataclasses import replace

import numpy as np
import pytest

from privest.arrays import Array
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec, plan
from privest.estimators.frechet_mean.histogram import NODES, excess_bounds
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.mechanisms import NoisySum, SampledSum
from testing.ordinary_columns import Case, answers, number

LARGE = 2**20


def wide(values: Array, width: float) -> Case:
    return Case("", values[:, None], (number(0.0, width),))


@pytest.mark.parametrize("n", [LARGE, 10 * LARGE])
@pytest.mark.parametrize("count", [1, 10])
def test_histograms_of_large_tables_count_a_sample(n: int, count: int) -> None:
    case = Case("", np.zeros((2, count)), (number(0.0, 1.0),) * count)
    planned = plan(FrechetMeanSpec(), replace(case.metadata, n=n), PrivacyTarget(1.0, 1e-9, 0.0))
    sampled = [each for each in planned.releases if isinstance(each, SampledSum)]
    assert [each.statistic for each in sampled] == ["columns"] * 3 + ["spreads"]
    assert all(each.sample <= n / 8 for each in sampled)
    for run in (0, 1):
        sums = [r for r in planned.releases if isinstance(r, NoisySum) and getattr(r, "run", run) == run]
        assert sum((r.sensitivity / r.scale) ** 2 for r in sums) <= mu_for(1.0, 1e-9) ** 2


@pytest.mark.parametrize("n", [20_000, LARGE - 1])
def test_small_tables_are_counted_whole(n: int) -> None:
    case = Case("", np.zeros((2, 1)), (number(0.0, 1.0),))
    planned = plan(FrechetMeanSpec(), replace(case.metadata, n=n), PrivacyTarget(1.0, 1e-9, 0.0))
    assert not [each for each in planned.named("spreads") if isinstance(each, SampledSum)]


def test_the_bound_counts_the_error_of_sampling() -> None:
    shares = np.exp(-NODES)
    shares /= shares.sum()
    clips = NODES[4:12]
    whole, sampled = (excess_bounds(NODES, shares, 1e-6, clips, sample=m) for m in (np.inf, 10_000.0))
    assert whole is not None
    assert sampled is not None
    assert (sampled > whole).all()


@pytest.mark.few(1)
@pytest.mark.parametrize("rare", [0.0, 0.01])
def test_intervals_of_large_tables_hold(rare: float) -> None:
    """The group far off has a hundredth of the records. Of 20 intervals at .95 under 17 hold once in 60."""
    rng = np.random.default_rng(6)
    values = np.where(rng.random(LARGE) < rare, 5_000.0, rng.normal(50, 10, LARGE))
    found = answers(wide(values, 10_000.0), 20, seed=13)
    assert found.coverage >= 0.85
    unit = wide(values, 10_000.0).textbook
    assert found.error(unit) <= (1.4 if rare else 0.2)

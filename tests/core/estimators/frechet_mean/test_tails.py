"""Tails that noise hides: what is told of them is of the order of what there is."""

import numpy as np
import pytest

from privest.arrays import Array
from privest.estimators.frechet_mean.distances import NODES, DistanceCounts
from privest.estimators.frechet_mean.tails import Tail
from privest.manifolds import Euclidean

N, NOISE, REACH, CLIP = 8_000, 0.0045, 64.0, 12.0
COUNTS = DistanceCounts(Euclidean(1))


def read(values: Array, seed: int) -> Tail:
    counts = COUNTS.clipped_sum((np.zeros(1), REACH), values[:, None], 1.0) / len(values)
    return Tail.read(counts + NOISE * np.random.default_rng(seed).standard_normal(NODES), NOISE, REACH)


def beyond(values: Array) -> float:
    return float(np.mean(np.maximum(values - CLIP, 0.0)))


@pytest.mark.parametrize("index", [1.75, 2.5])
def test_a_power_law_under_ties_is_told_of(index: float) -> None:
    """Two thirds of the values are one and the same, as filled gaps are. Seeds of the noise are fixed.

    Of 1,000 other seeds one in fifty has it below 0.4 times what there is, and none above both ten times that
    and twice what noise allows: more than four of twenty are so in less than one of 10,000 sets.
    """
    rng = np.random.default_rng(3)
    values = np.where(rng.random(N) < 0.67, 0.5, rng.uniform(size=N) ** (-1 / index))
    told, true = np.array([read(values, seed).excess(CLIP) for seed in range(20)]), beyond(values)
    assert np.sum((told < 0.4 * true) | (told > max(10 * true, 2 * NOISE * CLIP))) <= 4, told / true


def test_values_that_end_are_not_told_to_go_on() -> None:
    """A column within 10: what is told is below the noise on a sum of clipped values, twice the clip each."""
    values = np.random.default_rng(4).uniform(0.0, 10.0, N)
    told = [read(values, seed).excess(CLIP) for seed in range(20)]
    assert max(told) < NOISE * CLIP


def test_where_no_records_stand_out_nothing_is_told() -> None:
    nothing = Tail.read(np.zeros(NODES), NOISE, REACH)
    assert nothing.excess(CLIP) == 0.0
    everything = Tail.read(np.eye(NODES)[0], NOISE, REACH)
    assert np.isfinite(everything.excess(1e-3))

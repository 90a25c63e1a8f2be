"""Where the values of columns are, by noisy histograms: of columns of any kind, and of hostile ones."""

from math import inf

import numpy as np
import pytest

from privest.data.records import Records
from privest.estimators.range_finding.column_ranges import ColumnCounts, ColumnRanges
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

N = 10_000


def columns():
    rng = np.random.default_rng(1)
    return {
        "normal": rng.normal(size=N),
        "mass": rng.normal(4200, 800, N),
        "year": rng.integers(2007, 2010, N) * 1.0,
        "long tail": rng.lognormal(10, 1, N),
        "two places": np.where(rng.random(N) < 0.5, 0, 100) + rng.normal(size=N),
        "tiny": rng.normal(3e-6, 1e-6, N),
        "negative": -rng.lognormal(2, 0.5, N),
        "huge": rng.normal(1e30, 1e29, N),
        "counts": rng.poisson(2, N) * 1.0,
    }


def found(rows, low, high, epsilon, seed, *, delta=1e-6, most=0.15):
    ranges = ColumnRanges(np.full(rows.shape[1], low), np.full(rows.shape[1], high))
    budget = PrivacyBudget.of(PrivacyTarget(epsilon, delta), len(rows))
    releases = ranges.releases(budget, most)
    gate = Gate(Records(rows, threads=1), ranges.statistics, releases, ScaledNoise(seed=[26, seed]))
    told = ranges.find(gate, releases)
    assert gate.remaining == 0
    assert np.isfinite(told.center).all()
    assert (np.isfinite(told.scale) & (told.scale > 0)).all()
    return told


@pytest.mark.parametrize(("low", "high"), [(-inf, inf), (-inf, 1e40), (0.0, inf)])
def test_columns_without_bounds_are_found_whatever_their_size(low, high):
    """At ε = 1. Scales of columns far from 0 are too large by up to a node of the last interval."""
    own = {name: values for name, values in columns().items() if low < 0 or values.min() >= 0}
    rows = np.column_stack(list(own.values()))
    for seed in range(5):
        told = found(rows, low, high, 1.0, seed)
        ratio = told.scale / rows.std(axis=0)
        off = np.abs(told.center - np.median(rows, axis=0)) / rows.std(axis=0)
        assert told.seen.all()
        assert ((ratio > 0.2) & (ratio < 5)).all(), dict(zip(own, ratio, strict=True))
        assert (off < 1.2).all(), dict(zip(own, off, strict=True))


@pytest.mark.parametrize("wide", [3.0, 30.0, 3_000.0])
def test_bounds_that_are_too_wide_are_narrowed(wide):
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((N, 10)) + rng.uniform(-wide, wide, 10) / 2
    for seed in range(5):
        told = found(rows, -wide, wide, 0.3, seed)
        assert 0.5 < np.median(told.scale) < 2
        assert told.scale.min() > 0.3
        assert told.scale.max() < min(10, wide)
        assert (np.abs(told.center - rows.mean(axis=0)) < 10).all()


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_hostile_columns_have_finite_places_and_scales(epsilon, delta):
    one_far = np.zeros(N)
    one_far[0] = 1e300
    infinite = np.full(N, np.nan)
    infinite[:2] = inf, -inf
    rows = np.column_stack(
        [
            np.zeros(N),
            np.full(N, 5.0),
            np.full(N, 1e300),
            np.full(N, 5e-324),
            np.full(N, np.nan),
            one_far,
            infinite,
            np.where(np.arange(N) % 2, -1e300, 1e300),
            np.full(N, 1e16) + np.arange(N) % 2,
        ]
    )
    for count in (1, 10, N):
        for low, high in ((-inf, inf), (-1.0, 1.0), (0.0, inf)):
            found(rows[:count], low, high, epsilon, 3, delta=delta)


def test_a_constant_column_is_found_to_be_constant():
    told = found(np.full((N, 1), 5.0), -inf, inf, 1.0, 4)
    assert abs(told.center[0] - 5.0) < 1e-2
    assert told.scale[0] < 1e-2


def test_looks_cost_no_more_than_their_share_and_no_more_than_is_enough():
    ranges = ColumnRanges(np.full(3, -inf), np.full(3, inf))

    def deviations(n):
        budget = PrivacyBudget.of(PrivacyTarget(1.0, 1e-6), n)
        return [each.deviation * 3**0.5 for each in ranges.releases(budget, 0.15)]

    assert min(deviations(10**7)) > 0.0099
    assert max(deviations(10**7)) < 0.0201
    assert min(deviations(300)) > 0.1


def test_a_missing_value_counts_as_missing_and_nowhere_else():
    rows = np.array([[0.5, np.nan], [np.nan, np.nan], [9.0, -9.0]])
    nodes = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
    counts = ColumnCounts(2, 3)
    shares = counts.shares(counts.clipped_sum(nodes, rows, 1.0))
    assert np.allclose(shares, [[0.5, 0.5, 1, 1], [1, 0, 0, 2]])


@pytest.mark.parametrize(
    "nodes",
    [
        [1e17] * 5,
        [0.0, 0.0, 0.0, 5e-324, 5e-324],
        [3.0, 2.0, 1.0, 0.0, -1.0],
        [-np.inf, -np.inf, 0.0, np.inf, np.inf],
        [np.nan] * 5,
        [0.0, np.nan, 1.0, -1e308, 1e308],
    ],
    ids=str,
)
def test_between_nodes_that_do_not_rise_a_record_counts_once_all_the_same(nodes):
    """0/0 between equal nodes was once NaN, which as an integer of the grid is −2⁶³."""
    counts = ColumnCounts(1, 5)
    for value in (0.0, 1e17, -3.0, 5e-324, np.inf, -np.inf):
        found = counts.clipped_sum(np.array([nodes]), np.array([[value]]), 1.0)
        assert (found >= 0).all()
        assert found.sum() == pytest.approx(1.0)

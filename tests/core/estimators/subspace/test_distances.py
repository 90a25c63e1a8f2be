"""Histograms of distances from a subspace: what a row adds, and when they show two populations."""

import numpy as np
import pytest

from privest.estimators.subspace.distances import (
    BINS,
    DistanceHistogram,
    shows_two_populations,
)
from privest.estimators.subspace.second_moment import Frame

BASIS = np.eye(4)[:, :2]


def test_each_row_counts_in_the_bin_of_its_distance_whatever_its_length():
    angles = (np.arange(BINS) + 0.5) / BINS
    rows = np.column_stack([np.sqrt(1 - angles**2), 0 * angles, angles, 0 * angles])
    rows *= np.geomspace(1e-3, 1e3, BINS)[:, None]
    statistic = DistanceHistogram()
    np.testing.assert_array_equal(statistic.clipped_sum(Frame(BASIS), rows, 1.0), np.ones(BINS))
    np.testing.assert_array_equal(statistic.clipped_sum(Frame(BASIS), rows, 0.5), np.full(BINS, 0.5))


def test_rows_without_a_direction_are_near_and_the_furthest_is_in_the_last_bin():
    rows = np.array([[0.0] * 4, [np.nan] * 4, [np.inf, 1, 1, 1], [0, 0, 0, 7.0]])
    found = DistanceHistogram().clipped_sum(Frame(BASIS), rows, 1.0)
    assert found[0] == 3
    assert found[-1] == 1
    assert found.sum() == len(rows)


def test_the_centre_is_taken_off():
    rows = np.array([[1.0, 2.0, 3.0, 4.0]])
    center = np.array([0.0, 0.0, 3.0, 4.0])
    assert DistanceHistogram().clipped_sum(Frame(BASIS, center), rows, 1.0)[0] == 1


TWO = {
    "a haystack": [0.3, 0, 0, 0, 0, 0, 0, 0, 0.01, 0.69],
    "noisy inliers": [0, 0.33, 0.17, 0, 0, 0, 0, 0, 0.01, 0.49],
    "a crowd in the subspace": [0.37, 0.07, 0.07, 0.07, 0.07, 0.07, 0.07, 0.07, 0.07, 0.07],
}
ONE = {
    "nothing beyond the near rows": [0.8, 0.2, 0, 0, 0, 0, 0, 0, 0, 0],
    "a smooth fall": [0.0, 0.32, 0.24, 0.13, 0.1, 0.08, 0.05, 0.04, 0.03, 0.02],
    "a heavy tail": [0.01, 0.45, 0.26, 0.14, 0.07, 0.03, 0.02, 0.01, 0.01, 0.0],
    "a shallow valley": [0, 0.03, 0.11, 0.06, 0.07, 0.07, 0.09, 0.16, 0.18, 0.23],
    "all far": [0, 0, 0, 0, 0, 0.01, 0.08, 0.19, 0.3, 0.42],
    "few near": [0.08, 0, 0, 0, 0, 0, 0, 0, 0.1, 0.82],
    "nothing at all": [0.0] * BINS,
}


@pytest.mark.parametrize("shares", TWO.values(), ids=TWO)
def test_two_populations_are_seen_where_the_noise_is_little(shares):
    rng = np.random.default_rng(0)
    noisy = np.array(shares) + 0.005 * rng.standard_normal((300, BINS))
    assert all(shows_two_populations(each, 0.005) for each in noisy)


@pytest.mark.parametrize("shares", ONE.values(), ids=ONE)
@pytest.mark.parametrize("deviation", [1e-6, 0.005, 0.02, 0.05, 0.2])
def test_one_population_is_hardly_ever_taken_for_two(shares, deviation):
    """Fewer than 10 false alarms in 1,000: where 1 in 300 is due, chance has more once in 300."""
    rng = np.random.default_rng(1)
    noisy = np.array(shares) + deviation * rng.standard_normal((1000, BINS))
    assert sum(shows_two_populations(each, deviation) for each in noisy) < 10


def test_where_the_noise_hides_the_rows_the_answer_is_no():
    rng = np.random.default_rng(2)
    noisy = np.array(TWO["a haystack"]) + 0.3 * rng.standard_normal((1000, BINS))
    assert sum(shows_two_populations(each, 0.3) for each in noisy) < 20

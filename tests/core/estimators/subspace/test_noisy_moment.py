"""What a noisy moment tells of a subspace: the error of a start by the law of the noise, and rivals."""

from math import pi, sqrt

import numpy as np
import pytest

from privest.estimators.subspace.descent import principal
from privest.estimators.subspace.noisy_moment import NoisyMoment, Start
from privest.manifolds.stiefel_grassmann import Grassmann

VALUES = np.array([0.5, 0.2, 0.12, 0.08, 0.06, 0.04])
RANK = 2


def turned(values, seed):
    """The basis of a random frame, and the symmetric matrix with these eigenvalues along it."""
    frame = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    return frame[:, :RANK], frame * values @ frame.T


def test_a_start_s_error_is_as_large_as_noise_makes_it():
    """The mean square of 400 draws is known to 15 %, and first order holds to 10 % more."""
    exact, matrix = turned(VALUES, 1)
    deviation, rng = 0.004, np.random.default_rng(2)
    squares = []
    for _ in range(400):
        noise = rng.standard_normal(matrix.shape) * deviation / 2
        start = principal(matrix + noise + noise.T, RANK)
        squares.append(float(Grassmann(6, RANK).dist(exact, start)) ** 2)
    way = NoisyMoment(matrix, deviation).start_error(Start(exact))
    assert np.sum(way**2) == pytest.approx(np.mean(squares), rel=0.3)
    assert np.linalg.norm(exact.T @ way) < 1e-12


def test_it_is_drawn_where_gaps_are_small():
    exact, matrix = turned(np.array([0.5, 0.2, 0.19, 0.05, 0.04, 0.02]), 3)
    way = NoisyMoment(matrix, 0.002).start_error(Start(exact))
    at = NoisyMoment(matrix, 0.002).directions(exact)
    coordinates = at.coordinates(way)
    np.testing.assert_allclose(at.tangent(coordinates), way, atol=1e-14)
    assert abs(coordinates[-1, 0]) > 0.9 * np.linalg.norm(way)


def test_without_a_gap_it_is_anywhere():
    way = NoisyMoment(np.eye(6), 1e-3).start_error(Start(np.eye(6)[:, :RANK]))
    assert np.linalg.norm(way) > 0.8 * sqrt(RANK) * pi / 2


def test_it_tells_a_subspace_with_a_gap():
    moment = NoisyMoment(np.diag([0.5, 0.2, 0.2, 0.05, 0.03, 0.02]), 1e-3)
    assert [moment.tells([rank]) for rank in (1, 2, 3)] == [True, False, True]
    assert moment.tells([2, 3])
    assert not moment.tells([2, 6])


def test_a_selection_turns_it_towards_what_it_left_out():
    exact, matrix = turned(VALUES, 4)
    moment = NoisyMoment(matrix, 1e-6)
    coordinates = moment.directions(exact).coordinates(moment.start_error(Start(exact, (0.2, 0.1))))
    np.testing.assert_allclose(np.abs(coordinates[-2:]), [[0.2, 0.2], [0.1, 0.1]])
    assert np.abs(coordinates[:-2]).max() < 1e-3


def test_a_direction_outside_that_has_as_much_variance_is_a_rival():
    near, far = (np.diag([0.5, own, 0.2, 0.05, 0.03, 0.02]) for own in (0.22, 0.4))
    basis = np.eye(6)[:, :RANK]
    assert "20% of their variance" in NoisyMoment(near, 1e-6).rivals(basis)[0]
    assert NoisyMoment(far, 1e-6).rivals(basis) == ()
    assert NoisyMoment(near, 0.1).rivals(basis) == ()

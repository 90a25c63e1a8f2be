"""The loss of the leading eigenvector: its gradient, its bound, and where it leads."""

import numpy as np
import pytest

from privest import manifolds
from testing.leading_eigenvector import LeadingEigenvector

DIMS = [2, 3, 20]


def value(point, rows):
    return -((rows @ point) ** 2).sum()


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("n", [1, 2, 50])
def test_the_sum_is_minus_the_gradient_of_the_loss(dim, n):
    """Compared with central differences along geodesics, for rows of any length, none clipped."""
    rng = np.random.default_rng(dim)
    space = manifolds.get("sphere", dim=dim)
    point, rows = space.random_point(rng), rng.standard_normal((n, dim))
    found = LeadingEigenvector(dim).clipped_sum(point, rows, 1e6)
    assert found.shape == (dim,)
    assert abs(found @ point) < 1e-12 * n * dim
    for _ in range(5):
        v = space.project_tangent(point, rng.standard_normal(dim))
        h = 1e-5 / np.linalg.norm(v)
        slope = (value(space.exp(point, h * v), rows) - value(space.exp(point, -h * v), rows)) / (2 * h)
        assert found @ v == pytest.approx(-slope, rel=1e-6, abs=1e-6 * n)


@pytest.mark.parametrize("dim", DIMS)
def test_the_gradient_of_a_unit_row_is_as_long_as_the_sine_of_twice_its_angle(dim):
    rng = np.random.default_rng(dim)
    space = manifolds.get("sphere", dim=dim)
    point = space.random_point(rng)
    side = space.project_tangent(point, rng.standard_normal(dim))
    side /= np.linalg.norm(side)
    for angle in np.linspace(0, np.pi, 25):
        row = np.cos(angle) * point + np.sin(angle) * side
        pull = LeadingEigenvector(dim).clipped_sum(point, row[None], 1.0)
        np.testing.assert_allclose(pull, np.sin(2 * angle) * side, atol=1e-14)


def test_its_zeros_are_the_eigenvectors():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 6)) * [3, 2, 1, 1, 1, 1]
    for vector in np.linalg.eigh(rows.T @ rows)[1].T:
        assert np.linalg.norm(LeadingEigenvector(6).clipped_sum(vector, rows, 1e6)) < 1e-9

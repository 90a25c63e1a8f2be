"""Changes of gradients against whole matrices, and the bound by which loops of them are planned."""

from functools import partial

import numpy as np
import pytest

from privest.estimators.subspace.losses import (
    Absolute,
    Bounded,
    Redescending,
    Squared,
    SubspaceDistance,
    SubspaceQuery,
)
from privest.manifolds.stiefel_grassmann import Grassmann
from privest_papers.subspace_rsvrg import PCA_HESSIAN, SubspaceDistanceChange

SHAPES = [(2, 1), (3, 1), (5, 2), (6, 5), (9, 4)]
each_shape = pytest.mark.parametrize(("dim", "rank"), SHAPES)
LOSSES = [Absolute(), Squared(), *map(Bounded, (0.05, 0.2, 3.0)), *map(Redescending, (0.1, 0.5, 3.0))]


@each_shape
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_change_is_the_difference_of_two_gradients_where_one_of_them_stands(dim, rank, loss):
    """Formed here as whole matrices: G(V) − (I − VVᵀ)G(V₀), each clipped by its own Frobenius norm."""
    rng = np.random.default_rng(dim + rank)
    center, rows = rng.standard_normal(dim), rng.standard_normal((9, dim))
    anchor = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    at = np.linalg.qr(anchor + 0.3 * rng.standard_normal((dim, rank)))[0]
    gradient = partial(SubspaceDistance(dim, rank).clipped_sum, rows=rows, clip=1e6)
    here, there = (SubspaceQuery(basis, loss, center) for basis in (at, anchor))
    change = SubspaceDistanceChange(dim, rank).clipped_sum
    found = change((here, there), rows, 1e6)
    tangent = np.eye(dim) - at @ at.T
    difference = gradient(here) - (tangent @ gradient(there).reshape(dim, rank)).ravel()
    np.testing.assert_allclose(found, difference, atol=1e-12)
    each = np.stack([change((here, there), row[None], 1e6) for row in rows])
    length = np.linalg.norm(each, axis=1)
    clip = float(np.median(length))
    shortened = (each * (clip / np.maximum(length, clip))[:, None]).sum(axis=0)
    np.testing.assert_allclose(change((here, there), rows, clip), shortened, atol=1e-12)
    np.testing.assert_allclose(change((here, here), rows, 1.0), 0.0, atol=1e-12)


@pytest.mark.parametrize(("dim", "rank"), [(2, 1), (5, 2), (20, 3)])
def test_gradients_of_squared_distances_change_by_at_most_twice_the_way(dim, rank):
    """The bound on the Hessian that loops are planned by, `PCA_HESSIAN`, and it is reached."""
    rng, space, most = np.random.default_rng(rank), Grassmann(dim, rank), 0.0
    basis = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    for _ in range(200):
        way = space.project_tangent(basis, rng.standard_normal((dim, rank)))
        if rng.random() < 0.5:  # towards one row, by which the bound is reached
            u, _, vt = np.linalg.svd(way, full_matrices=False)
            way = np.outer(u[:, 0], vt[0])
        way *= 1e-3 / np.linalg.norm(way)
        rows = np.concatenate([rng.standard_normal((5, dim)), basis.T, np.linalg.svd(way)[0][:, :1].T])
        near = SubspaceQuery(space.exp(basis, way), Squared())
        for row in rows:
            moved = SubspaceDistanceChange(dim, rank).clipped_sum(
                (near, SubspaceQuery(basis, Squared())), row[None], 1.0
            )
            most = max(most, float(np.linalg.norm(moved)) / 1e-3)
    assert 0.99 * PCA_HESSIAN < most < PCA_HESSIAN * (1 + 1e-3)

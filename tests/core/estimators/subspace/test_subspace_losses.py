"""Losses of robust PCA against finite differences."""

import numpy as np
import pytest
from scipy.integrate import quad

from privest.arrays import SymmetricCoordinates
from privest.estimators.subspace.candidates import (
    CandidateGradients,
    Candidates,
    CandidateScores,
    select_candidate,
)
from privest.estimators.subspace.descent import geodesic_descent
from privest.estimators.subspace.losses import (
    Absolute,
    Bounded,
    Redescending,
    Squared,
    SubspaceDistance,
    SubspaceQuery,
)
from privest.estimators.subspace.second_moment import Frame, SecondMoment
from privest.estimators.subspace.sketch import Sketch
from privest.manifolds.stiefel_grassmann import Grassmann
from testing.leading_eigenvector import LeadingEigenvector

SHAPES = [(2, 1), (3, 1), (5, 2), (6, 5), (9, 4)]
each_shape = pytest.mark.parametrize(("dim", "rank"), SHAPES)


def on_the_sphere(rows, center=0.0):
    rows = rows - center
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def distances(basis, rows, center=0.0):
    x = on_the_sphere(rows, center)
    return np.linalg.norm(x - x @ basis @ basis.T, axis=1)


def gradient_bound(loss):
    """sup of ρ'(s)√(1 − s²), by a fine grid: what losses divide by."""
    s = np.linspace(0, 1, 200_001)[1:]
    return float((loss(s) * np.sqrt(1 - s * s)).max())


def bounded(c):
    scale = gradient_bound(lambda s: 2 * c**2 * s / (c**2 + s**2) ** 2)
    return lambda d: d**2 / (c**2 + d**2) / scale


def redescending(c):
    return np.vectorize(lambda d: quad(lambda t: 1 / (1 + (t / c) ** 4), 0, d, epsabs=1e-13)[0])


LOSSES = [
    (Absolute(), lambda d: d),
    (Squared(), lambda d: d**2),
    *((Bounded(c), bounded(c)) for c in (0.05, 0.2, 3.0)),
    *((Redescending(c), redescending(c)) for c in (0.1, 0.5, 3.0)),
]


@each_shape
@pytest.mark.parametrize(("loss", "value"), LOSSES, ids=lambda x: repr(x) if hasattr(x, "weight") else "")
@pytest.mark.parametrize("centred", [False, True])
def test_the_sum_is_minus_the_gradient_of_the_loss_along_geodesics(dim, rank, loss, value, centred):
    """The sign is the one that (2.1) of Maunu et al. 2022 lacks: a step along the sum goes down."""
    rng = np.random.default_rng(dim)
    space = Grassmann(dim, rank)
    basis, rows = space.random_point(rng), rng.standard_normal((12, dim))
    center = rng.standard_normal(dim) if centred else None
    found = SubspaceDistance(dim, rank).clipped_sum(SubspaceQuery(basis, loss, center), rows, 1.0)
    taken = found.reshape(dim, rank)
    np.testing.assert_allclose(basis.T @ taken, 0.0, atol=1e-12)
    for _ in range(3):
        v = space.project_tangent(basis, rng.standard_normal((dim, rank)))
        h = 1e-5 / np.linalg.norm(v)
        ahead, behind = (
            value(distances(space.exp(basis, t * v), rows, center if centred else 0.0)).sum() for t in (h, -h)
        )
        assert float((taken * v).sum()) == pytest.approx(-(ahead - behind) / (2 * h), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("loss", "value"), LOSSES, ids=lambda x: repr(x) if hasattr(x, "weight") else "")
def test_no_row_s_gradient_is_longer_than_one_and_some_is_as_long(loss, value):
    """A clip of 1 therefore changes no loss, and wastes nothing."""
    s = np.geomspace(1e-9, 1, 100_001)
    pull = loss.weight(s) * s * np.sqrt(1 - s**2)
    assert 0.999 < pull.max() <= 1 + 1e-9


@pytest.mark.parametrize("dim", [2, 3, 20])
def test_squared_distance_of_rank_one_is_the_leading_eigenvector(dim):
    rng = np.random.default_rng(dim)
    rows, v = on_the_sphere(rng.standard_normal((50, dim))), on_the_sphere(rng.standard_normal((1, dim)))[0]
    ours = SubspaceDistance(dim, 1).clipped_sum(SubspaceQuery(v[:, None], Squared()), rows, 1.0)
    np.testing.assert_allclose(ours, LeadingEigenvector(dim).clipped_sum(v, rows, 1.0), atol=1e-13)


@each_shape
def test_rows_in_the_subspace_zero_rows_and_the_centre_pull_by_nothing(dim, rank):
    rng = np.random.default_rng(dim)
    basis, center = np.linalg.qr(rng.standard_normal((dim, rank)))[0], rng.standard_normal(dim)
    still = np.concatenate([np.zeros((2, dim)), [np.eye(rank)[0] @ basis.T]])
    for loss, _ in LOSSES:
        found = SubspaceDistance(dim, rank).clipped_sum(SubspaceQuery(basis, loss), still, 1.0)
        # The last row is off by its rounding alone, of which the absolute loss makes 1e-4 at most.
        assert np.linalg.norm(found) < 2e-3
        assert (
            not SubspaceDistance(dim, rank)
            .clipped_sum(SubspaceQuery(basis, loss, center), center[None], 1.0)
            .any()
        )


@each_shape
def test_moments_and_sketches_are_what_they_are_called(dim, rank):
    rng = np.random.default_rng(dim)
    rows, center = rng.standard_normal((30, dim)), rng.standard_normal(dim)
    x = on_the_sphere(rows, center)
    basis = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    whole = SymmetricCoordinates(dim).matrix(SecondMoment(dim).clipped_sum(Frame(None, center), rows, 1.0))
    np.testing.assert_allclose(whole, x.T @ x, atol=1e-12)
    seen = SecondMoment(rank).clipped_sum(Frame(basis, center), rows, 1.0)
    np.testing.assert_allclose(SymmetricCoordinates(rank).matrix(seen), basis.T @ x.T @ x @ basis, atol=1e-12)
    sketched = Sketch(dim, rank).clipped_sum(Frame(basis, center), rows, 1.0).reshape(dim, rank)
    np.testing.assert_allclose(sketched, x.T @ x @ basis, atol=1e-12)


@each_shape
def test_symmetric_coordinates_are_an_isometry(dim, rank):
    a = np.random.default_rng(dim).standard_normal((2, dim, dim))
    a = a + np.swapaxes(a, 1, 2)
    symmetric = SymmetricCoordinates(dim)
    c = symmetric.of(a)
    np.testing.assert_allclose(c[0] @ c[1], np.trace(a[0] @ a[1]), rtol=1e-12)
    np.testing.assert_allclose(symmetric.matrix(c), a, rtol=1e-15)


@each_shape
@pytest.mark.parametrize("scale", [0.15, 0.5])
def test_refinement_goes_down_on_what_the_scores_value(dim, rank, scale):
    rng = np.random.default_rng(dim)
    frame = np.linalg.qr(rng.standard_normal((dim, rank + 1)))[0]
    normals = on_the_sphere(rng.standard_normal((rank + 1, rank + 1)))
    rows, center = rng.standard_normal((12, dim)), rng.standard_normal(dim)
    at = Candidates(frame, normals, scale, center)
    count = rank + 1
    found = CandidateGradients(count, rank).clipped_sum(at, rows, 100.0).reshape(count, count)
    np.testing.assert_allclose(np.vecdot(found, normals), 0.0, atol=1e-12)
    steep = gradient_bound(lambda s: 2 * scale**2 * s / (scale**2 + s**2) ** 2)

    def values(tilted):
        moved = Candidates(frame, on_the_sphere(tilted), scale, center)
        return CandidateScores(count).clipped_sum(moved, rows, 100.0)

    by_hand = [
        (d**2 / (scale**2 + d**2)).sum() for d in (distances(at.basis(k), rows, center) for k in range(count))
    ]
    np.testing.assert_allclose(values(normals), by_hand, rtol=1e-9)
    v = rng.standard_normal(normals.shape)
    slope = (values(normals + 1e-6 * v) - values(normals - 1e-6 * v)) / 2e-6
    np.testing.assert_allclose(np.vecdot(found, v), -slope / steep, rtol=1e-5, atol=1e-6)


@each_shape
def test_a_candidate_is_the_subspace_normal_to_its_vector(dim, rank):
    rng = np.random.default_rng(dim)
    frame = np.linalg.qr(rng.standard_normal((dim, rank + 1)))[0]
    normals = np.concatenate([np.eye(rank + 1), on_the_sphere(rng.standard_normal((3, rank + 1)))])
    at = Candidates(frame, normals, 0.2)
    for k, normal in enumerate(normals):
        basis = at.basis(k)
        np.testing.assert_allclose(basis.T @ basis, np.eye(rank), atol=1e-14)
        np.testing.assert_allclose(basis.T @ (frame @ normal), 0.0, atol=1e-14)
        np.testing.assert_allclose(frame @ (frame.T @ basis), basis, atol=1e-14)


@pytest.mark.parametrize(("deviation", "open_by"), [(0.001, (0.0, 0.2)), (1.0, (1.0, 1.6))])
def test_the_selected_candidate_leaves_out_the_crowded_direction_that_is_no_part_of_the_plane(
    deviation, open_by
):
    """Exact answers: a crowd of 40 % in one direction, that squared and absolute distances keep."""
    rng, n = np.random.default_rng(1), 4000
    plane, crowd = rng.standard_normal((n * 6 // 10, 2)), np.full((n * 4 // 10, 1), 1.0)
    rows = np.zeros((n, 5))
    rows[: len(plane), :2], rows[len(plane) :, 2:3] = plane, crowd
    frame = np.linalg.qr(np.eye(5)[:, [2, 0, 1]] @ np.linalg.qr(rng.standard_normal((3, 3)))[0])[0]
    found, doubt = select_candidate(
        frame,
        center=None,
        scales=np.geomspace(0.5, 0.15, 12),
        steps=np.linspace(1.0, 0.2, 12),
        refine=lambda c: (CandidateGradients(3, 2).clipped_sum(c, rows, 9.0) / n).reshape(3, 3),
        scores=lambda c: CandidateScores(6).clipped_sum(c, rows, 9.0) / n,
        deviation=deviation,
    )
    assert np.abs(found[2]).max() < 0.1
    assert open_by[0] <= doubt <= open_by[1]  # with much noise others may be as good


def test_exact_descents_find_exact_subspaces():
    """Half of the rows in a plane, the others anywhere: without noise every solver ends in it."""
    rng, dim, rank, n = np.random.default_rng(0), 6, 2, 4000
    truth = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    rows = np.concatenate([rng.standard_normal((n // 2, rank)) @ truth.T, rng.standard_normal((n // 2, dim))])
    start = np.linalg.qr(truth + 0.2 * rng.standard_normal((dim, rank)))[0]
    steps = 0.5 * 0.9 ** np.arange(80)
    for loss in (Absolute(), Redescending(0.5)):
        descent = geodesic_descent(
            start,
            steps=steps,
            gradient=lambda at, loss=loss: (
                SubspaceDistance(dim, rank).clipped_sum(SubspaceQuery(at, loss), rows, 1.0) / n
            ),
        )
        assert Grassmann(dim, rank).dist(descent, truth) < 1e-3
        assert Grassmann(dim, rank).dist(start, truth) > 0.1

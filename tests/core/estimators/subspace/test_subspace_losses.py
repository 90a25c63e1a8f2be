"""Losses of robust PCA against finite differences, REAPER's projections against their definitions."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.optimize import minimize

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
    SubspaceDistanceChange,
    SubspaceQuery,
)
from privest.estimators.subspace.reaper import capped, capped_entropic, reaper
from privest.estimators.subspace.reaper_losses import Reaper, Relaxation
from privest.estimators.subspace.schedule import PCA_HESSIAN
from privest.estimators.subspace.second_moment import Frame, SecondMoment
from privest.estimators.subspace.sketch import Sketch
from privest.manifolds.stiefel_grassmann_oblique import Grassmann
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
@pytest.mark.parametrize(("loss", "value"), LOSSES, ids=lambda x: repr(x) if hasattr(x, "weight") else "")
def test_a_change_is_the_difference_of_two_gradients_where_one_of_them_stands(dim, rank, loss, value):
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
    p = basis @ basis.T
    assert np.linalg.norm(Reaper(dim).clipped_sum(Relaxation(p), still, 1.0)) < 2e-3


@each_shape
def test_reaper_s_sum_is_minus_the_gradient_of_the_distance(dim, rank):
    rng = np.random.default_rng(dim)
    symmetric = SymmetricCoordinates(dim)
    v = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    p, rows = (v * rng.uniform(0.1, 0.9, dim)) @ v.T, rng.standard_normal((12, dim))
    center = rng.standard_normal(dim) if rank > 1 else None
    x = on_the_sphere(rows, 0.0 if center is None else center)
    wider, within = dim + 4, np.linalg.qr(rng.standard_normal((dim + 4, dim)))[0]
    wide_rows = rng.standard_normal((12, wider))
    for point, each, own, frame in (
        (Relaxation(p, center), rows, x, np.eye(dim)),
        (Relaxation(p, None, within), wide_rows, on_the_sphere(wide_rows, 0.0), within),
    ):
        found = symmetric.matrix(Reaper(dim).clipped_sum(point, each, 1.0))
        for _ in range(3):
            s = rng.standard_normal((dim, dim))
            s, h = s + s.T, 1e-6
            ahead, behind = (
                np.linalg.norm(own - own @ frame @ (p + t * s) @ frame.T, axis=1).sum() for t in (h, -h)
            )
            assert float((found * s).sum()) == pytest.approx(-(ahead - behind) / (2 * h), rel=1e-6, abs=1e-6)


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
    symmetric = SymmetricCoordinates(dim)
    for mirror, first in ((False, 2.0), (True, 16.0)):
        found = reaper(
            lambda p: symmetric.matrix(Reaper(dim).clipped_sum(Relaxation(p), rows, 1.0)) / n,
            dim=dim,
            rank=rank,
            steps=first / np.sqrt(np.arange(1, 201)),
            mirror=mirror,
        )
        assert Grassmann(dim, rank).dist(found[:, :rank], truth) < 0.03
        np.testing.assert_allclose(found.T @ found, np.eye(dim), atol=1e-12)


spectra = arrays(np.float64, st.integers(2, 12), elements=st.floats(-30, 30).map(lambda x: round(x, 3)))
ranks = st.floats(0, 1)
laws = settings(max_examples=150, derandomize=True)


def rank_of(share, dim):
    return 1 + int(share * (dim - 2))


@laws
@given(values=spectra, share=ranks)
def test_water_filling_is_the_nearest_point(values, share):
    """KKT: what is taken off is one level in the middle, at least that at 1, at most that at 0."""
    total = rank_of(share, len(values))
    found = capped(values, total)
    assert found.min() >= 0.0
    assert found.max() <= 1.0
    assert found.sum() == pytest.approx(total, abs=1e-9)
    taken = values - found
    middle = (found > 1e-9) & (found < 1 - 1e-9)
    above, below = taken[found >= 1 - 1e-9], taken[found <= 1e-9]
    levels = taken[middle]
    top = min([*levels, *above], default=np.inf)
    assert max([*levels, *below], default=-np.inf) <= top + 1e-8
    assert np.ptp(levels) < 1e-8 if len(levels) else True


@laws
@given(logarithms=spectra.map(lambda v: 20 * v), share=ranks)
def test_entropic_projection_is_a_capped_multiple(logarithms, share):
    """min(c·exp(logarithms), 1) of the right sum, and c is one where nothing is capped."""
    total = rank_of(share, len(logarithms))
    found = capped_entropic(logarithms, total)
    assert found.min() >= 0.0
    assert found.max() <= 1.0
    assert found.sum() == pytest.approx(total, abs=1e-9)
    free = (found < 1 - 1e-12) & (found > 1e-290)
    level = np.log(found[free]) - logarithms[free]
    if len(level):
        assert np.ptp(level) < 1e-9
        assert np.all(level.mean() + logarithms[found >= 1 - 1e-12] >= -1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_projections_agree_with_a_general_solver(seed):
    rng = np.random.default_rng(seed)
    dim, total = 5, 1 + seed % 4
    values = rng.standard_normal(dim)
    sums = {"type": "eq", "fun": lambda x: x.sum() - total}
    start, bounds = np.full(dim, total / dim), [(1e-12, 1.0)] * dim
    nearest = minimize(lambda x: ((x - values) ** 2).sum(), start, bounds=bounds, constraints=sums, tol=1e-12)
    np.testing.assert_allclose(capped(values, total), nearest.x, atol=1e-5)
    by_entropy = minimize(
        lambda x: (x * (np.log(x) - values) - x).sum(), start, bounds=bounds, constraints=sums, tol=1e-12
    )
    np.testing.assert_allclose(capped_entropic(values, total), by_entropy.x, atol=1e-4)


def test_without_a_cap_the_entropic_projection_renormalises():
    """Appendix A of Maunu et al. 2022, where nothing exceeds 1."""
    logarithms = np.log([0.5, 0.4, 0.3, 0.2])
    np.testing.assert_allclose(capped_entropic(logarithms, 1), np.exp(logarithms) / 1.4, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e8])
def test_projections_of_far_spectra_are_still_projections(scale):
    """Exponentials so far apart leave nothing of the smaller ones in float64; they share what is left."""
    np.testing.assert_allclose(capped_entropic(np.array([0.0, -scale, -scale]), 2), [1.0, 0.5, 0.5])
    np.testing.assert_allclose(capped_entropic(np.array([-scale, scale, 0.0]), 1), [0.0, 1.0, 0.0])
    np.testing.assert_allclose(capped(np.array([0.0, -scale, scale]), 2), [1.0, 0.0, 1.0])

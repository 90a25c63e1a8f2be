"""REAPER's gradients against finite differences, and its projections against their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from privest.arrays import SymmetricCoordinates
from privest.manifolds.stiefel_grassmann import Grassmann
from privest_papers.reaper import Reaper, Relaxation, capped, capped_entropic, reaper

SHAPES = [(2, 1), (3, 1), (5, 2), (6, 5), (9, 4)]
each_shape = pytest.mark.parametrize(("dim", "rank"), SHAPES)


def on_the_sphere(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@each_shape
def test_rows_in_the_subspace_and_zero_rows_pull_by_nothing(dim, rank):
    rng = np.random.default_rng(dim)
    basis = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    still = np.concatenate([np.zeros((2, dim)), [np.eye(rank)[0] @ basis.T]])
    p = basis @ basis.T
    assert np.linalg.norm(Reaper(dim).clipped_sum(Relaxation(p), still, 1.0)) < 2e-3


@each_shape
def test_reaper_s_sum_is_minus_the_gradient_of_the_distance(dim, rank):
    rng = np.random.default_rng(dim)
    symmetric = SymmetricCoordinates(dim)
    v = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    p, rows = (v * rng.uniform(0.1, 0.9, dim)) @ v.T, rng.standard_normal((12, dim))
    center = rng.standard_normal(dim) if rank > 1 else None
    x = on_the_sphere(rows if center is None else rows - center)
    wider, within = dim + 4, np.linalg.qr(rng.standard_normal((dim + 4, dim)))[0]
    wide_rows = rng.standard_normal((12, wider))
    for point, each, own, frame in (
        (Relaxation(p, center), rows, x, np.eye(dim)),
        (Relaxation(p, None, within), wide_rows, on_the_sphere(wide_rows), within),
    ):
        found = symmetric.matrix(Reaper(dim).clipped_sum(point, each, 1.0))
        for _ in range(3):
            s = rng.standard_normal((dim, dim))
            s, h = s + s.T, 1e-6
            ahead, behind = (
                np.linalg.norm(own - own @ frame @ (p + t * s) @ frame.T, axis=1).sum() for t in (h, -h)
            )
            assert float((found * s).sum()) == pytest.approx(-(ahead - behind) / (2 * h), rel=1e-6, abs=1e-6)


def test_exact_descents_find_the_subspace_of_half_of_the_rows():
    """Half of the rows in a plane, the others anywhere: without noise both descents end in it."""
    rng, dim, rank, n = np.random.default_rng(0), 6, 2, 4000
    truth = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    rows = np.concatenate([rng.standard_normal((n // 2, rank)) @ truth.T, rng.standard_normal((n // 2, dim))])
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

"""Losses of one score: derivatives against mpmath, bounds that are kept and reached, hostile rows."""

import warnings
from math import sqrt

import mpmath
import numpy as np
import pytest

from privest.arrays import lengths
from privest.estimators.linear_model.feature_map import FeatureMap
from privest_papers.nonconvex_losses import LOGISTIC, SAVAGE, SIGMOID, GemanMcClure, MarginLoss, SmoothLoss
from testing.regression import Biweight, RegressionLoss

D = 3
DESIGN = FeatureMap(np.zeros(D), np.ones(D), 1.0, 0.2, 1.0)


def biweight(c):
    return lambda t: c**2 / 6 * (1 - (1 - min((t / c) ** 2, 1)) ** 3)


def geman_mcclure(c):
    return lambda t: (t / c) ** 2 / (1 + (t / c) ** 2) * c**2 / 2


PROFILES = {
    "logistic": (LOGISTIC, lambda t: mpmath.log1p(mpmath.exp(-t))),
    "sigmoid": (SIGMOID, lambda t: 1 / (1 + mpmath.exp(t))),
    "savage": (SAVAGE, lambda t: 1 / (1 + mpmath.exp(t)) ** 2),
    "biweight": (Biweight(1.5), biweight(mpmath.mpf("1.5"))),
    "geman-mcclure": (GemanMcClure(0.7), geman_mcclure(mpmath.mpf("0.7"))),
}
profiles = pytest.mark.parametrize(("profile", "exact"), PROFILES.values(), ids=PROFILES)
MARGINS = {name: profile for name, (profile, _) in PROFILES.items() if isinstance(profile, type(SIGMOID))}
LOSSES = {
    **{name: MarginLoss(DESIGN, profile) for name, profile in MARGINS.items()},
    "logistic-nonconvex": MarginLoss(DESIGN, LOGISTIC, 0.3),
    "biweight": RegressionLoss(DESIGN, Biweight(1.5)),
    "geman-mcclure": RegressionLoss(DESIGN, GemanMcClure(0.7)),
}
losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def rows_for(loss, n=40, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n) if isinstance(loss, MarginLoss) else rng.standard_normal(n)
    return np.column_stack([rng.standard_normal((n, D)), labels])


def value(loss, point, row):
    """f at a point, in mpmath, from what it says in words."""
    exact = next(exact for profile, exact in PROFILES.values() if profile == loss.profile)
    x = loss.feature_map.features(row[None])[0]
    score = mpmath.fdot(x.tolist(), point)
    t = (2 * row[-1] - 1) * score if isinstance(loss, MarginLoss) else row[-1] - score
    return exact(t) + loss.penalty * mpmath.fsum(w**2 / (1 + w**2) for w in point)


@profiles
def test_derivatives_are_those_of_the_formula(profile, exact):
    with mpmath.workdps(40):
        for t in np.linspace(-6, 6, 61) + 0.013:
            at = np.array([t])
            assert profile.slope(at)[0] == pytest.approx(float(mpmath.diff(exact, t)), abs=1e-12)
            assert profile.curvature(at)[0] == pytest.approx(float(mpmath.diff(exact, t, 2)), abs=1e-12)


@profiles
def test_bounds_of_derivatives_are_their_suprema(profile, exact):
    t = np.linspace(-20, 20, 2_000_001)
    slopes, curvatures = profile.slope(t), profile.curvature(t)
    bends = np.diff(curvatures) / np.diff(t)
    least, most = profile.curvatures
    for found, bound in (
        (np.abs(slopes).max(), profile.gradient_bound),
        (curvatures.max(), most),
        (np.abs(bends).max(), profile.hessian_lipschitz),
    ):
        assert 0.999 * bound < found <= bound * (1 + 1e-9)
    assert 0.999 * least + 1e-8 >= curvatures.min() >= least - 1e-12


@losses
def test_it_is_a_smooth_loss_with_the_derivatives_of_its_formula(loss: SmoothLoss):
    rows, rng = rows_for(loss, 8), np.random.default_rng(1)
    point = 2 * rng.standard_normal(loss.size)
    gradients, hessians = loss.gradients(point, rows), loss.hessians(point, rows)
    np.testing.assert_allclose(hessians, np.swapaxes(hessians, 1, 2), atol=1e-15)
    for row, gradient, hessian in zip(rows, gradients, hessians, strict=True):
        for i in range(loss.size):
            order = tuple(int(i == k) for k in range(loss.size))
            with mpmath.workdps(30):
                slope = mpmath.diff(lambda *w, row=row: value(loss, w, row), tuple(point), order)
            assert gradient[i] == pytest.approx(float(slope), abs=1e-9)
        width = 1e-5
        for i, unit in enumerate(np.eye(loss.size)):
            ahead, behind = (loss.gradients(point + way * unit, row[None])[0] for way in (width, -width))
            np.testing.assert_allclose(hessian[i], (ahead - behind) / (2 * width), atol=1e-8)


@pytest.mark.few(2)
@losses
def test_no_row_is_beyond_the_bounds_and_some_reach_them(loss):
    """G, M and ρ over rows of every length and points of every size."""
    rng = np.random.default_rng(2)
    steep = smooth = hessian_lipschitz = 0.0
    for size in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 30.0):
        rows = rows_for(loss, 3000, seed=3)
        rows[::2, :D] *= 100.0
        for _ in range(3):
            unit = rng.standard_normal(loss.size)
            point = size * unit / np.linalg.norm(unit)
            steep = max(steep, lengths(loss.gradients(point, rows)).max())
            here = loss.hessians(point, rows)
            smooth = max(smooth, np.abs(np.linalg.eigvalsh(here)).max())
            apart = 1e-4 * rng.standard_normal(loss.size)
            change = np.abs(np.linalg.eigvalsh(loss.hessians(point + apart, rows) - here)).max(axis=1)
            hessian_lipschitz = max(hessian_lipschitz, change.max() / np.linalg.norm(apart))
    assert steep <= loss.gradient_bound * (1 + 1e-9)
    assert smooth <= loss.gradient_lipschitz * (1 + 1e-9)
    assert hessian_lipschitz <= loss.hessian_lipschitz * (1 + 1e-6)
    if not loss.penalty:
        assert steep > 0.99 * loss.gradient_bound
        assert smooth > 0.99 * loss.gradient_lipschitz
        along_a_row = bend_along(loss)
        assert 0.99 * loss.hessian_lipschitz < along_a_row <= loss.hessian_lipschitz * (1 + 1e-6)


def bend_along(loss):
    """ρ where the point moves along a row's own vector, which turns its score fastest."""
    row = np.array([[100.0, 0.0, 0.0, 1.0]])
    x, best = loss.feature_map.features(row)[0], 0.0
    for size in np.linspace(-8, 8, 4001):
        apart = loss.hessians((size + 1e-5) * x, row) - loss.hessians(size * x, row)
        best = max(best, float(np.abs(apart).max() / 1e-5 / np.abs(np.outer(x, x)).max()))
    return best


def test_bounds_with_a_penalty_are_reached_where_it_and_rows_pull_together():
    feature_map = FeatureMap(np.zeros(400), np.ones(400), 1.0, 0.0, 1.0)
    loss = MarginLoss(feature_map, LOGISTIC, 0.01)
    row = np.append(np.ones(400), 0.0)[None]
    assert (
        0.99 * loss.gradient_bound
        < lengths(loss.gradients(np.full(400, 1 / sqrt(3)), row))[0]
        <= loss.gradient_bound
    )
    row = np.append(np.eye(400)[0] * 9, 0.0)[None]
    assert np.abs(loss.hessians(np.zeros(400), row)).max() == pytest.approx(loss.gradient_lipschitz)


@losses
def test_any_row_has_derivatives_or_none_in_silence(loss):
    rng = np.random.default_rng(4)
    extremes = [0.0, 5e-324, 1e-160, 1.0, -1.0, 1e155, 1e308, -1.79e308, np.inf, -np.inf, np.nan]
    rows = rng.choice(extremes, (500, D + 1))
    if isinstance(loss, MarginLoss):
        rows[:, -1] = rng.integers(0, 2, 500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = loss.gradients(rng.standard_normal(loss.size), rows)
        hessians = loss.hessians(rng.standard_normal(loss.size), rows)
    usual = np.isfinite(found).all(axis=1)
    assert lengths(found[usual]).max() <= loss.gradient_bound * (1 + 1e-12)
    assert (usual == np.isfinite(rows[:, -1])).mean() > 0.99
    assert np.abs(hessians[np.isfinite(hessians)]).max() <= loss.gradient_lipschitz * (1 + 1e-12)


def fitted(loss, rows, steps=3000):
    """Minimiser found by plain descent from zero."""
    at = np.zeros(loss.size)
    for _ in range(steps):
        at = at - loss.gradients(at, rows).mean(axis=0) / loss.gradient_lipschitz
    return at


def test_robust_regression_is_not_moved_by_outliers():
    rng = np.random.default_rng(5)
    feature_map = FeatureMap(np.zeros(D), np.ones(D), 4.0, 0.2, 4.0)
    x = rng.standard_normal((3000, D))
    y = x @ [1.0, -2.0, 0.5] + 0.3 + 0.1 * rng.standard_normal(3000)
    y[:900] += 50.0
    rows = np.column_stack([x, y])
    plain = np.linalg.lstsq(np.column_stack([x, np.ones(3000)]), y, rcond=None)[0]
    assert abs(plain[-1] - 0.3) > 10
    for profile in (Biweight(4.0), GemanMcClure(2.0)):
        coefficients, intercept = feature_map.original(fitted(RegressionLoss(feature_map, profile), rows))
        np.testing.assert_allclose([*coefficients, intercept], [1.0, -2.0, 0.5, 0.3], atol=0.15)

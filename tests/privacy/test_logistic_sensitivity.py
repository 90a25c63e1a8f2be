"""Neighbouring pairs of labelled records, and the cost of a logistic regression from the noise drawn."""

import warnings
from math import sqrt

import numpy as np
import pytest
from scipy.optimize import minimize
from test_spent import Spy

from privest.arrays import lengths
from privest.estimators import logistic_regression
from privest.estimators.logistic_regression import LogisticSpec
from privest.losses.logistic import ClassMoments, LogLoss
from privest.losses.standardised import Standardised
from privest.privacy.calibration import gaussian_delta
from privest.privacy.cost import PrivacyTarget
from privest.privacy.gate import Gate
from privest.records import Records
from privest.shapes import LabelledShape

D = 3
DESIGNS = [
    Standardised(np.zeros(D), np.ones(D), 1.0, 0.0),
    Standardised(np.array([1.0, -2.0, 0.0]), np.array([0.1, 3.0, 1e6]), 0.7, 0.25),
]
EXTREMES = [0.0, 5e-324, 1e-160, 1.0, -1.0, 1e20, 1e155, 1e300, -1.79e308, np.inf, -np.inf, np.nan]

designs = pytest.mark.parametrize("design", DESIGNS, ids=["plain", "standardised"])
classes = pytest.mark.parametrize("count", [2, 3, 10])


def hostile(design, count):
    rng = np.random.default_rng(0)
    features = [
        rng.standard_normal((60, D)) * design.scale + design.mean,
        rng.standard_normal((60, D)) * 10.0 ** rng.uniform(-320, 308, (60, D)),
        rng.choice(EXTREMES, (80, D)),
        np.vstack([np.eye(D), -np.eye(D)]) * 1e9,
    ]
    x = np.concatenate(features)
    return np.column_stack([x, rng.integers(0, count, len(x))])


def total(statistic, point, rows, clip):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = statistic.clipped_sum(point, rows, clip)
    assert found.shape == (statistic.size,)
    assert np.isfinite(found).all()
    return found


def widest(statistic, point, rows, clip):
    """The furthest that replacing one record by another was seen to move the sum."""
    alone = np.stack([total(statistic, point, row[None], clip) for row in rows])
    assert lengths(alone).max() <= clip * (1 + 1e-12)
    return float(lengths(alone[:, None] - alone[None]).max())


@designs
@classes
@pytest.mark.parametrize("size", [0.0, 1.0, 30.0])
def test_no_pair_moves_the_gradient_by_more_than_its_diameter(design, count, size):
    loss = LogLoss(design, count)
    weights = size * np.random.default_rng(1).standard_normal(loss.shape)
    for clip in (loss.longest, 0.3):
        assert widest(loss, weights, hostile(design, count), clip) <= loss.diameter(clip) * (1 + 1e-12)


@designs
@classes
def test_no_pair_moves_the_moments_by_more_than_their_diameter(design, count):
    moments = ClassMoments(design, count)
    for clip in (moments.longest, 0.3):
        assert widest(moments, None, hostile(design, count), clip) <= moments.diameter(clip) * (1 + 1e-12)


@classes
def test_a_search_comes_up_to_the_diameter_of_moments_and_not_beyond(count):
    """Over pairs of rows of any length up to one, of the same label and of two: the second moment is free."""
    moments = ClassMoments(DESIGNS[0], count)
    rng = np.random.default_rng(2)
    best = 0.0
    for labels in ((0, 0), (0, 1)):

        def moved(pair, labels=labels):
            rows = np.column_stack([pair.reshape(2, D), labels])
            a, b = (moments.clipped_sum(None, row[None], moments.longest) for row in rows)
            return -float(np.linalg.norm(a - b))

        for _ in range(12):
            best = max(best, -minimize(moved, rng.standard_normal(2 * D), method="Nelder-Mead").fun)
    assert (
        0.999 * moments.diameter(moments.longest) <= best <= moments.diameter(moments.longest) * (1 + 1e-12)
    )


def test_a_heavier_second_moment_would_not_be_free(monkeypatch):
    from privest.losses import logistic

    monkeypatch.setattr(logistic, "_RATIO", 1.0)
    moments = ClassMoments(DESIGNS[0], 2)
    angles = np.linspace(0, np.pi, 200)
    rows = np.column_stack([np.cos(angles), np.sin(angles), 0 * angles, 0 * angles])
    assert widest(moments, None, rows, moments.longest) > 1.05 * 2.0


def test_a_gradient_without_its_clip_is_caught(monkeypatch):
    rows = hostile(DESIGNS[0], 2)
    free = LogLoss(DESIGNS[0], 2)
    weights = 5 * np.ones(D)
    assert widest(free, weights, rows, 0.3) > 0.97 * 0.6
    monkeypatch.setattr(LogLoss, "diameter", lambda _, clip: clip)
    assert widest(free, weights, rows, 0.3) > free.diameter(0.3)


@classes
@pytest.mark.parametrize("solver", ["newton", "gd", "hb", "nag", "nag-opt"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_noise_drawn_pays_for_the_plan(count, solver, delta):
    """Sensitivity by hand: 2·longest gradient, and 2√(1 − 1/K) or 2 of the moments."""
    shape = LabelledShape(200, tuple("abc"), "y", tuple(map(str, range(count))))
    target = PrivacyTarget(1.5, delta)
    steps = None if solver == "newton" else 9
    planned = logistic_regression.plan(LogisticSpec(solver, steps=steps), shape, target)
    rows = np.column_stack([np.random.default_rng(3).standard_normal((200, D)), np.arange(200) % count])
    spy = Spy()
    gate = Gate(Records(rows), planned.statistics, planned.releases, spy)
    found = logistic_regression.run(planned, gate)
    assert gate.remaining == 0
    assert np.isfinite(found.coefficients).all()
    assert np.isfinite(found.standard_errors).all()
    longest = 1.0 if count == 2 else sqrt(2)
    moment = 2.0 if count == 2 else 2 * sqrt(1 - 1 / count)
    worth = moment if solver == "newton" else 2 * longest
    ratios = [worth / scale for _, scale, _ in spy.drawn]
    assert len(ratios) == planned.steps
    if delta == 0:
        assert sum(ratios) <= target.epsilon
    else:
        spent = sum(r * r for r in ratios)
        assert spent <= planned.cost.mu_squared
        assert gaussian_delta(target.epsilon, sqrt(planned.cost.mu_squared)) <= delta

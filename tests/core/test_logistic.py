"""Logistic regression: its gradients, its solvers without noise, and what it finds with noise."""

from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import TypeAdapter
from scipy.optimize import minimize
from scipy.special import log_softmax

from privest.estimators import logistic_regression
from privest.estimators.logistic_regression import LogisticPlan, LogisticSpec
from privest.losses.logistic import ClassMoments, LogLoss
from privest.losses.standardised import Standardised
from privest.privacy.cost import PrivacyTarget
from privest.privacy.gate import Gate
from privest.records import Records
from privest.shapes import LabelledShape
from privest.solvers.acceleration_schedule import Curvature, best_count, best_shares, momentum_of, weights
from privest.solvers.newton import newton_step, on_simplex

DESIGN = Standardised(np.array([1.0, 0.0, -1.0]), np.array([2.0, 1.0, 0.5]), 3.0, 0.25)
counts = pytest.mark.parametrize("count", [2, 4])


def labelled(count, n=50, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % count
    centers = rng.standard_normal((count, 3))
    return np.column_stack([centers[labels] + rng.standard_normal((n, 3)), labels])


def mean_loss(weights, rows, design, count):
    x, y = design.features(rows), design.labels(rows)
    scores = x @ weights.reshape(-1, design.size).T
    if count == 2:
        scores = np.column_stack([np.zeros(len(x)), scores])
    return -log_softmax(scores, axis=1)[np.arange(len(x)), y].mean()


@counts
def test_gradients_are_those_of_the_loss(count):
    loss, rows = LogLoss(DESIGN, count), labelled(count)
    at = np.random.default_rng(1).standard_normal(loss.shape)
    found = -loss.clipped_sum(at, rows, loss.longest) / len(rows)
    width = 1e-6
    for place, direction in enumerate(np.eye(loss.size)):
        ahead, behind = at.ravel() + width * direction, at.ravel() - width * direction
        slope = (mean_loss(ahead, rows, DESIGN, count) - mean_loss(behind, rows, DESIGN, count)) / (2 * width)
        assert found[place] == pytest.approx(slope, abs=1e-8)


@counts
def test_the_hessian_is_within_its_public_bounds(count):
    loss, rows = LogLoss(DESIGN, count), labelled(count)
    rng = np.random.default_rng(2)
    for _ in range(20):
        a, b = rng.standard_normal((2, *loss.shape))
        change = loss.clipped_sum(a, rows, 2.0) - loss.clipped_sum(b, rows, 2.0)
        assert np.linalg.norm(change) / len(rows) <= loss.smoothness * np.linalg.norm(a - b) * (1 + 1e-9)


def test_coefficients_are_in_the_uploaded_units():
    rows = labelled(2)
    weights_ = np.random.default_rng(3).standard_normal(4)
    coefficients, intercept = DESIGN.original(weights_)
    short = rows[np.linalg.norm((rows[:, :3] - DESIGN.mean) / DESIGN.scale, axis=1) <= DESIGN.bound]
    assert len(short) > 5
    np.testing.assert_allclose(short[:, :3] @ coefficients + intercept, DESIGN.features(short) @ weights_)


@counts
@pytest.mark.parametrize("method", ["gd", "hb", "nag"])
def test_without_noise_descents_find_the_minimiser(count, method):
    loss, rows, penalty = LogLoss(DESIGN, count), labelled(count), 0.02
    curvature = Curvature(2 * penalty, loss.smoothness + 2 * penalty)

    def gradient(at):
        return 2 * penalty * at - loss.clipped_sum(at, rows, loss.longest).reshape(loss.shape) / len(rows)

    found = momentum_of(method, curvature, 1.0).descend(np.zeros(loss.shape), 600, gradient)
    best = minimize(
        lambda w: mean_loss(w, rows, DESIGN, count) + penalty * w @ w, np.zeros(loss.size), tol=1e-12
    )
    np.testing.assert_allclose(found.ravel(), best.x, atol=2e-5)


def test_a_newton_step_is_one_of_the_logistic_loss():
    """Where the noise is nothing, the second moment has trace one, and rows are as they are."""
    design = Standardised(np.zeros(3), np.ones(3), 1.0, 0.0)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((400, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    rows = np.column_stack([x, rng.integers(0, 2, 400)])
    moments, loss = ClassMoments(design, 2), LogLoss(design, 2)
    mean = moments.clipped_sum(None, rows, moments.longest) / len(rows)
    first, moment = moments.parts(mean)
    np.testing.assert_allclose(moment, x.T @ x / len(x), atol=1e-14)
    step, errors = newton_step(first, moment, deviations=(0.0, 0.0), factor=2.0, penalty=0.0)
    gradient = -loss.clipped_sum(np.zeros(3), rows, 1.0) / len(rows)
    np.testing.assert_allclose(step[0], -np.linalg.solve(moment / 4, gradient), rtol=1e-9)
    assert (errors == 0).all()


@given(arrays(np.float64, st.integers(1, 8), elements=st.floats(-5, 5)))
@settings(max_examples=200, deadline=None)
def test_the_simplex_is_projected_onto(values):
    found = on_simplex(values)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1.0)
    # Optimal: on the support the residual is one level, elsewhere below it.
    level = (values - found)[found > 0]
    assert np.ptp(level) < 1e-9
    assert (values[found == 0] <= level.mean() + 1e-9).all()


def test_standard_errors_cover():
    """95 % of intervals about a step without noise, over 400 draws: within .92 to .98, false alarm 1e-4."""
    rng = np.random.default_rng(5)
    moment = np.diag([0.5, 0.3, 0.2])
    first = np.array([[0.2, -0.1, 0.05]])
    noise, spread = 2e-3, 2e-3
    exact = newton_step(first, moment, deviations=(0.0, 0.0), factor=2.0, penalty=0.0)[0]
    hits = []
    for _ in range(400):
        e = rng.standard_normal((3, 3))
        shaken = moment + spread * (np.triu(e, 1) + np.triu(e, 1).T) / sqrt(2) + spread * np.diag(np.diag(e))
        fitted, errors = newton_step(
            first + noise * rng.standard_normal((1, 3)),
            shaken,
            deviations=(noise, spread),
            factor=2.0,
            penalty=0.0,
        )
        hits.append(np.abs(fitted - exact) <= 1.96 * errors)
    assert 0.92 <= np.mean(hits) <= 0.98


def test_shares_minimise_what_they_are_to_minimise():
    """Proposition 4.2, and its Gaussian form, against a numerical minimiser."""
    weight = weights(6, Curvature(0.02, 0.27), 1 / 0.27)
    assert (np.diff(weight) > 0).all()
    for pure, power in ((True, 2), (False, 1)):
        shares = best_shares(weight, pure=pure)
        assert shares.sum() == pytest.approx(1.0)

        def objective(logs, power=power):
            share = np.exp(logs) / np.exp(logs).sum()
            return float(np.sum(weight / share**power))

        found = minimize(objective, np.zeros(6), tol=1e-14)
        np.testing.assert_allclose(np.exp(found.x) / np.exp(found.x).sum(), shares, rtol=1e-4)


def test_the_best_count_is_that_of_the_bound():
    curvature, step, start, variance = Curvature(0.02, 0.27), 3.0, log(2), 1e-3
    for pure, power in ((True, 3), (False, 2)):
        bounds = [
            (1 - sqrt(0.02 * step)) ** count * start
            + variance / 2 * np.sum(weights(count, curvature, step) ** (1 / power)) ** power
            for count in range(1, 301)
        ]
        found = best_count(300, curvature, step, start=start, variance=variance, pure=pure)
        assert found == int(np.argmin(bounds)) + 1


def fit(rows, count, epsilon, delta=1e-6, **options):
    shape = LabelledShape(
        len(rows), tuple("abc"), "y", tuple(map(str, range(count))), sqrt(3), (0.0,) * 3, (1.5,) * 3
    )
    planned = logistic_regression.plan(LogisticSpec(**options), shape, PrivacyTarget(epsilon, delta))
    again = TypeAdapter(LogisticPlan)
    assert again.validate_json(again.dump_json(planned)) == planned
    return logistic_regression.run(planned, Gate(Records(rows), planned.statistics, planned.releases))


@counts
@pytest.mark.parametrize("solver", ["newton", "nag-opt", "gd"])
def test_with_much_privacy_to_spend_classes_are_told_apart(count, solver):
    rows = labelled(count, 4000)
    centers = np.array([rows[rows[:, -1] == k, :3].mean(axis=0) for k in range(count)])
    nearest = np.argmin(((rows[:, None, :3] - centers) ** 2).sum(axis=-1), axis=1)
    found = fit(rows, count, 30.0, solver=solver)
    said = np.array(found.predict(rows[:, :3])).astype(int)
    assert np.mean(said == rows[:, -1]) > np.mean(nearest == rows[:, -1]) - 0.03
    chances = found.predict_proba(rows[:, :3])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (np.argmax(chances, axis=1) == said).all()


@counts
@pytest.mark.parametrize("solver", ["newton", "nag-opt"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_degenerate_records_give_an_answer_of_the_same_shape(count, solver, delta):
    rows = labelled(count, 40)
    only = rows.copy()
    only[:, -1] = 0
    zero = rows * [0, 0, 0, 1]
    for hard in (rows, only, zero, rows * [1e300, 1, 1e-300, 1], np.repeat(rows[:1], 40, axis=0)):
        found = fit(hard, count, 0.5, delta, solver=solver)
        assert found.coefficients.shape == ((3,) if count == 2 else (count, 3))
        assert np.isfinite(found.coefficients).all()
        assert np.isfinite(found.intercept).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"solver": "gd", "penalty": 0.0}, "penalty"),
        ({"penalty": -1.0}, "penalty"),
        ({"penalty": float("nan")}, "penalty"),
        ({"steps": 5}, "steps"),
        ({"solver": "nag", "steps": 0}, "steps"),
        ({"solver": "nag", "steps": 1001}, "steps"),
        ({"solver": "nag", "step_scale": 1.5}, "step_scale"),
        ({"step_scale": 0.5}, "step_scale"),
    ],
)
def test_choices_out_of_range_are_refused_in_words(options, said):
    with pytest.raises(ValueError, match=said):
        fit(labelled(2), 2, 1.0, **options)


def test_without_an_intercept_there_is_none():
    shape = LabelledShape(60, tuple("abc"), "y", ("0", "1"))
    for solver in ("newton", "nag-opt"):
        planned = logistic_regression.plan(
            LogisticSpec(solver=solver, intercept=False), shape, PrivacyTarget(1.0, 1e-6)
        )
        gate = Gate(Records(labelled(2, 60)), planned.statistics, planned.releases)
        assert logistic_regression.run(planned, gate).intercept == 0.0

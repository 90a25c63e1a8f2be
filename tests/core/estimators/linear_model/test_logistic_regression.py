"""Logistic regression: its gradients, its solvers without noise, and what it finds with noise."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.logistic_regression import LogisticPlan, LogisticSpec
from privest.estimators.linear_model.losses.logistic import Classifier, LogisticGradient
from privest.estimators.linear_model.newton import NewtonSolver
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.gate import Gate
from privest_papers.accelerated import descend
from privest_papers.acceleration_schedule import Curvature, schedule_of

DESIGN = FeatureMap(np.array([1.0, 0.0, -1.0]), np.array([2.0, 1.0, 0.5]), 3.0, 0.25, 3.0)
counts = pytest.mark.parametrize("count", [2, 4])


def labelled(count, n=50, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % count
    centers = rng.standard_normal((count, 3))
    return np.column_stack([centers[labels] + rng.standard_normal((n, 3)), labels])


def mean_loss(weights, rows, feature_map, count, counted=1.0):
    x, y = feature_map.features(rows), feature_map.labels(rows, count)
    scores = x @ weights.reshape(-1, feature_map.size).T
    if count == 2:
        scores = np.column_stack([np.zeros(len(x)), scores])
    return -(counted * log_softmax(scores, axis=1)[np.arange(len(x)), y]).mean()


@counts
def test_gradients_are_those_of_the_loss(count):
    loss, rows = LogisticGradient(DESIGN.size, count), labelled(count)
    at = np.random.default_rng(1).standard_normal(loss.shape)
    found = -loss.clipped_sum(Classifier(DESIGN, at), rows, loss.longest) / len(rows)
    width = 1e-6
    for place, direction in enumerate(np.eye(loss.size)):
        ahead, behind = at.ravel() + width * direction, at.ravel() - width * direction
        slope = (mean_loss(ahead, rows, DESIGN, count) - mean_loss(behind, rows, DESIGN, count)) / (2 * width)
        assert found[place] == pytest.approx(slope, abs=1e-8)


@counts
def test_the_hessian_is_within_its_public_bounds(count):
    loss, rows = LogisticGradient(DESIGN.size, count), labelled(count)
    rng = np.random.default_rng(2)
    for _ in range(20):
        a, b = rng.standard_normal((2, *loss.shape))
        change = loss.clipped_sum(Classifier(DESIGN, a), rows, 2.0)
        change -= loss.clipped_sum(Classifier(DESIGN, b), rows, 2.0)
        assert np.linalg.norm(change) / len(rows) <= loss.gradient_lipschitz * np.linalg.norm(a - b) * (
            1 + 1e-9
        )


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
    loss, rows, penalty = LogisticGradient(DESIGN.size, count), labelled(count), 0.02
    curvature = Curvature(2 * penalty, loss.gradient_lipschitz + 2 * penalty)

    def gradient(at):
        return 2 * penalty * at - loss.clipped_sum(Classifier(DESIGN, at), rows, loss.longest).reshape(
            loss.shape
        ) / len(rows)

    found = descend(schedule_of(method, curvature, scale=1.0, count=600), np.zeros(loss.shape), gradient)
    best = minimize(
        lambda w: mean_loss(w, rows, DESIGN, count) + penalty * w @ w, np.zeros(loss.size), tol=1e-12
    )
    np.testing.assert_allclose(found.ravel(), best.x, atol=2e-5)


@pytest.mark.few(1)
@counts
def test_newton_without_noise_finds_the_minimiser(count):
    """The steps reach the minimiser on rows of which those beyond the bound weigh (bound/length)²."""
    rng = np.random.default_rng(4)
    x = 2 * rng.uniform(-1, 1, (4000, 3)) ** 3
    scores = x @ (1.5 * rng.standard_normal((count - (count == 2), 3))).T
    chances = expit(scores) if count == 2 else softmax(scores, axis=1)
    labels = (
        rng.random(4000) < chances[:, 0]
        if count == 2
        else (rng.random((4000, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    )
    rows = np.column_stack([x, labels])
    shape = LabelledMetadata(4000, tuple("abc"), "y", tuple(map(str, range(count))))
    course = NewtonSolver(shape, PrivacyBudget(4000, False, 1e6), 0.001, True)
    found = course.run(
        course.releases(), Gate(Records(rows), course.statistics, course.releases()), course.feature_map
    )
    wide = replace(course.feature_map, bound=10.0, usual=10.0)
    counted = np.minimum(1.0, (course.feature_map.bound / np.linalg.norm(x, axis=1)) ** 2)
    assert 0.01 < np.mean(counted < 1) < 0.6
    # λ is for vectors as long as the schema has them usual, which is one here.
    usual = replace(course.feature_map, usual=1.0)
    penalised = wide.units / usual.units
    penalised[-1] = 0.0  # the intercept bears no penalty
    best = minimize(
        lambda w: (
            mean_loss(w, rows, wide, count, counted)
            + 0.001 * np.sum((w.reshape(-1, wide.size) * penalised) ** 2)
        ),
        np.zeros(found.weights.size),
        tol=1e-10,
    )
    wanted = best.x.reshape(found.weights.shape) * wide.units / found.feature_map.units
    np.testing.assert_allclose(found.weights, wanted, atol=0.005 * np.abs(wanted).max())


def fit(rows, count, epsilon, delta=1e-6, **options):
    shape = LabelledMetadata(
        len(rows), tuple("abc"), "y", tuple(map(str, range(count))), sqrt(3), (0.0,) * 3, (1.5,) * 3
    )
    planned = logistic_regression.plan(LogisticSpec(**options), shape, PrivacyTarget(epsilon, delta))
    again = TypeAdapter(LogisticPlan)
    assert again.validate_json(again.dump_json(planned)) == planned
    return logistic_regression.run(planned, Gate(Records(rows), planned.statistics, planned.releases))


@pytest.mark.few(3)
@counts
@pytest.mark.parametrize("solver", ["newton", "clipped", "nag-opt", "gd"])
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
@pytest.mark.parametrize("solver", ["newton", "clipped", "nag-opt"])
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


@counts
@pytest.mark.parametrize("solver", ["newton", "clipped", "nag-opt", "masg"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_more_features_than_records_are_no_obstacle(count, solver, delta):
    rng = np.random.default_rng(8)
    rows = np.column_stack([rng.standard_normal((20, 50)), np.arange(20) % count])
    shape = LabelledMetadata(20, tuple(map(str, range(50))), "y", tuple(map(str, range(count))))
    planned = logistic_regression.plan(LogisticSpec(solver=solver), shape, PrivacyTarget(1.0, delta))
    gate = Gate(Records(rows), planned.statistics, planned.releases)
    found = logistic_regression.run(planned, gate)
    assert np.isfinite(found.coefficients).all()
    assert np.isfinite(found.noise.standard_errors).all()
    assert set(found.predict(rows[:, :50])) <= set(found.classes)


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
        ({"solver": "clipped", "penalty": 0.1}, "penalty"),
    ],
)
def test_choices_out_of_range_are_refused_in_words(options, said):
    with pytest.raises(ValueError, match=said):
        fit(labelled(2), 2, 1.0, **options)


def test_without_an_intercept_there_is_none():
    shape = LabelledMetadata(60, tuple("abc"), "y", ("0", "1"))
    for solver in ("newton", "nag-opt"):
        planned = logistic_regression.plan(
            LogisticSpec(solver=solver, intercept=False), shape, PrivacyTarget(1.0, 1e-6)
        )
        gate = Gate(Records(labelled(2, 60)), planned.statistics, planned.releases)
        assert logistic_regression.run(planned, gate).intercept == 0.0


@pytest.mark.parametrize(
    ("columns", "epsilon", "first", "told"),
    [
        (3, 1.0, "spread", "the spread of features within their bounds is learned"),
        (120, 1.0, "spread", "the spread of features within their bounds is learned"),
        (3, 0.01, "labels", ""),
        (0, 1.0, "lengths", ""),
    ],
)
def test_scales_are_learned_where_bounds_alone_are_known_and_noise_allows_it(columns, epsilon, first, told):
    """A plan says so, and what was chosen is planned again where it is asked for."""
    bounded = tuple(Column(f"c{at}", "number", -1.0, 1.0) for at in range(columns))
    table = TableMetadata(2_000, (*bounded, Column("y", "boolean")))
    shape = LabelledMetadata(2_000, tuple("abc"), "y", ("0", "1"), None, (0.0,) * 3, (1.0,) * 3)
    if columns:
        shape = metadata_for(LabelledMetadata, table, TableChoice(label="y"))
    target = PrivacyTarget(epsilon, 1e-6)
    planned = logistic_regression.plan(LogisticSpec(), shape, target)
    assert planned.releases[0].statistic == first
    assert told in planned.why
    chosen = "private" if told else "public"
    assert planned.spec.standardisation == (chosen if told else None)
    again = logistic_regression.plan(LogisticSpec(standardisation=chosen), shape, target)
    assert again.releases == planned.releases
    assert again.cost == planned.cost

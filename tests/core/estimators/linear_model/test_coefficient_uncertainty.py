"""What answers and plans of classifiers say of their own error: that it holds, and is never silent."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from benchmarks.coverage_classifiers import Problem, fitted, plan, standardised
from benchmarks.tables import table
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model import classifier_score, logistic_regression
from privest.estimators.linear_model.classifier_score import ScoreSpec
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import SPREAD, distance
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.linear_model.logistic_spec import DESCENTS
from privest.estimators.linear_model.losses.curved import Curved, CurvedGradient
from privest.estimators.linear_model.losses.logistic import Classifier
from privest.estimators.linear_model.newton import prior_of
from privest.estimators.linear_model.posterior import Evidence, Prior, posterior_of
from privest.estimators.linear_model.score_model import Moment
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

ALARM = 1e-6
"""Probability with which fresh seeds would fail a right program, in each bound on a share below."""

D = 4


def shape_of(n, classes=2, dim=D):
    names = tuple(f"x{place}" for place in range(dim))
    return LabelledMetadata(n, names, "y", tuple(map(str, range(classes))), None, (0.0,) * dim, (1.0,) * dim)


def fits(rows, epsilon, runs=1, classes=2, delta=1e-6, **options):
    shape = shape_of(len(rows), classes, rows.shape[1] - 1)
    planned = logistic_regression.plan(LogisticSpec(**options), shape, PrivacyTarget(epsilon, delta))
    records = Records(rows, threads=1)
    for run in range(runs):
        gate = Gate(records, planned.statistics, planned.releases, ScaledNoise(seed=[31, run]))
        yield planned, logistic_regression.run(planned, gate)


def heavy(n, seed=0):
    """Rows with a heavy tail, a few far out with labels of their own, and labels that no line models."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, D)) @ (np.eye(D) + 0.4)
    x /= x.std(axis=0)
    x[:, 0] = rng.standard_t(4, n) / sqrt(2)
    labels = rng.random(n) < expit(np.minimum(x[:, 0] + x[:, 1] ** 2 - 1 - x[:, 2], 2.0))
    return np.column_stack([x, labels])


def crowded(n, seed=0):
    """One class in fifty, and features of two kinds."""
    rng = np.random.default_rng(seed)
    wide = rng.random((n, 1)) < 0.3
    x = (rng.standard_normal((n, D)) * np.where(wide, 1.5, 0.5) + np.where(wide, 1.4, -0.6)) / 1.32
    return np.column_stack([x, rng.random(n) < expit(x[:, 0] - 4)])


@pytest.mark.parametrize("rows", [heavy(8_000), crowded(20_000)], ids=["heavy tails", "a rare class"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 30.0])
def test_the_region_holds_the_fit_that_the_answer_names(rows, epsilon):
    """At ε = 30 hardly any noise hides what rows beyond the bound on lengths lack: the region covers it."""
    runs = 40
    problem = Problem(rows[:, :-1], rows[:, -1].astype(int), 2)
    wanted = problem.minimiser()[0, :-1]
    inside, held = 0, list[float]()
    for _, found in fits(rows, epsilon, runs, solver="newton"):
        assert "the logistic regression of these records" in found.uncertainty.of
        missed = np.abs(found.coefficients - wanted)
        inside += np.linalg.norm(missed) <= found.uncertainty.radius_95
        held.append(float(np.mean(missed <= 1.96 * found.noise.standard_errors[:-1])))
    assert inside >= binom.ppf(ALARM, runs, 0.93)
    assert np.mean(held) > 0.85


SOLVERS = [
    {},
    {"delta": 0.0},
    {"delta": 0.0, "solver": "newton"},
    *({"solver": solver} for solver in ("newton", "clipped", *DESCENTS)),
    {"solver": "nag", "batch_size": 100},
    {"loss": "sigmoid", "solver": "spider"},
    *({"loss": loss} for loss in ("sigmoid", "savage", "logistic-nonconvex")),
]


@pytest.mark.parametrize("options", SOLVERS, ids=str)
def test_every_solver_says_what_its_error_is_about(options):
    """With a figure for all that is known, and words for what is not."""
    ((planned, found),) = fits(heavy(3_000), 1.0, **options)
    stated, expected = found.uncertainty, planned.expected_error
    assert "standardised" in stated.of
    assert 0 < stated.noise <= stated.radius_95 * (1 + 1e-12)
    assert 0 < stated.standard_deviation < stated.radius_95
    assert stated.moved is not None or stated.unknown
    assert expected.assumes
    assert 0 < expected.standard_deviation < expected.radius_95 <= expected.unfavourable


@pytest.mark.parametrize("solver", ["newton", "clipped"])
def test_a_forecast_is_no_narrower_than_what_is_seen(solver):
    for epsilon in (0.3, 3.0):
        for planned, found in fits(heavy(3_000), epsilon, 5, solver=solver):
            assert found.uncertainty.radius_95 <= planned.expected_error.unfavourable * 1.25


def _nothing_to_learn(n=400):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((n, D))
    labels = np.arange(n) % 2
    yield "one row", np.column_stack([x[:1], labels[:1]])
    yield "few rows", np.column_stack([x[:8], labels[:8]])
    yield "all rows equal", np.column_stack([np.zeros((n, D)), labels])
    yield "all rows far out", np.column_stack([1e6 + 0 * x, labels])
    yield "one class", np.column_stack([x, np.zeros(n)])


@pytest.mark.parametrize("name", ["affairs", "savings", "wine"])
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_real_tables_err_by_less_than_the_unfavourable_forecast(name, epsilon):
    of = table(name)
    planned = plan(of, epsilon)
    target, records = fitted(name)[:, :-1], Records(np.column_stack([of.rows, of.labels]), threads=1)
    for run in range(5):
        gate = Gate(records, planned.statistics, planned.releases, ScaledNoise(seed=[32, run]))
        missed = standardised(logistic_regression.run(planned, gate), of) - target
        assert np.linalg.norm(missed) < planned.expected_error.unfavourable


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_coefficients_may_be_large_where_features_hardly_vary(noise):
    """The variance before any evidence is s²/e^¾ for features' variance e, or the noise if it is more."""
    bound = 2.0
    feature_map = FeatureMap(np.zeros(D), np.ones(D), bound, 0.2, bound)
    unit = feature_map.units[0]
    moment = Moment(
        np.diag([*(unit**2 * np.array([1.0, 1.0, 1.0, 1e-4])), feature_map.last**2]), noise * unit**2
    )
    even = np.full(2, 0.5)
    prior, _ = prior_of(shape_of(100), 0.0, moment, feature_map, even, np.zeros(2), learned=True)
    variances = np.diag(prior.covariance)[:-1]
    least = max(1e-4, noise * sqrt(2 * D))
    np.testing.assert_allclose(variances, SPREAD**2 / np.array([1, 1, 1, least]) ** 0.75, rtol=1e-9)


def test_the_law_of_an_intercept_before_any_step_follows_the_shares_of_classes():
    """Variance .5² + (.2 l)² + s²|m|² + e² for log odds l ± e and a mean m of standardised features."""
    feature_map = FeatureMap(np.zeros(D), np.ones(D), 2.0, 0.2, 2.0)
    mean = np.append(np.array([1.0, 0.0, 0.0, 0.5]) * feature_map.units[0], feature_map.last)
    second = np.outer(mean, mean) + np.diag(np.append(np.full(D, 0.1 * feature_map.units[0] ** 2), 0.0))
    shares, errors = np.array([1 - expit(-3.0), expit(-3.0)]), np.array([0.7, 0.7])
    prior, start = prior_of(
        shape_of(100), 0.0, Moment(second, 0.0), feature_map, shares, errors, learned=True
    )
    assert prior.covariance[-1, -1] == pytest.approx(0.25 + 0.36 + SPREAD**2 * 1.25 + 0.49)
    np.testing.assert_allclose(start, [[0.0, 0.0, 0.0, 0.0, -3.0]], atol=1e-12)


def test_classes_far_apart_are_told_apart_in_every_run():
    """Rows near the border are few, so that what is seen of them tells an intercept no better than noise."""
    rng, n = np.random.default_rng(11), 2_000
    labels = np.arange(n) % 2
    x = rng.standard_normal((n, 2))
    x[:, 0] += 4.0 * (labels - 0.5)
    rows = np.column_stack([x, labels])
    for _, found in fits(rows, 2.0, 60):
        scores = x @ np.array(found.coefficients) + found.intercept
        assert np.mean((scores > 0) == labels) > 0.95


def test_features_that_hang_together_are_warned_of():
    """Two hardly differ, and their difference decides labels."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal((20_000, D))
    x[:, 1] = x[:, 0] + 0.02 * x[:, 1]
    rows = np.column_stack([x, rng.random(len(x)) < expit(60 * (x[:, 1] - x[:, 0]) + x[:, 2])])
    for _, found in fits(rows, 1.0, 3):
        assert any("hang together" in said for said in found.uncertainty.warnings)


@pytest.mark.parametrize(("size", "odds", "hidden"), [(3.0, -6.0, True), (1.0, 0.0, False)])
def test_a_curvature_that_noise_hides_is_told(size, odds, hidden):
    """A rare class that one feature all but parts bends the loss less than noise does; even ones do not."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((8_000, D))
    rows = np.column_stack([x, rng.random(len(x)) < expit(size * x[:, 0] + odds)])
    for _, found in fits(rows, 1.0, 3):
        assert hidden == any("hides the curvature" in said for said in found.uncertainty.warnings)


def _evidence(at, slope, answer, deviation, *, curved=1e-9):
    """A gradient of ½(b − answer)ᵀ·slope·(b − answer) at b = `at`, and its Hessian, all but without noise."""
    pull = slope @ (answer - at)
    return Evidence(at[None], np.ones(len(at)), Curved(pull[None], 0.0, slope), deviation, curved)


def _prior(dim, learned):
    return Prior(np.eye(dim), np.full(dim, SPREAD**-2.0), np.zeros(dim), learned)


@pytest.mark.parametrize("learned", [True, False])
def test_what_is_seen_to_be_large_is_not_held_back(learned):
    """A coefficient ten times the usual one: by a normal law a fifth of it is lost, by the t law little.

    One beside it that is not seen keeps the usual variance.
    """
    dim, answer = 2, np.array([10 * SPREAD, 0.0])
    slope = np.diag([1e-3, 0.0])
    evidence = [_evidence(0.95 * answer, slope, answer, 1e-3 * SPREAD / 2)]
    posterior = posterior_of(np.zeros((1, dim)), _prior(dim, dim if learned else 0), evidence)
    lost = 1 - posterior.mean[0, 0] / answer[0]
    assert (0 < lost < 0.04) if learned else (lost > 0.19)
    assert posterior.covariance[1, 1] == pytest.approx(SPREAD**2)


def test_a_hessian_that_is_noise_makes_nothing_certain():
    """Six releases show no curvature but that of their noise: together they tell no more than the prior."""
    rng, dim, curved = np.random.default_rng(3), 8, 0.05
    answer, evidence = np.full(dim, 2.0), []
    for _ in range(6):
        noise = rng.standard_normal((dim, dim)) * curved
        shown = _evidence(np.zeros(dim), (noise + noise.T) / 2, answer, 3 * curved, curved=curved)
        evidence.append(replace(shown, seen=shown.seen._replace(pull=np.zeros((1, dim)))))
    posterior = posterior_of(np.zeros((1, dim)), _prior(dim, dim), evidence)
    assert np.trace(posterior.covariance) > 0.8 * dim * SPREAD**2


@pytest.mark.parametrize(("deviations", "told"), [(0.5, False), (40.0, True)])
def test_a_curvature_that_noise_may_have_made_is_doubted(deviations, told):
    """Along one direction the Hessian shows so many deviations of its noise."""
    curved, answer = 0.02, np.zeros(2)
    slope = np.diag([1.0, deviations * curved])
    posterior = posterior_of(
        np.zeros((1, 2)), _prior(2, 2), [_evidence(answer, slope, answer, 0.001, curved=curved)]
    )
    assert (posterior.covariance[1, 1] < 0.1 * SPREAD**2) == told
    assert told or posterior.covariance[1, 1] > 0.6 * SPREAD**2
    assert posterior.covariance[0, 0] < 0.01


def test_how_far_the_prior_holds_an_answer_back_is_an_error():
    """A gradient that tells a coefficient of three spreads no better than the prior does."""
    answer = np.array([3 * SPREAD])
    posterior = posterior_of(
        np.zeros((1, 1)), _prior(1, 0), [_evidence(answer, np.ones((1, 1)), answer, SPREAD)]
    )
    held = answer[0] - posterior.mean[0, 0]
    assert 1.96 * SPREAD * sqrt(0.5) < held < 1.96 * sqrt(posterior.covariance[0, 0])
    none = np.zeros(1)
    near = posterior_of(np.zeros((1, 1)), _prior(1, 0), [_evidence(none, np.ones((1, 1)), none, SPREAD)])
    assert near.covariance[0, 0] < 0.6 * SPREAD**2


def test_classes_that_are_all_but_parted_are_reached():
    """Newton's steps shrink curvature tenfold on their way, which is no reason to stop there."""
    rng = np.random.default_rng(13)
    x = rng.standard_normal((10_000, 2))
    rows = np.column_stack([x, rng.random(len(x)) < expit(5 * x[:, 0] - 10)])
    ((_, found),) = fits(rows, 1e4, solver="newton")
    wanted = Problem(x, rows[:, -1].astype(int), 2).minimiser()[0]
    assert np.abs(np.append(found.coefficients, found.intercept) - wanted).max() < 0.2


def test_an_intercept_bears_no_penalty():
    """A class of 4 % lies in the tail of a feature: with a penalty on the intercept the answer is .4 off."""
    rng = np.random.default_rng(12)
    x = rng.standard_normal((10_000, 3))
    rows = np.column_stack([x, rng.random(len(x)) < expit(2.7 * x[:, 0] - 6)])
    ((_, found),) = fits(rows, 1e4, solver="newton")
    wanted = Problem(x, rows[:, -1].astype(int), 2).minimiser()[0]
    assert np.abs(np.append(found.coefficients, found.intercept) - wanted).max() < 0.02


def test_hessians_that_change_on_the_way_make_the_rest_of_it_uncertain():
    """Curvature falls to a half on the way, as fast as it may, and the last step is as long once more."""
    answer, seen = np.full(1, 2.0), [(np.zeros(1), 2e-9), (np.ones(1), 1e-9)]
    even = [_evidence(at, np.ones((1, 1)), answer, 1e-6, curved=noise) for at, noise in seen]
    falling = [_evidence(at, np.ones((1, 1)) / (1 + at), answer, 1e-6, curved=noise) for at, noise in seen]
    certain, unsure = (posterior_of(np.zeros((1, 1)), _prior(1, 1), each) for each in (even, falling))
    assert sqrt(certain.covariance[0, 0]) < 0.1
    assert 0.2 < sqrt(unsure.covariance[0, 0]) < 0.6


def _parted():
    """Classes that a line parts, so that coefficients have no scale."""
    x = np.random.default_rng(5).standard_normal((400, D))
    return "parted", np.column_stack([x, x[:, 0] > 0])


@pytest.mark.few(6)
@pytest.mark.sparse
@pytest.mark.parametrize("options", SOLVERS, ids=str)
@pytest.mark.parametrize("place", range(5))
def test_no_solver_is_silent_where_nothing_can_be_learned(options, place):
    """Noise makes coefficients stand out in one of 300 runs; `spider` refuses a table that is too small.

    A spider that found its point soon after an escape was silent in 12 of 60 runs on one class.
    """
    for n in (400, 4_000):
        name, rows = list(_nothing_to_learn(n))[place]
        chosen = options | ({"batch_size": min(len(rows), 100)} if "batch_size" in options else {})
        if options.get("solver") == "spider" and len(rows) < 4_000:
            with pytest.raises(ValueError, match="not one batch fits"):
                list(fits(rows, 0.3, **chosen))
            continue
        for _, found in fits(rows, 0.3, 6 if "loss" in options else 2, **chosen):
            assert any("all but unknown" in said for said in found.uncertainty.warnings), (name, n)


@pytest.mark.parametrize(
    ("name", "rows"),
    [*_nothing_to_learn(), _parted()],
    ids=lambda each: each if isinstance(each, str) else "",
)
@pytest.mark.parametrize("solver", ["newton", "clipped", None])
def test_where_nothing_can_be_learned_no_answer_is_sure(name, rows, solver):
    """Coefficients of the order of one are within the region, and a warning says that they are unknown."""
    for _, found in fits(rows, 0.5, 3, solver=solver):
        stated = found.uncertainty
        assert stated.radius_95 > np.linalg.norm(found.coefficients - 0.5), name
        assert stated.radius_95 > 0.8 * sqrt(D)
        assert any("all but unknown" in said for said in stated.warnings)


def test_a_constant_column_is_the_only_unknown_one():
    rows = heavy(20_000)
    rows[:, 3] = 0.0
    for _, found in fits(rows, 3.0, 3, solver="newton"):
        errors = found.noise.standard_errors[:-1]
        assert errors[:3].max() < 0.2
        assert errors[3] > 2 * errors[:3].max()


def test_weights_are_those_that_the_answer_names():
    """Without noise: the gradient and the Hessian of the weighted loss, and the weight that rows lose."""
    rows, bound = heavy(100_000), 1.5 * 2
    feature_map = FeatureMap(np.zeros(D), np.ones(D), bound, 0.2, bound)
    loss, at = CurvedGradient(D + 1, 2), np.array([1.0, 0.0, -1.0, 0.0, 0.0]) * bound
    seen = loss.parts(loss.clipped_sum(Classifier(feature_map, at), rows, loss.longest) / len(rows))
    x = feature_map.features(rows, longest=1e3)
    weight = np.minimum(1.0, (bound / np.linalg.norm(rows[:, :-1], axis=1)) ** 2)
    assert 0.01 < np.mean(weight < 1) < 0.5
    chances = expit(x @ at)
    pull = (weight * (rows[:, -1] - chances)) @ x / len(rows)
    np.testing.assert_allclose(seen.pull[0], pull, atol=1e-12)
    hessian = (x * (weight * chances * (1 - chances))[:, None]).T @ x / len(rows)
    np.testing.assert_allclose(seen.curvature, hessian, atol=1e-12)
    assert seen.taken == pytest.approx(1 - weight.mean())


@pytest.mark.parametrize(
    "variances", [[1.0], [1.0, 1.0, 1.0], [1.0, 0.1, 0.1], np.linspace(0.1, 1, 30)], ids=len
)
def test_a_radius_is_exceeded_in_one_of_twenty(variances):
    found = distance(float(np.sum(variances)), float(np.linalg.norm(variances)))
    drawn = np.random.default_rng(6).standard_normal((100_000, len(variances))) * np.sqrt(variances)
    lengths = np.linalg.norm(drawn, axis=1)
    assert found.deviation == pytest.approx(np.sqrt(np.mean(lengths**2)), rel=0.02)
    assert np.mean(lengths > found.radius) == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("options", [{}, {"solver": "clipped"}, {"delta": 0.0}, {"loss": "sigmoid"}], ids=str)
def test_a_plan_says_what_it_costs_to_learn_the_accuracy(options):
    rows = heavy(3_000)
    ((planned, _),) = fits(rows, 0.5, **options)
    shape = planned.shape
    asked = classifier_score.plan(ScoreSpec([0.0] * D, 0.0), shape, planned.target)
    assert f"± {asked.expected_error.radius_95:.2g}" in planned.expected_error.untold
    assert "classifier-score" in planned.expected_error.untold


def scored(rows, metric, epsilon=1.0, coefficients=(1.0, 0.0, 0.0, 0.0)):
    shape = shape_of(len(rows))
    planned = classifier_score.plan(
        ScoreSpec(list(coefficients), 0.0, metric), shape, PrivacyTarget(epsilon, 1e-6)
    )
    gate = Gate(Records(rows, threads=1), planned.statistics, planned.releases, ScaledNoise(seed=[8]))
    return planned, classifier_score.run(planned, gate)


@pytest.mark.parametrize("metric", ["accuracy", "auc"])
def test_a_score_covers_noise_and_bins_with_sampling_beside(metric):
    planned, found = scored(heavy(5_000), metric)
    stated = found.uncertainty
    assert "on these records" in stated.of
    assert stated.sampling == found.sampling_error
    assert (stated.moved == 0) == (metric == "accuracy")
    assert stated.radius_95 == pytest.approx(stated.noise + stated.moved)
    assert not stated.warnings
    assert planned.expected_error.assumes


def test_an_area_of_one_bin_or_of_one_class_is_not_known():
    rows = heavy(5_000)
    alike = rows.copy()
    alike[:, 0] = 1e-9 * rows[:, 0]
    lone = rows.copy()
    lone[:, -1] = 0
    _, found = scored(alike, "auc")  # two bins: zero is an edge
    assert 0.2 < found.uncertainty.moved < 0.3
    _, found = scored(lone, "auc")
    assert found.uncertainty.moved == 0.5
    assert found.uncertainty.warnings

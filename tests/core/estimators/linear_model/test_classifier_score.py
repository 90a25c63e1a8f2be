"""Scores of linear classifiers: near the truth where noise is small, and as far off as their errors say."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy.special import expit
from scipy.stats import beta, binom, chi2, laplace, norm
from sklearn.metrics import accuracy_score, roc_auc_score

from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model import classifier_score, logistic_regression
from privest.estimators.linear_model.classifier_score import ScorePlan, ScoreSpec
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.linear_model.losses.scores import LinearScores, RightAnswers, ScoreHistogram
from privest.estimators.linear_model.noisy_scores import (
    ShareNoise,
    area_under_curve,
    binomial_interval,
    share,
)
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise, ScriptedNoise

FALSE_ALARM = 1e-6
"""Probability that a test of frequencies fails although all is well, had its seed not been fixed."""

metrics = pytest.mark.parametrize("metric", ["accuracy", "auc"])


def data(n, *, rho=0.0, separation=2.0, imbalance=0.0, tail=None, dim=5, seed=0):
    """Rows with unit scales and a correlation, whose log-odds have this spread; and their coefficients."""
    rng = np.random.default_rng(seed)
    covariance = np.full((dim, dim), rho) + (1 - rho) * np.eye(dim)
    z = rng.standard_normal((n, dim)) if tail is None else rng.standard_t(tail, (n, dim))
    x = z @ np.linalg.cholesky(covariance).T
    weights = rng.standard_normal(dim)
    weights *= separation / sqrt(weights @ covariance @ weights)
    labels = rng.random(n) < expit(x @ weights + imbalance)
    return np.column_stack([x, labels]), weights, imbalance


def shape_of(rows, classes=2, *, declared=True):
    dim = rows.shape[1] - 1
    facts = ((0.0,) * dim, (1.0,) * dim) if declared else (None, None)
    return LabelledMetadata(
        len(rows), tuple(f"x{i}" for i in range(dim)), "y", tuple(map(str, range(classes))), None, *facts
    )


def planned_for(
    rows, weights, intercept, metric, epsilon=1.0, delta=1e-6, classes=2, *, declared=True, gaussian=True
):
    """Plan a score; with `gaussian` for a budget that counts μ², whose noise is Gaussian."""
    spec = ScoreSpec(np.asarray(weights).tolist(), np.asarray(intercept).tolist(), metric)
    target = PrivacyTarget(epsilon, delta, 0.0 if gaussian else None)
    return classifier_score.plan(spec, shape_of(rows, classes, declared=declared), target)


def scored(rows, plan, noise):
    gate = Gate(Records(rows, threads=1), plan.statistics, plan.releases, noise)
    found = classifier_score.run(plan, gate)
    assert gate.remaining == 0
    return found


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("count", [2, 4])
def test_the_accuracy_of_a_fitted_classifier_as_it_was_answered(count, delta):
    rng = np.random.default_rng(1)
    labels = np.arange(4000) % count
    x = 3 * rng.standard_normal((count, 3))[labels] + rng.standard_normal((4000, 3))
    rows = np.column_stack([100 * x + 7, labels])
    shape = LabelledMetadata(
        4000, tuple("abc"), "y", tuple(map(str, range(count))), None, (7.0,) * 3, (300.0,) * 3
    )
    target = PrivacyTarget(50.0, delta)
    fit = logistic_regression.plan(LogisticSpec(), shape, target)
    fitted = logistic_regression.run(fit, Gate(Records(rows), fit.statistics, fit.releases))
    spec = ScoreSpec(fitted.coefficients.tolist(), fitted.intercept.tolist())
    plan = classifier_score.plan(spec, shape, target)
    found = scored(rows, plan, None)
    true = accuracy_score(labels, np.array(fitted.predict(rows[:, :3])).astype(int))
    assert 0.6 < true < 1
    assert found.value == pytest.approx(true, abs=12 * plan.expected_error.standard_deviation)
    assert plan.expected_error.standard_deviation < 1e-3
    assert found.accuracy is None


@pytest.mark.few(8)
@pytest.mark.parametrize("length", [0.05, 1.0, 20.0])
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"separation": 0.3},
        {"separation": 6.0},
        {"imbalance": -3.0},
        {"rho": 0.6},
        {"tail": 3},
        {"dim": 1},
        {"dim": 30, "rho": 0.3, "imbalance": 2.0, "separation": 4.0},
    ],
    ids=str,
)
def test_the_area_without_noise_is_that_of_the_scores_but_for_the_bins(kind, length):
    """Whatever the length of the coefficients: what is fitted with noise, or a penalty, is no log-odds."""
    rows, weights, intercept = data(20_000, **kind)
    for epsilon in (0.05, 0.5, 5.0):
        plan = planned_for(rows, length * weights, length * intercept, "auc", epsilon)
        found = scored(rows, plan, ScriptedNoise())
        scores = rows[:, :-1] @ weights + intercept
        off = found.value - roc_auc_score(rows[:, -1], scores)
        # Of the rows, as against their distribution, a bin's own order is chance.
        chance = 0.2 * found.sampling_error
        assert abs(off) < 1.2 / plan.bins**2 + chance
        assert abs(off) < 0.4 * found.standard_error + chance
        assert found.accuracy is not None
        assert found.accuracy.value == pytest.approx(np.mean((scores > 0) == rows[:, -1]), abs=1e-9)


def test_without_public_scales_bins_are_for_log_odds():
    rows, weights, intercept = data(20_000)
    plan = planned_for(rows, weights, intercept, "auc", declared=False)
    true = roc_auc_score(rows[:, -1], rows[:, :-1] @ weights)
    assert scored(rows, plan, ScriptedNoise()).value == pytest.approx(true, abs=0.005)
    assert any("scale" in warning for warning in plan.warnings)
    # Scores of another scale are in few bins, these in one: hence the warning.
    far = planned_for(rows, 1e-4 * weights, 0.1, "auc", declared=False)
    assert scored(rows, far, ScriptedNoise()).value == 0.5
    assert not planned_for(rows, weights, intercept, "auc").warnings


def spread_is(found, stated, kurtosis=3.0):
    """Whether a standard deviation that is seen is the stated one, at the stated false-alarm rate."""
    worth = len(found) * 2 / (kurtosis - 1)  # so many normal variates tell as much of it
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], worth)
    return low <= worth * float(np.mean(np.square(found))) / stated**2 <= high


@pytest.mark.costly
@pytest.mark.sparse
@metrics
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("kind", [{}, {"separation": 6.0}, {"imbalance": -2.0}], ids=str)
def test_standard_errors_are_those_of_repeated_runs(metric, delta, kind):
    """95 % of 2,000 runs are within 1.96 of them, as many as such a share has; and radii of plans hold."""
    times = 2000
    rows, weights, intercept = data(4000, **kind)
    plan = planned_for(rows, weights, intercept, metric, 1.0, delta)
    true = scored(rows, plan, ScriptedNoise())
    noise = ScaledNoise(seed=8)
    runs = [scored(rows, plan, noise) for _ in range(times)]
    pairs = [("score", true)] + ([("accuracy", true.accuracy)] if metric == "auc" else [])
    few, many = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], times, 0.95)
    for name, exact in pairs:
        scores = [run.accuracy if name == "accuracy" else run for run in runs]
        off = np.array([score.value for score in scores]) - exact.value
        stated = np.array([score.standard_error for score in scores])
        if metric == "accuracy" and delta == 0:
            # One number with Laplace noise has heavier tails than normal, of which the plan's radius knows.
            assert spread_is(off, stated[0], kurtosis=6.0)
            assert few <= np.sum(np.abs(off) <= plan.expected_error.radius_95) <= many
            continue
        assert few <= np.sum(np.abs(off) <= 1.96 * stated) <= many
        assert spread_is(off / stated, 1.0)
        assert abs(off.mean()) < 5 * off.std() / sqrt(times)
    if metric == "accuracy":
        assert {run.standard_error for run in runs} == {plan.expected_error.standard_deviation}
    else:
        ratio = plan.expected_error.standard_deviation / np.median([r.standard_error for r in runs])
        assert 0.3 < ratio < 1.6


def test_the_slope_in_the_counts_is_that_of_the_area():
    """The slope is checked to first order, over counts that keep their sum. Noise leaves some below zero."""
    plan = planned_for(*data(500), "auc")
    (release,) = plan.releases
    counts = np.random.default_rng(9).normal(500 / release.size, 8.0, release.size)
    counts += (500 - counts.sum()) / release.size

    def area(moved):
        moved = moved + (500 - moved.sum()) / release.size
        return area_under_curve(moved, release).value

    steps = 1e-4 * np.eye(release.size)
    slope = [(area(counts + step) - area(counts - step)) / 2e-4 for step in steps]
    stated = area_under_curve(counts, release)
    assert stated.standard_error < 0.5
    assert stated.standard_error == pytest.approx(sqrt(release.variance) * np.linalg.norm(slope), rel=1e-6)


@metrics
def test_radii_of_plans_are_quantiles_of_their_noise(metric):
    rows, weights, intercept = data(500)
    for delta in (1e-6, 0.0):
        plan = planned_for(rows, weights, intercept, metric, 1.0, delta)
        (release,) = plan.releases
        expected = plan.expected_error
        if metric == "accuracy":
            law = norm if release.noise == "gaussian" else laplace
            assert expected.radius_95 == pytest.approx(law.ppf(0.975) * release.scale / 500, rel=1e-4)
            assert expected.standard_deviation == pytest.approx(law.std() * release.scale / 500)
        else:
            assert expected.radius_95 == pytest.approx(norm.ppf(0.975) * expected.standard_deviation)


@pytest.mark.few(1)
@metrics
def test_sampling_errors_are_those_of_fresh_rows(metric):
    values, stated = [], []
    for seed in range(400):
        rows, _, _ = data(300, seed=1000 + seed, dim=1, separation=1.5)
        plan = planned_for(rows, [1.5], 0.2, metric, 40.0)
        # One direction is every seed's, but for its sign.
        rows[:, -1] = np.random.default_rng(seed).random(300) < expit(1.5 * rows[:, 0])
        found = scored(rows, plan, ScriptedNoise())
        values.append(found.value)
        stated.append(found.sampling_error)
    # The spread of 400 is known to 3.5 %; Hanley's and McNeil's formula is for other laws by a few more.
    assert np.std(values) == pytest.approx(np.median(stated), rel=0.2)


@metrics
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_rows_that_tell_nothing_get_an_answer(metric, delta):
    rows, weights, intercept = data(40)
    one_class, zero = rows * [1, 1, 1, 1, 1, 0], rows * [0, 0, 0, 0, 0, 1]
    other_class, huge = one_class + np.eye(6)[5], rows * [1e307, 1e307, 1e307, 1e307, 1e307, 1]
    for hard in (one_class, other_class, zero, huge, rows[:1]):
        for of in (weights, 0 * weights, 1e300 * weights):
            plan = planned_for(hard, of, intercept, metric, 0.5, delta)
            for factor in (0.0, 1.0):
                found = scored(hard, plan, ScaledNoise(factor, seed=3))
                for score in filter(None, (found, found.accuracy)):
                    assert 0 <= score.value <= 1
                    assert 0 < score.standard_error < np.inf
                    assert 0 < score.sampling_error <= 0.5
    if metric == "auc":
        found = scored(one_class, planned_for(one_class, weights, 0.0, "auc"), ScriptedNoise())
        assert (found.value, found.standard_error) == (0.5, 0.5)


def test_ties_go_to_the_first_class_and_overflow_is_wrong():
    two = LinearScores(np.array([1.0, -1.0]), np.array(0.0))
    rows = np.array([[1, 1, 0], [1, 1, 1], [2, 1, 1], [1, 2, 0], [1e308, -1e308, 1], [-1e308, 1e308, 0.0]])
    right = [RightAnswers().clipped_sum(two, row[None], 1.0)[0] for row in rows]
    assert right == [1, 0, 1, 1, 0, 0]
    three = LinearScores(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.zeros(3))
    rows = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 2], [-1, -1, 0], [-1, -1, 2.0]])
    right = [RightAnswers().clipped_sum(three, row[None], 1.0)[0] for row in rows]
    assert right == [1, 0, 1, 1, 0]
    over = LinearScores(np.full((3, 2), 10.0), np.zeros(3))
    assert RightAnswers().clipped_sum(over, np.array([[1e308, 0, 0.0]]), 1.0) == [0.0]


def test_scores_on_an_edge_are_below_it_and_overflow_in_the_middle():
    bins = ScoreHistogram(np.array([-1.0, 0.0, 1.0, 2.0]))
    one = LinearScores(np.array([10.0]), np.array(0.0))
    rows = np.array(
        [[-1, 0], [-0.1, 0], [0, 0], [0, 1], [0.01, 1], [0.1, 1], [5, 1], [1e308, 1], [-1e308, 0]]
    )
    counts = bins.clipped_sum(one, rows, 1.0)
    assert counts.tolist() == [2, 1, 1, 0, 0, 0, 1, 3, 0, 1]


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 33, 500])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_rows_score_does_not_depend_on_its_place(dim, classes):
    rng = np.random.default_rng(4)
    rows = np.column_stack([rng.standard_normal((257, dim)) * 1e8, rng.integers(0, classes, 257)])
    leading = () if classes == 2 else (classes,)
    asked = LinearScores(1e8 * rng.standard_normal((*leading, dim)), rng.standard_normal(leading))
    together, order = asked.of(rows), rng.permutation(257)
    alone = np.concatenate([asked.of(row[None]) for row in rows])
    assert (together == alone).all()
    assert (asked.of(rows[order]) == together[order]).all()


@pytest.mark.parametrize(
    ("coefficients", "intercept", "classes", "said"),
    [
        ([1.0], 0.0, 2, "2 numbers"),
        ([[1.0, 2.0]], 0.0, 2, "2 numbers"),
        ([1.0, 2.0], [0.0], 2, "intercept must be a number"),
        ([1.0, float("nan")], 0.0, 2, "finite"),
        ([1.0, 2.0], float("inf"), 2, "finite"),
        ([1.0, [2.0]], 0.0, 2, "2 numbers"),
        ([1.0, "x"], 0.0, 2, "2 numbers"),
        ([1.0, 10**400], 0.0, 2, "2 numbers"),
        ([1.0, 2.0], [[0.0], 0.0], 2, "intercept"),
        ([1.0, 2.0], 0.0, 3, "for each of 3 classes"),
        ([[1.0, 2.0]] * 3, 0.0, 3, "a list of 3 numbers"),
        ([[1.0, 2.0]] * 3, [0.0] * 3, 3, "two classes"),
        ([1e308, 1e308], 0.0, 2, "too large"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(coefficients, intercept, classes, said):
    shape = LabelledMetadata(
        50, ("a", "b"), "y", tuple(map(str, range(classes))), None, (9.0, 0.0), (1.0, 8.0)
    )
    with pytest.raises(ValueError, match=said):
        classifier_score.plan(ScoreSpec(coefficients, intercept, "auc"), shape, PrivacyTarget(1.0, 1e-6))


@metrics
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_where_budgets_add_up_noise_is_laplace_and_smaller(metric, epsilon):
    """It is charged no δ, and in a budget that counts μ² noise stays Gaussian."""
    rows, weights, intercept = data(2000)
    plan = planned_for(rows, weights, intercept, metric, epsilon, 2000**-1.5, gaussian=False)
    other = planned_for(rows, weights, intercept, metric, epsilon, 2000**-1.5)
    pure = planned_for(rows, weights, intercept, metric, epsilon, 0.0, gaussian=False)
    assert plan == pure
    assert plan.target.delta == 0
    assert (plan.releases[0].noise, other.releases[0].noise) == (pure.releases[0].noise, "gaussian")
    assert plan.expected_error.radius_95 < other.expected_error.radius_95
    if metric == "accuracy":
        assert plan.expected_error.standard_deviation == pytest.approx(sqrt(2) / (2000 * epsilon), rel=1e-6)


def test_a_histogram_has_no_more_noise_with_delta_0_than_one_laplace_variate_a_bin():
    plan = planned_for(*data(2000), "auc", 1.0, 0.0)
    (release,) = plan.releases
    assert release.noise == "independent-laplace"
    assert release.deviation == pytest.approx(sqrt(2) * 2 / 2000, rel=1e-6)


LAWS = ("laplace", "gaussian")


@pytest.mark.few(1)
@pytest.mark.sparse
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("accuracy", [0.5, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("n", [20, 200, 2_000, 20_000])
def test_intervals_of_scores_hold_in_95_of_100_runs(n, accuracy, epsilon, law):
    """Both do, of these records and of the population."""
    times, rng = 1500, np.random.default_rng([n, int(1e4 * accuracy), int(10 * epsilon)])
    noise = ShareNoise(law, sqrt(2) / (n * epsilon) if law == "laplace" else 4 / (n * epsilon))
    counts = rng.binomial(n, accuracy, times)
    draw = rng.laplace if law == "laplace" else rng.normal
    drawn = draw(0, noise.deviation / (sqrt(2) if law == "laplace" else 1), times)
    held = np.zeros(2, dtype=int)
    for count, one in zip(counts.tolist(), drawn.tolist(), strict=True):
        found = share(count / n + one, noise, n)
        assert found.population.low <= found.value <= found.population.high
        ends = ((found.these_records, count / n), (found.population, accuracy))
        held += [each.low - 1e-12 <= true <= each.high + 1e-12 for each, true in ends]
    assert (held >= binom.ppf(FALSE_ALARM, times, 0.95)).all()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3000), st.floats(0, 1), st.floats(-5, 1), st.sampled_from(LAWS), st.floats(0.001, 0.999)
)
def test_a_population_is_in_its_interval_exactly_if_the_noisy_share_is_likely(n, value, noise, law, p):
    """Tails are computed a second time, by laws of scipy over all counts."""
    noise = ShareNoise(law, 10**noise)
    found = binomial_interval(value, noise, n)
    assert 0 <= found.low <= value <= found.high <= 1
    counts = np.arange(n + 1)
    mass = binom.pmf(counts, n, p)
    of = norm(0, noise.deviation) if law == "gaussian" else laplace(0, noise.deviation / sqrt(2))
    above = float(mass @ of.sf(value - counts / n))
    if abs(above - 0.025) < 2e-3 or abs(above - 0.975) < 2e-3 or value in (found.low, found.high):
        return
    assert (found.low <= p <= found.high) == (0.025 <= above <= 0.975)


@pytest.mark.parametrize(("count", "n"), [(0, 30), (7, 30), (30, 30), (990, 1000), (19_990, 20_000)])
def test_without_noise_the_interval_is_that_of_clopper_and_pearson(count, n):
    """Noise that is small beside one record and known in sign takes half a record's place."""
    noise = ShareNoise("laplace", 1e-5 / n)
    low = 0.0 if count == 0 else beta.ppf(0.025, count, n - count + 1)
    high = 1.0 if count == n else beta.ppf(0.975, count + 1, n - count)
    # A share just below the count's reaches it surely, one just above it does so with the next count alone.
    below, above = (binomial_interval(count / n + way * 1e-3 / n, noise, n) for way in (-1, 1))
    assert below.low == pytest.approx(low, abs=3e-4 / sqrt(n))
    assert above.high == pytest.approx(high, abs=3e-4 / sqrt(n))


@metrics
def test_plans_keep_through_json(metric):
    rows, weights, intercept = data(100)
    plan = planned_for(rows, weights, intercept, metric)
    again = TypeAdapter(ScorePlan)
    assert again.validate_json(again.dump_json(plan)) == plan
    assert plan.steps == 1

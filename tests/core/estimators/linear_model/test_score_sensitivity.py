"""Neighbouring pairs under a score, and its cost from the noise drawn."""

from math import sqrt

import numpy as np
import pytest

from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model import classifier_score
from privest.estimators.linear_model.classifier_score import ScoreSpec
from privest.estimators.linear_model.losses.scores import LinearScores, RightAnswers, ScoreHistogram
from privest.privacy.accounting import PrivacyTarget, gaussian_delta
from privest.privacy.clipped_sums import Grid
from privest.privacy.gate import Gate
from testing.hostile_rows import EXTREMES, FEATURE_MAPS, hostile_records
from testing.hostile_rows import FEATURES as D
from testing.neighbours import widest
from testing.noise import RecordedNoise, ScriptedNoise

HISTOGRAM = ScoreHistogram(np.array([-1e9, -1.0, 0.0, 0.5, 7.0]))
CASES = [(RightAnswers(), 2), (RightAnswers(), 5), (HISTOGRAM, 2)]
WORTH = {"accuracy": 1.0, "auc": sqrt(2)}
"""Sensitivities by hand. For accuracy a count moves by one; for AUC a row leaves one bin for another."""

cases = pytest.mark.parametrize(
    ("statistic", "count"), CASES, ids=["accuracy of two", "accuracy of five", "histogram"]
)
metrics = pytest.mark.parametrize("metric", ["accuracy", "auc"])
deltas = pytest.mark.parametrize("delta", [1e-6, 0.0])


def classifier(count, size):
    rng = np.random.default_rng(5)
    leading = () if count == 2 else (count,)
    return LinearScores(size * rng.standard_normal((*leading, D)), rng.standard_normal(leading))


@cases
@pytest.mark.parametrize("size", [0.0, 1e-300, 1.0, 1e300])
@pytest.mark.parametrize("clip", [1.0, 0.3, 4.0])
def test_no_pair_moves_the_sum_by_more_than_its_diameter(statistic, count, size, clip):
    rows, at = hostile_records(FEATURE_MAPS["plain"], range(count)), classifier(count, size)
    seen = widest(statistic, at, rows, clip)
    assert statistic.diameter(clip) <= WORTH["auc" if statistic is HISTOGRAM else "accuracy"] * min(clip, 1.0)
    assert 0.999 * statistic.diameter(clip) < seen <= statistic.diameter(clip) * (1 + 1e-12)


@cases
def test_a_sum_is_that_of_its_rows_alone(statistic, count):
    """A row counts for itself in any order and beside any others, even if it overflows."""
    rows, at = hostile_records(FEATURE_MAPS["plain"], range(count)), classifier(count, 1.0)
    alone = np.stack([statistic.clipped_sum(at, row[None], 1.0) for row in rows])
    rng = np.random.default_rng(6)
    for _ in range(20):
        chosen = rng.permutation(len(rows))[: rng.integers(1, len(rows))]
        assert (statistic.clipped_sum(at, rows[chosen], 1.0) == alone[chosen].sum(axis=0)).all()


@cases
def test_a_diameter_that_is_too_small_is_caught(statistic, count, monkeypatch):
    rows, at = hostile_records(FEATURE_MAPS["plain"], range(count)), classifier(count, 1.0)
    monkeypatch.setattr(type(statistic), "diameter", lambda _, clip: 0.9 * clip)
    assert widest(statistic, at, rows, 1.0) > statistic.diameter(1.0)


def planned_for(metric, n, delta, classes=2, epsilon=1.5):
    shape = LabelledMetadata(
        n, tuple("abc"), "y", tuple(map(str, range(classes))), None, (0.0,) * D, (2.0,) * D
    )
    at = classifier(classes, 1.0)
    spec = ScoreSpec(at.coefficients.tolist(), at.intercept.tolist(), metric)
    # Such a budget counts μ², so that noise with a delta above 0 is Gaussian.
    return classifier_score.plan(spec, shape, PrivacyTarget(epsilon, delta, slack_per_mu_squared=0.0))


def labelled(n, classes=2, seed=3):
    x = np.random.default_rng(seed).standard_normal((n, D))
    return np.column_stack([x, np.arange(n) % classes])


@pytest.mark.parametrize(("metric", "classes"), [("accuracy", 2), ("accuracy", 4), ("auc", 2)])
@deltas
@pytest.mark.parametrize("n", [1, 200, 20_000])
@pytest.mark.parametrize("epsilon", [0.01, 1.5, 20.0])
def test_the_noise_drawn_pays_for_the_plan(metric, delta, classes, n, epsilon):
    planned, spy = planned_for(metric, n, delta, classes, epsilon), RecordedNoise()
    gate = Gate(Records(labelled(n, classes)), planned.statistics, planned.releases, spy)
    classifier_score.run(planned, gate)
    assert gate.remaining == 0
    ((law, scale, size),) = spy.drawn
    assert size == (1 if metric == "accuracy" else 2 * planned.bins)
    ratio = WORTH[metric] / scale
    if delta == 0:
        assert law == ("laplace" if metric == "accuracy" else "independent-laplace")
        ratio *= 1 if metric == "accuracy" else 2 / WORTH[metric]
        assert 0.99 * epsilon < ratio <= epsilon
    else:
        assert law == "gaussian"
        assert 0.98 * planned.cost.mu_squared < ratio**2 <= planned.cost.mu_squared
        assert gaussian_delta(epsilon, sqrt(planned.cost.mu_squared)) <= delta


@metrics
@deltas
def test_replacing_one_record_moves_the_integer_sum_by_no_more_than_was_paid_for(metric, delta):
    """Through the gate, over several chunks, by ordinary and hostile records."""
    planned = planned_for(metric, 9000, delta)
    (release,) = planned.releases
    asked = classifier_score.classifier(planned.spec, planned.shape)

    def exact(rows):
        gate = Gate(Records(rows, threads=1), planned.statistics, planned.releases, ScriptedNoise())
        return gate.mean(asked, release.statistic) * release.n

    rows = labelled(9000)
    before, most = exact(rows), 0.0
    others = [*hostile_records(FEATURE_MAPS["plain"], range(2))[::12], *([x, x, x, 1.0] for x in EXTREMES)]
    for place, other in enumerate(others):
        neighbour = rows.copy()
        neighbour[[0, 4095, 4096, 8999][place % 4]] = other
        order = 1 if release.noise == "independent-laplace" else 2
        most = max(most, float(np.linalg.norm(exact(neighbour) - before, order)))
    worth = 2 if release.noise == "independent-laplace" else WORTH[metric]
    assert 0.999 * worth < most <= release.sensitivity
    assert Grid(release.spacing).quantise(np.array([1.0])) * release.spacing == 1.0  # counts are exact


@metrics
@deltas
def test_rows_change_nothing_but_the_numbers(metric, delta):
    """Plans know no row, and the number of answers, their size and noise are the same over any rows."""
    planned = planned_for(metric, 300, delta)
    told = set()
    for rows in (
        labelled(300),
        hostile_records(FEATURE_MAPS["plain"], range(2))[:1].repeat(300, axis=0),
        labelled(300) * [0, 0, 0, 1],
    ):
        spy = RecordedNoise()
        found = classifier_score.run(planned, Gate(Records(rows), planned.statistics, planned.releases, spy))
        assert 0 <= found.value <= 1
        told.add(tuple(spy.drawn))
    assert len(told) == 1

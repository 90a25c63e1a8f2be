"""Neighbouring pairs under losses of one score, and the cost of `escape` from the noise that it drew."""

from math import sqrt

import numpy as np
import pytest

from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.linear_model.losses.spread import NODES
from privest.privacy.accounting import PrivacyTarget, gaussian_delta
from privest.privacy.gate import Gate
from privest_papers.nonconvex_losses import (
    LOGISTIC,
    SAVAGE,
    SIGMOID,
    ClippedGradient,
    ClippedHessian,
    GemanMcClure,
    LinearQuery,
    MarginLoss,
)
from testing.hostile_rows import EXTREMES, FEATURE_MAPS, hostile_records
from testing.hostile_rows import FEATURES as D
from testing.neighbours import widest
from testing.noise import RecordedNoise
from testing.regression import Biweight, RegressionLoss

PROFILES = {
    "logistic": LOGISTIC,
    "sigmoid": SIGMOID,
    "savage": SAVAGE,
    "biweight": Biweight(1.5),
    "geman-mcclure": GemanMcClure(0.7),
}
_SAVAGE = [2 * p**2 * (1 - p) * (2 - 3 * p) for p in ((15 - sqrt(33)) / 24, (15 + sqrt(33)) / 24)]
"""Largest and least φ″: where 12p² − 15p + 4 is 0."""

DIAMETERS = {
    "logistic": sqrt(2) / 4,
    "sigmoid": 1 / (3 * sqrt(3)),
    "savage": _SAVAGE[0] - _SAVAGE[1],
    "biweight": 1.8,
    "geman-mcclure": sqrt(2),
}
"""Diameters of the sets of Hessians, worked out by hand.

They are √2·b where φ is convex or bends little the other way, else a + b.
"""

designs = pytest.mark.parametrize("feature_map", FEATURE_MAPS.values(), ids=FEATURE_MAPS)
names = pytest.mark.parametrize("name", PROFILES)


def loss_of(name, feature_map):
    kind = RegressionLoss if name in ("biweight", "geman-mcclure") else MarginLoss
    return kind(feature_map, PROFILES[name], 0.1)


def statistics(loss):
    pulls, curvatures = ClippedGradient(loss.size), ClippedHessian(loss.size, *loss.profile.curvatures)
    return (pulls, loss.profile.gradient_bound), (curvatures, loss.hessians_clip)


@designs
@names
@pytest.mark.parametrize("size", [0.0, 1.0, 30.0])
def test_no_pair_moves_a_sum_by_more_than_its_diameter(feature_map, name, size):
    loss = loss_of(name, feature_map)
    point = LinearQuery(loss, size * np.random.default_rng(1).standard_normal(loss.size))
    labels = (0, 1) if isinstance(loss, MarginLoss) else (*EXTREMES, 0.3, -0.7)
    rows = hostile_records(feature_map, labels)
    for statistic, longest in statistics(loss):
        for clip in (2 * longest, longest, 0.3 * longest):
            assert widest(statistic, point, rows, clip) <= statistic.diameter(clip) * (1 + 1e-12)
            assert statistic.diameter(clip) <= 2 * clip


@names
def test_diameters_of_hessians_are_those_found_by_hand(name):
    (_, _), (curvatures, clip) = statistics(loss_of(name, FEATURE_MAPS["plain"]))
    assert curvatures.diameter(clip) == pytest.approx(DIAMETERS[name], rel=1e-12)


def test_a_sum_is_that_of_its_rows_and_of_derivatives():
    for name in PROFILES:
        loss = loss_of(name, FEATURE_MAPS["standardised"])
        rng = np.random.default_rng(3)
        rows = np.column_stack([rng.standard_normal((50, D)), rng.integers(0, 2, 50)])
        point = LinearQuery(loss, rng.standard_normal(loss.size))
        (pulls, gradient_bound), (curvatures, most) = statistics(loss)
        gradient = 50 * loss.penalty_gradient(point.weights) - pulls.clipped_sum(point, rows, gradient_bound)
        np.testing.assert_allclose(gradient, loss.gradients(point.weights, rows).sum(axis=0), atol=1e-12)
        hessian = curvatures.symmetric.matrix(curvatures.clipped_sum(point, rows, most))
        hessian += 50 * np.diag(loss.penalty_curvatures(point.weights))
        np.testing.assert_allclose(hessian, loss.hessians(point.weights, rows).sum(axis=0), atol=1e-12)


@pytest.mark.parametrize("loss", ["sigmoid", "savage", "logistic-nonconvex"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("n", [200, 20_000])
@pytest.mark.parametrize("options", [{}, {"standardisation": "private"}], ids=str)
def test_a_run_spends_what_was_planned_by_the_noise_that_it_drew(loss, delta, n, options):
    shape = LabelledMetadata(n, tuple("abc"), "y", ("0", "1"), 1.0, (0.0,) * D, (1.0,) * D)
    target = PrivacyTarget(1.0, delta)
    planned = logistic_regression.plan(LogisticSpec(loss=loss, **options), shape, target)
    rows = shape.dummy(n, np.random.default_rng(0))
    spy = RecordedNoise()
    gate = Gate(Records(rows), planned.statistics, planned.releases, spy)
    logistic_regression.run(planned, gate)
    assert gate.remaining == 0
    # By hand, from what two rows can be apart at most.
    name = "logistic" if loss == "logistic-nonconvex" else loss
    worth = {
        "spread": 2 * sqrt(D),
        "lengths": sqrt(2.0) if delta else 2.0,
        "gradient": {"logistic": 2.0, "sigmoid": 0.5, "savage": 16 / 27}[name],
        "hessian": DIAMETERS[name],
    }
    sizes = {"spread": 2 * D, "lengths": NODES, "gradient": D + 1, "hessian": (D + 1) * (D + 2) // 2}
    expected = [release for release in planned.releases for _ in range(release.count)]
    assert ("hessian" in {release.statistic for release in expected}) == (n == 20_000)
    # The Hessian comes after the gradient where it is taken, not before.
    assert sorted(spy.drawn) == sorted((r.noise, r.scale, r.size) for r in expected)
    assert all(r.size == sizes[r.statistic] for r in expected)
    ratios = [worth[r.statistic] / r.scale for r in expected]
    if delta == 0:
        assert 0.99 * target.epsilon < sum(ratios) <= target.epsilon
    else:
        spent = sum(r * r for r in ratios)
        assert 0.98 * planned.cost.mu_squared < spent <= planned.cost.mu_squared
        assert gaussian_delta(target.epsilon, sqrt(planned.cost.mu_squared)) <= delta


def test_the_plan_and_the_course_of_questions_do_not_depend_on_rows():
    shape = LabelledMetadata(20_000, tuple("abc"), "y", ("0", "1"), 1.0)
    planned = logistic_regression.plan(LogisticSpec(loss="sigmoid"), shape, PrivacyTarget(1.0, 1e-6))
    asked = set()
    for worst in (None, 0.0, 1e308, -1e-320):
        rows = shape.dummy(20_000, np.random.default_rng(0))
        if worst is not None:
            rows[:, :D] = worst
        spy = RecordedNoise()
        gate = Gate(Records(rows), planned.statistics, planned.releases, spy)
        found = logistic_regression.run(planned, gate)
        assert np.isfinite(found.coefficients).all()
        asked.add(tuple(spy.drawn))
    assert len(asked) == 1

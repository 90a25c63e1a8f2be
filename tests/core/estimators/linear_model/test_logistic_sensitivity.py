"""Neighbouring pairs of labelled records, and the cost of a logistic regression from the noise drawn."""

from math import sqrt

import numpy as np
import pytest

from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.linear_model.losses.curved import CurvedGradient
from privest.estimators.linear_model.losses.logistic import Classifier, ClassMoments, LogisticGradient
from privest.estimators.linear_model.losses.spread import FeatureSpread
from privest.privacy.accounting import PrivacyTarget, gaussian_delta
from privest.privacy.gate import Gate
from testing.hostile_rows import FEATURE_MAPS, hostile_records
from testing.hostile_rows import FEATURES as D
from testing.neighbours import widest
from testing.noise import RecordedNoise

designs = pytest.mark.parametrize("feature_map", FEATURE_MAPS.values(), ids=FEATURE_MAPS)
classes = pytest.mark.parametrize("count", [2, 3, 10])
sizes = pytest.mark.parametrize("size", [0.0, 1.0, 30.0, 1e307, np.inf])
"""How long weights are, which another site may lead anywhere."""


@designs
@classes
@sizes
def test_no_pair_moves_the_gradient_by_more_than_its_diameter(feature_map, count, size):
    loss = LogisticGradient(feature_map.size, count)
    at = Classifier(feature_map, size * np.random.default_rng(1).standard_normal(loss.shape))
    for clip in (loss.longest, 0.3):
        assert widest(loss, at, hostile_records(feature_map, range(count)), clip) <= loss.diameter(clip) * (
            1 + 1e-12
        )


@pytest.mark.sparse
@designs
@classes
@sizes
def test_no_pair_moves_the_curved_gradient_by_more_than_its_diameter(feature_map, count, size):
    loss = CurvedGradient(feature_map.size, count)
    weights = size * np.random.default_rng(1).standard_normal((loss.columns, loss.width))
    at = Classifier(feature_map, weights[0] if count == 2 else weights)
    rows = hostile_records(feature_map, range(count))
    for clip in (loss.longest, 0.3):
        assert widest(loss, at, rows, clip) <= loss.diameter(clip) * (1 + 1e-12)


@pytest.mark.parametrize("count", [2, 3, 10])
def test_rows_whose_class_is_all_but_sure_add_numbers(count):
    """The squared length of P, about 1e-17 there, was once a difference that rounding took below zero."""
    loss, rng = CurvedGradient(D, count), np.random.default_rng(11)
    for gap in np.linspace(15.0, 40.0, 400):
        weights = rng.standard_normal((loss.columns, D))
        weights[-1, 0] += gap
        rows = np.hstack(
            [0.99 * np.ones((40, 1)), 0.1 * rng.standard_normal((40, D - 1)), np.full((40, 1), count - 1.0)]
        )
        classifier = Classifier(FEATURE_MAPS["plain"], weights[0] if count == 2 else weights)
        summed = loss.clipped_sum(classifier, rows, loss.longest)
        assert np.linalg.norm(summed) <= len(rows) * loss.longest  # and no NaN


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_curved_gradient_is_no_longer_than_a_gradient(count):
    """Chances of all kinds, rows of all lengths: the bound holds, and is nearly reached."""
    loss, rng = CurvedGradient(D, count), np.random.default_rng(4)
    free = FEATURE_MAPS["plain"]
    longest = 0.0
    for size in (0.1, 1.0, 3.0, 30.0):
        shape = (D,) if count == 2 else (count, D)
        at = Classifier(free, size * rng.standard_normal(shape))
        for reach in (0.5, 1.0, 1.2, 2.0, 50.0):
            x = rng.standard_normal((40, D))
            x *= reach / np.linalg.norm(x, axis=1, keepdims=True)
            rows = np.column_stack([x * free.scale * free.bound + free.mean, np.arange(40) % count])
            # A clip that shortens nothing, so that what is seen is what rows have by themselves.
            alone = [loss.clipped_sum(at, row[None], 100.0) for row in rows]
            longest = max(longest, *(float(np.linalg.norm(each)) for each in alone))
    assert 0.98 * loss.longest < longest <= loss.longest * (1 + 1e-12)


@designs
@classes
def test_no_pair_moves_the_moments_by_more_than_their_diameter(feature_map, count):
    moments = ClassMoments(feature_map.size, count)
    for clip in (moments.longest, 0.3):
        assert widest(
            moments, feature_map, hostile_records(feature_map, range(count)), clip
        ) <= moments.diameter(clip) * (1 + 1e-12)


@designs
@pytest.mark.parametrize("clip", [10.0, 0.3])
def test_no_pair_moves_the_spread_by_more_than_its_diameter(feature_map, clip):
    spread = FeatureSpread(D)
    clip = min(clip, spread.longest)
    assert widest(spread, feature_map, hostile_records(feature_map, range(2)), clip) <= spread.diameter(
        clip
    ) * (1 + 1e-12)
    if clip == spread.longest:
        steps = np.linspace(-1, 1, 401)
        rows = np.column_stack(
            [np.repeat(steps[:, None], D, axis=1) * feature_map.scale + feature_map.mean, steps * 0]
        )
        assert 0.999 * 2 * sqrt(D) < widest(spread, feature_map, rows, clip) <= 2 * sqrt(D) * (1 + 1e-12)


def test_no_scale_is_below_what_noise_could_have_made_of_a_constant_feature():
    """A variance is at least three deviations of the noise on it, and says so; a clear one is itself."""
    deviation, spread = 0.02, FeatureSpread(2)
    mean = np.array([-1.0, 0.1, sqrt(2.5) * 1.0, sqrt(2.5) * (0.3**2 + 0.1**2)])
    center, scale, hidden = spread.parts(mean, deviation)
    assert scale[0] >= sqrt(3 * deviation / sqrt(2.5))
    assert scale[1] == pytest.approx(0.3, rel=0.01)
    assert hidden.tolist() == [True, False]
    np.testing.assert_allclose(center, [-1.0, 0.1], atol=0.01)


def test_a_gradient_without_its_clip_is_caught(monkeypatch):
    rows = hostile_records(FEATURE_MAPS["plain"], range(2))
    free = LogisticGradient(D, 2)
    weights = Classifier(FEATURE_MAPS["plain"], 5 * np.ones(D))
    assert widest(free, weights, rows, 0.3) > 0.97 * 0.6
    monkeypatch.setattr(LogisticGradient, "diameter", lambda _, clip: clip)
    assert widest(free, weights, rows, 0.3) > free.diameter(0.3)


@classes
@pytest.mark.parametrize("solver", ["newton", "clipped", "gd", "nag-opt"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("n", [200, 20_000])
@pytest.mark.parametrize("options", [{}, {"standardisation": "private", "sampling_errors": True}], ids=str)
def test_the_noise_drawn_pays_for_the_plan(count, solver, delta, n, options):
    """Sensitivity by hand: 2·longest gradient, 2√q of moments, one record that changes a count or two."""
    shape = LabelledMetadata(
        n, tuple("abc"), "y", tuple(map(str, range(count))), None, (0.0,) * D, (2.0,) * D
    )
    target = PrivacyTarget(1.5, delta)
    steps = 9 if solver in ("gd", "nag-opt") else None
    planned = logistic_regression.plan(LogisticSpec(solver, steps=steps, **options), shape, target)
    rows = np.column_stack([np.random.default_rng(3).standard_normal((n, D)), np.arange(n) % count])
    spy = RecordedNoise()
    gate = Gate(Records(rows), planned.statistics, planned.releases, spy)
    found = logistic_regression.run(planned, gate)
    assert gate.remaining == 0
    for spread in (found.noise, found.sampling):
        assert spread is None or (np.isfinite(spread.standard_errors) & (spread.standard_errors > 0)).all()
    assert (found.sampling is not None) == (solver == "newton" or "sampling_errors" in options)
    worth = {
        "spread": 2 * sqrt(D),
        "lengths": sqrt(2.0) if delta else 2.0,
        "labels": 1.0 if count == 2 else sqrt(2.0),
        "moments": 2 * sqrt(1 - 1 / count) if count > 2 else 2.0,
        "curved": 2.0 if count == 2 else 2 * sqrt(2),
        "gradient": 0.2 if solver == "clipped" else 2.0 if count == 2 else 2 * sqrt(2),
    }
    names = [release.statistic for release in planned.releases for _ in range(release.count)]
    ratios = [worth[name] / scale for name, (_, scale, _) in zip(names, spy.drawn, strict=True)]
    assert len(ratios) == planned.steps
    if delta == 0:
        assert 0.99 * target.epsilon < sum(ratios) <= target.epsilon
    else:
        spent = sum(r * r for r in ratios)
        assert 0.98 * planned.cost.mu_squared < spent <= planned.cost.mu_squared
        assert gaussian_delta(target.epsilon, sqrt(planned.cost.mu_squared)) <= delta

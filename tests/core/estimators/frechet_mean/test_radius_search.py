"""Distances of records found privately, and bounds on their tails."""

from math import sqrt

import numpy as np
import pytest

from privest import manifolds
from privest.arrays import Array
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.estimators.frechet_mean.radius_search import NODES, DistanceCounts, Range, Tail
from privest.manifolds import Euclidean
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

N, DIM = 10_000, 20


def answers(rows, space, center, radius, runs, target):
    shape = PointsMetadata(len(rows), space, None if center is None else center.tolist(), radius)
    plan = frechet_mean.plan(FrechetMeanSpec(), shape, target)
    records = Records(rows, threads=1)
    for seed in range(runs):
        noise = ScaledNoise(seed=[25, seed])
        yield FRECHET_MEAN.run(plan, Gate(records, plan.statistics, plan.releases, noise))


def laws():
    rng = np.random.default_rng(1)
    yield "normal", rng.standard_normal((N, DIM))
    yield "heavy", rng.standard_normal((N, DIM)) * np.exp(rng.standard_normal((N, 1)))
    yield "skewed", np.exp(rng.standard_normal((N, DIM)))


@pytest.mark.sparse
@pytest.mark.parametrize("rows", [pytest.param(rows, id=name) for name, rows in laws()])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("wide", [1.0, 100.0, 1000.0, None])
def test_a_wide_ball_costs_no_more_than_one_noisy_sum(rows, epsilon, wide):
    """The error is compared with one noisy sum over the ball; without a ball its clip is the 95 % quantile.

    Six runs are off by a sixth in one of 20 such tests. At epsilon 1 a ball far too wide costs a twentieth.
    """
    mean, target = rows.mean(axis=0), PrivacyTarget(epsilon, 1e-6)
    away = np.linalg.norm(rows - mean, axis=1)
    clip, usual = np.quantile(away, 0.95), np.quantile(away, 0.99)
    center = None if wide is None else mean + 0.5 * max(1.0, wide) * usual * np.eye(DIM)[0]
    radius = None if wide is None else float(wide * usual)
    plain = sqrt(DIM) * 2 * (radius or 12 * clip) / (N * mu_for(epsilon, 1e-6))
    found = list(answers(rows, {"name": "euclidean", "dim": DIM}, center, radius, 6, target))
    off = np.array([np.linalg.norm(each.point - mean) for each in found])
    # Of heavy tails no clip is known to cut off little.
    is_heavy = away.max() > 20 * np.median(away)
    gains = wide is not None and wide >= 100 and epsilon == 1.0 and not is_heavy
    assert np.median(off) < (0.05 if gains else 1.4) * plain
    assert np.sum(off <= [each.uncertainty.radius_95 for each in found]) >= 4


@pytest.mark.parametrize(
    "space",
    [
        {"name": "sphere", "dim": 6},
        {"name": "lorentz", "dim": 4},
        {"name": "spd", "dim": 3},
        {"name": "spd", "dim": 3, "metric": "log-euclidean"},
        {"name": "grassmann", "dim": 6, "rank": 2},
    ],
    ids=lambda space: "-".join(map(str, space.values())),
)
def test_no_manifold_needs_a_radius(space):
    """The records lie within a tenth of a point that is three times as far from the reference."""
    manifold = manifolds.get(**space)
    rng = np.random.default_rng(2)
    steps = rng.standard_normal((3_000, manifold.coordinate_size)) / sqrt(manifold.coordinate_size)
    middle = manifold.exp_coordinates(manifold.reference, 0.3 * steps[0])
    rows = manifold.exp_coordinates(middle, 0.1 * steps)
    mean = middle
    for _ in range(20):
        mean = manifold.exp_coordinates(mean, manifold.log_coordinates(mean, rows).mean(axis=0))
    found = list(answers(rows, space, None, None, 6, PrivacyTarget(1.0, 1e-6)))
    off = np.array([float(manifold.dist(each.point, mean)) for each in found])
    assert sqrt(np.mean(off**2)) < 0.02
    assert np.sum(off <= [each.uncertainty.radius_95 for each in found]) >= 4


def hostile():
    rng = np.random.default_rng(3)
    one = rng.standard_normal((3_000, 3))
    one[0] = 1e300
    yield "one at 1e300", one, None, True
    yield "all equal", np.full((3_000, 3), 7.0), None, True
    yield "all zero", np.zeros((3_000, 3)), None, True
    yield "two far apart", np.where(np.arange(3_000)[:, None] % 2, 1e9, -1e9) * np.ones(3), None, True
    yield "ten", rng.standard_normal((10, 3)), None, False
    yield "a range of all float64", rng.standard_normal((3_000, 3)), 1e100, False
    yield "as small as can be", rng.standard_normal((3_000, 3)), 1e-100, False


@pytest.mark.parametrize("epsilon", [0.1, 3.0])
@pytest.mark.parametrize(
    ("rows", "radius", "is_found"), [pytest.param(*rest, id=name) for name, *rest in hostile()]
)
def test_a_hostile_table_has_an_honest_answer(rows, radius, is_found, epsilon):
    space = {"name": "euclidean", "dim": 3}
    usual = rows[np.abs(rows).max(axis=1) < 1e100].mean(axis=0)
    for each in answers(rows, space, None, radius, 4, PrivacyTarget(epsilon, 1e-6)):
        told = each.uncertainty
        assert np.isfinite(each.point).all()
        assert np.isfinite([told.radius_95, told.noise, told.moved]).all()
        near = np.linalg.norm(each.point - usual) <= 1.5 * told.radius_95
        assert near or told.warnings
        if is_found and epsilon == 3.0:
            assert near


def test_what_noise_hides_is_taken_to_be_as_declared():
    within = Range(Euclidean(2), 3.0, is_declared=True)
    rng = np.random.default_rng(4)
    for deviation in (0.3, 1.0, 1e3):
        empty = deviation * rng.standard_normal((2_000, within.counts.size))
        assert np.mean([within.read(released, deviation) != 3.0 for released in empty]) < 1e-3
    clear = np.zeros(within.counts.size)
    clear[0], clear[5] = 0.1, 0.9
    assert within.read(clear, 1e-3) == within.top / 16.0**5


ROWS, NOISE, REACH, CLIP = 8_000, 0.0045, 64.0, 12.0
COUNTS = DistanceCounts(Euclidean(1))


def read(values: Array, seed: int) -> Tail:
    counts = COUNTS.clipped_sum((np.zeros(1), REACH), values[:, None], 1.0) / len(values)
    return Tail.read(counts + NOISE * np.random.default_rng(seed).standard_normal(NODES), NOISE, REACH)


def beyond(values: Array) -> float:
    return float(np.mean(np.maximum(values - CLIP, 0.0)))


@pytest.mark.parametrize("index", [1.75, 2.5])
def test_a_power_law_under_ties_is_told_of(index: float) -> None:
    """Two thirds of the values are one and the same, as filled gaps are. Seeds of the noise are fixed.

    Of 1,000 other seeds one in fifty has it below 0.4 times what there is, and none above both ten times that
    and twice what noise allows: more than four of twenty are so in less than one of 10,000 sets.
    """
    rng = np.random.default_rng(3)
    values = np.where(rng.random(ROWS) < 0.67, 0.5, rng.uniform(size=ROWS) ** (-1 / index))
    told, true = np.array([read(values, seed).excess(CLIP) for seed in range(20)]), beyond(values)
    assert np.sum((told < 0.4 * true) | (told > max(10 * true, 2 * NOISE * CLIP))) <= 4, told / true


def test_values_that_end_are_not_told_to_go_on() -> None:
    """A column within 10: what is told is below the noise on a sum of clipped values, twice the clip each."""
    values = np.random.default_rng(4).uniform(0.0, 10.0, ROWS)
    told = [read(values, seed).excess(CLIP) for seed in range(20)]
    assert max(told) < NOISE * CLIP


def test_where_no_records_stand_out_nothing_is_told() -> None:
    nothing = Tail.read(np.zeros(NODES), NOISE, REACH)
    assert nothing.excess(CLIP) == 0.0
    everything = Tail.read(np.eye(NODES)[0], NOISE, REACH)
    assert np.isfinite(everything.excess(1e-3))

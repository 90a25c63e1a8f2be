"""Means of all columns in one question: their error, where no scale drowns another, and intervals."""

from collections.abc import Iterator
from functools import partial
from math import sqrt

import numpy as np
import pytest

from benchmarks.column_means import answer
from privest.arrays import Array
from privest.estimators import federated_runs, federation
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec, plan
from privest.metadata import PointsMetadata
from privest.privacy.calibration import mu_for
from privest.privacy.cost import PrivacyTarget
from privest.privacy.gate import Gate
from privest.records import Records
from privest.tables.answers import alike, column_means, loadings
from privest.tables.columns import Column
from privest.tables.metadata import TableChoice, TableMetadata, metadata_for
from testing.noise import ScaledNoise

N, RUNS = 2000, 20
TARGET = PrivacyTarget(1.0, 1e-6)
WIDTHS = np.array([1.0, 10.0, 1000.0, 1e6, 1e-3, 50.0])
TABLE = TableMetadata(N, tuple(Column(f"c{at}", "number", 0.0, width) for at, width in enumerate(WIDTHS)))


def points(table: TableMetadata) -> PointsMetadata:
    made = metadata_for(PointsMetadata, table, TableChoice())
    assert isinstance(made, PointsMetadata)
    return made


def test_they_err_no_more_than_columns_alone_within_their_bounds_and_intervals_hold() -> None:
    """Noise has a fixed seed. Alone a column has a sixth of μ² for a sum within its bounds.

    Of ten other sets of runs none erred more than .72 of that, or held fewer than 94 %. Both bounds are
    further off than noise goes once in a million sets.
    """
    rng = np.random.default_rng(1)
    rows = WIDTHS * np.clip(rng.normal(0.4, 0.15, (N, 6)), -0.5, 1.5)  # some beyond their bounds
    exact = np.clip(rows, 0, WIDTHS).mean(axis=0)
    alone = WIDTHS * sqrt(6) / (N * mu_for(TARGET.epsilon, TARGET.delta))
    squares, held = np.zeros(6), 0
    for seed in range(RUNS):
        told = answer(points(TABLE), rows, TARGET, seed).columns
        assert told is not None
        values, low, high = (
            np.array([float(getattr(each, name)) for each in told]) for name in ("value", "low", "high")
        )
        squares += (values - exact) ** 2 / RUNS
        held += int(((low <= exact) & (exact <= high)).sum())
    assert (np.sqrt(squares) <= 1.3 * alone).all(), np.sqrt(squares) / alone
    assert held >= 0.88 * 6 * RUNS


def test_answers_are_in_units_and_dates_are_dates() -> None:
    table = TableMetadata(9, (Column("seen", "date", 0.0, 20.0), Column("tagged", "boolean")))
    recipe = points(table).recipe
    assert recipe is not None
    seen, tagged = column_means(np.array([0.0, 0.5]), recipe, alike(2, 0.3, 0.0))
    assert (seen.name, seen.value, seen.kind) == ("seen", "1970-01-11", "mean")
    assert (seen.low, seen.high) == ("1970-01-08", "1970-01-14")
    assert (tagged.value, tagged.kind) == (0.75, "share")
    half = 1.96 * 0.3 / 2.4477  # the 95 % quantile of a length in two dimensions
    assert tagged.high == pytest.approx(0.75 + half / 2, abs=1e-4)
    (first, _) = loadings(np.eye(2), recipe)
    assert (first.name, first.loadings.tolist()) == ("seen", [1.0, 0.0])


def of_any_size(n: int) -> Array:
    """Columns of usual kinds, whose sizes are far apart."""
    rng = np.random.default_rng(5)
    return np.column_stack(
        [
            rng.normal(4200.0, 800.0, n),
            rng.normal(0.017, 0.002, n),
            rng.integers(2007, 2010, n) * 1.0,
            rng.lognormal(10.0, 0.6, n),
            (rng.random(n) < 0.4) * 1.0,
            -rng.exponential(30.0, n),
        ]
    ).astype(np.float64)


@pytest.mark.parametrize("wide", [None, 10.0, 1000.0])
def test_columns_without_bounds_or_with_wide_ones_have_their_own_scales(wide: float | None) -> None:
    """Against the columns alone within three standard deviations, which nobody knows. Noise has fixed seeds.

    Of 40 other sets of runs none had a column above 2.0 of that, or held fewer than 90 %.
    """
    rows = of_any_size(10_000)
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    columns = [
        Column(f"c{at}", "number")
        if wide is None
        else Column(f"c{at}", "number", mean[at] - 2 * wide * spread[at], mean[at] + 4 * wide * spread[at])
        for at in range(6)
    ]
    alone = 3 * spread * 2 * sqrt(6) / (len(rows) * mu_for(TARGET.epsilon, TARGET.delta))
    made = points(TableMetadata(len(rows), tuple(columns)))
    off, held = list[Array](), 0
    for seed in range(RUNS):
        told = answer(made, rows, TARGET, seed).columns
        assert told is not None
        values, low, high = (
            np.array([float(getattr(each, name)) for each in told]) for name in ("value", "low", "high")
        )
        off.append(values - mean)
        held += int(((low <= mean) & (mean <= high)).sum())
    errors = np.sqrt(np.mean(np.square(off), axis=0))
    assert (errors <= 2.2 * alone).all(), errors / alone
    assert (np.abs(off) <= 6 * alone).all()
    assert held >= 0.88 * 6 * RUNS


def mostly_one_value(n: int) -> Array:
    """Columns of one value, or near it, but for some records that are far off to one side."""
    rng = np.random.default_rng(7)
    return np.column_stack(
        [
            np.where(rng.random(n) < 0.89, 10.0, rng.uniform(0.0, 10.0, n)),
            np.where(rng.random(n) < 0.80, 0.0, rng.lognormal(0.0, 1.0, n)),
            np.where(rng.random(n) < 0.93, 0.0, rng.uniform(0.0, 500.0, n)),
            rng.lognormal(6.0, 1.5, n),
            np.where(rng.random(n) < 0.85, 1.0, 1.0 + 0.01 * rng.exponential(1.0, n)),
            rng.normal(5.0, 2.0, n),
        ]
    )


@pytest.mark.parametrize(("epsilon", "least"), [(0.3, 1.0), (1.0, 0.85)])
def test_intervals_hold_or_are_warned_of_where_columns_are_mostly_one_value(
    epsilon: float, least: float
) -> None:
    """Noise has fixed seeds. At ε = .3 all columns are named as found through much noise.

    At ε = 1 all of 15 sets of runs held 89 % or more, 94 % in the mean, give or take 2 %: less than one in
    ten thousand other sets would fail. Of two sets without laws of a crowd far off, 62 % and 67 % held.
    """
    rows = mostly_one_value(6_000)
    mean = rows.mean(axis=0)
    made = points(TableMetadata(len(rows), tuple(Column(f"c{at}", "number") for at in range(6))))
    fine = 0
    for seed in range(RUNS):
        found = answer(made, rows, PrivacyTarget(epsilon, 1e-6), seed)
        assert found.columns is not None
        assert found.uncertainty is not None
        warned = any(
            "c0, c1, c2, c3, c4, c5 were found through so much noise" in words
            for words in found.uncertainty.warnings
        )
        held = [float(c.low) <= true <= float(c.high) for c, true in zip(found.columns, mean, strict=True)]
        fine += 6 if warned else sum(held)
    assert fine >= least * 6 * RUNS


def test_intervals_hold_where_filled_gaps_hide_a_tail() -> None:
    """Amounts to one digit, of which a sixth is filled, and few are ten times the usual one.

    Noise has fixed seeds. No column is named as found through much noise at ε = 1.
    """
    rng = np.random.default_rng(8)
    amounts: Array = np.round(rng.lognormal(0.0, 0.3, (8_000, 4)) + 0.2 * rng.pareto(2.2, (8_000, 4)), 1)
    amounts[rng.random(amounts.shape) < 0.17] = 1.0
    mean, held = amounts.mean(axis=0), 0
    made = points(TableMetadata(len(amounts), tuple(Column(f"c{at}", "number") for at in range(4))))
    for seed in range(RUNS):
        found = answer(made, amounts, TARGET, seed)
        assert found.columns is not None
        assert found.uncertainty is not None
        assert not any("so much noise" in words for words in found.uncertainty.warnings)
        held += sum(
            float(c.low) <= true <= float(c.high) for c, true in zip(found.columns, mean, strict=True)
        )
    assert held >= 0.88 * 4 * RUNS, held


def hostile() -> Iterator[tuple[str, Array]]:
    """Columns beside one that is ordinary."""
    n = 3_000
    usual = np.random.default_rng(6).normal(50.0, 5.0, n)
    far = np.zeros(n)
    far[0] = 1e300
    yield "one at 1e300", np.column_stack([usual, usual + far])
    yield "constant", np.column_stack([usual, np.full(n, 7.0)])
    yield "all zero", np.zeros((n, 2))
    yield "two far apart", np.column_stack([usual, np.where(np.arange(n) % 2, 1e9, -1e9)])
    yield "all at 1e300", np.column_stack([usual, np.full(n, 1e300)])
    yield "ten", np.column_stack([usual, usual])[:10]
    yield "one", np.column_stack([usual, usual])[:1]


@pytest.mark.parametrize("epsilon", [0.1, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("rows", [pytest.param(rows, id=name) for name, rows in hostile()])
def test_hostile_columns_have_an_honest_answer(rows: Array, epsilon: float, delta: float) -> None:
    made = points(TableMetadata(len(rows), (Column("a", "number"), Column("b", "number"))))
    target = PrivacyTarget(epsilon, delta)
    if len(rows) <= 10 or (epsilon < 1 and delta == 0):
        with pytest.raises(ValueError, match="so much noise would hide"):
            plan(FrechetMeanSpec(), made, target)
        return
    for seed in range(3):
        found = answer(made, rows, target, seed)
        assert found.columns is not None
        assert found.uncertainty is not None
        assert np.isfinite(found.point).all()
        assert np.isfinite([found.uncertainty.radius_95, found.uncertainty.noise]).all()
        first = found.columns[0]
        near = float(first.low) <= rows[:, 0].mean() <= float(first.high)
        assert near or found.uncertainty.warnings
        if epsilon == 3.0 and delta > 0 and len(rows) > 10:
            assert abs(float(first.value) - rows[:, 0].mean()) < 2.0


def test_several_owners_find_one_scale_together() -> None:
    """Half of the records each: the histograms of both are pooled, as all sums are. Noise has fixed seeds."""
    rows = of_any_size(10_000)
    made = points(TableMetadata(5_000, tuple(Column(f"c{at}", "number") for at in range(6))))
    planned = federation.plan(partial(plan, FrechetMeanSpec()), [made, made], [TARGET, TARGET])
    gates = [
        Gate(Records(part, 1, recipe=made.recipe), planned.statistics, owner.releases, ScaledNoise(seed=at))
        for at, (part, owner) in enumerate(zip(np.split(rows, 2), planned.parts, strict=True))
    ]
    found = federated_runs.run(planned, FRECHET_MEAN.run, gates)
    off = np.abs(found.point - rows.mean(axis=0)) / rows.std(axis=0)
    assert (off < 0.5).all(), off


def test_bounds_on_all_columns_are_not_looked_at() -> None:
    planned = plan(FrechetMeanSpec(), points(TABLE), TARGET)
    assert planned.scales is None
    assert "spreads" not in {release.statistic for release in planned.releases}
    some = (*TABLE.columns[:2], Column("open", "number"))
    planned = plan(FrechetMeanSpec(), points(TableMetadata(N, some)), TARGET)
    assert planned.scales is not None
    assert planned.scales.names == ("open",)
    (spreads,) = planned.named("spreads")
    assert spreads.size == planned.statistics["spreads"].size


@pytest.mark.parametrize(("n", "epsilon"), [(333, 1.0), (1_000, 0.3), (3_000, 0.1), (10_000, 0.1)])
def test_intervals_hold_the_means_as_soon_as_they_are_answered(n: int, epsilon: float) -> None:
    """In 40 other runs at least .99 of the intervals held. A rate of .95 fails 1 in 50 times."""
    rng = np.random.default_rng(12)
    rows = np.column_stack([rng.normal(4207, 800, n), rng.integers(2007, 2010, n), rng.normal(200, 14, n)])
    made = points(TableMetadata(n, tuple(Column(name, "number") for name in "abc")))
    right = [
        float(each.low) <= true <= float(each.high)
        for seed in range(20)
        for each, true in zip(
            answer(made, rows, PrivacyTarget(epsilon, n**-1.5), seed).columns or (),
            rows.mean(axis=0),
            strict=True,
        )
    ]
    assert np.mean(right) > 0.88


def test_where_noise_hides_columns_the_plan_refuses_before_a_charge() -> None:
    made = points(TableMetadata(333, tuple(Column(name, "number") for name in "abc")))
    with pytest.raises(ValueError, match="so much noise would hide where columns without low and high are"):
        plan(FrechetMeanSpec(), made, PrivacyTarget(0.3, 1e-4))

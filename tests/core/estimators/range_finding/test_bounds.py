"""Private bounds: quantiles that lie in their intervals, of columns and of distances, and hostile records."""

import numpy as np
import pytest

from privest import manifolds
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators import federation
from privest.estimators.range_finding import bounds
from privest.estimators.range_finding.bounds import BOUNDS, BoundsSpec
from privest.optim.pooling import Pooled
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

N = 5_000


def plane(n, dim):
    return PointsMetadata(n, {"name": "euclidean", "dim": dim})


def told(rows, shape, epsilon, seed=0, *, delta=1e-6, spec=None):
    plan = bounds.plan(spec or BoundsSpec(), shape, PrivacyTarget(epsilon, delta))
    gate = Gate(Records(rows, threads=1), plan.statistics, plan.releases, ScaledNoise(seed=[27, seed]))
    answer = BOUNDS.run(plan, gate)
    assert gate.remaining == 0
    return answer


def holds(quantile, values):
    """Whether the interval has the value that this share of the records is below."""
    true = np.sort(values)[int(quantile.level * len(values))]
    low = -np.inf if quantile.low is None else quantile.low
    high = np.inf if quantile.high is None else quantile.high
    return low <= true <= high and low <= quantile.value <= high


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_quantiles_lie_in_their_intervals(epsilon):
    """There are 1,080 at each ε; with a rate of .95 fewer than .93 of them were right once in 700 times."""
    rng = np.random.default_rng(3)
    rows = np.column_stack(
        [
            rng.normal(4200, 800, N),
            rng.lognormal(10, 1, N),
            rng.poisson(3, N),
            rng.integers(2007, 2010, N),
            rng.pareto(1.5, N),
            np.where(rng.random(N) < 0.6, 0, rng.normal(size=N)),
        ]
    )
    right = [
        holds(quantile, values)
        for seed in range(20)
        for place, values in zip(told(rows, plane(N, 6), epsilon, seed).places, rows.T, strict=True)
        for quantile in place.quantiles
    ]
    assert np.mean(right) > 0.93


def test_places_are_where_the_records_are():
    rng = np.random.default_rng(4)
    rows = np.column_stack([rng.normal(4200, 800, N), rng.normal(-3e-5, 1e-6, N)])
    places = told(rows, plane(N, 2), 1.0).places
    assert [each.name for each in places] == ["x1", "x2"]
    for place, values in zip(places, rows.T, strict=True):
        assert abs(place.center - np.median(values)) < 0.2 * values.std()
        assert place.scale == pytest.approx(values.std(), rel=0.2)
        beyond = np.mean((values < place.low) | (values > place.high))
        assert beyond < 0.06
        assert place.high - place.low < 10 * values.std()
        levels = [each.value for each in place.quantiles]
        assert levels == sorted(levels)


@pytest.mark.parametrize(
    "space", [{"name": "sphere", "dim": 4}, {"name": "spd", "dim": 3}, {"name": "lorentz", "dim": 3}]
)
def test_distances_on_curved_spaces(space):
    manifold, rng = manifolds.get(**space), np.random.default_rng(5)
    rows = manifold.exp_coordinates(
        manifold.reference, 0.1 * rng.standard_normal((N, manifold.coordinate_size))
    )
    center = manifold.exp_coordinates(manifold.reference, np.full(manifold.coordinate_size, 0.2))
    for spec, point in ((BoundsSpec(), manifold.reference), (BoundsSpec(center.tolist()), center)):
        (place,) = told(rows, PointsMetadata(N, space), 1.0, spec=spec).places
        away = np.linalg.norm(manifold.log_coordinates(point, rows), axis=-1)
        assert place.name == "distance"
        assert place.center == pytest.approx(np.median(away), rel=0.2)
        assert np.quantile(away, 0.9) < place.high < 3 * away.max()
        assert place.low >= 0


def table(n, *columns):
    return metadata_for(PointsMetadata, TableMetadata(n, columns), TableChoice())


def test_a_table_tells_of_its_numbers_and_dates_in_their_own_units():
    rng = np.random.default_rng(6)
    age, day = rng.uniform(20, 60, N), np.floor(rng.uniform(19_000, 19_100, N))
    gap = rng.random(N) < 0.3
    shape = table(
        N,
        Column("age", "number", 0, 1_000, missing="filled", fill=0.0),
        Column("sex", "category", categories=("f", "m")),
        Column("day", "date", 0, 30_000),
    )
    rows = np.column_stack([np.where(gap, np.nan, age), rng.integers(0, 2, N), day])
    answer = told(shape.recipe(rows), shape, 2.0, seed=2)
    answer = answer.in_columns(shape.recipe, None)
    ages, days = answer.places
    assert [ages.name, days.name] == ["age", "day"]
    # Gaps do not count, and not their fill either.
    assert 37 < ages.center < 43
    assert 0 <= ages.low < 25
    assert 57 < ages.high < 110
    assert "2022-02-01" < days.center < "2022-03-15"
    assert days.quantiles[0].value <= days.quantiles[-1].value


def test_a_table_without_numbers_is_refused_before_the_charge():
    shape = table(10, Column("sex", "category", categories=("f", "m")))
    with pytest.raises(ValueError, match="at least one column of numbers"):
        bounds.plan(BoundsSpec(), shape, PrivacyTarget(1.0, 1e-6))
    with pytest.raises(ValueError, match="point belongs to distances"):
        bounds.plan(BoundsSpec([0.0, 0.0]), plane(10, 2), PrivacyTarget(1.0, 1e-6))
    with pytest.raises(ValueError, match="point must be"):
        bounds.plan(
            BoundsSpec([2.0, 0.0, 0.0]),
            PointsMetadata(10, {"name": "sphere", "dim": 3}),
            PrivacyTarget(1.0, 1e-6),
        )


@pytest.mark.parametrize("n", [1, 2, 10, 500])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-6), (1.0, 0.0), (50.0, 1e-6)])
def test_hostile_records_have_finite_answers(n, epsilon, delta):
    """Intervals then have no ends, or what is told is right."""
    far = np.zeros(n)
    far[0] = 1e300
    rows = np.column_stack([far, np.full(n, 1e300), np.full(n, 5.0), np.where(np.arange(n) % 2, -9e99, 9e99)])
    answer = told(rows, plane(n, 4), epsilon, delta=delta)
    for place in answer.places:
        numbers = [place.center, place.scale, place.low, place.high]
        assert np.isfinite(numbers + [each.value for each in place.quantiles]).all()
        assert place.low <= place.center <= place.high
    assert np.isfinite(answer.uncertainty.radius_95)
    if n < 500 and epsilon < 1:
        assert answer.uncertainty.radius_95 > 0.5
        assert answer.uncertainty.warnings


def test_what_little_is_learned_is_said_beforehand():
    plan = bounds.plan(BoundsSpec(), plane(50, 10), PrivacyTarget(0.1, 1e-6))
    assert "little is learned" in plan.warnings[0]
    assert not bounds.plan(BoundsSpec(), plane(10**5, 3), PrivacyTarget(1.0, 1e-6)).warnings


def test_the_forecast_is_what_noise_does():
    """At the middle node of a normal column, over 200 runs: their deviation is right to a seventh in 95 %."""
    rows = np.random.default_rng(8).standard_normal((N, 1))
    plan = bounds.plan(BoundsSpec(), plane(N, 1), PrivacyTarget(0.3, 1e-6))
    off = []
    for seed in range(200):
        gate = Gate(Records(rows, threads=1), plan.statistics, plan.releases, ScaledNoise(seed=[28, seed]))
        median = BOUNDS.run(plan, gate).places[0].quantiles[4]
        off.append(np.mean(rows < median.value) - 0.5)
    assert (
        0.6 * plan.expected_error.standard_deviation
        < np.std(off)
        < 1.3 * plan.expected_error.standard_deviation
    )


def test_several_owners_have_one_answer():
    rng = np.random.default_rng(9)
    parts = [rng.normal(100, 5, (N, 2)), rng.normal(100, 5, (2 * N, 2))]
    shapes = [plane(len(rows), 2) for rows in parts]
    targets = [PrivacyTarget(1.0, 1e-6)] * 2
    joint = federation.plan(lambda shape, target: bounds.plan(BoundsSpec(), shape, target), shapes, targets)
    gates = [
        Gate(Records(rows, threads=1), joint.statistics, part.releases, ScaledNoise(seed=[29, at]))
        for at, (rows, part) in enumerate(zip(parts, joint.parts, strict=True))
    ]
    answer = BOUNDS.run(joint.course, Pooled(gates, joint.weights))
    assert all(abs(each.center - 100) < 1.5 and 3 < each.scale < 8 for each in answer.places)


@pytest.mark.parametrize(("columns", "n", "epsilon"), [(1, 5_000, 1.0), (1, 50_000, 0.3), (3, 50_000, 3.0)])
def test_where_budgets_add_up_few_columns_have_laplace_noise(columns, n, epsilon):
    """It is charged no δ, and shares are off by less; a budget that counts μ² keeps Gaussian noise."""
    table = TableMetadata(n, tuple(Column(f"c{at}", "number", -100.0, 100.0) for at in range(columns)))
    shape = metadata_for(PointsMetadata, table, TableChoice())
    plan = bounds.plan(BoundsSpec(), shape, PrivacyTarget(epsilon, n**-1.5))
    other = bounds.plan(BoundsSpec(), shape, PrivacyTarget(epsilon, n**-1.5, slack_per_mu_squared=0.0))
    assert plan.target == PrivacyTarget(epsilon, 0.0)
    assert {each.noise for each in other.releases} == {"gaussian"}
    assert plan.expected_error.radius_95 < other.expected_error.radius_95


def test_laplace_noise_that_hides_where_values_are_is_not_taken():
    """Its last histogram would be less noisy, but those before would miss a column without bounds."""
    plan = bounds.plan(BoundsSpec(), plane(N, 1), PrivacyTarget(0.3, 1e-6))
    pure = bounds.plan(BoundsSpec(), plane(N, 1), PrivacyTarget(0.3, 0.0))
    assert pure.expected_error.radius_95 < plan.expected_error.radius_95
    assert plan.target.delta > 0


def test_with_delta_0_histograms_are_as_fine_as_their_noise_allows():
    plan = bounds.plan(BoundsSpec(), plane(100_000, 1), PrivacyTarget(1.0, 0.0))
    assert plan.nodes > 300

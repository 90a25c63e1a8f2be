"""Ordinary columns, sets of columns and columns without bounds, and what a private mean of them comes to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.data.column_estimates import ColumnMean
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from testing.forecast_alarm import require_as_forecast
from testing.noise import ScaledNoise

N = 20_000

BOOLEAN = Column("c", "boolean")


def number(low: float | None = None, high: float | None = None) -> Column:
    """A column of numbers with these bounds."""
    return Column("c", "number", low, high)


@dataclass(frozen=True)
class Case:
    """Columns of one query.

    Attributes:
        name: short, in tables.
        rows: (n, columns).
        columns: as declared.
        epsilon: of the query.
        delta: of it; by default n^-1.5.
    """

    name: str
    rows: Array
    columns: tuple[Column, ...]
    epsilon: float = 1.0
    delta: float | None = None

    @property
    def target(self) -> PrivacyTarget:
        """(ε, δ) on a budget that counts μ², so that noise is Gaussian where δ is not 0."""
        delta = len(self.rows) ** -1.5 if self.delta is None else self.delta
        return PrivacyTarget(self.epsilon, delta, 0.0 if delta else None)

    @property
    def metadata(self) -> PointsMetadata:
        """The public facts of the query."""
        named = tuple(
            Column(f"c{at}", one.type, one.low, one.high, one.categories, one.missing, one.fill)
            for at, one in enumerate(self.columns)
        )
        made = metadata_for(PointsMetadata, TableMetadata(len(self.rows), named), TableChoice())
        assert isinstance(made, PointsMetadata)
        return made

    @property
    def textbook(self) -> Array:
        """(columns,) standard deviation of each mean by one noisy sum of all columns in their bounds."""
        target, count = self.target, len(self.columns)
        widths = np.array([1.0 if c.low is None or c.high is None else c.high - c.low for c in self.columns])
        if target.delta:
            return widths * sqrt(count) / (mu_for(target.epsilon, target.delta) * len(self.rows))
        return widths * sqrt(2) * count / (target.epsilon * len(self.rows))


@dataclass(frozen=True)
class Answers:
    """Values and intervals of several runs.

    Attributes:
        value: (runs, columns).
        low: (runs, columns); NaN where no interval is stated.
        high: likewise.
        truth: (columns,) means of the records, within their declared bounds.
        warned: (runs,) whether the answer warns.
    """

    value: Array
    low: Array
    high: Array
    truth: Array
    warned: NDArray[np.bool_]

    @property
    def stated(self) -> NDArray[np.bool_]:
        """(runs, columns) whether an interval is stated."""
        return np.isfinite(self.low)

    @property
    def coverage(self) -> float:
        """Share of the stated intervals that contain the truth; 1 where none is stated."""
        right = (self.low <= self.truth) & (self.truth <= self.high)
        return float(right[self.stated].mean()) if self.stated.any() else 1.0

    def error(self, unit: Array) -> float:
        """Root mean square error, in units of each column."""
        return sqrt(float(np.mean(np.square((self.value - self.truth) / unit))))

    def width(self, unit: Array) -> float:
        """Median half length of the stated intervals over 1.96 units of each column."""
        halves = (self.high - self.low) / (2 * 1.96 * unit)
        return float(np.median(halves[self.stated])) if self.stated.any() else np.nan


def answers(case: Case, runs: int, seed: int, spec: FrechetMeanSpec | None = None) -> Answers:
    """Ask for the means of a case's columns in so many runs, with noise of fixed seeds.

    Raises:
        TooGoodError: an answer is far better than its plan forecast.
    """
    shape = case.metadata
    plan = FRECHET_MEAN.plan(spec or FrechetMeanSpec(), shape, case.target)
    records = Records(np.ascontiguousarray(case.rows, dtype=float), 1, recipe=shape.recipe)
    assert shape.recipe is not None
    cells, warned = list[list[tuple[float, float, float]]](), list[bool]()
    for run in range(runs):
        gate = Gate(
            records, plan.statistics, plan.releases, ScaledNoise(seed=(seed, run, crc32(case.name.encode())))
        )
        found = FRECHET_MEAN.run(plan, gate).in_columns(shape.recipe, plan.expected_error)
        require_as_forecast(plan, found)
        assert found.columns is not None
        assert found.uncertainty is not None
        cells.append([_cell(column) for column in found.columns])
        warned.append(bool(found.uncertainty.warnings))
    value, low, high = np.moveaxis(np.array(cells), 2, 0)
    truth = np.array([_mean(values, one) for values, one in zip(case.rows.T, case.columns, strict=True)])
    return Answers(value, low, high, truth, np.array(warned))


def _cell(column: ColumnMean) -> tuple[float, float, float]:
    low, high = (np.nan if each is None else float(each) for each in (column.low, column.high))
    return float(column.value), low, high


def _mean(values: Array, column: Column) -> float:
    """The mean of values that are drawn in to the bounds that there are."""
    low, high = column.low, column.high
    return float(np.mean(np.clip(values, -np.inf if low is None else low, np.inf if high is None else high)))


def share(n: int, p: float) -> Array:
    """(n,) of 0 and 1, of which a share p is 1."""
    return (np.arange(n) < round(n * p)).astype(float)


def _one(
    name: str, values: NDArray[Any], column: Column, epsilon: float = 1.0, delta: float | None = None
) -> Case:
    return Case(name, np.asarray(values, dtype=float)[:, None], (column,), epsilon, delta)


def single_columns() -> Iterator[Case]:
    """Single columns with declared bounds."""
    rng = np.random.default_rng(47)
    for p in (0.001, 0.01, 0.05, 0.2, 0.5, 0.95):
        yield _one(f"share {p:g}", share(N, p), BOOLEAN)
    yield _one("share .05, ε = .1", share(N, 0.05), BOOLEAN, 0.1)
    yield _one("share .05, ε = 3", share(N, 0.05), BOOLEAN, 3.0)
    yield _one("share .05, δ = 0", share(N, 0.05), BOOLEAN, 1.0, 0.0)
    for n in (200, 1_000, 1_000_000):
        yield _one(f"share .05, n = {n:,}", share(n, 0.05), BOOLEAN)
    yield _one("share .05 as a number", share(N, 0.05), number(0.0, 1.0))
    rare = rng.poisson(5, N) * (rng.random(N) < 0.1)
    yield _one("counts, 90 % zero", rare, number(0.0, 20.0))
    yield _one("counts, 90 % zero, δ = 0", rare, number(0.0, 20.0), 1.0, 0.0)
    yield _one("counts, Poisson .03", rng.poisson(0.03, N), number(0.0, 10.0))
    yield _one("visits", np.minimum(rng.negative_binomial(0.6, 0.1, 4_400), 100), number(0.0, 100.0))
    spend = (rng.random(N) < 0.2) * np.exp(4 + rng.standard_normal(N))
    yield _one("spend, 80 % zero", np.minimum(spend, 5_000), number(0.0, 5_000.0))
    lognormal = np.exp(rng.standard_normal(N))
    yield _one("lognormal", np.minimum(lognormal, 200), number(0.0, 200.0))
    yield _one("lognormal, ε = .1", np.minimum(lognormal, 200), number(0.0, 200.0), 0.1)
    yield _one("lognormal, bounds 100×", np.minimum(lognormal, 200), number(0.0, 20_000.0))
    yield _one("Pareto 1.5", np.minimum(rng.pareto(1.5, N) + 1, 1_000), number(0.0, 1_000.0))
    yield _one("exponential", np.minimum(rng.exponential(1, N), 20), number(0.0, 20.0))
    income = np.minimum(np.exp(10.4 + 0.8 * rng.standard_normal(N)), 1e5)
    yield _one("income, top-coded", income, number(0.0, 1e5))
    yield _one("U-shaped", rng.beta(0.2, 0.2, N), number(0.0, 1.0))
    yield _one("ages in tens", np.clip(np.round(rng.normal(45, 18, N) / 10) * 10, 0, 110), number(0.0, 110.0))
    yield _one("constant", np.full(5_000, 30.0), number(0.0, 100.0))
    yield _one("constant at a bound", np.zeros(5_000), number(0.0, 100.0))
    yield _one("half at each bound", share(5_000, 0.5) * 100, number(0.0, 100.0))
    yield _one("uniform", rng.random(N), number(0.0, 1.0))
    normal = rng.normal(50, 10, N).clip(0, 110)
    for wide in (1, 10, 100, 1_000):
        yield _one(f"normal, bounds {wide:,}×", normal, number(55 - 55.0 * wide, 55 + 55.0 * wide))
    yield _one("normal, n = 200", normal[:200], number(0.0, 110.0))


def sets_of_columns() -> Iterator[Case]:
    """Several columns with declared bounds in one query."""
    rng = np.random.default_rng(48)

    def flips(*shares: float) -> Array:
        return np.column_stack([rng.random(N) < p for p in shares]).astype(float)

    age, bmi = rng.normal(45, 15, N).clip(0, 110), rng.normal(25, 4, N).clip(10, 60)
    of_age, of_bmi = number(0.0, 110.0), number(10.0, 60.0)
    yield Case("age, bmi", np.column_stack([age, bmi]), (of_age, of_bmi))
    yield Case("age, yes .05", np.column_stack([age, flips(0.05)]), (of_age, BOOLEAN))
    yield Case("yes .01, .02", flips(0.01, 0.02), (BOOLEAN,) * 2)
    rare = np.column_stack([age, bmi, flips(0.01, 0.05, 0.002)])
    yield Case("age, bmi, three rare", rare, (of_age, of_bmi, BOOLEAN, BOOLEAN, BOOLEAN))
    yield Case("five yes .05", flips(*[0.05] * 5), (BOOLEAN,) * 5)
    yield Case("five yes .5", flips(*[0.5] * 5), (BOOLEAN,) * 5)
    yield Case("twenty yes .05", flips(*[0.05] * 20), (BOOLEAN,) * 20)
    yield Case("twenty yes .05, ε = .3", flips(*[0.05] * 20), (BOOLEAN,) * 20, 0.3)
    lognormals = np.minimum(np.exp(rng.standard_normal((N, 3))), 200)
    yield Case("three lognormals", lognormals, (number(0.0, 200.0),) * 3)
    counts = np.minimum(rng.poisson(np.geomspace(0.03, 1, 8), (N, 8)), 10).astype(float)
    yield Case("eight counts", counts, (number(0.0, 10.0),) * 8)
    ten = rng.normal(50, 10, (N, 10))
    yield Case("three normals", ten[:, :3].clip(0, 110), (of_age,) * 3)
    yield Case("ten normals", ten.clip(0, 110), (of_age,) * 10)
    yield Case("three normals, bounds 10×", ten[:, :3], (number(-495.0, 605.0),) * 3)
    yield Case("ten normals, bounds 10×", ten, (number(-495.0, 605.0),) * 10)
    mixed = np.column_stack([age, rng.exponential(1, N).clip(0, 20), flips(0.3, 0.02)])
    yield Case("age, cost, yes .3, yes .02", mixed, (of_age, number(0.0, 20.0), BOOLEAN, BOOLEAN))


def open_columns() -> Iterator[Case]:
    """Single columns without bounds."""
    rng = np.random.default_rng(49)
    shapes: Sequence[tuple[str, NDArray[Any]]] = (
        ("normal", rng.normal(50, 10, N)),
        ("normal about 0", rng.normal(0, 1, N)),
        ("normal about 1e6", rng.normal(1e6, 10, N)),
        ("uniform", rng.random(N)),
        ("exponential", rng.exponential(1, N)),
        ("lognormal", np.exp(rng.standard_normal(N))),
        ("lognormal, σ = 2", np.exp(2 * rng.standard_normal(N))),
        ("Pareto 1.5", rng.pareto(1.5, N) + 1),
        ("Pareto 3", rng.pareto(3, N) + 1),
        ("Student 3", rng.standard_t(3, N)),
        ("Student 2", rng.standard_t(2, N)),
        ("Cauchy", rng.standard_cauchy(N)),
        ("counts, 90 % zero", rng.poisson(5, N) * (rng.random(N) < 0.1)),
        ("share .05", share(N, 0.05)),
        ("spend, 80 % zero", (rng.random(N) < 0.2) * np.exp(4 + rng.standard_normal(N))),
        ("5 % far off", np.where(rng.random(N) < 0.05, 1_000, 0) + rng.normal(0, 1, N)),
        ("years", rng.integers(2007, 2010, N)),
    )
    for name, values in shapes:
        yield _one(name, values, number())

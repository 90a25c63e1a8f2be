"""Means of all columns of a table in one question, beside a question on each column by itself.

All have the same total budget: of d columns each has μ²/d. A column by itself is asked in three ways: as the
service answers it, with its public bounds; by one Gaussian sum within these bounds; and as somebody would who
knows the rows, by one such sum within the quantiles for which clipping and noise err least together.

What is public can divide the noise among columns of numbers no better: each of them in [−1, 1] costs the
same, and the sum of their squared errors Σ σ² is least, for a given Σ 4/σ², where all have the same noise.
"""

from math import hypot, sqrt

import numpy as np

from benchmarks.real_table import Table
from benchmarks.report import publish, table
from benchmarks.tables import table as rows_of
from privest.arrays import Array
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec, Mean
from privest.privacy.accounting import PrivacyTarget, epsilon_within, mu_for
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

TABLES = ("housing", "women at work", "schools", "health costs", "wine")
EPSILON, RUNS = 1.0, 20
_QUANTILES = np.array([0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2])


def metadata_of(shown: Table) -> TableMetadata:
    """The public facts of a table: rough bounds of every column."""
    bounds = zip(shown.columns, shown.low.tolist(), shown.high.tolist(), strict=True)
    return TableMetadata(shown.n, tuple(Column(name, "number", low, high) for name, low, high in bounds))


def answer(meta: PointsMetadata, rows: Array, target: PrivacyTarget, seed: int) -> Mean:
    """The answer of one run, with the intervals of its columns."""
    planned = frechet_mean.plan(FrechetMeanSpec(), meta, target)
    records = Records(rows, 1, recipe=meta.recipe)
    found = frechet_mean.FRECHET_MEAN.run(
        planned, Gate(records, planned.statistics, planned.releases, ScaledNoise(seed=seed))
    )
    assert meta.recipe is not None
    return found.in_columns(meta.recipe, planned.expected_error)


def _asked(facts: TableMetadata, names: tuple[str, ...] | None) -> PointsMetadata:
    made = metadata_for(PointsMetadata, facts, TableChoice(names))
    assert isinstance(made, PointsMetadata)
    return made


def together(shown: Table, runs: int) -> tuple[float, float]:
    """Root mean square error of the columns' images, and the share of intervals that hold the mean."""
    target = PrivacyTarget(EPSILON, shown.n**-1.5)
    made, exact = _asked(metadata_of(shown), None), shown.bounded.mean(axis=0)
    units = shown.rows.mean(axis=0)
    squares, held = list[float](), list[bool]()
    for seed in range(runs):
        found = answer(made, shown.rows, target, seed)
        assert found.columns is not None
        squares.append(float(np.mean((found.point - exact) ** 2)))
        told = zip(found.columns, units, strict=True)
        held += [
            (each.low is None or float(each.low) <= unit) and (each.high is None or unit <= float(each.high))
            for each, unit in told
        ]
    return sqrt(np.mean(squares)), float(np.mean(held))


def apart(shown: Table, runs: int) -> float:
    """Root mean square error of the columns' images, each asked by itself with its part of the budget."""
    delta = shown.n**-1.5
    target = PrivacyTarget(epsilon_within(mu_for(EPSILON, delta) / sqrt(shown.dim), delta), delta)
    facts, exact = metadata_of(shown), shown.bounded.mean(axis=0)
    squares = [
        float(answer(_asked(facts, (name,)), shown.rows, target, seed).point[0] - exact[at]) ** 2
        for at, name in enumerate(shown.columns)
        for seed in range(runs)
    ]
    return sqrt(np.mean(squares))


def bounded(shown: Table) -> float:
    """Root mean square error of the columns' images, each by one Gaussian sum within its public bounds."""
    return 2 * sqrt(shown.dim) / (shown.n * mu_for(EPSILON, shown.n**-1.5))


def knowing(shown: Table) -> float:
    """Root mean square error of the columns' images, each in the interval that is best for these rows."""
    noise = bounded(shown) / 2

    def least(x: Array) -> float:
        lows, highs = np.quantile(x, _QUANTILES), np.quantile(x, 1 - _QUANTILES)
        return min(
            hypot(float(np.clip(x, low, high).mean() - x.mean()), noise * (high - low))
            for low in lows
            for high in highs
            if high > low or x.min() == x.max()
        )

    return sqrt(np.mean([least(x) ** 2 for x in shown.bounded.T]))


def main() -> None:
    """Write the section."""
    lines = list[list[str]]()
    for name in TABLES:
        shown = rows_of(name)
        joint, held = together(shown, RUNS)
        alone = (apart(shown, RUNS), bounded(shown), knowing(shown))
        ratios = [f"{joint / each:.2f}" for each in alone]
        lines.append([name, f"{shown.n:,}", f"{shown.dim}", f"{joint:.2g}", *ratios, f"{held:.1%}"])
    body = f"""
One question on all columns at ε = {EPSILON:g}, {RUNS} runs. The error is of standardised columns, root mean
square. It is divided by that of each column alone on the same total budget: as the service answers it, by one
Gaussian sum within the column's public bounds, and by one within bounds that only the rows tell. The last
ratio is above 1.3 where some columns' public bounds are much wider than their rows and others' are not: all
standardised columns have the same noise, and no public fact tells which of them need less.

"""
    header = ["table", "rows", "columns", "error", "÷ service", "÷ public bounds", "÷ best bounds", "in 95 %"]
    publish("column-means", "Means of columns", body + table(header, lines))


if __name__ == "__main__":
    main()

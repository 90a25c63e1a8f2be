"""Time of private means of many rows in memory, beside numpy's clip and mean of the same array."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np

from benchmarks.report import spread, table
from privest.arrays import Array
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate

ROWS, COLUMNS, ROUNDS = 10_000_000, 10, 5


@dataclass(frozen=True)
class Timing:
    """Seconds of several rounds, in which all were measured in turn.

    Attributes:
        ours: (rounds, 2) processor and wall time of plan and run.
        theirs: likewise of numpy's clip and mean.
        in_place: of these, clipped into an array that is there already.
    """

    ours: Array
    theirs: Array
    in_place: Array

    def cells(self) -> Iterator[str]:
        """Yield seconds of all three and the ratios of ours, by processor and by wall time."""
        for ours, theirs, in_place in zip(self.ours.T, self.theirs.T, self.in_place.T, strict=True):
            yield from (f"{np.median(seconds):.2f}" for seconds in (theirs, in_place, ours))
            yield from (spread((ours / other).tolist(), ".2f") for other in (theirs, in_place))


def _seconds(action: Callable[[], object]) -> tuple[float, float]:
    processor, wall = process_time(), perf_counter()
    action()
    return process_time() - processor, perf_counter() - wall


def measured(rows: Array, high: float, rounds: int = ROUNDS) -> Timing:
    """Times of plan and run, with as many threads as usual, and of numpy's clip and mean."""
    columns = tuple(Column(f"c{at}", "number", 0.0, high) for at in range(rows.shape[1]))
    shape = metadata_for(PointsMetadata, TableMetadata(len(rows), columns), TableChoice())
    assert isinstance(shape, PointsMetadata)
    there = np.empty_like(rows)

    def ours() -> object:
        plan = FRECHET_MEAN.plan(FrechetMeanSpec(), shape, PrivacyTarget(1.0, len(rows) ** -1.5, 0.0))
        records = Records(rows, recipe=shape.recipe)
        return FRECHET_MEAN.run(plan, Gate(records, plan.statistics, plan.releases))

    def theirs() -> object:
        return np.clip(rows, 0.0, high).mean(axis=0)

    def in_place() -> object:
        return np.clip(rows, 0.0, high, out=there).mean(axis=0)

    in_place()
    taken = np.array([[_seconds(each) for each in (ours, theirs, in_place)] for _ in range(rounds)])
    return Timing(*np.moveaxis(taken, 1, 0))


def told() -> str:
    """The section on time."""
    rows = np.random.default_rng(51).normal(50, 10, (ROWS, COLUMNS))
    lines = list[list[str]]()
    for name, high in (("0 to 110", 110.0), ("0 to 11,000, and so clipped closer", 11_000.0)):
        cells = list(measured(rows, high).cells())
        half = len(cells) // 2
        lines += [[name, "processor", *cells[:half]], [name, "wall", *cells[half:]]]
    header = ["bounds", "time", "numpy", "numpy in place", "ours", "ours ÷ numpy", "ours ÷ in place"]
    return f"""
Means of {COLUMNS} columns of {ROWS:,} rows in memory, with their plan, by as many threads as usual,
over numpy's clip and mean of the same array, which take one: seconds and ratios, medians of {ROUNDS} rounds
in which both were measured in turn, ratios with the least and the most. The target is 2. *In place*: numpy
clips into an array that is there already, which saves most of its time, as no new memory is asked for.

The load of the machine was {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores. Above 1 only ratios say
something, above all those of processor time.

{table(header, lines)}
"""

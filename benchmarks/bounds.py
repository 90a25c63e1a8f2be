"""Private bounds on real tables: how often quantiles lie in their intervals, and medians beside OpenDP's.

No bounds are declared. OpenDP chooses a median among 1,000 candidates, for which somebody must name bounds:
the columns' own rough ones, or such that are a hundred times as wide. It has a part of the budget for each
column, and tells one quantile of each; ours tells nine, with intervals.
"""

from math import log, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.peers import call
from benchmarks.real_table import Table
from benchmarks.report import publish, table
from benchmarks.tables import tables
from privest.arrays import Array
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.estimators.range_finding import bounds
from privest.estimators.range_finding.bounds import BOUNDS, Bounds, BoundsSpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

EPSILONS, DELTA, RUNS = (0.1, 0.3, 1.0, 3.0), 1e-6, 20
_MOST_COLUMNS, _MOST_ROWS = 8, 10_000


def answers(rows: Array, epsilon: float, runs: int) -> list[Bounds]:
    """Answers about all columns, without bounds."""
    shape = PointsMetadata(len(rows), {"name": "euclidean", "dim": rows.shape[1]})
    plan = bounds.plan(BoundsSpec(), shape, PrivacyTarget(epsilon, DELTA))
    records = Records(rows, threads=1)
    return [
        BOUNDS.run(plan, Gate(records, plan.statistics, plan.releases, ScaledNoise(seed=[30, seed])))
        for seed in range(runs)
    ]


def off(values: Array, found: float) -> float:
    """How far a number is from the median, over half of what lies between the levels .05 and .95."""
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    return abs(found - float(median)) / max(float(high - low) / 2, 1e-300)


def measured(shown: Table, epsilon: float, runs: int) -> tuple[float, float, float, float]:
    """Coverage, median error of medians, share of them with two ends, and of records beyond the bounds."""
    rows = shown.rows[:_MOST_ROWS, :_MOST_COLUMNS]
    held, errors, known, beyond = list[bool](), list[float](), list[bool](), list[float]()
    for answer in answers(rows, epsilon, runs):
        for place, values in zip(answer.places, np.sort(rows, axis=0).T, strict=True):
            for each in place.quantiles:
                low = -np.inf if each.low is None else float(each.low)
                high = np.inf if each.high is None else float(each.high)
                held.append(low <= values[int(each.level * len(values))] <= high)
            errors.append(off(values, float(place.center)))
            median = place.quantiles[len(place.quantiles) // 2]
            known.append(median.low is not None and median.high is not None)
            beyond.append(float(np.mean((values < place.low) | (values > place.high))))
    return float(np.mean(held)), float(np.median(errors)), float(np.mean(known)), float(np.median(beyond))


def peers(shown: list[Table], wide: float) -> tuple[str, Array]:
    """OpenDP's version, and the median error of (tables, ε), with bounds so many times too wide."""
    with TemporaryDirectory() as folder:
        paths = list[Path]()
        for at, one in enumerate(shown):
            rows = one.rows[:_MOST_ROWS, :_MOST_COLUMNS]
            low, high = one.low[:_MOST_COLUMNS], one.high[:_MOST_COLUMNS]
            middle, half = (low + high) / 2, wide * (high - low) / 2
            for place, epsilon in enumerate(EPSILONS):
                paths.append(Path(folder) / f"{at}-{place}.npz")
                np.savez(paths[-1], x=rows, low=middle - half, high=middle + half, rho=zcdp(epsilon))
        told = call("quantiles.py", *paths)
    found = [
        float(
            np.median([off(one.rows[:_MOST_ROWS, at], each[at]) for each in runs for at in range(len(each))])
        )
        for one, runs in zip([one for one in shown for _ in EPSILONS], told["found"], strict=True)
    ]
    return told["version"], np.array(found).reshape(len(shown), -1)


def zcdp(epsilon: float) -> float:
    """The ρ that is (ε, δ)-private by Bun and Steinke (2016), Proposition 1.3."""
    return (sqrt(epsilon + log(1 / DELTA)) - sqrt(log(1 / DELTA))) ** 2


def main() -> None:
    """Measure, and publish."""
    shown = [one for one in tables("TUNE") if one.n >= 500]
    version, right = peers(shown, 1.0)
    _, wide = peers(shown, 100.0)
    lines = list[list[str]]()
    for at, one in enumerate(shown):
        for place, epsilon in enumerate(EPSILONS):
            held, rank, known, beyond = measured(one, epsilon, RUNS)
            own = [f"{held:.3f}", f"{known:.2f}", f"{beyond:.3f}", f"{rank:.3f}"]
            lines.append(
                [one.name, f"{epsilon:g}", *own, f"{right[at, place]:.3f}", f"{wide[at, place]:.3f}"]
            )
    titles = ["table", "ε", "coverage", "medians known", "beyond", "ours", "OpenDP", "OpenDP, wide"]
    publish("bounds", "Private bounds of columns", _ABOUT.format(RUNS, version) + table(titles, lines))


_ABOUT = """\
All columns (the first eight at most) of tables of 500 rows or more in one question, δ = 1e-6, {} runs: the
share of the nine quantiles that lie in their intervals of 95 %; the share of medians of which both ends are
known; the median share of the records beyond the bounds that are told, which is to be .02 at most; and how
far a median is off, over half of what lies between the levels .05 and .95, in the median over runs and
columns.
Ours declares nothing. OpenDP {} chooses among 1,000 even candidates by the same ε and δ over all columns
together, by zCDP, within bounds that are right or a hundred times too wide.

Tumult Analytics 0.21 tells bounds, too, and needs Spark. It was installed and asked about columns of
diamonds by the same zCDP: in ten minutes on this machine, busy with other work, it told two, −2 to 2 and
−128 to 128, which are 3.9 and 30 times as wide as what 98 % of the values fill, with none beyond. It is left
out of the table.

"""


if __name__ == "__main__":
    main()

"""Fréchet means by default on real tables: coverage of the stated regions, and their width beside the ideal.

The ideal knows the rows: of all clips that an analyst may give it takes the one of least error, about the
public centre and with the whole budget on noise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks import table_points, tables
from benchmarks.report import table
from privest import manifolds
from privest.arrays import Array
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanPlan, FrechetMeanSpec, Mean
from privest.manifolds import Manifold
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

mpl.use("Agg")
from matplotlib import pyplot as plt

EPSILONS, DELTA, RUNS = (0.1, 0.3, 1.0, 3.0), 1e-6, 100
_MOST_ROWS = 10_000
"""Rows that are taken of a table, evenly spaced, so that all runs take a quarter of an hour."""

_TRIED, _CLIPS = 8, 10
"""Runs for each clip of the ideal, and how many clips it tries."""


@dataclass(frozen=True)
class Case:
    """Records with what is public of them.

    Attributes:
        name: of the table.
        points: (n, *shape).
        manifold: name and parameters.
        radius: public, about the reference: from the columns' bounds, or the largest distance.
    """

    name: str
    points: Array
    manifold: dict[str, Any]
    radius: float

    @cached_property
    def space(self) -> Manifold:
        """The manifold."""
        return manifolds.get(**self.manifold)

    @cached_property
    def mean(self) -> Array:
        """The mean of the records: of what descents from the reference and from three records find, the best.

        A descent may end in a saddle: from the reference it does, for planes of pens.
        """
        ends = [self._descended(start) for start in (self.space.reference, *self.points[:3])]
        return min(ends, key=lambda end: float(np.mean(np.square(self.space.dist(end, self.points)))))

    def _descended(self, found: Array) -> Array:
        for _ in range(300):
            step = self.space.log_sum(found, self.points) / len(self.points)
            found = self.space.exp_coordinates(found, 0.5 * step)
            if np.linalg.norm(step) < 1e-10:
                break
        return found

    def plan(self, spec: FrechetMeanSpec, epsilon: float) -> FrechetMeanPlan:
        """A plan with the public facts."""
        shape = PointsMetadata(len(self.points), self.manifold, None, self.radius)
        return frechet_mean.plan(spec, shape, PrivacyTarget(epsilon, DELTA))

    def answers(self, plan: FrechetMeanPlan, runs: int) -> list[Mean]:
        """Answers to the same question, with fresh noise each."""
        records = Records(self.points, threads=1)
        noises = (ScaledNoise(seed=[11, seed]) for seed in range(runs))
        return [
            FRECHET_MEAN.run(plan, Gate(records, plan.statistics, plan.releases, noise)) for noise in noises
        ]

    def errors(self, found: Sequence[Mean]) -> Array:
        """Distances of answers from the mean."""
        return np.array([float(self.space.dist(self.mean, each.point)) for each in found])

    def ideal(self, epsilon: float) -> Array:
        """Errors with the best clip in hindsight."""
        near = np.asarray(self.space.dist(self.mean, self.points))
        clips = np.geomspace(
            max(0.3 * float(np.median(near)), 1e-9 * self.radius),
            min(self.radius, 1.2 * float(near.max())),
            _CLIPS,
        )
        specs = [FrechetMeanSpec(clip=float(clip), diagnostics=False) for clip in clips]
        tried = (self.errors(self.answers(self.plan(spec, epsilon), _TRIED)) for spec in specs)
        return min(tried, key=lambda off: float(np.mean(off**2)))


def cases(half: tables.Half) -> Iterator[Case]:
    """Records of a half: tables in the units of their spread, and points of manifolds."""
    for each in tables.tables(half):
        ends = np.abs((np.stack([each.low, each.high]) - each.center) / each.scale)
        radius = float(np.linalg.norm(ends.max(axis=0)))
        yield Case(each.name, _some(each.standardised), {"name": "euclidean", "dim": each.dim}, radius)
    for made in table_points.points(half):
        away = float(made.space.dist(made.space.reference, made.points).max())
        yield Case(made.name, _some(made.points), made.manifold, away)


def _some(rows: Array) -> Array:
    return np.ascontiguousarray(rows[:: -(-len(rows) // _MOST_ROWS)])


@dataclass(frozen=True)
class Line:
    """What runs on one table at one ε came to; the texts of HEADER say what the numbers are."""

    name: str
    size: str
    epsilon: float
    noise: float
    whole: float
    width: float
    error: float
    useless: float
    furthest: float
    forecast: str

    @property
    def shown(self) -> tuple[str, ...]:
        """The line of the table."""
        values = [getattr(self, field.name) for field in fields(self)]
        rounded = [f"{each:.2f}" if isinstance(each, float) else each for each in values]
        return (*rounded[:2], f"{self.epsilon:g}", *rounded[3:])


HEADER = ("records", "n × size", "ε", "noise", "whole", "width", "error", "useless", "furthest", "foretold")


def line(case: Case, epsilon: float, runs: int) -> Line:
    """Runs by default, beside the ideal."""
    plan, ideal = case.plan(FrechetMeanSpec(), epsilon), case.ideal(epsilon)
    found = case.answers(plan, runs)
    off, told = case.errors(found), [each.uncertainty for each in found]
    stated = np.array([each.radius_95 for each in told if each])
    noise = np.array([each.noise for each in told if each])
    useless = [any("expect no information" in words for words in each.warnings) for each in told if each]
    root, high = sqrt(float(np.mean(off**2))), float(np.quantile(off, 0.95))
    foretold = (plan.expected_error.radius_95, plan.expected_error.unfavourable or np.nan)
    return Line(
        case.name,
        f"{len(case.points):,} × {case.points[0].size}",
        epsilon,
        float(np.mean(off <= noise)),
        float(np.mean(off <= stated)),
        float(np.median(stated) / np.quantile(ideal, 0.95)),
        root / sqrt(float(np.mean(ideal**2))),
        float(np.mean(useless)),
        float(off.max()) / root,
        "–".join(f"{each / high:.3g}" for each in foretold),
    )


def lines(half: tables.Half, runs: int = RUNS) -> Iterator[Line]:
    """The table of a half, row by row."""
    for case in cases(half):
        for epsilon in EPSILONS:
            found = line(case, epsilon, runs)
            print(*found.shown, sep=" | ", flush=True)
            yield found


def picture(found: Sequence[Line], path: Path) -> None:
    """Coverage and width of every table, a colour for each ε; hollow where answers warn of being useless."""
    names = list(dict.fromkeys(each.name for each in found))
    figure, axes = plt.subplots(2, 1, figsize=(9.6, 6.4), sharex=True)
    axes[0].axhspan(0.93, 0.99, color="#dddddd")
    axes[1].axhline(2, color="#999999", linestyle="--", linewidth=1)
    for place, (epsilon, colour) in enumerate(
        zip(EPSILONS, ("#1d4fd7", "#d97706", "#15803d", "#b91c1c"), strict=True)
    ):
        for each in (each for each in found if each.epsilon == epsilon):
            at, filled = names.index(each.name) + 0.15 * (place - 1.5), each.useless < 0.5
            style = {"color": colour, "markerfacecolor": colour if filled else "none", "markersize": 5}
            axes[0].plot(at, each.whole, "o", **style)
            axes[1].semilogy(at, each.width, "o", **style)
        axes[0].plot([], [], "o", color=colour, label=f"ε = {epsilon:g}")
    axes[0].set(ylabel="within the stated region", title="Fréchet means by default")
    axes[0].legend(fontsize=8, loc="lower left", ncols=4)
    axes[1].set(ylabel="width over the ideal")
    axes[1].set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


_SUMMARY = (
    "answers not warned of",
    "coverage, median (least)",
    "below .93",
    "above .99",
    "width, median",
    "above 2",
    "error, median",
    "above 1.5",
)


def summary(found: Sequence[Line]) -> str:
    """What the lines say together."""
    useful = [each for each in found if each.useless < 0.5]
    whole, width, error = (
        np.array([getattr(each, of) for each in useful]) for of in ("whole", "width", "error")
    )
    return table(
        _SUMMARY,
        [
            (
                f"{len(useful)} of {len(found)} cells",
                f"{np.median(whole):.2f} ({whole.min():.2f})",
                int(np.sum(whole < 0.93)),
                int(np.sum(whole > 0.99)),
                f"{np.median(width):.2f}",
                int(np.sum(width > 2)),
                f"{np.median(error):.2f}",
                int(np.sum(error > 1.5)),
            )
        ],
    )


def report(half: tables.Half, runs: int = RUNS) -> None:
    """Measure a half, and publish it with a picture."""
    found = list(lines(half, runs))
    section = tables.Section.of(half, "coverage-means", "Fréchet means: coverage")
    picture(found, section.picture)
    body = f"""
Means by default (the run finds the clip), {runs} runs, δ = {DELTA:g}, at most {_MOST_ROWS:,} records of a
table. The records of tables are in rough public centres and spreads, and the public radius holds the columns'
rough bounds. A cell is one table at one ε. {section.seen}

{summary(found)}

![Coverage and width of means on real tables](pictures/{section.name}.png)

The band is .93 to .99, and the dashed line a width of 2. Most regions are wider than they would have to be
for their table, because no histogram can tell a long tail that few records make from none. Columns:

- noise, whole: share of runs whose distance from the mean is within the stated noise, and within `radius_95`;
- width: median `radius_95` over the 95 % quantile of the error with the best clip in hindsight;
- error: root mean square error over that clip's;
- useless: share of answers that warn of being so;
- furthest: the largest error in units of the root mean square one;
- foretold: the forecast's `radius_95` and `unfavourable` over the 95 % quantile of the errors. The forecast
  is for records as far from their mean as the public radius; nearer ones have less error in proportion.

{table(HEADER, [each.shown for each in found])}
"""
    section.publish(body)


def main() -> None:
    """Measure both halves, and publish them."""
    report("TUNE")
    report("FINAL")


if __name__ == "__main__":
    main()

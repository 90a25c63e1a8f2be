"""Subspaces of real tables: how often an answer lies within its stated radius, and how wide that is.

Of robust PCA with defaults, against the target that each answer names: the exact principal subspace of the
rows on the sphere or, where the run chose a robust loss, the same plan's answer without noise. Of matrix
completion on tables of which a share of the entries is hidden, against its target too, which is the same
plan's answer without noise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
import numpy as np
from scipy.stats import binom

from benchmarks.real_table import Half, Table
from benchmarks.report import table
from benchmarks.robust_pca import squared_distance
from benchmarks.tables import Section, tables
from privest.arrays import Array
from privest.data.metadata import PartialVectorsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.estimators.subspace import adaptive, matrix_completion, robust_pca
from privest.estimators.subspace.matrix_completion import MatrixCompletionSpec
from privest.estimators.subspace.robust_pca import RobustPCASpec
from privest.estimators.subspace.spherical import on_sphere
from privest.estimators.uncertainty import Uncertainty
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from privest.privacy.noise import NoiseSource
from testing.noise import ScaledNoise, ScriptedNoise

mpl.use("Agg")
from matplotlib import pyplot as plt

RANKS, EPSILONS, RUNS = (1, 3), (0.1, 0.3, 1.0, 3.0), 40
COLOURS = ("#1d4fd7", "#d97706", "#15803d")
OTHERS = ("squared", "absolute", "redescending")
"""Losses beside which the default is put, each against its own answer without noise."""

_MOST_ROWS = 4_000
"""Rows that are taken of a table, evenly spaced, so that all runs take some ten minutes."""

_RUNS_BESIDE, _EPSILON_BESIDE = 20, 1.0
"""Runs of each loss beside the default, at one ε."""

_KNOWN = 0.6
"""Share of the entries that matrix completion is shown."""

_CHANCE = 0.01
"""A cell misses its coverage if fewer runs are covered than chance leaves in this share of cells with .95."""

_FAR, _NEAR = 1.0, 0.3
"""A wrong direction: further off than the first while `squared` is within the second."""


@dataclass(frozen=True)
class Cell:
    """Runs of one estimator on one table.

    Attributes:
        label: table, rank and ε.
        epsilon: ε alone.
        distances: of each answer from its target.
        radii: stated.
        warned: how many answers say that they tell little.
        robust: how many runs chose a robust loss.
        ratio: the default's median distance over the least of its own losses'; None where not measured.
        wrong: how many runs found a wrong direction.
        rivals: how many answers say that rows gather elsewhere as well.
        beside: the same of losses that are chosen.
    """

    label: str
    epsilon: float
    distances: Array
    radii: Array
    warned: int
    robust: int = 0
    ratio: float | None = None
    wrong: int = 0
    rivals: int = 0
    beside: tuple["Cell", ...] = ()

    @property
    def covered(self) -> float:
        """Share of runs within their radius."""
        return float(np.mean(self.distances <= self.radii))

    @property
    def misses(self) -> bool:
        """Whether fewer runs are within their radius than chance explains, by the binomial law."""
        hits, runs = int(np.sum(self.distances <= self.radii)), len(self.distances)
        return float(binom.cdf(hits, runs, 0.95)) < _CHANCE

    @property
    def width(self) -> float:
        """Median radius over the 95 % quantile of the distances, which only the rows tell."""
        return median(self.radii) / max(float(np.quantile(self.distances, 0.95)), 1e-300)

    @property
    def is_useful(self) -> bool:
        """Whether most answers are not warned of."""
        return 2 * self.warned <= len(self.distances)


def _delta(n: int) -> float:
    return min(1e-5, 1 / (10 * n))


def _rows(of: Table) -> Array:
    rows = of.standardised
    return np.ascontiguousarray(rows[:: -(-len(rows) // _MOST_ROWS)])


def _tells_little(found: Uncertainty) -> bool:
    return any("leaves open" in warning for warning in found.warnings)


def _apart(one: Array, other: Array) -> float:
    return sqrt(squared_distance(one, other))


def _answer(estimator: Any, plan: Any, rows: Array, noise: NoiseSource) -> Any:
    gate = Gate(Records(rows, threads=1), plan.statistics, plan.releases, noise)
    return estimator.run(plan, gate)


def _of(label: str, epsilon: float, targets: Sequence[Array], found: Sequence[Any]) -> Cell:
    """What answers came to, each beside its target."""
    told: list[Uncertainty] = [each.uncertainty for each in found]
    return Cell(
        label,
        epsilon,
        np.array([_apart(target, each.basis) for target, each in zip(targets, found, strict=True)]),
        np.array([each.radius_95 for each in told]),
        sum(map(_tells_little, told)),
        rivals=sum(any("rows gather" in words for words in each.warnings) for each in told),
    )


def of_loss(label: str, rows: Array, rank: int, epsilon: float, loss: str, runs: int) -> Cell:
    """Runs on a loss that was chosen, beside the answer without noise."""
    n, dim = rows.shape
    spec = RobustPCASpec(rank, loss=loss, adaptive=False)  # pyright: ignore[reportArgumentType]
    plan = robust_pca.plan(spec, VectorsMetadata(n, dim), PrivacyTarget(epsilon, _delta(n)))
    exact = _answer(robust_pca, plan, rows, ScriptedNoise()).basis
    found = [_answer(robust_pca, plan, rows, ScaledNoise(seed=[23, run])) for run in range(runs)]
    return _of(f"{label}, {loss}", epsilon, [exact] * runs, found)


def of_robust_pca(label: str, rows: Array, rank: int, epsilon: float, runs: int, beside: int) -> Cell:
    """Runs with defaults, and `beside` runs of every loss of its own."""
    n, dim = rows.shape
    plan = robust_pca.plan(RobustPCASpec(rank), VectorsMetadata(n, dim), PrivacyTarget(epsilon, _delta(n)))
    x = on_sphere(rows)
    principal = np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :rank]

    @cache
    def robust() -> Array:
        return _answer(robust_pca, plan, rows, ScriptedNoise()).basis

    found = [_answer(robust_pca, plan, rows, ScaledNoise(seed=[23, run])) for run in range(runs)]
    plain = [each.uncertainty.of == adaptive.principal_of(None) for each in found]
    cell = _of(label, epsilon, [principal if each else robust() for each in plain], found)
    cell = replace(cell, robust=runs - sum(plain))
    if not beside or epsilon != _EPSILON_BESIDE:
        return cell
    others = {loss: of_loss(label, rows, rank, epsilon, loss, beside) for loss in OTHERS}
    pairs = zip(cell.distances, others["squared"].distances, strict=False)
    return replace(
        cell,
        ratio=float(np.median(cell.distances)) / min(float(np.median(o.distances)) for o in others.values()),
        wrong=sum(bool(mine > _FAR and theirs < _NEAR) for mine, theirs in pairs),
        beside=tuple(others.values()),
    )


def of_completion(label: str, rows: Array, rank: int, epsilon: float, runs: int) -> Cell:
    """Runs with defaults, of rows of which a public random share of the entries is known."""
    n, dim = rows.shape
    hidden = np.random.default_rng(5).random(rows.shape) > _KNOWN
    shape = PartialVectorsMetadata(n, dim, _KNOWN)
    plan = matrix_completion.plan(MatrixCompletionSpec(rank), shape, PrivacyTarget(epsilon, _delta(n)))
    partial = np.where(hidden, np.nan, rows)
    exact = _answer(matrix_completion, plan, partial, ScriptedNoise()).basis
    answers = [_answer(matrix_completion, plan, partial, ScaledNoise(seed=[29, run])) for run in range(runs)]
    return Cell(
        label,
        epsilon,
        np.array([_apart(exact, found.basis) for found in answers]),
        np.array([found.uncertainty.radius_95 for found in answers]),
        sum(_tells_little(found.uncertainty) for found in answers),
    )


def cells(
    half: Half,
    of: Callable[[str, Array, int, float], Cell],
    ranks: Sequence[int],
    epsilons: Sequence[float],
) -> Iterator[Cell]:
    """Every table of a half, rank and ε."""
    for each in tables(half):
        rows = _rows(each)
        for rank in ranks:
            for epsilon in epsilons:
                if rank < rows.shape[1]:
                    yield of(f"{each.name}, r={rank}, ε={epsilon:g}", rows, rank, epsilon)


HEADER = ["estimator", "cell", "covered", "width", "warned", "robust", "ratio", "wrong", "rivals"]


def line(name: str, cell: Cell) -> list[str]:
    """A row of the table."""
    ratio = "–" if cell.ratio is None else f"{cell.ratio:.2f}"
    share = cell.warned / len(cell.distances)
    return [
        name,
        cell.label,
        f"{cell.covered:.2f}",
        f"{cell.width:.2f}",
        f"{share:.2f}",
        str(cell.robust),
        ratio,
        str(cell.wrong),
        f"{cell.rivals / len(cell.distances):.2f}",
    ]


def summary(found: Sequence[Cell]) -> str:
    """What the cells say together, a sentence each."""
    useful = [cell for cell in found if cell.is_useful]
    shares, widths = [cell.covered for cell in useful], [cell.width for cell in useful]
    ratios = [cell.ratio for cell in found if cell.ratio is not None]
    words = [
        f"{len(useful)} of {len(found)} cells have answers that are not warned of as telling little. "
        f"Of these the median share within the radius is {median(shares):.2f} (least {min(shares):.2f}); "
        f"{sum(cell.misses for cell in useful)} cells are below by more than chance. The median width is "
        f"{median(widths):.2f} (most {max(widths):.2f}); {np.mean(np.array(widths) > 2):.0%} are above 2."
    ]
    if ratios:
        runs = _RUNS_BESIDE * len(ratios)
        wrong = sum(cell.wrong for cell in found)
        words.append(
            f"The largest ratio to the best of its own losses is {max(ratios):.2f}, and "
            f"{np.mean(np.array(ratios) > 1.5):.0%} are above 1.5. Of {runs:,} runs {wrong} found a wrong "
            f"direction while `squared` was near it."
        )
    return " ".join(words)


def picture(every: Mapping[str, Sequence[Cell]], path: Path) -> None:
    """Coverage, and width, of every cell over ε."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    rng = np.random.default_rng(0)
    for (name, found), colour in zip(every.items(), COLOURS, strict=False):
        useful = [cell for cell in found if cell.is_useful]
        at = [cell.epsilon * rng.uniform(0.85, 1.18) for cell in useful]
        axes[0].semilogx(at, [cell.covered for cell in useful], "o", color=colour, markersize=4, label=name)
        axes[1].semilogx(at, [cell.width for cell in useful], "o", color=colour, markersize=4, label=name)
    axes[0].axhspan(0.93, 0.99, color="#dddddd", zorder=0)
    axes[0].set(xlabel="ε", ylabel="share of runs within the radius", title="Coverage of real tables")
    axes[1].axhline(2, color="#999999", linestyle="--", linewidth=1)
    axes[1].set(xlabel="ε", ylabel="radius over the ideal", title="Width")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def report(half: Half) -> None:
    """Measure a half, and publish it with a picture."""
    section = Section.of(half, "coverage-subspaces", "Subspaces: coverage")
    ways = {
        "robust PCA": cells(half, partial(of_robust_pca, runs=RUNS, beside=_RUNS_BESIDE), RANKS, EPSILONS),
        "matrix completion": cells(half, partial(of_completion, runs=RUNS), RANKS, EPSILONS),
    }
    every: dict[str, list[Cell]] = {}
    for name, way in ways.items():
        every[name] = []
        for cell in way:
            print(*line(name, cell), sep=" | ", flush=True)
            every[name].append(cell)
    every["a loss that was chosen"] = [loss for cell in every["robust PCA"] for loss in cell.beside]
    picture(every, section.picture)
    rows = [line(name, cell) for name, found in every.items() for cell in found]
    missed = [
        line(name, cell)
        for name, found in every.items()
        for cell in found
        if cell.is_useful and (cell.misses or cell.width > 2 or (cell.ratio or 0) > 1.5)
    ]
    parts = "\n\n".join(f"**{name}.** {summary(found)}" for name, found in every.items())
    body = f"""
By default, on real tables thinned to at most {_MOST_ROWS:,} rows, of ranks {" and ".join(map(str, RANKS))};
{RUNS} runs a cell, and {_RUNS_BESIDE} of a loss that was chosen. Completion sees {_KNOWN:.0%} of the entries.
{section.seen}

{parts}

![Coverage and width by ε](pictures/{section.name}.png)

- covered: share of runs no further than `radius_95` from the target that the answer names;
- width: median `radius_95` over the 95 % quantile of the distances, which only the rows tell;
- warned: share of answers that say which directions are left open;
- robust: how many runs chose a robust loss;
- ratio: the default's median distance over the least of `squared`, `absolute` and `redescending`, each from
  its own answer without noise, of {_RUNS_BESIDE} runs at ε = {_EPSILON_BESIDE:g};
- wrong: runs more than {_FAR:g} rad off while `squared` is within {_NEAR:g}, of these;
- rivals: share of answers that say that rows gather about a direction outside as well.

The losses beside the default are "a loss that was chosen", each against its own answer without noise.

Cells that miss a goal: a width of 2, a ratio of 1.5, or a coverage of .95 by more than chance. By the
binomial law chance leaves so few of {RUNS} runs covered as {binom.ppf(_CHANCE, RUNS, 0.95) - 1:.0f}, or
fewer, in less than {_CHANCE:.0%} of cells with .95.

{table(HEADER, missed)}

All cells:

{table(HEADER, rows)}

"""
    section.publish(body)


def main() -> None:
    """Measure both halves, and publish them."""
    report("TUNE")
    report("FINAL")


if __name__ == "__main__":
    main()

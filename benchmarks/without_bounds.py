"""Subspaces, completion and classifiers of tables without bounds, beside rough bounds and too wide ones.

Each answer is put beside its own target, in the units that its run found: the principal subspace of the rows
or, where the run chose a robust loss, and of completion, the same run without noise once units and centre are
found; and the fit that a classifier's answer names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import tables
from benchmarks.coverage_classifiers import Problem
from benchmarks.real_table import Table
from benchmarks.report import publish, table
from benchmarks.robust_pca import squared_distance
from privest.arrays import Array
from privest.data.metadata import LabelledMetadata, PartialVectorsMetadata, VectorsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.linear_model.newton import NewtonSolver
from privest.estimators.subspace.matrix_completion import MATRIX_COMPLETION, MatrixCompletionSpec
from privest.estimators.subspace.robust_pca import ROBUST_PCA, RobustPCASpec
from privest.estimators.subspace.robust_pca_plan import Subspace
from privest.estimators.subspace.spherical import on_sphere
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import Noise
from testing.noise import ScaledNoise

TABLES = ("savings", "magic", "breast cancer", "weather", "affairs", "women at work", "diamonds")
EPSILONS, RANK, RUNS = (0.3, 1.0, 3.0), 2, 12
WIDE = (None, 1.0, 10.0, 1000.0)
_MOST_ROWS, _KNOWN, _TRAINED = 5_000, 0.6, 0.8


class LookedNoise(ScaledNoise):
    """Repeatable noise on the first answers of a gate, and none on those after."""

    def __init__(self, seed: list[int], looks: int) -> None:
        super().__init__(seed=seed)
        self._looks = looks

    def draw(self, noise: Noise, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
        """One noise vector; see `NoiseSource`."""
        self._looks -= 1
        found = super().draw(noise, scale, size, spacing)
        return found if self._looks >= 0 else np.zeros_like(found)


class RecordingGate(Gate):
    """A gate that keeps the last feature map it was asked with."""

    seen: FeatureMap

    def mean(self, point: Any, statistic: str = "gradient") -> Array:
        """The gate's own answer."""
        asked = getattr(point, "feature_map", point)
        if isinstance(asked, FeatureMap):
            self.seen = asked
        return super().mean(point, statistic)


def columns(shown: Table, wide: float | None, *, gaps: bool = False) -> tuple[Column, ...]:
    """What is declared: no bounds, or rough ones so many times too wide and not centred."""
    half = (shown.high - shown.low) / 2
    reach = half * (wide or 0.0)
    middle = (shown.low + shown.high) / 2 + 0.4 * (reach - half)
    ends = zip(shown.columns, (middle - reach).tolist(), (middle + reach).tolist(), strict=True)
    more: dict[str, Any] = {"missing": "filled", "fill": 0.0} if gaps else {}
    return tuple(
        Column(name, "number", **more) if wide is None else Column(name, "number", low, high, **more)
        for name, low, high in ends
    )


@dataclass(frozen=True)
class Runs:
    """What runs of one question came to.

    Attributes:
        good: median angle, or share of right answers on other rows.
        held: share of answers within their region; None where that is not known.
        warned: share of answers that say that they tell little.
    """

    good: float
    held: float | None
    warned: float

    def __str__(self) -> str:
        told = "" if self.held is None else f" ({self.held:.0%})"
        return f"{self.good:.3g}{told}" + "*" * (self.warned > 0.5)


def subspaces(estimator: Any, spec: Any, made: Any, rows: Array, target: PrivacyTarget) -> Runs:
    """Median angle, and how often it is within the stated radius."""
    planned = estimator.plan(spec, made, target)
    records = Records(rows, 1, recipe=made.recipe)
    looks = len(planned.looks) + sum(each.statistic == "location" for each in planned.releases)
    off, held, warned = list[float](), list[bool](), 0
    for run in range(RUNS):
        sources = ScaledNoise(seed=[71, run]), LookedNoise([71, run], looks)
        found, silent = (
            estimator.run(planned, Gate(records, planned.statistics, planned.releases, source))
            for source in sources
        )
        exact, told = silent.basis, found.uncertainty
        assert told is not None
        if isinstance(found, Subspace) and told.of.startswith("the principal subspace"):
            images = made.recipe(rows)
            if found.scales is not None:
                images = (images - found.centers) / found.scales
            x = on_sphere(images - found.center)
            exact = np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :RANK]
        off.append(sqrt(squared_distance(exact, found.basis)))
        held.append(off[-1] <= told.radius_95)
        warned += any("leaves open" in words or "no information" in words for words in told.warnings)
    return Runs(float(np.median(off)), float(np.mean(held)), warned / RUNS)


def pca(shown: Table, wide: float | None, target: PrivacyTarget) -> Runs:
    """Robust PCA by default."""
    made = metadata_for(VectorsMetadata, TableMetadata(shown.n, columns(shown, wide)), TableChoice())
    return subspaces(ROBUST_PCA, RobustPCASpec(RANK), made, shown.rows, target)


def completion(shown: Table, wide: float | None, target: PrivacyTarget) -> Runs:
    """Matrix completion by default, of which a random share of the entries is known."""
    declared = columns(shown, wide, gaps=True)
    made = metadata_for(PartialVectorsMetadata, TableMetadata(shown.n, declared), TableChoice())
    hidden = np.random.default_rng(5).random(shown.rows.shape) > _KNOWN
    rows = np.where(hidden, np.nan, shown.rows)
    return subspaces(MATRIX_COMPLETION, MatrixCompletionSpec(RANK), made, rows, target)


def classifier(shown: Table, wide: float | None, target: PrivacyTarget) -> Runs:
    """Right answers on other rows, and how often coefficients are within the stated region."""
    trained = np.random.default_rng(7).permutation(shown.n) < _TRAINED * shown.n
    rows, labels = shown.rows[trained], shown.labels[trained]
    label = Column("the label", "category", categories=tuple(map(str, range(len(shown.classes)))))
    about = TableMetadata(len(rows), (*columns(shown, wide), label))
    made = metadata_for(LabelledMetadata, about, TableChoice(label=label.name))
    assert isinstance(made, LabelledMetadata)
    planned = logistic_regression.plan(LogisticSpec(), made, target)
    records = Records(np.column_stack([rows, labels.astype(float)]), 1, recipe=made.recipe)
    right, held, warned = list[float](), list[bool](), 0
    for run in range(RUNS):
        gate = RecordingGate(records, planned.statistics, planned.releases, ScaledNoise(seed=[72, run]))
        found = logistic_regression.run(planned, gate)
        said = np.array(found.predict(shown.rows[~trained]), dtype=np.int64)
        right.append(float(np.mean(said == shown.labels[~trained])))
        assert found.uncertainty is not None
        warned += any("all but unknown" in words for words in found.uncertainty.warnings)
        if isinstance(planned.configured_solver, NewtonSolver):
            missed = _missed(found, gate.seen, rows, labels)
            held.append(missed <= found.uncertainty.radius_95)
    return Runs(float(np.mean(right)), float(np.mean(held)) if held else None, warned / RUNS)


def _missed(
    found: logistic_regression.LogisticRegression,
    seen: FeatureMap,
    rows: Array,
    labels: NDArray[np.int64],
) -> float:
    """Distance of an answer of `newton` from the fit that it names, of features in the units of its run."""
    exact = Problem((rows - seen.mean) / seen.scale, labels, len(found.classes)).minimiser()[:, :-1]
    answer = np.atleast_2d(found.coefficients) * seen.scale
    return float(np.linalg.norm(answer - (answer.mean(axis=0) if len(answer) > 1 else 0.0) - exact))


ASKED: dict[str, Callable[[Table, float | None, PrivacyTarget], Runs]] = {
    "robust PCA": pca,
    "completion": completion,
    "classifier": classifier,
}


def _cell(asked: Callable[[], Runs]) -> str:
    try:
        return str(asked())
    except ValueError:  # noise would hide columns
        return "refused"


def main() -> None:
    """Write the section."""
    lines = list[list[str]]()
    for whole in map(tables.table, TABLES):
        step, kept = -(-whole.n // _MOST_ROWS), whole.rows.std(axis=0) > 0
        names = tuple(name for name, told in zip(whole.columns, kept, strict=True) if told)
        rows = np.ascontiguousarray(whole.rows[::step, kept])
        shown = Table(
            whole.name, whole.half, "", names, rows, whole.label, whole.classes, whole.labels[::step]
        )
        for kind, ask in ASKED.items():
            if kind == "classifier" and shown.label is None:
                continue
            for epsilon in EPSILONS:
                target = PrivacyTarget(epsilon, min(1e-6, shown.n**-1.5))
                cells = [_cell(partial(ask, shown, wide, target)) for wide in WIDE]
                lines.append([kind, whole.name, f"{shown.n:,} × {shown.dim}", f"{epsilon:g}", *cells])
                print(*lines[-1], sep=" | ", flush=True)
    body = f"""
Of subspaces of rank {RANK} the median angle from the answer's own target, in radians, and in brackets the
share of answers whose stated radius holds it; of classifiers the share of right answers on a fifth of the
rows that was left out and, of `newton`, how often the stated region holds the coefficients of the fit that
the answer names. Without bounds, with rough bounds, and with such that are 10 and 1,000 times too wide. All
by default, {RUNS} runs, at most {_MOST_ROWS:,} records of a table; completion sees {_KNOWN:.0%} of entries.
A star: most answers warn that they tell little. Refused: before the charge, as noise would hide columns.

All look at columns whatever their bounds, so that wide ones cost little. A subspace is in units of the
bounds, unless most columns fill less than a fifteenth of theirs: angles in other units are of another
problem, which may be harder. Where noise hides columns with bounds a run does not look at them, and warns
that directions are open.

"""
    header = ["question", "table", "rows", "ε", "no bounds", "rough bounds", "bounds × 10", "bounds × 1,000"]
    publish("without-bounds", "Subspaces and classifiers without bounds", body + table(header, lines))


if __name__ == "__main__":
    main()

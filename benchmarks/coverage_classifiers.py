"""Logistic regression and scores on real tables: does the stated 95 % region hold what the answer names?

Of coefficients: the fit that the answer names, without noise and with the penalty of the plan, of rows that
count alike or, with `newton`, less where they are far out; and beside it the one in which all count alike. Of
a score: that of the same classifier on the same rows. Everything by default; what would be public of a table
is its columns' rough centres and spreads.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from benchmarks.real_table import Half, Table
from benchmarks.report import table
from benchmarks.tables import Section, tables
from benchmarks.tables import table as named
from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model import classifier_score, logistic_regression
from privest.estimators.linear_model.classifier_score import Metric, ScoreSpec
from privest.estimators.linear_model.logistic_regression import LogisticPlan, LogisticSpec
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

DELTA = 1e-6
EPSILONS = (0.1, 0.3, 1.0, 3.0)
RUNS = 100

HEADER = (
    *("table", "rows × features, classes", "ε", "solver"),
    *(
        "coefficients",
        "worst one",
        "region",
        "region / ideal",
        "error / ideal",
        "error / forecast",
        "accuracy",
        "silent misses",
        "all rows alike",
        "apart",
        "warned",
        "doubted",
    ),
)
_DOUBTS = ("all but unknown", "hang together", "hides the curvature")
"""Words of warnings that coefficients may be further off than is stated."""

SCORE_HEADER = ("table", "score", "ε", "region", "radius", "largest error", "warned")


def facts(of: Table) -> LabelledMetadata:
    """What would be public of a table."""
    return LabelledMetadata(
        of.n,
        of.columns,
        of.label or "",
        of.classes,
        None,
        tuple(of.center.tolist()),
        tuple(of.scale.tolist()),
    )


@dataclass(frozen=True)
class Problem:
    """Penalised logistic regression of rows in their public spreads, a row x weighing min(1, (bound/|x|)²).

    Attributes:
        rows: (n, d), standardised.
        labels: (n,) places of classes.
        classes: number of them.
        bound: from which on rows weigh less.
    """

    rows: Array
    labels: NDArray[np.int64]
    classes: int
    bound: float = np.inf

    @property
    def columns(self) -> int:
        return 1 if self.classes == 2 else self.classes

    @property
    def _vectors(self) -> Array:
        return np.column_stack([self.rows, np.ones(len(self.rows))])

    @property
    def _weights(self) -> Array:
        return np.minimum(1.0, (self.bound / np.maximum(np.linalg.norm(self.rows, axis=1), 1e-12)) ** 2)

    @property
    def _wanted(self) -> Array:
        return self.labels[:, None] == (np.ones(1) if self.columns == 1 else np.arange(self.classes))

    def chances(self, weights: Array) -> Array:
        scores = self._vectors @ weights.T
        return expit(scores) if self.columns == 1 else softmax(scores, axis=1)

    def loss(self, weights: Array) -> float:
        scores = self._vectors @ weights.T
        if self.columns == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        lost = logsumexp(scores, axis=1) - scores[np.arange(len(scores)), self.labels]
        return float(self._weights @ lost) / len(lost) + float(np.sum(self.ridge * weights**2)) / 2

    @property
    def ridge(self) -> Array:
        """(d + 1,) of scikit-learn's default, and next to none of an intercept."""
        return np.append(np.full(self.rows.shape[1], 1 / len(self.rows)), 1e-8)

    def hessian(self, weights: Array) -> Array:
        """With the penalty; (columns·(d + 1)) square."""
        x, p, size = self._vectors, self.chances(weights), self.rows.shape[1] + 1
        found = np.zeros((self.columns, size, self.columns, size))
        for i, j in product(range(self.columns), repeat=2):
            if j >= i:
                bent = self._weights * p[:, i] * ((i == j) - p[:, j])
                found[i, :, j, :] = (x * bent[:, None]).T @ x / len(x)
                found[j, :, i, :] = found[i, :, j, :].T
        return found.reshape(self.columns * size, -1) + np.diag(np.tile(self.ridge + 1e-10, self.columns))

    def minimiser(self, start: Array | None = None) -> Array:
        """(columns, d + 1), of more than two classes centred: Newton's method with shorter steps at need."""
        size = self.rows.shape[1] + 1
        weights = np.zeros((self.columns, size)) if start is None else start
        for _ in range(100):
            pull = (self._weights[:, None] * (self._wanted - self.chances(weights))).T @ self._vectors
            pull = pull / len(self.rows) - self.ridge * weights
            step = np.linalg.solve(self.hessian(weights), pull.ravel()).reshape(weights.shape)
            before, length = self.loss(weights), 1.0
            while length > 1e-6 and self.loss(weights + length * step) > before + 1e-14:
                length /= 2
            weights = weights + length * step
            if np.abs(step).max() < 1e-7:
                break
        return weights - weights.mean(axis=0) if self.columns > 1 else weights


@cache
def problem_of(name: str) -> Problem:
    """The problem of a table."""
    of = named(name)
    return Problem(of.standardised, of.labels, len(of.classes))


@cache
def fitted(name: str, bound: float = np.inf) -> Array:
    """(columns, d + 1) of the fit that answers on a table name, with the bound of its rows."""
    if bound == np.inf:
        return problem_of(name).minimiser()
    return replace(problem_of(name), bound=bound).minimiser(fitted(name))


@cache
def _noise(name: str, bound: float) -> float:
    """Length of the noise that one gradient at the answer leaves in it, for μ = 1."""
    of, weighted = named(name), replace(problem_of(name), bound=bound)
    # Descents shorten rows, too: the usual length stands for theirs.
    length = bound if bound < np.inf else sqrt(of.dim)
    inverse = np.linalg.inv(weighted.hessian(fitted(name, bound)))
    inverse = inverse.reshape(2 * [weighted.columns, of.dim + 1])
    if weighted.columns > 1:
        inverse = inverse - inverse.mean(axis=0)
    # As our own vectors are: a fifth of the length for the intercept.
    one = 1.0 if weighted.columns == 1 else sqrt(2.0)
    noise = 2 * one * sqrt(1.04) / of.n * np.append(np.full(of.dim, length), 5.0)
    return float(np.linalg.norm(inverse[:, :-1] * noise))


def ideal(of: Table, epsilon: float, bound: float) -> float:
    """Root mean square error of one query at the answer, with the whole budget, or of the answer 0."""
    known = _noise(of.name, bound) / mu_for(epsilon, DELTA)
    return min(known, float(np.linalg.norm(fitted(of.name, bound)[:, :-1])))


def standardised(found: logistic_regression.LogisticRegression, of: Table) -> Array:
    """(columns, d) coefficients of standardised features, comparable."""
    weights = np.atleast_2d(found.coefficients) * of.scale
    return weights - weights.mean(axis=0) if len(weights) > 1 else weights


def plan(of: Table, epsilon: float) -> LogisticPlan:
    return logistic_regression.plan(LogisticSpec(), facts(of), PrivacyTarget(epsilon, DELTA))


def coefficients(of: Table, epsilon: float, runs: int) -> list[str]:
    """A line on the coefficients of a table."""
    planned = plan(of, epsilon)
    bound = np.inf
    target, alike = fitted(of.name, bound)[:, :-1], fitted(of.name)[:, :-1]
    records = Records(np.column_stack([of.rows, of.labels.astype(float)]), threads=1)
    held, errors, radii, right = list[Array](), list[float](), list[float](), list[float]()
    inside, near_plain, warned, doubted = list[bool](), list[bool](), list[bool](), list[bool]()
    for run in range(runs):
        noise = ScaledNoise(seed=[run, of.n, round(1000 * epsilon)])
        found = logistic_regression.run(planned, Gate(records, planned.statistics, planned.releases, noise))
        uncertainty, answer = found.uncertainty, standardised(found, of)
        missed = answer - target
        assert uncertainty is not None
        stated = np.atleast_2d(found.noise.standard_errors)[:, :-1] * of.scale
        held.append((np.abs(missed) <= 1.96 * stated).astype(np.float64))
        errors.append(float(np.linalg.norm(missed)))
        inside.append(errors[-1] <= uncertainty.radius_95)
        radii.append(uncertainty.radius_95)
        near_plain.append(float(np.linalg.norm(answer - alike)) <= uncertainty.radius_95)
        warned.append(any("all but unknown" in said for said in uncertainty.warnings))
        doubted.append(any(word in said for said in uncertainty.warnings for word in _DOUBTS))
        right.append(float(np.mean(np.array(found.predict(of.rows)) == np.array(of.classes)[of.labels])))
    best = ideal(of, epsilon, bound)
    shares = np.mean(held, axis=0)
    return [
        of.name,
        f"{of.n:,} × {of.dim}, {len(of.classes)}",
        f"{epsilon:g}",
        planned.solver,
        *(f"{share:.2f}" for share in (shares.mean(), shares.min(), np.mean(inside))),
        f"{np.median(radii) / (1.2 * best):.2f}",
        f"{np.sqrt(np.mean(np.square(errors))) / best:.2f}",
        f"{np.quantile(errors, 0.95) / (planned.expected_error.unfavourable or np.inf):.2f}",
        f"{np.mean(right):.3f}",
        f"{np.mean(~np.array(inside) & ~np.array(doubted)):.2f}",
        f"{np.mean(near_plain):.2f}",
        f"{np.linalg.norm(target - alike) / best:.2f}",
        f"{np.mean(warned):.2f}",
        f"{np.mean(doubted):.2f}",
    ]


def score(of: Table, epsilon: float, runs: int, metric: Metric) -> list[str]:
    """A line on the score of a table's own fit."""
    weights = fitted(of.name)
    own = weights[:, :-1] / of.scale
    intercept = weights[:, -1] - own @ of.center
    two = len(of.classes) == 2
    spec = ScoreSpec(
        (own[0] if two else own).tolist(), float(intercept[0]) if two else intercept.tolist(), metric
    )
    planned = classifier_score.plan(spec, facts(of), PrivacyTarget(epsilon, DELTA))
    records = Records(np.column_stack([of.rows, of.labels.astype(float)]), threads=1)
    scores = of.rows @ own.T + intercept
    exact = _area(scores[:, 0], of.labels) if metric == "auc" else _right(scores, of.labels)
    errors, radii, warned = list[float](), list[float](), 0
    for run in range(runs):
        noise = ScaledNoise(seed=[run, of.n, round(1000 * epsilon)])
        found = classifier_score.run(planned, Gate(records, planned.statistics, planned.releases, noise))
        assert found.uncertainty is not None
        errors.append(abs(found.value - exact))
        radii.append(found.uncertainty.radius_95)
        warned += bool(found.uncertainty.warnings)
    held = np.mean(np.array(errors) <= np.array(radii))
    cells = (f"{held:.2f}", f"{np.median(radii):.4f}", f"{max(errors):.4f}", f"{warned / runs:.2f}")
    return [of.name, metric, f"{epsilon:g}", *cells]


def _right(scores: Array, labels: NDArray[np.int64]) -> float:
    said = scores[:, 0] > 0 if scores.shape[1] == 1 else np.argmax(scores, axis=1)
    return float(np.mean(said == labels))


def _area(scores: Array, labels: NDArray[np.int64]) -> float:
    first, second = np.sort(scores[labels == 0]), scores[labels == 1]
    below = np.searchsorted(first, second, "left") + np.searchsorted(first, second, "right")
    return float(np.mean(below)) / 2 / len(first)


def lines(half: Half, runs: int = RUNS, epsilons: Iterable[float] = EPSILONS) -> list[list[str]]:
    """The lines of a half on coefficients."""
    return _told(lambda of, epsilon: coefficients(of, epsilon, runs), half, epsilons)


def score_lines(half: Half, runs: int = RUNS, epsilons: Iterable[float] = EPSILONS) -> list[list[str]]:
    """The lines of a half on scores."""
    accuracy = _told(lambda of, epsilon: score(of, epsilon, runs, "accuracy"), half, epsilons)
    areas = _told(
        lambda of, epsilon: score(of, epsilon, runs, "auc"),
        half,
        epsilons,
        wanted=lambda of: len(of.classes) == 2,
    )
    return accuracy + areas


def _told(
    line: Callable[[Table, float], list[str]],
    half: Half,
    epsilons: Iterable[float],
    wanted: Callable[[Table], bool] = lambda _: True,
) -> list[list[str]]:
    found: list[list[str]] = []
    for of, epsilon in product(filter(wanted, tables(half, labelled=True)), epsilons):
        found.append(line(of, epsilon))
        print(*found[-1], sep=" | ", flush=True)
    return found


def _drawn(told: list[list[str]], path: Path) -> None:
    """A picture of coverage and width, by table and ε; hollow where most answers warn."""
    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - after the choice of where to draw

    names = list(dict.fromkeys(line[0] for line in told))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.5), sharey=True, layout="constrained")
    for line in told:
        place = EPSILONS.index(float(line[2]))
        height = names.index(line[0]) + (place - 1.5) / 6
        colour = f"C{place}"
        style: dict[str, Any] = {"color": colour, "mfc": "white" if float(line[-2]) > 0.5 else colour}
        left.plot(float(line[6]), height, "o", **style)
        right.plot(float(line[7]), height, "o", **style)
    left.axvspan(0.93, 0.99, color="0.9")
    right.axvspan(0.05, 2, color="0.9")
    left.set(yticks=range(len(names)), yticklabels=names, xlabel="share of runs within the region")
    right.set(xscale="log", xlabel="radius over the ideal")
    for place, epsilon in enumerate(EPSILONS):
        right.plot([], [], "o", color=f"C{place}", label=f"ε = {epsilon:g}")
    right.legend()
    figure.savefig(path, dpi=110, metadata={"Software": None})


def report(half: Half, runs: int = RUNS) -> None:
    """Measure a half, and publish it with a picture."""
    found = lines(half, runs)
    section = Section.of(half, "coverage-classifiers", "Logistic regression: coverage")
    _drawn(found, section.picture)
    body = f"""
{runs} runs a line; δ = {DELTA:g}; all by default. Public are the columns' centres and spreads to one digit.
{section.seen}

- coefficients: share of intervals, coefficient ± 1.96 stated errors (`noise`), that hold the fit that the
  answer names in `uncertainty.of`: without noise, with scikit-learn's default penalty, and with `newton` of
  rows that count by (R/length)² beyond R = 1.5 times the usual length; of all coefficients, and of the worst
  one;
- region: share of runs whose coefficients, all together, lie within `uncertainty.radius_95` of that fit;
- region / ideal: the median radius over 1.2 times the ideal; error / ideal: the root mean square error over
  it. The ideal is one query of gradients at that fit, which nobody knows before, or the answer 0;
- error / forecast: the .95 quantile of the errors over the plan's unfavourable radius;
- silent misses: share of runs outside of the region that are not doubted either;
- all rows alike: share of runs whose region holds the fit in which all rows count alike, of which it is not
  said to be; apart: how far the two fits are from each other, over the ideal;
- warned: share of answers that say that coefficients are all but unknown; doubted: that say this, or that
  features hang together, or that the noise hides the curvature along some direction, so that coefficients of
  unusual size may be further off than is stated.

![Coverage and width by table](pictures/{section.name}.png)

In the picture the target is grey, and points are hollow where more than half of the answers warn that
coefficients are all but unknown.

{table(HEADER, found)}

Scores of that fit, within `uncertainty.radius_95` of the exact ones:

{table(SCORE_HEADER, score_lines(half, runs))}
"""
    section.publish(body)


def main(runs: int = RUNS) -> None:
    """Measure both halves, and publish them."""
    report("TUNE", runs)
    report("FINAL", runs)


if __name__ == "__main__":
    main()

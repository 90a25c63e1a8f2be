"""Logistic regression by default beside textbook mechanisms, on real tables within rough public bounds.

The textbooks work on columns scaled by their bounds: objective perturbation (Kifer et al. 2012, replace-one,
noise by the exact Gaussian mechanism), and sixty noisy gradient steps with momentum. The base rate, without
noise, needs no features. The logistic regression of diffprivlib has δ = 0 and runs in its own environment.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import expm1, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.special import expit

from benchmarks.peers import call
from benchmarks.real_table import Half, Table
from benchmarks.report import publish, table
from benchmarks.tables import tables
from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column, Truths
from privest.estimators.linear_model.logistic_regression import LOGISTIC_REGRESSION, LogisticSpec
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

RUNS, PEER_RUNS, EPSILONS, MOST_ROWS = 12, 5, (0.3, 1.0, 3.0), 10_000
ERROR, COVERAGE = 1.1, 0.93
HEADER = (
    *("table", "ε", "solver", "ours", "objective", "descent", "base rate", "ratio"),
    *("coverage", "of intercept", "width", "unknown", "warned"),
)
_FAR = 0.99
"""Quantile of the lengths of standardised rows to which the ideal release shortens them."""


@dataclass(frozen=True)
class Question:
    """Rows with two classes, and the public bounds of their columns.

    Attributes:
        name: of the table.
        rows: (n, d).
        labels: (n,) 0 or 1.
        columns: what the schema declares.
    """

    name: str
    rows: Array
    labels: Array
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, shown: Table) -> "Question":
        """Return the question of a table; of several classes the first half is one."""
        labels = shown.labels if len(shown.classes) == 2 else shown.labels >= len(shown.classes) // 2
        chosen = np.random.default_rng(0).permutation(shown.n)[:MOST_ROWS]
        columns = list[Column]()
        for at, name in enumerate(shown.columns):
            if np.isin(shown.rows[:, at], (0.0, 1.0)).all():
                columns.append(Column(name, "boolean"))
            else:
                columns.append(Column(name, "number", float(shown.low[at]), float(shown.high[at])))
        rows = np.ascontiguousarray(shown.rows[chosen])
        return cls(shown.name, rows, labels[chosen].astype(float), tuple(columns))

    @property
    def middle_and_half(self) -> tuple[Array, Array]:
        """Middles and half widths of the bounds, (d,) each."""
        ends = [(0.0, 1.0) if c.low is None or c.high is None else (c.low, c.high) for c in self.columns]
        low, high = np.array(ends).T
        return (low + high) / 2, (high - low) / 2

    @property
    def scaled(self) -> Array:
        """(n, d + 1) rows in [−1, 1], and a one."""
        middle, half = self.middle_and_half
        return np.column_stack([(self.rows - middle) / half, np.ones(len(self.rows))])


def _loss(weights: Array, x: Array, y: Array) -> float:
    score = np.clip(x @ weights, -500, 500)
    return float(np.mean(np.logaddexp(0, score) - y * score))


def fitted(x: Array, y: Array, ridge: float, push: Array | float = 0.0) -> Array:
    """Return the minimiser of Σ logistic loss + ridge/2·|w|² + push·w."""
    w, linear = np.zeros(x.shape[1]), push * np.ones(x.shape[1])

    def objective(at: Array) -> float:
        return len(x) * _loss(at, x, y) + ridge / 2 * float(at @ at) + float(linear @ at)

    for _ in range(80):
        p = expit(x @ w)
        hessian = (x * (p * (1 - p))[:, None]).T @ x + (ridge + 1e-8) * np.eye(len(w))
        step, length = np.linalg.solve(hessian, x.T @ (p - y) + ridge * w + linear), 1.0
        while length > 1e-6 and objective(w - length * step) > objective(w) + 1e-12:
            length /= 2
        w = w - length * step
        if np.abs(step).max() < 1e-8 or length <= 1e-6:
            break
    return w


def objective_perturbation(x: Array, y: Array, target: PrivacyTarget, rng: np.random.Generator) -> Array:
    """Return weights by a tenth of ε for the ridge and the rest for the noise."""
    longest = sqrt(x.shape[1])
    ridge = 0.25 / expm1(0.1 * target.epsilon)
    noise = rng.normal(0, 2.0 / mu_for(0.9 * target.epsilon, target.delta / 2), x.shape[1])
    return fitted(x / longest, y, ridge, noise) / longest


def noisy_descent(x: Array, y: Array, target: PrivacyTarget, rng: np.random.Generator) -> Array:
    """Return the mean of the later half of sixty noisy steps with momentum."""
    longest, n, steps = sqrt(x.shape[1]), len(y), 60
    rows, w, way, later = x / longest, np.zeros(x.shape[1]), np.zeros(x.shape[1]), list[Array]()
    noise = 2.0 / n * sqrt(steps) / mu_for(target.epsilon, target.delta)
    for step in range(steps):
        gradient = rows.T @ (expit(rows @ w) - y) / n + rng.normal(0, noise, len(w))
        way = 0.8 * way - 2.0 * gradient
        w = w + way
        later += [w] if step >= steps // 2 else []
    return np.mean(later, axis=0) / longest


def ideal_width(asked: Question, weights: Array, target: PrivacyTarget) -> Array:
    """Return (d + 1,) standard errors of coefficients and intercept that nobody can reach without more facts.

    Sampling, and the noise of one gradient at the ordinary fit with the whole budget, where its Hessian and
    the means, deviations and lengths of the columns are known.

    Args:
        asked: the question.
        weights: (d + 1,) of the ordinary fit, in the columns' units.
        target: privacy.
    """
    mean, deviation = asked.rows.mean(axis=0), np.maximum(asked.rows.std(axis=0), 1e-9)
    z = np.column_stack([(asked.rows - mean) / deviation, np.ones(len(asked.rows))])
    p = expit(asked.rows @ weights[:-1] + weights[-1])
    inverse = np.linalg.pinv((z * (p * (1 - p))[:, None]).T @ z, rcond=1e-9)
    noise = 2 * float(np.quantile(np.linalg.norm(z, axis=1), _FAR)) / mu_for(target.epsilon, target.delta)
    covariance = inverse + noise**2 * inverse @ inverse
    back = np.diag(np.append(1 / deviation, 1.0))
    back[-1, :-1] = -mean / deviation
    found = np.sqrt(np.maximum(np.diag(back @ covariance @ back.T), 0.0))
    return np.where(found > 0, found, np.nan)  # nothing tells the coefficient of a constant column


def line(asked: Question, epsilon: float, runs: int) -> list[str]:
    """Return the median log-losses of a question, and the coverage of its intervals."""
    x, y, n = asked.scaled, asked.labels, len(asked.labels)
    target, (middle, half) = PrivacyTarget(epsilon, n**-1.5), asked.middle_and_half
    about = TableMetadata(n, (*asked.columns, Column("the label", "boolean")))
    shape = metadata_for(LabelledMetadata, about, TableChoice(label="the label"))
    assert isinstance(shape, LabelledMetadata)
    planned = LOGISTIC_REGRESSION.plan(LogisticSpec(), shape, target)
    records = Records(np.column_stack([asked.rows, y]), 1, recipe=shape.recipe)
    exact = fitted(x, y, 1e-3)
    exact = np.append(exact[:-1] / half, exact[-1] - exact[:-1] / half @ middle)
    ideal = ideal_width(asked, exact, target)
    found, held, widths, unknown, warned = list[list[float]](), list[Truths](), list[Array](), 0, 0
    for run in range(runs):
        rng = np.random.default_rng([91, run])
        gate = Gate(records, planned.statistics, planned.releases, ScaledNoise(seed=[92, run]))
        answer = LOGISTIC_REGRESSION.run(planned, gate)
        own = np.append(answer.coefficients, answer.intercept)
        back = np.append(own[:-1] * half, own[-1] + own[:-1] @ middle)
        others = (objective_perturbation(x, y, target, rng), noisy_descent(x, y, target, rng))
        found.append([_loss(each, x, y) for each in (back, *others)])
        sampling = 0.0 if answer.sampling is None else answer.sampling.standard_errors
        errors = np.hypot(answer.noise.standard_errors, sampling)
        held.append(np.abs(own - exact) <= 1.96 * errors)
        widths.append(errors / ideal)
        assert answer.uncertainty is not None
        said = " ".join(answer.uncertainty.warnings)
        unknown += "unknown" in said
        warned += "unknown" in said or "further off" in said
    share = float(y.mean())
    base = -share * np.log(share) - (1 - share) * np.log1p(-share)
    ours, *rest = np.median(found, axis=0).tolist()
    ratio = ours / min(*rest, base)
    losses = (f"{each:.3f}" for each in (ours, *rest, base))
    coverage = (f"{np.mean(held):.3f}", f"{np.mean(np.array(held)[:, -1]):.2f}")
    numbers = (f"{ratio:.2f}", *coverage, f"{np.nanmedian(widths):.2g}")
    warnings = (f"{unknown / runs:.2f}", f"{warned / runs:.2f}")
    return [asked.name, f"{epsilon:g}", planned.solver, *losses, *numbers, *warnings]


def questions(half: Half) -> list[tuple[Question, float]]:
    """Return the questions of a half, and the ε of each."""
    return [(Question.of(shown), each) for shown in tables(half, labelled=True) for each in EPSILONS]


def lines(asked: Sequence[tuple[Question, float]], runs: int = RUNS) -> list[list[str]]:
    """Return the line of each question."""
    with ProcessPoolExecutor(2) as pool:
        waiting = [pool.submit(line, question, epsilon, runs) for question, epsilon in asked]
        return [each.result() for each in waiting]


def diffprivlib(asked: Sequence[tuple[Question, float]]) -> tuple[str, list[str]]:
    """Return its version, and its median log-loss of each question."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{at}.npz" for at in range(len(asked))]
        for path, (question, epsilon) in zip(paths, asked, strict=True):
            x = question.scaled[:, :-1]
            np.savez(path, x=x, y=question.labels, epsilon=epsilon, runs=PEER_RUNS)
        told: dict[str, Any] = call("classifiers.py", *paths)
    found = [
        float(np.median([_loss(np.array(each), question.scaled, question.labels) for each in fits]))
        for (question, _), fits in zip(asked, told["found"], strict=True)
    ]
    return told["version"], [f"{each:.3f}" for each in found]


def main() -> None:
    """Measure both halves, and publish them."""
    told, version = list[str](), ""
    at = HEADER.index("ratio")
    header = (*HEADER[:at], "diffprivlib", *HEADER[at:])
    halves: dict[Half, str] = {
        "TUNE": "Constants were chosen on these",
        "FINAL": "Constants were chosen on others",
    }
    for half, title in halves.items():
        asked = questions(half)
        measured = lines(asked)
        version, theirs = diffprivlib(asked)
        missing = sum(float(each[at]) > ERROR for each in measured)
        short = [each for each in measured if float(each[at + 1]) < COVERAGE]
        unknown, warned = (sum(float(each[end]) < 1 for each in short) for end in (-2, -1))
        told.append(
            f"### {title}\n\n{missing} of {len(measured)} ratios exceed {ERROR}; {len(short)} coverages are "
            f"below {COVERAGE}. In {unknown} of these lines some answers do not say that coefficients are "
            f"unknown, in {warned} some do not warn."
            f"\n\n{table(header, [[*m[:at], d, *m[at:]] for m, d in zip(measured, theirs, strict=True)])}"
        )
    body = f"""
Median log-loss in {RUNS} runs a line, δ = n^-1.5, at most {MOST_ROWS:,} rows; of several classes the first
half is one. *Objective* is objective perturbation and *descent* sixty noisy gradient steps, both on columns
scaled by their declared bounds; the base rate has no noise. *Ratio* is ours over the best of these three; its
target is {ERROR}. *diffprivlib* is version {version}, with its defaults on the same columns, δ = 0, and
{PEER_RUNS} runs. *Coverage* is that of 95 % intervals by noise and sampling, of the coefficients and the
intercept of the ordinary logistic regression of the same rows; its target is {COVERAGE} where answers do not
warn. *Of intercept* is that of the intercept alone. *Width* is the median width
of intervals over the ideal: sampling, and the noise of one gradient at the fit itself with the whole budget,
for an analyst who knows its Hessian and the spread of all columns. *Unknown* is the share of answers that say
that some coefficients are unknown. *Warned* is the share that say so or that coefficients may be further off
than is stated.

{chr(10).join(told)}
"""
    publish("ordinary-classifiers", "Logistic regression on ordinary tables", body)


if __name__ == "__main__":
    main()

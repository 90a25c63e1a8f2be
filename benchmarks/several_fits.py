"""One of several classifiers, chosen with privacy: small fits and scores choose, and one large fit answers.

Beside it stand each candidate that is asked by itself with the whole budget, all of them with equal parts of
it, and the same choice by an exponential mechanism, whose certificate `least_exponential` has.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from math import sqrt
from statistics import fmean, median

import numpy as np
from scipy.special import log_ndtr

from benchmarks.coverage_classifiers import facts
from benchmarks.real_table import Half
from benchmarks.report import publish, table
from benchmarks.tables import table as named
from benchmarks.tables import tables
from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.classifier_score import accuracy_error
from privest.estimators.linear_model.logistic_spec import LogisticSpec
from privest.estimators.linear_model.losses.scores import LinearScores, RightAnswers
from privest.privacy.accounting import PrivacyTarget, epsilon_within, mu_for
from privest.privacy.gate import Gate

DELTA = 1e-6
EPSILONS = (0.3, 1.0, 3.0)
RUNS = 20
DRAWS = 200
"""Choices that are drawn for the scores of one run."""

MOST_ROWS = 5_000

SMALL, SCORES = 0.10, 0.05
"""Shares of μ² for all small fits and for all scores, chosen on `TUNE`; the rest is for the large fit."""

CANDIDATES: Mapping[str, LogisticSpec] = {
    "defaults": LogisticSpec(),
    "newton, λ = 0.01": LogisticSpec(solver="newton", penalty=0.01),
    "newton, λ = 0.1": LogisticSpec(solver="newton", penalty=0.1),
    "clipped": LogisticSpec(solver="clipped"),
    "nag-opt, λ = 0.001": LogisticSpec(solver="nag-opt", penalty=0.001),
    "masg-opt, λ = 0.01": LogisticSpec(solver="masg-opt", penalty=0.01),
    "gd, λ = 0.1, 20 steps": LogisticSpec(solver="gd", penalty=0.1, steps=20),
    "sigmoid": LogisticSpec(loss="sigmoid"),
}
"""What somebody may try; the last is for two classes alone."""

ALONE, CHOSEN = (
    ("defaults", "clipped", "best", "median", "worst"),
    ("equal parts", "chosen", "by exponential"),
)


def least_exponential(mu: float) -> float:
    """Scale of Gumbel noise on counts that one record moves by at most one, for a μ-Gaussian private choice.

    exp(count/scale) decides. A replaced record moves two log-probabilities apart by at most 2/scale = ε: that
    is bounded range (Dong et al. 2020). Such a mechanism lies between two points whose log-ratios are t and
    t − ε, of which t = ε/2 asks for most: μ = 2Φ⁻¹(e^(ε/2)/(1 + e^(ε/2))). Real mechanisms come as close.
    """
    return 1 / float(log_ndtr(mu / 2) - log_ndtr(-mu / 2))


def part(epsilon: float, share: float) -> PrivacyTarget:
    """The (ε, δ) of a share of μ²."""
    return PrivacyTarget(epsilon_within(mu_for(epsilon, DELTA) * sqrt(share), DELTA), DELTA)


def fitted(spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget, rows: Array) -> LinearScores:
    planned = logistic_regression.plan(spec, shape, target)
    found = logistic_regression.run(planned, Gate(Records(rows), planned.statistics, planned.releases))
    return LinearScores(found.coefficients, found.intercept)


def right(found: LinearScores, rows: Array) -> float:
    """Share of right answers."""
    return float(RightAnswers().clipped_sum(found, rows, 1.0)[0]) / len(rows)


def split(
    name: str, rng: np.random.Generator
) -> tuple[LabelledMetadata, Array, Array, Mapping[str, LogisticSpec]]:
    """A table's facts, four fifths of its rows, the others, and the candidates that can learn its classes."""
    of = named(name)
    rows = np.column_stack([of.rows, of.labels.astype(float)])
    rows = rows[rng.permutation(len(rows))[:MOST_ROWS]]
    n = round(0.8 * len(rows))
    able = {
        name: spec for name, spec in CANDIDATES.items() if spec.loss == "logistic" or len(of.classes) == 2
    }
    return replace(facts(of), n=n), np.ascontiguousarray(rows[:n]), rows[n:], able


def one_run(asked: tuple[str, float, int]) -> tuple[Array, Array]:
    """Right answers among other rows: of each candidate by itself, and of each of the last three ways."""
    name, epsilon, seed = asked
    rng = np.random.default_rng(seed)
    shape, rows, others, specs = split(name, rng)
    whole = PrivacyTarget(epsilon, DELTA)
    count = len(specs)

    def fits(share: float) -> list[LinearScores]:
        return [fitted(spec, shape, part(epsilon, share), rows) for spec in specs.values()]

    def tested(found: Sequence[LinearScores]) -> Array:
        return np.array([right(each, others) for each in found])

    alone = tested([fitted(spec, shape, whole, rows) for spec in specs.values()])
    large = tested(fits(1 - SMALL - SCORES))
    small, equal = fits(SMALL / count), fits((1 - SCORES) / count)
    noise = accuracy_error(shape, part(epsilon, SCORES / count)).standard_deviation
    normal = noise * rng.standard_normal((DRAWS, count))
    gumbel = (
        least_exponential(mu_for(epsilon, DELTA) * sqrt(SCORES)) / shape.n * rng.gumbel(size=(DRAWS, count))
    )
    scores, shares = (np.array([right(each, rows) for each in found]) for found in (small, equal))
    return alone, np.array(
        [
            tested(equal)[np.argmax(shares + normal, axis=1)].mean(),
            large[np.argmax(scores + normal, axis=1)].mean(),
            large[np.argmax(scores + gumbel, axis=1)].mean(),
        ]
    )


def summary(runs: Sequence[tuple[Array, Array]]) -> dict[str, float]:
    """Means over the runs of one table and ε, by way."""
    alone, chosen = (np.mean(each, axis=0) for each in zip(*runs, strict=True))
    told = (alone[0], alone[list(CANDIDATES).index("clipped")], alone.max(), np.median(alone), alone.min())
    return dict(zip((*ALONE, *CHOSEN), map(float, (*told, *chosen)), strict=True))


def report(half: Half) -> str:
    """All tables, and what ways gain over the median candidate."""
    names = [of.name for of in tables(half, labelled=True)]
    cells = list(product(names, EPSILONS))
    with ProcessPoolExecutor(2) as pool:
        runs = list(pool.map(one_run, [(*cell, seed) for cell in cells for seed in range(RUNS)]))
    means = {cell: summary(runs[RUNS * at : RUNS * (at + 1)]) for at, cell in enumerate(cells)}
    lines = [
        [name, f"{epsilon:g}", *(f"{share:.3f}" for share in mean.values())]
        for (name, epsilon), mean in means.items()
    ]
    gains: list[list[str]] = []
    for epsilon, way in product(EPSILONS, ("defaults", "clipped", *CHOSEN)):
        gained = [mean[way] - mean["median"] for (_, of), mean in means.items() if of == epsilon]
        told = (f"{each:+.3f}" for each in (fmean(gained), median(gained), min(gained)))
        gains.append([f"{epsilon:g}", way, *told, f"{sum(gain < -0.005 for gain in gained)}"])
    return (
        table(("table", "ε", *ALONE, *CHOSEN), lines)
        + "\n\nWhat is gained over the median candidate, over tables:\n\n"
        + table(("ε", "way", "mean", "median", "least", f"of {len(names)} tables lose more than .005"), gains)
    )


def main() -> None:
    """Publish the section."""
    rest = 1 - SMALL - SCORES
    body = f"""
Share of right answers among a fifth of the rows, of at most {MOST_ROWS:,}, by classifiers of the others;
means of {RUNS} splits, δ = {DELTA:g}. The candidates: {"; ".join(CANDIDATES)} (of two classes).

- defaults, clipped, best, median, worst: of the candidates, each asked by itself with the whole ε. Which is
  the best no asker knows;
- equal parts: all are asked, with equal parts of {1 - SCORES:.0%} of μ², and the one of the best noisy
  score is taken;
- chosen: all are asked with {SMALL:.0%} of μ² together, and scored with {SCORES:.0%}; the one of the best
  score is asked again with the {rest:.0%} that are left;
- by exponential: the same, with an exponential mechanism in place of the noisy scores, at the same cost.

Shares were chosen on other tables.

{report("FINAL")}
"""
    publish("several-fits", "One of several fits", body)


if __name__ == "__main__":
    main()

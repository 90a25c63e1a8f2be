"""Scores of classifiers beside the Laplace mechanism: noise and intervals on both kinds of account.

A score is asked for as an analyst asks for it, and answered by the gate, from fresh rows each time.
"""

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import sqrt
from typing import Any
from zlib import crc32

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import rankdata

from benchmarks.report import publish, table
from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.data.records import Records
from privest.estimators.linear_model.classifier_score import CLASSIFIER_SCORE, Metric, ScorePlan, ScoreSpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

RUNS, AREA_RUNS, COVERAGE, WIDTH = 1_000, 200, 0.93, 1.3
SIZES, EPSILONS = (200, 2_000, 20_000), (0.1, 1.0, 3.0)
ACCOUNTS = ("basic, or δ = 0", "gdp")
HEADER = (
    *("share", "n", "ε", "account", "noise", "noise, same charge"),
    *("coverage, records", "coverage, population", "width, records", "width, population"),
)
AREA_HEADER = ("second class", *HEADER[1:4], *HEADER[6:])
_APART = 1.2
"""Distance of the two classes in their common deviation, for an area of .80."""


@dataclass(frozen=True)
class Question:
    """A score of rows whose law is known.

    Attributes:
        metric: asked for.
        share: of right answers, or of the second class for an area.
        n: rows.
        epsilon: ε; δ is n^-1.5 or 0.
        account: one of `ACCOUNTS`.
    """

    metric: Metric
    share: float
    n: int
    epsilon: float
    account: str

    @cached_property
    def plans(self) -> list[ScorePlan]:
        """The plans of the account: on a basic one the same for either δ."""
        delta = self.n**-1.5
        targets = {
            ACCOUNTS[0]: ((0.0, None), (delta, None), (0.0, 0.0)),
            ACCOUNTS[1]: ((delta, 0.0),),
        }[self.account]
        shape = LabelledMetadata(self.n, ("x",), "y", ("0", "1"), None, (0.0,), (1.0,))
        spec = ScoreSpec([_APART], 0.0, self.metric)
        return [
            CLASSIFIER_SCORE.plan(spec, shape, PrivacyTarget(self.epsilon, each, rate))
            for each, rate in targets
        ]

    @property
    def population(self) -> float:
        """The score on new rows."""
        return self.share if self.metric == "accuracy" else float(ndtr(_APART / sqrt(2)))

    def rows(self, rng: np.random.Generator) -> tuple[Array, float]:
        """Draw rows, (n, 2), and return them with their score."""
        if self.metric == "accuracy":
            right = rng.random(self.n) < self.share
            labels = (rng.random(self.n) < 0.5).astype(float)
            return np.column_stack([np.where(right, 2 * labels - 1, 1 - 2 * labels), labels]), right.mean()
        labels = (rng.random(self.n) < self.share).astype(float)
        x = rng.standard_normal(self.n) + _APART * (labels - 0.5)
        second = labels.sum()
        ranks = rankdata(x)[labels == 1].sum() - second * (second + 1) / 2
        return np.column_stack([x, labels]), ranks / (second * (self.n - second))


def noise_ratios(asked: Question) -> tuple[float, float]:
    """Return our noise's deviation over that of Laplace noise with the same ε, and with the same charge."""
    (release,) = asked.plans[0].releases
    statistic = asked.plans[0].statistics[release.statistic]

    def excess(epsilon: float) -> float:
        laplace = PrivacyBudget(asked.n, True, epsilon).release(statistic, release.statistic, 1.0)
        return laplace.cost.mu_squared - release.cost.mu_squared

    alone = sqrt(2) / asked.n
    charged = asked.epsilon if asked.account == ACCOUNTS[0] else float(brentq(excess, 1e-6, 50.0))
    return release.deviation / (alone / asked.epsilon), release.deviation / (alone / charged)


def measured(asked: Question, runs: int) -> dict[str, Any]:
    """Return coverage and median widths of both intervals, and the widths of the ideal ones."""
    plan = asked.plans[0]
    assert all(each.releases == plan.releases for each in asked.plans)
    held, widths, values = np.zeros(2), list[tuple[float, float]](), list[tuple[float, float]]()
    seed = crc32(repr(asked).encode())
    for run in range(runs):
        rows, exact = asked.rows(np.random.default_rng([71, seed, run]))
        gate = Gate(Records(rows, 1), plan.statistics, plan.releases, ScaledNoise(seed=[72, seed, run]))
        found = CLASSIFIER_SCORE.run(plan, gate)
        near, far = found.these_records, found.population
        assert near is not None
        assert far is not None
        for at, (each, true) in enumerate(((near, exact), (far, asked.population))):
            held[at] += each.low - 1e-12 <= true <= each.high + 1e-12
        widths.append((near.high - near.low, far.high - far.low))
        values.append((found.value - exact, found.value))
    return {
        "coverage": held / runs,
        "widths": np.median(widths, axis=0),
        "middle": np.diff(np.quantile(values, (0.025, 0.975), axis=0), axis=0)[0],
    }


def ideal_widths(asked: Question) -> Array:
    """Return the widths of the middle 95 % of noise, and of binomial shares with noise, within [0, 1]."""
    (release,) = asked.plans[0].releases
    rng, times = np.random.default_rng(73), 200_000
    scale = release.deviation
    noise = (
        rng.normal(0, scale, times) if release.noise == "gaussian" else rng.laplace(0, scale / sqrt(2), times)
    )
    shares = rng.binomial(asked.n, asked.share, times) / asked.n
    known = np.clip(asked.share + np.quantile(noise, (0.025, 0.975)), 0, 1)
    return np.array(
        [np.diff(known)[0], np.diff(np.clip(np.quantile(shares + noise, (0.025, 0.975)), 0, 1))[0]]
    )


def line(asked: Question) -> list[str]:
    """Return the line of a share of right answers."""
    found = measured(asked, RUNS)
    ratios, ideal = noise_ratios(asked), ideal_widths(asked)
    return [
        *(f"{asked.share:g}", f"{asked.n:,}", f"{asked.epsilon:g}", asked.account),
        *(f"{each:.2f}" for each in ratios),
        *(f"{each:.3f}" for each in found["coverage"]),
        *(f"{each:.2f}" for each in found["widths"] / ideal),
    ]


def area_line(asked: Question) -> list[str]:
    """Return the line of an area under the ROC curve."""
    found = measured(asked, AREA_RUNS)
    return [
        *(f"{asked.share:g}", f"{asked.n:,}", f"{asked.epsilon:g}", asked.account),
        *(f"{each:.3f}" for each in found["coverage"]),
        *(f"{each:.2f}" for each in found["widths"] / np.maximum(found["middle"], 1e-9)),
    ]


def questions(metric: Metric, shares: Iterable[float]) -> list[Question]:
    """Return the questions of a table."""
    return [Question(metric, *each) for each in product(shares, SIZES, EPSILONS, ACCOUNTS)]


def main() -> None:
    """Measure the scores, and publish them."""
    with ProcessPoolExecutor(2) as pool:
        shares = list(pool.map(line, questions("accuracy", (0.5, 0.9, 0.99))))
        areas = list(pool.map(area_line, questions("auc", (0.5, 0.1))))
    noisy = sum(float(each[4 if each[3] == ACCOUNTS[0] else 5]) > 1 for each in shares)
    lowest = min(float(each[at]) for each in shares for at in (6, 7))
    highest, widest = (max(float(each[at]) for each in shares) for at in (7, 9))
    body = f"""
Scores as the service answers them, of fresh rows in each of {RUNS:,} runs a line; δ is n^-1.5 or 0. On a
basic account a question has the same Laplace noise with either δ, and so it has on a `gdp` account with δ
= 0. A δ above 0 gives Gaussian noise there. *Noise* is the deviation of ours over that of the Laplace
mechanism with the same ε. A `gdp` account would charge that mechanism more: *same charge* is the
deviation over that of Laplace noise at our charge. *Coverage* is that of 95 % intervals, of the share
among the records and of that in the population. *Width* is the median width over the ideal: the middle 95
% of the noise, or of a binomial share at the truth with the noise, within [0, 1]. An interval for the
records is below the ideal as it ends at whole numbers of records.

{noisy} of {len(shares)} lines have more noise than Laplace's at their account's charge. The lowest coverage
is {lowest:.3f}, with a target of {COVERAGE}; the highest of the population {highest:.3f}. The widest interval
of the population is {widest:.2f} times the ideal, with a target of {WIDTH}.

{table(HEADER, shares)}

### Areas under the ROC curve

Two normal classes whose population's area is .80, {AREA_RUNS} runs a line. *Width* is the median width over
the range of the middle 95 % of errors, or of answers. Intervals are wider than that where there is little
noise: they allow for pairs of records that share a bin.

{table(AREA_HEADER, areas)}
"""
    publish("ordinary-scores", "Scores on ordinary data", body)


if __name__ == "__main__":
    main()

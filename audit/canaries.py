"""One run of an estimator on records each of which a coin decided: what guesses of the coins prove."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import exp
from typing import Any

import numpy as np
from scipy.stats import binom

from audit.bounds import ALPHA
from audit.lines import Finding, Line, Section
from privest import manifolds
from privest.arrays import Array
from privest.data.metadata import (
    DatasetMetadata,
    LabelledMetadata,
    PartialVectorsMetadata,
    PointsMetadata,
    VectorsMetadata,
)
from privest.data.records import Records
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.logistic_regression import LogisticSpec
from privest.estimators.subspace import matrix_completion, robust_pca
from privest.estimators.subspace.matrix_completion import MatrixCompletionSpec
from privest.estimators.subspace.robust_pca import RobustPCASpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise

_SEED = 12
"""Seed of the coins that choose the canaries, and of nothing else."""


def chance(coins: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The most that (ε, δ) leaves as probability of so many right guesses or more.

    Steinke, Nasr and Jagielski (2023), Theorem 5.2. Its conditions, and why they hold here: coins are fair
    and independent, and drawn before the run; turning one coin over replaces one record, so that the run is
    (ε, δ)-private in each coin; which coins are guessed, and how, is a function of the run's answer alone;
    the number of guesses was fixed before. For δ = 0 this is the tail of a binomial distribution.

    Args:
        coins: tossed, each for a record.
        guesses: made.
        right: of them.
        epsilon: claimed.
        delta: claimed.
    """
    below = np.arange(1, right + 1)
    likely = 1 / (1 + exp(-epsilon))
    nearly = np.cumsum(binom.pmf(right - below, guesses, likely)) / below
    more = 2 * coins * delta * (nearly.max() if right else 0.0)
    return min(1.0, float(binom.sf(right - 1, guesses, likely)) + more)


def epsilon_proven(coins: int, guesses: int, right: int, delta: float, alpha: float = ALPHA) -> float:
    """The largest ε that so many right guesses rule out at this δ, wrongly with probability alpha at most."""
    low, high = 0.0, 50.0
    if chance(coins, guesses, right, low, delta) > alpha:
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if chance(coins, guesses, right, middle, delta) > alpha else (middle, high)
    return low


@dataclass(frozen=True)
class Canaries:
    """One run of an estimator over records of which a coin decided each.

    Attributes:
        name: of the line.
        about: what is attacked.
        estimator: module with `plan` and `run`.
        spec: the analyst's choices.
        shape: of the data.
        target: of the run.
        rows: the records that coins of 1 and -1 make.
        leanings: from an answer to a number for each coin, the further from 0 the surer its sign.
        share: of the coins that are guessed, the surest.
        fault: factor of the noise that must be seen.
    """

    name: str
    about: str
    estimator: Any
    spec: Any
    shape: DatasetMetadata
    target: PrivacyTarget
    rows: Callable[[Array], Array]
    leanings: Callable[[Any], Array]
    share: float = 0.5
    fault: float = 0.1

    @property
    def line(self) -> Line:
        """This audit as a line of the report."""
        return Line(self.name, self.about, self._run)

    @cached_property
    def _plan(self) -> Any:
        return self.estimator.plan(self.spec, self.shape, self.target)

    def _run(self, long: bool) -> Finding:  # noqa: ARG002 - one run is what it is about
        epsilon, delta = self.target.epsilon, self.target.delta
        (honest, right, guesses), (broken, seen, _) = (self._proven(factor) for factor in (1.0, self.fault))
        return Finding(
            holds=honest <= epsilon < broken,
            claimed=f"ε ≤ {epsilon:.3f}" + (f" at δ = {delta:.0e}" if delta else " at δ = 0"),
            found=f"ε ≥ {honest:.3f} by one run: {right} of {guesses} coins guessed",
            power=f"{self.fault:g} times the noise: ε ≥ {broken:.3f}, {seen} guessed",
        )

    def _proven(self, factor: float) -> tuple[float, int, int]:
        coins = np.random.default_rng(_SEED).choice([-1.0, 1.0], self.shape.n)
        gate = Gate(
            Records(self.rows(coins), threads=1),
            self._plan.statistics,
            self._plan.releases,
            ScaledNoise(factor, order=np.arange),
        )
        leanings = self.leanings(self.estimator.run(self._plan, gate))
        guesses = round(self.share * len(coins))
        surest = np.argsort(-np.abs(leanings))[:guesses]
        right = int(np.count_nonzero(np.sign(leanings[surest]) == coins[surest]))
        return epsilon_proven(len(coins), guesses, right, self.target.delta), right, guesses


# On a manifold: a coordinate for each coin, in which its record lies ahead of the centre or behind it.

_ROWS = 30
_SPACE = manifolds.get("spd", dim=_ROWS)
_CENTRE = np.eye(_ROWS)


def _ahead(coins: Array) -> Array:
    return _SPACE.exp_coordinates(_CENTRE, np.diag(coins))


def _behind(mean: Array) -> Array:
    return _SPACE.coordinates(_CENTRE, _SPACE.log(_CENTRE, mean))


# Subspaces: a direction for each coin, to which its record leans from one that all share, or from which.

_COINS = 500


def _leaning(coins: Array) -> Array:
    return np.column_stack([np.ones(len(coins)), np.diag(coins)])


def _lean(estimate: Any) -> Array:
    first, *others = estimate.basis[:, 0]
    return np.array(others) * first


def _partly_known(coins: Array) -> Array:
    rows = _leaning(coins)
    return np.where(rows == 0.0, np.nan, rows)


# A classifier: a feature for each coin, which speaks for the second class or against it.

_FEATURES = tuple(map(str, range(_COINS)))


def _features(coins: Array) -> Array:
    return np.column_stack([np.diag(coins), np.ones(len(coins))])


_TARGET, _PURE = PrivacyTarget(2.0, 1e-8), PrivacyTarget(2.0, 0.0)
_POINTS = {"name": "spd", "dim": _ROWS}

_RUNS = (
    Canaries(
        "mean-canaries",
        f"a Fréchet mean of matrices with {_ROWS} rows",
        frechet_mean,
        FrechetMeanSpec(),
        PointsMetadata(_ROWS * (_ROWS + 1) // 2, _POINTS, radius=1.0),
        _TARGET,
        _ahead,
        _behind,
    ),
    Canaries(
        "mean-pure-canaries",
        "the same by Laplace noise",
        frechet_mean,
        FrechetMeanSpec(steps=1),
        PointsMetadata(_COINS, {"name": "euclidean", "dim": _COINS}, radius=1.0),
        _PURE,
        np.diag,
        lambda mean: mean,
        fault=0.02,
    ),
    Canaries(
        "robust-pca-canaries",
        "robust PCA, rank 1, 50 steps",
        robust_pca,
        RobustPCASpec(1, loss="absolute", steps=50),
        VectorsMetadata(_COINS, _COINS + 1),
        _TARGET,
        _leaning,
        _lean,
        fault=0.05,
    ),
    Canaries(
        "completion-canaries",
        "matrix completion, rank 1",
        matrix_completion,
        MatrixCompletionSpec(1),
        PartialVectorsMetadata(_COINS // 2, _COINS // 2 + 1),
        _TARGET,
        _partly_known,
        _lean,
        share=0.8,
        fault=0.03,
    ),
    Canaries(
        "logistic-canaries",
        "logistic regression",
        logistic_regression,
        LogisticSpec(intercept=False),
        LabelledMetadata(_COINS, _FEATURES, "y", ("0", "1"), 1.0),
        _TARGET,
        _features,
        lambda found: found.coefficients,
    ),
)

SECTION = Section(
    "What one run proves",
    """\
Of hundreds of records each is one of two, as a fair coin fell, and all coins are guessed from one answer
(Steinke, Nasr and Jagielski 2023): so also runs that are too long to be repeated are attacked. Such a bound
stays below the truth by its nature, so that a tenth of the noise is what it must see.""",
    tuple(run.line for run in _RUNS),
)

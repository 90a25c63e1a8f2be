"""Every estimator attacked: what its gate answered, and what its callers got, prove of what was charged."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import sqrt
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform

from audit.distinguisher import Distinguisher
from audit.lines import Section
from audit.over_http import Question
from privest.arrays import Array
from privest.data.metadata import (
    DatasetMetadata,
    LabelledMetadata,
    PartialVectorsMetadata,
    PointsMetadata,
    VectorsMetadata,
)
from privest.data.records import Records
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec
from privest.estimators.linear_model.classifier_score import CLASSIFIER_SCORE, ScoreSpec
from privest.estimators.linear_model.logistic_regression import LOGISTIC_REGRESSION, LogisticSpec
from privest.estimators.range_finding.bounds import BOUNDS, BoundsSpec
from privest.estimators.subspace.matrix_completion import MATRIX_COMPLETION, MatrixCompletionSpec
from privest.estimators.subspace.robust_pca import ROBUST_PCA, RobustPCASpec
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import NoisySum
from privest.privacy.oracle import Oracle
from testing.noise import ScaledNoise

_N, _PILOTS = 100, 4

_FEW = 45
"""Runs in each world, in the quick form: with a wrong guess in one of them, μ = 1.09 is still proven."""

_TARGET = PrivacyTarget(5.0, 1e-6, slack_per_mu_squared=0.0)
"""The budget composes μ, because some estimates have Laplace noise where ε and δ add up."""

_PURE, _MANY = PrivacyTarget(1.0, 0.0), (1_000, 20_000)
"""A target that Laplace noise meets, and how many runs in each world prove nearly all of its ε."""


Sum = Callable[[Array, float], Array]
"""A function that sums clipped rows."""


@dataclass(frozen=True)
class Case:
    """An estimate to be attacked.

    Attributes:
        name: of the line.
        about: the estimate, for people.
        estimator: its declaration.
        spec: the analyst's choices.
        shape: of the data.
        quick: whether there is a quick form.
        target: that is charged.
        runs: in each world, of the quick form and of the long one.
    """

    name: str
    about: str
    estimator: Any
    spec: Any
    shape: DatasetMetadata
    quick: bool = True
    target: PrivacyTarget = _TARGET
    runs: tuple[int, int] = (_FEW, 5_000)

    @cached_property
    def plan(self) -> Any:
        """The plan, as charged."""
        return self.estimator.plan(self.spec, self.shape, self.target)

    @cached_property
    def worlds(self) -> tuple[Array, Array]:
        """Two datasets that differ in the first record, the candidates that first runs tell apart best.

        A pair that is not the worst proves less, and nothing wrong.
        """
        rng = np.random.default_rng(0)
        rows = self.shape.dummy(_N, rng)
        candidates = self._candidates(rng)
        apart = np.zeros((len(candidates), len(candidates)))
        for _ in range(_PILOTS):
            seen = _Pilot(self.plan, rows, candidates)
            self.estimator.run(self.plan, seen)
            apart += squareform(pdist(seen.vectors, "sqeuclidean"))
        one, other = np.unravel_index(np.argmax(apart), apart.shape)
        worlds = rows.copy(), rows.copy()
        for world, place in zip(worlds, (one, other), strict=True):
            world[0] = candidates[place]
        return worlds

    def _candidates(self, rng: np.random.Generator) -> Array:
        """Records of the shape, usual and far out."""
        rows = self.shape.dummy(64, rng)
        if isinstance(self.shape, PointsMetadata):
            space = self.shape.space
            steps = rng.standard_normal((64, space.coordinate_size))
            found = [space.exp_coordinates(self.shape.search_center, far * steps) for far in (1.0, 3.0)]
        elif isinstance(self.shape, LabelledMetadata):
            scales = np.ones(rows.shape[1])
            found = []
            for scale in (-1e3, 1e3):
                scales[:-1] = scale
                found.append(rows * scales)
        else:
            found = [rows * scale for scale in (1e3, 0.5, 0.2)]
        rows = np.concatenate([rows, *found])
        rows = rows[self.shape.broken_rule(rows) == 0]
        return self.shape.canonical(rows)

    def scores(self, factor: float, runs: int) -> tuple[Array, Array]:
        """The log likelihood ratio of all answers of each run."""
        one, other = self.worlds

        def of(world: Array) -> Array:
            found = np.empty(runs)
            for run in range(runs):
                gate = Gate(
                    Records(world, threads=1),
                    self.plan.statistics,
                    self.plan.releases,
                    ScaledNoise(factor, order=np.arange),
                )
                watched = _Watched(self.plan, gate, (one, other))
                self.estimator.run(self.plan, watched)
                found[run] = watched.ratio
            return found

        return of(one), of(other)


class _Oracle(Oracle):
    """A gate whose answers are looked at."""

    def __init__(self, plan: Any, gate: Gate) -> None:
        self._gate, self._statistics = gate, plan.statistics
        self._owed = {
            name: iter([r for r in plan.releases if r.statistic == name for _ in range(r.count)])
            for name in plan.statistics
        }

    @property
    def remaining(self) -> int:
        return self._gate.remaining

    def pick(self, count: int) -> int:
        return self._gate.pick(count)

    def mean(self, point: Any, statistic: str = "gradient") -> Array:
        release = next(self._owed[statistic])
        answer = self._gate.mean(point, statistic)
        self.look(release, partial(self._statistics[statistic].clipped_sum, point), answer)
        return answer

    def look(self, release: NoisySum, of: Sum, answer: Array) -> None:
        raise NotImplementedError


class _Pilot(_Oracle):
    """How far apart candidates for a record are in all answers together, in standard deviations."""

    def __init__(self, plan: Any, rows: Array, candidates: Array) -> None:
        super().__init__(
            plan, Gate(Records(rows, threads=1), plan.statistics, plan.releases, ScaledNoise(order=np.arange))
        )
        self._candidates = candidates
        self._parts = list[Array]()

    @property
    def vectors(self) -> Array:
        return np.concatenate(self._parts, axis=1)

    def look(self, release: NoisySum, of: Sum, answer: Array) -> None:  # noqa: ARG002 - where is enough
        each = [of(row[None], release.clip) for row in self._candidates]
        self._parts.append(np.stack(each) / release.scale)


class _Watched(_Oracle):
    """How much likelier the answers of a run are in the second world."""

    def __init__(self, plan: Any, gate: Gate, worlds: Sequence[Array]) -> None:
        super().__init__(plan, gate)
        self._worlds = worlds
        self.ratio = 0.0

    def look(self, release: NoisySum, of: Sum, answer: Array) -> None:
        rest = of(self._worlds[0][1:], release.clip)
        one, other = (
            _surprise(release, answer * release.divisor - rest - of(world[:1], release.clip))
            for world in self._worlds
        )
        self.ratio += one - other


def _surprise(release: NoisySum, noise: Array) -> float:
    """Return minus the logarithm of the density of a release's noise, but for a constant."""
    scaled = noise / release.scale
    if release.noise == "gaussian":
        return float(np.sum(scaled**2)) / 2
    return float(np.sum(np.abs(scaled)) if release.noise == "independent-laplace" else np.linalg.norm(scaled))


def _cases() -> Iterator[Case]:
    for name, dim in (("euclidean", 3), ("sphere", 3), ("spd", 2)):
        shape = PointsMetadata(_N, {"name": name, "dim": dim})
        about, quick = f"a Fréchet mean, {name} of {dim}", name == "sphere"
        yield Case(f"mean-{name}", about, FRECHET_MEAN, FrechetMeanSpec(), shape, quick)
    spec = FrechetMeanSpec(clip=0.5, solver="rgd")
    shape = PointsMetadata(_N, {"name": "euclidean", "dim": 3})
    yield Case("mean-clip", "a Fréchet mean with a clip that is given", FRECHET_MEAN, spec, shape)
    yield Case(
        "robust-pca-default",
        "robust PCA that chooses its loss, rank 2 of 5",
        ROBUST_PCA,
        RobustPCASpec(2),
        VectorsMetadata(_N, 5),
    )
    yield Case(
        "robust-pca",
        "robust PCA, rank 2 of 5",
        ROBUST_PCA,
        RobustPCASpec(2, loss="absolute", steps=10),
        VectorsMetadata(_N, 5),
    )
    partial_vectors = PartialVectorsMetadata(_N, 6)
    spec = MatrixCompletionSpec(2)
    yield Case("completion", "matrix completion, rank 2 of 6", MATRIX_COMPLETION, spec, partial_vectors)
    labelled = LabelledMetadata(_N, ("a", "b"), "y", ("0", "1"), 2.0, (0.0, 0.0), (1.0, 1.0))
    for solver in ("newton", "clipped"):
        spec = LogisticSpec(solver=solver)
        yield Case(solver, f"logistic regression by `{solver}`", LOGISTIC_REGRESSION, spec, labelled)
    bounded = LogisticSpec(loss="sigmoid")
    yield Case("escape", "a classifier with bounded loss by `escape`", LOGISTIC_REGRESSION, bounded, labelled)
    score = ScoreSpec([1.0, -1.0], 0.0)
    yield Case("score", "the accuracy of a classifier", CLASSIFIER_SCORE, score, labelled)
    about = "the accuracy of a classifier with Laplace noise"
    yield Case("score-laplace", about, CLASSIFIER_SCORE, score, labelled, target=_PURE, runs=_MANY)
    points = PointsMetadata(_N, {"name": "euclidean", "dim": 3})
    yield Case("bounds", "bounds of three columns", BOUNDS, BoundsSpec(), points)
    sphere = PointsMetadata(_N, {"name": "sphere", "dim": 3})
    yield Case("bounds-distances", "bounds of distances on a sphere", BOUNDS, BoundsSpec(), sphere)


CASES = tuple(_cases())

SECTION = Section(
    "What whole estimates prove",
    """\
Every estimator runs from plan to answer on 100 records. The attack sees what the gate answered and where it
was asked, which is more than anybody gets, and scores it by the exact ratio of likelihoods. The two worlds
differ in one record: of some two hundred, usual and far out, the pair that first runs tell apart best.""",
    tuple(
        Distinguisher(
            case.name,
            case.about,
            case.scores,
            case.runs,
            fault=(0.15, 0.5),
            epsilon=None if case.plan.target.delta else case.plan.target.epsilon,
            mu=sqrt(case.plan.cost.mu_squared),
            quick=case.quick,
        ).line
        for case in CASES
    ),
)


def _turned(estimate: dict[str, Any]) -> float:
    """Whether the line leans to the same side in both coordinates."""
    (first,), (second,) = estimate["basis"]
    return first * second


_QUESTIONS = (
    Question(
        "mean-over-http",
        "frechet-mean",
        {"kind": "points", "manifold": {"name": "euclidean", "dim": 1}, "radius": 1.0},
        [1e6],
        [0.0],
        {"steps": 1},
        lambda estimate: estimate["point"][0],
    ),
    Question(
        "robust-pca-over-http",
        "robust-pca",
        {"kind": "vectors", "dim": 2},
        [1.0, 1.0],
        [0.0, 0.0],
        {"rank": 1, "start": "analyze-gauss", "consensus": False, "steps": 1},
        _turned,
    ),
    Question(
        "completion-over-http",
        "matrix-completion",
        {"kind": "partial-vectors", "dim": 2, "known": 0.75},
        [1.0, 1.0],
        [0.0, np.nan],
        {"rank": 1, "steps": 1},
        _turned,
    ),
    Question(
        "logistic-over-http",
        "logistic-regression",
        {"kind": "labelled", "features": ["a"], "label": "y", "classes": ["0", "1"], "norm_bound": 1.0},
        [1e6, 1.0],
        [0.0, 0.0],
        {"intercept": False, "solver": "gd", "steps": 1},
        lambda estimate: estimate["coefficients"][0],
    ),
)

OVER_HTTP = Section(
    "What answers over HTTP prove",
    """\
A server is started as anybody starts it, and asked the same again and again about two datasets that differ in
one record. The attack sees the answers alone, and scores each by the sign of one fixed number. For the power
the workers of another server are told to add less noise.""",
    tuple(
        Distinguisher(
            case.name,
            f"`{case.kind}`, asked by its owner",
            case.scores,
            (30, 500),
            mu=case.mu,
            fault=(0.01, 0.1),
            quick=case.kind == "logistic-regression",
        ).line
        for case in _QUESTIONS
    ),
)

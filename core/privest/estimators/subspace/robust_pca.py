"""Private robust PCA: the subspace that most rows lie near, whatever the others do."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Annotated, Literal

import numpy as np
from scipy.special import chdtri

from privest.arrays import Array, SymmetricCoordinates
from privest.estimators.base import Estimator
from privest.estimators.frechet_mean.losses import SquaredDistance
from privest.estimators.frechet_mean.schedule import schedule
from privest.estimators.subspace.candidates import CandidateGradients, CandidateScores
from privest.estimators.subspace.descent import consensus, descent, principal
from privest.estimators.subspace.losses import (
    Absolute,
    Bounded,
    Redescending,
    RobustPenalty,
    Squared,
    SubspaceDistance,
    SubspaceQuery,
)
from privest.estimators.subspace.reaper import reaper
from privest.estimators.subspace.reaper_losses import Reaper
from privest.estimators.subspace.schedule import (
    PCA_STEPS,
    descent_count,
    descent_error,
    descent_steps,
    moment_error,
    pca_error,
    relaxed_count,
    relaxed_error,
    relaxed_steps,
    right_angles,
    sketch_error,
)
from privest.estimators.subspace.second_moment import Frame, SecondMoment
from privest.estimators.subspace.sketch import Sketch
from privest.manifolds.euclidean import Euclidean
from privest.manifolds.grassmann import Grassmann
from privest.metadata import VectorsMetadata
from privest.optim.ball import Ball, Walk
from privest.optim.federated import LocalSteps
from privest.options import Doc, Option, Options
from privest.privacy.budget import (
    LEAST_RATE,
    ROUNDING_GUARD,
    batches,
    cost_of_batches,
    covers,
    gaussian_budget,
    in_words,
    weak_delta,
)
from privest.privacy.calibration import mu_for
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.mechanisms import NoisySum, Release, Scheme, noisy_sum
from privest.privacy.oracle import Oracle
from privest.privacy.statistic import Statistic

Loss = Literal["absolute", "squared", "bounded", "redescending"]
Solver = Literal["ggd", "sggd", "gd-reaper", "sgd-reaper", "md-reaper", "smd-reaper"]
Start = Literal["random", "analyze-gauss", "sketch"]

STOCHASTIC = frozenset({"sggd", "sgd-reaper", "smd-reaper"})
RELAXED = frozenset({"gd-reaper", "sgd-reaper", "md-reaper", "smd-reaper"})
_MIRROR = frozenset({"md-reaper", "smd-reaper"})

_MOST_STEPS = 10_000
_MOST_RANK = 50
_WIDEST_BASIS = 1_000_000
"""Numbers in an answer."""

_LONGEST_RUN = 1e11
"""Entries that a run reads and makes; more take minutes."""

_BATCH = 256
_WIDEST_MOMENT = 1_000
"""Columns up to which a D×D second moment is released and eigenvectors are taken of it."""

_WIDEST_REAPER = 300
"""And up to which that is done at every step."""

_TILTS = tuple(zip(np.geomspace(0.5, 0.15, 12).tolist(), np.linspace(1.0, 0.2, 12).tolist(), strict=True))
"""Scales of the bounded loss, and steps, by which candidates are tilted."""

_PUBLIC = int.from_bytes(b"privest")
"""Seeds what is random and public: the same in every run, and unlike the seeds of tests."""

_EXPLAINED, _CENTER = 0.05, 0.15
_START, _TILT, _CHOICE = 0.15, 0.15, 0.10
"""Of μ²: what the parts of a run before the descent get, of what is left where they begin."""

_LOUD_GRADIENT = 0.15
"""Length of the noise on one gradient with the whole budget: above, no descent betters a second moment."""

_LOUD_TILT = 0.25
"""And of that on a candidate's gradient: above, candidates are tilted at random."""

_DOUBTFUL_START = 0.5
"""Of μ², for a start from which little is expected: a descent can do little more."""

_USEFUL = 0.25
"""Of a square right angle in every direction: an answer expected to be worse is warned of."""


@dataclass(frozen=True)
class RobustPCASpec(Options):
    """A subspace to be estimated; rows are put on the unit sphere, so that none counts more than another.

    Of the choices, what is left out follows from public facts.
    """

    rank: Annotated[int, Option("dimension of the subspace", ge=1, usual=2)]
    loss: Annotated[
        Loss,
        Option(
            "of a row's distance d: `absolute` d, `squared` d² (PCA), `bounded` d²/(c²+d²), "
            "`redescending` like d up to c and flat beyond"
        ),
    ] = "redescending"
    solver: Annotated[
        Solver,
        Option(
            "full gradients (`ggd`), random batches (`sggd`), or descents over a convex relaxation of the "
            "subspace to a matrix"
        ),
    ] = "ggd"
    start: Annotated[
        Start | None,
        Option("a public random subspace, or the leading one of a noisy second moment or sketch"),
    ] = None
    consensus: Annotated[
        bool | None,
        Option("choose the start, by a bounded loss, among subspaces of one with a dimension more"),
    ] = None
    center: Annotated[bool, Option("estimate a centre within `norm_bound` and take it off the rows")] = False
    steps: Annotated[int | None, Option("of the descent", ge=1)] = None
    step_size: Annotated[float | None, Option("of its first step", gt=0, le=1000)] = None
    scale: Annotated[
        float | None,
        Option("c of the losses `bounded` and `redescending`, as a share of a row's length", gt=0, le=1000),
    ] = None
    rate: Annotated[float | None, Option("probability of a record in a batch", gt=0, le=1)] = None
    sampling: Annotated[Scheme, Option("how batches are drawn")] = "poisson"
    local_steps: LocalSteps = 1
    explained: Annotated[
        bool,
        Option("estimate also the share of variance along each direction, for 5 % of the budget"),
    ] = False


@dataclass(frozen=True)
class SubspaceError:
    """Length of the vector of principal angles by which the noise turns the answer, in radians.

    A forecast for half of the rows about the subspace, off it by a tenth of their length, and the others in
    no direction: public facts do not tell more.
    """

    standard_deviation: Annotated[float, Doc("root mean square")]
    radius_95: Annotated[float, Doc("not exceeded with probability 0.95")]


@dataclass(frozen=True)
class Subspace:
    """The private subspace."""

    basis: Annotated[Array, Doc("rows of a matrix with orthonormal columns", axes=(2,))]
    center: Annotated[Array | None, Doc("of the affine subspace, where one was asked for", axes=(1,))]
    explained: Annotated[
        Array | None,
        Doc("shares of the spherical rows' variance along the columns, where they were asked for", axes=(1,)),
    ]


@dataclass(frozen=True)
class RobustPCAPlan:
    """Everything about a run, before any row is read.

    Attributes:
        target: privacy as requested.
        shape: public facts of the data.
        rank: r.
        loss: of a row's distance.
        scale: c of the loss, where it has one.
        solver: which runs.
        start: from where; None for solvers that start in the middle of all subspaces.
        consensus: whether the start is chosen among candidates.
        center: whether a centre is estimated.
        center_step: of the steps towards it.
        step_sizes: of the descent.
        explained: whether shares of variance are estimated.
        releases: the noisy sums of the run.
        cost: of all releases together.
        expected_error: by the noise.
        mechanism: in words.
        why: this start.
        warnings: what the analyst should know.
        local_steps: that every owner takes in each step of the descent.
    """

    target: PrivacyTarget
    shape: VectorsMetadata
    rank: int
    loss: Loss
    scale: float
    solver: Solver
    start: Start | None
    consensus: bool
    center: bool
    center_step: float
    step_sizes: tuple[float, ...]
    explained: bool
    releases: tuple[Release, ...]
    cost: Cost
    expected_error: SubspaceError
    mechanism: str
    why: Annotated[str, Doc("this start")]
    warnings: tuple[str, ...]
    local_steps: int = 1

    @property
    def steps(self) -> int:
        """Of the whole run: releases."""
        return sum(r.count for r in self.releases)

    @property
    def statistics(self) -> dict[str, Statistic]:
        """What the gate may sum for this plan."""
        return _statistics(self.shape.dim, self.rank, self.solver)


def _statistics(dim: int, rank: int, solver: Solver) -> dict[str, Statistic]:
    return {
        "location": SquaredDistance(Euclidean(dim)),
        "moment": SecondMoment(dim),
        "sketch": Sketch(dim, _columns(dim, rank)),
        "tilt": CandidateGradients(rank + 1, rank),
        "objective": CandidateScores(2 * rank + 2),
        "gradient": Reaper(dim) if solver in RELAXED else SubspaceDistance(dim, rank),
        "explained": SecondMoment(rank),
    }


def _scale(spec: RobustPCASpec) -> float:
    if spec.scale is not None:
        return spec.scale
    return 0.2 if spec.loss == "bounded" else 0.5


def _columns(dim: int, rank: int) -> int:
    """Of a sketch: enough for every direction of a subspace to be seen by some."""
    return min(dim, 4 * rank + 8)


def _sketch_clip(dim: int, rank: int) -> float:
    """Half more than what a public frame sees of a row without a direction."""
    return min(1.0, 1.5 * sqrt(_columns(dim, rank) / dim))


@dataclass(frozen=True)
class _Beginning:
    """A start, and what it leaves to be done."""

    start: Start
    consensus: bool
    releases: tuple[Release, ...]
    spent: float
    error: float
    why: str


@dataclass(frozen=True)
class _Descent:
    """A descent, and the square of the error to expect at its end."""

    release: Release
    cost: Cost
    step_sizes: tuple[float, ...]
    error: float


class _Planner:
    """Divides one budget of μ² over the parts of a run; a share is always of the whole."""

    def __init__(self, spec: RobustPCASpec, shape: VectorsMetadata, target: PrivacyTarget) -> None:
        self.spec, self.shape = spec, shape
        stochastic = spec.solver in STOCHASTIC
        self.mu, self.slack = (
            gaussian_budget(target) if stochastic else (mu_for(target.epsilon, target.delta), 0.0)
        )
        self.statistics = _statistics(shape.dim, spec.rank, spec.solver)

    def release(self, statistic: str, share: float, clip: float = 1.0, count: int = 1) -> NoisySum:
        """`count` sums that cost this share together."""
        found = self.statistics[statistic]
        return noisy_sum(
            "gaussian",
            n=self.shape.n,
            size=found.size,
            clip=clip,
            loss=self.mu * sqrt(share / count) * ROUNDING_GUARD,
            count=count,
            statistic=statistic,
            diameter=found.diameter(clip),
        )

    def centre(self, share: float) -> tuple[list[NoisySum], float]:
        """Steps towards the middle of the rows, each of which pulls by at most half the norm bound."""
        bound = self.shape.norm_bound
        whole = self.release("location", share, bound / 2)
        course = schedule(
            self.shape.dim * whole.deviation**2,
            power=1,
            curvature=(0.0, 0.0),
            distance=bound,
            clip=bound / 2,
        )
        return [self.release("location", share * part, bound / 2) for part in course.shares], course.step_size

    def started(self, start: Start, share: float) -> tuple[tuple[Release, ...], float]:
        """The releases of a start, and the square of the distance that it leaves."""
        dim, rank = self.shape.dim, self.spec.rank
        if start == "random":
            return (), right_angles(rank)
        if start == "analyze-gauss":
            release = self.release("moment", share)
            return (release,), moment_error(release.deviation, dim, rank)
        release = self.release("sketch", share, _sketch_clip(dim, rank))
        return (release,), sketch_error(release.deviation, dim, rank, _columns(dim, rank))

    def begin(self, left: float) -> _Beginning:
        """The start that was asked for, or the one that its share of the budget is expected to serve."""
        spec, dim, rank = self.spec, self.shape.dim, self.spec.rank
        start: Start = spec.start or ("analyze-gauss" if dim <= _WIDEST_MOMENT else "sketch")
        # With the whole budget, and half as many rows about the subspace as forecasts take for granted.
        doubt = 4 * self.started(start, left)[1]
        share = min(max(_START, _START + 3 * (doubt - 0.02)), _DOUBTFUL_START)
        tilt = self.release("tilt", _TILT * left, sqrt(rank + 1), count=len(_TILTS))
        consensus = spec.consensus
        if consensus is None:
            quiet = tilt.deviation * sqrt(rank + 1) < _LOUD_TILT and share < _DOUBTFUL_START / 2
            consensus = quiet and start != "random" and spec.loss != "squared"
        single = self.release("gradient", left).deviation * sqrt(rank * (dim - rank))
        if start != "random" and (spec.steps, spec.consensus, spec.local_steps) == (None, None, 1):
            found = start == "analyze-gauss" and spec.loss == "squared"
            hopeless = spec.start is None and single > _LOUD_GRADIENT
            consensus, share = (False, 1.0) if found or hopeless else (consensus, share)
        if start == "random":
            share = 0.0
        releases, error = self.started(start, share * left)
        why = "it was asked for"
        if spec.start is None:
            why = (
                f"{start}: for {share:.0%} of the budget a squared distance of {error:.2g} is expected; "
                f"a public random subspace may have {right_angles(rank):.2g}"
            )
            if share == 1.0:
                why += "; a descent would find no more in the same budget"
        if consensus:
            objective = self.release("objective", _CHOICE * left, sqrt(2 * rank + 2))
            releases += (tilt, objective)
            share += _TILT + _CHOICE
        return _Beginning(start, consensus, releases, share * left, error, why)

    def descend(self, left: float, error: float) -> _Descent:
        """The descent on what is left of the budget."""
        spec, n, dim, rank = self.spec, self.shape.n, self.shape.dim, self.spec.rank
        relaxed = spec.solver in RELAXED
        size = self.statistics["gradient"].size
        free = size if relaxed else rank * (dim - rank)
        count = spec.steps
        if count is None:
            single = self.release("gradient", left).deviation * sqrt(free)
            count = PCA_STEPS if spec.loss == "squared" else descent_count(n * dim)
            count = relaxed_count(single) if relaxed else count
        answers = count * spec.local_steps
        block: Release = self.release("gradient", left, count=answers)
        cost = block.cost
        rate = 1.0
        if spec.solver in STOCHASTIC:
            rate = min(1.0, _BATCH / n) if spec.rate is None else spec.rate
            if spec.sampling == "fixed":
                rate = max(1, round(rate * n)) / n
            mu = self.mu * sqrt(left) * ROUNDING_GUARD
            block = batches(n, size, "gradient", 1.0, rate, spec.sampling, answers, mu, self.slack)
            cost = cost_of_batches((block,), self.slack)
        noise = sqrt((free * block.deviation**2 + (1 - rate) / (rate * n)) / spec.local_steps)
        if relaxed:
            mirror = spec.solver in _MIRROR
            steps = relaxed_steps(count, noise, dim, rank, mirror=mirror, first=spec.step_size)
            return _Descent(block, cost, steps, relaxed_error(count, noise, dim, rank))
        if spec.loss == "squared":
            steps = (1.0 if spec.step_size is None else spec.step_size,) * count
            return _Descent(block, cost, steps, pca_error(error, steps, noise, rank))
        steps = descent_steps(count, error, noise, rank, spec.step_size)
        smooth = _scale(spec) if spec.loss == "bounded" else 0.0
        return _Descent(block, cost, steps, descent_error(error, steps, noise, rank, smooth))


def plan(spec: RobustPCASpec, shape: VectorsMetadata, target: PrivacyTarget) -> RobustPCAPlan:
    """Noise, steps and exact cost of a private robust PCA, from public facts alone.

    Args:
        spec: the analyst's choices.
        shape: public shape of the data.
        target: (ε, δ), δ above 0.

    Raises:
        ValueError: a choice that is out of range, in words fit for whoever made it.
    """
    _refuse(spec, shape, target)
    planner = _Planner(spec, shape, target)
    releases: list[Release] = []
    left, center_step = 1.0, 0.0
    if spec.explained:
        releases.append(planner.release("explained", _EXPLAINED))
        left -= _EXPLAINED
    if spec.center:
        located, center_step = planner.centre(_CENTER)
        releases += located
        left -= _CENTER
    beginning = None if spec.solver in RELAXED else planner.begin(left)
    error = right_angles(spec.rank)
    if beginning is not None:
        releases += beginning.releases
        left, error = left - beginning.spent, beginning.error
    cost = sum((r.cost for r in releases if isinstance(r, NoisySum)), Cost())
    step_sizes: tuple[float, ...] = ()
    if left > 1e-9:
        descent = planner.descend(left, error)
        releases.append(descent.release)
        cost, step_sizes, error = cost + descent.cost, descent.step_sizes, descent.error
    if not covers(cost, target):
        raise ValueError("this privacy cannot be certified in float64")
    if spec.local_steps > 1:
        _refuse_long(replace(spec, steps=len(step_sizes)), shape)
    warnings: list[str] = []
    if error >= _USEFUL * right_angles(spec.rank):
        warnings.append("the noise may hide the subspace: ask with a larger epsilon, or for a smaller rank")
    warnings.extend(weak_delta(target, shape.n))
    free = spec.rank * (shape.dim - spec.rank)
    return RobustPCAPlan(
        target=target,
        shape=shape,
        rank=spec.rank,
        loss=spec.loss,
        scale=_scale(spec),
        solver=spec.solver,
        start=beginning.start if beginning else None,
        consensus=beginning is not None and beginning.consensus,
        center=spec.center,
        center_step=center_step,
        step_sizes=step_sizes,
        explained=spec.explained,
        releases=tuple(releases),
        cost=cost,
        expected_error=SubspaceError(sqrt(error), sqrt(error * float(chdtri(free, 0.05)) / free)),
        mechanism=in_words(releases),
        why=beginning.why if beginning else "solvers that relax the subspace start amid all of them",
        warnings=tuple(warnings),
        local_steps=spec.local_steps,
    )


def _refuse(spec: RobustPCASpec, shape: VectorsMetadata, target: PrivacyTarget) -> None:
    """Refuse what is out of range, and choices that would be passed over in silence.

    Raises:
        ValueError: one of these.
    """
    relaxed, stochastic = spec.solver in RELAXED, spec.solver in STOCHASTIC
    steps, step_size = spec.steps, spec.step_size
    rules = (
        (spec.rank < shape.dim, "rank must be below the number of columns"),
        (spec.rank <= _MOST_RANK, f"rank must be at most {_MOST_RANK}"),
        (spec.rank * shape.dim <= _WIDEST_BASIS, f"rank times columns must be at most {_WIDEST_BASIS}"),
        (spec.rank < shape.n, "a subspace needs more records than it has dimensions"),
        (target.delta > 0, "robust-pca adds Gaussian noise: delta must be above 0"),
        (steps is None or steps <= _MOST_STEPS, f"steps must be at most {_MOST_STEPS}"),
        (
            spec.local_steps == 1 or not relaxed,
            "local_steps belongs to the solvers ggd and sggd",
        ),
        (step_size is None or step_size >= 1e-9, "step_size must be at least 1e-9"),
        (_scale(spec) >= 1e-3, "scale must be at least 0.001"),
        (
            spec.scale is None or spec.loss in ("bounded", "redescending"),
            "scale belongs to the losses bounded and redescending",
        ),
        (spec.rate is None or spec.rate >= LEAST_RATE, f"rate must be at least {LEAST_RATE:g}"),
        (
            stochastic or (spec.rate is None and spec.sampling == "poisson"),
            "rate and sampling belong to the stochastic solvers",
        ),
        (
            not relaxed or (spec.start is None and spec.consensus is None and spec.loss == "redescending"),
            "start, consensus and loss belong to the solvers ggd and sggd",
        ),
        (
            not relaxed or shape.dim <= _WIDEST_REAPER,
            f"the relaxed solvers take at most {_WIDEST_REAPER} columns",
        ),
        (
            spec.start != "analyze-gauss" or shape.dim <= _WIDEST_MOMENT,
            f"start analyze-gauss takes at most {_WIDEST_MOMENT} columns; sketch takes any number",
        ),
        (
            not spec.consensus or (spec.start != "random" and spec.loss != "squared"),
            "consensus needs a private start and a robust loss",
        ),
    )
    for holds, rule in rules:
        if not holds:
            raise ValueError(rule)
    _refuse_long(spec, shape)


def _refuse_long(spec: RobustPCASpec, shape: VectorsMetadata) -> None:
    """Refuse what takes too long.

    Raises:
        ValueError: this would.
    """
    if (spec.steps or 0) * spec.local_steps > _MOST_STEPS:
        raise ValueError(f"steps times local_steps must be at most {_MOST_STEPS}")
    if _work(spec, shape) > _LONGEST_RUN:
        raise ValueError("this run would take too long: ask for fewer steps")


def _work(spec: RobustPCASpec, shape: VectorsMetadata) -> float:
    """Entries that a descent of so many steps reads, and those of its iterates."""
    rows = shape.n if spec.solver not in STOCHASTIC else (spec.rate or _BATCH / shape.n) * shape.n
    return (spec.steps or 0) * spec.local_steps * shape.dim * (rows + 100.0 * spec.rank)


def run(planned: RobustPCAPlan, gate: Oracle) -> Subspace:
    """The private subspace: sees the plan and the gate's noisy answers, never a row."""
    dim, rank = planned.shape.dim, planned.rank
    center = _located(planned, gate) if planned.center else None
    if planned.solver in RELAXED:
        symmetric = SymmetricCoordinates(dim)
        basis = reaper(
            lambda p: symmetric.matrix(gate.mean((p, center))),
            dim=dim,
            rank=rank,
            steps=planned.step_sizes,
            mirror=planned.solver in _MIRROR,
        )
    else:
        losses: dict[Loss, RobustPenalty] = {
            "absolute": Absolute(),
            "squared": Squared(),
            "bounded": Bounded(planned.scale),
            "redescending": Redescending(planned.scale),
        }
        basis = descent(
            _start(planned, gate, center),
            gate,
            asked=lambda at: SubspaceQuery(at, losses[planned.loss], center),
            steps=planned.step_sizes,
            local_steps=planned.local_steps,
        )
    if not planned.explained:
        return Subspace(basis, center, None)
    moment = SymmetricCoordinates(rank).matrix(gate.mean(Frame(basis, center), "explained"))
    shares, turned = np.linalg.eigh(moment)
    return Subspace(basis @ turned[:, ::-1], center, np.clip(shares[::-1], 0.0, 1.0))


def _located(planned: RobustPCAPlan, gate: Oracle) -> Array:
    """The centre: a mean in which no row pulls by more than half the norm bound."""
    dim, bound = planned.shape.dim, planned.shape.norm_bound
    walk = Walk(Ball(Euclidean(dim), np.zeros(dim), bound), np.zeros(dim))
    for _ in [r for r in planned.releases if r.statistic == "location"]:
        walk.step(planned.center_step * gate.mean(walk.point, "location"))
    return walk.point


def _start(planned: RobustPCAPlan, gate: Oracle, center: Array | None) -> Array:
    """The basis from which a descent starts."""
    dim, rank = planned.shape.dim, planned.rank
    if planned.start == "random":
        return Grassmann(dim, rank).random_point(np.random.default_rng(_PUBLIC))
    wanted = rank + planned.consensus
    if planned.start == "analyze-gauss":
        moment = SymmetricCoordinates(dim).matrix(gate.mean(Frame(None, center), "moment"))
        frame = principal(moment, wanted)
    else:
        columns = _columns(dim, rank)
        public = np.linalg.qr(np.random.default_rng(_PUBLIC).standard_normal((dim, columns)))[0]
        seen = gate.mean(Frame(public, center), "sketch").reshape(dim, columns)
        frame = np.linalg.svd(seen, full_matrices=False)[0][:, :wanted]
    if not planned.consensus:
        return frame
    scales, steps = zip(*_TILTS, strict=True)
    return consensus(
        frame,
        center=center,
        scales=scales,
        steps=steps,
        tilt=lambda candidates: gate.mean(candidates, "tilt").reshape(rank + 1, rank + 1),
        objective=lambda candidates: gate.mean(candidates, "objective"),
    )


ROBUST_PCA = Estimator(
    name="robust-pca",
    schema_name="RobustPCA",
    title="robust PCA",
    summary="The private subspace that most rows lie near",
    metadata=VectorsMetadata,
    spec=RobustPCASpec,
    plan_type=RobustPCAPlan,
    error=SubspaceError,
    answer=Subspace,
    plan=plan,
    run=run,
    shown=("solver", "start", "consensus", "why", "step_sizes"),
    error_meaning="angles by which the noise alone turns the subspace, root mean square",
    is_heavy=lambda spec: spec.solver in STOCHASTIC,
)

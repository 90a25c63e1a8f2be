"""Private robust PCA: the subspace that most rows lie near, whatever the others do."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from privest.arrays import Array, SymmetricCoordinates
from privest.estimators.base import Estimator, require
from privest.estimators.subspace.candidates import select_candidate
from privest.estimators.subspace.descent import descent, principal
from privest.estimators.subspace.losses import (
    Absolute,
    Bounded,
    Redescending,
    RobustPenalty,
    Squared,
    SubspaceQuery,
)
from privest.estimators.subspace.plan import AngleError, SubspacePlan, require_subspace, subspace_warnings
from privest.estimators.subspace.reaper import reaper
from privest.estimators.subspace.robust_pca_planning import (
    CENTER_SHARE,
    EXPLAINED_SHARE,
    MIRROR,
    REFINEMENTS,
    RELAXED,
    STOCHASTIC,
    WIDEST_MOMENT,
    Planner,
    loss_scale,
    sketch_columns,
    statistics_of,
)
from privest.estimators.subspace.robust_pca_spec import Loss, RobustPCASpec, Solver, Start
from privest.estimators.subspace.schedule import right_angles
from privest.estimators.subspace.second_moment import Frame
from privest.estimators.uncertainty import Answer
from privest.manifolds.euclidean import Euclidean
from privest.manifolds.grassmann import Grassmann
from privest.metadata import VectorsMetadata
from privest.optim.ball import Ball, Walk
from privest.options import Doc
from privest.privacy.budget import BATCH, LEAST_RATE, certified
from privest.privacy.cost import PrivacyTarget
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle
from privest.privacy.statistic import AnyStatistic

_MOST_STEPS = 10_000
_WIDEST_BASIS = 1_000_000
"""Most numbers in an answer."""

_LONGEST_RUN = 1e11
"""Most entries that a run may read and make; more take minutes."""

_WIDEST_REAPER = 300
"""Most columns for which an eigendecomposition per REAPER step is affordable."""

_PUBLIC_SEED = int.from_bytes(b"privest")
"""Seed of what is random and public: the same in every run, and unlike the seeds of tests."""


@dataclass(frozen=True)
class SubspaceError(AngleError):
    """Length of the vector of principal angles by which the noise turns the answer, in radians.

    A forecast for half of the rows about the subspace, off it by a tenth of their length, and the others in
    no direction: public facts do not tell more.
    """


@dataclass(frozen=True)
class Subspace(Answer):
    """The private subspace."""

    basis: Annotated[Array, Doc("rows of a matrix with orthonormal columns", axes=(2,))]
    center: Annotated[Array | None, Doc("of the affine subspace, where one was asked for", axes=(1,))]
    explained: Annotated[
        Array | None,
        Doc("shares of the spherical rows' variance along the columns, where they were asked for", axes=(1,)),
    ]


@dataclass(frozen=True, kw_only=True)
class RobustPCAPlan(SubspacePlan):
    """A plan of a robust PCA.

    Attributes:
        loss: of a row's distance.
        scale: c of the loss, where it has one.
        solver: which runs.
        start: from where; None for solvers that start in the middle of all subspaces.
        consensus: whether the start is chosen among candidates.
        center: whether a centre is estimated.
        center_step: of the steps towards it.
        explained: whether shares of variance are estimated.
    """

    shape: VectorsMetadata
    expected_error: SubspaceError
    loss: Loss
    scale: float
    solver: Solver
    start: Start | None
    consensus: bool
    center: bool
    center_step: float
    explained: bool
    why: Annotated[str, Doc("this start")]

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return statistics_of(self.shape.dim, self.rank, self.solver)


def plan(spec: RobustPCASpec, shape: VectorsMetadata, target: PrivacyTarget) -> RobustPCAPlan:
    """Noise, steps and exact cost of a private robust PCA, from public facts alone.

    Raises:
        ValueError: a choice that is out of range, in words fit for whoever made it.
    """
    _refuse(spec, shape, target)
    planner = Planner(spec, shape, target)
    releases: list[Release] = []
    left, center_step = 1.0, 0.0
    if spec.explained:
        releases.append(planner.release("explained", EXPLAINED_SHARE))
        left -= EXPLAINED_SHARE
    if spec.center:
        steps, center_step = planner.center(CENTER_SHARE)
        releases += steps
        left -= CENTER_SHARE
    start = None if spec.solver in RELAXED else planner.start(left)
    error, step_sizes = right_angles(spec.rank), ()
    if start is not None:
        releases += start.releases
        left, error = left - start.spent, start.error
    if left > 1e-9:
        planned = planner.descent(left, error)
        releases.append(planned.release)
        step_sizes, error = planned.step_sizes, planned.error
    if spec.local_steps > 1:
        _refuse_long(replace(spec, steps=len(step_sizes)), shape)
    warnings = subspace_warnings(error, spec.rank)
    return RobustPCAPlan(
        **certified(releases, planner.statistics, target, shape.n, warnings),
        shape=shape,
        rank=spec.rank,
        loss=spec.loss,
        scale=loss_scale(spec),
        solver=spec.solver,
        start=start.start if start else None,
        consensus=start is not None and start.selects,
        center=spec.center,
        center_step=center_step,
        step_sizes=step_sizes,
        explained=spec.explained,
        releases=tuple(releases),
        expected_error=SubspaceError.of(error, spec.rank, shape.dim),
        why=start.why if start else "solvers that relax the subspace start amid all of them",
        local_steps=spec.local_steps,
    )


def _refuse(spec: RobustPCASpec, shape: VectorsMetadata, target: PrivacyTarget) -> None:
    """Refuse what is out of range, and choices that would be passed over in silence.

    Raises:
        ValueError: one of these.
    """
    relaxed, stochastic = spec.solver in RELAXED, spec.solver in STOCHASTIC
    require_subspace("robust-pca", spec.rank, shape, target)
    require(spec.rank * shape.dim <= _WIDEST_BASIS, f"rank times columns must be at most {_WIDEST_BASIS}")
    require((spec.steps or 1) <= _MOST_STEPS, f"steps must be at most {_MOST_STEPS}")
    require(spec.local_steps == 1 or not relaxed, "local_steps belongs to the solvers ggd and sggd")
    require(spec.step_size is None or spec.step_size >= 1e-9, "step_size must be at least 1e-9")
    require(loss_scale(spec) >= 1e-3, "scale must be at least 0.001")
    require(
        spec.scale is None or spec.loss in ("bounded", "redescending"),
        "scale belongs to the losses bounded and redescending",
    )
    require(spec.rate is None or spec.rate >= LEAST_RATE, f"rate must be at least {LEAST_RATE:g}")
    require(
        stochastic or (spec.rate is None and spec.sampling == "poisson"),
        "rate and sampling belong to the stochastic solvers",
    )
    require(
        not relaxed or (spec.start is None and spec.consensus is None and spec.loss == "redescending"),
        "start, consensus and loss belong to the solvers ggd and sggd",
    )
    require(
        not relaxed or shape.dim <= _WIDEST_REAPER,
        f"the relaxed solvers take at most {_WIDEST_REAPER} columns",
    )
    require(
        spec.start != "analyze-gauss" or shape.dim <= WIDEST_MOMENT,
        f"start analyze-gauss takes at most {WIDEST_MOMENT} columns; sketch takes any number",
    )
    require(
        not spec.consensus or (spec.start != "random" and spec.loss != "squared"),
        "consensus needs a private start and a robust loss",
    )
    _refuse_long(spec, shape)


def _refuse_long(spec: RobustPCASpec, shape: VectorsMetadata) -> None:
    """Refuse what takes too long.

    Raises:
        ValueError: this would.
    """
    steps = (spec.steps or 0) * spec.local_steps
    require(steps <= _MOST_STEPS, f"steps times local_steps must be at most {_MOST_STEPS}")
    require(_work(spec, shape) <= _LONGEST_RUN, "this run would take too long: ask for fewer steps")


def _work(spec: RobustPCASpec, shape: VectorsMetadata) -> float:
    """Entries that a descent of so many steps reads, and those of its iterates."""
    rows = shape.n if spec.solver not in STOCHASTIC else (spec.rate or BATCH / shape.n) * shape.n
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
            mirror=planned.solver in MIRROR,
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
        return Grassmann(dim, rank).random_point(np.random.default_rng(_PUBLIC_SEED))
    wanted = rank + planned.consensus
    if planned.start == "analyze-gauss":
        moment = SymmetricCoordinates(dim).matrix(gate.mean(Frame(None, center), "moment"))
        frame = principal(moment, wanted)
    else:
        columns = sketch_columns(dim, rank)
        public = np.linalg.qr(np.random.default_rng(_PUBLIC_SEED).standard_normal((dim, columns)))[0]
        seen = gate.mean(Frame(public, center), "sketch").reshape(dim, columns)
        frame = np.linalg.svd(seen, full_matrices=False)[0][:, :wanted]
    if not planned.consensus:
        return frame
    scales, steps = zip(*REFINEMENTS, strict=True)
    return select_candidate(
        frame,
        center=center,
        scales=scales,
        steps=steps,
        refine=lambda candidates: gate.mean(candidates, "tilt").reshape(rank + 1, rank + 1),
        scores=lambda candidates: gate.mean(candidates, "objective"),
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

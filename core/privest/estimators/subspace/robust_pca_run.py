"""Runs of robust PCA: what a plan's releases are asked for, and what the answers make of the subspace."""

from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

import numpy as np

from privest.arrays import Array, SymmetricCoordinates
from privest.estimators.paper_solvers import reaper_start
from privest.estimators.subspace.adaptive import (
    Adaptive,
    descent_uncertainty,
    principal_of,
)
from privest.estimators.subspace.candidates import select_candidate
from privest.estimators.subspace.column_center import Center, CenterSum
from privest.estimators.subspace.descent import descent, principal, with_signs
from privest.estimators.subspace.losses import (
    Absolute,
    Bounded,
    Redescending,
    RobustPenalty,
    Squared,
    SubspaceQuery,
)
from privest.estimators.subspace.noisy_moment import NoisyMoment, Start
from privest.estimators.subspace.principal_error import principal_uncertainty
from privest.estimators.subspace.robust_pca_plan import RobustPCAPlan, Subspace
from privest.estimators.subspace.robust_pca_planning import (
    REFINEMENTS,
    SELECTIONS,
    solver_of,
)
from privest.estimators.subspace.schedule import steps_together
from privest.estimators.subspace.second_look import SecondLook
from privest.estimators.subspace.second_moment import Frame
from privest.estimators.subspace.sketch import PUBLIC_SEED, noisy_span
from privest.estimators.subspace.solvers import Course
from privest.estimators.subspace.two_descents import DescentSchedule, two_descents
from privest.estimators.uncertainty import Uncertainty
from privest.manifolds.euclidean import Euclidean
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.optim.descent import Ball, Walk
from privest.privacy.mechanisms import NoisySum
from privest.privacy.oracle import Oracle


def run(planned: RobustPCAPlan, gate: Oracle) -> Subspace:
    """The private subspace: sees the plan and the gate's noisy answers, never a row."""
    planned, gate, units = planned.opened(gate)
    return _subspace(planned, gate).in_units(units).in_degrees()


def _subspace(planned: RobustPCAPlan, gate: Oracle) -> Subspace:
    """The private subspace of rows in the units that the gate has them in."""
    means = _means(planned, gate)
    center = means.point if means else _located(planned, gate) if planned.center else None
    found = _found(planned, gate, center)
    basis, explained, uncertainty = found.basis, None, found.uncertainty
    if planned.explained:
        shares, turned = np.linalg.eigh(_inside(planned, gate, found, center))
        basis, explained = basis @ turned[:, ::-1], np.clip(shares[::-1], 0.0, 1.0)
    if means:
        told = (*uncertainty.warnings, *means.warnings)
        uncertainty = replace(uncertainty, unknown=(*uncertainty.unknown, means.unknown), warnings=told)
    return Subspace(with_signs(basis), center, explained, uncertainty=uncertainty)


@dataclass(frozen=True)
class _Found:
    """What a run found.

    Attributes:
        basis: (dim, rank).
        uncertainty: how far it may be off.
        moment: (dim, dim) of all rows, as it was released; None where none was.
    """

    basis: Array
    uncertainty: Uncertainty
    moment: Array | None = None


def _inside(planned: RobustPCAPlan, gate: Oracle, found: _Found, center: Array | None) -> Array:
    """(rank, rank) the noisy second moment in the subspace that was found."""
    if any(each.statistic == "explained" for each in planned.releases):
        released = gate.mean(Frame(found.basis, center), "explained")
        return SymmetricCoordinates(planned.rank).matrix(released)
    assert found.moment is not None  # noqa: S101 - else the plan has a release for it
    return found.basis.T @ found.moment @ found.basis


def _found(planned: RobustPCAPlan, gate: Oracle, center: Array | None) -> _Found:
    """The basis, and how far it may be off."""
    dim, rank = planned.shape.dim, planned.rank
    solver = solver_of(planned.solver, dim, rank)
    if solver is not None and solver.starts_itself:
        return _Found(solver.run(gate, None, _course(planned, center))[:, :rank], _unknown(planned))
    if planned.start != "analyze-gauss":
        basis = _descent(planned, gate, center, _other_start(planned, gate, center))
        return _Found(basis, _unknown(planned))
    noise, of = _deviations(planned), principal_of(center, planned.shape.recipe)
    matrix = SymmetricCoordinates(dim).matrix(gate.mean(Frame(None, center), "moment"))
    if not planned.step_sizes:
        entry = noise["moment"] / sqrt(2.0)
        told = principal_uncertainty(matrix, rank, planned.shape.n, of=of, entry=entry)
        return _Found(principal(matrix, rank), told, matrix)
    moment = NoisyMoment(matrix, noise["moment"])
    start = _selected(planned, gate, center, principal(matrix, rank + len(_selections(planned))))
    if planned.loss == "adaptive":
        schedule = _schedule(planned, sqrt(2.0) * noise["look"])
        adaptive = Adaptive(SecondLook(dim, rank), moment, noise, rank, planned.shape.n, center, schedule, of)
        return _Found(*adaptive.run(gate, start, planned.scale))
    if not planned.descends_twice:
        return _Found(_descent(planned, gate, center, start.basis), _unknown(planned), matrix)
    loss = _loss(planned)
    basis, turn = two_descents(
        start,
        lambda at: gate.mean(SubspaceQuery(at, loss, center)),
        _schedule(planned, noise["gradient"]),
        moment,
    )
    told = descent_uncertainty(turn, rank, planned.loss, center, moment.rivals(basis))
    return _Found(basis, told, matrix)


def _schedule(planned: RobustPCAPlan, deviation: float) -> DescentSchedule:
    """The schedule of two descents, whose gradients have noise of this deviation on each number."""
    rank, steps = planned.rank, planned.step_sizes
    total = deviation * sqrt(rank * (planned.shape.dim - rank))
    return DescentSchedule(steps, steps_together(len(steps), total, rank), deviation)


def _unknown(planned: RobustPCAPlan) -> Uncertainty:
    """What one descent tells of its error: nothing, so that all is possible but what the plan foretold."""
    most = Grassmann(planned.shape.dim, planned.rank).natural_radius
    return Uncertainty(
        of="the subspace that the same steps find without noise",
        standard_deviation=most,
        radius_95=most,
        noise=min(most, planned.expected_error.radius_95),
        unknown=(
            "how far the noise turns a descent whose solver, start or steps were chosen: `radius_95` is the "
            "furthest that there is, and `noise` what the plan foretold of rows as it takes them to be",
        ),
    )


def _deviations(planned: RobustPCAPlan) -> dict[str, float]:
    """How far a coordinate of each mean may be off by noise and sampling, one deviation, by name."""
    return {each.statistic: each.doubt for each in planned.releases if isinstance(each, NoisySum)}


def _loss(planned: RobustPCAPlan) -> RobustPenalty:
    """The loss that was chosen."""
    losses: dict[str, RobustPenalty] = {
        "absolute": Absolute(),
        "squared": Squared(),
        "bounded": Bounded(planned.scale),
        "redescending": Redescending(planned.scale),
    }
    return losses[planned.loss]


def _descent(planned: RobustPCAPlan, gate: Oracle, center: Array | None, start: Array) -> Array:
    """The end of the planned descent on one loss."""
    course, solver = _course(planned, center), solver_of(planned.solver, planned.shape.dim, planned.rank)
    if solver is not None:
        return solver.run(gate, start, course)
    return descent(start, gate, asked=course.asked, rounds=course.rounds)


def _course(planned: RobustPCAPlan, center: Array | None) -> Course:
    """Return the part of the plan that a solver follows."""
    return Course(
        planned.rounds,
        planned.releases,
        lambda at: SubspaceQuery(at, _loss(planned), center),
        center,
        planned.epochs,
    )


def _means(planned: RobustPCAPlan, gate: Oracle) -> Center | None:
    """The means of a table's columns, if the plan has them released."""
    release = next((each for each in planned.releases if each.statistic == "means"), None)
    if release is None or planned.shape.recipe is None:
        return None
    released = gate.mean(None, "means")
    return CenterSum(planned.shape.recipe).center(released, _deviations(planned)["means"])


def _located(planned: RobustPCAPlan, gate: Oracle) -> Array:
    """The centre of rows without bounds: a mean in which no row pulls by more than half the norm bound."""
    dim, bound = planned.shape.dim, planned.shape.norm_bound
    walk = Walk(Ball(Euclidean(dim), np.zeros(dim), bound), np.zeros(dim))
    for _ in [r for r in planned.releases if r.statistic == "location"]:
        walk.step(planned.center_step * gate.mean(walk.point, "location"))
    return walk.point


def _other_start(planned: RobustPCAPlan, gate: Oracle, center: Array | None) -> Array:
    """The basis from which a descent starts without a second moment."""
    dim, rank = planned.shape.dim, planned.rank
    if planned.start == "random":
        return Grassmann(dim, rank).random_point(np.random.default_rng(PUBLIC_SEED))
    if planned.start == "reaper":
        frame = reaper_start(dim, rank).run(gate, None, _course(planned, center))
    else:
        frame = noisy_span(gate, center, dim, rank)
    return _selected(planned, gate, center, frame[:, : rank + len(_selections(planned))]).basis


def _selections(planned: RobustPCAPlan) -> list[tuple[str, str]]:
    """The names of the gradients and the losses by which the start is selected, one after the other."""
    names = {release.statistic for release in planned.releases}
    return [pair for pair in SELECTIONS if pair[0] in names]


def _selected(planned: RobustPCAPlan, gate: Oracle, center: Array | None, frame: Array) -> Start:
    """The frame or, with consensus, the best of the subspaces that leave out a direction of it, or two."""
    scales, steps = zip(*REFINEMENTS, strict=True)
    noise, start = _deviations(planned), Start(frame)
    for gradients, losses in _selections(planned):
        basis, doubt = select_candidate(
            start.basis,
            center=center,
            scales=scales,
            steps=steps,
            refine=partial(gate.mean, statistic=gradients),
            scores=partial(gate.mean, statistic=losses),
            deviation=noise[losses],
        )
        turned = noise[gradients] * float(np.linalg.norm(steps))
        start = Start(basis, (*start.selected, turned), doubt)
    return start

"""Private low-rank matrix completion: the subspace near which columns lie of which some entries are known.

Completed columns are not released, as they would say things of single records. Whoever holds a column fits
the basis to its known entries by least squares.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Annotated

import numpy as np

from privest.arrays import Array
from privest.data.metadata import PartialVectorsMetadata
from privest.estimators.base import Estimator, require
from privest.estimators.paper_solvers import completion_descent
from privest.estimators.range_finding.column_scales import ColumnScales
from privest.estimators.subspace.completion_error import (
    chosen_steps_uncertainty,
    completion_of,
    completion_uncertainty,
)
from privest.estimators.subspace.completion_means import Completed, HeldOut, KnownSums, LeftMoment, ridge_of
from privest.estimators.subspace.completion_schedule import DataModel
from privest.estimators.subspace.descent import principal, with_signs
from privest.estimators.subspace.gap_moment import GapMoment
from privest.estimators.subspace.plan import (
    AngleError,
    NamedRows,
    SubspacePlan,
    require_subspace,
    scales_to_find,
    subspace_warnings,
)
from privest.estimators.subspace.schedule import right_angles
from privest.estimators.subspace.solvers import Choices, Course, SubspaceSolver
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.optim.federated import APART, LocalSteps, ServerStep, Turns
from privest.options import Doc, Option, Options
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget, certified
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum
from privest.privacy.oracle import Oracle

_MOST_STEPS = 1_000
_WIDEST = 1_000
"""Columns up to which a D×D moment is released and eigenvectors are taken of it."""

_LONGEST_RUN = 1e12
"""Products that a descent takes; more take minutes."""

_MEANS, _SCORE = 0.2, 0.05
"""Shares of μ² for the columns' means, and for the error on entries that are held out."""

_LEAST_KNOWN = 1e-6
"""Share of known entries below which nothing is found, whatever it is."""


@dataclass(frozen=True)
class MatrixCompletionSpec(Options):
    """A subspace to be estimated, near which rows lie of which some entries are not known.

    Each row is divided by the length of its known part, so that none counts more than another. The subspace
    is that of one noisy second moment. Where `steps`, `step_size`, `local_steps` or `turns` ask for a
    descent, that moment is its start. A descent is for rows that lie in the subspace all but exactly. It
    finds that more exactly than their moment does, and cannot tell its error. Completed rows are not
    released, as they would say things of single records: whoever holds a row fits the basis to it by least
    squares on its known entries.
    """

    rank: Annotated[int, Option("dimension of the subspace", ge=1, usual=2)]
    steps: Annotated[int | None, Option("of the descent", ge=1)] = None
    step_size: Annotated[float | None, Option("of its longest step", gt=0, le=1000)] = None
    local_steps: LocalSteps = 1
    server_step: ServerStep = 1.0
    turns: Turns = 1
    means: Annotated[
        bool | None,
        Option(
            "fit what is left after the means of the columns, which are released, and each row's own mean; "
            "tell the error on entries that are held out. It takes a quarter of the budget. By default of "
            "tables whose columns all have bounds, where no descent is asked for",
            omit_default=True,
        ),
    ] = None


_ASSUMES = (
    "about the declared share of the entries is known, anywhere. Favourable: the variances along the rows' "
    "axes fall as 1, 1/2, 1/3 and so on. Unfavourable: no direction of the subspace exceeds one outside by "
    "more than one hundredth of the variance"
)
_DESCENT_ASSUMES = (
    "the rows lie in the subspace exactly, evenly spread in it, and about the declared share of their "
    "entries is known, anywhere; part of the error is not noise. In the unfavourable case nothing is found"
)


@dataclass(frozen=True)
class CompletionError(AngleError):
    """Length of the vector of principal angles between the answer and the subspace, in radians."""


@dataclass(frozen=True)
class Completion(NamedRows):
    """The private subspace.

    With means a row is `centers`, plus `scales` times its own mean and a point of the subspace. These follow
    from its known entries, with the ridge.
    """

    ridge: Annotated[
        Array | None,
        Doc("with means: penalty on the square of a row's coefficient of each direction", axes=(1,)),
    ] = field(default=None, kw_only=True)
    held_out_error: Annotated[
        float | None,
        Doc(
            "with means: root mean square error of this completion on known entries that are held out, in "
            "halves of the declared ranges; noisy"
        ),
    ] = field(default=None, kw_only=True)
    column_means_error: Annotated[
        float | None, Doc("the same of the columns' means alone: what a completion has to beat")
    ] = field(default=None, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class MatrixCompletionPlan(SubspacePlan):
    """A plan of a matrix completion; it has steps where they were asked for."""

    shape: PartialVectorsMetadata
    releases: tuple[NoisySum, ...]
    expected_error: CompletionError
    why: Annotated[str, Doc("what the budget is spent on")]

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return _statistics(self.shape.dim, self.solver, self.scales)

    @property
    def solver(self) -> SubspaceSolver | None:
        """The solver of the descent, where there is one."""
        return completion_descent(_rows(self.rank, self.shape)) if self.step_sizes else None

    @property
    def means(self) -> bool:
        """Whether what means leave is fitted."""
        return any(each.statistic == "known-sums" for each in self.releases)


def _statistics(
    dim: int, solver: SubspaceSolver | None, scales: ColumnScales | None
) -> dict[str, AnyStatistic]:
    own: dict[str, AnyStatistic] = {
        "known-sums": KnownSums(dim),
        "left": LeftMoment(dim),
        "held-out": HeldOut(),
        "moment": GapMoment(dim),
        **(solver.statistics if solver else {}),
    }
    return own if scales is None else scales.among(own)


def plan(
    spec: MatrixCompletionSpec, shape: PartialVectorsMetadata, target: PrivacyTarget
) -> MatrixCompletionPlan:
    """Noise, steps and exact cost of a private matrix completion, from public facts alone.

    Raises:
        ValueError: a choice that is out of range, in words fit for whoever made it.
    """
    spec = _resolved(spec, shape)
    picture = _rows(spec.rank, shape)
    solver = completion_descent(picture) if _is_descent_asked(spec) else None
    _refuse(spec, shape, target, solver)
    budget = PrivacyBudget.of(target, shape.n)
    (scales, looking), looks = scales_to_find(shape, budget), tuple[NoisySum, ...]()
    if scales is not None:
        looks, budget = scales.releases(budget, looking), budget.part(1 - looking)
    if spec.means:
        planned = _after_means(picture, budget)
    else:
        planned = _descent(spec, solver, budget, picture) if solver else _moment(picture, budget)
    error, releases = planned.expected, (*looks, *planned.releases)
    hidden = scales.warnings(looks) if scales else ()
    warnings = (*hidden, *_warnings(picture, error))
    return MatrixCompletionPlan(
        **certified(releases, _statistics(shape.dim, solver, scales), target, shape.n, warnings),
        shape=shape,
        rank=spec.rank,
        step_sizes=planned.step_sizes,
        releases=releases,
        expected_error=error,
        why=planned.why,
        local_steps=spec.local_steps,
        server_step=spec.server_step,
        turns=spec.turns,
    )


@dataclass(frozen=True)
class _Spent:
    """What a budget is spent on, and what error to expect of it."""

    releases: tuple[NoisySum, ...]
    expected: CompletionError
    why: str
    step_sizes: tuple[float, ...] = ()


def _moment(picture: DataModel, budget: PrivacyBudget) -> _Spent:
    """One moment."""
    moment = GapMoment(picture.dim)
    release = budget.release(moment, "moment", 1.0)
    deviation = moment.noise(release.deviation)
    expected = CompletionError.of(
        picture.moment_error(deviation),
        picture.rank,
        picture.dim,
        assumes=_ASSUMES,
        unfavourable=picture.small_gap_error(deviation),
    )
    return _Spent((release,), expected, "one moment has the whole budget, as no descent was asked for")


def _after_means(picture: DataModel, budget: PrivacyBudget) -> _Spent:
    """The columns' means, one moment of what they leave, and the error on entries that are held out."""
    sums = budget.release(KnownSums(picture.dim), "known-sums", 1.0, share=_MEANS)
    left = _moment(picture, budget.part(1 - _MEANS - _SCORE))
    moment = budget.release(LeftMoment(picture.dim), "left", 1.0, share=1 - _MEANS - _SCORE)
    score = budget.release(HeldOut(), "held-out", 1.0, share=_SCORE)
    why = (
        f"{_MEANS:.0%} for the columns' means, {_SCORE:.0%} for the error on entries that are held out, and "
        "the rest for one moment of what means leave"
    )
    return _Spent((sums, moment, score), left.expected, why)


def _resolved(spec: MatrixCompletionSpec, shape: PartialVectorsMetadata) -> MatrixCompletionSpec:
    """The choices, with means by default where bounds are known and no descent is asked for."""
    bounded = shape.recipe is not None and shape.recipe.is_bounded
    if spec.means is None:
        return replace(spec, means=bounded and not _is_descent_asked(spec))
    require(not spec.means or bounded, "means need a table whose columns all have low and high")
    require(
        not (spec.means and _is_descent_asked(spec)), "means are for one moment: leave out the steps or means"
    )
    return spec


def _descent(
    spec: MatrixCompletionSpec, solver: SubspaceSolver, budget: PrivacyBudget, picture: DataModel
) -> _Spent:
    """The descent of a solver, with its own start."""
    choices = Choices(spec.steps, spec.step_size, spec.local_steps, spec.turns)
    planned = solver.plan(budget, choices, left=1.0, error=right_angles(spec.rank))
    expected = CompletionError.of(
        planned.forecast,
        picture.rank,
        picture.dim,
        assumes=_DESCENT_ASSUMES,
        unfavourable=right_angles(picture.rank),
    )
    sums = tuple(each for each in planned.releases if isinstance(each, NoisySum))
    assert len(sums) == len(planned.releases)  # noqa: S101 - it takes no batches
    return _Spent(sums, expected, planned.why, planned.step_sizes)


def _rows(rank: int, shape: PartialVectorsMetadata) -> DataModel:
    return DataModel(shape.n, shape.dim, rank, max(shape.known, _LEAST_KNOWN))


def _is_descent_asked(spec: MatrixCompletionSpec) -> bool:
    return (spec.steps, spec.step_size, spec.local_steps, spec.turns) != (None, None, 1, 1)


def _warnings(picture: DataModel, expected: CompletionError) -> Iterator[str]:
    """Warnings for the analyst, from public facts."""
    if picture.known * picture.dim < picture.rank + 1:
        yield "rows with no more known entries than the rank, as declared, say little of the subspace"
    yield from subspace_warnings(expected.standard_deviation**2, picture.rank)


def _refuse(
    spec: MatrixCompletionSpec,
    shape: PartialVectorsMetadata,
    target: PrivacyTarget,
    solver: SubspaceSolver | None,
) -> None:
    """Refuse what is out of range.

    Raises:
        ValueError: one of these.
    """
    usual = solver.usual_steps if solver else None
    steps = (usual or 0) if spec.steps is None else spec.steps
    require_subspace("matrix-completion", spec.rank, shape, target)
    require(shape.dim <= _WIDEST, f"matrix-completion takes at most {_WIDEST} columns")
    require(steps <= _MOST_STEPS, f"steps must be at most {_MOST_STEPS}")
    require(steps * spec.local_steps <= _MOST_STEPS, f"steps times local_steps must be at most {_MOST_STEPS}")
    require(spec.step_size is None or spec.step_size >= 1e-9, "step_size must be at least 1e-9")
    require(spec.server_step == 1.0 or spec.local_steps > 1, APART)
    if solver is not None:
        require(
            _rows(spec.rank, shape).seen > 0,
            "rows with no more known entries than the rank, as the schema has it, fit any subspace, and no "
            "descent learns of them: leave out steps, step_size, local_steps and turns, or ask for a smaller "
            "rank",
        )
        require(
            steps * spec.local_steps * float(shape.n) * shape.dim * solver.reads <= _LONGEST_RUN,
            "this run would take too long: ask for fewer steps or a smaller rank",
        )


def run(planned: MatrixCompletionPlan, gate: Oracle) -> Completion:
    """The private subspace: sees the plan and the gate's noisy answers, never a row."""
    planned, gate, units = planned.opened(gate)
    return _completion(planned, gate).in_units(units).in_degrees()


def _completion(planned: MatrixCompletionPlan, gate: Oracle) -> Completion:
    """The private subspace of rows in the units that the gate has them in."""
    rank, statistic = planned.rank, GapMoment(planned.shape.dim)
    if planned.means:
        return _completion_after_means(planned, gate)
    if planned.solver is not None:
        course = Course(planned.rounds, planned.releases, lambda at: at)
        basis = planned.solver.run(gate, None, course)
        most = Grassmann(*basis.shape).natural_radius
        return Completion(basis, uncertainty=chosen_steps_uncertainty(planned.expected_error.radius_95, most))
    released = gate.mean(None, "moment")
    basis = with_signs(principal(statistic.whole(released)[0], rank))
    recipe = planned.shape.recipe
    of = completion_of(bounded=recipe is not None and recipe.is_bounded, means=False)
    found = completion_uncertainty(statistic, released, rank, planned.releases[0], of)
    return Completion(basis, uncertainty=found)


def _completion_after_means(planned: MatrixCompletionPlan, gate: Oracle) -> Completion:
    """The private subspace of what means leave, and how well it completes rows."""
    dim, rank = planned.shape.dim, planned.rank
    sums, moment, score = planned.releases
    means, unsure = KnownSums(dim).means(gate.mean(None, "known-sums"), sums.deviation)
    statistic = GapMoment(dim)
    released = gate.mean(means, "left")
    whole = statistic.whole(released)[0]
    eigenvalues, vectors = np.linalg.eigh(whole)
    basis = with_signs(vectors[:, ::-1][:, :rank])
    noise = sqrt(2.0 * dim) * statistic.noise(moment.deviation)
    fit = Completed(means, basis, ridge_of(eigenvalues[::-1], rank, noise))
    errors = HeldOut().errors(gate.mean(fit, "held-out"), score.deviation)
    of = completion_of(bounded=True, means=True)
    told = completion_uncertainty(statistic, released, rank, moment, of)
    return Completion(
        basis,
        centers=means,
        scales=np.ones(dim),
        ridge=fit.ridge,
        held_out_error=sqrt(errors.completed),
        column_means_error=sqrt(errors.alone),
        uncertainty=replace(told, warnings=(*errors.warnings(unsure), *told.warnings)),
    )


MATRIX_COMPLETION = Estimator(
    name="matrix-completion",
    schema_name="MatrixCompletion",
    title="matrix completion",
    summary="The private subspace of rows with unknown entries",
    plain_words=(
        "Finds the few directions along which records differ most, from records of which many numbers are "
        "not known, so that the unknown ones can be guessed."
    ),
    metadata=PartialVectorsMetadata,
    spec=MatrixCompletionSpec,
    plan_type=MatrixCompletionPlan,
    error=CompletionError,
    answer=Completion,
    planner=plan,
    run=run,
    shown=("why", "step_sizes", "local_steps", "server_step", "turns"),
    errors_apart=True,
    error_meaning="angles between the answer and the subspace, root mean square",
    unit="rad",
)

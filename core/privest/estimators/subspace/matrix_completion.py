"""Private low-rank matrix completion: the subspace near which columns lie of which some entries are known.

Completed columns are not released, as they would say things of single records. Whoever holds a column fits
the basis to its known entries by least squares.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from typing import Annotated

from privest.estimators.base import Estimator, require
from privest.estimators.subspace.completion_error import Heard, Left, completion_uncertainty, pull_left
from privest.estimators.subspace.completion_losses import CompletionGradient
from privest.estimators.subspace.completion_schedule import DataModel
from privest.estimators.subspace.descent import descent
from privest.estimators.subspace.hetero_pca import hetero_pca
from privest.estimators.subspace.off_diagonal_moment import OffDiagonalMoment
from privest.estimators.subspace.plan import (
    AngleError,
    NamedRows,
    SubspacePlan,
    is_useful,
    require_subspace,
    subspace_warnings,
)
from privest.estimators.subspace.schedule import right_angles
from privest.metadata import PartialVectorsMetadata
from privest.optim.federated import LocalSteps
from privest.options import Doc, Option, Options
from privest.privacy.budget import PrivacyBudget, certified
from privest.privacy.cost import PrivacyTarget
from privest.privacy.mechanisms import NoisySum
from privest.privacy.oracle import Oracle
from privest.privacy.statistic import AnyStatistic

_MOST_STEPS = 1_000
_WIDEST = 1_000
"""Columns up to which a D×D moment is released and eigenvectors are taken of it."""

_LONGEST_RUN = 1e12
"""Products that a descent takes; more take minutes."""

_STEPS = 12
"""Default number of steps of a descent: enough to go a long way and to average noise."""

_START = 0.3
"""Share of μ² for the start of a descent: more than rows of the assumed model need, as others come."""

_LEAST_KNOWN = 1e-6
"""Share of known entries below which nothing is found, whatever it is."""


@dataclass(frozen=True)
class MatrixCompletionSpec(Options):
    """A subspace to be estimated, near which rows lie of which some entries are not known.

    Each row is divided by the length of its known part, so that none counts more than another. Of the
    choices, what is left out follows from public facts. Completed rows are not released, as they would say
    things of single records: whoever holds a row fits the basis to it by least squares on its known entries.
    """

    rank: Annotated[int, Option("dimension of the subspace", ge=1, usual=2)]
    steps: Annotated[int | None, Option("of the descent", ge=1)] = None
    step_size: Annotated[float | None, Option("of its longest step", gt=0, le=1000)] = None
    local_steps: LocalSteps = 1


_ASSUMES = (
    "the rows lie in the subspace exactly, evenly spread in it, and about the declared share of their "
    "entries is known; part of the error is not noise. In the unfavourable case nothing is found"
)


@dataclass(frozen=True)
class CompletionError(AngleError):
    """Length of the vector of principal angles between the answer and the subspace, in radians."""


@dataclass(frozen=True)
class Completion(NamedRows):
    """The private subspace."""


@dataclass(frozen=True, kw_only=True)
class MatrixCompletionPlan(SubspacePlan):
    """A plan of a matrix completion; it has no steps where the start gets the whole budget."""

    shape: PartialVectorsMetadata
    releases: tuple[NoisySum, ...]
    expected_error: CompletionError
    why: Annotated[str, Doc("a descent, or none")]

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return _statistics(self.shape.dim, self.rank)


def _statistics(dim: int, rank: int) -> dict[str, AnyStatistic]:
    return {"hollow": OffDiagonalMoment(dim), "gradient": CompletionGradient(dim, rank)}


def plan(
    spec: MatrixCompletionSpec, shape: PartialVectorsMetadata, target: PrivacyTarget
) -> MatrixCompletionPlan:
    """Noise, steps and exact cost of a private matrix completion, from public facts alone.

    Raises:
        ValueError: a choice that is out of range, in words fit for whoever made it.
    """
    _refuse(spec, shape, target)
    rank, budget = spec.rank, PrivacyBudget.of(target, shape.n)
    picture = _picture(spec, shape)
    start = budget.release(OffDiagonalMoment(shape.dim), "hollow", 1.0)
    releases, step_sizes, error = (start,), (), picture.start_error(start.deviation)
    why = f"the start has the whole budget: a squared distance of {error:.2g} is expected"
    if _is_descent_asked(spec) or _work(spec, shape) <= _LONGEST_RUN:
        descent = _descent(spec, picture, budget)
        if _is_descent_asked(spec) or (descent.finds_the_way and descent.error < error):
            why = "it was asked for" if _is_descent_asked(spec) else "it is expected to better the start"
            why = f"a descent: {why}, from a squared distance of {error:.2g} to one of {descent.error:.2g}"
            releases, step_sizes, error = descent.releases, descent.step_sizes, descent.error
    statistics = _statistics(shape.dim, rank)
    return MatrixCompletionPlan(
        **certified(releases, statistics, target, shape.n, _warnings(picture, error)),
        shape=shape,
        rank=rank,
        step_sizes=tuple(step_sizes),
        releases=releases,
        expected_error=CompletionError.of(
            error, rank, shape.dim, assumes=_ASSUMES, unfavourable=right_angles(rank)
        ),
        why=why,
        local_steps=spec.local_steps,
    )


@dataclass(frozen=True)
class _Descent:
    """A start with its share of the budget, a descent from there, and the square of the error to expect."""

    releases: tuple[NoisySum, ...]
    step_sizes: tuple[float, ...]
    finds_the_way: bool
    error: float


def _descent(spec: MatrixCompletionSpec, picture: DataModel, budget: PrivacyBudget) -> _Descent:
    gradient = CompletionGradient(picture.dim, picture.rank)
    start = budget.release(OffDiagonalMoment(picture.dim), "hollow", 1.0, share=_START)
    away = picture.start_error(start.deviation)
    count, local = _STEPS if spec.steps is None else spec.steps, spec.local_steps
    each = (1 - _START) / count
    # The mean of a round's gradients has the noise of one that has the whole share.
    deviation = budget.release(gradient, "gradient", 1.0, share=each).deviation
    clips, steps, error = picture.descent(away, deviation, count, spec.step_size)
    alike = [(clip, len(list(equal))) for clip, equal in groupby(clips)]
    sums = [budget.release(gradient, "gradient", clip, share=each * k, count=k * local) for clip, k in alike]
    return _Descent((start, *sums), tuple(steps), is_useful(away, picture.rank), error)


def _picture(spec: MatrixCompletionSpec, shape: PartialVectorsMetadata) -> DataModel:
    return DataModel(shape.n, shape.dim, spec.rank, max(shape.known, _LEAST_KNOWN))


def _is_descent_asked(spec: MatrixCompletionSpec) -> bool:
    return (spec.steps, spec.step_size, spec.local_steps) != (None, None, 1)


def _warnings(picture: DataModel, error: float) -> Iterator[str]:
    """Warnings for the analyst, from public facts."""
    if picture.known * picture.dim < picture.rank + 1:
        yield "rows with no more known entries than the rank, as declared, say little of the subspace"
    yield from subspace_warnings(error, picture.rank)


def _refuse(spec: MatrixCompletionSpec, shape: PartialVectorsMetadata, target: PrivacyTarget) -> None:
    """Refuse what is out of range.

    Raises:
        ValueError: one of these.
    """
    steps = _STEPS if spec.steps is None else spec.steps
    require_subspace("matrix-completion", spec.rank, shape, target)
    require(shape.dim <= _WIDEST, f"matrix-completion takes at most {_WIDEST} columns")
    require(steps <= _MOST_STEPS, f"steps must be at most {_MOST_STEPS}")
    require(steps * spec.local_steps <= _MOST_STEPS, f"steps times local_steps must be at most {_MOST_STEPS}")
    require(spec.step_size is None or spec.step_size >= 1e-9, "step_size must be at least 1e-9")
    if _is_descent_asked(spec):
        require(
            _picture(spec, shape).seen > 0,
            "rows with no more known entries than the rank, as the schema has it, fit any subspace, and no "
            "descent learns of them: leave out steps, step_size and local_steps, or ask for a smaller rank",
        )
        require(
            _work(spec, shape) <= _LONGEST_RUN,
            "this run would take too long: ask for fewer steps or a smaller rank",
        )


def _work(spec: MatrixCompletionSpec, shape: PartialVectorsMetadata) -> float:
    """Products that a descent takes, of which the Gram matrices are the most."""
    return (spec.steps or _STEPS) * spec.local_steps * float(shape.n) * shape.dim * (spec.rank + 4) ** 2


def run(planned: MatrixCompletionPlan, gate: Oracle) -> Completion:
    """The private subspace: sees the plan and the gate's noisy answers, never a row."""
    hollow = OffDiagonalMoment(planned.shape.dim).matrix(gate.mean(None, "hollow"))
    start = hetero_pca(hollow, planned.rank)
    steps, local_steps = planned.step_sizes, planned.local_steps
    pulls = list[float]()
    heard = Heard(gate, pulls) if local_steps == 1 else gate
    basis = descent(start, heard, asked=lambda at: at, steps=steps, local_steps=local_steps)
    entry = planned.releases[0].deviation / sqrt(2.0)
    left = Left(1.0, 0.0)
    if steps:
        free = planned.rank * (planned.shape.dim - planned.rank)
        noises = [r.deviation * sqrt(free) for r in planned.releases[1:] for _ in range(r.count)]
        left = Left(pull_left(pulls, noises, free), planned.expected_error.standard_deviation)
    return Completion(basis, uncertainty=completion_uncertainty(hollow, start, entry, left))


MATRIX_COMPLETION = Estimator(
    name="matrix-completion",
    schema_name="MatrixCompletion",
    title="matrix completion",
    summary="The private subspace of rows with unknown entries",
    metadata=PartialVectorsMetadata,
    spec=MatrixCompletionSpec,
    plan_type=MatrixCompletionPlan,
    error=CompletionError,
    answer=Completion,
    plan=plan,
    run=run,
    shown=("why", "step_sizes"),
    error_meaning="angles between the answer and the subspace, root mean square, for rows in it exactly",
    unit="rad",
)

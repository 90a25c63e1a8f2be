"""A whole estimator in one file: the noisy mean of vectors. It shows that nothing else is needed."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from privest.arrays import Array
from privest.data.metadata import VectorsMetadata
from privest.estimators.base import BasePlan, Estimator
from privest.estimators.uncertainty import Answer, ExpectedError, Uncertainty
from privest.options import Doc, Option, Options
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget, certified
from privest.privacy.clipped_sums import any_floats, clipped_sum
from privest.privacy.oracle import Oracle


@dataclass(frozen=True)
class Row:
    """The records themselves, each shortened to the clip."""

    size: int
    description = "the rows"

    def diameter(self, clip: float) -> float:
        """Two rows may be opposite."""
        return 2.0 * clip

    @any_floats
    def clipped_sum(self, _: None, rows: Array, clip: float) -> Array:
        """Σ of the shortened rows."""
        return clipped_sum(rows, clip)


@dataclass(frozen=True)
class ToyMeanSpec(Options):
    """A mean of vectors to be estimated."""

    rounds: Annotated[int, Option("how often the sum is asked for", ge=1, le=100, usual=3)]
    shrink: Annotated[float, Option("factor of the answer", gt=0, le=1)] = 1.0


@dataclass(frozen=True)
class ToyMeanError(ExpectedError):
    """How far the noise alone moves the mean."""

    standard_deviation: Annotated[float, Doc("root mean square distance")]
    radius_95: Annotated[float, Doc("hardly ever exceeded")]


@dataclass(frozen=True)
class ToyMean(Answer):
    """The private mean."""

    mean: Annotated[Array, Doc("a number for each column", axes=(1,))]


@dataclass(frozen=True, kw_only=True)
class ToyMeanPlan(BasePlan):
    """A plan of a private mean."""

    shape: VectorsMetadata
    expected_error: ToyMeanError
    spec: ToyMeanSpec

    @property
    def shrink(self) -> Annotated[float, Doc("factor of the answer")]:
        """Factor of the answer."""
        return self.spec.shrink

    @property
    def statistics(self) -> dict[str, Row]:
        """What the gate may sum for this plan."""
        return {"row": Row(self.shape.dim)}


def plan(spec: ToyMeanSpec, shape: VectorsMetadata, target: PrivacyTarget) -> ToyMeanPlan:
    """Noise and exact cost of a private mean, from public facts alone."""
    budget = PrivacyBudget.of(target, shape.n)
    release = budget.release(Row(shape.dim), "row", shape.norm_bound, count=spec.rounds)
    deviation = spec.shrink * release.deviation * (shape.dim / spec.rounds) ** 0.5
    return ToyMeanPlan(
        **certified([release], {"row": Row(shape.dim)}, target, shape.n),
        shape=shape,
        spec=spec,
        releases=(release,),
        expected_error=ToyMeanError(deviation, 2 * deviation),
    )


def run(planned: ToyMeanPlan, gate: Oracle) -> ToyMean:
    """The private mean: sees the plan and the gate's noisy answers, never a row."""
    answers = [gate.mean(None, "row") for _ in range(planned.spec.rounds)]
    mean, deviation = np.mean(answers, axis=0), planned.expected_error.standard_deviation
    shrunk = float(np.linalg.norm(mean)) * (1 - planned.spec.shrink)
    found = Uncertainty(
        of="the mean of the shortened rows",
        standard_deviation=deviation + shrunk,
        radius_95=planned.expected_error.radius_95 + shrunk,
        noise=planned.expected_error.radius_95,
        moved=shrunk,
        unknown=("what shortening moved",),
        warnings=("a toy answered",),
    )
    return ToyMean(planned.spec.shrink * mean, uncertainty=found)


TOY_MEAN = Estimator(
    name="toy-mean",
    schema_name="ToyMean",
    title="toy mean",
    summary="The private mean of vectors",
    plain_words="The mean of toy points.",
    metadata=VectorsMetadata,
    spec=ToyMeanSpec,
    plan_type=ToyMeanPlan,
    error=ToyMeanError,
    answer=ToyMean,
    planner=plan,
    run=run,
    shown=("shrink",),
    error_meaning="distance by which the noise alone moves the toy mean, root mean square",
)

"""Low-rank matrix completion over HTTP."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from privest.estimators.subspace import matrix_completion
from privest.estimators.subspace.matrix_completion import MatrixCompletionPlan, MatrixCompletionSpec
from privest.metadata import PartialVectorsMetadata
from privest.privacy.cost import PrivacyTarget
from privest.privacy.oracle import Oracle
from privest_service.estimates.kinds.kind import Kind, plans_of
from privest_service.estimates.schemas import EstimateRequest, JobView, LocalSteps, PlanView
from privest_service.inputs import Count


class MatrixCompletionRequest(EstimateRequest):
    """A subspace to be estimated, near which rows lie of which some entries are not known.

    Each row is divided by the length of its known part, so that none counts more than another. Of the
    choices, what is left out follows from public facts. Completed rows are not released, as they would say
    things of single records: whoever holds a row fits the basis to it by least squares on its known entries.
    """

    rank: Annotated[Count, Field(description="dimension of the subspace")]
    steps: Annotated[Count | None, Field(description="of the descent")] = None
    step_size: Annotated[float | None, Field(gt=0, le=1000, description="of its longest step")] = None
    local_steps: LocalSteps = 1


class CompletionUncertainty(BaseModel):
    """Length of the vector of principal angles between the answer and the subspace, in radians.

    A forecast for rows in the subspace exactly, evenly spread in it, of which about the declared share of
    entries is known: public facts do not tell more.
    """

    standard_deviation: Annotated[float, Field(description="root mean square")]
    radius_95: Annotated[float, Field(description="not exceeded with probability 0.95")]


class MatrixCompletionEstimate(BaseModel):
    """The private subspace."""

    basis: Annotated[list[list[float]], Field(description="rows of a matrix with orthonormal columns")]


class MatrixCompletionJob(JobView):
    """A matrix completion, once its job is committed."""

    estimate: MatrixCompletionEstimate | None = None
    uncertainty: CompletionUncertainty | None = None


class MatrixCompletionPlanView(PlanView):
    """The plan of a matrix completion."""

    why: Annotated[str, Field(description="a descent, or none")]
    step_sizes: list[float]
    expected_error: CompletionUncertainty


def _plan(
    options: dict[str, Any], shape: PartialVectorsMetadata, target: PrivacyTarget
) -> MatrixCompletionPlan:
    return matrix_completion.plan(MatrixCompletionSpec(**options), shape, target)


def _run(plan: MatrixCompletionPlan, gate: Oracle) -> MatrixCompletionEstimate:
    return MatrixCompletionEstimate(basis=matrix_completion.run(plan, gate).basis.tolist())


MATRIX_COMPLETION = Kind(
    name="matrix-completion",
    title="The private subspace of rows with unknown entries",
    dataset_kind="partial-vectors",
    request=MatrixCompletionRequest,
    job=MatrixCompletionJob,
    plan_view=MatrixCompletionPlanView,
    plan=_plan,
    is_heavy=lambda _: False,
    plans=plans_of(MatrixCompletionPlan),
    run=_run,
)

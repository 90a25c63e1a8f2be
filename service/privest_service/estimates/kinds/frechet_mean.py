"""Fréchet means over HTTP."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.planning import Solver
from privest.estimators.frechet_mean.variance_reduction import FullNoise
from privest.metadata import PointsMetadata
from privest.privacy.cost import PrivacyTarget
from privest.privacy.mechanisms import Scheme
from privest.privacy.oracle import Oracle
from privest_service.estimates.kinds.kind import Kind, plans_of
from privest_service.estimates.schemas import EstimateRequest, JobView, LocalSteps, PlanView
from privest_service.inputs import Count, Point


class FrechetMeanRequest(EstimateRequest):
    """A Fréchet mean to be estimated; of its choices, what is left out follows from public facts."""

    start: Annotated[Point | None, Field(description="first iterate, as nested lists")] = None
    clip: Annotated[float | None, Field(gt=0, le=1e6, description="by which one record pulls at most")] = None
    step_size: Annotated[float | None, Field(gt=0, le=100)] = None
    steps: Annotated[Count | None, Field(description="of `rsvrg`: in an epoch")] = None
    solver: Annotated[
        Solver | None, Field(description="full gradients, random batches, or both; by default the best")
    ] = None
    rate: Annotated[float | None, Field(gt=0, le=1, description="probability of a record in a batch")] = None
    sampling: Annotated[Scheme, Field(description="how batches are drawn")] = "poisson"
    epochs: Annotated[Count | None, Field(description="of `rsvrg`")] = None
    restarts: Annotated[Count | None, Field(description="of `rsvrg`")] = None
    clip_change: Annotated[
        float | None, Field(gt=0, le=1e6, description="of `rsvrg`: bound on a record's change of gradient")
    ] = None
    full_noise: Annotated[
        FullNoise, Field(description="of `rsvrg`: noise on full gradients once an epoch, or at every step")
    ] = "epoch"
    local_steps: LocalSteps = 1


class MeanUncertainty(BaseModel):
    """Geodesic distance by which the noise alone moves the answer, where the clip does not bind."""

    standard_deviation: Annotated[float, Field(description="root mean square distance")]
    radius_95: Annotated[float, Field(description="not exceeded with probability 0.95")]


class FrechetMeanEstimate(BaseModel):
    """The private mean."""

    point: Annotated[list[Any], Field(description="a point of the manifold, as nested lists")]


class FrechetMeanJob(JobView):
    """A Fréchet mean, once its job is committed."""

    estimate: FrechetMeanEstimate | None = None
    uncertainty: MeanUncertainty | None = None


class FrechetMeanPlanView(PlanView):
    """The plan of a Fréchet mean."""

    solver: Solver
    why: Annotated[str, Field(description="this solver")]
    step_size: float
    radius: Annotated[float, Field(description="of the public ball in which the mean is sought")]
    expected_error: MeanUncertainty


def _plan(
    options: dict[str, Any], shape: PointsMetadata, target: PrivacyTarget
) -> frechet_mean.FrechetMeanPlan:
    return frechet_mean.plan(frechet_mean.FrechetMeanSpec(**options), shape, target)


def _run(plan: frechet_mean.FrechetMeanPlan, gate: Oracle) -> FrechetMeanEstimate:
    return FrechetMeanEstimate(point=frechet_mean.run(plan, gate).tolist())


FRECHET_MEAN = Kind(
    name="frechet-mean",
    title="The private Fréchet mean of points on a manifold",
    dataset_kind="points",
    request=FrechetMeanRequest,
    job=FrechetMeanJob,
    plan_view=FrechetMeanPlanView,
    plan=_plan,
    is_heavy=lambda options: options["solver"] in ("rsgd", "rsvrg"),
    plans=plans_of(frechet_mean.FrechetMeanPlan),
    run=_run,
)

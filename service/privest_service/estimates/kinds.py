"""The kinds of estimates: how a request becomes a plan, and how a worker runs it.

The web process plans; what only runs need (noise, solvers over rows) is imported by `run_job`, in a worker.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, Field, TypeAdapter

from privest.estimators import frechet_mean
from privest.estimators.courses import Solver
from privest.privacy.certificates import Release, Scheme
from privest.privacy.cost import Cost, PrivacyTarget
from privest.shapes import PointsShape, Shape
from privest.solvers.variance_reduction import FullNoise
from privest_service.estimates.schemas import EstimateRequest, JobView, PlanView, SecondOpinion
from privest_service.inputs import Point


class Plan(Protocol):
    """What every plan of the core has."""

    @property
    def target(self) -> PrivacyTarget:
        """As requested."""
        ...

    @property
    def cost(self) -> Cost:
        """As certified."""
        ...

    @property
    def releases(self) -> tuple[Release, ...]:
        """What the gate will answer."""
        ...

    @property
    def steps(self) -> int:
        """Of the whole run."""
        ...

    @property
    def expected_error(self) -> Any:
        """By the noise, from public facts."""
        ...

    @property
    def mechanism(self) -> str:
        """In words."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """For the analyst."""
        ...


class FrechetMeanRequest(EstimateRequest):
    """A Fréchet mean to be estimated; of its choices, what is left out follows from public facts."""

    start: Annotated[Point | None, Field(description="first iterate, as nested lists")] = None
    clip: Annotated[float | None, Field(gt=0, le=1e6, description="by which one record pulls at most")] = None
    step_size: Annotated[float | None, Field(gt=0, le=100)] = None
    steps: Annotated[int | None, Field(ge=1, description="of `rsvrg`: in an epoch")] = None
    solver: Annotated[
        Solver | None, Field(description="full gradients, random batches, or both; by default the best")
    ] = None
    rate: Annotated[float | None, Field(gt=0, le=1, description="probability of a record in a batch")] = None
    sampling: Annotated[Scheme, Field(description="how batches are drawn")] = "poisson"
    epochs: Annotated[int | None, Field(ge=1, description="of `rsvrg`")] = None
    restarts: Annotated[int | None, Field(ge=1, description="of `rsvrg`")] = None
    clip_change: Annotated[
        float | None, Field(gt=0, le=1e6, description="of `rsvrg`: bound on a record's change of gradient")
    ] = None
    full_noise: Annotated[
        FullNoise, Field(description="of `rsvrg`: noise on full gradients once an epoch, or at every step")
    ] = "epoch"


class Uncertainty(BaseModel):
    """Geodesic distance by which the noise alone moves the answer, where the clip does not bind."""

    standard_deviation: Annotated[float, Field(description="root mean square distance")]
    radius_95: Annotated[float, Field(description="not exceeded with probability 0.95")]


class FrechetMeanEstimate(BaseModel):
    """The private mean."""

    point: Annotated[list[Any], Field(description="a point of the manifold, as nested lists")]


class FrechetMeanJob(JobView):
    """A Fréchet mean, once its job is committed."""

    estimate: FrechetMeanEstimate | None = None
    uncertainty: Uncertainty | None = None


class FrechetMeanPlanView(PlanView):
    """The plan of a Fréchet mean."""

    solver: Solver
    why: Annotated[str, Field(description="this solver")]
    step_size: float
    radius: Annotated[float, Field(description="of the public ball in which the mean is sought")]
    expected_error: Uncertainty


@dataclass(frozen=True)
class Kind:
    """One estimator, as the service knows it."""

    name: str
    title: str
    dataset_kind: str
    request: type[EstimateRequest]
    job: type[JobView]
    plan_view: type[PlanView]
    plan: Callable[[dict[str, Any], Any, PrivacyTarget], Plan]
    is_heavy: Callable[[dict[str, Any]], bool]
    """Whether a plan with these options takes long, and libraries that the web process does without."""
    plans: TypeAdapter[Any]
    run: Callable[[Any, str], BaseModel]

    def options(self, request: EstimateRequest) -> dict[str, Any]:
        """The choices of a request that are this kind's own."""
        return request.model_dump(exclude=set(EstimateRequest.model_fields))

    @property
    def own_plan_fields(self) -> set[str]:
        """What this kind shows of its plans besides what every kind does."""
        return set(self.plan_view.model_fields) - set(PlanView.model_fields)


def _plan_frechet_mean(
    options: dict[str, Any], shape: PointsShape, target: PrivacyTarget
) -> frechet_mean.FrechetMeanPlan:
    return frechet_mean.plan(frechet_mean.FrechetMeanSpec(**options), shape, target)


def _run_frechet_mean(plan: frechet_mean.FrechetMeanPlan, path: str) -> FrechetMeanEstimate:
    from privest_service.estimates import worker  # noqa: PLC0415 - heavy, and for workers alone

    gate = worker.gate(path, plan.statistics, plan.releases)
    return FrechetMeanEstimate(point=frechet_mean.run(plan, gate).tolist())


FRECHET_MEAN = Kind(
    name="frechet-mean",
    title="The private Fréchet mean of points on a manifold",
    dataset_kind="points",
    request=FrechetMeanRequest,
    job=FrechetMeanJob,
    plan_view=FrechetMeanPlanView,
    plan=_plan_frechet_mean,
    is_heavy=lambda options: options["solver"] in ("rsgd", "rsvrg"),
    plans=TypeAdapter(frechet_mean.FrechetMeanPlan),
    run=_run_frechet_mean,
)

KINDS = {kind.name: kind for kind in (FRECHET_MEAN,)}


def plan_job(kind: str, options: dict[str, Any], shape: Shape, target: PrivacyTarget) -> str:
    """Plan in a worker process what would take the web process too long.

    Raises:
        ValueError: a choice is out of range.
    """
    found = KINDS[kind]
    return found.plans.dump_json(found.plan(options, shape, target)).decode()


def opinion_job(releases: tuple[Release, ...], delta: float) -> str:
    """Another accountant's view of a plan: the work of a worker process, as that accountant is heavy.

    Returns:
        a `SecondOpinion` as JSON.
    """
    from privest.privacy.second_opinion import second_opinion  # noqa: PLC0415 - for workers alone

    return SecondOpinion(**asdict(second_opinion(releases, delta))).model_dump_json()


def run_job(kind: str, plan: str, path: str) -> str:
    """Run a plan over the rows in a file: the work of a worker process.

    Args:
        kind: name of the estimator.
        plan: the plan as JSON, exactly as it was charged.
        path: of the rows.

    Returns:
        the estimate as JSON.
    """
    found = KINDS[kind]
    return found.run(found.plans.validate_json(plan), path).model_dump_json()

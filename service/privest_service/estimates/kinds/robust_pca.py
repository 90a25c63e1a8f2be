"""Robust PCA over HTTP."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from privest.estimators.subspace import robust_pca
from privest.estimators.subspace.robust_pca import STOCHASTIC, Loss, Solver, Start
from privest.metadata import VectorsMetadata
from privest.privacy.cost import PrivacyTarget
from privest.privacy.mechanisms import Scheme
from privest.privacy.oracle import Oracle
from privest_service.estimates.kinds.kind import Kind, plans_of
from privest_service.estimates.schemas import EstimateRequest, JobView, LocalSteps, PlanView
from privest_service.inputs import Count


class RobustPCARequest(EstimateRequest):
    """A subspace to be estimated; rows are put on the unit sphere, so that none counts more than another.

    Of the choices, what is left out follows from public facts.
    """

    rank: Annotated[Count, Field(description="dimension of the subspace")]
    loss: Annotated[
        Loss,
        Field(
            description="of a row's distance d: `absolute` d, `squared` d² (PCA), `bounded` d²/(c²+d²), "
            "`redescending` like d up to c and flat beyond"
        ),
    ] = "redescending"
    solver: Annotated[
        Solver, Field(description="full gradients, random batches, or descents over a convex relaxation")
    ] = "ggd"
    start: Annotated[
        Start | None,
        Field(description="a public random subspace, or what a noisy second moment or sketch shows"),
    ] = None
    consensus: Annotated[
        bool | None, Field(description="choose the start among subspaces of one with a dimension more")
    ] = None
    center: Annotated[
        bool, Field(description="estimate a centre within `norm_bound` and take it off the rows")
    ] = False
    steps: Annotated[Count | None, Field(description="of the descent")] = None
    step_size: Annotated[float | None, Field(gt=0, le=1000, description="of its first step")] = None
    scale: Annotated[
        float | None, Field(gt=0, le=1000, description="c of the losses `bounded` and `redescending`")
    ] = None
    rate: Annotated[float | None, Field(gt=0, le=1, description="probability of a record in a batch")] = None
    sampling: Annotated[Scheme, Field(description="how batches are drawn")] = "poisson"
    local_steps: LocalSteps = 1
    explained: Annotated[
        bool,
        Field(description="estimate also the share of variance along each direction, for 5 % of the budget"),
    ] = False


class SubspaceUncertainty(BaseModel):
    """Length of the vector of principal angles by which the noise turns the answer, in radians.

    A forecast for half of the rows about the subspace, off it by a tenth of their length, and the others in
    no direction: public facts do not tell more.
    """

    standard_deviation: Annotated[float, Field(description="root mean square")]
    radius_95: Annotated[float, Field(description="not exceeded with probability 0.95")]


class RobustPCAEstimate(BaseModel):
    """The private subspace."""

    basis: Annotated[list[list[float]], Field(description="rows of a matrix with orthonormal columns")]
    center: Annotated[
        list[float] | None, Field(description="of the affine subspace, where one was asked for")
    ]
    explained: Annotated[
        list[float] | None,
        Field(
            description="shares of the spherical rows' variance along the columns, where they were asked for"
        ),
    ]


class RobustPCAJob(JobView):
    """A robust PCA, once its job is committed."""

    estimate: RobustPCAEstimate | None = None
    uncertainty: SubspaceUncertainty | None = None


class RobustPCAPlanView(PlanView):
    """The plan of a robust PCA."""

    solver: Solver
    start: Start | None
    consensus: bool
    why: Annotated[str, Field(description="this start")]
    step_sizes: list[float]
    expected_error: SubspaceUncertainty


def _plan(options: dict[str, Any], shape: VectorsMetadata, target: PrivacyTarget) -> robust_pca.RobustPCAPlan:
    return robust_pca.plan(robust_pca.RobustPCASpec(**options), shape, target)


def _run(plan: robust_pca.RobustPCAPlan, gate: Oracle) -> RobustPCAEstimate:
    found = robust_pca.run(plan, gate)
    return RobustPCAEstimate(
        basis=found.basis.tolist(),
        center=None if found.center is None else found.center.tolist(),
        explained=None if found.explained is None else found.explained.tolist(),
    )


ROBUST_PCA = Kind(
    name="robust-pca",
    title="The private subspace that most rows lie near",
    dataset_kind="vectors",
    request=RobustPCARequest,
    job=RobustPCAJob,
    plan_view=RobustPCAPlanView,
    plan=_plan,
    is_heavy=lambda options: options["solver"] in STOCHASTIC,
    plans=plans_of(robust_pca.RobustPCAPlan),
    run=_run,
)

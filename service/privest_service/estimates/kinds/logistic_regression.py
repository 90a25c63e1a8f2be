"""Logistic regression over HTTP."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from privest.estimators.linear_model import logistic_regression
from privest.estimators.linear_model.logistic_regression import Loss, Solver
from privest.metadata import LabelledMetadata
from privest.privacy.cost import PrivacyTarget
from privest.privacy.oracle import Oracle
from privest_service.estimates.kinds.kind import Kind, plans_of
from privest_service.estimates.schemas import EstimateRequest, JobView, PlanView
from privest_service.inputs import Count


class LogisticRegressionRequest(EstimateRequest):
    """A linear classifier to be estimated; of the choices, what is left out follows from public facts."""

    solver: Annotated[
        Solver | None,
        Field(
            description="by default `newton` where there are records enough, else `clipped`; of another loss "
            "than `logistic` `escape`, or `spider` if it is asked for, which sees each record once"
        ),
    ] = None
    penalty: Annotated[
        float | None,
        Field(
            ge=0,
            le=1e6,
            description="λ of λ|w|², for features in units of the norm bound; with `logistic-nonconvex` of "
            "λ Σ w²/(1 + w²)",
        ),
    ] = None
    steps: Annotated[Count | None, Field(description="of a descent; with `-opt` the most of them")] = None
    step_scale: Annotated[float | None, Field(gt=0, le=1, description="c of step lengths c/L")] = None
    batch_size: Annotated[
        Count | None,
        Field(description="of a descent's random batches, expected or exact; by default all records"),
    ] = None
    intercept: bool = True
    standardisation: Annotated[
        Literal["public", "private"],
        Field(
            description="of features, by the schema's `mean` and `scale`; `private` takes these for the "
            "middle and half the width of bounds, and a fifth of the budget to learn better ones"
        ),
    ] = "public"
    sampling_errors: Annotated[
        bool,
        Field(
            description="learn what the sampling of rows adds to the errors: with `newton` that is known in "
            "any case, of other solvers it takes a fifth of the budget"
        ),
    ] = False
    loss: Annotated[
        Loss,
        Field(
            description="`sigmoid` and `savage` are bounded, so that a wrong label cannot pull for ever; "
            "`logistic-nonconvex` has a bounded penalty; these three are for two classes",
            # So that a question of before there was a choice is still the same question.
            exclude_if=lambda loss: loss == "logistic",
        ),
    ] = "logistic"


class SpreadView(BaseModel):
    """Of the coefficients and, last, the intercept; with more than two classes one for each class."""

    standard_errors: list[float] | list[list[float]]
    covariance: Annotated[
        list[list[float]] | list[list[list[float]]] | None,
        Field(description="left out where there would be more than 50,000 numbers"),
    ]


class LogisticRegressionEstimate(BaseModel):
    """The private classifier, for features in the units in which they were uploaded."""

    coefficients: Annotated[
        list[float] | list[list[float]],
        Field(description="of the features; with more than two classes a list for each class"),
    ]
    intercept: float | list[float]
    classes: Annotated[
        list[str], Field(description="a positive score means the second of two, the highest one of more")
    ]
    noise: Annotated[SpreadView, Field(description="what the noise adds to the errors, to first order")]
    sampling: Annotated[
        SpreadView | None,
        Field(description="and the sampling of rows, where that is known; the two are independent, and add"),
    ]


class ReleaseUncertainty(BaseModel):
    """What is known of the error before any row is read; errors of coefficients come with them."""

    standard_deviation: Annotated[
        float,
        Field(description="of the noise on a coordinate of the last mean, features at most one long"),
    ]
    accuracy: Annotated[
        float | None,
        Field(
            description="of `spider`: α, where some point of the run is expected to have a gradient no "
            "longer than that, and no curvature below −√(ρα) for the ρ of the loss",
            exclude_if=lambda accuracy: accuracy is None,
        ),
    ] = None


class LogisticRegressionJob(JobView):
    """A logistic regression, once its job is committed."""

    estimate: LogisticRegressionEstimate | None = None
    uncertainty: ReleaseUncertainty | None = None


class LogisticRegressionPlanView(PlanView):
    """The plan of a logistic regression."""

    solver: Solver
    why: Annotated[str, Field(description="this solver")]
    penalty: float
    expected_error: ReleaseUncertainty


def _plan(
    options: dict[str, Any], shape: LabelledMetadata, target: PrivacyTarget
) -> logistic_regression.LogisticPlan:
    return logistic_regression.plan(logistic_regression.LogisticSpec(**options), shape, target)


def _run(plan: logistic_regression.LogisticPlan, gate: Oracle) -> LogisticRegressionEstimate:
    found = logistic_regression.run(plan, gate)
    return LogisticRegressionEstimate(
        coefficients=found.coefficients.tolist(),
        intercept=found.intercept.tolist(),
        classes=list(found.classes),
        noise=_spread(found.noise),
        sampling=None if found.sampling is None else _spread(found.sampling),
    )


def _spread(spread: logistic_regression.Spread) -> SpreadView:
    covariance = None if spread.covariances is None else spread.covariances.tolist()
    return SpreadView(standard_errors=spread.standard_errors.tolist(), covariance=covariance)


LOGISTIC_REGRESSION = Kind(
    name="logistic-regression",
    title="A private linear classifier of labelled records",
    dataset_kind="labelled",
    request=LogisticRegressionRequest,
    job=LogisticRegressionJob,
    plan_view=LogisticRegressionPlanView,
    plan=_plan,
    is_heavy=lambda options: options["batch_size"] is not None,
    plans=plans_of(logistic_regression.LogisticPlan),
    run=_run,
)

"""Scores of submitted classifiers over HTTP."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from privest.estimators.linear_model import classifier_score
from privest.estimators.linear_model.classifier_score import Metric
from privest.metadata import LabelledMetadata
from privest.privacy.cost import PrivacyTarget
from privest.privacy.oracle import Oracle
from privest_service.estimates.kinds.kind import Kind, plans_of
from privest_service.estimates.schemas import EstimateRequest, JobView, PlanView
from privest_service.inputs import Point


class ClassifierScoreRequest(EstimateRequest):
    """A linear classifier to be scored: `coefficients` and `intercept` as a logistic regression answers them.

    They are public, and the score is for features in the units in which they were uploaded.
    """

    coefficients: Annotated[
        Point,
        Field(description="a number for each feature; with more than two classes a list for each class"),
    ]
    intercept: Annotated[
        float | Point, Field(description="a number; with more than two classes one for each class")
    ]
    metric: Annotated[
        Metric, Field(description="share of right answers, or area under the ROC curve of two classes")
    ] = "accuracy"


class ScoreView(BaseModel):
    """A private score between 0 and 1."""

    value: float
    standard_error: Annotated[
        float,
        Field(
            description="by the noise; of an area to first order, and beside it bins draw an area towards "
            "1/2 by about a quarter as much"
        ),
    ]
    sampling_error: Annotated[
        float,
        Field(
            description="standard error by the sampling of rows, worked out from the noisy value; not in "
            "`standard_error`, and not for a classifier that was fitted to these very rows"
        ),
    ]


class ClassifierScoreEstimate(ScoreView):
    """The private score of the classifier."""

    metric: Metric
    accuracy: Annotated[
        ScoreView | None, Field(description="that comes with `auc`, less exact than asked for by itself")
    ]


class ScoreUncertainty(BaseModel):
    """How far the noise alone moves the score: exact for accuracy, a forecast for the area.

    The forecast is for classes of one size whose scores overlap as far as an area of 5/6: public facts do not
    tell more. The answer's `standard_error` does.
    """

    standard_deviation: float
    radius_95: Annotated[float, Field(description="not exceeded with probability 0.95")]


class ClassifierScoreJob(JobView):
    """A classifier's score, once its job is committed."""

    estimate: ClassifierScoreEstimate | None = None
    uncertainty: ScoreUncertainty | None = None


class ClassifierScorePlanView(PlanView):
    """The plan of a classifier's score."""

    metric: Metric
    bins: Annotated[int | None, Field(description="of scores, for each class; null for accuracy")]
    expected_error: ScoreUncertainty


def _plan(
    options: dict[str, Any], shape: LabelledMetadata, target: PrivacyTarget
) -> classifier_score.ScorePlan:
    return classifier_score.plan(classifier_score.ScoreSpec(**options), shape, target)


def _run(plan: classifier_score.ScorePlan, gate: Oracle) -> ClassifierScoreEstimate:
    found = classifier_score.run(plan, gate)
    return ClassifierScoreEstimate(
        metric=plan.metric,
        **_view(found.score).model_dump(),
        accuracy=None if found.accuracy is None else _view(found.accuracy),
    )


def _view(score: classifier_score.Score) -> ScoreView:
    return ScoreView(
        value=score.value, standard_error=score.standard_error, sampling_error=score.sampling_error
    )


CLASSIFIER_SCORE = Kind(
    name="classifier-score",
    title="The private accuracy, or area under the ROC curve, of a submitted linear classifier",
    dataset_kind="labelled",
    request=ClassifierScoreRequest,
    job=ClassifierScoreJob,
    plan_view=ClassifierScorePlanView,
    plan=_plan,
    is_heavy=lambda _: False,
    plans=plans_of(classifier_score.ScorePlan),
    run=_run,
)

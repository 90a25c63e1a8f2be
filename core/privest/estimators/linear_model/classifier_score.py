"""The private score of a linear classifier that is public: its accuracy, or its area under the ROC curve."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Annotated, Literal

import numpy as np

from privest.arrays import Array, NestedList
from privest.data.metadata import LabelledMetadata
from privest.estimators.base import BasePlan, Estimator, least_noisy, require
from privest.estimators.linear_model.losses.scores import LinearScores, RightAnswers, ScoreHistogram
from privest.estimators.linear_model.noisy_scores import (
    NORMAL_95,
    Score,
    ShareNoise,
    accuracy,
    area_under_curve,
    drawn_by_bins,
    hardly_any,
    share,
    usual_counts,
)
from privest.estimators.uncertainty import Answer, ExpectedError, Uncertainty
from privest.options import Doc, Option, Options
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget, certified
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum
from privest.privacy.oracle import Oracle

Metric = Literal["accuracy", "auc"]

_FEWEST_BINS, _MOST_BINS = 4, 200

_NOTHING = 0.4
"""Radius from which on a score that lies between 0 and 1 says nothing."""


@dataclass(frozen=True)
class ScoreSpec(Options):
    """A linear classifier to be scored: `coefficients` and `intercept` as a logistic regression answers them.

    They are public, and the score is for features in the units in which they were uploaded.
    """

    coefficients: Annotated[
        NestedList, Option("a number for each feature; with more than two classes a list for each class")
    ]
    intercept: Annotated[
        float | NestedList, Option("a number; with more than two classes one for each class")
    ]
    metric: Annotated[
        Metric, Option("share of right answers, or area under the ROC curve of two classes")
    ] = "accuracy"


@dataclass(frozen=True)
class ScoreError(ExpectedError):
    """How far the noise alone moves the score: exact for accuracy, a forecast for the area.

    The forecast is for classes of one size whose scores overlap as far as an area of 5/6: public facts do not
    tell more. The answer's `standard_error` does.
    """

    standard_deviation: float
    radius_95: Annotated[float, Doc("not exceeded with probability 0.95")]


@dataclass(frozen=True, kw_only=True)
class ScorePlan(BasePlan):
    """A plan of a score, with one release.

    Attributes:
        spec: the classifier, and the metric.
    """

    shape: LabelledMetadata
    releases: tuple[NoisySum, ...]
    expected_error: ScoreError
    spec: ScoreSpec

    @property
    def metric(self) -> Metric:
        """The score that is estimated."""
        return self.spec.metric

    @property
    def bins(self) -> Annotated[int | None, Doc("of scores, for each class; null for accuracy")]:
        """Number of bins of scores, for each class; None for the accuracy."""
        return None if self.metric == "accuracy" else self.releases[0].size // 2

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return {self.releases[0].statistic: _counted(self.spec, self.shape, self.target)}


@dataclass(frozen=True)
class ClassifierScore(Score, Answer):
    """The private score of the classifier."""

    metric: Metric
    accuracy: Annotated[Score | None, Doc("that comes with `auc`, less exact than asked for by itself")]


def plan(spec: ScoreSpec, shape: LabelledMetadata, target: PrivacyTarget) -> ScorePlan:
    """Plan the noise and the exact cost of a private score, from public facts alone.

    Where budgets add up ε and δ, and with δ = 0, the noise is Laplace noise if that has the smaller error;
    else it is Gaussian.

    Raises:
        ValueError: the classifier does not fit the dataset. The message is fit for the analyst.
    """
    require(shape.n >= 1, "a score needs at least one record")
    return least_noisy(
        lambda target: _plan(spec, shape, target), target, lambda plan: plan.expected_error.radius_95
    )


def _plan(spec: ScoreSpec, shape: LabelledMetadata, target: PrivacyTarget) -> ScorePlan:
    """Plan a score with the noise that belongs to the δ of the target."""
    counted = _counted(spec, shape, target)
    name = "right" if isinstance(counted, RightAnswers) else "histogram"
    release = PrivacyBudget.of(target, shape.n).release(counted, name, counted.longest)
    return ScorePlan(
        **certified([release], {name: counted}, target, shape.n, _warnings(spec, shape)),
        shape=shape,
        spec=spec,
        releases=(release,),
        expected_error=_expected_error(release),
    )


def _counted(
    spec: ScoreSpec, shape: LabelledMetadata, target: PrivacyTarget
) -> RightAnswers | ScoreHistogram:
    """The statistic of a metric, for a classifier that fits.

    Raises:
        ValueError: it does not.
    """
    asked = classifier(spec, shape)
    if spec.metric == "accuracy":
        return RightAnswers()
    require(len(shape.classes) == 2, "auc needs two classes; accuracy takes any number of them")
    return histogram(asked, shape, PrivacyBudget.of(target, shape.n))


def _expected_error(release: NoisySum) -> ScoreError:
    """The error that public facts foretell."""
    if release.statistic == "histogram":
        deviation = area_under_curve(usual_counts(release.size // 2, release.n), release).standard_error
        return ScoreError(
            deviation,
            NORMAL_95 * deviation,
            assumes="two classes of one size, whose scores spread as the schema has it and overlap",
            unfavourable=NORMAL_95 * 0.5,
        )
    radius = ShareNoise.of(release).radius_95
    return ScoreError(release.deviation, radius, assumes="nothing of the records", unfavourable=radius)


def accuracy_error(shape: LabelledMetadata, target: PrivacyTarget) -> ScoreError:
    """Return the error of the private accuracy of any classifier, which public facts determine."""
    right = RightAnswers()

    def error(target: PrivacyTarget) -> ScoreError:
        return _expected_error(PrivacyBudget.of(target, shape.n).release(right, "right", right.longest))

    return least_noisy(error, target, lambda error: error.radius_95)


def _warnings(spec: ScoreSpec, shape: LabelledMetadata) -> Iterator[str]:
    """Warnings for the analyst, from public facts."""
    if spec.metric == "auc" and shape.scale is None:
        yield (
            "the schema names no mean and scale of the features: scores are taken for log-odds, and those of "
            "another scale fall into few bins, which draws the area towards 1/2"
        )


def run(planned: ScorePlan, gate: Oracle) -> ClassifierScore:
    """The private score: sees the plan and the gate's noisy answer, never a row."""
    (release,) = planned.releases
    noisy = gate.mean(classifier(planned.spec, planned.shape), release.statistic)
    counted, kept = planned.statistics[release.statistic], gate.share
    if not isinstance(counted, ScoreHistogram):
        score = share(float(noisy[0]), ShareNoise.of(release), release.n, kept)
        return _answer(planned, score, _uncertainty(planned, score, 0.0))
    counts = release.n * noisy
    # n is public. What noise adds to the whole is taken off all bins alike: a projection, in least squares.
    # Counts below 0 stay. Cut off, or on the simplex, what noise leaves in empty bins would no longer cancel,
    # and draw the area towards 1/2 by as much as its standard error.
    counts += (release.n - counts.sum()) / release.size
    area = area_under_curve(counts, release, kept)
    moved = 0.5 if hardly_any(counts, release) else drawn_by_bins(counts, release)
    beside = accuracy(counts, counted.edges, release, kept)
    return _answer(planned, area, _uncertainty(planned, area, moved), beside)


def _uncertainty(planned: ScorePlan, score: Score, moved: float) -> Uncertainty:
    """The uncertainty of a score that bins may have moved so far."""
    name = "share of right answers" if planned.metric == "accuracy" else "area under the ROC curve"
    exact = planned.metric == "accuracy"
    noise = planned.expected_error.radius_95 if exact else NORMAL_95 * score.standard_error
    deviation, radius = (min(each, 1.0) for each in (hypot(score.standard_error, moved), noise + moved))
    useless = radius >= _NOTHING
    return Uncertainty(
        of=f"the {name} of this classifier on these records",
        standard_deviation=deviation,
        radius_95=radius,
        noise=min(noise, 1.0),
        moved=moved,
        sampling=score.sampling_error,
        unknown=("the sampling error of a classifier that was fitted to these very records",),
        warnings=("the score says next to nothing: it may be anything from 0 to 1",) if useless else (),
    )


def _answer(
    planned: ScorePlan, score: Score, uncertainty: Uncertainty, beside: Score | None = None
) -> ClassifierScore:
    return ClassifierScore(
        **vars(score),
        metric=planned.metric,
        accuracy=beside,
        uncertainty=uncertainty,
    )


def classifier(spec: ScoreSpec, shape: LabelledMetadata) -> LinearScores:
    """The submitted classifier, as arrays.

    Raises:
        ValueError: it does not fit the classes and features, or is not finite.
    """
    classes = len(shape.classes)
    leading = () if classes == 2 else (classes,)
    coefficients, intercept = _array(spec.coefficients), _array(spec.intercept)
    if coefficients.shape != (*leading, shape.dim):
        each = "" if classes == 2 else f" for each of {classes} classes"
        raise ValueError(f"coefficients must be a list of {shape.dim} numbers{each}")
    if intercept.shape != leading:
        fitting = "a number" if classes == 2 else f"a list of {classes} numbers"
        raise ValueError(f"intercept must be {fitting}")
    finite = bool(np.isfinite(coefficients).all() and np.isfinite(intercept).all())
    require(finite, "coefficients and intercept must be finite")
    return LinearScores(coefficients, intercept)


def _array(given: float | Sequence[object]) -> Array:
    """Numbers in nested lists; of no shape that fits anything where they are none."""
    try:
        return np.array(given, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        return np.empty(0)


def histogram(asked: LinearScores, shape: LabelledMetadata, allowed: PrivacyBudget) -> ScoreHistogram:
    """Bins for the scores of a classifier of two classes, from public facts alone.

    Their edges are quantiles of a logistic law: with the mean and the scale of scores where the schema tells
    these of the features, taken for uncorrelated, else of the standard one, which makes bins even in
    predicted probability. Its tails are long enough for correlated features and for classes far apart. Over
    60 kinds of data 20 such bins leave a bias of .0014 on average and .0042 at most, whatever the length of
    the coefficients; bins even in probability up to .035, and .2 with coefficients ten times as long.

    The bias falls as 0.6/bins², at most 1.2/bins²; the noise grows as √bins. Their number keeps the first to
    about a quarter of the second. With δ = 0 noise of ε is what Gaussian noise of μ = ε/2 is. Zero is an edge
    too, so that bins tell right answers from wrong.

    Raises:
        ValueError: float64 does not hold the edges.
    """
    worth = shape.n * allowed.whole / (2 if allowed.pure else 1)
    bins = round(min(max((2 * worth) ** 0.4, _FEWEST_BINS), _MOST_BINS))
    middle, scale = 0.0, 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        if shape.scale is not None and (shape.recipe is None or shape.recipe.is_bounded):
            mean = np.zeros(shape.dim) if shape.mean is None else np.array(shape.mean)
            middle = float(asked.intercept + np.vecdot(asked.coefficients, mean))
            scale = float(np.hypot.reduce(asked.coefficients * np.array(shape.scale)))
        below = np.arange(1.0, bins)
        edges = middle + scale * np.log(below / (bins - below))
    finite = bool(np.isfinite(edges).all())
    require(finite, "coefficients are too large for the schema's mean and scale")
    return ScoreHistogram(np.unique(np.append(edges, 0.0)))


CLASSIFIER_SCORE = Estimator(
    name="classifier-score",
    schema_name="ClassifierScore",
    title="classifier score",
    summary="The private accuracy, or area under the ROC curve, of a submitted linear classifier",
    plain_words=(
        "How good a classifier is on these records: how often it is right, or how well it tells two classes"
        " apart. The classifier comes with the question."
    ),
    metadata=LabelledMetadata,
    spec=ScoreSpec,
    plan_type=ScorePlan,
    error=ScoreError,
    answer=ClassifierScore,
    planner=plan,
    run=run,
    shown=("metric", "bins"),
    error_meaning="of the score, by the noise alone, root mean square",
)

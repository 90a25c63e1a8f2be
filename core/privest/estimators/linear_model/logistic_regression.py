"""Private logistic regression, of two classes or more."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, cast

import numpy as np
from scipy.special import softmax

from privest.arrays import Array
from privest.estimators.base import Estimator
from privest.estimators.linear_model.accelerated import DESCENTS, MOST_STEPS, Descent, DescentSolver
from privest.estimators.linear_model.clipped import ClippedSolver
from privest.estimators.linear_model.escape_planning import EscapeSolver
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import Fit
from privest.estimators.linear_model.losses.logistic import ClassMoments, LogisticGradient
from privest.estimators.linear_model.losses.spread import FeatureSpread
from privest.estimators.linear_model.newton import ScoreModel, mean_of
from privest.estimators.linear_model.newton_planning import NewtonSolver, released
from privest.estimators.linear_model.nonconvex import NonconvexLoss
from privest.estimators.linear_model.spider_planning import SpiderSolver
from privest.metadata import LabelledMetadata
from privest.optim.pooled import sampled
from privest.options import Doc, Option, Options
from privest.privacy.budget import PrivacyBudget, cost_of_all, in_words, weak_delta
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle
from privest.privacy.statistic import Statistic

Solver = Literal["newton", "clipped", "escape", "spider"] | DescentSolver

_NONCONVEX = ("escape", "spider")

Loss = Literal["logistic"] | NonconvexLoss

_PENALTY = 0.01
"""λ of descents that nobody gave one (paper 004, Section 5)."""

_BOUNDED_PENALTY = 0.001
"""And of `logistic-nonconvex`, chosen like the constants of `escape`: with more, too many weights go to 0."""

_QUIET = 0.02
"""Noise on the second moment's eigenvalues below which `newton` is the default, chosen like its constants."""

_MOST_FEATURES = 2_000
"""Of `newton`, whose release has a number for every pair."""

_MOST_CURVED = 300
"""Of `spider`, which adds up a Hessian for every record of a batch."""

_SPREAD_SHARE = 0.2
"""Of ε or of μ², for private standardisation."""

_MOMENTS_SHARE = 0.2
"""And for a second moment that errors by sampling follow from."""

_MOST_NUMBERS = 50_000
"""Of covariances in an answer; of more, standard errors are all there is."""


@dataclass(frozen=True)
class LogisticSpec(Options):
    """A linear classifier to be estimated; of the choices, what is left out follows from public facts."""

    solver: Annotated[
        Solver | None,
        Option(
            "`newton` (noisy moments, then noisy gradients if there are records enough), `clipped` (descent "
            "on clipped gradients), or a descent: `gd`, `hb` (heavy ball), `nag` (Nesterov), `masg` (that in "
            "stages of shrinking steps), of which `nag-opt` and `masg-opt` divide the noise and count the "
            "steps by the bound on their error; by default `newton` where there are records enough, else "
            "`clipped`. With another loss than `logistic` it is `escape`, or `spider` if it is asked for, "
            "which sees each record once and has its guarantee where there are very many"
        ),
    ] = None
    penalty: Annotated[
        float | None,
        Option(
            "λ of λ|w|², for features in units of the norm bound: by default 0 for `newton` and 0.01 for "
            "descents; with `logistic-nonconvex` of λ Σ w²/(1 + w²), by default 0.001; not of `clipped` nor "
            "of the bounded losses",
            ge=0,
            le=1e6,
        ),
    ] = None
    steps: Annotated[int | None, Option("of a descent; with `-opt` the most of them", ge=1)] = None
    step_scale: Annotated[float | None, Option("c of step lengths c/L", gt=0, le=1)] = None
    batch_size: Annotated[
        int | None,
        Option("of a descent's random batches, expected or exact; by default all records", ge=1),
    ] = None
    intercept: Annotated[bool, Option("whether there is one")] = True
    standardisation: Annotated[
        Literal["public", "private"],
        Option(
            "of features, by the schema's `mean` and `scale`; `private` takes these for the middle and half "
            "the width of bounds, and a fifth of the budget to learn better ones"
        ),
    ] = "public"
    sampling_errors: Annotated[
        bool,
        Option(
            "learn what the sampling of rows adds to the errors: with `newton` that is known in any case, of "
            "other solvers it takes a fifth of the budget"
        ),
    ] = False
    loss: Annotated[
        Loss,
        Option(
            "`sigmoid` and `savage` are bounded, so that a wrong label cannot pull for ever; "
            "`logistic-nonconvex` has a bounded penalty; these three are for two classes",
            omit_default=True,
        ),
    ] = "logistic"


@dataclass(frozen=True)
class ReleaseError:
    """What is known of the error before any row is read; errors of coefficients come with them."""

    standard_deviation: Annotated[
        float, Doc("of the noise on a coordinate of the last mean, features at most one long")
    ]
    accuracy: Annotated[
        float | None,
        Doc(
            "of `spider`: α, where some point of the run is expected to have a gradient no longer than that, "
            "and no curvature below −√(ρα) for the ρ of the loss",
            omit_default=True,
        ),
    ] = None


@dataclass(frozen=True)
class LogisticPlan:
    """Everything about a run, before any row is read.

    Attributes:
        target: privacy as requested.
        shape: public facts of the data.
        solver: which runs.
        penalty: λ.
        spec: what was asked for.
        releases: the noisy sums of the run, in order.
        cost: of all releases together.
        expected_error: by the noise.
        mechanism: in words.
        why: this solver.
        warnings: what the analyst should know.
    """

    target: PrivacyTarget
    shape: LabelledMetadata
    solver: Solver
    penalty: float
    spec: LogisticSpec
    releases: tuple[Release, ...]
    cost: Cost
    expected_error: ReleaseError
    mechanism: str
    why: Annotated[str, Doc("this solver")]
    warnings: tuple[str, ...]

    @property
    def steps(self) -> int:
        """Of the whole run; of `spider`, which goes on while there are records, those that may see one."""
        return sum(r.count for r in self.releases)

    @property
    def statistics(self) -> dict[str, Statistic]:
        """What the gate may sum for this plan."""
        return {"spread": self.spread, "moments": self.moments} | self.course.statistics

    @property
    def budget(self) -> PrivacyBudget:
        """All that may be spent."""
        return _budget(self.spec, self.shape, self.target)

    @property
    def course(self) -> NewtonSolver | ClippedSolver | EscapeSolver | SpiderSolver | Descent:
        """The solver with its constants, on what the rest leaves."""
        spec, shape, allowed = self.spec, self.shape, self.budget
        allowed = allowed.part(1 - _SPREAD_SHARE * self.standardises - _MOMENTS_SHARE * self.informs)
        if self.solver == "newton":
            return NewtonSolver(shape, allowed, self.penalty, spec.intercept)
        if self.solver == "clipped":
            return ClippedSolver(shape, allowed, spec.intercept)
        if self.solver in _NONCONVEX:
            what = (shape, cast("NonconvexLoss", spec.loss), self.penalty, spec.intercept)  # see `_refuse`
            return (
                EscapeSolver(*what, allowed) if self.solver == "escape" else SpiderSolver(*what, self.target)
            )
        feature_map = FeatureMap.of(shape, shape.usual_length, intercept=spec.intercept)
        loss = LogisticGradient(feature_map.size, len(shape.classes))
        steps = (spec.steps, spec.step_scale, spec.batch_size)
        return Descent(self.solver, feature_map, loss, allowed, self.penalty, *steps)

    @property
    def standardises(self) -> bool:
        """Whether the run begins with the spread of features."""
        return self.spec.standardisation == "private"

    @property
    def informs(self) -> bool:
        """Whether it ends with a second moment for the errors alone."""
        return self.spec.sampling_errors and self.solver != "newton"

    @property
    def spread(self) -> FeatureSpread:
        """For private standardisation."""
        return FeatureSpread(self.shape.dim)

    @property
    def moments(self) -> ClassMoments:
        """For errors by sampling."""
        return ClassMoments(self.course.feature_map.size, len(self.shape.classes), 0.5)


@dataclass(frozen=True)
class Spread:
    """Of the coefficients and, last, the intercept; with more than two classes one for each class."""

    standard_errors: Annotated[Array, Doc(axes=(1, 2))]
    covariance: Annotated[
        Array | None, Doc("left out where there would be more than 50,000 numbers", axes=(2, 3))
    ]


@dataclass(frozen=True)
class LogisticRegression:
    """The private classifier, for features in the units in which they were uploaded.

    Errors are about the minimiser of the loss that was asked for, with its penalty, on rows shortened as the
    plan has it: what these move it by is in no error. Nor is, with too few records for Newton steps, what
    moments leave open of features that are far from Gaussian, or of rare classes. The noise of descents and
    of `clipped` is a bound; of `escape` and `spider` it is what the steps added, of the latter those since it
    last left a saddle point, which curvature may since have made more of. The small batches of `spider` err
    by sampling more than all records do, which is in no error. Scores of the losses `sigmoid` and `savage`
    tell sides and no chances.
    """

    coefficients: Annotated[
        Array, Doc("of the features; with more than two classes a list for each class", axes=(1, 2))
    ]
    intercept: Annotated[Array, Doc(axes=(0, 1))]
    classes: Annotated[
        tuple[str, ...], Doc("a positive score means the second of two, the highest one of more")
    ]
    noise: Annotated[Spread, Doc("what the noise adds to the errors, to first order")]
    sampling: Annotated[
        Spread | None,
        Doc("and the sampling of rows, where that is known; the two are independent, and add"),
    ]

    def predict_proba(self, features: Array) -> Array:
        """(n, classes) probabilities for (n, d) features."""
        scores = features @ self.coefficients.T + self.intercept
        if len(self.classes) == 2:
            scores = np.stack([np.zeros_like(scores), scores], axis=-1)
        return softmax(scores, axis=-1)

    def predict(self, features: Array) -> list[str]:
        """The likeliest class of each of (n, d) features."""
        return [self.classes[place] for place in np.argmax(self.predict_proba(features), axis=-1)]


def plan(spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> LogisticPlan:
    """Noise, steps and exact cost of a private logistic regression, from public facts alone.

    Args:
        spec: the analyst's choices.
        shape: public shape of the data.
        target: (ε, δ); δ = 0 plans Laplace noise, any other Gaussian noise.

    Raises:
        ValueError: a choice that is out of range, in words fit for whoever made it.
    """
    if shape.n < 1:
        raise ValueError("a classifier needs at least one record")
    allowed = _budget(spec, shape, target)
    quiet = NewtonSolver(shape, allowed, 0.0, spec.intercept).noise_level < _QUIET
    convex: Solver = "newton" if quiet and shape.dim <= _MOST_FEATURES else "clipped"
    solver: Solver = spec.solver or (convex if spec.loss == "logistic" else "escape")
    _refuse(spec, shape, solver, target)
    usual = _PENALTY if solver in DESCENTS else _BOUNDED_PENALTY if spec.loss == "logistic-nonconvex" else 0.0
    penalty = usual if spec.penalty is None else spec.penalty
    draft = LogisticPlan(
        target=target,
        shape=shape,
        solver=solver,
        penalty=penalty,
        spec=spec,
        releases=(),
        cost=Cost(),
        expected_error=ReleaseError(0.0),
        mechanism="",
        why=_why(spec, solver),
        warnings=(),
    )
    course = draft.course
    releases: list[Release] = list(course.releases())
    expected = ReleaseError(releases[-1].deviation)
    warnings = _warnings(shape, target)
    if isinstance(course, SpiderSolver):
        expected = replace(expected, accuracy=course.planned.accuracy)
        warnings += course.planned.warnings
    if draft.standardises:
        spread = draft.spread
        releases.insert(0, allowed.release(spread, "spread", spread.longest, share=_SPREAD_SHARE))
    if draft.informs:
        moments = draft.moments
        releases.append(allowed.release(moments, "moments", moments.longest, share=_MOMENTS_SHARE))
    return replace(
        draft,
        releases=tuple(releases),
        cost=cost_of_all(releases, target),
        expected_error=expected,
        mechanism=in_words(releases),
        warnings=warnings,
    )


def _budget(spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> PrivacyBudget:
    batches = spec.batch_size is not None and spec.batch_size < shape.n
    return PrivacyBudget.of(target, shape.n, batches=batches)


def _refuse(spec: LogisticSpec, shape: LabelledMetadata, solver: Solver, target: PrivacyTarget) -> None:
    """Refuse what is out of range, and choices that would be passed over in silence.

    Raises:
        ValueError: one of these.
    """
    descent, bounded = solver in DESCENTS, spec.loss in ("sigmoid", "savage")
    rules = (
        (
            spec.loss == "logistic" or solver in _NONCONVEX,
            f"the loss {spec.loss} is for the solvers escape and spider: leave solver out, or ask for the "
            "loss logistic",
        ),
        (
            spec.loss != "logistic" or solver not in _NONCONVEX,
            f"{solver} is for the losses sigmoid, savage and logistic-nonconvex: name one",
        ),
        (
            solver != "spider" or target.delta > 0,
            "spider needs a delta above 0, as its noise is Gaussian; escape does without",
        ),
        (
            solver != "spider" or spec.standardisation == "public",
            "private standardisation does not belong to spider, which sees a record once: ask for escape",
        ),
        (
            solver != "spider" or shape.dim <= _MOST_CURVED,
            f"spider takes at most {_MOST_CURVED} features; escape takes any number",
        ),
        (
            spec.loss == "logistic" or len(shape.classes) == 2,
            f"the loss {spec.loss} is for two classes: ask for the loss logistic, or for a dataset of two",
        ),
        (
            spec.loss == "logistic" or not spec.sampling_errors,
            "sampling_errors are those of the loss logistic: of others they are not known",
        ),
        (
            spec.penalty is None or not bounded,
            f"penalty does not belong to the loss {spec.loss}: leave it out, or ask for logistic-nonconvex",
        ),
        (not descent or spec.penalty is None or spec.penalty >= 1e-9, "descents need a penalty above 0"),
        (
            spec.loss != "logistic-nonconvex" or spec.penalty is None or spec.penalty >= 1e-9,
            "logistic-nonconvex needs a penalty above 0",
        ),
        (
            spec.penalty is None or solver != "clipped",
            "penalty belongs to the other solvers: name one, as clipped is held back by its noise",
        ),
        (spec.steps is None or spec.steps <= MOST_STEPS, f"steps must be at most {MOST_STEPS}"),
        (
            spec.batch_size is None or spec.batch_size <= shape.n,
            "batch_size must be at most the number of records",
        ),
        (
            descent or (spec.steps is None and spec.step_scale is None and spec.batch_size is None),
            "steps, step_scale and batch_size belong to the descents gd, hb, nag and masg, with -opt or not",
        ),
        (
            solver != "newton" or shape.dim <= _MOST_FEATURES,
            f"newton takes at most {_MOST_FEATURES} features; the others take any number",
        ),
        (
            not spec.sampling_errors or shape.dim <= _MOST_FEATURES,
            f"sampling_errors are known for at most {_MOST_FEATURES} features",
        ),
        (
            spec.standardisation == "public" or shape.scale is not None,
            "private standardisation needs the middle and half the width of each feature's bounds, as mean "
            "and scale in the schema",
        ),
    )
    for holds, rule in rules:
        if not holds:
            raise ValueError(rule)


def _warnings(shape: LabelledMetadata, target: PrivacyTarget) -> tuple[str, ...]:
    found: list[str] = []
    if shape.scale is None:
        found.append(
            "the schema names no mean and scale of the features: those in large units outweigh others"
        )
    found.extend(weak_delta(target, shape.n))
    return tuple(found)


def _why(spec: LogisticSpec, solver: Solver) -> str:
    if spec.solver is not None:
        return "it was asked for"
    if solver == "escape":
        return "escape: the loss is not convex"
    if solver == "newton":
        return "newton: the noise on a second moment is small enough to divide by it"
    return "clipped: a second moment would be mostly noise, and few long steps find more"


def run(planned: LogisticPlan, gate: Oracle) -> LogisticRegression:
    """The private classifier: sees the plan and the gate's noisy answers, never a row."""
    course, releases = planned.course, planned.releases
    feature_map = course.feature_map
    if planned.standardises:
        first, *releases = releases
        feature_map = feature_map.shifted(
            *planned.spread.parts(gate.mean(feature_map, "spread"), first.deviation)
        )
    fit = course.run(releases[: len(releases) - planned.informs], gate, feature_map)
    if planned.informs:
        fit = replace(fit, sampling=_sampling(planned, fit, releases[-1], gate))
    coefficients, intercept = fit.feature_map.original(fit.weights)
    if len(planned.shape.classes) == 2:
        coefficients, intercept = coefficients[0], intercept[0]
    return LogisticRegression(
        coefficients,
        np.asarray(intercept),
        planned.shape.classes,
        _spread(fit, fit.noise),
        None if fit.sampling is None else _spread(fit, fit.sampling),
    )


def _sampling(planned: LogisticPlan, fit: Fit, release: Release, gate: Oracle) -> Callable[[int], Array]:
    """Of weights fitted to n rows: the inverse of the information that rows hold on them."""
    _, moment = released(planned.moments, release, gate, fit.feature_map, planned.penalty)
    model = ScoreModel(fit.weights, moment, mean_of(moment, fit.feature_map.last))
    n = sampled(gate) * planned.shape.n
    return lambda column: model.sampling(column) / n


def _spread(fit: Fit, covariance: Callable[[int], Array]) -> Spread:
    """In the units of the uploaded features; one column's at a time, as all may not fit."""
    columns, features = len(fit.weights), len(fit.feature_map.mean)
    errors = np.empty((columns, features + 1))
    kept: list[Array] = []
    for column in range(columns):
        found = fit.feature_map.original_covariance(covariance(column))
        # Where coefficients are all but known, rounding may leave less than nothing of a variance.
        errors[column] = np.sqrt(np.maximum(np.diag(found), 0.0))
        if columns * found.size <= _MOST_NUMBERS:
            kept.append(found)
    both = errors, np.stack(kept) if kept else None
    return Spread(*both) if columns > 1 else Spread(errors[0], kept[0] if kept else None)


LOGISTIC_REGRESSION = Estimator(
    name="logistic-regression",
    schema_name="LogisticRegression",
    title="logistic regression",
    summary="A private linear classifier of labelled records",
    metadata=LabelledMetadata,
    spec=LogisticSpec,
    plan_type=LogisticPlan,
    error=ReleaseError,
    answer=LogisticRegression,
    plan=plan,
    run=run,
    shown=("solver", "why", "penalty"),
    error_title="Noise of the last release",
    error_meaning="on a coordinate, for features at most one long; errors of the coefficients come with the "
    "answer",
    is_heavy=lambda spec: spec.batch_size is not None,
)

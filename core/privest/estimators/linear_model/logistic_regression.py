"""Private logistic regression, of two classes or more."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from scipy.special import softmax

from privest.arrays import Array
from privest.data.column_estimates import Reference, references
from privest.data.metadata import LabelledMetadata
from privest.data.tables import Recipe
from privest.estimators.base import BasePlan, Estimator, require
from privest.estimators.linear_model.feature_map import TIGHT, FeatureMap
from privest.estimators.linear_model.fit import Curvature, Fit
from privest.estimators.linear_model.forecast import CoefficientError, forecast
from privest.estimators.linear_model.linear_solver import LinearSolver
from privest.estimators.linear_model.logistic_spec import DESCENTS, LogisticSpec, Solver
from privest.estimators.linear_model.losses.logistic import ClassMoments
from privest.estimators.linear_model.newton import released
from privest.estimators.linear_model.scaling import PrivateScaling, Scaled
from privest.estimators.linear_model.score_model import ScoreModel, mean_of
from privest.estimators.linear_model.solvers import (
    MOMENTS_SHARE,
    MOST_FEATURES,
    budget_of,
    configured_solver,
    default_solver,
    informs,
    require_fitting,
    scaling_of,
    solver_class,
    standardises,
)
from privest.estimators.uncertainty import Answer, ExpectedError
from privest.options import Doc
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import certified
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle

_MOST_NUMBERS = 50_000
"""Most numbers of covariances in an answer; where there would be more, it has standard errors alone."""


@dataclass(frozen=True, kw_only=True)
class LogisticPlan(BasePlan):
    """A plan of a logistic regression.

    Attributes:
        solver: which runs.
        penalty: λ.
        spec: what was asked for.
    """

    shape: LabelledMetadata
    expected_error: CoefficientError
    solver: Solver
    penalty: float
    spec: LogisticSpec
    why: Annotated[str, Doc("this solver")]

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return _statistics(self.configured_solver, self.shape, self.scaling)

    @cached_property
    def configured_solver(self) -> LinearSolver:
        """The solver with its constants."""
        return configured_solver(self.spec, self.shape, self.target, self.solver, self.penalty)

    @property
    def scaling(self) -> PrivateScaling | None:
        """What the run first finds out about the features, if anything."""
        return scaling_of(self.spec, self.shape, self.target, self.solver)

    @property
    def looks(self) -> tuple[Release, ...]:
        """The releases by which it does."""
        scaling = self.scaling
        return self.releases[: len(scaling.releases())] if scaling else ()

    @property
    def informs(self) -> bool:
        """Whether the run ends with a second moment for the sampling errors alone."""
        return informs(self.spec, self.solver)


@dataclass(frozen=True)
class Spread:
    """How far the coefficients and, last, the intercept may be off.

    With more than two classes there is one set of numbers for each class.
    """

    standard_errors: Annotated[Array, Doc(axes=(1, 2))]
    covariance: Annotated[
        Array | None, Doc("left out where there would be more than 50,000 numbers", axes=(2, 3))
    ]


@dataclass(frozen=True)
class LogisticRegression(Answer):
    """The private classifier, for features in the units in which they were uploaded.

    Its errors are about what `uncertainty.of` names. Those of `newton` are about the ordinary logistic
    regression of these records, and cover the noise, steps that did not arrive and the few records beyond
    the bound on lengths, by what was released. Those of `clipped` cover the noise and an assumption in place
    of a measurement; those of descents bounds on the noise and on what is left to descend; those of `escape`
    and `spider` the noise of the steps, of the latter those since it last left a saddle point. The small
    batches of `spider` err by sampling more than all records do, which is in no error. Scores of the losses
    `sigmoid` and `savage` tell sides and no probabilities.
    """

    coefficients: Annotated[
        Array, Doc("of the features; with more than two classes a list for each class", axes=(1, 2))
    ]
    intercept: Annotated[Array, Doc(axes=(0, 1))]
    classes: Annotated[
        tuple[str, ...], Doc("a positive score means the second of two, the highest one of more")
    ]
    noise: Annotated[
        Spread,
        Doc("how far each may be from what `uncertainty.of` names, by the noise and by what else is known"),
    ]
    sampling: Annotated[
        Spread | None,
        Doc("and the sampling of rows, where that is known; the two are independent, and add"),
    ]
    features: Annotated[
        tuple[str, ...] | None, Doc("of a table: the columns and categories that coefficients are for")
    ] = None
    label: Annotated[str | None, Doc("of a table: the column whose classes it tells")] = None
    references: Annotated[
        tuple[Reference, ...] | None,
        Doc("of a table: the categories that coefficients of a column's other categories are relative to"),
    ] = None
    curvature: Annotated[
        Curvature | None, Doc("of `spider`: how the loss bends at the answer, which is no minimum if down")
    ] = None

    def in_columns(self, recipe: Recipe, expected: ExpectedError) -> "LogisticRegression":
        """The classifier with the names of its label and its features, in whose own units it is."""
        del expected
        assert recipe.label is not None  # noqa: S101 - of labelled records
        label = recipe.columns[recipe.label].name
        features = tuple(feature.name for feature in recipe.features)
        return replace(self, label=label, features=features, references=references(recipe))

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

    With δ = 0 noise is Laplace's, with any other δ Gauss's.

    Raises:
        ValueError: a choice that is out of range, in words fit for whoever made it.
    """
    require(shape.n >= 1, "a classifier needs at least one record")
    asked = spec
    if spec.standardisation is None and standardises(spec, shape, target):
        spec = replace(spec, standardisation="private")
    solver = spec.solver or default_solver(spec, shape, target)
    _refuse(spec, shape, solver, target)
    penalty = solver_class(solver).usual_penalty(spec, shape) if spec.penalty is None else spec.penalty
    configured = configured_solver(spec, shape, target, solver, penalty)
    releases: list[Release] = list(configured.releases())
    expected = forecast(configured, releases, shape, target)
    warnings = _warnings(shape) + configured.warnings
    budget, scaling = budget_of(spec, shape, target), scaling_of(spec, shape, target, solver)
    releases = [*(scaling.releases() if scaling else ()), *releases]
    if informs(spec, solver):
        moments = _moments(configured, shape)
        releases.append(budget.release(moments, "moments", moments.longest, share=MOMENTS_SHARE))
    statistics = _statistics(configured, shape, scaling)
    return LogisticPlan(
        **certified(releases, statistics, target, shape.n, warnings),
        shape=shape,
        solver=solver,
        penalty=penalty,
        spec=spec,
        releases=tuple(releases),
        expected_error=expected,
        why=_why(asked, solver) + _why_standardised(asked, spec),
    )


def _statistics(
    solver: LinearSolver, shape: LabelledMetadata, scaling: PrivateScaling | None
) -> dict[str, AnyStatistic]:
    """The statistics that the gate may sum, by name; `newton` has moments of its own."""
    own: dict[str, AnyStatistic] = {"moments": _moments(solver, shape)}
    return (scaling.statistics if scaling else {}) | own | dict(solver.statistics)


def _moments(solver: LinearSolver, shape: LabelledMetadata) -> ClassMoments:
    """The statistic of sampling errors."""
    return ClassMoments(solver.feature_map.size, len(shape.classes))


def _refuse(spec: LogisticSpec, shape: LabelledMetadata, solver: Solver, target: PrivacyTarget) -> None:
    """Refuse what is out of range, and choices that would be passed over in silence.

    Raises:
        ValueError: one of these.
    """
    require_fitting(spec, shape, solver, target)
    require((spec.batch_size or 1) <= shape.n, "batch_size must be at most the number of records")
    require(
        solver in DESCENTS or (spec.steps is None and spec.step_scale is None and spec.batch_size is None),
        "steps, step_scale and batch_size belong to the descents gd, hb, nag and masg, with -opt or not",
    )
    require(
        solver in ("hb", "hb-opt") or spec.momentum is None, "momentum belongs to the descents hb and hb-opt"
    )
    require(
        not spec.sampling_errors or shape.dim <= MOST_FEATURES,
        f"sampling_errors are known for at most {MOST_FEATURES} features",
    )
    require(
        spec.standardisation != "private" or shape.scale is not None,
        "private standardisation needs the middle and half the width of each feature's bounds, as mean "
        "and scale in the schema",
    )


def _warnings(shape: LabelledMetadata) -> tuple[str, ...]:
    """Warnings for the analyst, from public facts."""
    if shape.scale is not None:
        return ()
    return ("the schema names no mean and scale of the features: those in large units outweigh others",)


def _why(spec: LogisticSpec, solver: Solver) -> str:
    if spec.solver is not None:
        return "it was asked for"
    if solver == "escape":
        return "escape: the loss is not convex"
    if solver == "newton":
        return "newton: the noise on a second moment is small enough to divide by it"
    return "clipped: a second moment would be mostly noise, and few long steps find more"


def _why_standardised(asked: LogisticSpec, spec: LogisticSpec) -> str:
    if asked == spec:
        return ""
    return "; the spread of features within their bounds is learned first"


def run(planned: LogisticPlan, gate: Oracle) -> LogisticRegression:
    """The private classifier: sees the plan and the gate's noisy answers, never a row."""
    solver, releases = planned.configured_solver, planned.releases
    feature_map, unseen, warnings = solver.feature_map, None, ()
    looks, releases = planned.looks, releases[len(planned.looks) :]
    if (scaling := planned.scaling) is not None:
        found = scaling.find(gate, looks, feature_map)
        feature_map, unseen = _adapted(feature_map, found, planned.shape), found.hidden
        warnings = found.warnings
    fit = solver.run(releases[: len(releases) - planned.informs], gate, feature_map)
    fit = replace(fit, unseen=unseen)
    if planned.informs:
        fit = replace(fit, sampling=_sampling(planned, fit, releases[-1], gate))
    # First what no interval covers: a column whose unit is unknown.
    uncertainty = replace(fit.uncertainty, warnings=warnings + fit.uncertainty.warnings)
    coefficients, intercept = fit.feature_map.original(fit.weights)
    if len(planned.shape.classes) == 2:
        coefficients, intercept = coefficients[0], intercept[0]
    return LogisticRegression(
        coefficients,
        np.asarray(intercept),
        planned.shape.classes,
        _spread(fit, fit.stated),
        None if fit.sampling is None else _spread(fit, fit.sampling),
        curvature=fit.curvature,
        uncertainty=uncertainty,
    )


def _adapted(own: FeatureMap, found: Scaled, shape: LabelledMetadata) -> FeatureMap:
    """The map that a solver asks for, in the units and with the lengths that a run has found."""
    if own.bound < shape.usual_length:
        return replace(found.feature_map, bound=TIGHT * found.usual, usual=found.usual)
    return replace(found.feature_map, usual=found.feature_map.bound)


def _sampling(planned: LogisticPlan, fit: Fit, release: Release, gate: Oracle) -> Callable[[int], Array]:
    """Covariance by sampling of each column of weights: the inverse of the information in the rows."""
    moments = _moments(planned.configured_solver, planned.shape)
    _, moment = released(moments, release, gate, fit.feature_map, planned.penalty)
    model = ScoreModel(fit.weights, moment, mean_of(moment, fit.feature_map.last))
    n = gate.share * planned.shape.n
    return lambda column: model.sampling(column) / n


def _spread(fit: Fit, covariance: Callable[[int], Array]) -> Spread:
    """Errors in the units of the uploaded features, one column at a time, as all may not fit in memory."""
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


def _certificates(spec: LogisticSpec) -> int:
    """Return the certificates that planning takes."""
    return solver_class(spec.solver).certificates(spec) if spec.solver is not None else 0


LOGISTIC_REGRESSION = Estimator(
    name="logistic-regression",
    schema_name="LogisticRegression",
    title="logistic regression",
    summary="A private linear classifier of labelled records",
    plain_words=(
        "Tells how likely each class of a label is, by a weighted sum of the features. The weights are the "
        "answer. A positive one makes its class more likely as the feature grows."
    ),
    metadata=LabelledMetadata,
    spec=LogisticSpec,
    plan_type=LogisticPlan,
    error=CoefficientError,
    answer=LogisticRegression,
    planner=plan,
    run=run,
    shown=("solver", "why", "penalty"),
    error_meaning="of all coefficients of standardised features together, root mean square; favourable case",
    defaults=lambda shape: {"standardisation": "public"} if shape.recipe is None else {},
    unset={"standardisation": "public"},
    certificates=_certificates,
)

"""Private logistic regression, of two classes or more."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal

import numpy as np
from scipy.special import softmax

from privest.arrays import Array
from privest.estimators.budget import covers, in_words
from privest.estimators.descents import MOST_STEPS, Descent, DescentSolver
from privest.estimators.newton_course import NewtonCourse
from privest.losses.logistic import ClassMoments, LogLoss
from privest.losses.standardised import Standardised
from privest.privacy.certificates import NoisySum
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.statistic import Statistic
from privest.shapes import LabelledShape
from privest.solvers.gradient_descent import Oracle

Solver = Literal["newton"] | DescentSolver

_PENALTY = 0.01
"""λ of descents that nobody gave one (paper 004, Section 5)."""

_CONSTANT = 0.25
"""Of the features' bound, for the intercept: large enough to be learned, and short beside the features."""

_TIGHTER = 0.5
"""Of the norm bound, to which `newton` shortens rows: direction tells classes apart, and noise is less."""


@dataclass(frozen=True)
class LogisticSpec:
    """What an analyst may choose; whatever is None follows from public facts.

    Attributes:
        solver: `newton` (one step, from one release), or a descent of paper 004: `gd`, `hb` (heavy ball),
            `nag` (Nesterov), `nag-opt` (noise divided and steps counted by the bound on its error).
        penalty: λ of λ|w|² for features in units of the norm bound; 0 by default for `newton`, else 0.01.
        steps: T; with `nag-opt` the most that are considered.
        step_scale: c of step lengths c/L.
        intercept: whether there is one.
    """

    solver: Solver | None = None
    penalty: float | None = None
    steps: int | None = None
    step_scale: float | None = None
    intercept: bool = True


@dataclass(frozen=True)
class ReleaseError:
    """What is known of the error before any row is read.

    Attributes:
        standard_deviation: of the noise on every coordinate of the last mean that is released, for features
            of length up to one. The standard errors of coefficients come with them.
    """

    standard_deviation: float


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
    shape: LabelledShape
    solver: Solver
    penalty: float
    spec: LogisticSpec
    releases: tuple[NoisySum, ...]
    cost: Cost
    expected_error: ReleaseError
    mechanism: str
    why: str
    warnings: tuple[str, ...]

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return sum(r.count for r in self.releases)

    @property
    def design(self) -> Standardised:
        """What the solver sees of a row."""
        shape = self.shape
        newton, two = self.solver == "newton", len(shape.classes) == 2
        return Standardised(
            np.zeros(shape.dim) if shape.mean is None else np.array(shape.mean),
            np.ones(shape.dim) if shape.scale is None else np.array(shape.scale),
            shape.norm_bound * (_TIGHTER if newton else 1.0),
            _CONSTANT if self.spec.intercept and (two or not newton) else 0.0,
        )

    @property
    def statistics(self) -> dict[str, Statistic]:
        """What the gate may sum for this plan."""
        return {"moments": self.moments, "gradient": self.loss}

    @property
    def moments(self) -> ClassMoments:
        """Of `newton`."""
        return ClassMoments(self.design, len(self.shape.classes))

    @property
    def loss(self) -> LogLoss:
        """Of descents."""
        return LogLoss(self.design, len(self.shape.classes))

    @property
    def newton(self) -> NewtonCourse:
        """Of the solver `newton`."""
        return NewtonCourse(self.moments, self.penalty, self.spec.intercept)

    @property
    def descent(self) -> Descent | None:
        """The solver of paper 004, if it is one."""
        if self.solver == "newton":
            return None
        return Descent(self.solver, self.loss, self.penalty, self.spec.steps, self.spec.step_scale)


@dataclass(frozen=True)
class LogisticRegression:
    """A fitted classifier; scores above zero mean the second of two classes, the highest one of more.

    Attributes:
        coefficients: (d,), or (classes, d), in the units of the uploaded features.
        intercept: () or (classes,).
        standard_errors: of the coefficients, by the noise alone.
        classes: as strings.
    """

    coefficients: Array
    intercept: Array
    standard_errors: Array
    classes: tuple[str, ...]

    def predict_proba(self, features: Array) -> Array:
        """(n, classes) probabilities for (n, d) features."""
        scores = features @ self.coefficients.T + self.intercept
        if len(self.classes) == 2:
            scores = np.stack([np.zeros_like(scores), scores], axis=-1)
        return softmax(scores, axis=-1)

    def predict(self, features: Array) -> list[str]:
        """The likeliest class of each of (n, d) features."""
        return [self.classes[place] for place in np.argmax(self.predict_proba(features), axis=-1)]


def plan(spec: LogisticSpec, shape: LabelledShape, target: PrivacyTarget) -> LogisticPlan:
    """Noise, steps and exact cost of a private logistic regression, from public facts alone.

    Args:
        spec: the analyst's choices.
        shape: public shape of the data.
        target: (ε, δ); δ = 0 plans Laplace noise, any other Gaussian noise.

    Raises:
        ValueError: a choice that is out of range, in words fit for whoever made it.
    """
    pure = target.delta == 0
    solver: Solver = spec.solver or ("nag-opt" if pure else "newton")
    descent = solver != "newton"
    _refuse(spec, shape, descent=descent)
    penalty = spec.penalty if spec.penalty is not None else (_PENALTY if descent else 0.0)
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
        why=_why(spec, pure=pure),
        warnings=_warnings(shape, target),
    )
    releases = (draft.descent or draft.newton).releases(shape.n, target)
    cost = sum((r.cost for r in releases), Cost())
    affordable = (
        sum(r.epsilon * r.count for r in releases) <= target.epsilon if pure else covers(cost, target)
    )
    if not affordable:
        raise ValueError("this privacy cannot be certified in float64")
    last = releases[-1]
    names = {"moments": "class means and second moment", "gradient": "the mean gradient"}
    return replace(
        draft,
        releases=releases,
        cost=cost,
        expected_error=ReleaseError(sqrt(last.variance) / last.divisor),
        mechanism=in_words(releases, names),
    )


def _refuse(spec: LogisticSpec, shape: LabelledShape, *, descent: bool) -> None:
    """Refuse what is out of range, and choices that would be passed over in silence.

    Raises:
        ValueError: one of these.
    """
    rules = (
        (shape.n >= 1, "a classifier needs at least one record"),
        (spec.penalty is None or 0 <= spec.penalty <= 1e6, "penalty must be between 0 and a million"),
        (not descent or spec.penalty is None or spec.penalty >= 1e-9, "descents need a penalty above 0"),
        (spec.steps is None or 1 <= spec.steps <= MOST_STEPS, f"steps must be between 1 and {MOST_STEPS}"),
        (spec.step_scale is None or 0 < spec.step_scale <= 1, "step_scale must be above 0 and at most 1"),
        (
            descent or (spec.steps is None and spec.step_scale is None),
            "steps and step_scale belong to the solvers gd, hb, nag and nag-opt",
        ),
        (descent or shape.dim <= 2_000, "newton takes at most 2000 features; the others take any number"),
    )
    for holds, rule in rules:
        if not holds:
            raise ValueError(rule)


def _warnings(shape: LabelledShape, target: PrivacyTarget) -> tuple[str, ...]:
    found: list[str] = []
    if shape.scale is None:
        found.append(
            "the schema names no mean and scale of the features: those in large units outweigh others"
        )
    if target.delta * shape.n >= 1.0:
        found.append("delta is at least 1/n: such a guarantee allows a whole record to be published")
    return tuple(found)


def _why(spec: LogisticSpec, *, pure: bool) -> str:
    if spec.solver is not None:
        return "it was asked for"
    if pure:
        return "nag-opt: with delta = 0 a second moment needs more noise than its eigenvalues bear"
    return "newton: class means and second moment in one release, where the moment comes free of noise"


def run(planned: LogisticPlan, gate: Oracle) -> LogisticRegression:
    """The private classifier: sees the plan and the gate's noisy answers, never a row."""
    design, descent = planned.design, planned.descent
    shift: Array | None = None
    if descent is None:
        fitted, errors, shift = planned.newton.run(planned.releases, gate)
        if len(planned.shape.classes) == 2:
            fitted, errors = fitted[0], errors[0]
    else:
        fitted, errors = descent.run(planned.releases, gate)
    coefficients, intercept = design.original(fitted)
    if shift is not None:
        intercept = intercept + shift
    # Standard errors carry over like coefficients, but for the intercept.
    spread = design.original(errors)[0]
    return LogisticRegression(coefficients, np.asarray(intercept), spread, planned.shape.classes)

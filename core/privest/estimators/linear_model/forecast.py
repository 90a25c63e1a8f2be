"""How far the coefficients of a plan are expected to be off, from public facts."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated

from privest.data.metadata import LabelledMetadata
from privest.estimators.linear_model.accelerated import Descent
from privest.estimators.linear_model.classifier_score import accuracy_error
from privest.estimators.linear_model.clipped import NOISE, ClippedSolver
from privest.estimators.linear_model.escape_planning import EscapeSolver
from privest.estimators.linear_model.fit import SPREAD, distance
from privest.estimators.linear_model.newton import NewtonSolver
from privest.estimators.linear_model.spider_planning import SpiderSolver
from privest.estimators.uncertainty import ExpectedError
from privest.options import Doc
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.mechanisms import Release

_CURVATURE = 0.8
"""Curvature of the loss over that at even chances, in a favourable case: of scores that are not far apart."""

_FURTHER = 2.0
"""Bound on the length of features that a run finds, over the usual length, in a favourable case."""

_LARGE = 5.0
"""Root mean square of coefficients in an unfavourable case: what features share tells classes apart."""

_ORDER = "standardised coefficients are of the order of one"

_UNLIKE = (
    "features that do not hang together, classes alike in size, no rows far out; unfavourable is none of "
    f"that, where {_ORDER}"
)

LinearSolver = NewtonSolver | ClippedSolver | EscapeSolver | SpiderSolver | Descent


@dataclass(frozen=True)
class CoefficientError(ExpectedError):
    """How far the coefficients of standardised features are expected to be off, all of them together."""

    WITHIN = "unfavourable"

    standard_deviation: Annotated[
        float,
        Doc(
            "of all coefficients of standardised features together; of a plan, in a favourable case, and of "
            "one whose `assumes` is empty, which is older, the noise on a coordinate of its last mean"
        ),
    ]
    radius_95: Annotated[
        float | None, Doc("distance that 95 % of runs do not exceed; of a plan, in a favourable case")
    ] = None
    accuracy: Annotated[
        float | None,
        Doc(
            "of `spider`: α, where in 95 of 100 runs some point has a gradient no longer than that, and no "
            "curvature below −√(ρα) for the ρ of the loss",
            omit_default=True,
        ),
    ] = None
    untold: Annotated[
        str | None, Doc("what is not foretold, and what would tell it, in words", omit_default=True)
    ] = None


def forecast(
    solver: LinearSolver, releases: Sequence[Release], shape: LabelledMetadata, target: PrivacyTarget
) -> CoefficientError:
    """The expected error of a solver's releases.

    Accuracy is not foretold: how far apart classes lie only the records tell. What it costs to learn it is.
    """
    classes, known = len(shape.classes), accuracy_error(shape, target).radius_95
    best, worst, assumes = _variances(solver, releases, classes)
    columns = 1 if classes == 2 else classes - 1
    count = columns * len(solver.feature_map.mean)
    favourable, unfavourable = (distance(count * v, sqrt(count) * v) for v in (best, worst))
    accuracy = solver.planned.accuracy if isinstance(solver, SpiderSolver) else None
    return CoefficientError(
        favourable.deviation,
        favourable.radius,
        accuracy,
        assumes=assumes,
        unfavourable=unfavourable.radius,
        untold="the share of right answers, which only the records tell: a `classifier-score` of the answer, "
        f"one more query of this ε and δ, tells it to ± {min(known, 1.0):.2g}",
    )


def _variances(solver: LinearSolver, releases: Sequence[Release], classes: int) -> tuple[float, float, str]:
    """Variance of a coefficient in a favourable and in an unfavourable case, and what these assume."""
    unit = float(solver.feature_map.units[0]) ** 2
    unseen = SPREAD**2
    if isinstance(solver, NewtonSolver):
        curved = [release.deviation for release in releases if release.statistic == "curved"]
        even = 0.25 if classes == 2 else 1 / classes
        noise = (_FURTHER * curved[-1]) ** 2 / unit / (_CURVATURE * even) ** 2
        known = 1 / (1 / noise + 1 / unseen)
        return known, known + _LARGE**2, _UNLIKE
    if isinstance(solver, ClippedSolver):
        by_noise = NOISE**2 * unit
        known = by_noise + unseen
        return known, known + 2 * _LARGE**2, f"{_ORDER}; nothing is released that shows it"
    if isinstance(solver, Descent):
        variance, left = solver.bounds(releases)
        spread = left / solver.feature_map.size
        return unit * variance, unit * (variance + spread), "curvature of the loss between its public bounds"
    variance = solver.noise_variance(releases)
    most = solver.segments if isinstance(solver, SpiderSolver) else 1
    return (
        unit * variance,
        unit * variance * most,
        "curvature on the way makes no more of the noise, nor less",
    )

"""How far the coefficients of a plan are expected to be off, from public facts."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated

from privest.data.metadata import LabelledMetadata
from privest.estimators.linear_model.classifier_score import accuracy_error
from privest.estimators.linear_model.fit import distance
from privest.estimators.linear_model.linear_solver import LinearSolver
from privest.estimators.uncertainty import ExpectedError
from privest.options import Doc
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.mechanisms import Release


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
    best, worst, assumes, accuracy = solver.forecast(releases)
    columns = 1 if classes == 2 else classes - 1
    count = columns * len(solver.feature_map.mean)
    favourable, unfavourable = (distance(count * v, sqrt(count) * v) for v in (best, worst))
    return CoefficientError(
        favourable.deviation,
        favourable.radius,
        accuracy,
        assumes=assumes,
        unfavourable=unfavourable.radius,
        untold="the share of right answers, which only the records tell: a `classifier-score` of the answer, "
        f"one more query of this ε and δ, tells it to ± {min(known, 1.0):.2g}",
    )

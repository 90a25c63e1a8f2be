"""A linear classifier by a loss that need not be convex: what is minimised."""

from dataclasses import dataclass
from functools import cached_property
from math import log

from privest.data.metadata import LabelledMetadata
from privest.estimators.base import require
from privest.estimators.linear_model.feature_map import TIGHT, FeatureMap
from privest.estimators.linear_model.linear_solver import SolverDefaults
from privest.estimators.linear_model.logistic_spec import LogisticSpec, NonconvexLoss
from privest.privacy.accounting import PrivacyTarget
from privest_papers.nonconvex_losses import LOGISTIC, SAVAGE, SIGMOID, MarginLoss, SigmoidPolynomialLoss

PROFILES: dict[NonconvexLoss, SigmoidPolynomialLoss] = {
    "sigmoid": SIGMOID,
    "savage": SAVAGE,
    "logistic-nonconvex": LOGISTIC,
}

_AT_ZERO: dict[NonconvexLoss, float] = {"sigmoid": 0.5, "savage": 0.25, "logistic-nonconvex": log(2)}
"""φ(0)."""


_PENALTY = 0.001
"""Default λ of `logistic-nonconvex`: with more, too many weights go to 0."""

ON_THE_WAY = "curvature on the way makes no more of the noise, nor less"
"""The assumption of forecasts."""


@dataclass(frozen=True)
class Nonconvex(SolverDefaults):
    """The problem that solvers of such losses have in common.

    Attributes:
        shape: public facts of the data, of two classes.
        loss: which.
        penalty: λ of λ Σ w²/(1 + w²).
        intercept: whether there is one.
    """

    shape: LabelledMetadata
    loss: NonconvexLoss
    penalty: float
    intercept: bool

    @classmethod
    def refuse(cls, spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> None:
        """Refuse what does not go with this solver.

        Raises:
            ValueError: something does not.
        """
        del shape, target
        require(
            spec.penalty is None or spec.loss == "logistic-nonconvex",
            f"penalty does not belong to the loss {spec.loss}: leave it out, or ask for logistic-nonconvex",
        )
        require(spec.penalty is None or spec.penalty >= 1e-9, "logistic-nonconvex needs a penalty above 0")

    @classmethod
    def usual_penalty(cls, spec: LogisticSpec, shape: LabelledMetadata) -> float:
        """Return the default λ."""
        del shape
        return _PENALTY if spec.loss == "logistic-nonconvex" else 0.0

    @property
    def feature_map(self) -> FeatureMap:
        """The map from a row to the features that the solver sees."""
        return FeatureMap.of(self.shape, self.shape.usual_length * TIGHT, intercept=self.intercept)

    @cached_property
    def objective(self) -> MarginLoss:
        """The loss that is minimised, in the mean over rows."""
        return MarginLoss(self.feature_map, PROFILES[self.loss], self.penalty)

    @property
    def excess(self) -> float:
        """Bound on the objective at zero, where rows lose φ(0), less its least value, which is at least 0."""
        return _AT_ZERO[self.loss]

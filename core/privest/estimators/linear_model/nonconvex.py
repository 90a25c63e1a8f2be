"""A linear classifier by a loss that need not be convex: what is minimised."""

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Literal

from privest.data.metadata import LabelledMetadata
from privest.estimators.linear_model.feature_map import TIGHT, FeatureMap
from privest.estimators.linear_model.losses.linear import MarginLoss
from privest.estimators.linear_model.losses.scalar import LOGISTIC, SAVAGE, SIGMOID, SigmoidPolynomialLoss

NonconvexLoss = Literal["sigmoid", "savage", "logistic-nonconvex"]

PROFILES: dict[NonconvexLoss, SigmoidPolynomialLoss] = {
    "sigmoid": SIGMOID,
    "savage": SAVAGE,
    "logistic-nonconvex": LOGISTIC,
}

_AT_ZERO: dict[NonconvexLoss, float] = {"sigmoid": 0.5, "savage": 0.25, "logistic-nonconvex": log(2)}
"""φ(0)."""


@dataclass(frozen=True)
class Nonconvex:
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

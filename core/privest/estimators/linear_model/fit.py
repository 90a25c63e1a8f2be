"""A linear classifier as a solver leaves it, with what is known of its error."""

from collections.abc import Callable
from dataclasses import dataclass

from privest.arrays import Array
from privest.estimators.linear_model.feature_map import FeatureMap


@dataclass(frozen=True)
class Fit:
    """Weights of standardised vectors, a column for each class, or one of two classes.

    Attributes:
        feature_map: what was seen of a row.
        weights: (columns, size).
        noise: a column's covariance by the noise, (size, size).
        sampling: the same by the sampling of rows, where it is known.
    """

    feature_map: FeatureMap
    weights: Array
    noise: Callable[[int], Array]
    sampling: Callable[[int], Array] | None

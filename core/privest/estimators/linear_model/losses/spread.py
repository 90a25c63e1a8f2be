"""Mean and spread of features within their public bounds."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array, lengths
from privest.estimators.linear_model.feature_map import FeatureMap

_RATIO = 2.5
"""ω, weight of the squares: they come free up to 2.77."""


@dataclass(frozen=True)
class FeatureSpread:
    """Σ of (z, √ω·z²) for features z in units of their public bounds, each between −1 and 1.

    Attributes:
        features: d.
    """

    features: int

    description = "mean and spread of features"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return 2 * self.features

    @property
    def longest(self) -> float:
        """Length of the longest vector that a row can have."""
        return sqrt(self.features * (1.0 + _RATIO))

    def diameter(self, clip: float) -> float:
        """2√d, where the clip shortens nothing.

        Two values a and b of a feature are (a − b)²(1 + ω(a + b)²) apart in square: at most, with a = 1 and
        u = 1 − b, u²(1 + ω(2 − u)²), which no u ≤ 2 takes above 4 if ω ≤ (4/u² − 1)/(2 − u)², 2.77 at least.
        """
        return 2.0 * (sqrt(self.features) if clip >= self.longest else clip)

    def clipped_sum(self, point: FeatureMap, rows: Array, clip: float) -> Array:
        """Σ over rows, in the units of `point`, of vectors of length at most `clip`; see `Statistic`."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            z = np.nan_to_num(np.clip((rows[:, :-1] - point.mean) / point.scale, -1.0, 1.0))
        both = np.hstack([z, sqrt(_RATIO) * z * z])
        return (clip / np.maximum(lengths(both), clip)) @ both

    def parts(self, mean: Array, deviation: float) -> tuple[Array, Array]:
        """Mean and scale of every feature, in units of the bounds, from a released mean.

        What noise could have made of a constant feature is no scale to divide by: three of its standard
        deviations are the least.
        """
        first, second = np.split(mean, 2)
        first = np.clip(first, -1.0, 1.0)
        least = 3 * deviation / sqrt(_RATIO)
        variance = np.clip(second / sqrt(_RATIO) - first * first, min(least, 1.0), 1.0)
        return first, np.sqrt(variance)

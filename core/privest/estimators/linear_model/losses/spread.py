"""Mean and spread of features, counts of their lengths, and counts of classes."""

from dataclasses import dataclass
from math import asin, sqrt

import numpy as np

from privest.arrays import Array, lengths
from privest.data.tables import Truths
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.privacy.clipped_sums import any_floats

_RATIO = 2.5
"""ω, weight of the squares: they come free up to 2.77."""

_FLOOR = 3.0
"""Deviations of the noise that a variance must have to be taken for more than noise."""

NODES, _STEPS = 40, 4
"""Lengths at which vectors are counted, and how many of them make a factor of two."""

_POINTS = 2_000
"""Values of a share over which its law is averaged."""


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

    def parts(self, mean: Array, deviation: float) -> tuple[Array, Array, Truths]:
        """Return centre and scale of every feature, in units of the bounds, and whether noise hides it.

        The centre is the mean, drawn to the middle as far as noise may have made it. The scale is the root
        mean square distance from the centre. It is at least what noise could have made of a constant
        feature, so that a feature that hardly varies is not blown up.
        """
        first, second = np.split(mean, 2)
        center = np.clip(first / (1.0 + 3.0 * deviation**2), -1.0, 1.0)
        square = second / sqrt(_RATIO) - 2 * center * first + center**2
        least = self.least(deviation) ** 2
        return center, np.sqrt(np.clip(square, least, 1.0)), square < least

    def least(self, deviation: float, sums: int = 1, closer: float = 1.0) -> float:
        """Return the least scale that noise does not hide, in units of the bounds.

        Args:
            deviation: of the noise on a coordinate.
            sums: number of sums, each of features clipped closer than by the one before.
            closer: half width of the next one, over the scale that noise hides.
        """
        own = min(sqrt(_FLOOR * deviation / sqrt(_RATIO)), 1.0)
        return own * min(closer * own, 1.0) ** (sums - 1)


@dataclass(frozen=True)
class LengthCounts:
    """Number of records by the length of their standardised features, on a grid of ratios.

    Count k is of lengths of about 2^(−k/4) times the bound of the map that is asked about. Lengths beyond
    the bound, and lengths that float64 cannot hold, count as the bound; the last count has all short ones.
    """

    description = "the share of records of each length of features"

    size = NODES

    def diameter(self, clip: float) -> float:
        """Return √2·clip: two records count at different lengths at most."""
        return sqrt(2.0) * clip

    def l1_diameter(self, clip: float) -> float:
        """Return the same in L1 distance."""
        return 2.0 * clip

    @any_floats
    def clipped_sum(self, point: FeatureMap, rows: Array, clip: float) -> Array:
        """Return (nodes,) Σ over rows of `clip` at the place of a row's length; see `Statistic`."""
        length = lengths((rows[:, :-1] - point.mean) / point.scale) / point.bound
        place = -_STEPS * np.log2(np.where(np.isfinite(length), np.maximum(length, 1e-300), 1.0))
        place = np.clip(np.floor(place), 0, NODES - 1).astype(np.int64)
        return clip * np.bincount(place, minlength=NODES).astype(np.float64)

    @staticmethod
    def ratios() -> Array:
        """Return (nodes,) the longest length that each count has, over the bound."""
        return np.exp2(-np.arange(NODES) / _STEPS)


@dataclass(frozen=True)
class ClassCounts:
    """Number of records of each class; of two classes, of the second alone.

    Attributes:
        classes: number of classes.
    """

    classes: int

    description = "the share of records of each class"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return 1 if self.classes == 2 else self.classes

    def diameter(self, clip: float) -> float:
        """Return clip, or √2·clip of more than two classes."""
        return clip if self.classes == 2 else sqrt(2.0) * clip

    def l1_diameter(self, clip: float) -> float:
        """Return the same in L1 distance."""
        return clip if self.classes == 2 else 2.0 * clip

    def clipped_sum(self, point: FeatureMap, rows: Array, clip: float) -> Array:
        """Return (size,) Σ over rows of `clip` for a row's class; see `Statistic`."""
        counts = np.bincount(point.labels(rows, self.classes), minlength=self.classes)
        return clip * counts[-self.size :].astype(np.float64)

    def shares(self, mean: Array, deviation: float) -> tuple[Array, Array]:
        """Return (classes,) likely shares, and standard errors of their log odds, from a released mean.

        Shares are means, with Jeffreys' prior for each (1946): so a share that the noise hides is taken for
        about as much as the noise can hide.
        """
        seen = np.array([1.0 - mean[0], mean[0]]) if self.classes == 2 else mean
        likely, errors = np.array([_likely(share, deviation) for share in seen.tolist()]).T
        return likely / likely.sum(), errors


def _likely(seen: float, deviation: float) -> tuple[float, float]:
    """Return the mean of a share by its noisy value, and the standard error of its log odds."""
    low, high = (min(max(seen + sign * 8 * deviation, 0.0), 1.0) for sign in (-1, 1))
    low, high = min(low, 1 - 8 * deviation), max(high, min(8 * deviation, 1.0))
    # Jeffreys' prior is even in the angle whose squared sine is the share.
    first, last = (asin(sqrt(min(max(end, 1e-9), 1 - 1e-9))) for end in (low, high))
    share = np.sin(np.linspace(first, last, _POINTS)) ** 2
    log_density = -((share - seen) ** 2) / (2 * max(deviation, 1e-12) ** 2)
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    mean = float(density @ share)
    return mean, float(np.sqrt(density @ (share - mean) ** 2)) / (mean * (1 - mean))

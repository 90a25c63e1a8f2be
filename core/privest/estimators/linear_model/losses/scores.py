"""Statistics of a public linear classifier on labelled rows: right answers, and scores by class."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array, seen_by
from privest.estimators.linear_model.feature_map import FeatureMap


@dataclass(frozen=True, eq=False)
class LinearScores:
    """A linear classifier of features as they were uploaded; a score above 0 means the second of two classes.

    Attributes:
        coefficients: (d,), or (classes, d).
        intercept: (), or (classes,).
    """

    coefficients: Array
    intercept: Array

    def of(self, rows: Array) -> Array:
        """(n,) scores, or (n, classes), of labelled rows; where float64 holds none they are not finite."""
        x = rows[:, :-1]
        with np.errstate(over="ignore", invalid="ignore"):
            if self.coefficients.ndim == 1:
                return np.vecdot(x, self.coefficients) + self.intercept
            return seen_by(x, self.coefficients) + self.intercept


@dataclass(frozen=True)
class RightAnswers:
    """Σ of 1 for every row that a classifier puts in its own class, the first of two or more that tie.

    A row with a score that float64 does not hold is wrong.
    """

    description = "the share of right answers"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return 1

    @property
    def longest(self) -> float:
        """Length of the longest vector that a row can have."""
        return 1.0

    def diameter(self, clip: float) -> float:
        """A row is right or wrong, so that replacing it moves the count by at most one."""
        return min(clip, 1.0)

    def clipped_sum(self, point: LinearScores, rows: Array, clip: float) -> Array:
        """Σ over rows of numbers of at most `clip`; see `Statistic`."""
        scores = point.of(rows)
        if scores.ndim == 1:
            said, held, classes = scores > 0.0, np.isfinite(scores), 2
        else:
            said, held = np.argmax(scores, axis=1), np.isfinite(scores).all(axis=1)
            classes = scores.shape[1]
        right = held & (said == FeatureMap.labels(rows, classes))
        return np.array([min(clip, 1.0) * np.count_nonzero(right)])


@dataclass(frozen=True)
class RightAnswersOfEach:
    """Σ of vectors with a 1 for every classifier that puts the row in its own class, shortened to the clip.

    Classifiers may all be right of one row and all wrong of another, so that replacing a row moves the counts
    of k classifiers by √k.

    Attributes:
        size: number of classifiers, and length of the summed vector.
    """

    size: int

    description = "the shares of right answers"

    @property
    def longest(self) -> float:
        """Length of the longest vector that a row can have."""
        return sqrt(self.size)

    def diameter(self, clip: float) -> float:
        """No vector has a negative entry, so that the furthest from the longest is none at all."""
        return min(clip, self.longest)

    def clipped_sum(self, point: Sequence[LinearScores], rows: Array, clip: float) -> Array:
        """Σ over rows of vectors of length at most `clip`; see `Statistic`."""
        right, share = RightAnswers(), min(clip / self.longest, 1.0)
        return share * np.concatenate([right.clipped_sum(each, rows, 1.0) for each in point])


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Σ of one-hot vectors: how many rows of each of two classes have their score in each bin.

    A bin ends with its edge: a score on one is below it. A row whose score float64 does not hold is in the
    middle bin.

    Attributes:
        edges: (bins − 1,), increasing.
    """

    edges: Array

    description = "shares of scores by class and bin"

    @property
    def bins(self) -> int:
        """Number of bins for either class."""
        return len(self.edges) + 1

    @property
    def size(self) -> int:
        """Length of the summed vector: the first class's bins, then the second's."""
        return 2 * self.bins

    @property
    def longest(self) -> float:
        """Length of the longest vector that a row can have."""
        return 1.0

    def diameter(self, clip: float) -> float:
        """Two rows in different bins are orthogonal."""
        return sqrt(2.0) * min(clip, 1.0)

    def l1_diameter(self, clip: float) -> float:
        """Two rows in different bins differ by one in both."""
        return 2.0 * min(clip, 1.0)

    def clipped_sum(self, point: LinearScores, rows: Array, clip: float) -> Array:
        """Σ over rows of vectors of length at most `clip`; see `Statistic`."""
        scores = point.of(rows)
        place = np.searchsorted(self.edges, scores)
        place[~np.isfinite(scores)] = self.bins // 2
        place += self.bins * FeatureMap.labels(rows, 2)
        return min(clip, 1.0) * np.bincount(place, minlength=self.size).astype(np.float64)

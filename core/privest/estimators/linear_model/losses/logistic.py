"""The logistic loss, of two classes or more, and the moments from which one Newton step can be taken."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from scipy.special import expit, softmax

from privest.arrays import Array, SymmetricCoordinates, lengths, seen_by
from privest.estimators.linear_model.feature_map import FeatureMap, ProjectedMap
from privest.kernels import second_moment
from privest.privacy.clipped_sums import Opposable

_FURTHEST = 1e100
"""Largest weight: products with rows no longer than float64 can square stay finite."""


@dataclass(frozen=True, eq=False)
class Classifier:
    """The classifier at which gradients are taken.

    Scores of any row are finite: else one row's could be no number, and spoil a sum. Weights that answers of
    others have led anywhere are drawn in to that.

    Attributes:
        feature_map: what is seen of a row.
        weights: (size,) of the second of two classes, else (classes, size).
    """

    feature_map: FeatureMap | ProjectedMap
    weights: Array

    def __post_init__(self) -> None:
        finite = np.clip(np.nan_to_num(self.weights, nan=0.0), -_FURTHEST, _FURTHEST)
        object.__setattr__(self, "weights", finite)


@dataclass(frozen=True)
class LogisticGradient(Opposable):
    """Σ of the negative gradients of the mean logistic loss, for weights of the second class or of each.

    With two classes and y = ±1 a row's negative gradient is σ(−y·wᵀx)·y·x, at most |x| ≤ 1 long (Kuru
    et al. 2022, (35) and (36), in Euclidean length). With more it is (e_y − p) ⊗ x for softmax probabilities
    p, at most √2 long.

    Attributes:
        width: length of what a classifier sees of a row.
        classes: number of classes.
    """

    width: int
    classes: int

    description = "the mean gradient"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weights."""
        return (self.width,) if self.classes == 2 else (self.classes, self.width)

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return int(np.prod(self.shape))

    @property
    def longest(self) -> float:
        """Length of the longest gradient that a row can have."""
        return 1.0 if self.classes == 2 else sqrt(2.0)

    @property
    def gradient_lipschitz(self) -> float:
        """Largest eigenvalue of a row's Hessian: |x|²/4, and |x|²/2 of softmax (Böhning 1992)."""
        return 0.25 if self.classes == 2 else 0.5

    def clipped_sum(self, point: Classifier, rows: Array, clip: float) -> Array:
        """Σ over rows of gradients of length at most `clip`; see `Statistic`."""
        x, labels = point.feature_map.features(rows), point.feature_map.labels(rows, self.classes)
        if self.classes == 2:
            signs = 2.0 * labels - 1.0
            scores: Array = np.vecdot(x, point.weights)
            pull = (signs * expit(-signs * scores))[:, None]
        else:
            pull = -softmax(seen_by(x, point.weights), axis=1)
            pull[np.arange(len(x)), labels] += 1.0
        length = lengths(pull) * lengths(x)
        pull *= (clip / np.maximum(length, clip))[:, None]
        return (pull.T @ x).ravel()


@dataclass(frozen=True)
class ClassMoments:
    """Σ of (z ⊗ x, √(q/2)·xxᵀ) in one vector, z the label less the even mixture of all, q = |z|².

    The second needs no noise beyond the first's: where z ⊗ x moves furthest, rows are opposite (or alike,
    with opposite labels), and xxᵀ does not move at all.

    Attributes:
        width: length of what a classifier sees of a row.
        classes: number of classes.
    """

    width: int
    classes: int

    description = "class means and second moment"

    @cached_property
    def symmetric(self) -> SymmetricCoordinates:
        """Coordinates of the second moment."""
        return SymmetricCoordinates(self.width)

    @property
    def columns(self) -> int:
        """Length of z: a sign with two classes, else a number for each class."""
        return 1 if self.classes == 2 else self.classes

    @property
    def energy(self) -> float:
        """q."""
        return 1.0 if self.classes == 2 else 1.0 - 1.0 / self.classes

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.columns * self.width + self.symmetric.size

    @property
    def longest(self) -> float:
        """Length of the longest vector that a row can have."""
        return sqrt(1.5 * self.energy)

    def diameter(self, clip: float) -> float:
        """2√q, where the clip shortens nothing.

        Rows of lengths a, b ≤ 1 and cosine c, of one label, are q(a² + b² − 2abc) + q/2·(a⁴ + b⁴ − 2a²b²c²)
        apart in square. That is most where c ≤ 0, as −c instead of c shows, and there it grows with a and b:
        half the derivative in a is a + s + a³ − as² with s = b|c|, and as² ≤ as ≤ (a + s)/2. At a = b = 1 it
        is a parabola in c, highest at −1. Other labels are no further: their z have the product −q (two
        classes: c for −c) or −1/K > −q.
        """
        return 2.0 * (clip if clip < self.longest else sqrt(self.energy))

    def clipped_sum(self, point: FeatureMap, rows: Array, clip: float) -> Array:
        """Σ over rows, as `point` sees them, of vectors of length at most `clip`; see `Statistic`."""
        x, labels = point.features(rows), point.labels(rows, self.classes)
        if self.classes == 2:
            z = (2.0 * labels - 1.0)[:, None]
        else:
            z = np.full((len(x), self.classes), -1.0 / self.classes)
            z[np.arange(len(x)), labels] += 1.0
        squared = np.vecdot(x, x)
        length = np.sqrt(self.energy * squared * (1.0 + squared / 2))
        weight = clip / np.maximum(length, clip)
        second = self.symmetric.of(second_moment(x, weight)) * self.scale
        return np.concatenate((((z * weight[:, None]).T @ x).ravel(), second))

    @property
    def scale(self) -> float:
        """Factor on the second moment in the sum."""
        return sqrt(self.energy / 2)

    @property
    def factor(self) -> float:
        """Ratio of the second moment to the Hessian at zero weights: 4, or K."""
        return 4.0 if self.classes == 2 else float(self.classes)

    def parts(self, mean: Array) -> tuple[Array, Array]:
        """A released mean as (columns, size) class means and the (size, size) second moment."""
        first, second = np.split(mean, [self.columns * self.width])
        moment = self.symmetric.matrix(second / self.scale)
        return first.reshape(self.columns, -1), moment

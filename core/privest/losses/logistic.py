"""The logistic loss, of two classes or more, and the moments from which one Newton step can be taken."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from scipy.special import expit, softmax

from privest.arrays import Array, SymmetricCoordinates, lengths
from privest.losses.standardised import Standardised


@dataclass(frozen=True)
class LogLoss:
    """Σ of the negative gradients of the mean logistic loss, for weights of the second class or of each.

    With two classes and y = ±1 a row's negative gradient is σ(−y·wᵀx)·y·x, at most |x| ≤ 1 long (paper
    004, (35) and (36), in Euclidean length). With more it is (e_y − p) ⊗ x for softmax probabilities p, at
    most √2 long.

    Attributes:
        design: what a classifier sees of a row.
        classes: number of classes.
    """

    design: Standardised
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weights."""
        return (self.design.size,) if self.classes == 2 else (self.classes, self.design.size)

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return int(np.prod(self.shape))

    @property
    def longest(self) -> float:
        """Length of the longest gradient that a row can have."""
        return 1.0 if self.classes == 2 else sqrt(2.0)

    @property
    def smoothness(self) -> float:
        """Largest eigenvalue of a row's Hessian: |x|²/4, and |x|²/2 of softmax (Böhning 1992)."""
        return 0.25 if self.classes == 2 else 0.5

    def diameter(self, clip: float) -> float:
        """Two gradients may be opposite."""
        return 2.0 * clip

    def clipped_sum(self, point: Array, rows: Array, clip: float) -> Array:
        """Σ over rows of gradients at weights `point` of length at most `clip`; see `Statistic`."""
        x, labels = self.design.features(rows), self.design.labels(rows)
        if self.classes == 2:
            signs = 2.0 * labels - 1.0
            pull = (signs * expit(-signs * (x @ point)))[:, None]
        else:
            pull = -softmax(x @ point.T, axis=1)
            pull[np.arange(len(x)), labels] += 1.0
        length = lengths(pull) * lengths(x)
        pull *= (clip / np.maximum(length, clip))[:, None]
        return (pull.T @ x).ravel()


_RATIO = 0.5
"""ρ, weight of the second moment: the largest for which it comes free."""


@dataclass(frozen=True)
class ClassMoments:
    """Σ of (z ⊗ x, √(ρq)·xxᵀ) in one vector, z the label less the even mixture of all, q = |z|², ρ = ½.

    Together they need no more noise than the first alone: where z ⊗ x moves furthest, rows are opposite (or
    alike, with opposite labels), and xxᵀ does not move at all.

    Attributes:
        design: what a classifier sees of a row.
        classes: number of classes.
    """

    design: Standardised
    classes: int

    @cached_property
    def symmetric(self) -> SymmetricCoordinates:
        """Of the second moment."""
        return SymmetricCoordinates(self.design.size)

    @property
    def columns(self) -> int:
        """Of z: a sign with two classes, else a number for each."""
        return 1 if self.classes == 2 else self.classes

    @property
    def energy(self) -> float:
        """q."""
        return 1.0 if self.classes == 2 else 1.0 - 1.0 / self.classes

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.columns * self.design.size + self.symmetric.size

    @property
    def longest(self) -> float:
        """Length of the longest vector that a row can have."""
        return sqrt(self.energy * (1.0 + _RATIO))

    def diameter(self, clip: float) -> float:
        """2√q, where the clip shortens nothing.

        Rows of lengths a, b ≤ 1 and cosine c, of one label, are q(a² + b² − 2abc) + ρq(a⁴ + b⁴ − 2a²b²c²)
        apart in square: for ρ ≤ ½ convex in a, in b and falling in c, so at most 4q, at a = b = 1, c = −1.
        Other labels are no further: their z have the product −q (two classes) or −1/K > −q.
        """
        return 2.0 * sqrt(self.energy) if clip >= self.longest else 2.0 * clip

    def clipped_sum(self, point: None, rows: Array, clip: float) -> Array:  # noqa: ARG002 - of no point
        """Σ over rows of vectors of length at most `clip`; see `Statistic`."""
        x, labels = self.design.features(rows), self.design.labels(rows)
        if self.classes == 2:
            z = (2.0 * labels - 1.0)[:, None]
        else:
            z = np.full((len(x), self.classes), -1.0 / self.classes)
            z[np.arange(len(x)), labels] += 1.0
        squared = np.vecdot(x, x)
        length = np.sqrt(self.energy * squared * (1.0 + _RATIO * squared))
        weighted = (clip / np.maximum(length, clip))[:, None] * x
        second = self.symmetric.of(weighted.T @ x) * self.scale
        return np.concatenate(((z.T @ weighted).ravel(), second))

    @property
    def scale(self) -> float:
        """By which the second moment is multiplied in the sum."""
        return sqrt(_RATIO * self.energy)

    def parts(self, mean: Array) -> tuple[Array, Array]:
        """A released mean as (columns, size) class means and the (size, size) second moment."""
        first, second = np.split(mean, [self.columns * self.design.size])
        moment = self.symmetric.matrix(second / self.scale)
        return first.reshape(self.columns, -1), moment

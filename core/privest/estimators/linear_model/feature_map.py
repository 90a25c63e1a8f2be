"""Labelled rows as a linear classifier sees them: standardised by public facts, at most one long."""

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.data.tables import Truths
from privest.kernels import standardised

CONSTANT = 0.2
"""k of a classifier with an intercept: large enough to be learned, and short beside the features."""

TIGHT = 0.6
"""Length to which rows are shortened where noise rules, over the usual one: their direction is what tells
classes apart."""


@dataclass(frozen=True)
class FeatureMap:
    """The per-record map from stored rows to vectors of length at most one, and coefficients back.

    A vector is (x, k)/√(1 + k²): the standardised features, shortened to the bound and divided by it, and a
    constant k for the intercept.

    Attributes:
        mean: (d,) public; taken off each feature.
        scale: (d,) public; each feature is divided by it.
        bound: length to which a standardised vector is shortened.
        constant: k; 0 for a classifier without intercept, which then has no constant at all.
        usual: length that vectors are supposed to have; coefficients are for such ones.
    """

    mean: Array
    scale: Array
    bound: float
    constant: float
    usual: float

    @classmethod
    def of(cls, shape: LabelledMetadata, bound: float, *, intercept: bool) -> "FeatureMap":
        """The map that follows from public facts."""
        mean = np.zeros(shape.dim) if shape.mean is None else np.array(shape.mean)
        scale = np.ones(shape.dim) if shape.scale is None else np.array(shape.scale)
        length = bound if shape.scale is None else sqrt(shape.dim)
        return cls(mean, scale, bound, CONSTANT if intercept else 0.0, max(bound, length))

    def shifted(self, mean: Array, scale: Array) -> "FeatureMap":
        """This map with other means and scales, given in units of the present ones."""
        return replace(self, mean=self.mean + self.scale * mean, scale=self.scale * scale)

    def with_some(self, chosen: Truths, other: "FeatureMap") -> "FeatureMap":
        """Return this map with the mean and the scale of the chosen features from another one."""
        mean = np.where(chosen, other.mean, self.mean)
        return replace(self, mean=mean, scale=np.where(chosen, other.scale, self.scale))

    @property
    def size(self) -> int:
        """Length of a vector."""
        return len(self.mean) + (self.constant > 0)

    def features(self, rows: Array, longest: float = 1.0) -> Array:
        """(n, size) vectors; the features of a row of which float64 holds no length are zero.

        Args:
            rows: (n, d + 1) records.
            longest: length to which standardised vectors are shortened, over the bound.
        """
        # In units of the bound: squares of lengths that are both below 1e-154 would be lost.
        unit, shrink = self.scale * self.bound, float(np.hypot(1.0, self.constant))
        return standardised(rows, self.mean, unit, longest=longest, shrink=shrink, constant=self.last)

    @property
    def units(self) -> Array:
        """(size,) coefficients of standardised features, and their intercept, of weights of one."""
        own = np.full(len(self.mean), 1 / (self.usual * np.hypot(1.0, self.constant)))
        return np.append(own, self.last) if self.constant else own

    @property
    def last(self) -> float:
        """Last coordinate of every vector, if there is an intercept."""
        return self.constant / float(np.hypot(1.0, self.constant))

    @staticmethod
    def labels(rows: Array, classes: int) -> NDArray[np.int64]:
        """(n,) places of the labels among the classes; what is none of them counts as the nearest.

        No upload has such labels. Total all the same: else a row in a store that was tampered with could
        stop a run, or add more than its clip.
        """
        return np.fmin(np.fmax(rows[:, -1], 0.0), classes - 1.0).astype(np.int64)

    def original(self, weights: Array) -> tuple[Array, Array]:
        """Coefficients (..., d) and intercepts (...) for features as they were uploaded, of (..., size)."""
        own, intercept = self._back
        return weights[..., : len(own)] * own, weights @ intercept

    def original_covariance(self, weights: Array) -> Array:
        """(d + 1, d + 1) covariance of coefficients and intercept, of the (size, size) one of weights."""
        own, intercept = self._back
        features = len(own)
        found = np.empty((features + 1, features + 1))
        found[:-1, :-1] = weights[:features, :features] * np.outer(own, own)
        found[-1, :-1] = found[:-1, -1] = (weights @ intercept)[:features] * own
        found[-1, -1] = intercept @ weights @ intercept
        return found

    @property
    def _back(self) -> tuple[Array, Array]:
        """(d,) by which weights are multiplied, and (size,) whose product with them is the intercept."""
        own = 1 / (self.scale * self.usual * np.hypot(1.0, self.constant))
        return own, np.append(-self.mean * own, self.last) if self.constant else -self.mean * own


@dataclass(frozen=True)
class ProjectedMap:
    """The per-record map from stored rows to coordinates of their vectors along a few directions.

    Attributes:
        feature_map: what makes the vectors, at most one long; so are their coordinates.
        directions: (size, k) orthonormal columns; public, or computed from released numbers.
    """

    feature_map: FeatureMap
    directions: Array

    last = 0.0

    def features(self, rows: Array, longest: float = 1.0) -> Array:  # noqa: ARG002 - none is longer than 1
        """Return (n, k) coordinates."""
        return self.feature_map.features(rows) @ self.directions

    labels = staticmethod(FeatureMap.labels)

"""Labelled rows as a linear classifier sees them: standardised by public facts, at most one long."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array, lengths


@dataclass(frozen=True)
class Standardised:
    """The per-record map from stored rows to vectors of length at most one, and coefficients back.

    A vector is (x, k)/√(1 + k²): the standardised features, shortened to the bound and divided by it, and a
    constant k for the intercept.

    Attributes:
        mean: (d,) public; taken off each feature.
        scale: (d,) public; each feature is divided by it.
        bound: length to which a standardised vector is shortened.
        constant: k; 0 for a classifier without intercept, which then has no constant at all.
    """

    mean: Array
    scale: Array
    bound: float
    constant: float

    @property
    def size(self) -> int:
        """Length of a vector."""
        return len(self.mean) + (self.constant > 0)

    def features(self, rows: Array) -> Array:
        """(n, size) vectors; the features of a row of which float64 holds no length are zero."""
        shrink = np.hypot(1.0, self.constant)
        with np.errstate(over="ignore", invalid="ignore"):
            z = (rows[:, :-1] - self.mean) / self.scale
            length = lengths(z)
            usable = np.isfinite(length)
            z *= (usable / np.maximum(np.where(usable, length, 0.0), self.bound) / shrink)[:, None]
        z[~usable] = 0.0
        if not self.constant:
            return z
        return np.hstack([z, np.full((len(z), 1), self.constant / shrink)])

    @staticmethod
    def labels(rows: Array) -> NDArray[np.int64]:
        """(n,) places of the labels among the classes."""
        return rows[:, -1].astype(np.int64)

    def original(self, weights: Array) -> tuple[Array, Array]:
        """Coefficients (..., d) and intercepts (...) for features as they were uploaded, of (..., size)."""
        shrink = np.hypot(1.0, self.constant)
        own = weights[..., : len(self.mean)] / (self.scale * self.bound * shrink)
        held = weights[..., -1] * self.constant / shrink if self.constant else np.zeros(weights.shape[:-1])
        return own, held - own @ self.mean

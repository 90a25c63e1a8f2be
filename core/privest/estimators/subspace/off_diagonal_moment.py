"""Second moments without their diagonal: of rows with unknown entries, all that has no bias of its own."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.estimators.subspace.partial_rows import known_part


@dataclass(frozen=True)
class OffDiagonalMoment:
    """Σ of aaᵀ without its diagonal, over known parts a with zeros for what is not known.

    Two different entries are both known with the square of the probability of one, and the diagonal with
    that probability itself: of a moment with its diagonal the leading subspace is another one (Zhang, Cai
    and Wu 2022, Section 1).

    Attributes:
        dim: D, length of a row.
    """

    dim: int

    description = "the second moment without its diagonal"

    @property
    def size(self) -> int:
        """Length of the summed vector: the upper triangle, times √2."""
        return self.dim * (self.dim - 1) // 2

    def diameter(self, clip: float) -> float:
        """√2·clip. Leaving out the diagonal is an orthogonal projection, so that no two are further apart
        than the whole matrices: ‖aaᵀ − bbᵀ‖² = |a|⁴ + |b|⁴ − 2(aᵀb)² ≤ 2·clip² (see `SecondMoment`).

        It is reached: for a = (e₁ + e₂)/√2 and b = (e₁ − e₂)/√2 the two are ±½(e₁e₂ᵀ + e₂e₁ᵀ).
        """
        return sqrt(2.0) * clip

    def clipped_sum(self, _: object, rows: Array, clip: float) -> Array:
        """Σ over rows of matrices whose aaᵀ has length at most `clip`, wherever: see `Statistic`."""
        a, _ = known_part(rows)
        return np.take((min(clip, 1.0) * (a.T @ a)).ravel(), self._upper) * sqrt(2.0)

    def matrix(self, coordinates: Array) -> Array:
        """The (dim, dim) hollow symmetric matrix with these coordinates (size,)."""
        upper = np.zeros(self.dim**2)
        upper[self._upper] = coordinates / sqrt(2.0)
        square = upper.reshape(self.dim, self.dim)
        return square + square.T

    @cached_property
    def _upper(self) -> NDArray[np.intp]:
        """Place in the flattened matrix of each coordinate."""
        rows, columns = np.triu_indices(self.dim, 1)
        return rows * self.dim + columns

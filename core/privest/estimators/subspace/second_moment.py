"""Second moments of rows on the unit sphere, whole or as a public frame sees them."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from privest.arrays import Array, SymmetricCoordinates, lengths
from privest.estimators.subspace.spherical import on_sphere, orthonormal
from privest.kernels import second_moment


@dataclass(frozen=True)
class Frame:
    """The centre that is taken off rows, and the directions in which they are looked at.

    Attributes:
        basis: (dim, k) orthonormal columns; None for all of the space. Coordinate axes take the place of
            columns that are not orthonormal.
        center: (dim,) to be taken off the rows.
    """

    basis: Array | None = None
    center: Array | None = None

    def __post_init__(self) -> None:
        if self.basis is not None:
            object.__setattr__(self, "basis", orthonormal(self.basis))


@dataclass(frozen=True)
class SecondMoment:
    """Σ (Bᵀx)(Bᵀx)ᵀ, the statistic of Analyze Gauss (Dwork, Talwar, Thakurta and Zhang 2014, Algorithm 1).

    Attributes:
        rank: k, rows of the matrix: columns of the frame, or of the data without one.
    """

    rank: int
    description: str = "the second moment"

    @cached_property
    def coordinates(self) -> SymmetricCoordinates:
        """Coordinates of the matrix."""
        return SymmetricCoordinates(self.rank)

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.coordinates.size

    def diameter(self, clip: float) -> float:
        """Two matrices xxᵀ and yyᵀ are at most √2·clip apart: ‖x‖⁴ + ‖y‖⁴ − 2(xᵀy)² ≤ 2·clip².

        Of one row and column, they are numbers between 0 and the clip.
        """
        return clip if self.rank == 1 else sqrt(2.0) * clip

    def clipped_sum(self, point: Frame, rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere of matrices of norm at most `clip`; see `Statistic`."""
        x = on_sphere(rows, point.center)
        if point.basis is not None:
            x = x @ point.basis
        squared = lengths(x) ** 2
        weight = clip / np.maximum(squared, clip)
        return self.coordinates.of(second_moment(x, weight))

"""REAPER: the distance to a subspace, relaxed to symmetric matrices between 0 and I (Lerman et al. 2015)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privest.arrays import Array, SymmetricCoordinates, lengths, seen_by
from privest.losses.spherical import on_sphere

_LEAST_RESIDUAL = 1e-12
"""Below, a direction is rounding; the gradient falls to zero there."""


@dataclass(frozen=True)
class Reaper:
    """Σ of the negative gradients of ‖(I − P)x‖: the symmetric part of u·xᵀ, u the residual's direction.

    A row's gradient has Frobenius norm at most |u||x| = 1 (paper 001, (4.1)).

    Attributes:
        dim: D, rows of P.
    """

    dim: int

    @cached_property
    def coordinates(self) -> SymmetricCoordinates:
        """Of symmetric matrices."""
        return SymmetricCoordinates(self.dim)

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.coordinates.size

    def diameter(self, clip: float) -> float:
        """Two gradients may be opposite."""
        return 2.0 * clip

    def clipped_sum(self, point: tuple[Array, Array | None], rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere, `point` being (P, centre); see `Statistic`."""
        p, center = point
        x = on_sphere(rows, center)
        left = x - seen_by(x, p)
        length = lengths(left)
        weight = clip / np.maximum(np.maximum(length, _LEAST_RESIDUAL), clip * length)
        total = (weight[:, None] * left).T @ x
        return self.coordinates.of(0.5 * total + 0.5 * total.T)

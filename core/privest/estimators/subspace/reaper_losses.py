"""REAPER: the distance to a subspace, relaxed to symmetric matrices between 0 and I (Lerman et al. 2015)."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from privest.arrays import Array, SymmetricCoordinates, lengths, seen_by
from privest.estimators.subspace.spherical import on_sphere, orthonormal

_LEAST_RESIDUAL = 1e-6
"""Residual below which rounding begins to turn directions; the gradient falls to zero there."""

_FURTHEST = 1e100
"""Largest entry of a relaxation: squares of what it leaves of a row stay finite."""

_COVER = 1 + 1e-9
"""Factor on a diameter, for directions that rounding has turned; the square of that is below 1e-12."""


@dataclass(frozen=True)
class Relaxation:
    """The matrix at which a gradient is asked for.

    Attributes:
        p: symmetric, of D rows; or of k rows in a frame, for the matrix BPBᵀ. Entries beyond ±1e100 count as
            these, and NaN as 0.
        center: (D,) to be taken off the rows.
        frame: B, (D, k) orthonormal columns, public or released; None for all of the space. Coordinate axes
            take the place of columns that are not orthonormal.
    """

    p: Array
    center: Array | None = None
    frame: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", np.clip(np.nan_to_num(self.p, nan=0.0), -_FURTHEST, _FURTHEST))
        if self.frame is not None:
            object.__setattr__(self, "frame", orthonormal(self.frame))


@dataclass(frozen=True)
class Reaper:
    """Σ of the negative gradients of ‖(I − P)x‖: the symmetric part of u·xᵀ, u the residual's direction.

    A row's gradient has Frobenius norm at most |u||x| = 1 (Maunu et al. 2022, (4.1)).

    Attributes:
        dim: rows of P: D, or k where matrices are kept within a frame of so many columns.
    """

    dim: int

    description = "the mean gradient"

    @cached_property
    def coordinates(self) -> SymmetricCoordinates:
        """Coordinates of symmetric matrices."""
        return SymmetricCoordinates(self.dim)

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.coordinates.size

    def diameter(self, clip: float) -> float:
        """√2·clip: two gradients may be orthogonal, and no further apart, as P is symmetric.

        With u = (I − P)x/|(I − P)x| and c = u·x the symmetric part A of uxᵀ has |A|² = ½(1 + c²), and
        2⟨A, A′⟩ = (u·u′)(x·x′) + (u·x′)(u′·x). The second product is (xᵀ(I − P)x′)² over lengths, so not
        below 0, and the first less the second is the product of u ∧ x and u′ ∧ x′, which is at least
        −√(1 − c²)√(1 − c′²). So −2⟨A, A′⟩ ≤ ½(1 − c²) + ½(1 − c′²), and |A − A′|² ≤ 2. Shorter gradients are
        no further apart.

        In a frame B the gradient is BᵀAB, of the A that BPBᵀ has: these are no further apart than the A are.
        """
        return sqrt(2.0) * _COVER * clip

    def clipped_sum(self, point: Relaxation, rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere; see `Statistic`."""
        x, left, length = _residuals(point, rows)
        weight = clip / np.maximum(np.maximum(length, _LEAST_RESIDUAL), clip * length)
        total = (weight[:, None] * left).T @ x
        return self.coordinates.of(0.5 * total + 0.5 * total.T)


def _residuals(point: Relaxation, rows: Array) -> tuple[Array, Array, Array]:
    """Rows on the sphere and what P leaves of them, both as the frame sees them, and the latter's length.

    As in `losses.residuals` a record's numbers have the same bits wherever in a batch it is.
    """
    x = on_sphere(rows, point.center)
    p = 0.5 * point.p + 0.5 * point.p.T  # the diameter rests on symmetry
    if point.frame is None:
        left = x - seen_by(x, p)
        return x, left, lengths(left)
    directions = np.ascontiguousarray(point.frame.T)
    along = seen_by(x, directions)
    x -= np.einsum("nk,kd->nd", seen_by(along, p), directions)
    return along, seen_by(x, directions), lengths(x)

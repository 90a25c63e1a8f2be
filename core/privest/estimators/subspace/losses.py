"""Losses of a linear subspace: functions of the length of what it leaves of a row on the unit sphere."""

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np

from privest.arrays import Array, lengths, seen_by
from privest.estimators.subspace.spherical import on_sphere, orthonormal
from privest.privacy.clipped_sums import Opposable

_LEAST_RESIDUAL = 1e-12
"""Residual below which a direction is rounding; the gradient of the absolute loss falls to zero there."""


class RobustPenalty(Protocol):
    """ρ(d) of the length d of a residual, scaled so that no row's gradient is longer than one."""

    def weight(self, residual: Array) -> Array:
        """ρ'(d)/d, (n,)."""
        ...


@dataclass(frozen=True)
class Absolute:
    """ρ(d) = d: GLAD, geodesic least absolute deviations (Maunu et al. 2022, Section 1.1)."""

    def weight(self, residual: Array) -> Array:
        """1/d: a row pulls by |Vᵀx| ≤ 1. (The paper's (2.1) lacks the minus sign of this pull.)"""
        return 1.0 / np.maximum(residual, _LEAST_RESIDUAL)


@dataclass(frozen=True)
class Redescending:
    """ρ'(d) = 1/(1 + (d/c)⁴): absolute near the subspace, indifferent far from it.

    Near rows pull as those of the absolute loss do, from any distance alike, so that the error follows the
    steps below the noise; a crowd of outliers in one direction, which bends the absolute loss, hardly pulls.

    Attributes:
        scale: c, the distance at which a row's pull is halved.
    """

    scale: float

    def weight(self, residual: Array) -> Array:
        """(1/d)/(1 + (d/c)⁴): a row pulls by less than |Vᵀx| ≤ 1."""
        return 1.0 / (np.maximum(residual, _LEAST_RESIDUAL) * (1.0 + (residual / self.scale) ** 4))


@dataclass(frozen=True)
class Squared:
    """ρ(d) = d²: PCA, and with rank 1 the leading eigenvector of Utpala et al. (2023), Section 6.3."""

    def weight(self, residual: Array) -> Array:
        """The constant 2: a row pulls by 2|Qx||Vᵀx| ≤ 1."""
        return np.full_like(residual, 2.0)


@dataclass(frozen=True)
class Bounded:
    """ρ(d) ∝ d²/(c² + d²): far rows pull less the further they are (Geman and McClure 1987).

    Attributes:
        scale: c, the distance at which a row is half an outlier.
    """

    scale: float

    def weight(self, residual: Array) -> Array:
        """2c²/(c² + d²)² over the greatest pull that it gives a row."""
        return self._factor / (self.scale**2 + residual**2) ** 2

    def value(self, residual: Array) -> Array:
        """d²/(c² + d²)."""
        return residual**2 / (self.scale**2 + residual**2)

    @property
    def _factor(self) -> float:
        """1 over the maximum of s√(1 − s²)/(c² + s²)², at the root t = s² of 2t² − (3 + 2c²)t + c²."""
        c2 = self.scale**2
        half = 3 + 2 * c2
        t = 2 * c2 / (half + sqrt(half * half - 8 * c2))
        return (c2 + t) ** 2 / sqrt(t * (1 - t))


@dataclass(frozen=True)
class SubspaceQuery:
    """The basis and the loss for which a gradient is asked.

    Attributes:
        basis: (dim, rank) orthonormal columns; coordinate axes take the place of others.
        loss: of the residual's length.
        center: (dim,) to be taken off the rows.
    """

    basis: Array
    loss: RobustPenalty
    center: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "basis", orthonormal(self.basis))


def residuals(at: SubspaceQuery, rows: Array) -> tuple[Array, Array, Array]:
    """Split rows on the sphere into what a subspace holds and what it leaves.

    Returns:
        (n, rank) coordinates Vᵀx, (n, dim) residuals Qx, and their lengths (n,).
    """
    x = on_sphere(rows, at.center)
    directions = np.ascontiguousarray(at.basis.T)
    along = seen_by(x, directions)
    x -= np.einsum("nr,rd->nd", along, directions)  # like `seen_by`, the same wherever a row is
    return along, x, lengths(x)


@dataclass(frozen=True)
class SubspaceDistance(Opposable):
    """Σ of negative gradients Qx·w(d)·(Vᵀx)ᵀ of a residual loss (Maunu et al. 2022, (2.1) with its sign).

    Nothing larger than rows and basis is formed, so that thousands of columns are no burden.

    Attributes:
        dim: D, length of a row.
        rank: r, columns of a basis.
    """

    dim: int
    rank: int

    description = "the mean gradient"

    @property
    def size(self) -> int:
        """Length of the summed vector: the D×r gradient, row by row."""
        return self.dim * self.rank

    def clipped_sum(self, point: SubspaceQuery, rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere of gradients of length at most `clip`; see `Statistic`."""
        along, left, length = residuals(point, rows)
        pull = point.loss.weight(length) * length * lengths(along)
        weight = point.loss.weight(length) * (clip / np.maximum(pull, clip))
        return (left.T @ (weight[:, None] * along)).ravel()

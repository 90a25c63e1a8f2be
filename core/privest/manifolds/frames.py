"""Orthonormal frames: the common base of the Stiefel and Grassmann manifolds."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from privest.arrays import Array, one_by_one, transposed
from privest.manifolds.base import ROUNDING, Embedded
from privest.options import Option


def svd(a: Array) -> tuple[Array, Array, Array]:
    """The reduced singular value decomposition u·diag(s)·vt of (..., m, r) matrices; NaN if LAPACK fails."""
    u, s, vt = one_by_one(lambda a: np.linalg.svd(a, full_matrices=False), a)
    return u, s, vt


@dataclass(frozen=True)
class Frames(Embedded):
    """Matrices with orthonormal columns, with the metric of the ambient space.

    Raises:
        ValueError: `rank` exceeds `size`, or the manifold has dimension 0.
    """

    size: Annotated[int, Option("rows of a matrix", ge=1, le=10_000)]
    rank: Annotated[int, Option("columns of a matrix", ge=1, le=100)]

    rules = ("finite", "orthonormal columns")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank > self.size:
            raise ValueError("rank must be at most dim")
        if not self.dim:
            raise ValueError(f"{self.name} of this dim and rank must be more than single points")

    @property
    def reach(self) -> float:
        return 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, self.rank)

    @property
    def reference(self) -> Array:
        return np.eye(self.size, self.rank)

    def broken_rule(self, x: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(x).all(axis=(-1, -2))
            defect = np.abs(transposed(x) @ x - np.eye(self.rank)).max(axis=(-1, -2))
            return np.select([~finite, ~(defect <= ROUNDING)], [1, 2], 0)

    def project(self, x: Array) -> Array:
        """The nearest frame: the orthogonal factor of the polar decomposition."""
        u, _, vt = svd(x)
        return u @ vt

    def log_coordinates(self, base: Array, x: Array) -> Array:
        """The coordinates of the logarithm. An array that is no frame counts as `base`, so nothing raises."""
        x = np.where(self.belongs(x)[..., None, None], x, base)
        return self.coordinates(base, self.log(base, x))

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        """The product of `v` with an orthogonal matrix that maps the reference to `base`."""
        q, r = np.linalg.qr(base, mode="complete")
        signs = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
        q[..., : self.rank] *= signs[..., None, :]
        return q @ v

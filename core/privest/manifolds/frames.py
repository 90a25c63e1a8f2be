"""Orthonormal frames: what the Stiefel and Grassmann manifolds share."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privest.arrays import Array, lengths, one_by_one, transposed
from privest.manifolds.base import Manifold

_TOLERANCE = 1e-8


def svd(a: Array) -> tuple[Array, Array, Array]:
    """The singular value decomposition u·diag(s)·vt of (..., m, r) matrices, u of their shape where r ≤ m."""
    u, s, vt = one_by_one(lambda a: np.linalg.svd(a, full_matrices=False), a)
    return u, s, vt


@dataclass(frozen=True)
class Frames(Manifold):
    """size×rank matrices with orthonormal columns, tangent vectors measured in the space around them.

    The metric is induced, so coordinates are those of R^(size·rank), and an ambient Gaussian projected
    onto the tangent space is the tangent Gaussian.
    """

    size: int
    rank: int

    rules = ("finite", "orthonormal columns")

    def __init__(self, dim: int, rank: int) -> None:
        if not 1 <= rank <= dim:
            raise ValueError(f"rank of {self.name} must be between 1 and dim")
        object.__setattr__(self, "size", dim)
        object.__setattr__(self, "rank", rank)
        if not self.dim:
            raise ValueError(f"{self.name} of this dim and rank must be more than single points")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, self.rank)

    @property
    def params(self) -> Mapping[str, int | str]:
        return {"dim": self.size, "rank": self.rank}

    @property
    def reference(self) -> Array:
        return np.eye(self.size, self.rank)

    @property
    def coordinate_size(self) -> int:
        return self.size * self.rank

    def random_point(self, rng: np.random.Generator) -> Array:
        return self.canonical(rng.standard_normal(self.shape))

    def broken_rule(self, x: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(x).all(axis=(-1, -2))
            defect = np.abs(transposed(x) @ x - np.eye(self.rank)).max(axis=(-1, -2))
            return np.select([~finite, ~(defect <= _TOLERANCE)], [1, 2], 0)

    def canonical(self, x: Array) -> Array:
        """The nearest frame: the orthogonal factor of the polar decomposition."""
        u, _, vt = svd(x)
        return u @ vt

    def inner(self, base: Array, u: Array, v: Array) -> Array:
        return np.sum(u * v, axis=(-1, -2))

    def log_coordinates(self, base: Array, x: Array) -> Array:
        """Total: what is no frame counts as `base` itself."""
        x = np.where(self.belongs(x)[..., None, None], x, base)
        return self.coordinates(base, self.log(base, x))

    def dist(self, a: Array, b: Array) -> Array:
        return lengths(self.log_coordinates(a, b))

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        """Multiplication by an orthogonal matrix that takes the reference to `base`."""
        q, r = np.linalg.qr(base, mode="complete")
        signs = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
        q[..., : self.rank] *= signs[..., None, :]
        return q @ v

    def coordinates(self, base: Array, v: Array) -> Array:
        return v.reshape(*v.shape[:-2], -1)

    def from_coordinates(self, base: Array, c: Array) -> Array:
        return self.project_tangent(base, c.reshape(*c.shape[:-1], *self.shape))

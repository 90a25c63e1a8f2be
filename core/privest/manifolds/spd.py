"""Symmetric positive definite matrices."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array, lengths
from privest.manifolds.base import Manifold, at_least

_SYMMETRY_TOLERANCE = 1e-10
_LOG_LIMIT = 690.0
"""Eigenvalues are kept within exp(±this), where float64 still has them."""


def symmetric(a: Array) -> Array:
    """The symmetric part of (..., m, m) matrices."""
    return 0.5 * a + 0.5 * np.swapaxes(a, -1, -2)


def spectral(a: Array, function: Callable[[Array], Array]) -> Array:
    """A function of symmetric matrices through their eigenvalues, (..., m, m).

    Total: NaN for a matrix on which LAPACK gives up, whatever else is in the batch. Near the ends of
    float64's range it does, so that matrices are first scaled, exactly, to entries of about one.
    """
    size = np.abs(a).max(axis=(-1, -2), keepdims=True)
    scale = np.ldexp(1.0, np.frexp(size)[1] - 1)
    try:
        values, vectors = np.linalg.eigh(a / scale)
    except np.linalg.LinAlgError:
        return np.stack([spectral(one, function) for one in a]) if a.ndim > 2 else np.full_like(a, np.nan)
    return (vectors * function(values * scale[..., 0])[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def _cholesky(base: Array) -> Array:
    """The factor L with `base` = LLᵀ, lower triangular."""
    return np.asarray(np.linalg.cholesky(base), dtype=np.float64)


@dataclass(frozen=True)
class AffineInvariantSPD(Manifold):
    """size×size positive definite matrices with ⟨u, v⟩_w = tr(w⁻¹u w⁻¹v) (paper 000, Section 4.1).

    Coordinates are taken in the frame of the Cholesky factor: with w = LLᵀ, of the symmetric matrix
    L⁻¹vL⁻ᵀ the diagonal, then √2 times the entries above it. That is an orthonormal basis, diagonal
    included (Lemma 1.1 of the paper leaves it out), and at every base point, however far from I.
    """

    size: int

    name = "spd"
    curvature = (-0.5, 0.0)
    widest_radius = 100.0
    rules = ("finite", "symmetric", "positive definite")

    def __init__(self, dim: int) -> None:
        object.__setattr__(self, "size", at_least(dim, 1, self.name))

    @property
    def dim(self) -> int:
        return self.size * (self.size + 1) // 2

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, self.size)

    @property
    def params(self) -> Mapping[str, int | str]:
        return {"dim": self.size, "metric": "affine-invariant"}

    @property
    def reference(self) -> Array:
        return np.eye(self.size)

    @property
    def natural_radius(self) -> float:
        """Of matrices whose eigenvalues are within a factor e of one."""
        return sqrt(self.size)

    @property
    def coordinate_size(self) -> int:
        return self.dim

    def random_point(self, rng: np.random.Generator) -> Array:
        a = symmetric(rng.standard_normal(self.shape)) / sqrt(self.size)
        return spectral(a, np.exp)

    def broken_rule(self, x: Array) -> Array:
        finite = np.isfinite(x).all(axis=(-1, -2))
        x = np.where(np.asarray(finite)[..., None, None], x, np.eye(self.size))
        size = np.abs(x).max(axis=(-1, -2))
        scaled = x / np.where(size > 0, size, 1.0)[..., None, None]
        gap = np.abs(scaled - np.swapaxes(scaled, -1, -2)).max(axis=(-1, -2))
        definite = np.linalg.eigvalsh(symmetric(scaled))[..., 0] > 0
        return np.select([~finite, gap > _SYMMETRY_TOLERANCE, ~definite], [1, 2, 3], 0)

    def canonical(self, x: Array) -> Array:
        return symmetric(x)

    @staticmethod
    def _whiten(base: Array, a: Array) -> tuple[Array, Array]:
        """The Cholesky factor L of `base`, and L⁻¹aL⁻ᵀ."""
        factor = _cholesky(base)
        inverse = np.linalg.inv(factor)
        return factor, symmetric(inverse @ a @ np.swapaxes(inverse, -1, -2))

    @staticmethod
    def _congruence(factor: Array, a: Array) -> Array:
        return symmetric(factor @ a @ np.swapaxes(factor, -1, -2))

    def exp(self, base: Array, v: Array) -> Array:
        factor, white = self._whiten(base, v)
        return self._congruence(factor, spectral(white, _bounded_exp))

    def log(self, base: Array, x: Array) -> Array:
        factor, white = self._whiten(base, x)
        return self._congruence(factor, spectral(white, _bounded_log))

    def log_coordinates(self, base: Array, x: Array) -> Array:
        """Total: a point so far from `base` that float64 cannot hold the way counts as `base` itself."""
        white = self._whiten(base, x)[1]
        held = np.isfinite(white).all(axis=(-1, -2), keepdims=True)
        return self._pack(spectral(np.where(held, white, np.eye(self.size)), _bounded_log))

    def exp_coordinates(self, base: Array, c: Array) -> Array:
        """Total: eigenvalues lost in float64 beside the largest are raised until they are held."""
        x = self._congruence(_cholesky(base), spectral(self._unpack(c), _bounded_exp))
        return symmetric(spectral(x, lambda e: np.maximum(e, e[..., -1:] * self.size * 2.0**-48)))

    def dist(self, a: Array, b: Array) -> Array:
        values = np.asarray(np.linalg.eigvalsh(self._whiten(a, b)[1]), dtype=np.float64)
        return lengths(_bounded_log(values))

    def inner(self, base: Array, u: Array, v: Array) -> Array:
        return np.sum(self.coordinates(base, u) * self.coordinates(base, v), axis=-1)

    def project_tangent(self, base: Array, a: Array) -> Array:
        return symmetric(a)

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        return self._congruence(spectral(base, np.sqrt), v)

    def coordinates(self, base: Array, v: Array) -> Array:
        return self._pack(self._whiten(base, v)[1])

    def from_coordinates(self, base: Array, c: Array) -> Array:
        return self._congruence(_cholesky(base), self._unpack(c))

    @cached_property
    def _upper(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
        """Rows, columns and weights of the coordinates."""
        rows, columns = np.triu_indices(self.size)
        return rows, columns, np.where(rows == columns, 1.0, sqrt(2.0))

    def _pack(self, a: Array) -> Array:
        rows, columns, weights = self._upper
        return a[..., rows, columns] * weights

    def _unpack(self, c: Array) -> Array:
        rows, columns, weights = self._upper
        a = np.empty((*c.shape[:-1], *self.shape))
        a[..., rows, columns] = a[..., columns, rows] = c / weights
        return a


def _bounded_log(values: Array) -> Array:
    """The logarithm of eigenvalues, those lost to rounding taken for the least that float64 has."""
    return np.log(np.clip(values, np.exp(-_LOG_LIMIT), np.exp(_LOG_LIMIT)))


def _bounded_exp(values: Array) -> Array:
    return np.exp(np.clip(values, -_LOG_LIMIT, _LOG_LIMIT))

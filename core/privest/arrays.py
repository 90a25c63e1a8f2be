"""The array type of the package, and functions on batches of vectors and matrices that numpy lacks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""A float64 array. Docstrings state its shape, with leading batch axes written as `...`."""

NestedList = list[object]
"""An array in JSON: nested lists of numbers, which are checked when they are turned into an array."""


def lengths(v: Array) -> Array:
    """Euclidean length along the last axis: (..., size) to (...)."""
    return np.sqrt(np.vecdot(v, v))


def seen_by(rows: Array, directions: Array) -> Array:
    """Inner products (n, k) of (n, size) rows with (k, size) directions. No row affects another's rounding.

    In `rows @ directions.T` the rounding of a row depends on its position. After clipping, or division by a
    small length, one record could then change the vectors of others.
    """
    return np.vecdot(rows[:, None, :], directions)


def transposed(a: Array) -> Array:
    """The transpose of (..., m, k) matrices."""
    return np.swapaxes(a, -1, -2)


def one_by_one(factors: Callable[[Array], tuple[Array, ...]], a: Array) -> tuple[Array, ...]:
    """`factors(a)` of (..., m, k) matrices, with NaN for each matrix on which LAPACK fails.

    numpy raises an error for the whole batch, by which one record could stop a run.
    """
    try:
        return factors(a)
    except np.linalg.LinAlgError:
        if a.ndim == 2:
            return tuple(np.full_like(part, np.nan) for part in factors(np.zeros_like(a)))
        return tuple(np.stack(parts) for parts in zip(*(one_by_one(factors, one) for one in a), strict=True))


@dataclass(frozen=True)
class SymmetricCoordinates:
    """Coordinates of symmetric matrices of m = `rows` rows, orthonormal for the inner product tr(ab).

    They are the upper triangle, with off-diagonal entries times √2.
    """

    rows: int

    @property
    def size(self) -> int:
        """Length of a coordinate vector."""
        return self.rows * (self.rows + 1) // 2

    def of(self, a: Array) -> Array:
        """Coordinates (..., size) of symmetric matrices (..., m, m)."""
        places, weights = self._upper
        return np.take(a.reshape(*a.shape[:-2], -1), places, axis=-1) * weights

    def matrix(self, c: Array) -> Array:
        """The symmetric matrices (..., m, m) with coordinates (..., size)."""
        places, weights = self._both
        return np.take(c, places, axis=-1) * weights

    @cached_property
    def _upper(self) -> tuple[NDArray[np.intp], Array]:
        """Index in the flattened matrix, and weight, of each coordinate."""
        rows, columns = np.triu_indices(self.rows)
        return rows * self.rows + columns, np.where(rows == columns, 1.0, sqrt(2.0))

    @cached_property
    def _both(self) -> tuple[NDArray[np.intp], Array]:
        """Index among the coordinates, and weight, of each entry of the matrix."""
        places, weights = self._upper
        filled = np.zeros((self.rows, self.rows), dtype=np.intp)
        filled.flat[places] = np.arange(self.size)
        filled = np.maximum(filled, filled.T)
        return filled, 1 / weights[filled]

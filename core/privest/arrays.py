"""The one array type of the package, and what numpy lacks for batches of vectors and matrices."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Float64 array; shapes are stated in each docstring, leading axes are batches."""


def lengths(v: Array) -> Array:
    """Euclidean length along the last axis: (..., size) to (...)."""
    return np.sqrt(np.vecdot(v, v))


def transposed(a: Array) -> Array:
    """The transpose of (..., m, k) matrices."""
    return np.swapaxes(a, -1, -2)


def one_by_one(factors: Callable[[Array], tuple[Array, ...]], a: Array) -> tuple[Array, ...]:
    """`factors(a)` of (..., m, k) matrices, with NaN for those alone on which LAPACK gives up.

    numpy raises for the whole batch, so that one record could stop a run.
    """
    try:
        return factors(a)
    except np.linalg.LinAlgError:
        if a.ndim == 2:
            return tuple(np.full_like(part, np.nan) for part in factors(np.zeros_like(a)))
        return tuple(np.stack(parts) for parts in zip(*(one_by_one(factors, one) for one in a), strict=True))

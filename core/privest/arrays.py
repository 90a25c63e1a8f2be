"""The one array type of the package, and lengths of vectors."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Float64 array; shapes are stated in each docstring, leading axes are batches."""


def lengths(v: Array) -> Array:
    """Euclidean length along the last axis: (..., size) to (...)."""
    return np.sqrt(np.sum(v * v, axis=-1))

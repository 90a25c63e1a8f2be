"""Sums on a grid: integers, so that no order of summation and no rounding of noise can tell records apart.

A chunk's clipped sum is computed in float64, rounded to multiples of the grid's spacing and added as
int64. One replaced record touches one chunk. So the sensitivity of the integer sum is that of the exact
sum, plus the rounding of two chunks and twice the error bound of one chunk's float arithmetic.
"""

from dataclasses import dataclass
from math import ceil, inf, log2, nextafter, sqrt

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.records import CHUNK, MOST_PLACES

_UNIT = 2.0**-53
_RESOLUTION = 32
_CAPACITY = 2.0**62


@dataclass(frozen=True)
class Grid:
    """Multiples of `spacing`, a power of two."""

    spacing: float

    def quantise(self, values: Array) -> NDArray[np.int64]:
        """The nearest grid points, as integer multiples of the spacing."""
        steps = values * (1.0 / self.spacing)
        return np.rint(steps, out=steps).astype(np.int64)

    def values(self, integers: NDArray[np.int64]) -> Array:
        """Integer multiples of the spacing as float64."""
        return integers.astype(np.float64) * self.spacing


def spacing_for(scale: float, largest_sum: float, largest_noise: float) -> float:
    """The spacing 2^(⌈log₂ scale⌉−32), coarser where sum and noise would not fit an int64.

    Args:
        scale: standard deviation or Laplace scale of the noise on the sum.
        largest_sum: bound on every coordinate of the sum.
        largest_noise: what no coordinate of the noise exceeds but for a negligible probability.
    """
    fine = ceil(log2(scale)) - _RESOLUTION
    fitting = ceil(log2((largest_sum + largest_noise) / _CAPACITY))
    return 2.0 ** max(fine, fitting)


def sensitivity(diameter: float, clip: float, size: int, spacing: float) -> float:
    """Euclidean sensitivity, to one replaced record, of the integer sum in units of the values.

    The distance between two records' vectors, and what the sums of one chunk may be off by, twice.
    """
    return nextafter((diameter + 2 * _chunk_error(clip, size, spacing)) * (1 + 1e-12), inf)


def batch_sensitivity(clip: float, size: int, spacing: float, n: int) -> float:
    """Euclidean length by which one record more in a batch moves its integer sum, in units of the values.

    The others may then fall into other chunks, so that every chunk of the batch counts, twice.
    """
    chunks = ceil(n / CHUNK)
    return nextafter((clip + 2 * chunks * _chunk_error(clip, size, spacing)) * (1 + 1e-12), inf)


def _chunk_error(clip: float, size: int, spacing: float) -> float:
    """Bound on the distance from a chunk's exact sum to its integer one.

    ½·g·√size for the rounding, and the float error of B vectors of length at most clip·(1 + (size+8)u):
    summed in any order it is at most B·(B + size + 16)·u·clip (Higham 2002, Section 4.2), which also
    covers the rounding of the clipping itself. The mean of M such sums, as of records that are groups of M
    rows, is off by no more on average, and for adding and dividing by B·(M + 1)·u·clip.
    """
    return CHUNK * (CHUNK + MOST_PLACES + size + 17) * _UNIT * clip + spacing * sqrt(size) / 2

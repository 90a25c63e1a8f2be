"""Sums on an integer grid, so that neither the order of summation nor the rounding of noise reveals a record.

The clipped sum of a chunk of rows is computed in float64, rounded to multiples of the grid's spacing and
added as int64 (see Mironov 2012). One replaced record changes one chunk. So the sensitivity of the integer
sum is that of the exact sum, plus twice the rounding and twice the float error of one chunk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf, log2, nextafter, sqrt
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.records import CHUNK, MOST_PLACES

UNIT_ROUNDOFF = 2.0**-53
"""Largest relative error of one float64 operation."""

_RESOLUTION = 32
"""Binary digits that the grid keeps below the scale of the noise."""

_CAPACITY = 2.0**62
"""Largest integer, noise included, that a sum on the grid may reach in int64."""


@dataclass(frozen=True)
class Grid:
    """Multiples of `spacing`, a power of two."""

    spacing: float

    def quantise(self, values: Array) -> NDArray[np.int64]:
        """The grid points nearest to `values`, as integer multiples of the spacing."""
        steps = values * (1.0 / self.spacing)
        return np.rint(steps, out=steps).astype(np.int64)

    def values(self, integers: NDArray[np.int64]) -> Array:
        """The grid points that `integers` count, as float64."""
        return integers.astype(np.float64) * self.spacing


def spacing_for(scale: float, largest_sum: float, largest_noise: float) -> float:
    """The spacing 2^(⌈log₂ scale⌉−32), or a coarser one if sum and noise would not fit an int64.

    Args:
        scale: standard deviation or Laplace scale of the noise on the sum.
        largest_sum: bound on every coordinate of the sum.
        largest_noise: bound on every coordinate of the noise, except with negligible probability.
    """
    fine = ceil(log2(scale)) - _RESOLUTION
    fitting = ceil(log2((largest_sum + largest_noise) / _CAPACITY))
    return 2.0 ** max(fine, fitting)


class _OnGrid(Protocol):
    """The fields of a release that decide its grid."""

    @property
    def n(self) -> int: ...
    @property
    def clip(self) -> float: ...
    @property
    def scale(self) -> float: ...


R = TypeVar("R", bound=_OnGrid)


def fitted(release: Callable[[float], R], largest_noise: Callable[[R], float]) -> R:
    """The release on the finest grid that can hold its sum and its noise.

    A coarser grid has a larger sensitivity, hence more noise. So the spacing is raised until it suffices.

    Args:
        release: makes the release for a spacing.
        largest_noise: bound on every coordinate of a release's noise, except with negligible probability.

    Raises:
        ValueError: the grid would be coarser than the noise.
    """
    spacing = 0.0
    while True:
        found = release(spacing)
        needed = spacing_for(found.scale, found.n * found.clip, largest_noise(found))
        if needed <= spacing:
            return found
        if log2(needed / found.scale) > 0:
            raise ValueError("epsilon is too large for exact sums over this many records")
        spacing = needed


def check_range(clip: float, scale: float) -> None:
    """Refuse a clip or a scale of noise so extreme that its products could leave float64.

    Raises:
        ValueError: one of them is out of range.
    """
    if not (1e-100 <= clip <= 1e100 and 1e-150 < scale < 1e150):
        raise ValueError("clip and privacy are too far apart for float64")


def sensitivity(diameter: float, clip: float, size: int, spacing: float) -> float:
    """Bound on the Euclidean distance by which one replaced record moves a sum on the grid.

    Args:
        diameter: bound on the distance between two records' vectors.
        clip: bound on the length of one record's vector.
        size: length of the summed vector.
        spacing: spacing of the grid.
    """
    return nextafter((diameter + 2 * _chunk_error(clip, size, spacing)) * (1 + 1e-12), inf)


def l1_sensitivity(diameter: float, clip: float, size: int, spacing: float) -> float:
    """Bound on the L1 distance by which one replaced record moves a sum on the grid.

    Args:
        diameter: bound on the L1 distance between two records' vectors.
        clip: bound on the Euclidean length of one record's vector.
        size: length of the summed vector.
        spacing: spacing of the grid.
    """
    return nextafter((diameter + 2 * sqrt(size) * _chunk_error(clip, size, spacing)) * (1 + 1e-12), inf)


def batch_sensitivity(clip: float, size: int, spacing: float, n: int) -> float:
    """Bound on the Euclidean distance by which one record, added to a batch, moves its sum on the grid.

    The added record may shift all others into other chunks, so the error of every chunk counts twice.

    Args:
        clip: bound on the length of one record's vector.
        size: length of the summed vector.
        spacing: spacing of the grid.
        n: number of records in the dataset.
    """
    chunks = ceil(n / CHUNK)
    return nextafter((clip + 2 * chunks * _chunk_error(clip, size, spacing)) * (1 + 1e-12), inf)


def _chunk_error(clip: float, size: int, spacing: float) -> float:
    """Bound on the distance between a chunk's exact sum and its sum on the grid.

    Rounding to the grid moves the sum by at most ½·spacing·√size. The B = `CHUNK` vectors are computed with
    a length of at most clip·(1 + (size+8)u). Their float sum, in any order, is off by at most
    B·(B + size + 16)·u·clip (Higham 2002, Section 4.2), the rounding of clipping included. If a record is a
    group of M rows, the mean of M such sums is off by as much, plus B·(M + 1)·u·clip for adding and dividing.
    """
    return CHUNK * (CHUNK + MOST_PLACES + size + 17) * UNIT_ROUNDOFF * clip + spacing * sqrt(size) / 2

"""How far rows are from a subspace: a histogram, and whether it shows two populations."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array, seen_by
from privest.estimators.subspace.second_moment import Frame
from privest.estimators.subspace.spherical import on_sphere

BINS = 10
"""Bins of equal width between 0 and 1, the length of a row."""

_NEAREST, _FURTHEST = 4, 7
"""Bins below the first hold the near rows' peak; the valley lies below the second."""

_DEPTH = 4.0
"""The peak is so many times as high as the valley."""

_NEAR_SHARE, _FAR_SHARE = 0.12, 0.25
"""Least shares of the rows before the valley, and beyond it without the tail of the first population."""

_SURE = 2.0
"""Deviations of the noise by which these must be exceeded."""


@dataclass(frozen=True)
class DistanceHistogram:
    """Σ of one-hot vectors: how many rows have which distance from a subspace.

    A row without a direction has distance 0. At the right edge of a bin a row is in the next one.
    """

    description = "shares of distances from the subspace"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return BINS

    def diameter(self, clip: float) -> float:
        """Two rows in different bins are orthogonal."""
        return sqrt(2.0) * min(clip, 1.0)

    def clipped_sum(self, point: Frame, rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere of vectors of length at most `clip`; see `Statistic`."""
        assert point.basis is not None  # noqa: S101 - all of the space leaves no distance
        x = on_sphere(rows, point.center)
        along = seen_by(x, np.ascontiguousarray(point.basis.T))
        away = np.sqrt(np.maximum(np.vecdot(x, x) - np.vecdot(along, along), 0.0))
        place = np.minimum((away * BINS).astype(np.int64), BINS - 1)
        return min(clip, 1.0) * np.bincount(place, minlength=BINS).astype(np.float64)


def shows_two_populations(shares: Array, deviation: float) -> bool:
    """Whether some rows are near a subspace, and others not as the tail of these are.

    Behind the peak of one population the shares fall at least geometrically, as those of all log-concave
    densities do. Of two there is a deep valley, and more rows behind it than such a tail has. Where the noise
    leaves that open the answer is no.

    Args:
        shares: (BINS,) noisy shares of the rows.
        deviation: of the noise on each.
    """
    peak = int(np.argmax(shares[:_NEAREST]))
    height = float(shares[peak])
    for valley in range(peak + 1, _FURTHEST):
        low = max(float(shares[valley]), 0.0)
        if height - _SURE * deviation <= _DEPTH * (low + deviation):
            continue
        fall = (low / height) ** (1 / (valley - peak))
        tail = low * fall / (1 - fall)
        near = float(shares[:valley].sum())
        far = 1.0 - near - float(shares[valley]) - tail  # all shares are one, and fewer bins have less noise
        unsure = _SURE * deviation
        if near - unsure * sqrt(valley) > _NEAR_SHARE and far - unsure * sqrt(valley + 1) > _FAR_SHARE:
            return True
    return False

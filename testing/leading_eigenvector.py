"""Minus the squared inner product with a point of the sphere: its minimiser is the leading eigenvector."""

from dataclasses import dataclass

import numpy as np

from privest.arrays import Array
from privest.privacy.clipped_sums import any_floats, clipped_sum, without_axis


@dataclass(frozen=True)
class LeadingEigenvector:
    """f(w; z) = −(wᵀz)², on the sphere (Utpala et al. 2023, Appendix C.2).

    Its minimisers are the unit eigenvectors ±w of the largest eigenvalue of Σ zzᵀ. The negative gradient
    2(wᵀz)(z − (wᵀz)w) has length sin 2θ ≤ 1 for a unit row at angle θ from w: a clip of 1 shortens none.

    Attributes:
        size: length of a row, and of the summed vector.
    """

    size: int

    description = "the mean gradient"

    def diameter(self, clip: float) -> float:
        """Two gradients may be opposite."""
        return 2.0 * clip

    @any_floats
    def clipped_sum(self, point: Array, rows: Array, clip: float) -> Array:
        """Σ of the clipped negative gradients at `point`, in the coordinates of the space around the sphere.

        Args:
            point: (size,) where the gradient is taken, of unit length.
            rows: (n, size) records.
            clip: bound on the length of one record's gradient.

        Returns:
            (size,) sum; one record replaced moves it by at most 2·clip.
        """
        rows = without_axis(rows)
        # Row by row: the rounding of `rows @ point` depends on where in a batch a row is.
        along = np.vecdot(rows, point)[..., None]
        gradients = rows - along * point
        gradients *= 2.0 * along
        return clipped_sum(gradients, clip)

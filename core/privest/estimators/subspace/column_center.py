"""The centre of a table whose columns all have bounds: the means of the columns, by one noisy sum."""

from dataclasses import dataclass
from math import hypot, sqrt

import numpy as np

from privest.arrays import Array
from privest.data.tables import Recipe
from privest.estimators.frechet_mean.column_means import ColumnSum
from privest.estimators.range_finding.column_scales import Columns
from privest.privacy.clipped_sums import any_floats

_SQUARES = 1.5
"""Weight of the squares beside the values. With a weight γ two values x and y of a number are
(x − y)²(1 + γ²(x + y)²) apart in square, which is largest at the bounds, 4, as long as γ² is at most 2.77."""

_WHOLE = 1 / sqrt(1 + _SQUARES**2)
"""Factor by which a record's vector is no longer than the clip, squares and all."""

_LOUD = 0.3
"""Length of the noise on a centre, over that of the records about it, from which on an answer warns."""

_SURE = 2.0
"""Deviations of its noise by which the square of that length may be less than it is seen."""


@dataclass(frozen=True)
class CenterSum:
    """Σ of records in halves of their declared widths, and of the sum of squares of their numbers.

    The squares tell how long records about their mean are. They cost nothing: two records that differ as much
    as bounds allow have the same squares, so that the diameter stays that of the columns alone.

    Attributes:
        recipe: makes the records; all of its columns have bounds.
    """

    recipe: Recipe

    description = "the mean of the columns"

    @property
    def size(self) -> int:
        """Length of the summed vector: the features, and one number."""
        return self._columns.size + 1

    def diameter(self, clip: float) -> float:
        """That of the columns alone, times the factor that keeps vectors within the clip.

        With k numbers and γ the weight, (γ²/k)(Σ(x² − y²))² ≤ γ²Σ(x² − y²)², so that a number adds at most
        (x − y)² + γ²(x² − y²)² ≤ 4 to the squared distance of two records, as it does without the squares.
        """
        return _WHOLE * self._columns.diameter(clip)

    @any_floats
    def clipped_sum(self, _: object, rows: Array, clip: float) -> Array:
        """Σ over (n, features) records of vectors of length at most `clip`; see `Statistic`."""
        size = self._columns.size
        units = Columns(np.zeros(size), np.ones(size), 1.0)
        values = self._columns.clipped_sum(units, rows, clip)
        numbers = np.clip(rows[:, self.recipe.numbers], -1.0, 1.0)
        # The columns draw infinite values in to the bounds, and count a row with a NaN as zero: squares must
        # too, or a record would have values that do not go with its squares.
        counted = ~np.isnan(rows).any(axis=1)
        squares = np.where(counted, np.vecdot(numbers, numbers), 0.0)
        weight = _SQUARES * clip / (self.recipe.radius * sqrt(max(numbers.shape[1], 1)))
        return _WHOLE * np.append(values, weight * squares.sum())

    def center(self, released: Array, deviation: float) -> "Center":
        """The centre by a released mean with the clip 1.

        Args:
            released: (size,) mean.
            deviation: of the noise on each of its numbers.
        """
        low, high = self.recipe.range
        seen, unit = released / _WHOLE, self.recipe.radius
        means = self._columns.mean(seen[:-1])
        noise = deviation / _WHOLE * unit
        numbers = len(self.recipe.numbers)
        squares = seen[-1] * unit * sqrt(max(numbers, 1)) / _SQUARES + (len(means) - numbers)
        about = squares - float(means @ means) + len(means) * noise**2
        doubt = noise * hypot(sqrt(max(numbers, 1)) / _SQUARES, 2 * float(np.linalg.norm(means)))
        length = sqrt(max(about - _SURE * doubt, 0.0))
        return Center(np.clip(means, low, high), noise * sqrt(len(means)), length)

    @property
    def _columns(self) -> ColumnSum:
        return ColumnSum(self.recipe)


@dataclass(frozen=True)
class Center:
    """A released centre.

    Attributes:
        point: (features,) means in halves of the declared widths, within the bounds.
        noise: root mean square length of the noise on them.
        length: root mean square length of the records about their mean, or less: as much as the same release
            is sure to show.
    """

    point: Array
    noise: float
    length: float

    @property
    def share(self) -> float:
        """The noise over the length of the records, at most 1."""
        return min(1.0, self.noise / max(self.length, 1e-300))

    @property
    def unknown(self) -> str:
        """What no figure of a subspace about this centre covers, in words."""
        return (
            "how far the noise on the released means turns the subspace from that about the exact ones: this "
            f"noise is up to {self.share:.0%} as long as a record less the means usually is"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warning that the subspace may be far from that about the exact means, or none."""
        if self.share < _LOUD:
            return ()
        return (
            f"the noise on the released means is up to {self.share:.0%} as long as a record less the means "
            "usually is, so that directions may be those of this noise: declare closer low and high, take "
            "fewer columns or a larger epsilon",
        )

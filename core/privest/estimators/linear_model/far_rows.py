"""How much a mean gradient lacks because rows that are far out have less weight, by what was released."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.linear_model.losses.curved import Curved, CurvedGradient

_TYPICAL = np.array([0.06, 0.15, 0.4, 0.5])
"""Length of the mean gradient of far rows over their share, by band, as on real tables: the further out rows
are, the more often those of a label lie together."""

_MIDDLE = np.array([1.35, 2.7, 5.4, 11.0])
"""Usual length of rows in each band, over the bound."""

_FALL, _LEAST_FALL = 0.1, 0.5
"""Usual share of far rows in a band over that in the one before, and the largest one believed."""

_EVEN = 0.25
"""Part of what is lacking that may lie in any direction."""

_WIDER = np.array([1.0, 1.2, 1.4, 1.7, 2.0, 2.4, 2.8, 3.4, 4.0, 5.0, 6.0, 8.0])
"""Bounds to choose from, over the present one."""

_WORRY = 0.6
"""Part of what is thought to be lacking that counts when a bound is chosen: noise is the more certain."""


@dataclass(frozen=True)
class FarRows:
    """How much the mean gradient lacks because far rows have less weight.

    Attributes:
        bound: length from which on rows had less weight.
        lengths: (bands,) of what is lacking, for rows cut to the length one.
        directions: (size,) share of every coordinate in its square.
    """

    bound: float
    lengths: Array
    directions: Array

    @classmethod
    def of(cls, seen: Curved, loss: CurvedGradient, deviation: float, bound: float) -> "FarRows":
        """What a release shows of them; where noise hides them, what their shares make usual.

        Args:
            seen: a release, contrasts of more than two classes.
            loss: what was released.
            deviation: of the noise on a coordinate of the sum.
            bound: of the rows.
        """
        own, free = deviation / loss.left_weight, loss.free
        usual = (_TYPICAL * loss.longest * _shares(seen.shares, deviation / loss.share_weight)) ** 2
        excess = np.maximum(np.sum(seen.left**2, axis=(1, 2)) - free * own**2, 0.0)
        trust = usual / (usual + sqrt(2 * free) * own**2)
        energy = np.maximum(seen.energy - deviation / loss.share_weight, 0.0)
        whole, size = float(energy.sum()), len(energy)
        directions = (1 - _EVEN) * energy / whole + _EVEN / size if whole > 0 else np.full(size, 1 / size)
        return cls(bound, np.sqrt((1 - trust) * usual + trust * excess), directions)

    def lacking(self, bound: float) -> float:
        """Length of what the mean gradient lacks with another bound, of rows in their own units."""
        left = np.maximum(1 - (bound / self.bound / _MIDDLE) ** 2, 0.0) / (1 - _MIDDLE**-2.0)
        return self.bound * float(self.lengths * _MIDDLE @ left)


def most_lacking(seen: Sequence[FarRows], bound: float) -> float:
    """What lacks with a bound by the release that says most: a wide bound hides what a narrow one shows."""
    return max(each.lacking(bound) for each in seen)


def best_bound(seen: Sequence[FarRows], bound: float, deviation: float, free: float) -> float:
    """The next bound, at least the present one.

    Args:
        seen: of far rows.
        bound: the present one.
        deviation: of the noise on a coordinate of the next gradient, for rows that are one long at the bound.
        free: number of its free coordinates.
    """
    errors = [
        free * (wider * bound * deviation) ** 2 + (_WORRY * most_lacking(seen, wider * bound)) ** 2
        for wider in _WIDER
    ]
    return bound * float(_WIDER[int(np.argmin(errors))])


def _shares(noisy: Array, deviation: float) -> Array:
    """(bands,) shares of rows: where noise hides them, they fall from band to band as they did before."""
    found = np.clip(noisy, 0.0, 1.0)
    for band in range(1, len(found)):
        before = found[band - 1]
        fall = min(before / max(found[band - 2], 1e-12), _LEAST_FALL) if band > 1 else _FALL
        least = max(noisy[band] - deviation, before * fall)
        found[band] = min(least, before * _LEAST_FALL, max(noisy[band] + deviation, 0.0))
    return found

"""Second moments of rows with unknown entries, and what their diagonal has to be multiplied by."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from privest.arrays import Array, SymmetricCoordinates
from privest.estimators.subspace.partial_rows import known_part

_MOMENT = 0.97
_BESIDE = sqrt(1 - _MOMENT**2)
"""Weights of the moment and of the one number beside it, which adds 2 % to the moment's noise."""


@dataclass(frozen=True)
class GapMoment:
    """Σ of aaᵀ over known parts a with zeros for what is not known, and of the share s of a row's pairs.

    Two different entries are both known less often than one is: of D entries of which any m are known, the
    share s = (m − 1)/(D − 1) of the pairs with a known one. With its diagonal multiplied by the mean of s, a
    moment is that of whole rows, but for a factor (Lounici 2014, Section 2).

    Attributes:
        dim: D, length of a row.
    """

    dim: int

    description = "the second moment of what is known"

    @property
    def size(self) -> int:
        """Length of the summed vector: the moment's coordinates, and one number."""
        return self._coordinates.size + 1

    def diameter(self, clip: float) -> float:
        """Moments of two rows are at most √2·clip apart (see `SecondMoment`), the numbers beside them at most
        clip. It is reached by a row of one known entry, and a whole one at a right angle to it."""
        return sqrt(2 * _MOMENT**2 + _BESIDE**2) * clip

    def noise(self, deviation: float) -> float:
        """Deviation of the noise on an orthonormal coordinate of the moment, from that of a release."""
        return deviation / _MOMENT

    def clipped_sum(self, _: object, rows: Array, clip: float) -> Array:
        """Σ over rows of vectors of length at most `clip`, wherever: see `Statistic`."""
        a, known = known_part(rows)
        beside = np.maximum(known.sum(axis=1) - 1.0, 0.0) / (self.dim - 1)
        moment, pairs = self._coordinates.of(a.T @ a), np.vecdot(a, a) @ beside
        return min(clip, 1.0) * np.append(_MOMENT * moment, _BESIDE * pairs)

    def whole(self, released: Array) -> tuple[Array, float]:
        """The (dim, dim) moment of whole rows, but for a factor, and that factor on its diagonal.

        Args:
            released: (size,) mean.
        """
        moment = self._coordinates.matrix(released[:-1]) / _MOMENT
        diagonal = np.diag(moment).copy()
        pairs = released[-1] / _BESIDE / max(float(diagonal.sum()), 1e-300)
        pairs = float(np.clip(pairs, 0.0, 1.0))
        np.fill_diagonal(moment, pairs * diagonal)
        return moment, pairs

    def noise_between(self, vectors: Array, moment: Array, pairs: float, deviation: float) -> Array:
        """(dim, dim) variances of the noise on what a moment of whole rows has between orthonormal vectors.

        It is as on an entry off the diagonal, but that the diagonal has less noise, and that the noise on its
        factor moves all of it.

        Args:
            vectors: (dim, dim) as columns.
            moment: (dim, dim) of whole rows.
            pairs: the factor on its diagonal.
            deviation: of the noise on a coordinate of the release.
        """
        squares, diagonal = vectors**2, np.clip(np.diag(moment) / max(pairs, 1e-300), 0.0, 1.0)
        less = np.maximum(
            1 - 2 * (1 - pairs**2) * squares.T @ squares, 1e-6
        )  # above 0, whatever rounding does
        return (
            0.5 * self.noise(deviation) ** 2 * less
            + (deviation / _BESIDE * (vectors.T * diagonal) @ vectors) ** 2
        )

    @cached_property
    def _coordinates(self) -> SymmetricCoordinates:
        return SymmetricCoordinates(self.dim)

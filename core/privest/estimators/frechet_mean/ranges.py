"""How far the records may be at all: a noisy histogram over many orders of magnitude, and how it is read."""

from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from privest.arrays import Array
from privest.estimators.frechet_mean.distances import DistanceCounts
from privest.manifolds import Manifold
from privest.optim.ball import Ball
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle

_OCTAVES = 4
"""Between neighbouring nodes."""

_ABOVE, _BELOW = 16, 28
"""Octaves by which a declared radius may be too small, and too large."""

_ANYWHERE = 332
"""Octaves above and below 1: all that squares of float64 can hold, from 1e-100 to 1e100."""

_TYPICAL, _NOTABLE = 0.6, 0.25
"""Share of the records that the fullest node has, and the share of that which another node needs to count."""

_WIDER = 64.0
"""Radius of the ball over the typical distance, which is a node: records between two nodes may be 16 times as
far, and some further."""

_SURE = 4.5
"""Standard deviations of noise that such a node must have, too."""


@dataclass(frozen=True)
class Range:
    """What a run finds out about the distances of the records from its start.

    Attributes:
        manifold: where they are.
        radius: that is declared, or the manifold's own.
        is_declared: whether it is declared.
    """

    manifold: Manifold
    radius: float
    is_declared: bool

    @property
    def _above(self) -> int:
        """Number of nodes above the radius."""
        widest = log2(2 * self.manifold.widest_radius / self.radius)
        octaves = min(_ABOVE if self.is_declared else _ANYWHERE - log2(self.radius), max(widest, 0.0))
        return ceil(octaves / _OCTAVES)

    @property
    def counts(self) -> DistanceCounts:
        """The statistic of the histogram."""
        below = _BELOW if self.is_declared else _ANYWHERE + log2(self.radius)
        nodes = self._above + ceil(below / _OCTAVES) + 1
        about = "the share of records at each order of magnitude"
        return DistanceCounts(self.manifold, about, nodes, _OCTAVES)

    @property
    def top(self) -> float:
        """The largest distance that it tells apart."""
        return self.radius * 2.0 ** (_OCTAVES * self._above)

    def read(self, released: Array, deviation: float) -> float:
        """The typical distance, to within a node: of the furthest node that many records are at.

        Where noise hides all nodes it is the declared radius or, if there is none, near the manifold's own.

        Args:
            released: (nodes,) noisy shares.
            deviation: standard deviation of the noise on each.
        """
        notable = released >= max(_NOTABLE * float(released.max()), _SURE * deviation)
        if notable.any():
            place = int(np.argmax(notable))
        elif self.is_declared:
            place = self._above
        else:
            away = np.abs(np.arange(len(released)) - self._above)
            place = int(np.argmax(_TYPICAL * released / deviation**2 - 2 * np.log1p(away)))
        return self.top * 2.0 ** (-_OCTAVES * place)

    def ball(self, gate: Oracle, start: Array, release: Release) -> Ball:
        """Return a ball about the start that holds the records at typical distances, and ones further off.

        Args:
            gate: releases the histogram, as the statistic `range`.
            start: (*shape) its centre.
            release: of the histogram.
        """
        typical = self.read(gate.mean((start, self.top), "range"), release.deviation)
        return Ball(self.manifold, start, min(_WIDER * typical, self.manifold.widest_radius))

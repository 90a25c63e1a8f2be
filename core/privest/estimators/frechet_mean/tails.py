"""How far values may go on beyond the last that stand out of the noise: by a power of the distance."""

from dataclasses import dataclass
from math import exp, sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.frechet_mean.distances import RATIOS, SPACING

_INDICES = np.array([1.75, 2.5, 4.0, 8.0])
"""Powers by which the share of records further off may fall, equally likely at first. On real tables the
values of amounts and counts have indices about 2; the largest one stands for columns that are bounded."""

_SEEN = 4.0
"""Deviations of the noise on it from which on a share of records stands out."""


@dataclass(frozen=True)
class Tail:
    """What may be beyond the furthest distance at which records stand out of the noise of a histogram.

    Laws of distances tie what is far off to the many records that are not: ties and filled gaps among these
    decide then on a tail that noise hides. A power of the distance goes on from what is seen, as the
    estimates of Hill (1975) do, and asks nothing of the bulk.

    Attributes:
        edge: the distance from which on it goes, or 0 if no records stand out.
        share: of the records that are further.
        weights: (indices,) how likely each index is.
    """

    edge: float
    share: float
    weights: Array

    @classmethod
    def read(cls, released: Array, deviation: float, reach: float) -> "Tail":
        """Read a released histogram.

        Args:
            released: (NODES,) noisy shares, from the reach downwards.
            deviation: standard deviation of the noise on each.
            reach: distance of the first.
        """
        beyond = np.cumsum(released)
        seen = np.flatnonzero(beyond > _SEEN * deviation * np.sqrt(np.arange(len(beyond)) + 1))
        if not len(seen):
            return cls(0.0, 0.0, np.full(len(_INDICES), 1 / len(_INDICES)))
        last = int(seen[0])
        # A record counts at the two nodes that it is between, in the mean at those that are half a node off.
        ends = reach * RATIOS[: last + 1] * exp(-SPACING / 2)
        edge, share = float(ends[-1]), min(float(beyond[last]), 1.0)
        further = share * (edge / ends[:-1]) ** _INDICES[:, None]
        expected = np.diff(further, axis=1, prepend=0.0)
        fit = -0.5 * np.sum((released[:last] - expected) ** 2, axis=1) / deviation**2
        weights = np.exp(fit - fit.max())
        return cls(edge, share, weights / weights.sum())

    def excess(self, clip: float) -> float:
        """How far the records are beyond a clip in the mean: root mean square over the indices."""
        if not self.share:
            return 0.0
        start = max(clip, self.edge)
        further = self.share * (self.edge / start) ** _INDICES * start / (_INDICES - 1)
        return sqrt(float(self.weights @ further**2))

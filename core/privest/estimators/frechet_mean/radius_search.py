"""Private search for the distances of records from a point: noisy histograms, and how they are read.

A histogram of logarithmic distances finds a clip. One over many orders of magnitude finds the radius of a
ball that nobody declared. Beyond the last distance that stands out of the noise, a tail falls by a power.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, inf, log, log2, sqrt

import numpy as np
from scipy.special import ndtr

from privest.arrays import Array, lengths
from privest.manifolds import Manifold
from privest.optim.descent import Ball
from privest.privacy.clipped_sums import any_floats
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle

_PER_OCTAVE = 3

NODES = 16 * _PER_OCTAVE
"""Distances at which the histogram has a node."""

SPACING = log(2) / _PER_OCTAVE
"""Logarithm of the ratio of neighbouring nodes."""

RATIOS = np.exp(-SPACING * np.arange(NODES))
"""(NODES,) distances of the nodes over the reach, falling."""

_CLIPS = np.exp(-SPACING / 3 * np.arange(3 * NODES - 2))
"""Clips that are considered, over the reach, falling."""

_UNLIKE = 0.6
"""Relative deviation of a real histogram from the law that fits it best (tables `TUNE` of benchmarks)."""

_LOWER = 0.4
"""Spread of the logarithm of distances below their middle, which no clip depends on much."""

_STEP = log(2) / 4
"""Between places of the middle of laws, on the logarithmic scale."""

_PLACES = ceil(SPACING * (NODES - 3) / _STEP)
"""Places of the middle of a law, from the reach downwards."""

_Survival = Callable[[Array], Array]
"""Share of the upper half that is so far above the middle, on the logarithmic scale."""


def _bell(width: float) -> _Survival:
    return lambda above: 2 * ndtr(-above / width)


def _bounded(width: float) -> _Survival:
    return lambda above: np.maximum(0.0, 1 - above / width)


def _heavy(index: float) -> _Survival:
    return lambda above: np.exp(-index * above)


def _mixed(share: float, width: float, index: float) -> _Survival:
    return lambda above: (1 - share) * _bell(width)(above) + share * _heavy(index)(above)


def _apart(share: float, away: float) -> _Survival:
    return lambda above: (1 - 2 * share) * _bell(0.3)(above) + 2 * share * ndtr(away - above)


_USUAL: tuple[_Survival, ...] = (
    *map(_bounded, (0.1, 0.2, 0.35, 0.5, 0.8, 1.2)),
    *map(_bell, (0.1, 0.2, 0.4, 0.7, 1.0)),
    *map(_heavy, (1.5, 2.5, 4.0, 8.0)),
    *(_mixed(*law) for law in ((0.1, 0.3, 1.5), (0.1, 0.3, 3.0), (0.02, 0.3, 2.0), (0.05, 0.6, 2.0))),
)
"""Laws of distances above their middle, equally likely at first: bounded, normal, Pareto, and mixed ones.

The mixed ones have a bulk, and few records far beyond it. Without them means of savings, of costs and of the
weather lie outside their regions, however the others are weighed.
"""

_CROWDS: tuple[_Survival, ...] = tuple(
    _apart(share, away) for share in (0.01, 0.05, 0.2) for away in (2.0, 4.0, 6.0, 8.0)
)
"""Laws with a crowd far off: so many of all records, so far above the middle on the logarithmic scale.

Columns have such whose values are mostly one and the same. Noise that hides a crowd leaves these laws as
likely as others, so that what may be cut off is told to be as much.
"""

_BEYOND = 4.0
"""How far the records beyond the reach may be, in reaches: the first look at columns misses few that are."""

_LEVELS = (np.arange(40) + 0.5) / 40
"""Probabilities at which quantiles are told."""

_NORMAL = np.array([-1.4, -0.53, 0.0, 0.53, 1.4])
"""Five values that stand for a normal variate."""


@dataclass(frozen=True)
class DistanceCounts:
    """How many records are at each distance from a point.

    A record between two nodes counts at both, by how near it is to each on the logarithmic scale, so that
    rounding cannot move it by a whole count. It asks about (point, reach): the largest distance told apart.

    Attributes:
        manifold: where the records are.
        nodes: number of distances at which it counts.
        octaves: how often each is twice the next.
    """

    manifold: Manifold
    description: str = "the share of records at each distance"
    nodes: int = NODES
    octaves: float = 1 / _PER_OCTAVE

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.nodes

    def diameter(self, clip: float) -> float:
        """Return √2·clip: two records count at different nodes at most, each with a sum of `clip`."""
        return sqrt(2.0) * clip

    def l1_diameter(self, clip: float) -> float:
        """Return 2·clip, for the same reason."""
        return 2.0 * clip * (1 + 1e-12)

    @any_floats
    def clipped_sum(self, query: tuple[Array, float], rows: Array, clip: float) -> Array:
        """Σ of the records' counts, each of sum `clip`; a record without a finite distance counts nowhere.

        Args:
            query: the (*shape) point, and the reach.
            rows: (n, *shape) records.
            clip: what a record counts.

        Returns:
            (size,) counts, from the reach downwards.
        """
        point, reach = query
        away = lengths(self.manifold.log_coordinates(point, rows))
        octaves = np.log2(reach) - np.log2(away[np.isfinite(away)])
        # A place among the nodes whatever the reach is: 0 where it makes NaN, which `fmax` leaves out.
        place = np.fmin(np.fmax(octaves / self.octaves, 0.0), self.nodes - 1.0)
        below = np.minimum(place.astype(np.int64), self.nodes - 2)
        part = place - below
        counts = np.bincount(below, 1.0 - part, self.nodes) + np.bincount(below + 1, part, self.nodes)
        return np.asarray(clip * counts, dtype=np.float64)


@dataclass(frozen=True)
class Distances:
    """What a noisy histogram tells of the distances, however little that is.

    Many laws of distances are weighed by how well they explain the histogram, and under each the histogram
    is read with the law in mind: nodes where records stand out of the noise count as they are, and others as
    the law has them. With much noise all laws stay possible, and everything that is told is wide.

    Attributes:
        reach: the largest distance told apart.
        weights: (laws,) of sum one.
        shares: (laws, NODES) shares of records at the nodes, under each law.
        variances: (laws, NODES) of these.
        further: (laws,) mean over the records of how far they are beyond the reach.
    """

    reach: float
    weights: Array
    shares: Array
    variances: Array
    further: Array

    @classmethod
    def read(
        cls, released: Array, deviation: float, reach: float, within: float = inf, crowds: float = 0.0
    ) -> "Distances":
        """Read a released histogram.

        Args:
            released: (NODES,) noisy shares.
            deviation: standard deviation of the noise on each.
            reach: as it was asked for.
            within: the distance within which half of the records are known to be, if it is.
            crowds: how likely laws with a crowd far off are at first, over others. If they are possible,
                so are records beyond the reach.
        """
        usual, first = len(_USUAL), _place(reach, within)
        of = slice(None if crowds else usual), slice(first, None)
        every, beyond = _laws()
        laws, further = every[of].reshape(-1, NODES), (crowds > 0) * reach * beyond[of].ravel()
        nearer = np.pad(laws[:, 1:], ((0, 0), (0, 1)))
        known = (_UNLIKE * np.maximum(laws, nearer)) ** 2 + 1e-14
        total = known + deviation**2
        fit = -0.5 * ((released - laws) ** 2 / total + np.log(total)).sum(axis=1)
        if crowds:
            fit[usual * (_PLACES - first) :] += log(crowds)
        weights = np.exp(fit - fit.max())
        kept = weights > 1e-3
        laws, known, total, weights, further = (each[kept] for each in (laws, known, total, weights, further))
        shares = np.maximum(laws + known / total * (released - laws), 0.0)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        return cls(reach, weights / weights.sum(), shares, known * deviation**2 / total, further)

    @property
    def nodes(self) -> Array:
        """(NODES,) distances, falling."""
        return self.reach * RATIOS

    @property
    def mean(self) -> float:
        """Mean distance, by what is known."""
        return self.average(lambda away: away)

    def average(self, function: Callable[[Array], Array]) -> float:
        """Mean over the records of a function of their distance, by what is known."""
        return float(self.weights @ (self.shares @ function(self.nodes)))

    def excess(self, clip: float) -> Array:
        """(40,) quantiles of the mean over the records of how far they are beyond the clip, rising."""
        beyond = np.maximum(self.nodes - clip, 0.0)
        middle, spread = self.shares @ beyond + self.further, np.sqrt(self.variances @ beyond**2)
        values = np.maximum(middle[:, None] + spread[:, None] * _NORMAL, 0.0).ravel()
        order = np.argsort(values)
        reached = np.cumsum(np.repeat(self.weights / len(_NORMAL), len(_NORMAL))[order])
        return values[order][np.minimum(np.searchsorted(reached, _LEVELS), len(values) - 1)]

    def best_clip(self, noise: float) -> float:
        """The clip that balances noise, so much for each unit of it, and what it cuts off in the mean."""
        clips = self.reach * _CLIPS
        beyond = np.maximum(self.nodes[:, None] - clips, 0.0)
        moments = (self.weights * self.shares.T) @ self.shares + np.diag(self.weights @ self.variances)
        square = (beyond * (moments @ beyond)).sum(axis=0)
        return float(clips[int(np.argmin((noise * clips) ** 2 + square))])


def _place(reach: float, within: float) -> int:
    """The first place of a law's middle that is no further than `within`."""
    return min(ceil(log(max(reach / within, 1.0)) / _STEP), _PLACES - 1)


@lru_cache(maxsize=1)
def _laws() -> tuple[Array, Array]:
    """Every law at every place: (laws, places, NODES) shares at the nodes, and `further` over the reach."""
    fine = 4
    ends = -SPACING * (np.arange(fine * (NODES - 1) + 2) - 0.5) / fine
    places = -_STEP * np.arange(_PLACES)
    middles = (ends[1:] + ends[:-1]) / 2
    hats = np.maximum(1 - np.abs(-middles[:, None] / SPACING - np.arange(NODES)), 0.0)
    off = ends - places[:, None]
    lower = ndtr(np.minimum(off, 0.0) / _LOWER)
    step = log(_BEYOND) / 16
    past = step * (np.arange(16) + 0.5)
    found, further = list[Array](), list[Array]()
    for survival in (*_USUAL, *_CROWDS):
        below = np.where(off < 0, lower, 1 - survival(np.maximum(off, 0.0)) / 2)
        below[:, 0], below[:, -1] = 1.0, 0.0
        found.append(-np.diff(below, axis=1) @ hats)
        # The mean of an excess is the integral of the share that is beyond.
        further.append(survival(past - places[:, None]) / 2 @ (step * np.exp(past)))
    return np.stack(found), np.stack(further)


_INDICES = np.array([1.75, 2.5, 4.0, 8.0])
"""Powers by which the share of records further off may fall, equally likely at first. On real tables the
values of amounts and counts have indices about 2; the largest one stands for columns that are bounded."""

_SEEN = 4.0
"""Deviations of the noise on it from which on a share of records stands out."""


@dataclass(frozen=True)
class Tail:
    """Tail of the distances beyond the furthest one at which records stand out of a histogram's noise.

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
    """Private search for the distances of the records from the start of a run.

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

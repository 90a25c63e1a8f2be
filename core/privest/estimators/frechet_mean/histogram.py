"""Noisy histogram of distances from a point, and an upper bound on what a clip cuts off of a mean."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log2, sqrt

import numpy as np

from privest.arrays import Array, lengths
from privest.manifolds import Manifold
from privest.privacy.clipped_sums import any_floats

NODES: Array = 2.0 ** np.concatenate(
    [[-4.0, -3.0, -2.0, -1.5], np.arange(-4, 9) / 4, [3.0], np.arange(5, 34, 2.0)]
)
"""Distances of the nodes, over the one within which most records are: fine near it, then two octaves."""

_EXCESS_CONFIDENCE = 2.0
"""Deviations of the noise that are added to a share, or taken off, to bound it."""

_STANDS_OUT = 4.0
"""Deviations of the noise by which a share of the records must exceed 0 to count as seen."""

_LEAST_INDEX = 0.5
"""Least index of a tail that is bounded. One that falls more slowly is as good as flat."""

_LEAST_SPREAD = 0.2
"""Least share of the records away from the centre. With fewer, their tail is hidden by the others."""


def nodes_within(half_width: float, reach: float) -> Array:
    """Return the rising distances at which a histogram counts, (nodes,).

    Args:
        half_width: distance within which most records are.
        reach: largest distance of any record; the last node.
    """
    nodes = half_width * NODES
    return np.append(nodes[nodes < 0.8 * reach], reach)


def excess_bounds(
    nodes: Array, shares: Array, deviation: float, clips: Array, *, sample: float = inf
) -> Array | None:
    """Return an upper bound of the mean distance beyond each clip, (clips,), or None where there is none.

    As far as records stand out of the noise the released shares bound it. Further off the share of the
    records is assumed to fall at least as fast as a power of the distance. Its index is the one that the last
    octave shows (Hill 1975 fits such tails). The tail may begin at the last node where records stand out, or
    at the next one, where the noise bounds their share: the lower bound counts. Two cases have no bound: most
    records are at the centre, or the tail falls too slowly where it is seen. What no histogram shows is a
    group of records far beyond all others that is smaller than its noise; answers state this as an
    assumption.

    Args:
        nodes: (nodes,) rising distances, of which the last is the largest that a record may have.
        shares: (nodes,) noisy shares of the records. A record counts at the two nodes that it lies between.
        deviation: standard deviation of the noise on each share.
        clips: (clips,) distances above 0.
        sample: number of records that were counted, at random; infinite where it is all of them.
    """
    count = len(nodes)
    beyond = np.cumsum(shares[::-1])[::-1]
    noise = np.sqrt(deviation**2 * (count - np.arange(count)) + np.maximum(beyond, 0.0) / sample)
    seen = np.flatnonzero(beyond > _STANDS_OUT * noise)
    if not len(seen) or seen[-1] < 2:
        return None
    most = np.maximum(beyond, 0.0) + _EXCESS_CONFIDENCE * noise
    least = np.maximum(beyond - _EXCESS_CONFIDENCE * noise, 1e-9)
    if least[1] < _LEAST_SPREAD:
        return None
    deviations = np.sqrt(deviation**2 + np.maximum(shares, 0.0) / sample)
    bounds = list[Array]()
    for last in range(int(seen[-1]), min(int(seen[-1]) + 2, count)):
        octaves = np.abs(np.log2(nodes[:last] / nodes[last]))
        earlier = {int(np.argmin(np.abs(octaves - back))) for back in (0.5, 1.0)}
        index = min(log2(least[place] / most[last]) / octaves[place] for place in earlier)
        if index <= _LEAST_INDEX:
            break
        tail = _Tail(last, float(most[last]), sqrt(nodes[min(last + 1, count - 1)] * nodes[last]), index)
        bounds.append(np.array([tail.excess(nodes, shares, deviations, clip) for clip in clips]))
    return np.min(bounds, axis=0) if bounds else None


@dataclass(frozen=True)
class _Tail:
    """The share of the records from a node on, which falls at least as fast as a power of the distance.

    Attributes:
        last: place of the node.
        most: upper bound of the share of the records from there on.
        edge: distance from which the tail counts in place of the released shares.
        index: of the power.
    """

    last: int
    most: float
    edge: float
    index: float

    def excess(self, nodes: Array, shares: Array, deviations: Array, clip: float) -> float:
        """Return the bound for one clip: of what is seen within `edge`, and of the tail beyond it."""
        start, reach = max(clip, self.edge), float(nodes[-1])
        power = self.index if abs(self.index - 1) > 0.01 else 1.01
        beyond = 0.0
        if start < reach:
            ends = 1 - (start / reach) ** (power - 1)
            beyond = self.most * start * (self.edge / start) ** power * ends / (power - 1)
        if clip >= self.edge:
            return beyond
        over = np.maximum(np.minimum(nodes[: self.last + 1], self.edge) - clip, 0.0)
        noise = float(np.linalg.norm(over * deviations[: self.last + 1]))
        seen = over @ np.maximum(shares[: self.last + 1], 0.0) + _EXCESS_CONFIDENCE * noise
        return float(beyond + seen + self.most * (self.edge - clip))


_SEEN, _OUTSIDE = 4.0, 3.0
"""Deviations of the noise by which a share must exceed 0 to count as seen: of records far off, and of records
outside the ball."""

_CONFIDENCE = 2.0
"""Deviations of the noise that are added to a number to bound it."""

_MOST = 0.9
"""Share of the records that counts as most of them."""

_ROUNDING = 1 + 1e-6
"""Distance over the radius from which a record is outside a ball: those on its edge are not."""

_MARGIN = 1.1
"""Distance of the node for records outside the ball, over the largest distance within it."""


@dataclass(frozen=True)
class DistanceShares:
    """Share of the records at each node of rising distances. Queries are (point, nodes, center, radius).

    A record between two nodes counts at both, in proportion to how near it is to each. So the mean distance
    that the nodes show is exact, and rounding cannot move a record by a whole count. A record that is further
    than the radius from the centre counts at the last node.

    Attributes:
        manifold: space of the records.
        size: largest number of nodes.
    """

    manifold: Manifold
    size: int
    description: str = "the share of records at each distance"

    def diameter(self, clip: float) -> float:
        """Return √2·clip: two records count at different nodes at most, each with a sum of `clip`."""
        return sqrt(2.0) * clip

    def l1_diameter(self, clip: float) -> float:
        """Return 2·clip, for the same reason."""
        return 2.0 * clip * (1 + 1e-12)

    @any_floats
    def clipped_sum(self, query: tuple[Array, Array, Array, float], rows: Array, clip: float) -> Array:
        """Return the sum of the records' counts; a record without a finite distance counts nowhere.

        Args:
            query: the (*shape) point, 2 to `size` rising distances, and a ball: its (*shape) centre and its
                radius, infinite if all records count by their distance.
            rows: (n, *shape) records.
            clip: count of one record.

        Returns:
            (size,) counts, 0 beyond the nodes.
        """
        point, nodes, center, radius = query
        away = lengths(self.manifold.log_coordinates(point, rows))
        if radius < inf:
            far = lengths(self.manifold.log_coordinates(center, rows)) > radius * _ROUNDING
            away = np.where(far, nodes[-1], away)
        away = np.clip(away[np.isfinite(away)], nodes[0], nodes[-1])
        upper = np.clip(np.searchsorted(nodes, away, side="right"), 1, len(nodes) - 1)
        # From 0 to 1 whatever the nodes are: 0 where two of them are equal, as NaN is the smaller for `fmax`.
        part = np.fmin(np.fmax((away - nodes[upper - 1]) / (nodes[upper] - nodes[upper - 1]), 0.0), 1.0)
        counts = np.bincount(upper, part, self.size) + np.bincount(upper - 1, 1.0 - part, self.size)
        return np.asarray(clip * counts, dtype=np.float64)


@dataclass(frozen=True)
class Histogram:
    """A released histogram of distances from a point.

    Attributes:
        point: (*shape) from which distances are.
        nodes: (k,) rising distances. The last is the largest distance of a record in the ball.
        shares: (k,) noisy shares of the records.
        deviation: standard deviation of the noise on each share.
        outside: share of the records that are outside the ball, or 0 where noise hides them.
    """

    point: Array
    nodes: Array
    shares: Array
    deviation: float
    outside: float = 0.0

    @classmethod
    def read(cls, point: Array, released: Array, nodes: Array, deviation: float, reach: float) -> "Histogram":
        """Return the histogram of released shares.

        Args:
            point: (*shape) of the query.
            released: (size,) noisy shares.
            nodes: nodes of the query; one beyond `reach` is for records outside the ball.
            deviation: standard deviation of the noise on each share.
            reach: largest distance of a record in the ball.
        """
        inside = int(np.sum(nodes <= reach))
        shares = released[:inside].copy()
        beyond = float(released[inside : len(nodes)].sum())
        shares[-1] += beyond
        seen = beyond > _OUTSIDE * deviation
        return cls(point, nodes[:inside], shares, deviation, min(beyond, 1.0) if seen else 0.0)

    @property
    def reach(self) -> float:
        """The largest distance of a record in the ball."""
        return float(self.nodes[-1])

    def half_width(self) -> float | None:
        """Return the least node within which most records are, or None where noise hides it."""
        count = np.arange(1, len(self.nodes) + 1)
        noise = self.deviation * np.sqrt(count)
        enough = np.maximum(_MOST - _CONFIDENCE * noise, _SEEN * noise)
        held = np.flatnonzero(np.cumsum(self.shares) >= enough)
        return float(self.nodes[held[0]]) if len(held) else None

    def beyond(self, distance: float) -> tuple[float, bool]:
        """Return the noisy share of the records from `distance` on, and whether it counts as seen."""
        chosen = self.shares[self.nodes >= distance]
        share = float(chosen.sum())
        return share, share > _SEEN * self.deviation * sqrt(max(len(chosen), 1))

    @property
    def denoised(self) -> Array:
        """(k,) shares of sum 1, none negative, without those further off than any that are seen."""
        count = len(self.nodes)
        beyond = np.cumsum(self.shares[::-1])[::-1]
        seen = np.flatnonzero(beyond > _SEEN * self.deviation * np.sqrt(count - np.arange(count)))
        if not len(seen):
            return np.eye(count)[-1]
        last = int(seen[-1])
        # Noise that would make negative shares is taken off the neighbours: cumulated shares only rise.
        rising = np.maximum.accumulate(np.clip(np.cumsum(self.shares[: last + 1]), 0.0, None))
        shares = np.diff(rising, prepend=0.0)
        total = float(shares.sum())
        if total <= 0:
            return np.eye(count)[last]
        return np.append(shares / total, np.zeros(count - last - 1))

    def average(self, function: Callable[[Array], Array]) -> float:
        """Return the mean over the records of a function of their distance."""
        return float(self.denoised @ function(self.nodes))

    def excess(self, clips: Array) -> Array:
        """Return an upper bound of the mean distance beyond each clip, (clips,).

        Without assumptions the released shares bound it, with noise in proportion to the largest distance.
        Where `excess_bounds` has a bound, the lower of both counts.
        """
        over = np.maximum(self.nodes - clips[:, None], 0.0)
        bound = np.maximum(over @ self.shares, 0.0) + _CONFIDENCE * self.deviation * np.linalg.norm(
            over, axis=1
        )
        tail = excess_bounds(self.nodes, self.shares, self.deviation, clips)
        return bound if tail is None else np.minimum(bound, tail)


def with_outside(nodes: Array, reach: float, furthest: float) -> Array:
    """Return nodes up to `reach`, and one for records outside the ball unless `furthest` ends the space."""
    kept = np.append(nodes[nodes < reach * (1 - 1e-9)], reach)
    return np.append(kept, _MARGIN * reach) if _MARGIN * reach < furthest else kept

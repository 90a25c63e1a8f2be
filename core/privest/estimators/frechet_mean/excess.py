"""Upper bound on what a clip cuts off of a mean, from a noisy histogram of distances."""

from dataclasses import dataclass
from math import inf, log2, sqrt

import numpy as np

from privest.arrays import Array

NODES: Array = 2.0 ** np.concatenate(
    [[-4.0, -3.0, -2.0, -1.5], np.arange(-4, 9) / 4, [3.0], np.arange(5, 34, 2.0)]
)
"""Distances of the nodes, over the one within which most records are: fine near it, then two octaves."""

_CONFIDENCE = 2.0
"""Deviations of the noise that are added to a share, or taken off, to bound it."""

_SEEN = 4.0
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
    seen = np.flatnonzero(beyond > _SEEN * noise)
    if not len(seen) or seen[-1] < 2:
        return None
    most = np.maximum(beyond, 0.0) + _CONFIDENCE * noise
    least = np.maximum(beyond - _CONFIDENCE * noise, 1e-9)
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
        seen = over @ np.maximum(shares[: self.last + 1], 0.0) + _CONFIDENCE * noise
        return float(beyond + seen + self.most * (self.edge - clip))

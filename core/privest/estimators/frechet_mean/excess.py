"""Upper bound on what a clip cuts off of a mean, from a noisy histogram of distances."""

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
    octave shows (Hill 1975 fits such tails). Two cases have no bound: most records are at the centre, or the
    tail falls too slowly. What no histogram shows is a group of records far beyond all
    others that is smaller than its noise; answers state this as an assumption.

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
    last = int(seen[-1])
    most = float(beyond[last] + _CONFIDENCE * noise[last])
    least = np.maximum(beyond - _CONFIDENCE * noise, 1e-9)
    octaves = np.abs(np.log2(nodes[:last] / nodes[last]))
    earlier = {int(np.argmin(np.abs(octaves - back))) for back in (0.5, 1.0)}
    index = min(log2(least[place] / most) / octaves[place] for place in earlier)
    if least[1] < _LEAST_SPREAD or index <= _LEAST_INDEX:
        return None
    edge = sqrt(nodes[min(last + 1, count - 1)] * nodes[last])
    deviations = np.sqrt(deviation**2 + np.maximum(shares, 0.0) / sample)
    return np.array([_excess(nodes, shares, deviations, clip, last, most, edge, index) for clip in clips])


def _excess(
    nodes: Array,
    shares: Array,
    deviations: Array,
    clip: float,
    last: int,
    most: float,
    edge: float,
    index: float,
) -> float:
    """Return the bound for one clip: of what is seen within `edge`, and of a tail beyond it."""
    start, reach = max(clip, edge), float(nodes[-1])
    power = index if abs(index - 1) > 0.01 else 1.01
    tail = 0.0
    if start < reach:
        tail = most * start * (edge / start) ** power * (1 - (start / reach) ** (power - 1)) / (power - 1)
    if clip >= edge:
        return tail
    over = np.maximum(np.minimum(nodes[: last + 1], edge) - clip, 0.0)
    noise = float(np.linalg.norm(over * deviations[: last + 1]))
    seen = over @ np.maximum(shares[: last + 1], 0.0) + _CONFIDENCE * noise
    return float(tail + seen + most * (edge - clip))

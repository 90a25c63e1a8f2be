"""Quantiles of columns by noisy histograms, each with an interval that holds it."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.column_ranges import Places

NORMAL_95 = 1.96

FEWEST, _MOST = 32, 1024
"""Nodes of a column's last histogram."""


def deviation_of_levels(nodes: int) -> float:
    """Standard deviation of the noise on a share of the records below some node, at most, over that on one.

    All shares, missing values included, add up to one, so that noise on the sum of k of m + 1 of them has
    the variance k(m + 1 − k)/(m + 1).
    """
    return sqrt(nodes + 1) / 2


def best_nodes(deviation: float) -> int:
    """The number of nodes at which an interval is as wide by its two nodes as it is by noise.

    A quarter of the nodes hold most records, so that one of them has 4 times its even share.

    Args:
        deviation: of the noise on a share at one node, however many there are.
    """
    return int(min(max((4 / deviation) ** (2 / 3), FEWEST), _MOST))


@dataclass(frozen=True)
class Levels:
    """Shares of the known records below each node of a column.

    A record between two nodes counts at both. So the counts up to a node are of no fewer records than are
    below it, and of no more than are below the next one.

    Attributes:
        nodes: (columns, nodes) values.
        shares: (columns, nodes + 1) noisy shares of the records near each, and of missing values.
        deviation: of the noise on each.
        low: (columns,) public lower bounds; −∞ where none is declared.
        high: (columns,) upper bounds.
    """

    nodes: Array
    shares: Array
    deviation: float
    low: Array
    high: Array

    @cached_property
    def _below(self) -> tuple[Array, Array]:
        """(columns, nodes) noisy shares of records up to each node, and their noise."""
        shares, whole = self.shares, self.shares.shape[1]
        # What the shares lack to one is noise, and taken off all alike.
        even = shares + (1 - shares.sum(axis=1, keepdims=True)) / whole
        counted = np.arange(1.0, whole)
        noise = self.deviation * np.sqrt(counted * (whole - counted) / whole)
        return np.cumsum(even[:, :-1], axis=1), noise

    def at(self, level: float) -> tuple[Array, Array, Array]:
        """(columns,) quantiles of the known records, and the ends of intervals of 95 % for each.

        An end is what is declared, or infinite, where records may be beyond all nodes.

        Args:
            level: share of the known records that is below it.
        """
        below, noise = self._below
        missing = np.clip(self.shares[:, -1:], 0.0, 1.0)
        wanted, unsure = level * (1 - missing), np.hypot(noise, level * self.deviation)
        nodes = self.nodes
        rising = zip(wanted[:, 0], np.maximum.accumulate(below, axis=1), nodes, strict=True)
        value = np.array([np.interp(*each) for each in rising], dtype=np.float64)
        # From either end as far as it goes, so that one node alone decides whether a quantile is missed.
        fewer = np.logical_and.accumulate(below + NORMAL_95 * unsure < wanted, axis=1)
        more = np.logical_and.accumulate((below - NORMAL_95 * unsure > wanted)[:, ::-1], axis=1)
        low = _end(nodes, fewer.sum(axis=1) - 1, self.low)
        high = _end(nodes, nodes.shape[1] + 1 - more.sum(axis=1), self.high)
        return np.clip(value, low, high), low, high


def _end(nodes: Array, place: Places, beyond: Array) -> Array:
    """(columns,) nodes at these places; beyond all nodes what is given."""
    inside = (place >= 0) & (place < nodes.shape[1])
    at = np.clip(place, 0, nodes.shape[1] - 1)
    return np.where(inside, np.take_along_axis(nodes, at[:, None], axis=1)[:, 0], beyond)

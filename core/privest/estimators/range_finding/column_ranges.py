"""Where the values of columns are: noisy histograms of all columns at once, each finer than the last."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.data.float_limits import FINEST
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import any_floats
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle

Places, Truths = NDArray[np.intp], NDArray[np.bool_]

_NODES = 64
"""Values of a column at which a histogram of an interval counts."""

_SIZES: Array = 4.0 ** np.arange(-166, 167.0)
"""Sizes that the first histogram tells apart where bounds are missing: all whose squares float64 can hold."""

_ROUNDS, _PURE_ROUNDS = 3, 2
"""Histograms of intervals. Two find a width that is a thousandth of the first, as declared bounds may be.

After orders of magnitude there is one more: years are within a thousandth of their size.
"""

_OF_ORDERS = 0.4
"""Share of all looks for orders of magnitude, if these are looked at."""

ENOUGH = 0.01
"""Standard deviation of the noise on a share that is small enough to look. With it none of 40 runs took a
wrong unit for any of six columns with 30 % of missing values and bounds 1,000 times too wide."""

_MOST = 0.95
"""Share of the records that an interval is to hold."""

_USUALLY = (0.1, 0.4, 0.4, 0.1)
"""Shares of the records at neighbouring orders of magnitude."""

_ODD, _SURELY = 1.0, 7.0
"""What each order away from 1 counts against it, and by how much the best must surpass others, in nats."""

_SURE = 5.0
"""Standard deviations of noise by which records must stand out."""

_SPARED = 0.05
"""Most of a share by which one deviation of noise may lessen what an interval seems to hold. Without it one
that does hold most records is often passed over, and the next that seems to may be any, however wide."""

_BEYOND = 0.5
"""What the next interval has beyond the nodes that hold most records, on either side, over their width."""

_WORTH = 0.5
"""Largest width of the next interval, over the last one's, for which it is taken."""


@dataclass(frozen=True)
class ColumnCounts:
    """How many records are near each of several values, in every column, and how many have none.

    A record between two nodes counts at both, by how near it is to each, so that rounding cannot move it by a
    whole count. One beyond the last node counts there. It asks about (columns, nodes) rising values.

    Attributes:
        columns: numbers in a record.
        nodes: values at which each is counted.
        unsigned: whether a value counts as if it were positive.
    """

    columns: int
    nodes: int
    unsigned: bool = False

    description = "the share of records near each of several values, in every column"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.columns * (self.nodes + 1)

    def diameter(self, clip: float) -> float:
        """In each column two records count at different nodes at most, and no entry is negative."""
        return sqrt(2.0) * clip

    def l1_diameter(self, clip: float) -> float:
        """Two records differ by 2·clip/√columns in each column at most."""
        return 2.0 * sqrt(self.columns) * clip * (1 + 1e-12)

    @any_floats
    def clipped_sum(self, nodes: Array, rows: Array, clip: float) -> Array:
        """Σ of the records' counts: clip/√columns for each of their values.

        Args:
            nodes: (columns, nodes) values.
            rows: (n, columns) records; NaN is a missing value.
            clip: length of a record's vector at most.

        Returns:
            (columns · (nodes + 1),) counts at the nodes of a column and, last, of missing values.
        """
        values = np.abs(rows) if self.unsigned else rows
        counts = np.array([_counted(*column) for column in zip(nodes, values.T, strict=True)])
        return np.asarray((clip / sqrt(self.columns)) * counts.ravel(), dtype=np.float64)

    def shares(self, mean: Array) -> Array:
        """(columns, nodes + 1) shares of the records, by a released mean with the clip 1."""
        return mean.reshape(self.columns, -1) * sqrt(self.columns)

    def whole_shares(self, mean: Array) -> Array:
        """(columns, nodes + 1) the nearest to `shares` of which each column's add up to one, as they do."""
        shares = self.shares(mean)
        return shares + (1 - shares.sum(axis=1, keepdims=True)) / shares.shape[1]


def _counted(nodes: Array, values: Array) -> Array:
    """(nodes + 1,) counts of the values near each node, and of those missing."""
    known = values[~np.isnan(values)]
    at = np.clip(known, nodes[0], nodes[-1])
    above = np.clip(np.searchsorted(nodes, at, side="right"), 1, len(nodes) - 1)
    # From 0 to 1 whatever the nodes are: 0 where two of them are equal, as NaN is the smaller for `fmax`.
    part = np.fmin(np.fmax((at - nodes[above - 1]) / (nodes[above] - nodes[above - 1]), 0.0), 1.0)
    counts = np.zeros(len(nodes) + 1)
    counts += np.bincount(above, part, len(counts))
    counts += np.bincount(above - 1, 1.0 - part, len(counts))
    counts[-1] = len(values) - len(known)
    return counts


@dataclass(frozen=True)
class FoundColumns:
    """Noisy histograms of columns, over intervals that hold most of their records.

    Attributes:
        nodes: (columns, nodes) values.
        shares: (columns, nodes + 1) noisy shares of the records near each, and of missing values.
        deviation: (columns,) of the noise on a share.
        seen: (columns,) whether records were seen to be there; elsewhere noise hides where they are.
        widest: (columns,) width of the first interval.
    """

    nodes: Array
    shares: Array
    deviation: Array
    seen: Truths
    widest: Array

    @property
    def missing(self) -> Array:
        """(columns,) share of missing values."""
        return np.clip(self.shares[:, -1], 0.0, 1.0)

    @cached_property
    def fullest(self) -> tuple[Places, Places, Truths]:
        """(columns,) first and last of the fewest nodes that hold most records, and whether they do."""
        return _fullest(self.shares[:, :-1], _MOST * (1 - self.missing), self.deviation)

    @property
    def is_atom(self) -> Truths:
        """(columns,) whether most records have one and the same value, as far as is told."""
        first, last, told = self.fullest
        return told & (last - first <= 1)

    @property
    def width(self) -> Array:
        """(columns,) of the nodes that surely hold most records: all of them where noise hides which do."""
        (first, last, _), rows = self.fullest, np.arange(len(self.nodes))
        return self.nodes[rows, last] - self.nodes[rows, first]

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """(columns,) mean and standard deviation of the nodes that hold most records."""
        first, last, _ = self.fullest
        places: Places = np.arange(self.nodes.shape[1], dtype=np.intp)
        inside: Truths = (places >= first[:, None]) & (places <= last[:, None])
        kept = np.where(inside, np.maximum(self.shares[:, :-1], 1e-9), 0.0)
        kept /= kept.sum(axis=1, keepdims=True)
        center = np.vecdot(kept, self.nodes)
        spread = np.sqrt(np.vecdot(kept, (self.nodes - center[:, None]) ** 2))
        return center, np.maximum(spread, (self.nodes[:, 1] - self.nodes[:, 0]) / 2)

    @property
    def center(self) -> Array:
        """(columns,) mean of most records, about."""
        return self._moments[0]

    @property
    def scale(self) -> Array:
        """(columns,) their standard deviation, about; positive."""
        return self._moments[1]


@dataclass(frozen=True)
class ColumnRanges:
    """What a run may find out about the values of columns.

    Attributes:
        low: (columns,) public lower bounds; −∞ where none is declared.
        high: (columns,) upper bounds; ∞ where none is declared.
    """

    low: Array
    high: Array

    @property
    def statistics(self) -> dict[str, ColumnCounts]:
        """The statistics that the gate sums, by name."""
        return {"orders": self._orders, "columns": self._counts}

    @property
    def _orders(self) -> ColumnCounts:
        return ColumnCounts(len(self.low), len(_SIZES), unsigned=True)

    @property
    def _counts(self) -> ColumnCounts:
        return ColumnCounts(len(self.low), _NODES)

    def looks(self, budget: PrivacyBudget, most: float) -> list[tuple[str, float]]:
        """The statistic of each histogram and its share of a budget, which is no larger than enough to look.

        First come orders of magnitude if some column lacks a bound, then intervals.

        Args:
            budget: of the whole run.
            most: share of it that all may have together.
        """
        names = ["columns"] * (_PURE_ROUNDS if budget.pure else _ROUNDS)
        if not np.isfinite(self.high - self.low).all():
            names = ["orders", *names, "columns"]
        found, of_orders = list[tuple[str, float]](), _OF_ORDERS * ("orders" in names)
        for name in names:
            alone = budget.release(self.statistics[name], name, 1.0).deviation
            enough = alone * sqrt(len(self.low)) / ENOUGH
            part = of_orders if name == "orders" else (1 - of_orders) / names.count("columns")
            found.append((name, min(most * part, enough if budget.pure else enough**2)))
        return found

    def releases(self, budget: PrivacyBudget, most: float) -> tuple[NoisySum, ...]:
        """The histograms; see `looks`.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        return tuple(
            budget.release(self.statistics[name], name, 1.0, share=share)
            for name, share in self.looks(budget, most)
        )

    def find(self, gate: Oracle, releases: Sequence[Release]) -> FoundColumns:
        """Look at all columns, each time closer; where noise hides a column, its interval stays.

        Args:
            gate: releases the statistics.
            releases: as planned, in order.
        """
        low, high, seen = self.low, self.high, np.isfinite(self.high - self.low)
        # Over the histograms of a column's present interval: shares over variances, and one over variances.
        shares, known = np.zeros((len(low), _NODES + 1)), np.zeros(len(low))
        found, widest = None, high - low
        for release in releases:
            deviation = release.deviation * sqrt(len(low))
            if release.statistic == "orders":
                looked = self._orders.shares(gate.mean(np.tile(_SIZES, (len(low), 1)), "orders"))
                low, high, seen = self._rough(looked, deviation)
                widest = high - low
                continue
            if found is not None:
                low, high, moved = self.nearer(found)
                shares[moved], known[moved] = 0.0, 0.0
                seen = seen | moved
            nodes = np.linspace(low, high, _NODES, axis=1)
            shares += self._counts.whole_shares(gate.mean(nodes, "columns")) / deviation**2
            known += deviation**-2.0
            found = FoundColumns(nodes, shares / known[:, None], known**-0.5, seen, widest)
        assert found is not None  # noqa: S101 - some releases are of intervals
        return found

    def _rough(self, shares: Array, deviation: float) -> tuple[Array, Array, Truths]:
        """(columns,) ends of intervals by orders of magnitude, and whether records were seen to be there.

        The likeliest size is the one about which most records are. Large shares at larger ones are within the
        interval, too. Zeros have no size, and are within any such interval.
        """
        of_none, sized = shares[:, 0] + shares[:, -1], shares[:, 1:-1]
        away: Array = np.abs(np.arange(float(sized.shape[1])) - len(_SIZES) // 2)
        around = np.pad(sized, ((0, 0), (1, 2)))
        held: Array = sum(
            (part * around[:, at : at + sized.shape[1]] for at, part in enumerate(_USUALLY)),
            np.zeros_like(sized),
        )
        fit = np.clip(1 - of_none, deviation, 1.0)[:, None] * held / deviation**2 - _ODD * away
        place = np.argmax(fit, axis=1)
        orders: Places = np.arange(sized.shape[1], dtype=np.intp)
        near: Truths = np.abs(orders - place[:, None]) <= len(_USUALLY)
        told = fit.max(axis=1) - np.where(near, -np.inf, fit).max(axis=1) > _SURELY
        beyond = np.where(sized > _SURE * deviation, orders, 0).max(axis=1)
        furthest = _SIZES[np.minimum(np.maximum(place + 1, beyond) + 2, len(_SIZES) - 1)]
        # What is declared holds where noise hides the records.
        known: Truths = np.isfinite(self.high - self.low) & ~told
        furthest = np.where(known, np.inf, furthest)
        return *self._declared(-furthest, furthest), told | known

    def nearer(self, found: FoundColumns) -> tuple[Array, Array, Truths]:
        """(columns,) ends of the next intervals, and whether they are others than before."""
        first, last, told = found.fullest
        ends = found.nodes[:, 0], found.nodes[:, -1]
        step = (ends[1] - ends[0]) / (_NODES - 1)
        beyond = 1.0 + _BEYOND * (last - first)
        low, high = self._declared(ends[0] + step * (first - beyond), ends[0] + step * (last + beyond))
        moved = told & (high - low < _WORTH * (ends[1] - ends[0]))
        return np.where(moved, low, ends[0]), np.where(moved, high, ends[1]), moved

    def _declared(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The part of intervals that is within what is declared, and wide enough to have nodes in float64."""
        low, high = np.clip(low, self.low, self.high), np.clip(high, self.low, self.high)
        least = np.maximum(FINEST * np.maximum(np.abs(low), np.abs(high)), _SIZES[0])
        lacking = np.maximum(least - (high - low), 0.0)
        return low - lacking, high + lacking


def _fullest(shares: Array, most: Array, deviation: Array) -> tuple[Places, Places, Truths]:
    """First and last of the fewest neighbouring nodes that surely hold most records, and whether they do.

    Where noise hides which these are, they are all nodes. As all shares add up to one, so many nodes have the
    noise of those that are left as well.

    Args:
        shares: (columns, nodes), noisy.
        most: (columns,) share of the records that they are to hold.
        deviation: (columns,) of the noise on each.
    """
    columns, nodes = shares.shape
    first, last = np.zeros(columns, dtype=np.intp), np.full(columns, nodes - 1, dtype=np.intp)
    found = np.zeros(columns, dtype=np.bool_)
    sums = np.pad(np.cumsum(shares, axis=1), ((0, 0), (1, 0)))
    for count in range(1, nodes):
        held = sums[:, count:] - sums[:, :-count]
        place = np.argmax(held, axis=1)
        noise = deviation * sqrt(count * (1 - count / (nodes + 1)))
        # What they are to hold has the noise of the missing values.
        least = most - np.minimum(np.hypot(noise, _MOST * deviation), _SPARED)
        enough = ~found & (held[np.arange(columns), place] >= np.maximum(least, _SURE * noise))
        first[enough], last[enough] = place[enough], place[enough] + count - 1
        found |= enough
    return first, last, found

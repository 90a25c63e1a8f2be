"""Closer ranges of columns: where noisy histograms show that clipping to them surely wins."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from math import inf, isfinite, sqrt

import numpy as np

from privest.arrays import Array
from privest.data.tables import Recipe
from privest.estimators.frechet_mean.excess import NODES, excess_bounds
from privest.estimators.frechet_mean.intervals import coordinate_radius
from privest.estimators.range_finding.column_ranges import ColumnCounts, ColumnRanges, Truths
from privest.estimators.range_finding.column_scales import Columns, Standardised
from privest.estimators.range_finding.projections import Coordinates, Viewed
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release, SampledSum
from privest.privacy.oracle import Oracle

_WIN = 0.5
"""A clipped interval must be shorter than this part of the plain one."""

_SEEN = 4.0
"""Deviations of the noise by which a share of the records must exceed 0 to count as seen."""

_CLIPS = np.exp2(np.arange(-3, 33, 0.25))
"""Clips that are considered, over the distance within which most records are."""


@dataclass(frozen=True)
class ColumnHistograms:
    """The histograms of columns that are numbers or dates.

    Attributes:
        columns: these, in the units of records, with the bounds that they have.
    """

    columns: Coordinates

    @classmethod
    def at(cls, recipe: Recipe) -> "ColumnHistograms":
        """Return the histograms of all numbers and dates of a recipe; gaps count as their fill."""
        return cls(Coordinates.at(recipe.numbers, recipe))

    @property
    def low(self) -> Array:
        """(columns,) declared lower bounds; −∞ where there is none."""
        return self.columns.low

    @property
    def high(self) -> Array:
        """(columns,) declared upper bounds; ∞ where there is none."""
        return self.columns.high

    @property
    def is_open(self) -> Truths:
        """(columns,) whether a bound is missing."""
        return ~np.isfinite(self.high - self.low)

    @property
    def ranges(self) -> ColumnRanges:
        """Histograms that find where most values are."""
        return ColumnRanges(self.low, self.high)

    @property
    def distances(self) -> ColumnCounts:
        """Histogram of distances from there."""
        return ColumnCounts(len(self.columns.names), len(NODES), unsigned=True)

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate sums, by name."""
        each = {**self.ranges.statistics, "spreads": Standardised(self.distances)}
        return {name: Viewed(statistic, self.columns) for name, statistic in each.items()}


@dataclass(frozen=True)
class ClippedIntervals:
    """The intervals to which columns are clipped.

    Attributes:
        intervals: (features,) centres and half widths.
        bias: (features,) upper bound of what clipping moves a mean, in the units of the records; infinite
            where none holds.
        is_clipped: (features,) whether the interval is closer than the declared one.
        squares: (features,) mean squared distance of values from their centre, about; of shares 0.
        hidden: names of columns without bounds whose values the noise hides.
        unbounded: names of columns without bounds that are seen, but whose tails nothing bounds.
        rare: share of the records that may be far from all others unseen; 0 where none can.
    """

    intervals: Columns
    bias: Array
    is_clipped: Truths
    squares: Array
    hidden: tuple[str, ...] = ()
    unbounded: tuple[str, ...] = ()
    rare: float = 0.0


def choose(recipe: Recipe, gate: Oracle, planned: Sequence[Release]) -> ClippedIntervals:
    """Return the intervals that histograms of the columns suggest."""
    histograms = ColumnHistograms.at(recipe)
    named = [each for each in planned if isinstance(each, NoisySum)]
    spreads = next(each for each in named if each.statistic == "spreads")
    clipped = next(each for each in named if each.statistic == "clipped")
    plain = next((each for each in named if each.statistic == "plain"), clipped)
    found = histograms.ranges.find(
        gate, [each for each in named if each.statistic in histograms.ranges.statistics]
    )
    step = (found.nodes[:, 1] - found.nodes[:, 0]) / 2
    half = np.maximum(found.width / 2, step)
    nodes, count = half[:, None] * NODES, len(half)
    units = Columns(found.center, np.ones(count))
    seen = histograms.distances.shares(gate.mean((units, nodes), "spreads"))[:, :-1]
    deviation = spreads.deviation * sqrt(count)
    sample = spreads.sample if isinstance(spreads, SampledSum) else inf
    per_width = coordinate_radius(clipped) * recipe.radius
    base = coordinate_radius(plain) * recipe.radius
    columns = [
        _Column(*ends, deviation=deviation, sample=sample, nodes=nodes[at], shares=seen[at])
        for at, ends in enumerate(
            zip(
                found.center.tolist(),
                half.tolist(),
                histograms.low.tolist(),
                histograms.high.tolist(),
                strict=True,
            )
        )
    ]
    chosen = [
        column.closest(per_width, _WIN * base) or (0.0, 1.0, 0.0)
        if isfinite(column.high - column.low)
        else column.open_interval(per_width, is_seen)
        for column, is_seen in zip(columns, found.seen.tolist(), strict=True)
    ]
    center, scale, bias = np.array(chosen).T
    squares = np.array([column.mean_square for column in columns])
    is_open = histograms.is_open
    missing = is_open & ~np.isfinite(bias)
    hidden, unbounded = (
        tuple(compress(histograms.columns.names, missing & part)) for part in (~found.seen, found.seen)
    )
    closer_than_declared = is_open | (scale < 1.0)
    intervals = Columns(_spread_out(recipe, center, 0.0), _spread_out(recipe, scale, 1.0), 1.0)
    return ClippedIntervals(
        intervals,
        _spread_out(recipe, bias, 0.0),
        among(recipe, closer_than_declared),
        _spread_out(recipe, squares, 0.0),
        hidden,
        unbounded,
        _SEEN * deviation,
    )


def among(recipe: Recipe, chosen: Truths) -> Truths:
    """Return (features,) truths of the columns that are numbers; false for the rest."""
    found = np.zeros(len(recipe.features), dtype=np.bool_)
    found[list(recipe.numbers)] = chosen
    return found


def _spread_out(recipe: Recipe, values: Array, others: float) -> Array:
    """Return (features,) values of the columns that are numbers, and others for the rest."""
    found = np.full(len(recipe.features), others)
    found[list(recipe.numbers)] = values
    return found


@dataclass(frozen=True)
class _Column:
    """Released histograms of one column.

    Attributes:
        center: of most values.
        half: distance within which most are.
        low, high: declared bounds; infinite where there is none.
        nodes: (nodes,) distances from the centre.
        shares: (nodes,) noisy shares of the records there.
        deviation: standard deviation of the noise on each.
        sample: number of records that were counted; infinite where it is all of them.
    """

    center: float
    half: float
    low: float
    high: float
    nodes: Array
    shares: Array
    deviation: float
    sample: float

    @property
    def _last(self) -> int:
        """The last node at which records are seen; 0 where noise hides all."""
        beyond = np.cumsum(self.shares[::-1])[::-1]
        seen = np.flatnonzero(beyond > _SEEN * self.deviation * np.sqrt(np.arange(len(beyond), 0, -1)))
        return int(seen[-1]) if len(seen) else 0

    @property
    def mean_square(self) -> float:
        """Mean squared distance of values from the centre, as far as they are seen; 0 where none are."""
        upto = self._last + 1 if self._last else 0
        return float(np.maximum(self.shares[:upto], 0.0) @ self.nodes[:upto] ** 2)

    @property
    def _reach(self) -> float:
        """Largest distance of a value from the centre."""
        return max(self.high - self.center, self.center - self.low)

    def _bounds(self, clips: Array) -> Array | None:
        """Return upper bounds of what each clip cuts off."""
        within = int(np.searchsorted(self.nodes, self._reach)) + 1
        if within < 4:
            return None
        return excess_bounds(
            self.nodes[:within], self.shares[:within], self.deviation, clips, sample=self.sample
        )

    def _within(self, clip: float) -> tuple[float, float]:
        """Return centre and half width of the part of the declared interval that a clip keeps."""
        low, high = max(self.low, self.center - clip), min(self.high, self.center + clip)
        return (low + high) / 2, (high - low) / 2

    def closest(self, noise: float, most: float) -> tuple[float, float, float] | None:
        """Return centre, half width and bias of the best clipped interval, or None if it is no better.

        Args:
            noise: half length of the interval by noise alone, for a half width of 1.
            most: the interval must be shorter than this.
        """
        clips = self.half * _CLIPS
        clips = clips[clips < self._reach]
        cut = self._bounds(clips) if len(clips) else None
        if cut is None:
            return None
        widths = np.array([self._within(clip)[1] for clip in clips.tolist()])
        lengths = noise * widths + cut
        best = int(lengths.argmin())
        return (*self._within(float(clips[best])), float(cut[best])) if lengths[best] < most else None

    def open_interval(self, noise: float, is_seen: bool) -> tuple[float, float, float]:
        """Return centre, half width and bias of the best interval of a column without bounds.

        The bias is infinite where nothing bounds it usefully: by less than the furthest distance at which
        values are seen. The interval is then twice as wide as that.
        """
        furthest = float(self.nodes[self._last]) if is_seen and self._last else self.half
        clips = self.half * _CLIPS
        cut = self._bounds(clips) if is_seen else None
        if cut is not None:
            lengths = noise * np.array([self._within(clip)[1] for clip in clips.tolist()]) + cut
            best = int(lengths.argmin())
            if lengths[best] < furthest:
                return (*self._within(float(clips[best])), float(cut[best]))
        return (*self._within(2 * furthest), inf)

"""Columns in units of their own: each with the clip that is best for it alone, by noisy histograms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Generic, TypeVar

import numpy as np

from privest.arrays import Array
from privest.data.tables import Recipe, listed
from privest.estimators.frechet_mean.radius_search import NODES, RATIOS, Distances, Tail
from privest.estimators.range_finding.column_ranges import ColumnCounts, ColumnRanges, FoundColumns, Truths
from privest.estimators.range_finding.projections import Coordinates, Viewed
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic, Statistic, any_floats, l1_diameter
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle

Query = TypeVar("Query")

_SURE = 4.0
"""Deviations of noise by which a node's records refute a law."""

MOST = 2.0
"""Clips beyond which a value is drawn in to, so that a column whose clip is too small harms no other."""

_RARE = 1e-4
"""How likely a crowd far off is at first where a clip is chosen, over laws without one. If it were as likely,
clips would be wide wherever noise hides what is far off. What they may cut off is told with equal odds."""

_LOUD = 0.02
"""Noise on a share above which few records far off, of many columns together, may be hidden."""

_HIDDEN = 0.18
"""Noise on the share of the records at one order of magnitude from which on none surely stands out."""

_MOST_COLUMNS = 1_000
"""Most columns that lack a bound in one run: histograms of more take long to read."""

SHARE = 0.25
"""Share of a run's budget by which scales are found."""

_FILLED = 1 / 15
"""Part of its bounds that most values of a column fill where these are a guess. With rough bounds most
columns of each table in `TUNE` of the real ones fill twice as much, but where they have mostly one value."""

_UNSURE = 0.02
"""Noise on a share of the known values above which one in a hundred columns or more has a wrong unit."""

_OF_SPREADS = 0.65
"""Share of what all looks cost for the distances from the centres."""


@dataclass(frozen=True)
class Columns:
    """Units of columns.

    Attributes:
        center: (columns,) what is taken off.
        scale: (columns,) what the rest is divided by; positive.
        most: scales beyond which a value is drawn in.
    """

    center: Array
    scale: Array
    most: float = inf

    def images(self, rows: Array) -> Array:
        """(..., columns) records in these units."""
        images = self._standardised(rows)
        return np.clip(images, -self.most, self.most, out=images if images is not rows else None)

    def _standardised(self, rows: Array) -> Array:
        """(..., columns) records in these units; the same array where they are in these units already."""
        if not self.center.any() and (self.scale == 1).all():
            return rows
        images = rows - self.center
        images /= self.scale
        return images

    def values(self, images: Array) -> Array:
        """(..., columns) records of these images."""
        return self.center + self.scale * images


@dataclass(frozen=True)
class Standardised(Generic[Query]):
    """A statistic of records in units of their columns. It asks about (columns, query of the statistic).

    A record's image depends on that record and on released numbers alone: so the diameter stays.
    """

    statistic: Statistic[Query]

    @property
    def description(self) -> str:
        """The released quantity in words for analysts."""
        return self.statistic.description

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.statistic.size

    def diameter(self, clip: float) -> float:
        """Bound on the distance between two records' vectors: the statistic's own."""
        return self.statistic.diameter(clip)

    def l1_diameter(self, clip: float) -> float:
        """Bound on their L1 distance: the statistic's own."""
        return l1_diameter(self.statistic, clip)

    @any_floats
    def clipped_sum(self, query: tuple[Columns, Query], rows: Array, clip: float) -> Array:
        """Σ of the statistic's vectors of the records' images; see `Statistic`."""
        columns, point = query
        return self.statistic.clipped_sum(point, columns.images(rows), clip)


@dataclass(frozen=True)
class StandardisedOracle(Oracle):
    """A gate whose statistics are `Standardised`, asked as if the records were their images."""

    gate: Oracle
    columns: Columns

    @property
    def share(self) -> float:
        """Share of the records whose mean has the sampling error of these answers."""
        return self.gate.share

    def pooled(self, found: Callable[[int, Oracle], Array]) -> Array:
        """The weighted sum of what each owner finds by answers on the images of its records."""
        return self.gate.pooled(lambda place, owner: found(place, StandardisedOracle(owner, self.columns)))

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """The noisy mean of the images' clipped vectors."""
        return self.gate.mean((self.columns, point), statistic)

    def pick(self, count: int) -> int:
        """A uniform random integer in [0, count)."""
        return self.gate.pick(count)


@dataclass(frozen=True)
class FoundScales:
    """What noisy histograms tell of columns: where most records are, and how far from there they get.

    Attributes:
        places: of most records.
        distances: of each column, from its centre, as they most likely are.
        possible: the same, by laws of which a crowd far off is as likely as none.
        tails: of each column, what noise may hide beyond the values that are seen.
    """

    places: FoundColumns
    distances: tuple[Distances, ...]
    possible: tuple[Distances, ...]
    tails: tuple[Tail, ...]

    def clips(self, noise: float) -> Columns:
        """For each column the clip that balances noise, so much for each unit of it, and what it cuts off."""
        scales = np.array([column.best_clip(noise) for column in self.distances])
        return Columns(self.places.center, scales, MOST)

    def typical(self) -> Columns:
        """For each column the mean distance from its centre, by what is known."""
        return Columns(self.places.center, np.array([column.mean for column in self.distances]))

    def hidden(self, names: Sequence[str]) -> Iterator[str]:
        """The warning that noise hides where columns of these names are, or none."""
        hidden = [name for name, seen in zip(names, self.places.seen, strict=True) if not seen]
        if hidden:
            yield (
                f"noise hides where the values of {listed(hidden)} are: expect no information of them. More "
                "records, fewer columns or a larger epsilon would help, or low and high in the schema"
            )

    def unsure(self, names: Sequence[str], taken: Truths) -> Iterator[str]:
        """The warning that noise may have led to wrong units of those columns whose are taken, or none."""
        doubt = taken & self.places.seen & (self.places.deviation > _UNSURE * (1 - self.places.missing))
        if doubtful := [name for name, one in zip(names, doubt, strict=True) if one]:
            yield (
                f"centre and scale of {', '.join(doubtful)} were found through so much noise that they may "
                "be others than most values have, and intervals too short. More records, fewer columns, a "
                "larger epsilon or closer low and high would help"
            )

    def cut(self, columns: Columns) -> Array:
        """(columns,) root mean square of what drawing in moves the means by at most, in their units."""
        scales, most = columns.scale.tolist(), columns.most
        told = zip(self.possible, self.tails, scales, strict=True)
        return np.array(
            [
                max(sqrt(float(np.mean(laws.excess(most * one) ** 2))), tail.excess(most * one)) / one
                for laws, tail, one in told
            ]
        )


@dataclass(frozen=True)
class ColumnScales:
    """What a run may find out about centres and scales of columns.

    Attributes:
        columns: those that are looked at, each with the public bounds that it has.
        width: coordinates of a record, which the others are among.
    """

    columns: Coordinates
    width: int

    @classmethod
    def of(cls, recipe: Recipe | None) -> "ColumnScales | None":
        """The scales of a table's columns that a run is to find: of those that lack a bound, if any do.

        Bounds that are declared tell a scale. Where all are too wide alike, the clip on a whole record makes
        up for that at a lower price.
        """
        if recipe is None or recipe.is_bounded:
            return None
        low, high = recipe.range
        open_places = tuple(np.flatnonzero(~np.isfinite(high - low)).tolist())
        return cls(Coordinates.at(open_places, recipe), len(recipe.features))

    @classmethod
    def sought(cls, recipe: Recipe | None, budget: PrivacyBudget, most: float) -> "ColumnScales | None":
        """The scales of all columns of numbers or dates, whatever their bounds, which a guess may be.

        Where noise hides so many, it is those that lack a bound, if any do, and elsewhere there are none.

        Args:
            recipe: of a table.
            budget: of the whole run.
            most: share of it that all looks may have together.
        """
        if recipe is None:
            return None
        every = cls._of_numbers(recipe)
        return cls.of(recipe) if every.are_hidden(budget, most) else every

    @classmethod
    def planned(cls, recipe: Recipe | None, releases: Sequence[Release]) -> "ColumnScales | None":
        """The scales that a run with these releases finds, if it looks for any."""
        sizes = [each.size for each in releases if each.statistic == "spreads"]
        if recipe is None or not sizes:
            return None
        every = cls._of_numbers(recipe)
        return every if every.statistics["spreads"].size == sizes[0] else cls.of(recipe)

    @classmethod
    def _of_numbers(cls, recipe: Recipe) -> "ColumnScales":
        return cls(Coordinates.at(recipe.numbers, recipe), len(recipe.features))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are looked at."""
        return self.columns.names

    @property
    def _ranges(self) -> ColumnRanges:
        return ColumnRanges(self.columns.low, self.columns.high)

    @property
    def _away(self) -> ColumnCounts:
        return ColumnCounts(len(self.names), NODES, unsigned=True)

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate sums, by name."""
        each = {**self._ranges.statistics, "spreads": Standardised(self._away)}
        return {name: Viewed(statistic, self.columns) for name, statistic in each.items()}

    def among(self, others: Mapping[str, AnyStatistic]) -> dict[str, AnyStatistic]:
        """All statistics of a run that finds scales first, and asks others about records in these units."""
        return self.statistics | {name: Standardised(each) for name, each in others.items()}

    def looks(self, releases: Sequence[Release]) -> tuple[Release, ...]:
        """The releases of a plan by which scales are found."""
        return tuple(each for each in releases if each.statistic in self.statistics)

    def warnings(self, releases: Sequence[Release]) -> Iterator[str]:
        """The warning of a plan whose noise may hide what scales depend on, or none."""
        (spreads,) = (each for each in releases if each.statistic == "spreads")
        if self.deviation(spreads) > _LOUD:
            yield (
                "columns without low and high: so much noise may hide values far off, which then hardly "
                "count. More records, fewer such columns or a larger epsilon would help, or low and high in "
                "the schema"
            )

    def deviation(self, spreads: Release) -> float:
        """Standard deviation of the noise on a share of the records at a distance from the centre."""
        return spreads.deviation * sqrt(len(self.names))

    def releases(self, budget: PrivacyBudget, most: float) -> tuple[NoisySum, ...]:
        """Histograms of values, and one of distances from centres.

        Args:
            budget: of the whole run.
            most: share of it that all may have together.

        Raises:
            ValueError: there are too many such columns, or the noise would hide where they are.
        """
        if len(self.names) > _MOST_COLUMNS:
            raise ValueError(
                f"at most {_MOST_COLUMNS} columns may lack low and high in one question: name fewer columns"
            )
        spreads = budget.release(Standardised(self._away), "spreads", 1.0, share=_OF_SPREADS * most)
        looks = self._ranges.releases(budget, (1 - _OF_SPREADS) * most)
        if self._hide(looks):
            raise ValueError(
                "so much noise would hide where columns without low and high are: declare these, name fewer "
                "such columns, or take a larger epsilon"
            )
        return (*looks, spreads)

    def are_hidden(self, budget: PrivacyBudget, most: float) -> bool:
        """Whether `releases` would refuse, or there is nothing to find."""
        if not 0 < len(self.names) <= _MOST_COLUMNS:
            return True
        return self._hide(self._ranges.releases(budget, (1 - _OF_SPREADS) * most))

    def _hide(self, looks: Sequence[Release]) -> bool:
        """Whether the noise of these histograms hides where columns are."""
        return looks[0].deviation * sqrt(len(self.names)) > _HIDDEN

    def find(self, gate: Oracle, releases: Sequence[Release]) -> FoundScales:
        """Look at the columns.

        Args:
            gate: releases the statistics.
            releases: as planned, in order.
        """
        *before, last = releases
        places = self._ranges.find(gate, before)
        core = (places.nodes[:, -1] - places.nodes[:, 0]) / 2
        reach = places.widest
        nodes = np.tile(RATIOS[::-1], (len(reach), 1))
        seen = gate.mean((Columns(places.center, reach), nodes), "spreads")
        shares, deviation = self._away.shares(seen)[:, :-1][:, ::-1], self.deviation(last)
        # Noise far off must not pass for most records of a column, which were seen to be elsewhere.
        within = np.where(places.seen, core, inf)
        asked = list(zip(shares, reach.tolist(), within.tolist(), strict=True))
        likely, possible = (
            tuple(_read(*column, deviation, crowds) for column in asked) for crowds in (_RARE, 1.0)
        )
        tails = tuple(Tail.read(own, deviation, far) for own, far, _ in asked)
        return FoundScales(places, likely, possible, tails)

    def guesses(self, found: FoundScales) -> tuple[Truths, tuple[str, ...]]:
        """Columns whose bounds tell no scale: all of them where most fill a small part of their bounds.

        A column in which most records have one value tells nothing of that, unless all are such.

        Returns:
            (columns,) whether it is so, or there are no bounds; and where bounds are kept the warning that
            some columns fill a small part, or none.
        """
        width = self.columns.high - self.columns.low
        bounded = np.isfinite(width)
        telling = bounded & ~found.places.is_atom
        if not telling.any():
            telling = bounded
        narrow = telling & (found.places.width < _FILLED * width)
        if 2 * narrow.sum() > telling.sum():
            return np.ones_like(bounded), ()
        names = [name for name, one in zip(self.names, narrow, strict=True) if one]
        warning = (
            f"most values of {listed(names)} are within {_FILLED:.0%} of the declared bounds, and count "
            "little beside others: declare closer ones, or none"
        )
        return ~bounded, (warning,) * bool(names)

    def among_all(self, values: Array, others: Array | float) -> Array:
        """(width,) values of the columns that are looked at, and others for the rest of them."""
        found = np.full(self.width, others)
        found[list(self.columns.places)] = values
        return found


def _read(shares: Array, reach: float, within: float, deviation: float, crowds: float) -> Distances:
    """The distances of a column: by laws, but where records surely stand out of them."""
    read = Distances.read(shares, deviation, reach, within, crowds)
    return replace(read, shares=np.where(shares > read.shares + _SURE * deviation, shares, read.shares))

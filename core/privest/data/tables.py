"""Columns of a table, and the public map from its rows to feature vectors."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from math import fsum, inf, isfinite, isnan, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.data.float_limits import MetadataFault, bounds_faults, number_faults

ColumnType = Literal["number", "integer", "category", "boolean", "date"]

Missing = Literal["refused", "category", "filled"]
"""Treatment of a gap: a fault, a category of its own, or a public value with an indicator beside it."""

MISSING = "missing"
"""The class of a label that is missing, where gaps are a category of their own."""

_TRUTH = ("false", "true")

Levels = tuple[int, ...]
"""Categories that one indicator stands for, as places among a column's values; gaps come after all values."""

Indicators = tuple[Levels, ...]
"""The indicators of a column: the categories of each. Those that none stands for are the reference."""

MERGED = "|"
"""Separator of the categories of one indicator in its name."""

_EPOCH = date(1970, 1, 1)

_SHOWN = 5
"""Names that one sentence lists."""


def listed(names: Iterable[str]) -> str:
    """Names of columns, which are public, or the first of them."""
    told = list(names)
    return ", ".join(told[:_SHOWN]) + ", …" * (len(told) > _SHOWN)


def day_of(day: date) -> int:
    """The number that stands for a date in a table: its days since 1970-01-01."""
    return (day - _EPOCH).days


def date_of(days: float) -> str:
    """The date of a number of days, in ISO 8601; the last or the first that there is beyond those."""
    within = min(max(round(days), day_of(date.min)), day_of(date.max))
    return (_EPOCH + timedelta(days=within)).isoformat()


@dataclass(frozen=True)
class Feature:
    """A coordinate of a row's image.

    Attributes:
        name: as answers call it: `age`, `species=Adelie` or `sex missing`.
        column: place of its column in the table.
        type: of that column.
        low: public lower bound of its values, which are drawn in to it; None where none is declared.
        high: public upper bound.
        fill: what stands for a gap, if anything does.
        levels: places of the categories that it indicates; none for a value, or an indicator of gaps alone.
        gap: whether it indicates that the value is missing, maybe beside other categories.
    """

    name: str
    column: int
    type: ColumnType
    low: float | None = 0.0
    high: float | None = 1.0
    fill: float | None = None
    levels: Levels = ()
    gap: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """Its bounds, infinite where none is declared."""
        return -inf if self.low is None else self.low, inf if self.high is None else self.high

    @property
    def is_bounded(self) -> bool:
        """Return whether both bounds are public."""
        return isfinite(self.ends[0]) and isfinite(self.ends[1])

    @property
    def is_share(self) -> bool:
        """Return whether its mean is a share of the records."""
        return bool(self.levels) or self.gap or self.type == "boolean"


@dataclass(frozen=True)
class Column:
    """A column of a table, as its owner declares it. A number stands for each value in the stored rows.

    A date is its days since 1970-01-01, a truth value 0 or 1, a category its place, and a gap is NaN.

    Attributes:
        name: unlike all others of the table.
        type: what its values are.
        low: public lower bound of numbers and dates.
        high: public upper bound.
        categories: all that a column of categories may hold.
        missing: what a gap is.
        fill: the number that stands for the public value in a gap's place, if `missing` is `filled`.
        reference: place of the category that coefficients of the others are relative to.
    """

    name: str
    type: ColumnType
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] = ()
    missing: Missing = "refused"
    fill: float | None = None
    reference: int = 0

    @property
    def is_bounded(self) -> bool:
        """Return whether public facts give its scale."""
        return self.type in ("category", "boolean") or (self.low is not None and self.high is not None)

    @property
    def is_ordered(self) -> bool:
        """Return whether its values are numbers or dates."""
        return self.type not in ("category", "boolean")

    @property
    def values(self) -> tuple[str, ...]:
        """The values of a column of categories or truth values, in the order of their numbers."""
        return _TRUTH if self.type == "boolean" else self.categories

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of a label: its values and, if gaps are a category, `missing`."""
        return (*self.values, MISSING) if self.missing == "category" else self.values

    def holds(self, number: float | None) -> bool:
        """Return whether a number is within the declared bounds; NaN is not."""
        if number is None:
            return True
        return (self.low is None or self.low <= number) and (self.high is None or number <= self.high)

    @property
    def faults(self) -> Iterator[MetadataFault]:
        """Bounds and fill that float64 cannot work with."""
        if self.low is not None and self.high is not None:
            yield from bounds_faults(self.name, self.low, self.high)
        else:
            yield from number_faults(self.name, self.low)
            yield from number_faults(self.name, self.high)
        yield from number_faults(self.name, self.fill)

    def cell(self, number: float) -> float | str | bool | None:
        """The value that a number stands for, as a file has it; None for a gap."""
        if isnan(number):
            return None
        if self.type == "date":
            return date_of(number)
        if self.type == "number":
            return number
        return int(number) if self.type == "integer" else self._value(int(number))

    def _value(self, level: int) -> str | bool:
        return bool(level) if self.type == "boolean" else self.categories[level]

    @property
    def has_indicators(self) -> bool:
        """Return whether its features are indicators of categories."""
        return self.type == "category" or self.missing == "category"

    @property
    def gap_level(self) -> int | None:
        """Level of the indicator of gaps; None where gaps are refused."""
        return None if self.missing == "refused" else len(self.values)

    @property
    def relative_indicators(self) -> Indicators:
        """One indicator for every category but the reference and, where there may be gaps, one of these."""
        levels = [*range(len(self.values)), *([] if self.gap_level is None else [self.gap_level])]
        return tuple((level,) for level in levels if level != self.reference)

    def reference_of(self, indicators: Indicators) -> tuple[str, ...]:
        """Return the categories that no indicator stands for."""
        indicated = {level for levels in indicators for level in levels}
        return tuple(each for level, each in enumerate(self.classes) if level not in indicated)

    def levels_named(self, name: str) -> Levels | None:
        """Return the levels of an indicator by its name; None where it is no name of one.

        Names are `species=Adelie`, `species=Adelie|Gentoo` for either of two, and `species missing` for gaps.
        A category's own name has precedence over those of several.
        """
        if not self.has_indicators:
            return None
        if name == f"{self.name} missing" and self.gap_level is not None:
            return (self.gap_level,)
        if not name.startswith(f"{self.name}="):
            return None
        told = name.removeprefix(f"{self.name}=")
        parts = [told] if told in self.values else told.split(MERGED)
        places = {each: level for level, each in enumerate(self.classes)}
        if not all(part in places for part in parts) or len(set(parts)) < len(parts):
            return None
        return tuple(sorted(places[part] for part in parts))

    def features(self, place: int, indicators: Indicators | None = None) -> Iterator[Feature]:
        """Yield its features, a value or indicators.

        Args:
            place: of the column in the table.
            indicators: that are wanted; by default one of each category and, if there may be any, of gaps.
        """
        if indicators is not None:
            yield from (self.indicator(place, levels) for levels in indicators)
            return
        if self.has_indicators:
            yield from (self.indicator(place, (level,)) for level in range(len(self.values)))
        elif self.type == "boolean":
            yield Feature(self.name, place, self.type, fill=self.fill)
        else:
            yield Feature(self.name, place, self.type, self.low, self.high, self.fill)
        if self.gap_level is not None:
            yield self.indicator(place, (self.gap_level,))

    def indicator(self, place: int, levels: Levels) -> Feature:
        """Return the indicator of some of its categories, gaps among them or not."""
        gap = self.gap_level in levels
        if levels == (self.gap_level,):
            return Feature(f"{self.name} missing", place, self.type, gap=True)
        known = tuple(level for level in levels if level != self.gap_level)
        told = MERGED.join([*(self.values[level] for level in known), *([MISSING] if gap else [])])
        return Feature(f"{self.name}={told}", place, self.type, fill=self.fill, levels=known, gap=gap)


Form = Literal["scaled", "labelled", "partial"]
"""What a recipe makes: values in [−1, 1]; features in their own units and a label; [−1, 1] with gaps."""

Truths = NDArray[np.bool_]

_GAPS = 0.1
"""Share of gaps in synthetic rows, where the schema lets gaps be."""


@dataclass(frozen=True)
class Recipe:
    """A map of rows that works on each row by itself, and entry by entry, so that it changes no sensitivity.

    A value beyond its bounds is drawn in to them. A value x of bounds low and high becomes
    (x − (low + high)/2)/((high − low)/2). One that lacks a bound stays in its own units. An indicator is 0 or
    1, with these as bounds.

    Attributes:
        columns: all columns of the stored rows, in their order.
        chosen: places of those that are asked about.
        form: what is made.
        label: place of the label, whose class is the last number of a labelled record.
        indicators: of each chosen column those that are wanted, or None for all of its features; empty where
            all features of all columns are wanted.
    """

    columns: tuple[Column, ...]
    chosen: tuple[int, ...]
    form: Form = "scaled"
    label: int | None = None
    indicators: tuple[Indicators | None, ...] = ()

    @property
    def _wanted(self) -> Iterator[tuple[int, Indicators | None]]:
        """Chosen columns, each with the indicators that are wanted."""
        return zip(self.chosen, self.indicators or [None] * len(self.chosen), strict=True)

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """The coordinates of an image, without the label."""
        if self.form == "partial":
            own = [(place, self.columns[place]) for place in self.chosen]
            return tuple(Feature(c.name, place, c.type, c.low, c.high) for place, c in own)
        return tuple(
            feature
            for place, indicators in self._wanted
            for feature in self.columns[place].features(place, indicators)
        )

    def shows_all(self, place: int) -> bool:
        """Return whether all features of the chosen column at this place of the table are wanted."""
        return place not in self._with_some

    @cached_property
    def _with_some(self) -> frozenset[int]:
        """Chosen columns of which some indicators are wanted."""
        return frozenset(place for place, indicators in self._wanted if indicators is not None)

    @property
    def references(self) -> tuple[tuple[Column, tuple[str, ...]], ...]:
        """The columns with indicators for some of their categories, and the categories that have none."""
        found = (
            (self.columns[place], self.columns[place].reference_of(indicators))
            for place, indicators in self._wanted
            if indicators is not None
        )
        return tuple((column, categories) for column, categories in found if categories)

    def with_features(self, names: Collection[str]) -> "Recipe":
        """Return the recipe of some of its columns and indicators, by their names."""
        kept = dict[int, Indicators | None]()
        for place, indicators in self._wanted:
            column = self.columns[place]
            if column.name in names:
                kept[place] = indicators
            elif indicators is not None and (
                some := tuple(each for each in indicators if column.indicator(place, each).name in names)
            ):
                kept[place] = some
        wanted = tuple(kept.values()) if self.indicators else ()
        return replace(self, chosen=tuple(kept), indicators=wanted)

    @property
    def is_usual(self) -> bool:
        """Whether all chosen columns have the indicators that a classifier takes by default."""
        return all(
            indicators in (None, self.columns[place].relative_indicators)
            for place, indicators in self._wanted
        )

    @property
    def width(self) -> int:
        """Numbers in an image."""
        return len(self.features) + (self.label is not None)

    @cached_property
    def middle(self) -> Array:
        """(features,) middles of the bounds; 0 where one is missing."""
        with np.errstate(over="ignore"):  # of bounds that plans refuse
            return self._ends.sum(axis=0) / 2

    @cached_property
    def half(self) -> Array:
        """(features,) half the widths of the bounds; 1 where one is missing."""
        with np.errstate(over="ignore"):
            return (self._ends[1] - self._ends[0]) / 2

    @cached_property
    def range(self) -> Array:
        """(2, features) least and largest value of an image; infinite where no bound is declared."""
        if self.form == "labelled":
            return self._bounds
        with np.errstate(all="ignore"):
            return (self._bounds - self.middle) / self.half

    @property
    def faults(self) -> Iterator[MetadataFault]:
        """Bounds and fills of the chosen columns that float64 cannot work with."""
        for place in self.chosen:
            yield from self.columns[place].faults

    @cached_property
    def exclusive(self) -> Array:
        """(features,) number, 2 or more, of indicators of which a row has one, with this one; 0 of others."""
        counts = list[float]()
        for feature in self.features:
            column = self.columns[feature.column]
            shared = bool(feature.levels) or (feature.gap and column.missing == "category")
            shared &= self.shows_all(feature.column)
            counts.append(float(len(column.classes)) if shared and len(column.classes) > 1 else 0.0)
        return np.array(counts)

    @cached_property
    def groups(self) -> tuple[slice, ...]:
        """Where the indicators are of which a row has one, a slice of the features for each such column."""
        found, place = list[slice](), 0
        while place < len(self.exclusive):
            count = int(self.exclusive[place])
            if count:
                found.append(slice(place, place + count))
            place += max(count, 1)
        return tuple(found)

    @cached_property
    def center(self) -> Array:
        """(features,) centre of the ball that holds all images: 0 or, of k indicators, 1/k each."""
        counts = self.exclusive
        return np.where(counts > 0, 2 / np.maximum(counts, 1.0) - 1, 0.0)

    @cached_property
    def radius(self) -> float:
        """Radius of that ball if all bounds are declared: 1 for a number, √(4(1 − 1/k)) for k indicators."""
        counts = np.maximum(self.exclusive, 1.0)
        return sqrt(fsum(np.where(self.exclusive > 0, 4 * (1 - 1 / counts) / counts, 1.0).tolist()))

    @cached_property
    def diameter(self) -> float:
        """Largest distance between two images there: 2 for a number, √8 for k indicators."""
        counts = np.maximum(self.exclusive, 1.0)
        return sqrt(fsum(np.where(self.exclusive > 0, 8 / counts, 4.0).tolist()))

    @property
    def l1_diameter(self) -> float:
        """Largest L1 distance between two images there: 2 for a number, 4 for k indicators."""
        counts = np.maximum(self.exclusive, 1.0)
        return fsum(np.where(self.exclusive > 0, 4 / counts, 2.0).tolist())

    @property
    def numbers(self) -> tuple[int, ...]:
        """Places of the features that are numbers or dates, and no indicators."""
        return tuple(place for place, feature in enumerate(self.features) if not feature.is_share)

    @property
    def is_bounded(self) -> bool:
        """Whether public facts tell the scale of every feature."""
        return bool(np.isfinite(self._bounds).all())

    @property
    def _ends(self) -> Array:
        """(2, features) what becomes −1 and 1."""
        return np.where(np.isfinite(self._bounds).all(axis=0), self._bounds, [[-1.0], [1.0]])

    @cached_property
    def _bounds(self) -> Array:
        """(2, features) lower and upper bounds."""
        return np.array([feature.ends for feature in self.features], dtype=np.float64).reshape(-1, 2).T

    @cached_property
    def _places(self) -> list[int]:
        """Columns of the features."""
        return [feature.column for feature in self.features]

    @cached_property
    def _levels(self) -> tuple[Array, Truths]:
        """(most, features) levels of each feature, NaN where it has fewer, and whether it has one."""
        most = max((len(feature.levels) for feature in self.features), default=0)
        levels = np.full((most, len(self.features)), np.nan)
        for place, feature in enumerate(self.features):
            levels[: len(feature.levels), place] = feature.levels
        return levels, np.array([bool(feature.levels) for feature in self.features])

    @cached_property
    def _gaps(self) -> tuple[Array, Truths] | None:
        """(features,) fills of gaps, NaN where there is none, and which tell gaps; None without either."""
        fills = np.array([np.nan if f.fill is None else f.fill for f in self.features])
        is_gap = np.array([feature.gap for feature in self.features])
        return (fills, is_gap) if is_gap.any() or not np.isnan(fills).all() else None

    def __call__(self, rows: Array) -> Array:
        """The images (..., width) of (..., columns) stored rows. It takes any floats and never raises.

        What no feature needs is skipped: that depends on the schema alone.
        """
        # Fancy indexing puts each column's values side by side in memory, so that all below is fast.
        values = rows[..., self._places]
        (levels, is_level), gaps = self._levels, self._gaps
        missing: Truths | None = None
        if gaps is not None:
            missing = np.isnan(values)
            np.copyto(values, gaps[0], where=missing)
        equal: Truths | None = None
        for each in levels:  # one, unless an indicator is of several categories
            equal = values == each if equal is None else equal | (values == each)
        np.clip(values, *self._bounds, out=values)
        if gaps is not None and missing is not None:
            missing &= gaps[1]
            equal = missing if equal is None else equal | missing
            is_level = is_level | gaps[1]
        if equal is not None:
            np.copyto(values, equal, where=is_level)
        if self.form != "labelled":
            with np.errstate(all="ignore"):
                values -= self.middle
                values /= self.half
            return values
        assert self.label is not None  # noqa: S101 - of this form
        return np.concatenate([values, self._classes(rows[..., self.label])[..., None]], axis=-1)

    def _classes(self, labels: Array) -> Array:
        """Places of labels among their classes, gaps included."""
        assert self.label is not None  # noqa: S101 - as in __call__
        column = self.columns[self.label]
        gap = len(column.values) if column.missing == "category" else column.fill
        return np.where(np.isnan(labels), np.nan if gap is None else gap, labels)

    def dummy(self, count: int, rng: np.random.Generator) -> Array:
        """Synthetic stored rows, (count, columns), made of what is declared alone."""
        return dummy_rows(self.columns, count, rng)


def dummy_rows(columns: tuple[Column, ...], count: int, rng: np.random.Generator) -> Array:
    """Synthetic rows, (count, columns), spread evenly over bounds and categories, with some gaps.

    The first of many rows are the same as those of few. A column without bounds is spread over [0, 1), one
    of whole numbers or dates over a hundred of them.
    """
    drawn = rng.random((count, 2, len(columns)))
    spans = [_span(column) for column in columns]
    low, width = (np.array(part) for part in zip(*spans, strict=True))
    rows = low + drawn[:, 0] * width
    whole = np.array([column.type != "number" for column in columns])
    rows = np.where(whole, np.floor(rows), rows)
    gaps = np.array([column.missing != "refused" for column in columns]) & (drawn[:, 1] < _GAPS)
    return np.where(gaps, np.nan, rows)


def _span(column: Column) -> tuple[float, float]:
    """The least value of a dummy, and by how much others exceed it."""
    if not column.is_ordered:
        return 0.0, float(len(column.values))
    one = 0.0 if column.type == "number" else 1.0
    usual = 100.0 if one else 1.0
    low = column.low if column.low is not None else 0.0 if column.high is None else column.high - usual
    return low, (low + usual - one if column.high is None else column.high) - low + one

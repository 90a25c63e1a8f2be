"""`Column`: what an owner declares about a column of a table, and the features that a column becomes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from math import inf, isfinite, isnan
from typing import Literal

from privest.resolution import MetadataFault, bounds_faults, number_faults

ColumnType = Literal["number", "integer", "category", "boolean", "date"]

Missing = Literal["refused", "category", "filled"]
"""What a gap is: a fault, a category of its own, or a public value with an indicator beside it."""

MISSING = "missing"
"""The class of a label that is missing, where gaps are a category of their own."""

_TRUTH = ("false", "true")

Levels = tuple[int, ...]
"""Categories that one indicator stands for, as places among a column's values; gaps come after all values."""

Indicators = tuple[Levels, ...]
"""The indicators of a column: the categories of each. Those that none stands for are the reference."""

MERGED = "|"
"""What stands between the categories of one indicator in its name."""

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
        """Whether both bounds are public."""
        return isfinite(self.ends[0]) and isfinite(self.ends[1])

    @property
    def is_share(self) -> bool:
        """Whether its mean is a share of the records."""
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
        """Whether public facts tell its scale."""
        return self.type in ("category", "boolean") or (self.low is not None and self.high is not None)

    @property
    def is_ordered(self) -> bool:
        """Whether its values are numbers or dates."""
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
        """Whether a number is within the bounds that there are; no number is."""
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
        """Whether its features are indicators of categories."""
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

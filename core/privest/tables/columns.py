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
        level: place of the category that it indicates; None for a value.
        gap: whether it indicates that the value is missing.
    """

    name: str
    column: int
    type: ColumnType
    low: float | None = 0.0
    high: float | None = 1.0
    fill: float | None = None
    level: int | None = None
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
        return self.level is not None or self.gap or self.type == "boolean"


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
    """

    name: str
    type: ColumnType
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] = ()
    missing: Missing = "refused"
    fill: float | None = None

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

    def features(self, place: int) -> Iterator[Feature]:
        """Its features, if it has this place in the table: a value or indicators, and one of gaps."""
        if self.type == "category" or self.missing == "category":
            for level, value in enumerate(self.values):
                yield Feature(f"{self.name}={value}", place, self.type, fill=self.fill, level=level)
        elif self.type == "boolean":
            yield Feature(self.name, place, self.type, fill=self.fill)
        else:
            yield Feature(self.name, place, self.type, self.low, self.high, self.fill)
        if self.missing != "refused":
            yield Feature(f"{self.name} missing", place, self.type, gap=True)

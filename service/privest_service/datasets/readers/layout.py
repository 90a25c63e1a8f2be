"""The layout of a file, and how the columns of a table become numbers."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import isfinite, nan, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.data.tables import Column
from privest_service.datasets.readers.dates import DateFormat, day
from privest_service.datasets.readers.marks import GAPS, Marked
from privest_service.datasets.readers.numbers import NumberFormat
from privest_service.problems import Fault
from privest_service.upload_errors import RefusedUploadError, refusal
from privest_service.validation import MOST_FAULTS

Texts = NDArray[np.object_]
"""Strings, of some formats also numbers and truth values, and None where there is none."""

_MOST_NAMES = 5
"""Names of missing columns that one refusal lists."""

ABSENT, TWICE = -1, -2
"""Places of columns that a file has not, or more than once."""

_NAMELESS = "must not be empty, NA, NaN, null or none: write whose row it is, or leave the row out"

LineOf = Callable[[int], int]
"""The line with a record of a file."""

NOT_ONCE = {ABSENT: "is not in the file", TWICE: "is in the file more than once"}


@dataclass(frozen=True)
class Layout:
    """The form of a raw record in a file.

    Attributes:
        raw: shape of the array that holds one.
        names: of its columns in a table, in the record's order; None where all columns in file order are it.
        categories: of columns that hold no numbers, by name: their places become the numbers.
        unit: the column that names whose row it is.
        partial: whether entries may be missing, which NaN then stands for, and not only for a fault.
        header: whether the first line of a csv file names its columns; None where nobody said so.
        columns: of a typed table, whose cells are read as these say; None for other layouts.
        formats: of dates whose year is not first, by names of columns.
        number_formats: of numbers that are not written plainly, by names of columns.
    """

    raw: tuple[int, ...]
    names: tuple[str, ...] | None = None
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    unit: str | None = None
    partial: bool = False
    header: bool | None = None
    columns: tuple[Column, ...] | None = None
    formats: Mapping[str, DateFormat] = field(default_factory=dict[str, DateFormat])
    number_formats: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def width(self) -> int:
        """Numbers in a raw record."""
        return prod(self.raw)

    @property
    def named(self) -> bool:
        """Whether a table must name its columns."""
        return self.names is not None or self.unit is not None

    def places(self, header: Sequence[str]) -> tuple[list[int], int | None]:
        """Find the columns of a record, in its order, and the column of the unit in a table's header.

        Of a typed table a column that is not there has the place `ABSENT`, and one that is there twice
        `TWICE`: they are told with what is wrong in the others.

        Raises:
            RefusedUploadError: a column is missing, or one is there twice; of a typed table all are.
        """
        if self.columns is not None:
            return self._typed_places(header)
        found = {name.strip(): place for place, name in enumerate(header)}
        wanted = {*(self.names or ()), *([self.unit] if self.unit else [])}
        if missing := sorted(wanted - found.keys()):
            shown = ", ".join(missing[:_MOST_NAMES]) + (", …" if len(missing) > _MOST_NAMES else "")
            raise refusal(f"must name every column of the schema; missing: {shown}")
        if len(found) != len(header):
            raise refusal("must name every column once")
        if self.names is not None:
            chosen = [found[name] for name in self.names]
        else:
            chosen = [place for name, place in found.items() if name != self.unit]
        return chosen, found[self.unit] if self.unit else None

    def _typed_places(self, header: Sequence[str]) -> tuple[list[int], int | None]:
        places = dict[str, int]()
        for place, name in enumerate(name.strip() for name in header):
            places[name] = TWICE if name in places else place
        found = [places.get(name, ABSENT) for name in self.names or ()]
        if all(place < 0 for place in found):
            raise RefusedUploadError(
                [
                    Fault(field=name, rule=NOT_ONCE[at])
                    for name, at in zip(self.names or (), found, strict=True)
                ]
            )
        return found, places.get(self.unit, ABSENT) if self.unit else None

    def is_text(self, place: int) -> bool:
        """Whether a column of a record holds categories."""
        return self.names is not None and self.names[place] in self.categories

    def field(self, place: int) -> str:
        """A column of a record, by name, else by its place."""
        return f"[{place}]" if self.names is None else self.names[place]

    def dater(self, place: int) -> Callable[[str], float]:
        """Return a function from a text in a column of dates to its day; NaN for any other text."""
        return partial(day, form=self.formats.get(self.field(place)))

    def written(self, place: int) -> NumberFormat | None:
        """How numbers of a column are written; None where they are plain."""
        sample = self.number_formats.get(self.field(place))
        return None if sample is None else NumberFormat.of(sample)

    def coder(self, place: int) -> Callable[[str | float | None], float]:
        """Return a function from a value in a column of categories to its place; -1 for any other value."""
        assert self.names is not None  # noqa: S101 - as is_text
        places = self._places[self.names[place]]

        def code(given: str | float | None) -> float:
            if given is None:
                return -1.0
            text = given.strip() if isinstance(given, str) else string_form(given)
            return places.get(text, places.get(string_form(text), -1.0))

        return code

    @cached_property
    def _places(self) -> dict[str, dict[str, float]]:
        """The places of each column's categories, by all forms: many, for many blocks of rows."""
        return {name: _places(known) for name, known in self.categories.items()}


@dataclass(frozen=True)
class Block:
    """Some raw records in a row.

    Attributes:
        rows: (k, *raw), with -1 for what is no category and NaN for what is missing.
        units: (k,) names of whose they are.
        faults: what could not be read; NaN stands there.
        marked: what each cell of a typed table is.
    """

    rows: Array
    units: Texts | None = None
    faults: tuple[Fault, ...] = ()
    marked: Marked | None = None


def block_of(
    columns: Sequence[Array | Texts],
    units: Texts | None,
    layout: Layout,
    start: int,
    line_of: LineOf | None = None,
) -> Block:
    """The columns of a table, chosen and in order, as raw records.

    Args:
        columns: (k,) numbers or texts each.
        units: (k,) names of whose they are, where the layout has such a column.
        layout: what a record is.
        start: index of the first of these records in the file.
        line_of: the line with a record of the file, where it has lines.
    """
    faults: list[Fault] = []
    rows = np.empty((len(columns[0]) if columns else 0, len(columns)))
    for place, column in enumerate(columns):
        if layout.is_text(place):
            rows[:, place] = _coded(column, layout.coder(place))
        elif column.dtype == object:
            rows[:, place], wrong = _parsed(column, layout)
            faults.extend(
                Fault(record=start + at, field=layout.field(place), rule="must be a number") for at in wrong
            )
        else:
            rows[:, place] = column
    units, nameless = named_units(units, layout, start, line_of)
    return Block(rows.reshape(-1, *layout.raw), units, (*faults, *nameless))


def named_units(
    units: Texts | None, layout: Layout, start: int, line_of: LineOf | None
) -> tuple[Texts | None, tuple[Fault, ...]]:
    """The names of units as they are known, and faults for the first rows without one.

    A gap is no name, however it is written: all rows of unknown people would be one record.
    """
    if units is None:
        return None, ()
    known: dict[Any, str] = {}  # a name may be long, and said often
    names = [known[name] if name in known else known.setdefault(name, unit_of(name)) for name in units]
    gaps = {name for name in known.values() if name.lower() in GAPS}
    units = np.array([*names, None], dtype=object)[:-1]
    nameless = [start + at for at, name in enumerate(names) if name in gaps][:MOST_FAULTS] if gaps else []
    return units, tuple(
        Fault(
            record=record,
            field=layout.unit,
            rule=_NAMELESS + ("" if line_of is None else f" (line {line_of(record)})"),
        )
        for record in nameless
    )


def coded_rows(rows: Array, layout: Layout) -> Array:
    """(k, *raw) where the columns of categories are numbers themselves, by their shortest form."""
    texts = [place for place in range(layout.width) if layout.is_text(place)]
    if not texts:
        return rows
    rows = np.array(rows, dtype=np.float64)
    for place in texts:
        rows[:, place] = _coded(rows[:, place], layout.coder(place))
    return rows


def unit_of(name: Any) -> str:
    """A unit's name as it is written, but for outer spaces and composed letters; of numbers the shortest."""
    if isinstance(name, str):
        return unicodedata.normalize("NFC", name.strip())
    return _short(name) if isinstance(name, int | float) and not isinstance(name, bool) else ""


def string_form(given: str | float) -> str:
    """The text that stands for a class or category, and for a cell that holds one.

    A number is its shortest form, so that 1, 1.0 and "1.0" are "1". A truth value is "true" or "false", so
    that True, "True" and "TRUE" are "true". Any other text is itself.
    """
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, int | float):
        return _short(given)
    text = _normal(given.strip())
    return text.lower() if text.lower() in _TRUTH else text


_TRUTH = {"true": "1", "false": "0", "1": "true", "0": "false"}


def _other_form(category: str) -> str:
    """The number of a truth value, and the truth value of 0 and 1: files often hold one for the other."""
    form = string_form(category)
    return _TRUTH.get(form, form)


def _places(known: Sequence[str]) -> dict[str, float]:
    places = {category: float(at) for at, category in enumerate(known)}
    for form in (string_form, _other_form):  # no form of one category hides another
        for at, category in enumerate(known):
            places.setdefault(form(category), float(at))
    return places


def _normal(text: str) -> str:
    """Return the shortest form of a finite number, whole numbers of any length, else the text itself."""
    if "_" in text:  # of programs, not of data
        return text
    try:
        return str(int(text))
    except ValueError:
        pass
    try:
        return _short(float(text)) or text  # "Inf" may be a category: its form is not that of a gap
    except ValueError:
        return text


def _short(number: float) -> str:
    if isinstance(number, int):
        return str(int(number))
    if not isfinite(number):
        return ""
    return str(int(number)) if number.is_integer() else repr(float(number))


def _coded(column: Array | Texts, code: Callable[[Any], float]) -> Array:
    if column.dtype == object:
        known: dict[tuple[type, Any], float] = {}  # True, 1 and 1.0 are equal keys
        keys = [(type(v), v) for v in column]
        return np.array([known[k] if k in known else known.setdefault(k, code(k[1])) for k in keys])
    values, places = np.unique(column, return_inverse=True)
    # What is not finite stays so: that is the rule it breaks.
    return np.array([code(v) if isfinite(v) else v for v in values.tolist()], dtype=np.float64)[places]


def _parsed(column: Array | Texts, layout: Layout) -> tuple[Array, list[int]]:
    """Numbers, and the places of what is none."""
    found, wrong = np.full(len(column), nan), list[int]()
    for at, text in enumerate(column):
        try:
            if isinstance(text, bool) or (isinstance(text, str) and "_" in text):  # of programs, not of data
                raise ValueError
            if layout.partial and isinstance(text, str) and not text.strip():
                continue
            found[at] = nan if text is None else float(text)
        except (ValueError, TypeError, OverflowError):
            wrong.append(at)
    return found, wrong

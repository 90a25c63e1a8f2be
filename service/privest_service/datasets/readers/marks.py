"""Marks on the cells of a table's columns, their counts, and the fault that a column has by them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from privest.data.tables import Column
from privest_service.problems import Fault

GAPS = ("", "na", "n/a", "nan", "null", "none")
"""Texts, in small letters, that stand for a gap in a column of any type."""


class Mark(IntEnum):
    """What a cell is. From `MISSING` on it is a fault; before, a column of other cells may make it one."""

    FINE = 0
    POINT = 1
    COMMA = 2
    DOUBTFUL = 3
    MISSING = 4
    TEXT = 5
    THOUSANDS = 6
    UNKNOWN = 7
    BROKEN = 8
    DATE = 9
    INFINITE = 10
    NESTED = 11
    ABSENT = 12
    TWICE = 13


_RULES = {
    Mark.POINT: "a decimal point in {rows} of a file with decimal commas; write either",
    Mark.DOUBTFUL: "a comma in {rows} that may be of thousands or of decimals; say which: "
    '"number_format": "1,234.5" or "1234,5"',
    Mark.MISSING: '{count} missing; choose what a gap is: "missing": "filled", with a public "fill"',
    Mark.TEXT: "text in {rows} of a column of numbers; write a number there, or nothing for a gap",
    Mark.THOUSANDS: "thousands separators in {rows}; write 1234.5",
    Mark.DATE: "dates in {rows}; declare a date",
    Mark.INFINITE: "not finite in {rows}",
    Mark.NESTED: "neither numbers, texts nor dates in {rows}; leave the column out",
    Mark.ABSENT: "is not in the file",
    Mark.TWICE: "is in the file more than once",
}
_OF_MOST = {
    Mark.TEXT: "text in {rows}; declare categories",
    (Mark.UNKNOWN, "boolean"): "neither true nor false in {rows}; declare categories",
}
"""Rules for columns of which most cells are so: that is no slip of a hand, but another type."""

_GAP = '{count} missing; choose what a gap is: "missing": "category", or "filled" with a public "fill"'
_BY_TYPE = {
    (Mark.MISSING, "category"): _GAP,
    (Mark.MISSING, "boolean"): _GAP,
    (Mark.BROKEN, "integer"): "not whole in {rows}; declare a number",
    (Mark.UNKNOWN, "category"): "none of the categories in {rows}; declare them all",
    (Mark.UNKNOWN, "boolean"): "neither true nor false in {rows}; write true or false",
}


@dataclass(frozen=True)
class Marked:
    """The marks on the cells of some rows.

    Attributes:
        cells: (k, columns) marks.
        line_of: the line with a record of the file, as a spreadsheet counts it, where the file has lines.
        forms: formats in which cells that are no dates or numbers would be some, with the number of these, by
            places of columns.
    """

    cells: NDArray[np.uint8]
    line_of: Callable[[int], int] | None = None
    forms: Mapping[int, "Counter[str]"] = field(default_factory=dict[int, "Counter[str]"])


@dataclass
class _Count:
    """How many cells of a column have a mark, and the first record with it."""

    cells: int
    record: int


@dataclass
class Tally:
    """Counts of the marks on all cells of a file."""

    columns: Sequence[Column]
    formats: Mapping[str, str]
    number_formats: Mapping[str, str]
    _found: dict[tuple[int, Mark], _Count] = field(default_factory=dict[tuple[int, Mark], _Count])
    _forms: defaultdict[int, "Counter[str]"] = field(default_factory=lambda: defaultdict(Counter))
    _line_of: Callable[[int], int] | None = None
    _records: int = 0

    def add(self, marked: Marked, start: int) -> None:
        """Count the marks of the rows from record `start` on."""
        self._line_of, self._records = marked.line_of, start + len(marked.cells)
        for place, forms in marked.forms.items():
            self._forms[place] += forms
        for mark in map(Mark, np.unique(marked.cells).tolist()):
            hits = marked.cells == mark
            for place in np.flatnonzero(hits.any(axis=0)).tolist() if mark else ():
                first = int(np.argmax(hits[:, place]))
                known = self._found.setdefault((place, mark), _Count(0, start + first))
                known.cells += int(hits[:, place].sum())

    @property
    def wrong(self) -> list[tuple[int, Mark]]:
        """Columns with marks that are faults, in their order; none while every cell can be taken."""
        commas = any(mark is Mark.COMMA for _, mark in self._found)
        doubts = Mark.POINT if commas else Mark.DOUBTFUL
        return sorted((place, mark) for place, mark in self._found if mark >= Mark.MISSING or mark is doubts)

    def faults(self) -> list[Fault]:
        """What is wrong with the columns, in words."""
        return [self._fault(place, mark) for place, mark in self.wrong]

    def _fault(self, place: int, mark: Mark) -> Fault:
        column, count = self.columns[place], self._found[place, mark]
        if mark >= Mark.ABSENT:
            return Fault(field=column.name, rule=_RULES[mark])
        gaps = self._found.get((place, Mark.MISSING))
        most = 2 * count.cells > self._records - (gaps.cells if gaps else 0)
        of_most = _OF_MOST.get(mark) or _OF_MOST.get((mark, column.type)) if most else None
        formatted = ""
        if (mark, column.type) == (Mark.BROKEN, "date"):
            formatted = self._of_dates(place)
        elif mark in (Mark.TEXT, Mark.THOUSANDS):
            formatted = self._of_numbers(place)
        rule = formatted or of_most or _BY_TYPE.get((mark, column.type)) or _RULES[mark]
        rows = f"{count.cells} row" + ("s" if count.cells > 1 else "")
        line = "" if self._line_of is None else f" (first in line {self._line_of(count.record)})"
        told = rule.format(count=count.cells, rows=rows) + line
        return Fault(record=count.record, field=column.name, rule=told)

    def _of_dates(self, place: int) -> str:
        """The rule that dates break, and the forms in which they would be some."""
        declared = self.formats.get(self.columns[place].name)
        told = f"neither ISO nor {declared} in {{rows}}" if declared else "not ISO in {rows}"
        return f"{told}; {self._fitting(place, 'format') or '2007-11-11 is'}"

    def _of_numbers(self, place: int) -> str:
        """The rule that numbers break that are not plain or as declared; none where no format helps."""
        declared = self.number_formats.get(self.columns[place].name)
        fitting = self._fitting(place, "number_format")
        if declared:
            fitting = fitting or f"write {declared}, or nothing for a gap"
            return f"not written as {declared} in {{rows}}; {fitting}"
        return f"thousands separators or signs in {{rows}}; {fitting}" if fitting else ""

    def _fitting(self, place: int, option: str) -> str:
        """The formats in which texts of a column would be read, as options of a schema."""
        return ", ".join(
            f'"{option}": "{form}" fits {n} of them' for form, n in self._forms[place].most_common(3)
        )

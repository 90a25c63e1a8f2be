"""csv files as people have them: encoding, delimiter, header, line numbers and rows of totals."""

import codecs
import csv
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as arrow_compute
from numpy.typing import NDArray

from privest_service.datasets.readers.layout import Layout
from privest_service.upload_errors import RefusedUploadError, refusal

pc: Any = arrow_compute

DELIMITERS = ",;\t|"

_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Encodings by the mark at the beginning of a file."""

PIECE = 2**20
_LONGEST = 2 * PIECE
csv.field_size_limit(_LONGEST)  # as Arrow reads a line in two pieces; Python's own limit is 2**17

_UNREADABLE = {
    "end of data": "has a quote in line {line} that is never closed, so that all after it is one cell",
    "field limit": "has a quote in line {line} that is never closed, or a cell of more than "
    f"{_LONGEST} letters",
}
"""What is wrong with a csv file by what Python's reader says of it."""

_TAIL = 2**16
"""Bytes at the end of a file in which its last line is sought."""

_TOTALS = frozenset(
    (
        *(
            "total",
            "totals",
            "grand total",
            "subtotal",
            "sum",
            "average",
            "mean",
            "summe",
            "gesamt",
            "insgesamt",
        ),
        *(
            "gesamtsumme",
            "durchschnitt",
            "mittelwert",
            "somme",
            "moyenne",
            "totale",
            "suma",
            "soma",
            "totaal",
        ),
    )
)
"""First cells, in small letters, of the row that a spreadsheet adds below the records."""


@dataclass(frozen=True)
class Dialect:
    """How a csv file is written.

    Attributes:
        encoding: of its bytes.
        delimiter: between cells.
        first: cells of the first line with anything on it, as many as each line has.
        written: how many of them the file has; blank ones follow.
        blank: lines before it.
        odd: whether the number of quotes is, so that one may be left open.
    """

    encoding: str
    delimiter: str
    first: list[str]
    written: int
    blank: int
    odd: bool


def dialect_of(source: Path, layout: Layout) -> Dialect:
    """Find the encoding of the whole file, and the delimiter by which its first line fits the layout best.

    Where lines end with a delimiter and the first does not, or the other way round, blank cells make up the
    difference.

    Raises:
        RefusedUploadError: it is in no encoding that is read, or its first line is too long.
    """
    encoding, quotes = _encoding(source)
    longest = PIECE + 64 * layout.width
    with source.open(encoding=encoding, newline="") as file:
        blank = 0
        while not (line := file.readline(longest)).strip() and line:
            blank += 1
        if len(line) == longest:
            raise refusal("has a first line that is too long for the number of columns in the schema")
        delimiter, first = _split(line, layout)
        second = _next_record(file, delimiter, longest)
    width = len(first)
    if second and named_cells(first) <= len(second) and named_cells(second) <= width:
        width = len(second)
    written = min(width, len(first))
    first = [*first[:width], *[""] * (width - written)]
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    return Dialect(name, delimiter, first, written, blank, quotes % 2 > 0)


def _split(line: str, layout: Layout) -> tuple[str, list[str]]:
    """The delimiter of a file, by its first line, and the cells of this line."""
    wanted = {*(layout.names or ()), layout.unit}

    def cells(delimiter: str) -> list[str]:
        try:
            return next(csv.reader([line], delimiter=delimiter, strict=True), [])
        except csv.Error:
            return []

    found = {delimiter: cells(delimiter) for delimiter in DELIMITERS}

    def fit(delimiter: str) -> tuple[int, bool]:
        known = len(wanted & {name.strip() for name in found[delimiter]})
        columns = layout.width + (layout.unit is not None)
        return known, layout.names is None and named_cells(found[delimiter]) == columns

    best = max(found, key=fit)
    return best, found[best]


def _next_record(file: TextIO, delimiter: str, longest: int) -> list[str]:
    """The cells of the next record of a file; none where it has no more, or cannot be read."""
    lines = iter(lambda: file.readline(longest), "")
    with suppress(csv.Error):
        for cells in csv.reader(lines, delimiter=delimiter):
            if len(cells) > 1 or (cells and cells[0].strip()):
                return cells
    return []


def named_cells(cells: list[str]) -> int:
    """How many cells there are, without blank ones at their end."""
    return next((count for count in range(len(cells), 0, -1) if cells[count - 1].strip()), 0)


def _encoding(source: Path) -> tuple[str, int]:
    """The encoding by its mark, else UTF-8 if all of the file is that, else that of Western Windows.

    With it comes the number of quotes.

    Raises:
        RefusedUploadError: it is none of these.
    """
    with source.open("rb") as file:
        begins = file.read(4)
    marked = next((name for mark, name in _ENCODINGS if begins.startswith(mark)), None)
    for encoding in (marked,) if marked else ("utf-8", "cp1252"):
        decoder, quotes = codecs.getincrementaldecoder(encoding)(), 0
        try:
            with source.open("rb") as file:
                while piece := file.read(PIECE):
                    text = decoder.decode(piece)
                    quotes += text.count('"')
                    if "\0" in text:
                        break
                else:
                    decoder.decode(b"", final=True)
                    return encoding, quotes
        except UnicodeDecodeError:
            continue
    raise refusal("is in no encoding that is read here: save it as UTF-8")


class Lines:
    """The lines of a csv file as a spreadsheet counts them, which is asked for where something is wrong.

    Args:
        source: the file.
        dialect: how it is written.
        header: whether its first line names the columns.
    """

    def __init__(self, source: Path, dialect: Dialect, *, header: bool = True) -> None:
        self._source, self._dialect = source, dialect
        self._before_records = dialect.blank + header

    def __call__(self, record: int) -> int:
        """The line of a record."""
        line = self._before_records + 1 + record  # as if no other were blank
        return line + int(np.searchsorted(self._before, line, side="right"))

    def too_many(self, record: int, cells: int) -> RefusedUploadError:
        """The refusal of a record with another number of cells than the header has columns."""
        columns = self._dialect.written
        return refusal(f"has {cells} cells in line {self(record)}, and {columns} columns in its header")

    def blank_among(self, records: int) -> int | None:
        """Return the first line with nothing on it that one of so many records follows; None without one."""
        before = self._before[self._before <= self._before_records + records]
        return int(before[0]) if len(before) else None

    @property
    def unreadable(self) -> str | None:
        """What is wrong in the first line that cannot be read, in words; None where all of them can."""
        with self._source.open(encoding=self._dialect.encoding, newline="") as file:
            rows, line = csv.reader(file, delimiter=self._dialect.delimiter, strict=True), 0
            try:
                for _ in rows:
                    line = rows.line_num
            except csv.Error as fault:
                told = next((words for error, words in _UNREADABLE.items() if error in str(fault)), None)
                return told and told.format(line=line + 1)
        return None

    @cached_property
    def _before(self) -> NDArray[np.int64]:
        """Blank lines, each numbered as if there were no other; of a cell of spaces, where more are due."""
        blank, several, skipped = array("q"), len(self._dialect.first) > 1, self._before_records
        with self._source.open(encoding=self._dialect.encoding, newline="") as file, suppress(csv.Error):
            rows = csv.reader(islice(file, skipped, None), delimiter=self._dialect.delimiter)
            for line, row in enumerate(rows, start=skipped + 1):
                if not row or (several and len(row) == 1 and not row[0].strip()):
                    blank.append(line - len(blank))
        return np.array(blank, dtype=np.int64)


def require_blank(
    batches: Iterator[pa.RecordBatch], surplus: list[str], refused: Callable[[int], RefusedUploadError]
) -> Iterator[pa.RecordBatch]:
    """Batches whose columns beyond the header are blank, as they are where lines end with a delimiter.

    Args:
        batches: of texts.
        surplus: names of the columns beyond the header.
        refused: the refusal of a record of the file, by its number.

    Raises:
        RefusedUploadError: a cell in such a column is not blank.
    """
    start = 0
    for batch in batches:
        for name in surplus:
            there = np.asarray(pc.not_equal(pc.utf8_trim_whitespace(batch.column(name)), ""))
            if there.any():
                raise refused(start + int(np.argmax(there)))
        yield batch
        start += batch.num_rows


def last_is_total(source: Path, dialect: Dialect, known: frozenset[str]) -> bool:
    """Whether the last line begins with a word for a total, and the line before it with something else.

    Args:
        source: the file.
        dialect: how it is written.
        known: categories, in small letters, which are no such words.
    """
    with source.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL - size % 2))  # a letter of UTF-16 has an even place
        tail = file.read()
    encoding = dialect.encoding
    if encoding == "utf-16":
        with source.open("rb") as file:
            encoding = "utf-16-le" if file.read(2) == codecs.BOM_UTF16_LE else "utf-16-be"
    lines = [line for line in tail.decode(encoding, errors="replace").splitlines() if line.strip()]
    words = [_first_cell(line, dialect.delimiter) for line in lines[-2:]]
    return len(words) == 2 and words[1] in _TOTALS - known and words[0] != words[1]


def _first_cell(line: str, delimiter: str) -> str:
    """The first cell of a line that is not blank, in small letters, without a colon at its end."""
    with suppress(csv.Error):
        for cell in next(csv.reader([line], delimiter=delimiter), []):
            if text := cell.strip().rstrip(":").strip():
                return text.casefold()
    return ""

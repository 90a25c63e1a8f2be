"""Typed tables, by pyarrow: the declared columns of csv, JSON, parquet and Arrow files, a batch at a time."""

import codecs
import csv
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from privest.arrays import Array
from privest_service.datasets.readers.cells import cells
from privest_service.datasets.readers.dates import fitting
from privest_service.datasets.readers.layout import TWICE, Block, Layout, Texts, named_units
from privest_service.datasets.readers.marks import Mark, Marked
from privest_service.problems import Fault
from privest_service.upload_errors import refusal

_DELIMITERS = ",;\t|"

_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Encodings by the mark at the beginning of a file."""

_PIECE = 2**20
_LONGEST = 2 * _PIECE
csv.field_size_limit(_LONGEST)  # as Arrow reads a line in two pieces; Python's own limit is 2**17

_UNREADABLE = {
    "end of data": "has a quote in line {line} that is never closed, so that all after it is one cell",
    "field limit": "has a quote in line {line} that is never closed, or a cell of more than "
    f"{_LONGEST} letters",
}
"""What is wrong with a csv file by what Python's reader says of it."""

Absent = int
"""The place of a column that is not there, or more than once."""

_MOST_BLANK = 2**20
"""Most lines with nothing but spaces on them: they are read one by one."""


def typed_block(
    columns: Sequence[pa.Array | Absent],
    units: Texts | None,
    layout: Layout,
    start: int,
    line_of: Callable[[int], int] | None = None,
) -> Block:
    """The declared columns of a batch as rows, with a mark for each cell.

    Args:
        columns: in the order of the layout; where the file has none or several of a name, the place that
            `Layout.places` tells.
        units: names of whose rows they are, where the layout has such a column.
        layout: what is declared.
        start: index of the first of these records in the file.
        line_of: the line with a record of the file, where it has lines.
    """
    assert layout.columns is not None  # noqa: S101 - of typed tables
    declared = enumerate(zip(columns, layout.columns, strict=True))
    n = max(0 if isinstance(array, int) else len(array) for array in columns)
    found = [
        _unread(array, n)
        if isinstance(array, int)
        else cells(array, column, layout.coder(at) if layout.is_text(at) else layout.dater(at))
        for at, (array, column) in declared
    ]
    values, marks = zip(*found, strict=True)
    units, faults = named_units(units, layout, start)
    if units is None and layout.unit is not None and start == 0:
        faults = (Fault(field=layout.unit, rule="must be in the file once, as it is the unit"),)
    forms = {
        at: _forms(array, marks[at])
        for at, array in enumerate(columns)
        if layout.columns[at].type == "date" and not isinstance(array, int)
    }
    return Block(np.stack(values, axis=1), units, faults, Marked(np.stack(marks, axis=1), line_of, forms))


def _forms(array: pa.Array, marks: NDArray[np.uint8]) -> "Counter[str]":
    """The forms in which a column's texts that are no dates would be some, with their numbers."""
    broken = marks == Mark.BROKEN
    texts = array.filter(pa.array(broken)).to_pylist() if broken.any() else ()
    return fitting(text for text in texts if isinstance(text, str))


def _unread(place: Absent, n: int) -> tuple[Array, NDArray[np.uint8]]:
    """The cells of a column that is not there, or more than once."""
    mark = Mark.TWICE if place == TWICE else Mark.ABSENT
    return np.full(n, np.nan), np.full(n, mark, dtype=np.uint8)


@dataclass(frozen=True)
class _Dialect:
    """How a csv file is written.

    Attributes:
        encoding: of its bytes.
        delimiter: between cells.
        header: names of columns.
        blank: lines before it.
        odd: whether the number of quotes is, so that one may be left open.
    """

    encoding: str
    delimiter: str
    header: list[str]
    blank: int
    odd: bool


def read_typed_csv(source: Path, layout: Layout) -> Generator[Block]:
    """The records of a csv file, whatever its delimiter and its encoding among the usual ones.

    Raises:
        RefusedUploadError: it has no header with the declared columns, or a line has too few or too many.
    """
    dialect = _dialect(source, layout)
    if not dialect.header:
        raise refusal("has no lines: its first is to name the columns")
    chosen, unit = layout.places(dialect.header)
    names = [f"{place}" for place in range(len(dialect.header))]
    wanted = [names[at] for at in (*chosen, *([unit] if unit is not None else [])) if at >= 0]
    start, lines = 0, _Lines(source, dialect)
    if dialect.odd and (fault := lines.unreadable):
        raise refusal(fault)
    try:
        for batch in _batches(source, dialect, names, wanted, lines):
            columns = [at if at < 0 else batch.column(names[at]) for at in chosen]
            units = (
                None
                if unit is None or unit < 0
                else np.array([*batch.column(names[unit]).to_pylist(), None], dtype=object)[:-1]
            )
            yield typed_block(columns, units, layout, start, lines)
            start += batch.num_rows
    except pa.ArrowInvalid:
        raise refusal(lines.unreadable or "is not a whole csv file") from None


class _Lines:
    """The lines of a csv file as a spreadsheet counts them, which is asked for where something is wrong."""

    def __init__(self, source: Path, dialect: _Dialect) -> None:
        self._source, self._dialect = source, dialect

    def __call__(self, record: int) -> int:
        """The line of a record."""
        line = self._dialect.blank + 2 + record  # as if no other were blank
        return line + int(np.searchsorted(self._before, line, side="right"))

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
        blank, several = array("q"), len(self._dialect.header) > 1
        with self._source.open(encoding=self._dialect.encoding, newline="") as file, suppress(csv.Error):
            rows = csv.reader(islice(file, self._dialect.blank + 1, None), delimiter=self._dialect.delimiter)
            for line, row in enumerate(rows, start=self._dialect.blank + 2):
                if not row or (several and len(row) == 1 and not row[0].strip()):
                    blank.append(line - len(blank))
        return np.array(blank, dtype=np.int64)


def _batches(
    source: Path, dialect: _Dialect, names: list[str], wanted: list[str], line_of: Callable[[int], int]
) -> Iterator[pa.RecordBatch]:
    """Batches of texts. Lines with nothing on them are left out."""
    wrong, blank = list[tuple[int, int]](), count()

    def note(row: Any) -> str:
        before = next(blank)  # each call but the last is about a blank line
        if row.actual_columns == 1 and not row.text.strip() and before < _MOST_BLANK:
            return "skip"
        wrong.append((row.number - dialect.blank - 2 - before, row.actual_columns))
        return "error"

    try:
        reader = arrow_csv.open_csv(
            source,
            arrow_csv.ReadOptions(
                use_threads=False,
                block_size=_PIECE + 64 * len(names),
                column_names=names,
                skip_rows=dialect.blank + 1,
                encoding=dialect.encoding,
            ),
            arrow_csv.ParseOptions(
                delimiter=dialect.delimiter,
                newlines_in_values=True,
                invalid_row_handler=note,
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )
        yield from reader
    except pa.ArrowInvalid:
        if wrong:
            record, cells_there = wrong[0]
            raise refusal(
                f"has {cells_there} cells in line {line_of(record)}, and {len(names)} columns in its header"
            ) from None
        raise


def _dialect(source: Path, layout: Layout) -> _Dialect:
    """The encoding of the whole file, and the delimiter by which its header has most declared columns.

    Raises:
        RefusedUploadError: it is in no encoding that is read, or its header is too long.
    """
    encoding, quotes = _encoding(source)
    longest = _PIECE + 64 * layout.width
    wanted = {*(layout.names or ()), layout.unit}
    with source.open(encoding=encoding, newline="") as file:
        blank = 0
        while not (line := file.readline(longest)).strip() and line:
            blank += 1
    if len(line) == longest:
        raise refusal("has a first line that is too long for the number of columns in the schema")

    def header(delimiter: str) -> list[str]:
        try:
            return next(csv.reader([line], delimiter=delimiter, strict=True), [])
        except csv.Error:
            return []

    headers = {delimiter: header(delimiter) for delimiter in _DELIMITERS}
    best = max(headers, key=lambda each: len(wanted & {name.strip() for name in headers[each]}))
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    return _Dialect(name, best, headers[best], blank, quotes % 2 > 0)


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
                while piece := file.read(_PIECE):
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


def texts_of(values: Sequence[Any]) -> pa.Array:
    """JSON's values as texts, which cells are then read from; what is none, as one that no column takes."""
    return pa.array([_text(value) for value in values], pa.large_string())


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else "[…]"

"""Typed tables, by pyarrow: the declared columns of csv, JSON, parquet and Arrow files, a batch at a time."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from privest.arrays import Array
from privest.data.tables import Column
from privest_service.datasets.readers import dates, numbers
from privest_service.datasets.readers.cells import cells
from privest_service.datasets.readers.csv_files import (
    PIECE,
    Dialect,
    Lines,
    dialect_of,
    last_is_total,
    require_blank,
)
from privest_service.datasets.readers.layout import TWICE, Block, Layout, Texts, named_units
from privest_service.datasets.readers.marks import Mark, Marked
from privest_service.problems import Fault
from privest_service.upload_errors import refusal

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
        else cells(
            array, column, layout.coder(at) if layout.is_text(at) else layout.dater(at), layout.written(at)
        )
        for at, (array, column) in declared
    ]
    values, marks = zip(*found, strict=True)
    units, faults = named_units(units, layout, start, line_of)
    if units is None and layout.unit is not None and start == 0:
        faults = (Fault(field=layout.unit, rule="must be in the file once, as it is the unit"),)
    forms = {
        at: _forms(array, layout.columns[at], marks[at])
        for at, array in enumerate(columns)
        if layout.columns[at].is_ordered and not isinstance(array, int)
    }
    return Block(np.stack(values, axis=1), units, faults, Marked(np.stack(marks, axis=1), line_of, forms))


def _forms(array: pa.Array, column: Column, marks: NDArray[np.uint8]) -> "Counter[str]":
    """The formats in which a column's texts that are no dates or numbers would be some, with counts."""
    is_date = column.type == "date"
    broken = np.isin(marks, [Mark.BROKEN] if is_date else [Mark.TEXT, Mark.THOUSANDS])
    texts = array.filter(pa.array(broken)).to_pylist() if broken.any() else ()
    return (dates if is_date else numbers).fitting(text for text in texts if isinstance(text, str))


def _unread(place: Absent, n: int) -> tuple[Array, NDArray[np.uint8]]:
    """The cells of a column that is not there, or more than once."""
    mark = Mark.TWICE if place == TWICE else Mark.ABSENT
    return np.full(n, np.nan), np.full(n, mark, dtype=np.uint8)


def read_typed_csv(source: Path, layout: Layout) -> Generator[Block]:
    """The records of a csv file, whatever its delimiter and its encoding among the usual ones.

    Raises:
        RefusedUploadError: it has no header with the declared columns, lines of another width, or of one
            column with gaps a line with nothing on it between two records.
    """
    assert layout.columns is not None  # noqa: S101 - of typed tables
    dialect = dialect_of(source, layout)
    if not dialect.first:
        raise refusal("has no lines: its first is to name the columns")
    chosen, unit = layout.places(dialect.first)
    names = [f"{place}" for place in range(len(dialect.first))]
    surplus = names[dialect.written :]
    wanted = [names[at] for at in (*chosen, *([unit] if unit is not None else [])) if at >= 0]
    start, lines = 0, Lines(source, dialect)
    if dialect.odd and (fault := lines.unreadable):
        raise refusal(fault)
    try:
        batches = _batches(source, dialect, names, list(dict.fromkeys([*wanted, *surplus])), lines)
        for batch in require_blank(batches, surplus, lambda record: lines.too_many(record, len(names))):
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
    has_gaps = layout.columns[0].missing != "refused"
    if start and len(names) == 1 and has_gaps and (line := lines.blank_among(start)) is not None:
        raise refusal(
            f"has nothing in line {line}, which may be a gap or an empty line: write NA there, or delete it"
        )
    known = frozenset(each.casefold() for column in layout.columns for each in column.categories)
    if start and last_is_total(source, dialect, known):
        rule = f"ends with a row of totals in line {lines(start - 1)}: delete it, and upload the rest"
        yield Block(np.empty((0, *layout.raw)), faults=(Fault(record=start - 1, rule=rule),))


def _batches(
    source: Path, dialect: Dialect, names: list[str], wanted: list[str], lines: Lines
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
                block_size=PIECE + 64 * len(names),
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
            raise lines.too_many(*wrong[0]) from None
        raise


def texts_of(values: Sequence[Any], point: str) -> pa.Array:
    """JSON's values as texts, which cells are then read from; what is none, as one that no column takes.

    Args:
        values: of one member of all objects.
        point: what the column's number format has before decimals.
    """
    return pa.array([_text(value, point) for value in values], pa.large_string())


def _text(value: Any, point: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).replace(".", point) if isinstance(value, int | float) else "[…]"

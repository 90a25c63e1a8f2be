"""Tables, by pyarrow: csv, parquet and Arrow IPC, a batch of rows at a time."""

from collections.abc import Generator, Iterator
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from privest.arrays import Array
from privest_service.datasets.readers.csv_files import (
    PIECE,
    Dialect,
    Lines,
    dialect_of,
    named_cells,
    require_blank,
)
from privest_service.datasets.readers.layout import Block, Layout, LineOf, Texts, block_of
from privest_service.datasets.readers.marks import GAPS
from privest_service.datasets.readers.room import Room
from privest_service.datasets.readers.typed import typed_block
from privest_service.problems import Fault
from privest_service.upload_errors import RefusedUploadError, refusal

_BATCH_NUMBERS = 2**18
"""Numbers in a batch of rows, about."""

_MOST_PARTS = 2_000_000
"""Most parts of a parquet footer: columns times row groups, and strings in it."""


_CONTINUES = b"\xff\xff\xff\xff"
"""Marker before each message of an Arrow stream."""

_STREAM_END = _CONTINUES + b"\0\0\0\0"
"""End of an Arrow stream. Without it a stream cut between two batches looks whole."""


def read_csv(source: Path, layout: Layout) -> Generator[Block]:
    """The records of a csv file, one a line.

    The first line is a header unless the layout says that there is none.

    Raises:
        RefusedUploadError: the first line may be a record and nobody said what it is, a line has too few
            columns or too many, or something in it is no number.
    """
    dialect = dialect_of(source, layout)
    first, named = dialect.first, named_cells(dialect.first)
    if not first:
        return
    header = _has_header(first[: max(named, layout.width)], layout)
    lines = Lines(source, dialect, header=header)
    names = [f"{place}" for place in range(len(first))]
    chosen, unit = layout.places(first[:named]) if layout.named else (list(range(len(first))), None)
    surplus = names[dialect.written :]
    if not layout.named and named <= layout.width < len(first):  # lines that end with a comma
        chosen, surplus = chosen[: layout.width], names[layout.width :]
    if len(chosen) != layout.width:
        raise refusal(f"must have {layout.width} columns", record=0)
    numbers = {names[at]: pa.float64() for place, at in enumerate(chosen) if not layout.is_text(place)}
    texts = {name: pa.string() for name in names}

    def batches(types: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        found = _csv_batches(source, dialect, names, types, layout, header=header)
        rule = f"must have {len(names) - len(surplus)} columns"
        return require_blank(found, surplus, lambda record: refusal(rule, record=record))

    start = 0
    try:
        for batch in batches(texts | numbers):
            yield _block(batch, chosen, unit, layout, start, lines)
            start += batch.num_rows
    except pa.ArrowInvalid:
        # Not what Arrow takes for a number: the rest as texts, where Python's word counts, and to say where.
        done, start = start, 0
        try:
            for batch in batches(texts):
                if start >= done:
                    yield _block(batch, chosen, unit, layout, start, lines)
                start += batch.num_rows
        except pa.ArrowInvalid:
            raise refusal("is not a whole csv file") from None


def _csv_batches(
    source: Path, dialect: Dialect, names: list[str], types: dict[str, Any], layout: Layout, *, header: bool
) -> Iterator[pa.RecordBatch]:
    wrong: list[int] = []
    skipped = dialect.blank + header

    def note(row: Any) -> str:
        wrong.append(row.number - 1 - skipped)
        return "error"

    try:
        reader = arrow_csv.open_csv(
            source,
            # One thread, so that lines have numbers. A line must fit a block.
            arrow_csv.ReadOptions(
                use_threads=False,
                block_size=PIECE + 64 * len(names),
                column_names=names,
                skip_rows=skipped,
                encoding=dialect.encoding,
            ),
            arrow_csv.ParseOptions(
                delimiter=dialect.delimiter, newlines_in_values=False, invalid_row_handler=note
            ),
            arrow_csv.ConvertOptions(
                column_types=types,
                null_values=[""] if layout.partial else [],
                true_values=[],
                false_values=[],
                strings_can_be_null=False,
            ),
        )
        yield from reader
    except pa.ArrowInvalid:
        if wrong:
            raise refusal(f"must have {len(names)} columns", record=wrong[0]) from None
        raise


def _has_header(first: list[str], layout: Layout) -> bool:
    """Whether the first line names columns: as the layout says, else by the line alone.

    Numbers may be names, such as years or the columns of a data frame without names, so that a line which
    holds one is never taken for either without being told.

    Raises:
        RefusedUploadError: that is to be said, or the schema names columns and there is no header.
    """
    if layout.header is None and not layout.named and any(map(_is_missing_or_number, first)):
        raise _of_the_header(
            "must be true if the first line names the columns, or false if it is the first record: "
            "it holds numbers or empty cells, so it may be either"
        )
    if layout.header is False and layout.named:
        raise _of_the_header(
            "must not be false, because this schema finds columns by the names in the first line"
        )
    return layout.header is not False


def _of_the_header(rule: str) -> RefusedUploadError:
    return RefusedUploadError([Fault(location="header", rule=rule)])


def _is_missing_or_number(text: str) -> bool:
    """Whether a field may be a record's rather than a column's name."""
    if text.strip().lower() in GAPS:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_parquet(source: Path, layout: Layout, room: Room) -> Generator[Block]:
    """The records of a parquet file.

    Raises:
        RefusedUploadError: its columns are others, or it says that it holds more than it may.
    """
    limits = {
        "memory_map": True,
        "thrift_string_size_limit": _MOST_PARTS * 64,
        "thrift_container_size_limit": _MOST_PARTS,
    }
    with parquet.ParquetFile(source, **limits) as file:
        schema, about = file.schema_arrow, file.metadata
        _chosen(schema, layout)
        declared = {*(layout.names or map(str.strip, schema.names)), layout.unit}
        wanted = list(dict.fromkeys(name for name in schema.names if name.strip() in declared))
        room.require(max(8 * about.num_rows * _width(layout), _unpacked(about, set(wanted))))
    # Texts stay codes of the ones that occur: else a long one, said often, would be copied as often.
    texts = [name for name in wanted if _is_text(schema.field(schema.names.index(name)).type)]
    with parquet.ParquetFile(source, **limits, metadata=about, read_dictionary=texts) as file:
        rows = max(1, _BATCH_NUMBERS // layout.width)
        yield from _blocks(file.iter_batches(batch_size=rows, columns=wanted, use_threads=False), layout)


def _unpacked(about: parquet.FileMetaData, wanted: set[str]) -> int:
    """Bytes to which the columns that are read unpack, as the file says."""
    size = 0
    for group in map(about.row_group, range(about.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in wanted or column.path_in_schema.split(".", 1)[0] in wanted:
                size += max(column.total_uncompressed_size, 8 * column.num_values)
    return size


def _width(layout: Layout) -> int:
    """Numbers and texts that are read of a row."""
    return layout.width + (layout.unit is not None)


def read_arrow(source: Path, layout: Layout, room: Room) -> Generator[Block]:
    """The records of an Arrow IPC file or stream.

    Raises:
        RefusedUploadError: its columns are others, or a batch holds more than it may.
    """
    with pa.memory_map(str(source)) as mapped:
        begins = mapped.read(6)
        is_file = begins == b"ARROW1"
        if not (is_file or begins.startswith(_CONTINUES)):  # whose end can be any four bytes that are zero
            raise refusal("is not a whole arrow file (streams in the format before Arrow 0.15 are not read)")
        mapped.seek(0)
        reader = pa.ipc.open_file(mapped) if is_file else pa.ipc.open_stream(mapped)
        _chosen(reader.schema, layout)
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            batches = iter(reader)
        yield from _blocks(_pieces(batches, layout, room), layout)
        if not is_file:
            mapped.seek(max(0, mapped.tell() - len(_STREAM_END)))
            if mapped.read(len(_STREAM_END)) != _STREAM_END:
                raise refusal("is not a whole Arrow stream: its writer must close it")


def _pieces(batches: Iterator[pa.RecordBatch], layout: Layout, room: Room) -> Iterator[pa.RecordBatch]:
    rows = max(1, _BATCH_NUMBERS // layout.width)
    for batch in batches:
        room.require(
            cells := 8 * batch.num_rows * _width(layout)
        )  # of nulls there may be any number in no bytes
        # What was unpacked of columns that nobody asked for; dictionaries are shared by batches.
        room.take(max(0, sum(each.nbytes for each in batch.columns if not _is_coded(each)) - cells))
        batch.validate(full=True)  # offsets of a hostile file lead anywhere
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _blocks(batches: Iterator[pa.RecordBatch], layout: Layout) -> Generator[Block]:
    start = 0
    for batch in batches:
        chosen, unit = _chosen(batch.schema, layout)
        yield _block(batch, chosen, unit, layout, start)
        start += batch.num_rows


def _chosen(schema: pa.Schema, layout: Layout) -> tuple[list[int], int | None]:
    chosen, unit = layout.places(schema.names)
    lists = layout.names is None and len(chosen) == 1 and _is_list(schema.field(chosen[0]).type)
    if not lists and len(chosen) != layout.width:
        raise refusal(f"must have {layout.width} columns, or one column with lists of {layout.width} numbers")
    return chosen, unit


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _block(
    batch: pa.RecordBatch,
    chosen: list[int],
    unit: int | None,
    layout: Layout,
    start: int,
    line_of: LineOf | None = None,
) -> Block:
    units = None if unit is None or unit < 0 else _texts(batch.column(unit), start)
    if layout.columns is not None:
        columns = [at if at < 0 else batch.column(at) for at in chosen]
        return typed_block(columns, units, layout, start)
    if len(chosen) == 1 and _is_list(batch.column(chosen[0]).type):
        rows = _flattened(batch.column(chosen[0]), layout, start)
        found: list[Array | Texts] = list(rows.T)
    else:
        found = [_column(batch.column(at), layout, place, start) for place, at in enumerate(chosen)]
    return block_of(found, units, layout, start, line_of)


def _column(column: pa.Array, layout: Layout, place: int, start: int) -> Array | Texts:
    """Numbers, with NaN for what is missing; texts where they are wanted, or are all there is."""
    if isinstance(column, pa.DictionaryArray):
        values, codes = _used(column)
        return _spread(_column(values, layout, place, start), codes)
    kind = column.type
    if _is_text(kind) or (layout.is_text(place) and not pa.types.is_floating(kind)):
        return _texts(column, start)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    unknown = layout.partial and pa.types.is_null(kind)  # all of them
    if not (number or unknown or pa.types.is_boolean(kind)):
        raise refusal("must be a number", record=start, field=layout.field(place))
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _texts(column: pa.Array, start: int) -> Texts:
    if isinstance(column, pa.DictionaryArray):
        values, codes = _used(column)
        return _spread(_texts(values, start), codes)
    if not (_is_text(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        try:
            column = pc.cast(column, pa.string())
        except pa.ArrowException:
            raise refusal(
                "must be a text or a number in columns of categories and units", record=start
            ) from None
    return np.array([*column.to_pylist(), None], dtype=object)[:-1]


def _is_coded(column: pa.Array) -> bool:
    return isinstance(column, pa.DictionaryArray)


def _used(column: pa.DictionaryArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """The entries of a dictionary that occur, and where each row's is among them; -1 where it has none.

    So that an entry is looked at once, however long it is and however many rows have it.
    """
    codes = np.asarray(pc.cast(column.indices, pa.int64()).fill_null(-1))
    used, places = np.unique(codes, return_inverse=True)
    gaps = int(bool(len(used)) and used[0] < 0)
    return column.dictionary.take(pa.array(used[gaps:])), places - gaps


def _spread(found: Array | Texts, codes: NDArray[np.int64]) -> Any:
    """Look up what was found by each row's code. The code -1 gives NaN or None."""
    missing = np.array([None if found.dtype == object else nan], dtype=found.dtype)
    return np.concatenate([found, missing])[codes]


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _flattened(column: pa.Array, layout: Layout, start: int) -> Array:
    """(k, width) of a column of lists, nested or not."""
    count, width = len(column), layout.width
    values = column
    lengths = np.ones(count)
    if column.null_count:
        raise refusal("must not be missing", record=start + int(np.argmax(column.is_null())))
    while _is_list(values.type):
        each = np.asarray(pc.call_function("list_value_length", [values]), dtype=np.float64)
        if len(each) and (each != each[0]).any():
            at = int(np.argmax(each != each[0])) * count // len(each)
            raise refusal(f"must be lists of {width} numbers in all", record=start + at)
        lengths *= each[0] if len(each) else 0
        values = values.flatten()
    if count and lengths[0] != width:
        raise refusal(f"must be lists of {width} numbers in all", record=start)
    return np.asarray(_column(values, layout, 0, start), dtype=np.float64).reshape(count, width)

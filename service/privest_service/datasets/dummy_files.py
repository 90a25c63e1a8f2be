"""Synthetic rows of a table as a file, of the schema's types, in the media type that a caller likes best."""

import io
import re
from typing import Any, Literal, get_args

from privest.data.table_metadata import TableMetadata
from privest_service.datasets.service import dummy_rows

DummyMedia = Literal["text/csv", "application/vnd.apache.arrow.file", "application/vnd.apache.arrow.stream"]
"""What synthetic rows of a table come as, besides JSON."""

_FORMULA, _NUMBER = re.compile(r"\s*[=+@-]."), re.compile(r"[+-]?\d+(\.\d+)?")

_WHOLE = 2**63
"""Whole numbers of this size are no int64."""


def preferred(accept: str) -> DummyMedia | None:
    """The media type that an `Accept` header likes best; None for JSON, and where it names none of them."""
    liked = list[tuple[float, str]]()
    for part in accept.lower().split(","):
        media, _, quality = (each.strip() for each in part.partition(";"))
        try:
            liked.append((-float(quality.removeprefix("q=")) if quality.startswith("q=") else -1.0, media))
        except ValueError:
            continue
    known = [media for quality, media in sorted(liked, key=lambda each: each[0]) if quality < 0]
    found = next((media for media in known if media in (*get_args(DummyMedia), "application/json")), None)
    return next((media for media in get_args(DummyMedia) if media == found), None)


def harmless(text: str) -> str:
    """A cell that no spreadsheet takes for a formula, with an apostrophe before it where one would."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def dummy_file(shape: TableMetadata, most: int, media: DummyMedia) -> bytes:
    """The work of a worker: `service.dummy_rows` as a file.

    Raises:
        Invalid: as there.
    """
    import pyarrow as pa  # noqa: PLC0415 - for workers alone
    from pyarrow import csv  # noqa: PLC0415

    rows: Any = dummy_rows(shape, most)
    types = {
        "number": pa.float64(),
        "integer": pa.int64(),
        "category": pa.string(),
        "boolean": pa.bool_(),
        "date": pa.string(),
    }
    columns = dict[str, Any]()
    for column in shape.columns:
        values = [row[column.name] for row in rows]
        kind = types[column.type]
        if column.type == "integer" and any(value is not None and abs(value) >= _WHOLE for value in values):
            values, kind = [None if value is None else float(value) for value in values], pa.float64()
        array = pa.array(values, kind)
        columns[column.name] = array.cast(pa.date32()) if column.type == "date" else array
    table, file = pa.table(columns), io.BytesIO()
    if media == "text/csv":
        for place, column in enumerate(shape.columns):
            if column.type == "category":
                texts = [value and harmless(value) for value in table[place].to_pylist()]
                table = table.set_column(place, column.name, pa.array(texts, pa.string()))
        csv.write_csv(table.rename_columns(list(map(harmless, table.column_names))), file)
    else:
        new = pa.ipc.new_file if media.endswith("file") else pa.ipc.new_stream
        with new(file, table.schema) as writer:
            writer.write_table(table)
    return file.getvalue()

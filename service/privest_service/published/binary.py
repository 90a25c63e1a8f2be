"""Published answers as Parquet or Arrow: the work of a worker, which loads nothing else of the service."""

import io
from typing import Any, Literal

Ending = Literal["csv", "parquet", "arrow"]
"""How the names of files end."""

COLUMNS = {
    "name": "string",
    "place": "int32",
    "item": "string",
    "measure": "string",
    "value": "float64",
    "low": "float64",
    "high": "float64",
    "unit": "string",
    "off_by": "float64",
    "epsilon": "float64",
    "delta": "float64",
    "estimate": "string",
    "publisher_id": "string",
    "publisher": "string",
    "receipt": "string",
    "answered_at": "timestamp[us, tz=UTC]",
    "published_at": "timestamp[us, tz=UTC]",
}
"""The columns with their types in Arrow."""


def binary_file(columns: dict[str, list[Any]], ending: Ending) -> bytes:
    """The work of a worker: a table by columns as Parquet or Arrow."""
    import pyarrow as pa  # noqa: PLC0415 - for workers alone
    from pyarrow import parquet  # noqa: PLC0415

    types = {
        "string": pa.string(),
        "int32": pa.int32(),
        "float64": pa.float64(),
        "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"),
    }
    table = pa.table({name: pa.array(columns[name], types[told]) for name, told in COLUMNS.items()})
    file = io.BytesIO()
    if ending == "parquet":
        parquet.write_table(table, file)
    else:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return file.getvalue()

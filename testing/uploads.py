"""Files in every format that an upload may have, and what is read from them."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from privest_service.datasets.ingest import ingest
from privest_service.datasets.schemas import SCHEMA
from privest_service.formats import Format
from privest_service.upload_errors import RefusedUploadError
from testing.server import npy

FORMATS: tuple[Format, ...] = ("npy", "npz", "csv", "parquet", "arrow", "json")
TABLES: tuple[Format, ...] = ("csv", "parquet", "arrow", "json")

LIMIT = 2**24
"""Bytes that a file may unpack to."""


def taken(
    directory: Path,
    content: bytes,
    form: Format,
    schema: dict[str, Any],
    limit: int = LIMIT,
    header: bool | None = None,
) -> Any:
    """The digest and the rows that were stored; nothing else is left."""
    source, target = directory / "some.upload", directory / "some.npy"
    source.write_bytes(content)
    target.unlink(missing_ok=True)
    intake = SCHEMA.validate_json(json.dumps(schema)).intake().of_csv(header)
    try:
        found = ingest(str(source), form, intake, str(target), limit)
        rows = np.load(target, allow_pickle=False)
        assert len(rows) == found.n
        return found.digest, rows
    finally:
        assert {file.name for file in directory.iterdir()} <= {"some.upload", "some.npy"}


def refused(
    directory: Path,
    content: bytes,
    form: Format,
    schema: dict[str, Any],
    limit: int = LIMIT,
    header: bool | None = None,
) -> Any:
    """The faults, as (record, field, rule)."""
    with pytest.raises(RefusedUploadError) as told:
        taken(directory, content, form, schema, limit, header)
    return [(fault.record, fault.field, fault.rule) for fault in told.value.faults]


def table_as(table: pa.Table, form: Format, **how: Any) -> bytes:
    """A table in a format that has names."""
    file = io.BytesIO()
    if form == "csv":
        arrow_csv.write_csv(table, file)
    elif form == "parquet":
        parquet.write_table(table, file, row_group_size=7)
    elif form == "json":
        return json.dumps(table.to_pylist()).encode()
    else:
        with pa.ipc.new_stream(file, table.schema, options=pa.ipc.IpcWriteOptions(**how)) as writer:
            writer.write_table(table, max_chunksize=7)
    return file.getvalue()


def arrow_file(table: pa.Table) -> bytes:
    """A table as an Arrow file, which begins unlike a stream."""
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def rows_as(rows: np.ndarray, form: Format) -> bytes:
    """Without names: of tables all columns in order."""
    if form == "npy":
        return npy(rows)
    if form == "npz":
        file = io.BytesIO()
        np.savez_compressed(file, rows)
        return file.getvalue()
    if form == "json":
        return json.dumps(rows.tolist()).encode()
    flat = rows.reshape(len(rows), -1)
    return table_as(pa.table({f"c{at}": flat[:, at] for at in range(flat.shape[1])}), form)

"""Files that were mangled: a worker reads each whole or refuses it, soon and in little memory."""

import io
import json
import time
import zlib
from collections.abc import Iterator, Sequence
from csv import Error
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from tokenize import TokenError
from typing import Any, get_args
from unittest.mock import patch
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from audit.lines import Finding
from privest_service.datasets import ingest as ingest_module
from privest_service.datasets.ingest import ingest
from privest_service.datasets.schemas import SCHEMA
from privest_service.formats import Format
from privest_service.upload_errors import RefusedUploadError
from privest_service.workers.pool import Processes

FORMATS: tuple[Format, ...] = get_args(Format)
_ENDING: tuple[Format, ...] = ("npy", "npz", "parquet", "arrow", "json")
"""Formats that mark their end, so that a file cut short is refused."""

_MEMORY, _BYTES, _SECONDS = 2**29, 2**22, 2.0
_ROWS = 40

_AT_A_TIME = 500
"""Examples in one run of hypothesis, which remembers all of them in bounded memory."""

DRAWN: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "phases": [Phase.generate],
    "suppress_health_check": list(HealthCheck),
}
"""How hypothesis makes examples here: the same in every run, none of them tried again."""

_TABLES: tuple[dict[str, Any], ...] = (
    {"kind": "vectors", "dim": 3},
    {"kind": "partial-vectors", "dim": 3},
    {"kind": "vectors", "dim": 2, "unit": {"column": "c", "rows": 2}},
    {
        "kind": "labelled",
        "features": ["a", "b"],
        "label": "c",
        "classes": ["0", "1"],
        "categories": {"b": ["0", "1", "2"]},
    },
)
_ARRAYS = tuple(schema for schema in _TABLES if "unit" not in schema)
_BY_NAME = tuple(schema for schema in _TABLES if "unit" in schema or "features" in schema)

_KNOWN = (
    *(ValueError, EOFError, OSError, TokenError, BadZipFile, zlib.error, Error, pa.ArrowException),
    *(SyntaxError, OverflowError, NotImplementedError),
)
"""Errors that libraries raise for a file in no known format. Any other error is a fault of the service."""

_ALSO: dict[str, tuple[type[Exception], ...]] = {"npy": (MemoryError,), "npz": (MemoryError, RuntimeError)}
"""Further errors by format.

npy and npz raise them at headers that claim too many numbers, and npz at archives with a password.
"""

_Schemas = Sequence[dict[str, Any]]


def _wholes(form: Format) -> Iterator[tuple[bytes, _Schemas]]:
    """Files, and the schemas that each is good for."""
    place = np.arange(_ROWS)
    rows = np.column_stack([place + 0.5, place % 3, place % 2]).astype(np.float64)
    file = io.BytesIO()
    if form == "npy":
        np.save(file, rows)
    elif form == "npz":
        np.savez_compressed(file, rows)
    elif form == "json":
        yield json.dumps([dict(zip("abc", row, strict=True)) for row in rows.tolist()]).encode(), _BY_NAME
        file.write(json.dumps(rows.tolist()).encode())
    else:
        table = pa.table(dict(zip("abc", rows.T, strict=True)))
        if form == "csv":
            csv.write_csv(table, file)
        elif form == "parquet":
            parquet.write_table(table, file, row_group_size=7)
        else:
            stream = io.BytesIO()
            for sink, begin in ((file, pa.ipc.new_file), (stream, pa.ipc.new_stream)):
                with begin(sink, table.schema) as writer:
                    writer.write_table(table, max_chunksize=7)
            yield stream.getvalue(), _TABLES
    yield file.getvalue(), _ARRAYS if form in ("npy", "npz", "json") else _TABLES


_EXTREMES = [0, 1, 127, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1]


@st.composite
def mangled(draw: st.DrawFn, whole: bytes) -> bytes:
    """A file with bits turned, pieces lost, added or repeated, or numbers made extreme."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 5))):
        edge = draw(st.integers(0, min(256, len(content))))
        at = draw(st.sampled_from([edge, len(content) - edge, draw(st.integers(0, len(content)))]))
        how = draw(st.sampled_from(["flip", "cut", "insert", "drop", "repeat", "number", "digits"]))
        if how == "flip" and at < len(content):
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del content[at:]
        elif how == "insert":
            content[at:at] = draw(st.binary(max_size=20))
        elif how == "drop":
            del content[at : at + draw(st.integers(0, 40))]
        elif how == "repeat":
            content[at:at] = content[at : at + 64] * draw(st.integers(1, 4))
        elif how == "number":
            size = draw(st.sampled_from([1, 2, 4, 8]))
            number = draw(st.sampled_from(_EXTREMES)) % 256**size
            content[at : at + size] = number.to_bytes(size, "little")
        elif how == "digits":
            content[at : at + 2] = str(draw(st.sampled_from([-1, *_EXTREMES]))).encode()
    return bytes(content)


@dataclass
class Read:
    """Counts of files that were read, and faults that were found.

    Attributes:
        files: that were read.
        taken: of them.
        pieces: that were taken although a part of the file was missing.
        faults: anything else than rows or a refusal.
    """

    files: int = 0
    taken: int = 0
    pieces: int = 0
    faults: list[str] = field(default_factory=list)


def attack(form: Format, examples: int) -> Read:
    """Mangled and cut files of one format: the work of a worker process."""
    wholes, read = list(_wholes(form)), Read()
    with TemporaryDirectory() as directory:
        for whole, schemas in wholes:
            if any(_taken(Path(directory), whole, form, schema, read) is None for schema in schemas):
                read.faults.append(f"{form}: refused a good file")
            for at in range(1, len(whole), max(1, len(whole) // examples)):
                rows = _taken(Path(directory), whole[:at], form, schemas[at % len(schemas)], read)
                read.pieces += rows is not None

        def mangle(drawn: st.DataObject, known: tuple[bytes, _Schemas]) -> None:
            whole, schemas = known
            content, schema = drawn.draw(mangled(whole)), drawn.draw(st.sampled_from(schemas))
            _taken(Path(directory), content, form, schema, read)

        for begun in range(0, examples, _AT_A_TIME):
            how = settings(max_examples=min(_AT_A_TIME, examples - begun), **DRAWN)
            seed(begun)(how(given(st.data(), st.sampled_from(wholes))(mangle)))()
    return read


def _taken(directory: Path, content: bytes, form: Format, schema: dict[str, Any], read: Read) -> int | None:
    """How many records were stored; None if the file was refused."""
    source, target = directory / "some.upload", directory / "some.npy"
    source.write_bytes(content)
    target.unlink(missing_ok=True)
    begun, read.files = time.process_time(), read.files + 1
    intake = SCHEMA.validate_python(schema).intake()
    try:
        found = ingest(str(source), form, intake, str(target), _BYTES)
    except RefusedUploadError as refused:
        found, why = None, refused.__context__
        if why is not None and not isinstance(why, (*_KNOWN, *_ALSO.get(form, ()))):
            read.faults.append(f"{form}: refused for {type(why).__name__}")
    except Exception as error:
        read.faults.append(f"{form}: {type(error).__name__}")
        return None
    if time.process_time() - begun > _SECONDS:
        read.faults.append(f"{form}: took too long")
    if {file.name for file in directory.iterdir()} - {source.name, target.name}:
        read.faults.append(f"{form}: left something behind")
    if found is None:
        return None
    read.taken += 1
    rows = np.load(target)
    wrong = np.isinf(rows) if intake.layout.partial else ~np.isfinite(rows)
    if len(rows) != found.n or wrong.any():
        read.faults.append(f"{form}: stored what was not told")
    return found.n


def attack_broken(form: Format) -> Read:
    """Attack a reader into which a fault was put."""
    with patch.object(ingest_module, "read", lambda *_: iter([1 // 0])):
        return attack(form, 10)


def line(long: bool) -> Finding:
    """All formats, in a process whose memory is bounded."""
    worker = Processes(1, _MEMORY)
    try:
        read = {form: worker.call(3600, attack, form, 20_000 if long else 100).result() for form in FORMATS}
        broken = [worker.call(3600, attack_broken, form).result() for form in FORMATS]
    finally:
        worker.stop()
    faults = [fault for one in read.values() for fault in one.faults]
    pieces = sum(read[form].pieces for form in _ENDING)
    files, taken = (sum(getattr(one, what) for one in read.values()) for what in ("files", "taken"))
    return Finding(
        holds=not faults and not pieces and read["csv"].pieces > 0 and all(one.faults for one in broken),
        claimed=f"all of its records or a good reason, {_SECONDS:.0f} s, {_MEMORY // 2**20} MB",
        found="; ".join([f"{files} files, {taken} taken, {pieces} pieces taken", *sorted(set(faults))[:3]]),
        power=f"pieces of CSV, which has no end of its own: {read['csv'].pieces} taken; "
        f"a reader that divides by zero: seen in {sum(bool(one.faults) for one in broken)} formats",
    )

"""Arrays: npy, and npz with one array in it."""

import zipfile
from collections.abc import Generator
from pathlib import Path

import numpy as np

from privest.arrays import Array
from privest.data.records import blocks
from privest_service.datasets.readers.layout import Block, Layout, coded_rows
from privest_service.datasets.readers.room import Room
from privest_service.upload_errors import refusal

_PIECE = 2**20
_CHUNK = 2**24
"""Bytes of an array that are checked together."""


def read_npy(source: Path, layout: Layout) -> Generator[Block]:
    """The records of an npy file; of a table its columns in their order, NaN for a gap.

    Raises:
        RefusedUploadError: it is none, or of another shape.
    """
    if layout.unit is not None:
        raise refusal(
            "must be a table (csv, parquet or arrow), because the schema names a column as the unit"
        )
    if any(column.type in ("category", "date") for column in layout.columns or ()):
        raise refusal(
            "must be csv, parquet, arrow or json, as the table has dates or categories; an array of numbers "
            "has its columns in their order"
        )
    try:
        # Maps the file: nothing larger than it is ever allocated, and pickles are never loaded.
        rows = np.load(source, mmap_mode="r", allow_pickle=False, max_header_size=10_000)
    except Exception:  # whatever numpy's parser meets in a hostile header
        raise refusal("is not a whole npy file of numbers (pickled objects are never read)") from None
    if not isinstance(rows, np.ndarray):
        raise refusal("is not a whole npy file of numbers")
    if rows.dtype.kind not in "fiub":  # truth values are 0 and 1
        raise refusal("must have real numbers as entries")
    if rows.shape[1:] != layout.raw or rows.ndim == 0:
        raise refusal(f"must have the shape (n, {', '.join(map(str, layout.raw))})")
    step = max(1, _CHUNK // max(1, rows[:1].nbytes))
    for start in range(0, len(rows), step):
        for block in blocks(rows[start : start + step]):
            yield _block(np.array(block, dtype=np.float64), layout)


def _block(numbers: Array, layout: Layout) -> Block:
    if layout.columns is None:
        return Block(coded_rows(numbers, layout))
    import pyarrow as pa  # noqa: PLC0415 - for workers alone

    from privest_service.datasets.readers.typed import typed_block  # noqa: PLC0415 - which needs it

    return typed_block([pa.array(column) for column in numbers.T], None, layout, 0)


def read_npz(source: Path, layout: Layout, room: Room) -> Generator[Block]:
    """The records of the one array in an npz file.

    Raises:
        RefusedUploadError: there are several, or it unpacks to more than it may, whatever its header says.
    """
    member = source.with_suffix(".member")
    try:
        _extract(source, member, room)
        yield from read_npy(member, layout)
    finally:
        member.unlink(missing_ok=True)


def _extract(source: Path, target: Path, room: Room) -> None:
    with zipfile.ZipFile(source) as archive:
        members = archive.infolist()
        if len(members) != 1 or not members[0].filename.endswith(".npy"):
            raise refusal("must hold exactly one array in the npz file")
        room.require(members[0].file_size)
        with archive.open(members[0]) as packed, target.open("xb") as file:
            while piece := packed.read(_PIECE):
                room.take(len(piece))
                file.write(piece)

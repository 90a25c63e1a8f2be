"""The formats in which rows arrive, each read in blocks of bounded size by a module of its own."""

import gzip
from collections.abc import Generator, Iterator
from pathlib import Path

from privest_service.datasets.readers.arrays import read_npy, read_npz
from privest_service.datasets.readers.json_rows import read_json
from privest_service.datasets.readers.layout import Block, Layout, Texts, string_form
from privest_service.datasets.readers.room import Room
from privest_service.formats import Format

__all__ = ["Block", "Layout", "Texts", "read", "string_form"]

_GZIP = b"\x1f\x8b"
"""Beginning of a file that gzip packed."""

_PIECE = 2**20


def read(source: Path, form: Format, layout: Layout, limit: int) -> Generator[Block]:
    """The raw records of a file, in blocks.

    A file may be packed by gzip. What is packed in it may unpack to `limit` bytes.

    Raises:
        RefusedUploadError: it breaks a rule of the layout, or unpacks to more than its size allows.
        Exception: whatever the format's library meets in a file that is none; its words may quote the file.
    """
    with source.open("rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP  # as no file of these formats begins
    return (_unzipped if packed else _read)(source, form, layout, limit)


def _unzipped(source: Path, form: Format, layout: Layout, limit: int) -> Generator[Block]:
    """The records of a file that gzip has packed."""
    target, room = source.with_suffix(".unzipped"), Room(source.stat().st_size, limit)
    try:
        with gzip.open(source) as packed, target.open("xb") as file:
            while piece := packed.read(_PIECE):
                room.take(len(piece))
                file.write(piece)
        yield from _read(target, form, layout, limit)
    finally:
        target.unlink(missing_ok=True)


def _read(source: Path, form: Format, layout: Layout, limit: int) -> Generator[Block]:
    if form == "npy":
        return read_npy(source, layout)  # mapped as it is
    room = Room(source.stat().st_size, limit)
    if form == "npz":
        return read_npz(source, layout, room)
    return _counted(_packed(source, form, layout, room), room)


def _packed(source: Path, form: Format, layout: Layout, room: Room) -> Generator[Block]:
    if form == "json":
        return read_json(source, layout)
    from privest_service.datasets.readers import tables, typed  # noqa: PLC0415 - pyarrow, for workers alone

    if form == "csv":
        return (tables.read_csv if layout.columns is None else typed.read_typed_csv)(source, layout)
    return (tables.read_parquet if form == "parquet" else tables.read_arrow)(source, layout, room)


def _counted(blocks: Iterator[Block], room: Room) -> Generator[Block]:
    for block in blocks:
        room.take(8 * block.rows.size)
        yield block

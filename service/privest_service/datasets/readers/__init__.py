"""The formats in which rows arrive, each read in blocks of bounded size by a module of its own."""

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Literal

from privest_service.datasets.readers.arrays import read_npy, read_npz
from privest_service.datasets.readers.json_rows import read_json
from privest_service.datasets.readers.layout import Block, Layout, Texts, string_form

__all__ = ["Block", "Format", "Layout", "Texts", "format_of_name", "read", "string_form"]

Format = Literal["npy", "npz", "csv", "parquet", "arrow", "json"]

_ENDINGS: dict[str, Format] = {
    ".npy": "npy",
    ".npz": "npz",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".json": "json",
}


def format_of_name(name: str) -> Format | None:
    """The format that a file's name ends in."""
    return _ENDINGS.get(PurePath(name.lower()).suffix)


def read(source: Path, form: Format, layout: Layout, limit: int) -> Iterator[Block]:
    """The raw records of a file, in blocks.

    Args:
        source: the file.
        form: its format.
        layout: what a record in it is.
        limit: bytes that what is packed in it may unpack to.

    Raises:
        RefusedUploadError: it breaks a rule of the layout.
        Exception: whatever the format's library meets in a file that is none; its words may quote the file.
    """
    if form == "npy":
        return read_npy(source, layout)
    if form == "npz":
        return read_npz(source, layout, limit)
    if form == "json":
        return read_json(source, layout)
    from privest_service.datasets.readers import tables  # noqa: PLC0415 - pyarrow, for workers alone

    return {"csv": tables.read_csv, "parquet": tables.read_parquet, "arrow": tables.read_arrow}[form](
        source, layout
    )

"""The formats in which rows arrive, and how the names of such files end."""

from pathlib import PurePath
from typing import Literal

Format = Literal["npy", "npz", "csv", "parquet", "arrow", "json"]

_ENDINGS: dict[str, Format] = {
    ".npy": "npy",
    ".npz": "npz",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".json": "json",
}


def format_of_name(name: str) -> Format | None:
    """The format that a file's name ends in; `.gz` may follow, where gzip has packed the file."""
    return _ENDINGS.get(PurePath(name.lower().removesuffix(".gz")).suffix)


ENDINGS = (*_ENDINGS, ".gz")
"""How names of files may end."""

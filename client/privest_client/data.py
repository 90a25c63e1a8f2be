"""Rows and their schema: what goes into an upload."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from privest_client.errors import SchemaMismatch

Schema = dict[str, Any]

_MEDIA = {
    ".npy": "application/x-npy",
    ".npz": "application/x-npz",
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": "application/vnd.apache.arrow.file",
    ".feather": "application/vnd.apache.arrow.file",
    ".ipc": "application/vnd.apache.arrow.file",
    ".json": "application/json",
}


@dataclass(frozen=True)
class Upload:
    """A file on its way.

    Attributes:
        name: with the ending that tells the format.
        file: its content.
        size: bytes.
    """

    name: str
    file: BinaryIO
    size: int

    @property
    def media(self) -> str:
        """Content type."""
        return _MEDIA[Path(self.name).suffix]


def infer(data: Any, *, label: str | None = None) -> Schema:
    """A schema by the form of the data alone: number and names of columns, shape of records.

    Nothing else is read off the rows, as a schema is public: state bounds, means, scales and classes from
    what is known without the data.

    Args:
        data: an array (n, d), (n, m, m) or (n, m, r), or a frame with columns.
        label: the column of a frame that holds the class; then `classes` is still to be declared.

    Raises:
        SchemaMismatch: the form does not tell.
    """
    if label is not None:
        names = [str(name) for name in getattr(data, "columns", ())]
        if label not in names:
            raise SchemaMismatch(f"there is no column {label!r}: labelled rows are a frame that has it")
        return {"kind": "labelled", "features": [name for name in names if name != label], "label": label}
    shape = _shape(data)
    if len(shape) == 2:
        return {"kind": "vectors", "dim": int(shape[1])}
    if len(shape) == 3 and shape[1] == shape[2]:
        return {"kind": "points", "manifold": {"name": "spd", "dim": int(shape[1])}}
    raise SchemaMismatch(
        f"records of shape {shape[1:]} may be points of several manifolds: state the schema, as "
        '{"kind": "points", "manifold": {"name": "stiefel", "dim": …, "rank": …}}'
    )


def check(data: Any, schema: Schema) -> None:
    """See that data can be of a schema, before any of it is sent.

    Raises:
        SchemaMismatch: they cannot.
    """
    if isinstance(data, str | Path):
        return
    kind = schema.get("kind")
    if kind == "labelled":
        if "classes" not in schema:
            raise SchemaMismatch(
                "declare all classes that there may be, as classes=['0', '1']: read off the rows, they would "
                "tell of single records"
            )
        names = [str(name) for name in getattr(data, "columns", ())]
        wanted = [*schema["features"], schema["label"]]
        if names and (missing := [name for name in wanted if name not in names]):
            raise SchemaMismatch(f"the frame has no column {', '.join(map(repr, missing))}")
        if not names and _shape(data)[1:] != (len(wanted),):
            raise SchemaMismatch(f"rows of {len(wanted)} numbers are declared, the label last")
        return
    if kind in ("vectors", "partial-vectors"):
        shape = _shape(data)
        if len(shape) != 2 or shape[1] != schema["dim"]:
            raise SchemaMismatch(f"rows of {schema['dim']} numbers are declared, and the data are {shape}")


def opened(data: Any) -> Upload:
    """Data as a file: arrays as npy, frames as csv with every digit, paths as they are.

    Raises:
        SchemaMismatch: it is none of these, or a file of another format.
    """
    if isinstance(data, str | Path):
        path = Path(data)
        if path.suffix not in _MEDIA:
            raise SchemaMismatch(f"{path.name}: the formats are {', '.join(_MEDIA)}")
        return Upload(path.name, path.open("rb"), path.stat().st_size)
    file = io.BytesIO()
    if hasattr(data, "to_csv"):
        file.write(data.to_csv(index=False).encode())
        name = "rows.csv"
    elif hasattr(data, "write_csv"):
        file.write(data.write_csv().encode())
        name = "rows.csv"
    else:
        rows = np.asarray(data)
        if rows.dtype.kind not in "fiu":
            raise SchemaMismatch(f"an array of {rows.dtype} is no array of numbers")
        np.save(file, rows, allow_pickle=False)
        name = "rows.npy"
    size = file.tell()
    file.seek(0)
    return Upload(name, file, size)


class Counted(io.RawIOBase):
    """A file that tells how much of it was read."""

    def __init__(self, file: BinaryIO, told: Callable[[int], None]) -> None:
        self._file, self._told = file, told

    def read(self, size: int = -1) -> bytes:
        """As of the file."""
        content = self._file.read(size)
        self._told(len(content))
        return content

    def seek(self, offset: int, whence: int = 0) -> int:
        """As of the file."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """As of the file."""
        return self._file.tell()

    def seekable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Always."""
        return True


def _shape(data: Any) -> Sequence[int]:
    if hasattr(data, "shape"):
        return tuple(data.shape)
    return np.shape(data)

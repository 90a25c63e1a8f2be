"""Rows and their schema: what goes into an upload."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from privest_client.cells import DOUBTFUL, NUMBER, TRUTH, Column, is_gap
from privest_client.csv_files import ENDINGS, columns_of, last_is_total
from privest_client.errors import SchemaMismatch
from privest_client.frames import framed, parquet_frame
from privest_client.tables import Table, column_name, said_of_columns

Schema = dict[str, Any]

_ENDINGS = (*ENDINGS, ".parquet", ".npy", ".npz", ".arrow", ".feather", ".ipc", ".json")
"""How names of files end that the service reads; `.gz` may follow."""


@dataclass(frozen=True)
class Upload:
    """A file on its way.

    Attributes:
        name: with the ending that tells the service its format.
        file: its content.
        size: bytes.
        header: whether the first line of a csv file names its columns; None where nobody said so.
        records: that the service must find in it; None where this client does not know.
    """

    name: str
    file: BinaryIO
    size: int
    header: bool | None = None
    records: int | None = None


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
    if isinstance(data, str | Path):
        raise SchemaMismatch(
            "only csv and parquet files are read here: state the schema, or pass a frame, as of pandas"
        )
    if label is not None:
        names = _names(data)
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


def ending_of(path: Path) -> str:
    """How a file's name ends, in small letters, whether or not gzip packed it."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_table_file(data: Any) -> bool:
    """Whether data are the path of a file that `read_file` reads."""
    return isinstance(data, str | Path) and ending_of(Path(data)) in (*ENDINGS, ".parquet")


def read_file(path: Path, columns: Mapping[str, Column] | None, unit: Mapping[str, Any] | None) -> Any:
    """A csv or Parquet file as a frame, of which a schema is made.

    Columns of a csv file are numbers or truth values where all their cells are, and else texts.

    Args:
        path: of the file.
        columns: what is said of columns, by names. Those whose type or form is said stay texts.
        unit: whose rows are one record. Its column stays a text, too.

    Raises:
        ImportError: no library of frames is installed.
        SchemaMismatch: it is no such file.
    """
    try:
        if ending_of(path) == ".parquet":
            return parquet_frame(path)
        cells, last = columns_of(path)
    except (OSError, ImportError, SchemaMismatch):
        raise
    except Exception as error:  # of whatever library it is
        raise SchemaMismatch(f"{path.name} is no whole {ending_of(path)[1:]} file: {error}") from None
    declared, owner = said_of_columns(columns), unit and column_name(unit["column"])
    if last_is_total([*cells.values()], declared):
        raise SchemaMismatch(f"{path.name} ends with a row of totals in line {last}: delete it")
    commas = any(map(_has_commas, cells.values()))
    plain = {
        name: texts if name == owner or _said_how(declared.get(name)) else typed(texts, commas=commas)
        for name, texts in cells.items()
    }
    return framed(plain, None)


def _said_how(said: Any) -> bool:
    return isinstance(said, Mapping) and bool(said.keys() & {"type", "categories", "format", "number_format"})


def _has_commas(texts: Sequence[str]) -> bool:
    """Whether texts are numbers, of which at least one has a comma that can only be of decimals."""
    known = [text for text in texts if not is_gap(text)]
    return all(map(NUMBER.fullmatch, known)) and any(
        "," in text and not DOUBTFUL.fullmatch(text) for text in known
    )


def typed(texts: Sequence[str], *, commas: bool) -> Sequence[Any]:
    """Texts as numbers or truth values, with None for gaps, where all are; else as they are.

    Args:
        texts: cells of a column.
        commas: whether the file has decimal commas, so that 1,234 is no thousand.
    """
    known = [text for text in texts if not is_gap(text)]
    if not known:
        return [None] * len(texts)
    if all(text.lower() in TRUTH for text in known):
        return [None if is_gap(text) else text.lower() == "true" for text in texts]
    doubtful = not commas and any(map(DOUBTFUL.fullmatch, known))
    if doubtful or not all(map(NUMBER.fullmatch, known)):
        return texts
    if all(re.fullmatch(r"[+-]?[0-9]{1,18}", text) for text in known):
        return [None if is_gap(text) else int(text) for text in texts]
    return [None if is_gap(text) else float(text.replace(",", ".")) for text in texts]


def check(data: Any, schema: Schema) -> None:
    """See that data can be of a schema, before any of it is sent.

    Raises:
        SchemaMismatch: they cannot.
    """
    if isinstance(data, str | Path):
        return
    kind, names = schema.get("kind"), _names(data)
    unit = [schema["unit"]["column"]] if schema.get("unit") else []
    if kind == "labelled" and {"features", "label"} <= schema.keys():
        if "classes" not in schema:
            raise SchemaMismatch(
                "declare all classes that there may be, as classes=['0', '1']: read off the rows, they would "
                "tell of single records"
            )
        wanted = [*map(str, schema["features"]), str(schema["label"])]
        if not names and _shape(data)[1:] != (len(wanted),):
            raise SchemaMismatch(f"rows of {len(wanted)} numbers are declared, the label last")
        _need([*wanted, *unit], names)
        return
    _need(unit, names)
    if kind in ("vectors", "partial-vectors") and "dim" in schema:
        shape = _shape(data)
        if len(shape) != 2 or shape[1] != schema["dim"] + len(unit):
            raise SchemaMismatch(f"rows of {schema['dim']} numbers are declared, and the data are {shape}")


def opened(data: Any, schema: Schema, header: bool | None = None) -> Upload:
    """Data as a file: arrays as npy, frames and tables as csv with every digit, paths as they are.

    Args:
        data: an array, a frame, a table, or a path.
        schema: that is declared of them.
        header: whether the first line of a csv file names its columns.

    Raises:
        SchemaMismatch: it is none of these, or a file of another format.
    """
    if isinstance(data, str | Path):
        path = Path(data)
        if ending_of(path) not in _ENDINGS:
            raise SchemaMismatch(
                f"{path.name}: the service reads {', '.join(_ENDINGS)}; of other files pass a frame, such as "
                "pandas.read_excel makes"
            )
        return Upload(path.name, path.open("rb"), path.stat().st_size, header)
    if header is not None:
        raise SchemaMismatch("header is for the path of a csv file: of arrays and frames it is known")
    file = io.BytesIO()
    if isinstance(data, Table):
        records = None if schema.get("unit") else len(data.frame)
        if data.path is not None:
            return replace(opened(data.path, schema), records=records)
        file.write(data.csv().encode())
        return _whole(file, "rows.csv", records, header=True)
    is_frame = hasattr(data, "columns") and (hasattr(data, "to_csv") or hasattr(data, "write_csv"))
    if is_frame:
        # Names of our own, one line of them whatever the frame calls its columns.
        file.write(_line(_names(data)).encode())
        content = (
            data.to_csv(index=False, header=False)
            if hasattr(data, "to_csv")
            else data.write_csv(include_header=False)
        )
        file.write(content.encode())
    else:
        rows = np.asarray(data)
        if rows.dtype.kind not in "fiub":
            raise SchemaMismatch(f"an array of {rows.dtype} is no array of numbers")
        if not rows.ndim:
            raise SchemaMismatch("a single number is no list of records")
        np.save(file, rows, allow_pickle=False)
    # All rows of a unit are one record: how many units there are, the service counts.
    records = None if schema.get("unit") else len(data)
    if is_frame:
        return _whole(file, "rows.csv", records, header=True)
    return _whole(file, "rows.npy", records)


def _whole(file: io.BytesIO, name: str, records: int | None, header: bool | None = None) -> Upload:
    size = file.tell()
    file.seek(0)
    return Upload(name, file, size, header, records)


def _names(data: Any) -> list[str]:
    """The names of a frame's columns, each as one line of text; none of an array."""
    columns = [
        "_".join(map(str, name)) if isinstance(name, tuple) else str(name)
        for name in getattr(data, "columns", ())
    ]
    return [" ".join(name.split()) for name in columns]


def _need(wanted: Sequence[str], names: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in names] if names else []:
        raise SchemaMismatch(f"the frame has no column {', '.join(map(repr, missing))}")
    if twice := [name for name in wanted if names.count(name) > 1]:
        raise SchemaMismatch(f"the frame has several columns {', '.join(map(repr, twice))}")


def _line(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


class Counted(io.RawIOBase):
    """A file that tells how much of it was read."""

    def __init__(self, file: BinaryIO, told: Callable[[int], None]) -> None:
        self._file, self._told = file, told

    def read(self, size: int = -1) -> bytes:
        """Read from the file."""
        content = self._file.read(size)
        self._told(len(content))
        return content

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move in the file."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Position in the file."""
        return self._file.tell()

    def seekable(self) -> bool:
        """Uploads can be repeated, so this is always true."""
        return True

    def readable(self) -> bool:
        """Always true."""
        return True


def _shape(data: Any) -> Sequence[int]:
    if hasattr(data, "shape"):
        return tuple(data.shape)
    return np.shape(data)

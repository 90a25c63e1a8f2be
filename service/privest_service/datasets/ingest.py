"""Reading and validating an upload, in a worker process: hostile files never meet the web process.

What is wrong is told by record index, field and rule, to the owner who uploads; never by value.
"""

import csv
import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from privest.arrays import Array
from privest.records import blocks
from privest.shapes import LabelledShape, Shape
from privest_service.problems import Fault

Format = Literal["npy", "csv"]

_MOST_FAULTS = 20
_LEAST_RECORDS = 2


class RefusedUploadError(Exception):
    """The upload breaks these rules."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


@dataclass(frozen=True)
class Ingested:
    """Public size and the owner's fingerprint of accepted rows."""

    n: int
    fingerprint: str


def ingest(source: str, form: Format, shape: Shape, target: str, owner_id: str, secret: bytes) -> Ingested:
    """Validate a file of records and write them as a float64 npy file.

    Args:
        source: the uploaded file.
        form: its format.
        shape: of the records, and what each of them must be; its number of records is not known yet.
        target: where the rows go.
        owner_id: whose rows they are; keys the fingerprint together with `secret`.
        secret: of the service.

    Raises:
        RefusedUploadError: with the first faults, by record.
    """
    rows = _read_npy(Path(source), shape.record) if form == "npy" else _read_csv(Path(source), shape)
    n = len(rows)
    if n < _LEAST_RECORDS:
        raise RefusedUploadError([Fault(rule=f"a dataset has at least {_LEAST_RECORDS} records")])
    mark = hmac.new(secret, f"{owner_id}\0{n}\0".encode(), hashlib.sha256)
    written = np.lib.format.open_memmap(target, mode="w+", dtype=np.float64, shape=(n, *shape.record))
    faults: list[Fault] = []
    start = 0
    for block in blocks(rows):
        chunk = np.array(block, dtype=np.float64)
        if form == "npy" and isinstance(shape, LabelledShape):
            chunk[:, -1] = _coded(chunk[:, -1], shape)
        broken = np.asarray(shape.broken_rule(chunk))
        for index in np.flatnonzero(broken)[: _MOST_FAULTS - len(faults)]:
            rule = shape.rules[int(broken[index]) - 1]
            faults.append(
                Fault(record=start + int(index), field=_field(chunk[index], shape), rule=f"must be {rule}")
            )
        if len(faults) == _MOST_FAULTS:
            break
        if not faults:
            exact = np.ascontiguousarray(shape.canonical(chunk))
            written[start : start + len(chunk)] = exact
            mark.update(exact.tobytes())
        start += len(chunk)
    if faults:
        raise RefusedUploadError(faults)
    written.flush()
    os.chmod(target, 0o600)  # noqa: PTH101
    return Ingested(n, mark.hexdigest())


def _field(record: Array, shape: Shape) -> str | None:
    """Where a record is not a number, if it is a single place that is at fault."""
    places = np.argwhere(~np.isfinite(record))
    if not len(places):
        return None
    return "".join(f"[{i}]" for i in places[0]) if shape.names is None else shape.names[int(places[0][0])]


def _coded(labels: Array, shape: LabelledShape) -> Array:
    """Labels that are numbers as places among the classes; what is not finite stays so."""
    values, places = np.unique(labels, return_inverse=True)
    return np.array([shape.code(repr(v)) if np.isfinite(v) else v for v in values.tolist()])[places]


def _refuse(rule: str, record: int | None = None, field: str | None = None) -> RefusedUploadError:
    return RefusedUploadError([Fault(record=record, field=field, rule=rule)])


def _read_npy(source: Path, shape: tuple[int, ...]) -> Array:
    try:
        # Maps the file: nothing larger than it is ever allocated, and pickles are never loaded.
        rows = np.load(source, mmap_mode="r", allow_pickle=False, max_header_size=10_000)
    except Exception:  # whatever numpy's parser meets in a hostile header
        raise _refuse("not a whole npy file of numbers (pickled objects are never read)") from None
    if not isinstance(rows, np.ndarray):
        raise _refuse("not a whole npy file of numbers")
    if rows.dtype.kind not in "fiu":
        raise _refuse("entries must be real numbers")
    if rows.shape[1:] != shape or rows.ndim == 0:
        raise _refuse(f"the array must have shape (n, {', '.join(map(str, shape))})")
    return rows


def _read_csv(source: Path, shape: Shape) -> Array:
    """One record a line: its named columns, or all columns in order; a matrix row by row.

    Where columns are not named by the schema, a first line without a number is passed over.
    """
    width = int(np.prod(shape.record))
    values: list[Array] = []
    places: list[int] | None = None
    try:
        with source.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            for number, line in enumerate(line for line in lines if line):
                if number == 0 and shape.names is not None:
                    places, width = _places(line, shape.names), len(line)
                    continue
                if number == 0 and not any(map(_is_number, line)):
                    continue
                if len(line) != width:
                    raise _refuse(f"must have {width} columns", record=len(values))
                values.append(
                    _numbers(line if places is None else [line[i] for i in places], shape, len(values))
                )
    except (csv.Error, UnicodeDecodeError):
        raise _refuse("not a CSV file in UTF-8", record=len(values)) from None
    return np.array(values, dtype=np.float64).reshape(-1, *shape.record)


def _places(header: list[str], names: Sequence[str]) -> list[int]:
    """Where the named columns are."""
    found = {name.strip(): place for place, name in enumerate(header)}
    if len(found) != len(header) or not found.keys() >= set(names):
        raise _refuse("the first line must name every feature and the label, each column once")
    return [found[name] for name in names]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(line: list[str], shape: Shape, record: int) -> Array:
    if isinstance(shape, LabelledShape):
        line = [*line[:-1], str(shape.code(line[-1]))]
    try:
        return np.array(line, dtype=np.float64)
    except ValueError:
        column = next(i for i, text in enumerate(line) if not _is_number(text))
        field = f"[{column}]" if shape.names is None else shape.names[column]
        raise _refuse("must be a number", record=record, field=field) from None

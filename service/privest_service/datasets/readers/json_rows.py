"""JSON: a list of records, each nested lists of numbers, a list of a table's row, or an object by columns."""

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, cast

import numpy as np

from privest_service.datasets.readers.layout import ABSENT, Block, Layout, Texts, block_of
from privest_service.upload_errors import refusal

_MOST_BYTES = 2**25
"""Largest document in bytes. It is parsed as a whole, and takes many times its size."""

_AT_ONCE = 4096


def read_json(source: Path, layout: Layout) -> Generator[Block]:
    """The records of a JSON document.

    Raises:
        RefusedUploadError: it is too long, no JSON, or a record is of another shape.
    """
    if source.stat().st_size > _MOST_BYTES:
        raise refusal(f"must have at most {_MOST_BYTES} bytes as JSON: upload larger data in another format")
    try:
        rows = json.loads(source.read_bytes(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise refusal("is not JSON in UTF-8") from None
    if not isinstance(rows, list):
        raise refusal("must be a list of records")
    rows = cast("list[Any]", rows)
    named = bool(rows) and layout.named and (layout.unit is not None or isinstance(rows[0], dict))
    columns = _columns(rows[0], layout) if named else None
    for start in range(0, len(rows), _AT_ONCE):
        yield _block(rows[start : start + _AT_ONCE], layout, columns, start)


def _no_constant(_: str) -> None:
    raise ValueError


@dataclass(frozen=True)
class _Columns:
    """Members of objects: those of a record in its order, None for one that is not there, and the unit's."""

    names: list[str | None]
    unit: str | None
    all: frozenset[str]


def _columns(first: Any, layout: Layout) -> _Columns:
    """Choose the columns that the schema names.

    A schema without names takes all members of the first object but the unit, in their order.
    """
    if not isinstance(first, dict):
        raise refusal("must be an object with every column of the schema", record=0)
    header = list(cast("dict[str, Any]", first))
    chosen, unit = layout.places(header)
    if len(chosen) != layout.width:
        raise refusal(f"must have {layout.width} columns", record=0)
    return _Columns(
        [None if place < 0 else header[place] for place in chosen],
        None if unit is None or unit < 0 else header[unit],
        frozenset(header),
    )


def _block(rows: list[Any], layout: Layout, columns: _Columns | None, start: int) -> Block:
    if columns is not None:
        return _by_name(rows, layout, columns, start)
    if layout.names is not None:
        return _in_order(rows, layout, start)
    found = np.empty((len(rows), *layout.raw))
    for at, row in enumerate(rows):
        if _shape(row) != layout.raw:
            shape = ", ".join(map(str, layout.raw))
            raise refusal(f"must be nested lists of numbers of shape ({shape})", record=start + at)
        try:
            numbers = np.array([nan if part is None else part for part in row] if layout.partial else row)
        except ValueError:  # ragged
            numbers = np.empty(0, dtype=object)
        if numbers.dtype.kind not in "iuf" or numbers.shape != layout.raw:
            raise refusal("must be nested lists of numbers", record=start + at)
        found[at] = numbers
    return Block(found)


def _shape(row: Any) -> tuple[int, ...]:
    """Return the shape of nested lists from their first parts; numpy then checks that the others agree."""
    shape: list[int] = []
    while isinstance(row, list):
        parts = cast("list[Any]", row)
        shape.append(len(parts))
        row = parts[0] if parts else None
    return tuple(shape)


def _by_name(rows: list[Any], layout: Layout, columns: _Columns, start: int) -> Block:
    """Objects. Members beyond the schema's may come and go, but not where all members are the record."""
    wanted = {*columns.names, columns.unit} - {None}
    for at, row in enumerate(rows):
        if not isinstance(row, dict) or not row.keys() >= wanted:
            raise refusal("must be an object with every column of the schema", record=start + at)
        if layout.names is None and row.keys() != columns.all:
            raise refusal("must have the columns of the first record", record=start + at)
    units = None if columns.unit is None else _texts([row[columns.unit] for row in rows])
    if layout.columns is not None:
        members = [None if name is None else [row[name] for row in rows] for name in columns.names]
        return _typed(members, units, layout, start)
    found = [_texts([row[name] for row in rows]) for name in columns.names]
    if layout.partial:  # where null alone is missing
        for name, texts in zip(columns.names, found, strict=True):
            for at, text in enumerate(texts):
                if isinstance(text, bool) or (text is None and rows[at][name] is not None):
                    raise refusal("must be a number or null", record=start + at, field=name)
    return block_of(found, units, layout, start)


def _in_order(rows: list[Any], layout: Layout, start: int) -> Block:
    for at, row in enumerate(rows):
        if not isinstance(row, list) or len(cast("list[Any]", row)) != layout.width:
            raise refusal(f"must be a list of {layout.width} values", record=start + at)
    if layout.columns is not None:
        return _typed([[row[place] for row in rows] for place in range(layout.width)], None, layout, start)
    columns = [_texts([row[place] for row in rows]) for place in range(layout.width)]
    return block_of(columns, None, layout, start)


def _typed(columns: Sequence[list[Any] | None], units: Texts | None, layout: Layout, start: int) -> Block:
    """Columns of a typed table."""
    from privest_service.datasets.readers import typed  # noqa: PLC0415 - pyarrow, for workers alone

    found = [
        ABSENT
        if column is None
        else typed.texts_of(column, written.point if (written := layout.written(at)) else ".")
        for at, column in enumerate(columns)
    ]
    return typed.typed_block(found, units, layout, start)


def _texts(values: list[Any]) -> Texts:
    """Strings, numbers and truth values as they are, None for anything else."""
    found = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        found[at] = value if isinstance(value, str | int | float) else None
    return found

"""Answers and rows as frames of whatever library is there."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import narwhals as nw
import numpy as np

_KNOWN = ("pandas", "polars", "pyarrow")


def parquet_frame(path: Path) -> Any:
    """A Parquet file as a frame of pandas, polars or pyarrow.

    Raises:
        ImportError: none of them is installed.
    """
    chosen = _library(None)
    module: Any = import_module("pyarrow.parquet" if chosen == "pyarrow" else chosen)
    if chosen != "pandas":
        return module.read_table(path) if chosen == "pyarrow" else module.read_parquet(path)
    frame = module.read_parquet(path)
    if isinstance(frame.index, module.RangeIndex) and frame.index.name is None:
        return frame
    # A column of the file, which pandas wrote and takes for its index.
    names = [
        f"__index_level_{place}__" if name is None else name for place, name in enumerate(frame.index.names)
    ]
    return frame.reset_index(names=names)


def _library(backend: str | None) -> str:
    """The library of frames to use: the one that is asked for, else the first that is installed.

    Raises:
        ImportError: none is.
    """
    chosen = backend or next((name for name in _KNOWN if find_spec(name)), None)
    if chosen is None:
        raise ImportError(f"a frame needs one of {', '.join(_KNOWN)}: pip install pandas")
    return chosen


def framed(numbers: Mapping[str, Sequence[Any]], backend: str | None) -> Any:
    """Columns as a frame of pandas, polars or pyarrow.

    Raises:
        ImportError: none of them is installed.
    """
    chosen = _library(backend)
    if chosen != "pandas":  # a column of others is of one type: among dates, numbers become texts
        numbers = {name: _of_one_type(values) for name, values in numbers.items()}
    return nw.from_dict(numbers, backend=cast("Any", chosen)).to_native()


def rows_as_told(rows: Sequence[Any]) -> Any:
    """Rows as the service tells them: of a table as a frame, others as an array with NaN for a gap."""
    if not isinstance(rows[0], dict):
        return np.array(rows, dtype=np.float64)
    return framed({name: [row[name] for row in rows] for name in rows[0]}, None)


def beside(rows: Any, values: Any, name: str) -> Any:
    """A value for each row: beside a frame a series of its library, with its index; else as they are.

    Args:
        rows: a frame, or an array.
        values: (n,).
        name: of the series.
    """
    if not nw.dependencies.is_into_dataframe(rows):
        return values
    backend = nw.from_native(rows, eager_only=True).implementation
    series: Any = nw.new_series(name, values.tolist(), backend=backend).to_native()
    return series.set_axis(rows.index) if hasattr(rows, "index") else series


def _of_one_type(values: Sequence[Any]) -> Sequence[Any]:
    mixed = len({type(value) for value in values} - {type(None)}) > 1
    return [*map(str, values)] if mixed else values

"""Answers and rows as frames of whatever library is there."""

import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import narwhals as nw
import numpy as np

_KNOWN = ("pandas", "polars", "pyarrow")


def csv_frame(text: str, delimiter: str, decimal: str) -> Any:
    """The text of a csv file as a frame of pandas, polars or pyarrow, with texts for dates.

    Raises:
        ImportError: none of them is installed.
    """
    chosen, content = _library(None), io.BytesIO(text.encode())
    if chosen == "pandas":
        return import_module("pandas").read_csv(content, sep=delimiter, decimal=decimal)
    if chosen == "polars":
        return import_module("polars").read_csv(
            content,
            separator=delimiter,
            decimal_comma=decimal == ",",
            null_values=list(_GAPS),
            infer_schema_length=None,
        )
    arrow: Any = import_module("pyarrow.csv")
    return arrow.read_csv(
        content,
        parse_options=arrow.ParseOptions(delimiter=delimiter),
        convert_options=arrow.ConvertOptions(
            decimal_point=decimal, null_values=list(_GAPS), strings_can_be_null=True
        ),
    )


def parquet_frame(path: Path) -> Any:
    """A Parquet file as a frame of pandas, polars or pyarrow.

    Raises:
        ImportError: none of them is installed.
    """
    chosen = _library(None)
    module: Any = import_module("pyarrow.parquet" if chosen == "pyarrow" else chosen)
    return module.read_table(path) if chosen == "pyarrow" else module.read_parquet(path)


_GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "none")
"""Texts that pandas takes for gaps, for libraries that take none."""


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

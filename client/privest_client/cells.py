"""Cells of a frame's columns: the numbers that stand for them, and what is wrong with the others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Column = dict[str, Any]
"""What a schema says of one column."""

TRUTH = ("false", "true")

FORMATS = {"dd.mm.yyyy": "%d.%m.%Y", "mm/dd/yyyy": "%m/%d/%Y", "dd/mm/yyyy": "%d/%m/%Y"}
"""Forms of dates that a column may declare beside ISO 8601, as `strptime` has them."""

_EPOCH = date(1970, 1, 1)
_GAPS = ("", "na", "n/a", "nan", "null", "none")
"""Texts that the service takes for gaps, too, in any case of letters, unless a category is called so."""


def category_text(value: Any) -> str:
    """The text of a category: of whole numbers without a point, of truth values as JSON has them."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def number_of(column: Column, part: str) -> float | None:
    """A bound or a fill as a number: of a date its days since 1970-01-01."""
    value = column.get(part)
    if value is None or column["type"] != "date":
        return value
    return day_number(value)


def day_number(value: Any, form: str | None = None) -> float:
    """The days since 1970-01-01 of a date in ISO 8601 or in this form; of one with a time its day.

    Raises:
        ValueError: it is in neither.
    """
    text = str(value).strip()
    try:
        day = date.fromisoformat(text[:10])
    except ValueError:
        if form is None:
            raise
        day = datetime.strptime(text.replace("T", " ").partition(" ")[0], FORMATS[form]).date()
    return float((day - _EPOCH).days)


def date_of(days: float) -> date:
    """The day that is so many after 1970-01-01."""
    return _EPOCH + timedelta(days=int(days))


@dataclass(frozen=True)
class Read:
    """A column's values as numbers.

    Attributes:
        numbers: that stand for the values, NaN for a gap.
        strange: values that are none of the column, by their places.
        gaps: how many the column must not have, as its schema refuses them.
    """

    numbers: Array
    strange: Mapping[int, str]
    gaps: int


def read(values: nw.Series[Any], column: Column) -> Read:
    """A column's values as its schema takes them."""
    gaps = values.is_null().to_numpy().copy()
    if values.dtype.is_float():
        gaps = gaps | values.is_nan().fill_null(value=True).to_numpy()
    found, strange = np.full(len(values), np.nan), dict[int, str]()
    if values.dtype.is_numeric() and column["type"] in ("number", "integer"):
        found[~gaps] = values.to_numpy()[~gaps]
    else:
        number = _reader(column)
        for place, value in enumerate(values.to_list()):
            if not gaps[place]:
                try:
                    found[place] = number(value)
                except (ValueError, TypeError, KeyError):
                    gaps[place] = str(value).strip().lower() in _GAPS
                    if not gaps[place]:
                        strange[place] = str(value)
    refused = (column.get("missing") or "refused") == "refused"
    return Read(found, strange, int(gaps.sum()) if refused else 0)


def _reader(column: Column) -> Callable[[Any], float]:
    """What makes a number of one value."""
    kind = column["type"]
    if kind in ("category", "boolean"):
        texts = TRUTH if kind == "boolean" else map(category_text, column["categories"])
        places = {text: float(place) for place, text in enumerate(texts)}
        if kind == "boolean":
            places |= {"0": 0.0, "1": 1.0, "False": 0.0, "True": 1.0}
        return lambda value: places[category_text(value)]
    if kind == "date":
        return lambda value: day_number(value, column.get("format"))
    return _known


def _known(value: Any) -> float:
    """A number that is one.

    Raises:
        ValueError: it is none.
    """
    number = float(value)
    if np.isnan(number):
        raise ValueError("a gap")
    return number

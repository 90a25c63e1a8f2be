"""Cells of a table's columns: the numbers that stand for them, and what is wrong with the others."""

from collections.abc import Callable
from datetime import date
from math import isnan, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as arrow_compute
from numpy.typing import NDArray

from privest.arrays import Array
from privest.data.tables import Column, day_of
from privest_service.datasets.readers.marks import GAPS, Mark
from privest_service.datasets.readers.numbers import NumberFormat
from privest_service.upload_errors import refusal

Codes = NDArray[np.uint8]
"""A `Mark` for each cell."""

pc: Any = arrow_compute
"""Arrow's functions, most of which are made when the module is loaded, unseen by a checker of types."""

Code = Callable[[Any], float]
"""The number of a category, -1 for what is none; or the day that a text names, NaN where it names none."""

_FIRST_DAY, _LAST_DAY = day_of(date.min) + 1, day_of(date.max)
"""Days between which the clocks of zones are known."""

_EXPONENT = r"([eE][+-]?\d{1,3})?$"
_PLAIN = r"^[+-]?(\d+\.?\d*|\.\d+)" + _EXPONENT
_COMMA = r"^[+-]?\d*,\d+" + _EXPONENT
_DOUBTFUL = r"^[+-]?[1-9]\d{0,2},\d{3}$"
_THOUSANDS = r"^[+-]?\d{1,3}([ ,.'’\x{00A0}\x{202F}]\d{3})+([.,]\d+)?$"
_INFINITE = r"(?i)^[+-]?inf(inity)?$"


def cells(
    array: pa.Array, column: Column, code: Code, written: NumberFormat | None = None
) -> tuple[Array, Codes]:
    """The numbers that stand for the cells of a column, and a mark for each.

    Args:
        array: of whatever type the file has.
        column: what the owner declares.
        code: numbers of categories and truth values, or of texts of dates.
        written: how numbers are written that are texts; None for plain ones.
    """
    kind = array.type
    if isinstance(array, pa.DictionaryArray):
        return _coded(array, column, code, written)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        values, codes = _of_texts(pc.cast(array, pa.large_string()), column, code, written)
    elif pa.types.is_null(kind):
        values, codes = np.full(len(array), nan), np.full(len(array), Mark.MISSING, dtype=np.uint8)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        values, codes = _of_dates(array, column)
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values, codes = _of_numbers(array, column, code)
    elif pa.types.is_decimal(kind):
        values, codes = _of_numbers(pc.cast(array, pa.float64()), column, code)
    else:
        values, codes = np.full(len(array), nan), np.full(len(array), Mark.NESTED, dtype=np.uint8)
    return _checked(values, codes, column)


def _checked(values: Array, codes: Codes, column: Column) -> tuple[Array, Codes]:
    """Cells under the rules that hold however they are written. Gaps are no fault where they are declared."""
    seen = codes < Mark.MISSING
    codes = np.where(seen & ~np.isfinite(values), Mark.INFINITE, codes)
    if column.type == "integer":
        codes = np.where(np.isfinite(values) & (values != np.floor(values)), Mark.BROKEN, codes)
    if column.missing != "refused":
        codes = np.where(codes == Mark.MISSING, Mark.FINE, codes)
    return values, codes.astype(np.uint8)


def _coded(
    array: pa.DictionaryArray, column: Column, code: Code, written: NumberFormat | None
) -> tuple[Array, Codes]:
    """The cells of a dictionary, of which each entry that occurs is looked at once."""
    codes = np.asarray(pc.cast(array.indices, pa.int64()).fill_null(-1))
    used, places = np.unique(codes, return_inverse=True)
    gaps = int(bool(len(used)) and used[0] < 0)
    values, marks = cells(array.dictionary.take(pa.array(used[gaps:], pa.int64())), column, code, written)
    gap, mark = cells(pa.nulls(1), column, code)
    return np.concatenate([gap, values])[places + 1 - gaps], np.concatenate([mark, marks])[places + 1 - gaps]


def _of_texts(
    array: pa.Array, column: Column, code: Code, written: NumberFormat | None
) -> tuple[Array, Codes]:
    texts = pc.fill_null(pc.utf8_trim_whitespace(array), "")
    if column.is_ordered and column.type != "date":
        return _of_written_numbers(texts) if written is None else _of_formatted_numbers(texts, written)
    read = (_date if column.type == "date" else _level)(code)
    distinct = pc.dictionary_encode(texts)
    found = [read(text) for text in distinct.dictionary.to_pylist()]
    values, codes = (np.array(part) for part in zip(*found, strict=True)) if found else (np.empty(0),) * 2
    places = np.asarray(distinct.indices)
    return values[places], codes.astype(np.uint8)[places]


def _level(code: Code) -> Callable[[str], tuple[float, Mark]]:
    def read(text: str) -> tuple[float, Mark]:
        level = code(text)
        if level >= 0:  # a category may be called NA
            return level, Mark.FINE
        return nan, Mark.MISSING if text.lower() in GAPS else Mark.UNKNOWN

    return read


def _date(code: Code) -> Callable[[str], tuple[float, Mark]]:
    def read(text: str) -> tuple[float, Mark]:
        if text.lower() in GAPS:
            return nan, Mark.MISSING
        day = code(text)
        return day, Mark.BROKEN if isnan(day) else Mark.FINE

    return read


def _of_written_numbers(texts: pa.Array) -> tuple[Array, Codes]:
    def match(pattern: str) -> NDArray[np.bool_]:
        return np.asarray(pc.match_substring_regex(texts, pattern))

    plain = match(_PLAIN)
    codes = np.where(plain, np.where(match(r"\."), Mark.POINT, Mark.FINE), Mark.TEXT)
    if not plain.all():
        gap = np.asarray(pc.is_in(pc.utf8_lower(texts), value_set=pa.array(GAPS, texts.type)))
        comma = match(_COMMA)
        codes = np.select(
            [plain, gap, match(_DOUBTFUL), comma, match(_THOUSANDS), match(_INFINITE)],
            [codes, Mark.MISSING, Mark.DOUBTFUL, Mark.COMMA, Mark.THOUSANDS, Mark.INFINITE],
            Mark.TEXT,
        )
        plain |= comma
    written = pc.replace_substring(pc.utf8_ltrim(texts, characters="+"), ",", ".")
    values = pc.cast(pc.if_else(pa.array(plain), written, "nan"), pa.float64())
    return np.array(values, dtype=np.float64), codes.astype(np.uint8)


def _of_formatted_numbers(texts: pa.Array, written: NumberFormat) -> tuple[Array, Codes]:
    """Numbers in the format that their column declares."""
    fine = np.asarray(pc.match_substring_regex(texts, written.pattern))
    gap = np.asarray(pc.is_in(pc.utf8_lower(texts), value_set=pa.array(GAPS, texts.type)))
    plain = pc.replace_substring(pc.replace_substring_regex(texts, written.removed, ""), written.point, ".")
    values = pc.cast(pc.if_else(pa.array(fine), plain, "nan"), pa.float64())
    codes = np.select([fine, gap], [Mark.FINE, Mark.MISSING], Mark.TEXT)
    return np.array(values, dtype=np.float64), codes.astype(np.uint8)


def _of_numbers(array: pa.Array, column: Column, code: Code) -> tuple[Array, Codes]:
    """Cells that are numbers or truth values in the file."""
    missing = np.asarray(pc.is_null(array, nan_is_null=True))
    values = np.array(pc.cast(array, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    codes = np.zeros(len(values), dtype=np.uint8)
    if column.type == "date":
        codes[:] = Mark.BROKEN
    elif not column.is_ordered:
        distinct, places = np.unique(np.where(missing, 0.0, values), return_inverse=True)
        truths = pa.types.is_boolean(array.type)
        levels = np.array([code(bool(value) if truths else value) for value in distinct.tolist()])[places]
        values, codes = levels, np.where(levels < 0, Mark.UNKNOWN, codes)
    return np.where(missing, nan, values), np.where(missing, Mark.MISSING, codes)


def _of_dates(array: pa.Array, column: Column) -> tuple[Array, Codes]:
    """The days of dates and times; of a time in a zone, the day there."""
    missing = np.asarray(pc.is_null(array))
    kind = array.type
    if pa.types.is_timestamp(kind):
        a_day = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit] * 86_400
    else:
        a_day = 1 if pa.types.is_date32(kind) else 86_400_000
    whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    numbers = np.asarray(pc.fill_null(pc.cast(array, whole), 0))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        numbers = _local(numbers, kind, a_day)
    days = numbers // a_day
    mark = Mark.FINE if column.type == "date" else Mark.DATE
    return np.where(missing, nan, days.astype(np.float64)), np.where(missing, Mark.MISSING, mark)


def _local(times: NDArray[np.int64], kind: pa.TimestampType, a_day: int) -> NDArray[np.int64]:
    """Times on the clock of their zone. Beyond the years 1 to 9999 they stay as they are.

    Raises:
        RefusedUploadError: this machine does not know the zone.
    """
    inside = (times > _FIRST_DAY * a_day) & (times < _LAST_DAY * a_day)
    try:
        local = pc.local_timestamp(pa.array(np.where(inside, times, 0)).cast(kind))
    except pa.ArrowException:
        raise refusal("has times in a zone that is not known here: write them in UTC, or as dates") from None
    return np.where(inside, np.asarray(local.cast(pa.int64())), times)

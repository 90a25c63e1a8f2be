"""Cells of a frame's columns: the numbers that stand for them, and what is wrong with the others.

The rules are those of the service, which has the last word; a test holds the two to each other.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from math import isfinite, isnan
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Column = dict[str, Any]
"""What a schema says of one column."""

TRUTH = ("false", "true")

FORMATS = ("dd.mm.yyyy", "mm/dd/yyyy", "dd/mm/yyyy")
"""Forms of dates that a column may declare beside those with the year first, which are always read."""

_YEAR_FIRST = r"(?P<yyyy>\d{4})(?P<between>[-/])(?P<mm>\d{1,2})(?P=between)(?P<dd>\d{1,2})"
_PARTS = {"dd": r"(?P<dd>\d{1,2})", "mm": r"(?P<mm>\d{1,2})", "yyyy": r"(?P<yyyy>\d{4})"}
_DATES = {None: _YEAR_FIRST} | {
    form: re.sub("dd|mm|yyyy", lambda part: _PARTS[part[0]], re.escape(form)) for form in FORMATS
}

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+|[0-9]*,[0-9]+)([eE][+-]?[0-9]{1,3})?")
DOUBTFUL = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
"""A comma that may be of thousands or of decimals."""

_SEPARATORS = (("", "."), (",", "."), (".", ","), ("", ","), (" ", ","), (" ", "."), ("'", "."))
"""Pairs of what stands between thousands and before decimals, the usual ones first."""

_SPACES = " \u00a0\u202f"
_SIGN = r"([^\d\s+\-.,'’{}eE]|[^\d\s+\-.,'’{}]{2,5})"
_SAMPLE = re.compile(
    rf"(?P<before>{_SIGN})? ?1(?P<between>[ ,.']?)234(?P<point>[.,])5 ?(?P<after>{_SIGN})?", re.ASCII
)

_EPOCH = date(1970, 1, 1)
_GAPS = ("", "na", "n/a", "nan", "null", "none")
"""Texts for a gap, in any case of letters, unless a category is called so."""


def is_gap(value: Any) -> bool:
    """Whether a value is nothing, or a word for that."""
    return value is None or (isinstance(value, float) and isnan(value)) or str(value).strip().lower() in _GAPS


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
    """The days since 1970-01-01 of a date, year first or in this form; of a time its day as written.

    Raises:
        ValueError: it is in neither.
    """
    for pattern in dict.fromkeys((_DATES[None], _DATES[form])):
        if found := re.fullmatch(rf"{pattern}([T ].*)?", str(value).strip(), re.ASCII | re.DOTALL):
            day = date(*(int(found[part]) for part in ("yyyy", "mm", "dd")))
            return float((day - _EPOCH).days)
    raise ValueError("no date")


def is_number_format(sample: Any) -> bool:
    """Whether a text says how a file writes 1234.5."""
    found = _SAMPLE.fullmatch(sample) if isinstance(sample, str) else None
    return (
        found is not None and not (found["before"] and found["after"]) and found["between"] != found["point"]
    )


def proposed_formats(texts: Iterable[Any]) -> list[str]:
    """The usual number formats in which all texts are numbers; of formats that read alike the first."""
    known = list(dict.fromkeys(str(text).strip() for text in texts if not is_gap(text)))
    if not known:
        return []
    bare = known[0].lstrip("+- ")
    before = bare[0] if _is_sign(bare[:1]) else ""
    after = bare[-1] if _is_sign(bare[-1:]) and not before else ""
    samples = [f"{before}1{between}234{point}5{after}" for between, point in _SEPARATORS]
    found = dict[tuple[float, ...], str]()
    for sample in samples:
        with suppress(ValueError):
            found.setdefault(tuple(number_of_text(text, sample) for text in known), sample)
    return [*found.values()]


def _is_sign(letter: str) -> bool:
    return letter in ("%", "‰") or (bool(letter) and unicodedata.category(letter) == "Sc")


def number_of_text(text: str, sample: str | None = None) -> float:
    """The number that a text is, plainly or in a number format.

    Raises:
        ValueError: it is none.
    """
    text = text.strip()
    if sample is None:
        if not NUMBER.fullmatch(text) or DOUBTFUL.fullmatch(text):
            raise ValueError("no number")
        return _finite(text.replace(",", "."))
    found = _SAMPLE.fullmatch(sample)
    assert found is not None  # noqa: S101 - of formats that are some
    sign, point, space = re.escape(found["before"] or found["after"] or ""), found["point"], f"[{_SPACES}]?"
    between = {" ": f"[{_SPACES}]", "'": "['’]"}.get(found["between"], re.escape(found["between"]))
    whole = rf"([0-9]{{1,3}}({between}[0-9]{{3}})+|[0-9]+)" if between else "[0-9]+"
    decimals = re.escape(point)
    number = rf"(({whole})({decimals}[0-9]*)?|{decimals}[0-9]+)([eE][+-]?[0-9]{{1,3}})?"
    begin = rf"([+-]?{space}({sign}{space})?|{sign}{space}[+-]{space})" if sign else rf"[+-]?{space}"
    if not re.fullmatch(begin + number + (rf"({space}{sign})?" if sign else ""), text):
        raise ValueError("no number")
    removed = [rf"[+'’{_SPACES}]", *(part for part in (sign, re.escape(found["between"].strip())) if part)]
    return _finite(re.sub("|".join(removed), "", text).replace(point, "."))


def _finite(text: str) -> float:
    """The number that a text is. Raises ValueError: float64 does not reach so far."""
    number = float(text)
    if not isfinite(number):
        raise ValueError("not finite")
    return number


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
                    gaps[place] = is_gap(value)
                    if not gaps[place]:
                        strange[place] = str(value)
    refused = (column.get("missing") or "refused") == "refused"
    return Read(found, strange, int(gaps.sum()) if refused else 0)


def _reader(column: Column) -> Callable[[Any], float]:
    """What makes a number of one value."""
    kind = column["type"]
    if kind in ("category", "boolean"):
        places = _places(TRUTH if kind == "boolean" else [*map(category_text, column["categories"])])
        return lambda value: _place(value, places)
    if kind == "date":
        return lambda value: day_number(value, column.get("format"))
    return lambda value: _known(value, column.get("number_format"))


def _known(value: Any, sample: str | None) -> float:
    """A number that is one.

    Raises:
        ValueError: it is none.
    """
    number = number_of_text(value, sample) if isinstance(value, str) else float(value)
    if np.isnan(number):
        raise ValueError("a gap")
    return number


def _places(categories: Sequence[str]) -> dict[str, float]:
    """The places of categories by all of their forms: no form of one hides another."""
    places = {category: float(place) for place, category in enumerate(categories)}
    for form in (_string_form, lambda category: _SAME.get(_string_form(category), _string_form(category))):
        for place, category in enumerate(categories):
            places.setdefault(form(category), float(place))
    return places


_SAME = {"true": "1", "false": "0", "1": "true", "0": "false"}
"""Files often hold one for the other."""


def _place(value: Any, places: Mapping[str, float]) -> float:
    """The place of a category. Raises KeyError: there is none."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, str) and value.strip() in places:
        return places[value.strip()]
    return places[_string_form(value)]


def _string_form(value: Any) -> str:
    """The text of a value: of a number the shortest, of a truth value in small letters."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return "" if not isfinite(value) else str(int(value)) if value.is_integer() else repr(value)
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.lower()
    for number in (int, float) if "_" not in text else ():
        try:
            return _string_form(number(text)) or text
        except ValueError:
            continue
    return text

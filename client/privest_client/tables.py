"""Frames as tables: a public schema made of dtypes alone, and the rows as a file or with a question."""

import csv
import io
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from math import ceil, floor, isnan, log10
from pathlib import Path
from typing import Any, Literal, cast

import narwhals as nw
import numpy as np

from privest_client.cells import FORMATS, Column, category_text, date_of, day_number, is_gap, proposed_formats
from privest_client.cells import read as read_cells
from privest_client.csv_files import last_is_total
from privest_client.declaring import as_columns, between, faults_of, misdeclared, rows_at
from privest_client.errors import SchemaMismatch
from privest_client.frames import framed
from privest_client.known_bounds import offered
from privest_client.reading import Cells, Shown, brief

_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")

_MOST_CATEGORIES = 100
"""Texts of more different values are no categories that anybody would list."""

_MOST_COLUMNS = 2_000
"""Columns of a table, as the service has it: each is looked at here, which takes long for more."""

_SHOWN = 6
"""Categories that a line of a schema shows."""


class ShownColumns(Shown):
    """Columns of a schema, printed as a small table."""

    @property
    def _declared(self) -> Sequence[Column]:
        raise NotImplementedError

    @property
    def _offered(self) -> Sequence[str]:
        """Names of columns whose bounds their names suggested."""
        return ()

    def to_frame(self, backend: str | None = None) -> Any:
        """What the schema says of each column, as a frame.

        Args:
            backend: `pandas`, `polars` or `pyarrow`; by default the first of these that is installed.

        Raises:
            ImportError: none is.
        """
        return framed(self._cells(), backend)

    def _cells(self) -> Cells:
        return {
            "column": [column["name"] for column in self._declared],
            "type": [column["type"] for column in self._declared],
            "values": [
                _values(column) + (" (offered by its name)" if column["name"] in self._offered else "")
                for column in self._declared
            ],
            "a gap": [_gap(column) for column in self._declared],
        }


@dataclass(frozen=True, repr=False)
class Table(ShownColumns):
    """A frame with the schema that everybody who may ask will see.

    Attributes:
        frame: the declared columns alone.
        schema: as the service takes it.
        read: what was read off the values, in words; empty unless their owner said that they are public.
        path: of a file that has these columns and no others, and is sent as it is; None of frames.
        offered: names of columns whose bounds come from their names alone.
    """

    frame: nw.DataFrame[Any]
    schema: dict[str, Any]
    read: Sequence[str] = field(default=())
    path: Path | None = None
    offered: Sequence[str] = field(default=())

    @property
    def columns(self) -> list[Column]:
        """What the schema says of each column."""
        return self.schema["columns"]

    @property
    def _declared(self) -> Sequence[Column]:
        return self.columns

    @property
    def _offered(self) -> Sequence[str]:
        return self.offered

    def csv(self) -> str:
        """The rows as a csv file, with dates in ISO form and nothing for a gap."""
        plain = self._plain()
        if len(plain.columns) == 1:  # of which some libraries write a gap as a line with nothing on it
            file = io.StringIO(newline="")
            rows = ([_json(value)] for value in plain[plain.columns[0]].to_list())
            csv.writer(file, lineterminator="\n").writerows([plain.columns, *rows])
            return file.getvalue()
        written = cast("Any", plain.write_csv())
        return written if isinstance(written, str) else bytes(written).decode()

    def rows(self) -> list[dict[str, Any]]:
        """The rows as JSON has them, by names of columns, with None for a gap."""
        rows = self._plain().iter_rows(named=True)
        return [{name: _json(value) for name, value in row.items()} for row in rows]

    def _plain(self) -> nw.DataFrame[Any]:
        dtypes = self.frame.schema
        changed = list[nw.Expr]()
        for column in self.columns:
            name, value = column["name"], nw.col(column["name"])
            if column["type"] == "date" and dtypes[name].is_temporal():
                changed.append(value.dt.to_string("%Y-%m-%d"))
            elif dtypes[name].is_float():
                changed.append(value.fill_nan(None))
        return self.frame.with_columns(*changed) if changed else self.frame

    def _said(self) -> list[tuple[str, str]]:
        read = [("read off the values", each) for each in self.read]
        if not self.offered:
            return read
        other = as_columns(self.offered[0], low="…", high="…")
        return [
            *read,
            ("offered bounds", f"values beyond count as the nearer bound; for others pass {other}"),
        ]

    def _title(self) -> str:
        return f"Schema of a table of {len(self.columns)} columns"


def is_frame(data: Any) -> bool:
    """Whether data are a frame of pandas or polars, a table of pyarrow, or another that narwhals knows."""
    return nw.dependencies.is_into_dataframe(data)


def table(
    frame: Any,
    *,
    columns: Mapping[str, Column] | None = None,
    drop: Sequence[str] = (),
    unit: Mapping[str, Any] | None = None,
    values_are_public: bool = False,
    bounds: Literal["offered"] | None = None,
) -> Table:
    """A frame as a table whose schema follows from names and dtypes alone, and from what is said of columns.

    Args:
        frame: of pandas, polars or pyarrow.
        columns: what dtypes do not tell, by names of columns: `type`, `low` and `high`, `categories`,
            `missing` (`refused`, `category` or `filled`) with `fill`, and `format` of texts that are dates.
            Of a date with a time the day counts.
        drop: names of columns that stay at home.
        unit: whose rows are one record: `column` and `rows`.
        values_are_public: whether bounds, categories and gaps may be read off the values, as everybody may
            know these anyway. Bounds are rounded outwards.
        bounds: `offered` for bounds of well-known names, as 0 to 110 of `age`, where none are declared. They
            come from the name alone.

    Raises:
        SchemaMismatch: names, dtypes or gaps need a word, or what is said of columns is none; it says so of
            all of them at once.
    """
    if not is_frame(frame):
        raise SchemaMismatch(instead_of(frame) or _A_FRAME.format(type(frame).__name__))
    if bounds not in (None, "offered"):
        raise SchemaMismatch(f"declare bounds of a column as {as_columns('age', low=0, high=110)}")
    said = said_of_columns(columns)
    dropped = {column_name(name): None for name in ([drop] if isinstance(drop, str) else drop)}
    whole, faults = named(frame), [*_faults_of_names(frame, dropped)]
    there = dict.fromkeys(whole.columns)  # which pandas makes anew whenever it is asked
    if (count := len(there.keys() - dropped)) > _MOST_COLUMNS:
        raise SchemaMismatch(f"{count:,} columns are more than the {_MOST_COLUMNS:,} of a table: drop some")
    faults += [f"the frame has no column {name!r}" for name in (*said, *dropped) if name not in there]
    keys = [column_name(unit["column"])] if unit else []
    kept = [name for name in there if name not in dropped]
    if last_is_total([whole[name].tail(2).to_list() for name in there], said):
        place = len(whole) - 1
        faults.append(f"its last row, row {place} counted from 0, holds totals: leave it out, as frame[:-1]")
    faults += [f"{key}: {each}" for key in keys if key in there for each in _unit_faults(whole[key])]
    found, doubts, by_name = list[Column](), list[str](), list[str]()
    read: dict[str, list[str]] = {"bounds": [], "categories": [], "forms of dates": [], "gaps": []}
    for name in (name for name in kept if name not in keys):
        if wrong := misdeclared(name, said.get(name, {})):
            faults.append(f"{name}: {wrong}")
            continue
        declared = _declared(whole[name], said.get(name, {}))
        if name not in said and is_index(whole[name]):
            faults.append(
                f"{name}: {_INDEX.format(as_columns(name, type='integer'), drop=[name], name=name)}"
            )
            continue
        if bounds and (offer := offered(declared)):
            declared |= offer
            by_name.append(name)
        column = _read(whole[name], declared) if values_are_public else declared
        told = faults_of(whole[name], column)
        faults += [f"{name}: {each}" for each in told.faults]
        doubts += [f"{name}: {each}" for each in told.doubts]
        found.append({part: _as_text(value) for part, value in column.items()})
        for part in column.keys() - declared.keys():
            if name not in (names := read[_LEARNT[part]]):
                names.append(name)
    if faults:
        raise SchemaMismatch("the frame is no table yet:\n  " + "\n  ".join([*faults, *doubts]))
    schema = {"kind": "table", "columns": found}
    if unit:
        schema["unit"] = {**unit, "column": keys[0]}
    learnt = [f"{what} of {', '.join(names)}" for what, names in read.items() if names]
    return Table(whole.select(kept), schema, learnt, offered=by_name)


def said_of_columns(columns: Any) -> dict[str, Any]:
    """What is said of columns, by their names as texts.

    Raises:
        SchemaMismatch: it is not by names.
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise SchemaMismatch(
            "columns says by names what dtypes do not tell, as "
            f"{as_columns('age', low=0, high=110)}; what is to stay at home is named in drop"
        )
    return {column_name(name): value for name, value in (columns or {}).items()}


_LEARNT = {
    "low": "bounds",
    "high": "bounds",
    "type": "categories",
    "categories": "categories",
    "format": "forms of dates",
    "missing": "gaps",
    "fill": "gaps",
}
"""What parts of a column are called, where they were read off its values."""


def column_name(name: Any) -> str:
    """The name of a frame's column as a text: pandas has numbers, too, and tuples."""
    return "_".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _names(frame: Any) -> list[str]:
    return [column_name(name) for name in getattr(frame, "column_names", frame.columns)]


def named(frame: Any) -> nw.DataFrame[Any]:
    """A frame whose columns are called by texts; of columns of one name it has the first.

    Times of pandas in a zone are those on the clock there.
    """
    names = _names(frame)
    first = dict[str, int]()
    for place, name in enumerate(names):
        first.setdefault(name, place)
    places = [*first.values()]
    if len(places) < len(names):  # which polars does not have
        frame = frame.iloc[:, places] if hasattr(frame, "iloc") else frame.select(places)
    if list(getattr(frame, "column_names", frame.columns)) != [names[place] for place in places]:
        frame = frame.set_axis([names[place] for place in places], axis=1)  # only pandas has other names
    if hasattr(frame, "iloc"):  # narwhals does not know all zones of pandas
        zoned = {
            name: frame[name].dt.tz_localize(None)
            for name, dtype in frame.dtypes.items()
            if getattr(dtype, "tz", None) is not None
        }
        frame = frame.assign(**zoned) if zoned else frame
    return nw.from_native(frame, eager_only=True)


_INDEX = (
    "whole numbers that are all different, as an id or an index: leave it out with drop={drop!r}, say whose "
    "rows are one record with unit={{'column': {name!r}, 'rows': 1}}, or declare it, as {0}"
)
_LEAST_IDS = 20
"""Rows from which on different whole numbers are taken for ids, whatever their column is called."""

_INDEX_NAME = re.compile(r"|id|index|rownames|row|level_\d+|unnamed: \d+|__index_level_\d+__", re.IGNORECASE)


def is_index(values: nw.Series[Any]) -> bool:
    """Whether values are whole numbers that are all different, as those of an id or of a frame's index."""
    if not values.dtype.is_integer():
        return False
    n = len(values)
    named = bool(_INDEX_NAME.fullmatch(values.name) or values.name.lower().endswith("_id"))
    return (n >= _LEAST_IDS or (named and n > 1)) and not values.null_count() and values.n_unique() == n


def _unit_faults(values: nw.Series[Any]) -> Iterator[str]:
    """Words on rows of which nobody knows whose they are: all of them would be one record."""
    if nameless := [place for place, value in enumerate(values.to_list()) if is_gap(value)]:
        yield (
            f"missing in {rows_at(nameless)}: write whose row each is, or leave these rows out, as all of "
            "them would be one record"
        )


_A_FRAME = "a {} is no frame: pass one of pandas, polars or pyarrow, as pandas.DataFrame(rows)"


def require_no_other(data: Any) -> None:
    """Refuse data that are near to a frame or a file.

    Raises:
        SchemaMismatch: they are; it says what to pass in place of them.
    """
    if instead := instead_of(data):
        raise SchemaMismatch(instead)


def instead_of(data: Any) -> str:
    """What to pass in place of data that are near to a frame or a file; empty for all others."""
    kind = type(data).__name__
    if nw.dependencies.is_into_series(data):
        return f"a {kind} is one column and no frame: pass series.to_frame(), or a frame with the column"
    if nw.dependencies.is_polars_lazyframe(data) or (hasattr(data, "collect") and not is_frame(data)):
        return f"a {kind} holds no rows yet: pass frame.collect()"
    if callable(getattr(data, "read", None)):
        return (
            f"a {kind} does not say its format: pass the path of a file, or a frame, as pandas.read_csv(file)"
        )
    if isinstance(data, Mapping) or (
        isinstance(data, Sequence)
        and not isinstance(data, str)
        and len(data) > 0
        and isinstance(data[0], Mapping)
    ):
        return _A_FRAME.format(kind if isinstance(data, Mapping) else f"{kind} of {type(data[0]).__name__}")
    return ""


def _faults_of_names(frame: Any, dropped: Container[str]) -> Iterator[str]:
    """Words on an index that holds data, and on names that are given twice, or that no column can have."""
    yield from _index_faults(frame)
    counts = Counter(_names(frame))
    yield from (f"{name!r}: {count} columns have this name" for name, count in counts.items() if count > 1)
    yield from (
        f"{name!r}: rename it to 1 to 200 characters of one line, or leave it out with drop=[{name!r}]"
        for name in counts
        if not _NAME.fullmatch(name) and name not in dropped
    )
    if not counts:
        yield "there are no columns"
    only = next(iter(counts)) if len(counts) == 1 else ""
    if separator := next((each for each in ";\t|" if each in only), None):
        yield (
            f"its only column has {separator!r} in its name, as if that stood between columns: read the file "
            f"with pandas.read_csv(path, sep={separator!r}), or give its path to `upload`"
        )


def _index_faults(frame: Any) -> Sequence[str]:
    """Words on an index of pandas that holds more than the places of rows."""
    index = getattr(frame, "index", None)
    names = [name for name in getattr(index, "names", ()) if name is not None]
    if index is None or (not names and str(index.dtype).startswith(("int", "uint"))):
        return ()
    called = f" {', '.join(map(str, names))}" if names else ""
    return (
        f"the index{called} holds data: frame.reset_index() makes columns of it, "
        "frame.reset_index(drop=True) leaves it out",
    )


def _declared(values: nw.Series[Any], said: Mapping[str, Any]) -> Column:
    """What dtype and owner tell of a column."""
    kind, categories = _of_dtype(values)
    column: Column = {"name": values.name} | ({"type": kind} if kind else {})
    if "categories" in said:
        column["type"] = "category"
    if "format" in said:
        column["type"] = "date"
    if "number_format" in said and "type" not in said:
        column["type"] = "number"
    column |= said
    if column.get("type") == "category" and len(categories):
        column.setdefault("categories", categories)
    return column


def _as_text(value: Any) -> Any:
    """A part of a column as JSON has it: dates in ISO form, categories as texts."""
    if isinstance(value, date):
        return value.isoformat()[:10]
    return (
        [category_text(each) for each in value]
        if isinstance(value, Sequence) and not isinstance(value, str)
        else value
    )


def _of_dtype(values: nw.Series[Any]) -> tuple[str | None, Sequence[Any]]:
    """The type that a dtype stands for, with its categories; None where it tells neither."""
    dtype = values.dtype
    if dtype.is_integer():
        return "integer", ()
    if dtype.is_numeric():
        return "number", ()
    if isinstance(dtype, nw.Boolean):
        return "boolean", ()
    if isinstance(dtype, nw.Date | nw.Datetime):
        return "date", ()
    if isinstance(dtype, nw.Enum):
        return "category", dtype.categories
    # A categorical of pandas lists its categories in its dtype, one of others makes them of the values.
    listed = getattr(getattr(values.to_native(), "dtype", None), "categories", None)
    return (None, ()) if listed is None or dtype == nw.String else ("category", [*listed])


def _read(values: nw.Series[Any], column: Column) -> Column:
    """What is known of a column, with what its values tell beside it."""
    known = values.fill_nan(None).drop_nulls() if values.dtype.is_float() else values.drop_nulls()
    gaps, read = len(known) < len(values), dict(column)
    texts = list[str]()
    if isinstance(values.dtype, nw.String | nw.Categorical):
        texts = [*map(str, known.unique().to_list())]
        gaps |= any(is_gap(text) and text not in read.get("categories", ()) for text in texts)
        texts = [text for text in texts if not is_gap(text)]
    if "type" not in read and texts and not proposed_formats(texts):
        forms = _forms(texts)
        if len(forms) == 1:  # of several, the owner knows whether day or month is first
            read |= {"type": "date"} | ({"format": forms[0]} if forms[0] else {})
        elif not forms and len(texts) <= _MOST_CATEGORIES and not _are_ids(texts, values):
            read |= {"type": "category", "categories": sorted(texts)}
    kind = read.get("type")
    if kind in ("number", "integer", "date") and len(known):
        low, high = known.min(), known.max()
        if isinstance(low, str):  # numbers or dates that are written; what is none is told with the rest
            numbers = read_cells(known, read).numbers
            if np.isnan(numbers).all():
                return read
            low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
            low, high = (date_of(low), date_of(high)) if kind == "date" else (low, high)
        if low != high:
            low, high = _years(low, high) if kind == "date" else _rounded(low, high, whole=kind == "integer")
        read = read | {end: value for end, value in (("low", low), ("high", high)) if end not in read}
        if gaps and "missing" not in read:
            read |= {"missing": "filled", "fill": between(read["low"], read["high"], kind)}
    elif gaps and kind:
        read.setdefault("missing", "category")
    return read


def _are_ids(texts: Sequence[str], values: nw.Series[Any]) -> bool:
    """Whether texts name single records, so that nobody would list them as categories."""
    return len(texts) >= _LEAST_IDS and len(texts) == len(values)


def _forms(texts: Sequence[str]) -> list[str | None]:
    """The forms in which all of some texts are dates: None is ISO 8601."""

    def fits(form: str | None) -> bool:
        try:
            return bool([day_number(text, form) for text in texts])
        except ValueError:
            return False

    return [None] if fits(None) else [form for form in FORMATS if fits(form)]


def _rounded(low: Any, high: Any, *, whole: bool) -> tuple[float, float]:
    """Bounds, outwards to multiples of a half of the power of ten below their distance."""
    power = floor(log10(float(high) - float(low)))
    step = 10.0**power / 2
    ends = (round(floor(low / step) * step, 2 - power), round(ceil(high / step) * step, 2 - power))
    return (floor(ends[0]), ceil(ends[1])) if whole else ends


def _years(low: Any, high: Any) -> tuple[str, str]:
    return f"{str(low)[:4]}-01-01", f"{str(high)[:4]}-12-31"


def _json(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, date | datetime):
        return value.isoformat()[:10]
    value = float(value) if isinstance(value, Decimal) else value
    # What pandas has for nothing is of none of these types, or NaN.
    told = isinstance(value, str) or (isinstance(value, int | float) and not isnan(value))
    return value if told else None


def _values(column: Column) -> str:
    if column["type"] == "category":
        shown = column["categories"][:_SHOWN]
        return ", ".join(shown) + (
            f", … {len(column['categories'])}" if len(column["categories"]) > _SHOWN else ""
        )
    low, high = column.get("low"), column.get("high")
    if low is not None or high is not None:
        return f"{brief(low)} to {brief(high)}{_days(column)}"
    return "" if column["type"] == "boolean" else f"no bounds: a mean may lack an interval{_days(column)}"


def _days(column: Column) -> str:
    """What is kept of dates, and how they are written where that is not in ISO form."""
    form = f", written {column['format']}" if column.get("format") else ""
    return f"; days alone{form}" if column["type"] == "date" else ""


def _gap(column: Column) -> str:
    told = column.get("missing") or "refused"
    return f"{brief(column.get('fill'))} in its place" if told == "filled" else told

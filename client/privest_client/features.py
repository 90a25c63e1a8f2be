"""Frames as numbers: the features of a model, by their names, as the service makes them of stored rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privest_client.cells import TRUTH, Column, Read, category_text, number_of, read
from privest_client.errors import SchemaMismatch
from privest_client.tables import is_frame, named

Array = NDArray[np.float64]

_SHOWN, _LISTED = 3, 9
"""Values that one complaint lists, and names of features."""


@dataclass(frozen=True)
class _Feature:
    """A feature of a column.

    Attributes:
        name: as answers call it.
        image: what makes it of the numbers that stand for the column's values.
        low: public lower bound; None where none is declared.
        high: public upper bound.
    """

    name: str
    image: Callable[[Array], Array]
    low: float | None = 0.0
    high: float | None = 1.0


def columns_of(schema: Mapping[str, Any]) -> list[Column]:
    """The columns of a table, or those that the features of labelled rows come from."""
    if schema["kind"] == "table":
        return list(schema["columns"])
    categories = schema.get("categories") or {}
    return [
        {"name": name, "type": "category", "categories": categories[name]}
        if name in categories
        else {"name": name, "type": "number"}
        for name in schema.get("features") or ()
    ]


def feature_names(schema: Mapping[str, Any]) -> list[str]:
    """The names of all features that a schema's columns become."""
    return [feature.name for column in columns_of(schema) for feature in _features(column)]


def columns_used(names: Sequence[str], schema: Mapping[str, Any]) -> list[str]:
    """The names of the columns that these features come from."""
    made = _made(names, schema)
    return list(dict.fromkeys(made[name][0]["name"] for name in names))


def names_to_ask(names: Sequence[str], schema: Mapping[str, Any]) -> list[str]:
    """Return the names by which a query asks for these features: gaps of a value come with its column."""
    made = _made(names, schema)
    return [
        name
        for name in names
        if (column := made[name][0])["name"] != name.removesuffix(" missing")
        or name == column["name"]
        or column["type"] == "category"
        or column.get("missing") == "category"
    ]


def indicators(schema: Mapping[str, Any] | None) -> set[str]:
    """The names of the features of a schema that say yes or no."""
    return {
        feature.name
        for column in (columns_of(schema) if schema else ())
        for feature in _features(column)
        if column["type"] == "boolean" or feature.name != column["name"]
    }


def filled(names: Sequence[str], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """What gaps count as in the columns that these features come from, where a public value fills them."""
    if schema is None or schema["kind"] != "table":
        return {}
    used = set(columns_used(names, schema))
    return {
        each["name"]: each["fill"]
        for each in columns_of(schema)
        if each["name"] in used and each.get("fill") is not None
    }


def standardised(
    rows: Any,
    names: Sequence[str],
    schema: Mapping[str, Any],
    units: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Array:
    """The (n, d) features of rows as directions are of them: bounds become −1 and 1, or units are found ones.

    Args:
        rows: a frame.
        names: of the features.
        schema: of a table.
        units: centres and scales of the features, where a run found these; else all columns have bounds.

    Raises:
        SchemaMismatch: as of `design`.
    """
    if units is not None:
        return (design(rows, names, schema) - np.array(units[0])) / np.array(units[1])
    known = {feature.name: feature for column in columns_of(schema) for feature in _features(column)}
    ends = [(known[name].low, known[name].high) for name in names]
    low, high = np.array(ends, dtype=np.float64).T
    return (design(rows, names, schema) - (low + high) / 2) / ((high - low) / 2)


def design(rows: Any, names: Sequence[str], schema: Mapping[str, Any] | None) -> Array:
    """The (n, d) features of rows, in the units of a model's coefficients.

    Args:
        rows: a frame with the columns that the features come from, or (n, d) features as they are.
        names: of the features, as the model has them.
        schema: of the columns.

    Raises:
        SchemaMismatch: columns are missing, or hold what the schema does not declare; it says so of each.
    """
    if not is_frame(rows):
        return _as_they_are(rows, names)
    if schema is None:
        raise SchemaMismatch("nothing is known of the columns of this model: pass an array of its features")
    frame = named(rows)
    images = _made(names, schema)
    if unknown := [name for name in names if name not in images]:
        raise SchemaMismatch(f"the schema has no column for {', '.join(unknown[:_SHOWN])}")
    used = {column["name"]: column for column, _ in (images[name] for name in names)}
    if absent := [name for name in used if name not in frame.columns]:
        raise SchemaMismatch(f"the frame has no column {', '.join(map(repr, absent))}")
    found = {name: read(frame[name], column) for name, column in used.items()}
    if faults := [f"{name}: {fault}" for name in used for fault in _faults(found[name], used[name])]:
        raise SchemaMismatch("the rows do not fit the schema:\n  " + "\n  ".join(faults))
    made = [images[name][1].image(found[images[name][0]["name"]].numbers) for name in names]
    return np.stack(made, axis=-1) if made else np.empty((len(frame), 0))


def _as_they_are(rows: Any, names: Sequence[str]) -> Array:
    """Rows that are features already.

    Raises:
        SchemaMismatch: they are no (n, d) numbers.
    """
    try:
        features: Array = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        features = np.empty((0, 0, 0))
    if features.ndim != 2 or (names and features.shape[1] != len(names)):
        raise SchemaMismatch(
            "pass a frame, also of a single row, as frame.iloc[[0]]; or an array (n, d) of the features "
            + ", ".join(names[:_LISTED])
            + (", …" if len(names) > _LISTED else "")
        )
    return features


def _faults(found: Read, column: Column) -> Iterator[str]:
    """What is wrong with a column's values, in words."""
    if strange := list(dict.fromkeys(found.strange.values())):
        what = {"category": "no declared category", "date": "no date", "boolean": "no truth value"}
        listed = ", ".join(strange[:_SHOWN]) + (", …" if len(strange) > _SHOWN else "")
        yield f"{what.get(column['type'], 'no number')}: {listed}"
    if found.gaps:
        yield f"{found.gaps} missing, and the schema refuses gaps"


def _made(names: Sequence[str], schema: Mapping[str, Any]) -> dict[str, tuple[Column, _Feature]]:
    """Return the features of a schema's columns by name, and those of several categories that are named."""
    columns = columns_of(schema)
    found = {feature.name: (column, feature) for column in columns for feature in _features(column)}
    for name in names:
        for column in columns if name not in found else ():
            if merged := _merged(name, column):
                found[name] = column, merged
    return found


def _merged(name: str, column: Column) -> _Feature | None:
    """Return the indicator of several categories, as `species=Adelie|Gentoo`; None of other names."""
    start = f"{column['name']}="
    single = {feature.name.removeprefix(start): feature for feature in _features(column)}
    if column.get("missing") == "category":
        single["missing"] = single[f"{column['name']} missing"]
    parts = name.removeprefix(start).split("|")
    if not name.startswith(start) or not all(part in single for part in parts):
        return None
    return _Feature(name, lambda numbers: np.sum([single[part].image(numbers) for part in parts], axis=0))


def _features(column: Column) -> Iterator[_Feature]:
    """The features that a column becomes."""
    name, kind = column["name"], column["type"]
    values = TRUTH if kind == "boolean" else column.get("categories") or ()
    missing = column.get("missing") or "refused"
    fill = _fill(column)
    if kind == "category" or (kind == "boolean" and missing == "category"):
        for level, value in enumerate(values):
            yield _Feature(f"{name}={value}", _indicator(level, fill))
    elif kind == "boolean":
        yield _Feature(name, _value(0.0, 1.0, fill))
    else:
        low, high = (number_of(column, end) for end in ("low", "high"))
        yield _Feature(name, _value(low, high, fill), low, high)
    if missing != "refused":
        yield _Feature(f"{name} missing", lambda numbers: np.isnan(numbers).astype(float))


def _indicator(level: int, fill: float | None) -> Callable[[Array], Array]:
    return lambda numbers: (_filled(numbers, fill) == level).astype(float)


def _value(low: float | None, high: float | None, fill: float | None) -> Callable[[Array], Array]:
    least, most = -np.inf if low is None else low, np.inf if high is None else high
    return lambda numbers: np.clip(_filled(numbers, fill), least, most)


def _filled(numbers: Array, fill: float | None) -> Array:
    return numbers if fill is None else np.where(np.isnan(numbers), fill, numbers)


def _fill(column: Column) -> float | None:
    if column.get("missing") != "filled":
        return None
    if column["type"] in ("category", "boolean"):
        values = TRUTH if column["type"] == "boolean" else [*map(category_text, column["categories"])]
        return float(values.index(category_text(column["fill"])))
    return number_of(column, "fill")

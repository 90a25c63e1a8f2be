"""What is still to be said of a frame's columns, and what is said in a way that no schema has."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import narwhals as nw
import numpy as np

from privest_client.cells import FORMATS, Column, is_number_format, number_of, proposed_formats, read

_PARTS = ("type", "low", "high", "categories", "reference", "missing", "fill", "format", "number_format")
_TYPES = ("number", "integer", "category", "boolean", "date")
_MISSING = ("refused", "category", "filled")
_OTHERS = {"min": "low", "max": "high", "values": "categories", "levels": "categories", "dtype": "type"}
"""What other libraries call parts of a column."""

_OF_KINDS: dict[frozenset[str], str] = {
    frozenset({"bool"}): "boolean",
    frozenset({"date"}): "date",
    frozenset({"datetime"}): "date",
    frozenset({"dict"}): "",
    frozenset({"list"}): "",
}
"""Types of columns by the types of Python that their values are of; of a mix, numbers."""


@dataclass(frozen=True)
class Told:
    """What is wrong with a column.

    Attributes:
        faults: what the service is sure to refuse.
        doubts: values that it may take otherwise than this client does: it has the last word.
    """

    faults: list[str] = field(default_factory=list[str])
    doubts: list[str] = field(default_factory=list[str])


def misdeclared(name: str, said: Any) -> str:
    """Words on what is said of a column, if no schema has it so; what to write instead is among them."""
    if isinstance(said, Mapping):
        return next(_misnamed({str(part): value for part, value in said.items()}), "")
    if isinstance(said, str) and said in _TYPES:
        return f"write {as_columns(name, type=said)}"
    if isinstance(said, Sequence) and not isinstance(said, str) and len(said) == 2 and _bounds(said):
        return f"write {as_columns(name, low=said[0], high=said[1])}"
    return f"write what is known of it by parts, as {as_columns(name, low=0, high=110)}"


def _misnamed(said: Mapping[str, Any]) -> Iterator[str]:
    """Words on parts of a column that are none, or are of another kind."""
    for part in said.keys() - set(_PARTS):
        meant = f"write {_OTHERS[part]!r} in place of" if part in _OTHERS else "there is no"
        yield f"{meant} {part!r}: a column has {', '.join(_PARTS)}"
    for part, listed in (("type", _TYPES), ("missing", _MISSING), ("format", FORMATS)):
        if part in said and said[part] not in listed:
            yield f"{part} is one of {', '.join(listed)}, and not {said[part]!r}"
    if "number_format" in said and not is_number_format(said["number_format"]):
        given = said["number_format"]
        yield f"number_format is how the file writes 1234.5, as '1,234.5' or '$1,234.5', and not {given!r}"
    known = said.get("categories", ())
    if isinstance(known, str) or not isinstance(known, Sequence):
        yield "categories is a list of all that there may be, as {'categories': ['no', 'yes']}"
    if (said.get("fill") is not None) != (said.get("missing") == "filled"):
        yield "a fill and {'missing': 'filled'} go together, as {'missing': 'filled', 'fill': 0}"


def as_columns(name: str, **parts: Any) -> str:
    """What to write of a column."""
    return f"columns={ {name: parts}!r}"


def _bounds(pair: Sequence[Any]) -> bool:
    return all(isinstance(end, int | float | date | None) for end in pair)


def faults_of(values: nw.Series[Any], column: Column) -> Told:
    """What is wrong with a column, or still to be said of it, in the words of `upload`."""
    gaps = values.null_count()
    if "type" not in column or (column["type"] == "category" and not column.get("categories")):
        told = Told([_asked(values)])
    elif column["type"] == "category" and len(column["categories"]) < 2:
        told = Told(["one category says nothing: drop it, or list all that there may be"])
    elif "low" in column and column["low"] == column.get("high"):
        only = column["low"]
        told = Told([f"its bounds are one value, {only}, which says nothing: drop it, or declare wider ones"])
    else:
        found = read(values, column)
        wrong = ["its fill must be from low to high"] if _beyond(column) else []
        if values.dtype.is_numeric() and "number_format" in column:
            wrong.append(f"its values are numbers already, of {values.dtype}: leave number_format out")
        told, gaps = Told(wrong, doubts=[*_doubts(found.strange, column, found.numbers)]), found.gaps
    if gaps and (column.get("missing") or "refused") == "refused":
        told.faults.append(_of_gaps(gaps, column))
    return told


def _beyond(column: Column) -> bool:
    """Whether what stands for gaps is not within bounds."""
    if column["type"] not in ("number", "integer", "date") or column.get("fill") is None:
        return False
    try:
        low, fill, high = (number_of(column, part) for part in ("low", "fill", "high"))
        known = [end for end in (low, fill, high) if end is not None]
        return known != sorted(known)
    except (TypeError, ValueError):  # of another type, of which the service has the word
        return False


def _of_gaps(count: int, column: Column) -> str:
    name, kind, fill = column["name"], column.get("type"), "…"
    if column.get("low") is not None and column.get("high") is not None:
        fill = between(column["low"], column["high"], str(kind))
    filled = as_columns(name, missing="filled", fill=fill)
    if kind in ("number", "integer", "date"):
        return f"{count} missing: say which public value stands for a gap, as {filled}"
    return f"{count} missing: say what a gap is, as {as_columns(name, missing='category')}, or {filled}"


def _doubts(strange: Mapping[int, str], column: Column, numbers: Any) -> list[str]:
    found = list[str]()
    if strange:
        words = {
            "category": "none of the categories",
            "date": "no date with the year first, as 2007-11-11 is, nor in a declared form,",
            "boolean": "neither true nor false",
        }
        say = ""
        if column["type"] in ("number", "integer"):
            say = _formats_to_say(column["name"], strange.values())
        what = words.get(column["type"], "no number")
        found.append(f"{what} in {rows_at(list(strange))}" + (f": say {say}" if say else ""))
    if column["type"] == "integer" and len(broken := np.flatnonzero(numbers % 1 > 0)):
        found.append(f"not whole in {rows_at(broken.tolist())}: say {{'type': 'number'}}")
    return found


def _formats_to_say(name: str, texts: Iterable[Any]) -> str:
    """The number formats in which texts are numbers, as parts of a column; empty where there are none."""
    return " or ".join(as_columns(name, number_format=sample) for sample in proposed_formats(texts))


def rows_at(places: Sequence[int]) -> str:
    """How many rows there are, and the first of them."""
    return f"{len(places)} row{'s' if len(places) > 1 else ''} (the first is row {places[0]}, counted from 0)"


def _asked(values: nw.Series[Any]) -> str:
    """What to say of a column whose type the dtype does not tell."""
    name = values.name
    if isinstance(values.dtype, nw.String | nw.Categorical):
        if written := _formats_to_say(name, values.to_list()):
            return f"numbers with separators or signs: say how they are written, as {written}, or drop it"
        listed = as_columns(name, categories=["…", "…"])
        return (
            f"text: list what there may be, as {listed}, say {{'type': 'date'}} of dates with the year first "
            f"and {{'format': 'dd.mm.yyyy'}} of others ({', '.join(list(FORMATS)[1:])}), or drop it"
        )
    if not isinstance(values.dtype, nw.Object):
        return f"no column of a table is of {values.dtype}: make numbers, texts or dates of it, or drop it"
    kinds = frozenset(type(value).__name__ for value in values.drop_nulls().to_list())
    of, kind = " and ".join(sorted(kinds)) or "nothing", _OF_KINDS.get(kinds, "number")
    if not kind:
        return f"values of {of}: make numbers, texts or dates of them, or drop it"
    return (
        f"values of {of}: say what they are, as {as_columns(name, type=kind)}, "
        "and you are told of cells that are none; or drop it"
    )


def between(low: Any, high: Any, kind: str) -> Any:
    """A public value in the middle of bounds."""
    if kind == "date":
        first, last = date.fromisoformat(str(low)[:10]), date.fromisoformat(str(high)[:10])
        return (first + (last - first) / 2).isoformat()
    return (low + high) // 2 if kind == "integer" else (low + high) / 2

"""What people read: a title, a small table and a few lines, in terminals and in notebooks."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import floor, isfinite, log10
from typing import Any
from unicodedata import category

from pydantic import BaseModel

Cells = Mapping[str, Sequence[str | float]]
"""A small table, by its columns."""

_MOST_ROWS, _FIRST_ROWS, _MOST_COLUMNS = 12, 11, 7
"""What is shown of a table, and of one with more rows; all of it is in `to_frame()`."""


def plain(text: str) -> str:
    """Return a text with an escape in place of each character that a terminal obeys, or that nobody sees."""
    return "".join(
        each if each.isprintable() or category(each) == "Zs" else f"\\u{ord(each):04x}" for each in text
    )


class Shown:
    """What is read by people: a title, a small table, and a few lines, in terminals and in notebooks."""

    def __repr__(self) -> str:
        head, *rows = self._grid()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [plain(self._title())]
        for row in (head, *rows) if any(head) else ():
            cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
            lines.append(f"  {'  '.join(cells)}".rstrip())
        return "\n".join([*lines, *(f"{name}: {text}" for name, text in self._lines())])

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        head, *rows = self._grid()
        told = [f"<tr>{''.join(f'<th>{escape(text)}</th>' for text in head)}</tr>"] if any(head) else []
        told += [f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows]
        wide = f' colspan="{len(head) - 1}"' if len(head) > 2 else ""
        told += [
            f"<tr><th>{escape(name)}</th><td{wide}>{escape(text)}</td></tr>" for name, text in self._lines()
        ]
        return f"<table><caption>{escape(plain(self._title()))}</caption>{''.join(told)}</table>"

    def _grid(self) -> list[list[str]]:
        """The table as texts, its head first; of a large one the beginning."""
        cells = dict(list(self._cells().items())[:_MOST_COLUMNS])
        columns = [[_text(value) for value in values] for values in cells.values()]
        rows = [list(row) for row in zip(*columns, strict=True)]
        return [
            list(map(plain, cells)),
            *(rows if len(rows) <= _MOST_ROWS else [*rows[:_FIRST_ROWS], ["…"] * len(cells)]),
        ]

    def _lines(self) -> list[tuple[str, str]]:
        """What is said below the table, first how to see the rest of it."""
        cells = self._cells()
        rows = max(map(len, cells.values()), default=0)
        left = [
            f"{count} more {what}"
            for count, what in (
                (rows - _FIRST_ROWS if rows > _MOST_ROWS else 0, "rows"),
                (max(0, len(cells) - _MOST_COLUMNS), "columns"),
            )
            if count
        ]
        found = [
            *([("not shown", f"{' and '.join(left)}: .to_frame() has all")] if left else []),
            *self._said(),
        ]
        return [(plain(name), plain(text)) for name, text in found]

    def _title(self) -> str:
        raise NotImplementedError

    def _cells(self) -> Cells:
        return {}

    def _said(self) -> list[tuple[str, str]]:
        return []


def _text(value: str | float) -> str:
    return plain(value) if isinstance(value, str) else f"{value:.4g}"


def brief(value: Any) -> str:
    """A public value in few signs: 60 of 60.0, and … where there is none."""
    return "…" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def with_error(value: str | float, error: str | float) -> tuple[str, str]:
    """A value and its error as texts, with the digits that the error leaves."""
    if isinstance(value, str) or isinstance(error, str) or not (isfinite(error) and error > 0):
        return _text(value), _text(error)
    digits = 1 - floor(log10(error))
    if digits < 0:
        value, error = round(value, digits), round(error, digits)
    if abs(value) >= 1e9 or digits > 9:
        return _text(value), _text(error)
    return f"{value:.{max(digits, 0)}f}", f"{error:.{max(digits, 0)}f}"


class Model(BaseModel):
    """What the service tells of a thing. Printed, it is one line: what is large in it is only named."""

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            if value is not None:
                yield name, _Brief(value)


class _Brief:
    """A value whose `repr` is short."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        if isinstance(self.value, BaseModel):
            return f"{type(self.value).__name__}(…)"
        large = isinstance(self.value, list | dict) and len(repr(self.value)) > _MOST_SIGNS
        return f"<{len(self.value)} in a {type(self.value).__name__}>" if large else repr(self.value)


_MOST_SIGNS = 60

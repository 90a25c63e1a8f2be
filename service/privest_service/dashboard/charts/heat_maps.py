"""Answers that are matrices, as heat maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from privest_service.dashboard.charts.svg import TYPE, chart, ems, named, row_name, short, tag, text
from privest_service.reports.formatting import decade, number

_PRINTED = 8
"""Most rows and columns for which cells show their values."""
_TITLED = 400
"""Most cells for which each has a tooltip. Larger maps are drawn by shade, to keep pages small."""
_SHADES = 12
_DARKEST = 0.6
"""Opacity of the largest value: ink is legible upon it on light and dark paper."""
_LABEL = 8.5
"""The longest label of a column, in ems."""
_NAME = 15.0
"""The longest label of a row, in ems."""


@dataclass(frozen=True)
class _Grid:
    """Position and size of the cells."""

    left: float
    top: float
    wide: float
    high: float

    def x(self, column: float) -> float:
        return self.left + column * self.wide

    def y(self, row: float) -> float:
        return self.top + row * self.high


def heat_map(
    name: str, matrix: ArrayLike, rows: Sequence[str] | None = None, columns: Sequence[str] | None = None
) -> Markup:
    """A matrix in colours, one for positive and one for negative values; up to 8×8 with the values."""
    a = np.atleast_2d(np.asarray(matrix, dtype=np.float64))
    m, k = a.shape
    printed = max(m, k) <= _PRINTED
    largest = float(np.abs(a).max()) or 1.0
    values = [[_beside(largest, float(v)) for v in row] for row in a] if printed else []
    wide = max(min(480 / max(m, k), 26), 7)
    if printed:
        wide = max(44, *(ems(value) * TYPE + 12 for row in values for value in row))
    upright = columns is not None and not _fit(columns, wide)
    top = 4.0 if columns is None else _room(columns, _LABEL) if upright else 24.0
    grid = _Grid(_room(rows, _NAME) if rows else 4, top, wide, 34 if printed else wide)
    marks = _cells(grid, a / largest, _titles(a, rows, columns) if a.size <= _TITLED else None)
    marks += [
        text(grid.x(j + 0.5), grid.y(i + 0.5) + 5, value, anchor="middle")
        for i, row in enumerate(values)
        for j, value in enumerate(row)
    ]
    for i, each in list(enumerate(rows or ()))[:: ceil(15 / grid.high)]:
        y = grid.y(i + 0.5) + 5
        marks.append(row_name(grid.left - 8, y, each, _NAME, "muted"))
    marks += _heads(grid, columns or (), upright)
    width, bottom = grid.x(k) + 4, grid.y(m)
    if np.any(a):
        marks.append(_legend(bottom + 14, number(largest)))
        width = max(width, 150 + 2 * ems("−" + number(largest)) * TYPE)
    said = f"{m} by {k} values from {number(float(a.min()))} to {number(float(a.max()))}."
    return chart(name, "Matrix", said, width, bottom + 34, *marks)


def _beside(largest: float, value: float) -> str:
    """Format a value with the decimals that the largest value needs, so that cells line up."""
    if value == 0 or not 1e-3 <= largest < 1e5:
        return number(value, 2)
    decimals = min(max(2 - decade(largest), 0), 2 if largest > 0.1 else 4)
    return f"{value:z.{decimals}f}".replace("-", "−")


def _titles(
    a: np.ndarray, rows: Sequence[str] | None, columns: Sequence[str] | None
) -> dict[tuple[int, ...], str]:
    return {
        (i, j): f"{rows[i] if rows else i + 1}, {columns[j] if columns else j + 1}: {number(float(value))}"
        for (i, j), value in np.ndenumerate(a)
    }


def _room(labels: Sequence[str], most: float) -> float:
    return max(ems(named(each, most)) for each in labels) * TYPE + 14


def _fit(labels: Sequence[str], width: float) -> bool:
    return max(ems(label) for label in labels) * TYPE <= width - 4


def _heads(grid: _Grid, columns: Sequence[str], upright: bool) -> list[Markup]:
    """Labels over the columns, upright where they do not fit, and then only as many as have room."""
    if not upright:
        return [
            text(grid.x(j + 0.5), grid.top - 8, label, anchor="middle", class_="muted")
            for j, label in enumerate(columns)
        ]
    return [
        tag(
            "text",
            named(label, _LABEL),
            class_="muted",
            transform=f"translate({short(grid.x(j + 0.5) + 5)} {short(grid.top - 6)}) rotate(-90)",
        )
        for j, label in list(enumerate(columns))[:: ceil(15 / grid.wide)]
    ]


def _cells(grid: _Grid, shares: np.ndarray, titles: dict[tuple[int, ...], str] | None) -> list[Markup]:
    """Cells gathered by their shade; each with its title, or all of a shade as one path."""
    shades: dict[tuple[str, int], list[str]] = {}
    for (i, j), share in np.ndenumerate(shares):
        x, y, wide, high = grid.x(j), grid.y(i), grid.wide, grid.high
        if titles:
            mark = tag("rect", tag("title", titles[i, j]), x=x, y=y, width=wide - 1, height=high - 1)
        else:
            mark = f"M{short(x)} {short(y)}h{short(wide)}v{short(high)}h-{short(wide)}z"
        class_ = "positive" if share > 0 else "negative"
        shades.setdefault((class_, ceil(abs(float(share)) * _SHADES - 1e-9)), []).append(mark)
    return [
        _shaded(class_, shade / _SHADES, *(marks if titles else [tag("path", d="".join(marks))]))
        for (class_, shade), marks in shades.items()
    ]


def _shaded(class_: str, share: float, *marks: str) -> Markup:
    return tag("g", *marks, class_=f"cell {class_}", fill_opacity=f"{share * _DARKEST:.2f}")


def _legend(y: float, largest: str) -> Markup:
    """Shades from the least to the largest value, each end with its number."""
    start = ems("−" + largest) * TYPE + 10
    shades = [
        _shaded(
            "positive" if i > 0 else "negative",
            abs(i) / 4,
            tag("rect", x=start + 14 * (i + 4), y=y, width=14, height=10),
        )
        for i in range(-4, 5)
    ]
    ends = [text(start - 6, y + 10, "−" + largest, anchor="end"), text(start + 132, y + 10, largest)]
    return tag("g", *shades, *ends, class_="muted")

"""Answers that are vectors: directions, coefficients with their intervals, plain values."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from privest_service.dashboard.charts.heat_maps import heat_map
from privest_service.dashboard.charts.scales import Linear
from privest_service.dashboard.charts.svg import (
    BIG,
    WIDE,
    chart,
    ems,
    line,
    linked,
    listed,
    named,
    row_name,
    short,
    tag,
    text,
)
from privest_service.reports.formatting import decade, number, numbers

_PITCH = 31
"""Distance from one row to the next, in units of the chart."""

ROWS = 30
"""Most rows that are drawn with their names."""

_LONGEST = 13.0
"""The longest name beside one panel of bars, in ems: of the widest type it takes less than half the width."""


def loadings(name: str, basis: ArrayLike, labels: Sequence[str] | None = None) -> Markup:
    """The columns of a matrix side by side, as bars about zero; a heat map beyond 30 rows or 4 columns."""
    a = np.asarray(basis, dtype=np.float64)
    size, columns = a.shape
    heads = [f"{j + 1}" for j in range(columns)] if columns > 1 else None
    if size > ROWS or columns > 4:
        return heat_map(name, a, labels, heads)
    words = labels or [f"{i + 1}" for i in range(size)]
    most = _LONGEST / columns**0.5
    left = max(ems(named(word, most)) for word in words) * BIG + 12
    top = 28 if heads else 4
    largest = float(np.abs(a).max()) or 1.0
    panel = (WIDE - left) / columns
    printed = columns <= 2
    step = 10.0 ** (
        decade(largest) - 2
    )  # of what is written: all of one fineness, so that none takes much room
    written = [[number(round(float(v) / step) * step) for v in row] for row in a]
    margin = max(ems(v) for row in written for v in row) * BIG + 8 if printed else 8
    marks = [row_name(left - 12, top + _PITCH * i + 19, word, most, "muted") for i, word in enumerate(words)]
    for j in range(columns):
        half = panel / 2 - margin
        zero = left + (j + 0.5) * panel
        if heads:
            head = f"direction {heads[j]}" if printed else heads[j]
            marks.append(text(zero, 17, head, anchor="middle", class_="muted"))
        for i in range(size):
            value, y = float(a[i, j]), top + _PITCH * i + 6
            reach = value / largest * half
            class_ = "bar positive" if value > 0 else "bar negative"
            bar = tag("rect", x=zero + min(reach, 0), y=y, width=abs(reach), height=16, class_=class_)
            marks.append(linked(bar, None, f"{words[i]}: {number(value)}"))
            if printed:
                anchor, beyond = ("end", -6) if value < 0 else (None, 6)
                marks.append(text(zero + reach + beyond, y + 13, written[i][j], anchor=anchor))
        marks.append(line(zero, top, zero, top + _PITCH * size, "axis"))
    described = " ".join(
        f"{f'Direction {j + 1}: ' if heads else ''}{listed(list(a[:, j]), labels)}" for j in range(columns)
    )
    return chart(
        name, "Directions" if heads else "Values", described, WIDE, top + _PITCH * size + 4, *marks, wide=True
    )


def vector_bars(name: str, values: ArrayLike, labels: Sequence[str] | None = None) -> Markup:
    """A vector as bars about zero: with names up to 30 entries, without up to 20, beyond as upright bars."""
    a = np.asarray(values, dtype=np.float64).ravel()
    if a.size <= (20 if labels is None else ROWS):
        return loadings(name, a[:, None], labels)
    largest = float(np.abs(a).max()) or 1.0
    left = (ems(number(-largest)) * BIG) + 10
    x, y = Linear(0, a.size, left, WIDE), Linear(-largest, largest, 180, 12)
    thick = 0.8 * (WIDE - left) / a.size
    marks = [
        tag(
            "path",
            d="".join(
                f"M{short(x(i))} {short(y(0))}V{short(y(float(v)))}h{thick:.2f}V{short(y(0))}z"
                for i, v in enumerate(a)
                if v * sign > 0
            ),
            class_=f"bar {class_}",
        )
        for sign, class_ in ((1, "positive"), (-1, "negative"))
    ]
    for value in (-largest, 0.0, largest):
        marks.append(line(left, y(value), WIDE, y(value), "axis" if value == 0 else "grid"))
        marks.append(text(left - 8, y(value) + 5, number(value), anchor="end", class_="muted"))
    marks.append(text(WIDE, 212, f"entries 1 to {a.size}", anchor="end", class_="muted"))
    return chart(name, "Values", listed(list(a), labels), WIDE, 220, *marks, wide=True)


def intervals(
    name: str, names: Sequence[str], values: Sequence[float], lows: Sequence[float], highs: Sequence[float]
) -> Markup:
    """Values with their intervals, about a zero line; those that leave zero out stand forth."""
    left = max(ems(named(name, _LONGEST)) for name in names) * BIG + 16
    printed = [number(value, 2) for value in values]
    right = WIDE - max(ems(value) for value in printed) * BIG - 14
    x = Linear(min(0.0, *lows, *values), max(0.0, *highs, *values), left, right)
    bottom = _PITCH * len(names) + 4
    ticks = x.ticks(4)
    marks = [line(left, bottom, right, bottom, "axis")]
    for tick, label in zip(ticks, numbers(ticks), strict=True):
        marks.append(line(x(tick), 0, x(tick), bottom, "grid"))
        marks.append(text(x(tick), bottom + 22, label, anchor="middle", class_="muted"))
    marks.append(line(x(0.0), 0, x(0.0), bottom, "zero"))
    for i, (value, low, high) in enumerate(zip(values, lows, highs, strict=True)):
        y = _PITCH * i + 16
        away = low > 0 or high < 0
        said = f"{names[i]}: {number(value)}, from {number(low)} to {number(high)}"
        whisker = line(x(low), y, x(high), y, "whisker")
        dot = tag("circle", cx=x(value), cy=y, r=5, class_="dot")
        marks += [
            row_name(left - 16, y + 5, names[i], _LONGEST, None if away else "muted"),
            tag("g", linked(Markup("").join([whisker, dot]), None, said), class_="away" if away else "about"),
            text(WIDE, y + 5, printed[i], anchor="end", class_=None if away else "muted"),
        ]
    said = listed(values, names) + " Emphasis where the interval leaves zero out."
    return chart(name, "Values with intervals", said, WIDE, bottom + 32, *marks, wide=True)

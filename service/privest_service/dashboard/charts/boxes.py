"""Where most values of columns are: a box with whiskers for each, in units of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from privest_service.dashboard.charts.scales import Linear
from privest_service.dashboard.charts.svg import (
    BIG,
    WIDE,
    chart,
    ems,
    line,
    linked,
    named,
    row_name,
    tag,
    text,
)

_PITCH = 46
"""Distance from one column to the next, in units of the chart."""

_LONGEST = 13.0
"""The longest name, in ems."""


@dataclass(frozen=True)
class Box:
    """A column.

    Attributes:
        name: of it.
        ends: its bounds, as they are written.
        middle: its median, as it is written.
        places: levels .01, .25, .5, .75 and .99, as numbers.
    """

    name: str
    ends: tuple[str, str]
    middle: str
    places: tuple[float, float, float, float, float]


def boxes(name: str, columns: Sequence[Box]) -> Markup:
    """A line from bound to bound, a box about the middle half, and a mark at the median."""
    left = max(ems(named(each.name, _LONGEST)) for each in columns) * BIG + 16
    marks = list[Markup]()
    for i, each in enumerate(columns):
        y, (low, lower, middle, upper, high) = _PITCH * i + 14, each.places
        x = Linear(low, high if high > low else low + 1, left + 8, WIDE - 8)
        said = f"{each.name}: median {each.middle}, from {each.ends[0]} to {each.ends[1]}"
        drawn = [
            line(x(low), y, x(high), y, "whisker"),
            tag("rect", x=x(lower), y=y - 8, width=max(x(upper) - x(lower), 1), height=16, class_="box"),
            line(x(middle), y - 8, x(middle), y + 8, "median"),
        ]
        marks += [
            row_name(left - 16, y + 5, each.name, _LONGEST, None),
            tag("g", linked(Markup("").join(drawn), None, said), class_="away"),
            text(left + 8, y + 26, each.ends[0], class_="muted"),
            text(WIDE - 8, y + 26, each.ends[1], anchor="end", class_="muted"),
        ]
    said = "; ".join(f"{each.name}: {each.ends[0]}, {each.middle}, {each.ends[1]}" for each in columns)
    return chart(
        name,
        "Where most values are",
        f"Bounds and medians. {said}",
        WIDE,
        _PITCH * len(columns),
        *marks,
        wide=True,
    )

"""Elements of SVG, escaped; text that fits its place; the frame that all charts share."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from markupsafe import Markup, escape

from privest_service.reports.formatting import number

WIDE = 600
"""Units across a chart that fills its card; `BIG` is its type on a phone, for which room is left."""
BIG = 20
TYPE = 13
"""Size of type in charts of their own width, where a unit is a pixel."""

# XML has no place for control characters, and overrides of direction would garble the neighbours.
_UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)
_WIDTHS = {**dict.fromkeys("iljtfrI.,:;|'! ()[]", 0.4), **dict.fromkeys("mwMW@%—…", 1.0)}


def tag(element: str, *inside: str, **attributes: str | float | None) -> Markup:
    """An element.

    Args:
        element: Its name.
        inside: What it holds; what is not markup is escaped.
        attributes: `_` stands for `-`, one at the end is dropped; numbers are rounded to 0.1;
            None is left out.
    """
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_written(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    body = "".join(_written(part) for part in inside)
    return Markup(f"<{element}{shown}>{body}</{element}>")  # noqa: S704 - escaped just above


def _written(value: str | float) -> str:
    if isinstance(value, str):
        return escape(value if isinstance(value, Markup) else _UNFIT.sub("\ufffd", value))
    return short(value)


def short(value: float) -> str:
    """A coordinate, to 0.1."""
    return f"{value:z.1f}".removesuffix(".0")


def path(points: Iterable[tuple[float, float]]) -> str:
    """The `d` of a line through points."""
    return "M" + "L".join(f"{short(x)} {short(y)}" for x, y in points)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def text(x: float, y: float, *words: str, anchor: str | None = None, class_: str | None = None) -> Markup:
    """One line of text; `anchor` is middle or end."""
    return tag("text", *words, x=x, y=y, text_anchor=anchor, class_=class_)


def key(sign: str, class_: str, *, first: bool = False) -> Markup:
    """A legend's sign, in a line of text, so that the browser sets the distances."""
    return tag("tspan", sign, class_=f"key {class_}", dx=None if first else 14)


def linked(mark: Markup, href: str | None, label: str) -> Markup:
    """A mark with its tooltip, within a link if it leads anywhere."""
    titled = tag("g", tag("title", label), mark)
    return tag("a", titled, href=href, aria_label=label) if href else titled


def ems(words: str) -> float:
    """About how wide text is, rather too much, in units of the type's size."""
    return sum(map(_em, words))


def _em(sign: str) -> float:
    return _WIDTHS.get(sign) or (
        1.0 if unicodedata.east_asian_width(sign) in "WF" else 0.75 if sign.isupper() else 0.6
    )


def shortened(words: str, most: float, ending: float = 0.0) -> str:
    """Text cut to so many ems, with … where it is; a share of them may be for its ending."""
    widths = list(accumulate(map(_em, words)))
    if not widths or widths[-1] <= most:
        return words
    back = list(accumulate(map(_em, reversed(words))))
    end = bisect_right(back, ending * (most - 1))
    begin = bisect_right(widths, (1 - ending) * (most - 1))
    return words[:begin].rstrip() + "…" + words[len(words) - end :].lstrip()


def row_name(x: float, y: float, feature: str, most: float, class_: str | None = None) -> Markup:
    """The name of a feature, ending at x; its title tells all of it where it had to be cut."""
    shown = named(feature, most)
    title = () if shown == feature else (tag("title", feature),)
    return tag("text", *title, shown, x=x, y=y, text_anchor="end", class_=class_)


def named(feature: str, most: float) -> str:
    """The name of a feature, cut amid: `species=Adelie` and `bill missing` differ from others at the end."""
    return shortened(feature, most, ending=0.5)


def chart(
    name: str, title: str, description: str, width: float, height: float, *marks: Markup, wide: bool = False
) -> Markup:
    """The frame: an image with title and description, or a group where links must be reached in it."""
    inside = Markup("").join(marks)
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        inside,
        id=name,
        class_="chart wide" if wide else "chart",
        viewBox=f"0 0 {short(width)} {short(height)}",
        width=None if wide else width,
        height=None if wide else height,
        role="group" if "<a " in inside else "img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def listed(values: Sequence[float], names: Sequence[str] | None = None, most: int = 12) -> str:
    """Numbers in words, the first few, for descriptions."""
    words = [number(value) for value in values[:most]]
    if names is not None:
        words = [f"{name} {word}" for name, word in zip(names, words, strict=False)]
    return ", ".join(words) + (", …" if len(values) > most else "") + "."

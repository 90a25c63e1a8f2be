"""How much of a budget is spent: a gauge, and bars of its parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin

from markupsafe import Markup

from privest_service.dashboard.charts.svg import (
    BIG,
    WIDE,
    chart,
    ems,
    line,
    linked,
    short,
    shortened,
    tag,
    text,
)
from privest_service.reports.formatting import percent, spent_percent

WARN = 0.8
BAD = 0.95


def level(spent: float) -> str:
    """The class of a share spent: good, warn or bad."""
    return "bad" if spent >= BAD else "warn" if spent >= WARN else "good"


def gauge(name: str, spent: float, planned: float = 0.0) -> Markup:
    """A half ring filled as far as the budget is spent.

    Args:
        name: The element's id, its own on the page.
        spent: Share of the budget, 0 to 1.
        planned: What a query would add; drawn as bad, up to the end, if it does not fit.
    """
    spent = min(max(spent, 0.0), 1.0)
    fits = spent + planned <= 1
    said = f"{spent_percent(spent)} spent"
    added = f"{spent_percent(planned)} planned" + ("" if fits else ", not covered")
    marks = [_arc(0, 1, "track")]
    if planned > 0:
        arc = _arc(spent, min(spent + planned, 1.0), "planned" if fits else "planned bad")
        marks.append(tag("g", tag("title", added), arc))
    if spent > 0:
        # What is hardly anything is still seen.
        marks.append(tag("g", tag("title", said), _arc(0, max(spent, 0.004), f"spent {level(spent)}")))
    for share in (WARN, BAD):
        (x1, y1), (x2, y2), (x, y) = (_on_ring(share, radius) for radius in (84, 112, 118))
        marks += [line(x1, y1, x2, y2, "notch"), text(x, y + 2, percent(share), class_="muted tiny")]
    note = added if planned > 0 else "spent"
    return chart(
        name,
        "Share of the budget spent",
        f"{said}{', ' + added if planned > 0 else ''}. Marks at 80 % and 95 %.",
        300,
        162,
        *marks,
        text(150, 124, spent_percent(spent), anchor="middle", class_="figure"),
        text(150, 148, note, anchor="middle", class_="muted" if fits else "bad"),
    )


def _on_ring(share: float, radius: float) -> tuple[float, float]:
    return 150 - radius * cos(pi * share), 126 - radius * sin(pi * share)


def _arc(start: float, stop: float, class_: str) -> Markup:
    (x1, y1), (x2, y2) = _on_ring(start, 98), _on_ring(stop, 98)
    return tag(
        "path", d=f"M{short(x1)} {short(y1)}A98 98 0 0 1 {short(x2)} {short(y2)}", class_=f"ring {class_}"
    )


@dataclass(frozen=True)
class Bar:
    """A part of the budget.

    Attributes:
        label: Whose it is.
        share: Of the whole budget, 0 to 1.
        note: What stands at the right.
        href: Where the row leads.
    """

    label: str
    share: float
    note: str = ""
    href: str | None = None


def bars(name: str, rows: Sequence[Bar], title: str) -> Markup:
    """Horizontal bars, each under its label, in shares of the whole budget."""
    marks = [_row(row, 52 * i) for i, row in enumerate(rows)]
    if not rows:
        marks = [text(0, 22, "Nothing spent yet.", class_="muted")]
    said = "; ".join(f"{row.label}: {spent_percent(row.share)}" for row in rows) or "Nothing spent yet."
    return chart(name, title, said, WIDE, max(52 * len(rows), 34), *marks, wide=True)


def _row(row: Bar, top: float) -> Markup:
    note = shortened(row.note, 0.55 * WIDE / BIG)
    room = WIDE / BIG - ems(note) - 1
    said = f"{row.label}: {spent_percent(row.share)} of the budget"
    filled = min(max(row.share, 0.0), 1.0) * WIDE
    marks = [
        # The whole row answers to the pointer, not the ink alone.
        tag("rect", x=0, y=top, width=WIDE, height=48, class_="catch"),
        text(0, top + 22, shortened(row.label, room)),
        text(WIDE, top + 22, note, anchor="end", class_="muted"),
        tag("rect", x=0, y=top + 31, width=WIDE, height=9, rx=4.5, class_="track"),
    ]
    if filled > 0:
        marks.append(
            tag(
                "rect", x=0, y=top + 31, width=max(filled, 2), height=9, rx=min(4.5, filled / 2), class_="bar"
            )
        )
    return linked(Markup("").join(marks), row.href, said)

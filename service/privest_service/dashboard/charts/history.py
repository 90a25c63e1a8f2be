"""How a budget ran down in time, and when it will be gone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from markupsafe import Markup

from privest_service.dashboard.charts.scales import Linear, Time
from privest_service.dashboard.charts.svg import WIDE, chart, key, line, linked, path, tag, text
from privest_service.reports.formatting import day, left_percent

_MOST_MARKS = 100
"""Most steps that are marked, the steepest first. One cannot hit or tab through hundreds of marks."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 480, 58, 310


@dataclass(frozen=True)
class BurnPoint:
    """A change of the budget.

    Attributes:
        at: When.
        left: Share of the budget left after it.
        href: Where its mark leads.
        label: Its tooltip.
    """

    at: datetime
    left: float
    href: str | None
    label: str


def burn_down(
    name: str, points: Sequence[BurnPoint], now: datetime, forecast: datetime | None = None
) -> Markup:
    """The share of the budget left, as a falling stair.

    Args:
        name: The element's id, its own on the page.
        points: In order, at least one; the first may be the budget's creation, with all left.
        now: Where history ends.
        forecast: When nothing will be left at the present rate. The axis reaches out for it, but by no
            more than the time that has passed.
    """
    now = max(now, points[-1].at)
    begin = points[0].at if now - points[0].at >= timedelta(minutes=1) else now - timedelta(hours=1)
    ahead = forecast if forecast and forecast > now and points[-1].left > 0 else None
    end = min(ahead, now + (now - begin)) if ahead else now
    x, y = Time(begin, end, _LEFT, _RIGHT), Linear(0, 1, _BOTTOM, _TOP)

    kept = [(x(points[0].at), y(_kept(points[0].left)))]
    for point in points[1:]:
        kept += [(x(point.at), kept[-1][1]), (x(point.at), y(_kept(point.left)))]
    kept.append((x(now), kept[-1][1]))
    area = [(kept[0][0], _BOTTOM), *kept, (kept[-1][0], _BOTTOM)]
    last = points[-1].left
    marks = [
        *_axes(x, y),
        tag("path", d=path(area), class_="area"),
        tag("path", d=path(kept), class_="line left"),
    ]
    if ahead:
        rest = last * (1 - (end - now) / (ahead - now))
        marks.append(tag("path", d=path([kept[-1], (x(end), y(rest))]), class_="line forecast"))
        marks.append(line(x(now), _TOP, x(now), _BOTTOM, "now"))
        middle = min(max(x(now), _LEFT + 20), _RIGHT - 20)
        marks.append(text(middle, _TOP - 7, "now", anchor="middle", class_="muted"))
    size = 3 if len(points) > _MOST_MARKS else 4.5
    for point in _steepest(points):
        dot = tag("circle", cx=x(point.at), cy=y(_kept(point.left)), r=size, class_="mark")
        marks.append(linked(dot, point.href, point.label))
    return chart(
        name,
        "Budget left over time",
        f"{left_percent(last)} left on {day(now)} after {len(points)} changes since {day(begin)}."
        + (f" At this rate nothing is left on {day(ahead)}." if ahead else ""),
        WIDE,
        _BOTTOM + 58,
        *marks,
        _keys(last, ahead),
        wide=True,
    )


def _keys(last: float, ahead: datetime | None) -> Markup:
    """What the lines of the chart mean."""
    words = [key("—", "left", first=True), f" {left_percent(last)} left"]
    if ahead:
        words += [key("···", "forecast"), f" gone by {day(ahead)} at this rate"]
    return text(0, 17, *words)


def _kept(left: float) -> float:
    return min(max(left, 0.0), 1.0)


def _axes(x: Time, y: Linear) -> list[Markup]:
    marks = [
        line(_LEFT, y(0), _RIGHT, y(0), "axis"),
        text(_RIGHT, _BOTTOM + 52, x.caption(), anchor="end", class_="muted"),
    ]
    for share in (0.0, 0.5, 1.0):
        marks.append(
            text(_LEFT - 8, y(share) + 5, f"{share:.0%}".replace("%", " %"), anchor="end", class_="muted")
        )
    marks += [line(_LEFT, y(share), _RIGHT, y(share), "grid") for share in (0.5, 1.0)]
    for left, class_ in ((0.2, "warn"), (0.05, "bad")):
        marks.append(line(_LEFT, y(left), _RIGHT, y(left), f"limit {class_}"))
        marks.append(
            text(_RIGHT + 6, y(left) + 5, f"{1 - left:.0%} spent".replace("%", " %"), class_="muted")
        )
    for at, label in x.ticks(5):
        marks.append(line(x(at), _BOTTOM, x(at), _BOTTOM + 5, "axis"))
        marks.append(text(x(at), _BOTTOM + 27, label, anchor="middle", class_="muted"))
    return marks


def _steepest(points: Sequence[BurnPoint]) -> Sequence[BurnPoint]:
    if len(points) <= _MOST_MARKS:
        return points
    falls = [before.left - point.left for before, point in pairwise(points)]
    steep = sorted(range(len(falls)), key=lambda i: -falls[i])[:_MOST_MARKS]
    return [points[i + 1] for i in sorted(steep)]

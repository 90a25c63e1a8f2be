"""What an answer's error costs in ε."""

from collections.abc import Sequence

from markupsafe import Markup

from privest_service.dashboard.charts.scales import Log
from privest_service.dashboard.charts.svg import WIDE, chart, key, line, linked, path, tag, text
from privest_service.reports.formatting import number, numbers, rounded_down

_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 574, 64, 316


def error_curve(
    name: str, points: Sequence[tuple[float, float]], here: tuple[float, float], most: float | None = None
) -> Markup:
    """Expected error against ε, both on logarithmic axes.

    Args:
        name: The element's id, its own on the page.
        points: (ε, error), ε ascending; those that are not positive have no place and are left out.
        here: The chosen (ε, error), both positive.
        most: The largest ε that the budget still covers; None if it sets no bound.
    """
    drawn = [(epsilon, error) for epsilon, error in points if epsilon > 0 and error > 0]
    x = Log(*_around([epsilon for epsilon, _ in [*drawn, here]]), _LEFT, _RIGHT)
    y = Log(*_around([error for _, error in [*drawn, here]]), _BOTTOM, _TOP)
    epsilon, error = here
    covered = most is None or epsilon <= most
    beyond = most is not None and most < x.high
    marks = list(_axes(x, y))
    if most is not None and beyond:
        edge = x(most) if most > 0 else _LEFT
        marks.append(tag("rect", x=edge, y=_TOP, width=_RIGHT - edge, height=_BOTTOM - _TOP, class_="beyond"))
        marks.append(line(edge, _TOP, edge, _BOTTOM, "limit bad"))
    if drawn:
        marks.append(tag("path", d=path((x(e), y(v)) for e, v in drawn), class_="line left"))
    marks += [
        line(_LEFT, y(error), x(epsilon), y(error), "guide"),
        line(x(epsilon), y(error), x(epsilon), _BOTTOM, "guide"),
    ]
    state = "here" if covered else "here bad"
    said = f"ε {number(epsilon)}: expected error {number(error)}"
    marks.append(linked(tag("circle", cx=x(epsilon), cy=y(error), r=7, class_=state), None, said))
    legend = [key("●", "left" if covered else "bad", first=True), f" {said}"]
    rest = (
        [key("▮", "beyond", first=True), f" not covered: ε above {rounded_down(most or 0)}"] if beyond else []
    )
    return chart(
        name,
        "Expected error against ε",
        f"At {said}." + (f" The budget covers ε up to {rounded_down(most)}." if most is not None else ""),
        WIDE,
        _BOTTOM + 58,
        *marks,
        text(0, 17, *legend),
        text(0, 43, "↑ expected error", class_="muted"),
        text(WIDE, 43, *rest, anchor="end", class_="muted"),
        wide=True,
    )


def _around(values: Sequence[float]) -> tuple[float, float]:
    """A range with something on either side of a single value."""
    low, high = min(values), max(values)
    return (low, high) if high > low * 1.001 else (max(low / 2, 5e-324), min(high * 2, 1e308))


def _axes(x: Log, y: Log) -> list[Markup]:
    marks = [line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis")]
    across, up = x.ticks(8), y.ticks(7)
    for tick, label in zip(across, numbers(across), strict=True):
        marks.append(line(x(tick), _TOP, x(tick), _BOTTOM, "grid"))
        marks.append(text(x(tick), _BOTTOM + 27, label, anchor="middle", class_="muted"))
    for tick, label in zip(up, numbers(up), strict=True):
        marks.append(line(_LEFT, y(tick), _RIGHT, y(tick), "grid"))
        marks.append(text(_LEFT - 8, y(tick) + 5, label, anchor="end", class_="muted"))
    marks.append(text(_RIGHT, _BOTTOM + 52, "ε of the question →", anchor="end", class_="muted"))
    return marks

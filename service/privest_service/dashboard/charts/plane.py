"""Answers that are places in the plane: a covariance's ellipse, a direction, a hyperbolic point."""

from collections.abc import Sequence
from math import atan2, atanh, degrees, hypot, tanh

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from privest_service.dashboard.charts.svg import chart, line, tag, text
from privest_service.reports.formatting import number

_X, _Y = 190.0, 150.0
_R = 104.0
_RIM = 1 - 2.0**-53
"""The largest norm below one in float."""


def ellipse(name: str, matrix: ArrayLike) -> Markup:
    """A 2×2 covariance as the ellipse of one standard deviation, with its axes."""
    sigma = np.asarray(matrix, dtype=np.float64)
    size = float(np.abs(sigma).max()) or 1.0
    values, vectors = np.linalg.eigh(sigma / size)
    lengths = np.sqrt(np.maximum(values[::-1], 0.0))
    scale = _R / (float(lengths[0]) or 1.0)
    # Of each axis the end that is right, or up where it is steep: there its label has room.
    ways = [way * (1 if (way[0] if abs(way[0]) > 0.3 else way[1]) > 0 else -1) for way in vectors.T[::-1]]
    turn = -degrees(atan2(ways[0][1], ways[0][0]))
    marks = [
        *_cross(),
        tag(
            "ellipse",
            rx=lengths[0] * scale,
            ry=lengths[1] * scale,
            class_="shape",
            transform=f"translate({_X} {_Y}) rotate({turn:.1f})",
        ),
    ]
    names = [f"σ {number(float(length) * size**0.5)}" for length in lengths]
    for way, length, label in zip(ways, lengths, names, strict=True):
        dx, dy = float(way[0] * length * scale), float(way[1] * length * scale)
        marks += [line(_X - dx, _Y + dy, _X + dx, _Y - dy, "principal"), _beside(dx, dy, way, label)]
    said = f"Standard deviations {names[0]} and {names[1]}; the longer axis at {-turn:.0f}°."
    return chart(name, "Ellipse of one standard deviation", said, 2 * _X, 2 * _Y, *marks)


def on_circle(name: str, point: Sequence[float]) -> Markup:
    """A unit vector of the plane, as an arrow to the circle."""
    a, b = point
    angle = degrees(atan2(b, a))
    length = hypot(a, b) or 1.0
    way = np.array([a, b]) / length
    dx, dy = float(way[0]) * _R, float(way[1]) * _R
    said = f"({number(a)}, {number(b)}), at {angle:.0f}°".replace("-", "−")
    return chart(
        name,
        "Direction on the unit circle",
        said,
        2 * _X,
        2 * _Y + 6,
        *_cross(),
        tag("circle", cx=_X, cy=_Y, r=_R, class_="outline"),
        line(_X, _Y, _X + dx, _Y - dy, "principal"),
        tag("g", tag("title", said), tag("circle", cx=_X + dx, cy=_Y - dy, r=6, class_="here")),
        text(_X, 2 * _Y - 4, said, anchor="middle"),
    )


def in_disk(name: str, point: Sequence[float]) -> Markup:
    """A point of the Poincaré disk; hairlines are circles at distance 1, 2 and 3 from its centre."""
    a, b = point
    distance = 2 * atanh(min(hypot(a, b), _RIM))
    said = f"({number(a)}, {number(b)}), {number(distance)} from the centre"
    rings = [tag("circle", cx=_X, cy=_Y, r=_R * tanh(far / 2), class_="ring-line") for far in (1, 2, 3)]
    return chart(
        name,
        "Point in the Poincaré disk",
        f"{said}. Circles at distance 1, 2 and 3.",
        2 * _X,
        2 * _Y + 6,
        tag("circle", cx=_X, cy=_Y, r=_R, class_="outline filled"),
        *rings,
        *_cross(_R),
        tag("g", tag("title", said), tag("circle", cx=_X + a * _R, cy=_Y - b * _R, r=6, class_="here")),
        text(_X, 2 * _Y - 4, said, anchor="middle"),
    )


def _cross(reach: float = _R + 20) -> list[Markup]:
    return [line(_X - reach, _Y, _X + reach, _Y, "grid"), line(_X, _Y - reach, _X, _Y + reach, "grid")]


def _beside(dx: float, dy: float, way: np.ndarray, label: str) -> Markup:
    """A label just beyond the end of an axis, away from the centre."""
    x, y = _X + dx + 10 * way[0], _Y - dy - 16 * way[1] + 5
    return text(
        x, y, label, anchor=None if way[0] > 0.3 else "end" if way[0] < -0.3 else "middle", class_="halo"
    )

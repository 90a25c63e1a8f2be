"""Numbers, moments and mechanisms in words."""

from datetime import UTC, datetime, timedelta
from typing import Any

from privest_service.dashboard.charts.wording import (
    day,
    left_percent,
    moment,
    number,
    percent,
    rounded_down,
    rounded_up,
    spent_percent,
)

__all__ = [
    "ERRORS",
    "LONGEST",
    "count",
    "day",
    "duration",
    "iso",
    "left_percent",
    "moment",
    "noise",
    "number",
    "rounded_down",
    "rounded_up",
    "short",
    "spent_percent",
]

_NOISES = {"gaussian": ("Gaussian", "σ"), "laplace": ("Laplace", "scale b")}
ERRORS = {
    "frechet-mean": ("Error to expect", "distance by which the noise alone moves the mean, root mean square"),
    "robust-pca": ("Error to expect", "angles by which the noise alone turns the subspace, root mean square"),
    "matrix-completion": (
        "Error to expect",
        "angles between the answer and the subspace, root mean square, for rows in it exactly",
    ),
    "logistic-regression": (
        "Noise of the last release",
        "on a coordinate, for features at most one long; errors of the coefficients come with the answer",
    ),
    "classifier-score": ("Error to expect", "of the score, by the noise alone, root mean square"),
}
"""What a plan of each kind foretells, and in which sense."""

LONGEST = timedelta(days=3650)
"""That is told by its end."""


def iso(at: datetime) -> str:
    """A moment for machines."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def short(name: str) -> str:
    """The beginning of an identifier or of a hash, enough to tell it from others on a page."""
    return f"{name[:12]}…" if len(name) > 14 else name


def count(number_of: int, one: str, many: str | None = None) -> str:
    """So many of something."""
    return f"{number_of:,} {one if number_of == 1 else many or one + 's'}"


def duration(span: timedelta) -> str:
    """How long, roughly."""
    if span > LONGEST:
        return "more than ten years"
    for unit, length in (("day", timedelta(days=1)), ("hour", timedelta(hours=1))):
        if span >= 2 * length:
            return count(round(span / length), unit)
    return count(max(1, round(span / timedelta(minutes=1))), "minute")


def noise(release: dict[str, Any]) -> str:
    """A release of a mechanism: "Gaussian noise, σ = 12.5, on 10 sums of “gradient”, to which …"."""
    name, sign = _NOISES[release["noise"]]
    if "leaves" in release or "rows" in release:
        return _of_stream(release, f"{name} noise, {sign} = {number(release['scale'])}")
    times = release["count"]
    sums = f"{count(times, 'sum')}" if times > 1 else "a sum"
    told = f"{name} noise, {sign} = {number(release['scale'])}, on {sums} of “{release['statistic']}” over "
    rate = release.get("rate")
    told += "all records" if rate is None else f"a random {percent(rate)} of records ({release['scheme']})"
    if (clip := release.get("clip")) is not None:
        told += f", to which no record adds more than {number(clip)}"
    return told


def _of_stream(release: dict[str, Any], noise: str) -> str:
    what, answers = "running sums of", release.get("leaves")
    if answers is None:
        what, answers = "products with a matrix of", release["count"]
    return (
        f"{noise}, on {what} “{release['statistic']}”, to which no record adds more than "
        f"{number(release['clip'])}; each is seen once, by {count(answers, 'answer')} at most"
    )

"""Numbers, moments and mechanisms, as people read them."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from math import ceil, floor, log10
from typing import Any

from privest.data.tables import Column

_ROUNDING = 1e-9
"""Most by which a sum of shares may be off in float, in tenths of a percent."""


def number(value: float, digits: int = 3, rounding: str = ROUND_HALF_EVEN) -> str:
    """Format a number to so many significant digits: 0.35, −12,000, 1e−6."""
    if value == 0:
        return "0"
    rounded = Context(digits, rounding).create_decimal(repr(float(value)))
    if digits <= rounded.adjusted() < 6:  # whole numbers are told whole
        rounded = Decimal(repr(float(value))).to_integral_value(rounding)
    power = rounded.adjusted()
    if -5 < power < 6:
        text = f"{rounded:,f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{rounded.scaleb(-power):f}".rstrip("0").rstrip(".") + f"e{power}"
    return text.replace("-", "−")


def typed(value: float) -> str:
    """Write a number into a form or an address, as people type it: exact, like 3 or 1e-5."""
    return repr(float(value)).removesuffix(".0").replace("e-0", "e-")


def rounded_up(value: float) -> str:
    """What is spent, never understated."""
    return number(value, rounding=ROUND_CEILING)


def rounded_down(value: float) -> str:
    """What is left, never overstated."""
    return number(value, rounding=ROUND_FLOOR)


def numbers(values: Sequence[float]) -> list[str]:
    """Format distinct values with as many digits as it takes to tell them apart."""
    texts = ([number(value, digits) for value in values] for digits in range(3, 18))
    return next(
        (each for each in texts if len(set(each)) == len(values)), [number(value) for value in values]
    )


def percent(share: float) -> str:
    """Format a share to a tenth of a percent below 10 %, otherwise to a whole one."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f}".removesuffix(".0") + " %"


def spent_percent(share: float) -> str:
    """Rounded up, so that it is never understated, but 100 % only of all and 0 % only of nothing."""
    if share <= 0:
        return "0 %"
    if share >= 1:
        return "100 %"
    tenths = ceil(1000 * share - _ROUNDING)
    if tenths >= 1000:
        return ">99.9 %"
    return "<0.1 %" if 1000 * share < 1 - _ROUNDING else f"{tenths / 10:.1f}".removesuffix(".0") + " %"


def left_percent(share: float) -> str:
    """Format the share that is left, rounded down so that it is never overstated."""
    tenths = floor(1000 * min(max(share, 0.0), 1.0) + _ROUNDING)
    return "<0.1 %" if share > 0 and tenths == 0 else f"{tenths / 10:.1f}".removesuffix(".0") + " %"


def chance_percent(chance: float) -> str:
    """Format how often a guess is right, rounded up to a tenth of a percent: never understated."""
    return f"{min(ceil(1000 * chance - _ROUNDING), 1000) / 10:.1f}".removesuffix(".0") + " %"


def cell_text(column: Column, value: float) -> str:
    """The value of a table's column that a number stands for, as a page shows it."""
    told = column.cell(value)
    if isinstance(told, float):
        return f"{told:.6g}"
    return str(told).lower() if isinstance(told, bool) else str(told)


def day(at: datetime) -> str:
    """Like 3 Nov 2026, in UTC."""
    at = at.astimezone(UTC)
    return f"{at.day} {at:%b %Y}"


def moment(at: datetime) -> str:
    """Like 3 Nov 2026, 14:05, in UTC."""
    return f"{day(at)}, {at.astimezone(UTC):%H:%M}"


def decade(value: float) -> int:
    """The power of ten at or below a positive value."""
    return floor(log10(value))


_NOISES = {"gaussian": ("Gaussian", "σ"), "laplace": ("Laplace", "scale b")}

LONGEST = timedelta(days=3650)
"""Longest span that is shown as a number of days; longer ones are shown as "more than ten years"."""


def iso(at: datetime) -> str:
    """A moment for machines."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def short(name: str) -> str:
    """The beginning of an identifier or of a hash, enough to tell it from others on a page."""
    return f"{name[:12]}…" if len(name) > 14 else name


def told_apart(datasets: Iterable[Any]) -> dict[str, str]:
    """Names by ids of datasets, or of rows with both: those of one name have the id beside it."""
    found = {each.id: each.name or each.id for each in datasets}
    times = Counter(found.values())
    return {key: f"{name} ({short(key)})" if times[name] > 1 else name for key, name in found.items()}


def count(number_of: int, one: str, many: str | None = None) -> str:
    """A number and its noun, in the singular or the plural."""
    return f"{number_of:,} {one if number_of == 1 else many or one + 's'}"


def name_of_all(names: Sequence[str]) -> str:
    """What several datasets with the same rows are called together, of which the first is named."""
    others = len(names) - 1
    return names[0] if not others else f"{names[0]}, and {count(others, 'other')} with the same rows"


_STATES = {
    "requested": "waits for approval",
    "reserved": "waiting",
    "claimed": "running",
    "committed": "answered",
    "failed": "failed, still charged",
    "voided": "given back",
    "denied": "denied",
    "expired": "not decided in time",
    "withdrawn": "withdrawn",
}


def job_state(state: str) -> str:
    """Where a question stands, in a word."""
    return _STATES.get(state, state)


def duration(span: timedelta) -> str:
    """Describe how long a span is, roughly."""
    if span > LONGEST:
        return "more than ten years"
    for unit, length in (("day", timedelta(days=1)), ("hour", timedelta(hours=1))):
        if span >= 2 * length:
            return count(round(span / length), unit)
    return count(max(1, round(span / timedelta(minutes=1))), "minute")


_OF_A_FORM = {
    r'"missing": "category"': "“a category of its own”",
    r'("missing": )?"filled",? with a public "fill"': "“filled with a value”",
    r'"format": "([a-z./]+)"': r"“\1”",
    r"^missing must be": "a gap must be",
    r"\blow\b": "Lowest",
    r"\bhigh\b": "Highest",
    r"\bfill\b": "Value for gaps",
}
"""Parts of a schema as rules name them, and as the form that declares a table does."""


def of_a_form(rule: str) -> str:
    """A rule of schemas, in the words of the form that declares a table."""
    for pattern, words in _OF_A_FORM.items():
        rule = re.sub(pattern, words, rule)
    return rule


def noise(release: dict[str, Any]) -> str:
    """A release of a mechanism: "Gaussian noise, σ = 12.5, on 10 sums of “gradient”, to which …"."""
    name, sign = _NOISES[release["noise"]]
    if "leaves" in release:
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
    return (
        f"{noise}, on running sums of “{release['statistic']}”, to which no record adds more than "
        f"{number(release['clip'])}; each is seen once, by {count(release['leaves'], 'answer')} at most"
    )

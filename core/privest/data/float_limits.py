"""Which public bounds and scales float64 can resolve: one rule for datasets of every type.

Statistics count values between bounds, and divide by their width and by scales. Their sums are finite and
exact enough only if float64 has many numbers between two bounds, and holds the squares of what is declared.
"""

from collections.abc import Iterator
from typing import NamedTuple

LARGEST = 1e100
"""Largest public number. Squares of distances between two such numbers stay in float64."""

LEAST = 1e-100
"""Least width of bounds, and least scale."""

FINEST = 1e-9
"""Least width of bounds over the larger of them. Float64 has four million numbers between two such bounds."""


class MetadataFault(NamedTuple):
    """A public fact that float64 cannot work with.

    Attributes:
        field: name of the fact or of its column.
        rule: what is wrong, and what to do; it follows on `field` in a sentence.
    """

    field: str
    rule: str


def number_faults(field: str, value: float | None) -> Iterator[MetadataFault]:
    """Yield the fault of a public number that is too large or not finite; None has none."""
    if value is not None and not abs(value) <= LARGEST:
        yield MetadataFault(field, f"must be from -{LARGEST:g} to {LARGEST:g}: declare it in a larger unit")


def scale_faults(field: str, scale: float | None, least: float = LEAST) -> Iterator[MetadataFault]:
    """Yield the fault of a public scale, radius or norm bound that is too small or too large.

    Args:
        field: name of the fact.
        scale: its value; None has no fault.
        least: least scale, and the reciprocal of the largest.
    """
    if scale is not None and not least <= scale <= 1 / least:
        yield MetadataFault(
            field,
            f"must be from {least:g} to {1 / least:g}: declare it in a unit in which values are about 1",
        )


def bounds_faults(field: str, low: float, high: float) -> Iterator[MetadataFault]:
    """Yield the fault of two bounds that are too far from 0, or too close to each other."""
    size = max(abs(low), abs(high))
    least = max(FINEST * size, LEAST)
    if not size <= LARGEST:
        yield from number_faults(field, size)
    elif not high - low >= least:
        yield MetadataFault(
            field,
            f"has low and high too close for float64: they must be at least {least:g} apart, which is "
            f"{FINEST:g} of the larger one and no less than {LEAST:g}. Declare wider bounds, or take the "
            "same public number off all values and bounds",
        )


def spread_faults(field: str, center: float, spread: float) -> Iterator[MetadataFault]:
    """Yield the fault of a public scale or radius: by itself, or beside the centre that it belongs to."""
    wrong = [*scale_faults(field, spread), *number_faults(field, center)]
    if not wrong and not 2 * spread >= FINEST * abs(center):
        wrong.append(
            MetadataFault(
                field,
                f"is too small for float64 beside its centre: it must be at least {FINEST / 2:g} of that. "
                "Declare a larger one, or take the same public number off all values and the centre",
            )
        )
    yield from wrong

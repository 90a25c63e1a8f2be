"""The numbers of an answer in one shape, whatever it is an answer to: a row for each, with its interval."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from privest.data.metadata import DatasetMetadata
from privest_service.estimates.intervals import NORMAL_95, POPULATION, scores, standard_errors, towards

_DAYS = "days since 1970-01-01"
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Number:
    """One number of an answer.

    Attributes:
        item: the column, feature or coordinate that it is of.
        measure: what of it is told.
        value: of it.
        low: lower end of its interval of 95 %; None where the answer tells none for this number.
        high: likewise the upper end.
        unit: of the three, where they are no plain numbers.
    """

    item: str
    measure: str
    value: float
    low: float | None = None
    high: float | None = None
    unit: str | None = None

    @classmethod
    def of(cls, item: str, measure: str, told: float | str, *ends: float | str | None) -> "Number":
        """A value with the ends of its interval, if any is known; dates are told by their days."""
        low, high = (None if end is None else _as_float(end) for end in ends or (None, None))
        return cls(item, measure, _as_float(told), low, high, _DAYS if isinstance(told, str) else None)


def _as_float(told: float | str) -> float:
    """A number, or the days of a date."""
    return float(date.fromisoformat(told).toordinal() - _EPOCH if isinstance(told, str) else told)


def numbers_of(kind: str, answer: dict[str, Any], shape: DatasetMetadata | None) -> Iterator[Number]:
    """All numbers of an answer, in its own order.

    Args:
        kind: of the question.
        answer: as the interface tells it, without its uncertainty.
        shape: what the plan says of the rows, which names a classifier's features.
    """
    features: tuple[str, ...] = getattr(shape, "features", ())
    if kind in ("logistic-regression", "classifier-selection") and features:
        yield from _coefficients(answer, features)
    elif kind == "classifier-score":
        for name, records, low, value, high in scores(answer):
            measure = name if records == POPULATION else f"{name} on {records}"
            yield Number.of("all records", measure, value, low, high)
    elif kind == "bounds":
        yield from _bounds(answer)
    elif kind == "frechet-mean" and answer.get("columns"):
        for each in answer["columns"]:
            yield Number.of(each["name"], each["kind"], *(each[part] for part in ("value", "low", "high")))
    else:
        columns = answer.get("columns")
        for name, value in answer.items():
            yield from _array(name, value, columns if name in ("basis", "center") else None)


def _coefficients(answer: dict[str, Any], features: tuple[str, ...]) -> Iterator[Number]:
    values = np.column_stack([np.atleast_2d(answer["coefficients"]), np.atleast_1d(answer["intercept"])])
    reach = NORMAL_95 * standard_errors(answer)
    for kind, row, ends in zip(towards(answer), values.tolist(), reach.tolist(), strict=True):
        for name, value, end in zip((*features, "intercept"), row, ends, strict=True):
            yield Number.of(name, f"coefficient towards {kind}", value, value - end, value + end)


def _bounds(answer: dict[str, Any]) -> Iterator[Number]:
    for each in answer["places"]:
        for part, measure in (("low", "lower bound"), ("high", "upper bound"), ("scale", "spread")):
            yield Number.of(each["name"], measure, each[part])
        for one in each["quantiles"]:
            told = (one[part] for part in ("value", "low", "high"))
            yield Number.of(each["name"], f"quantile {one['level']:g}", *told)


def _array(name: str, value: Any, columns: list[str] | None) -> Iterator[Number]:
    """The entries of a number, a vector or a matrix; of anything else none."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):  # it is none
        return
    if isinstance(value, bool) or not np.isfinite(array).all():
        return
    measure = name.replace("_", " ")
    for place, entry in _entries(array):
        if columns is None:
            item, told = ", ".join(str(i + 1) for i in place) or "all records", measure
        else:  # rows are columns of the table
            item, told = columns[place[0]], f"{measure} {place[1] + 1}" if place[1:] else measure
        yield Number(item, told, entry)


def _entries(array: Any) -> Iterable[tuple[tuple[int, ...], float]]:
    return ((place, float(entry)) for place, entry in np.ndenumerate(array))

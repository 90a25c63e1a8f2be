"""Intervals of 95 % around the numbers of answers, as pages and published tables tell them."""

from typing import Any

import numpy as np

from privest.arrays import Array

NORMAL_95 = 1.96
"""Standard errors on either side of a value that make an interval of 95 %."""

POPULATION, THESE_RECORDS = "new records", "these records"
"""What the intervals of a score are for."""


def standard_errors(answer: dict[str, Any]) -> Array:
    """(classes, features + 1) standard errors of a classifier's coefficients and, last, of its intercepts."""
    spreads = [answer["noise"], *([answer["sampling"]] if answer["sampling"] else [])]
    return np.sqrt(sum(np.atleast_2d(each["standard_errors"]) ** 2 for each in spreads))


def towards(answer: dict[str, Any]) -> list[str]:
    """The classes that a classifier has coefficients for: of two the second alone."""
    several = np.ndim(answer["coefficients"]) > 1
    return answer["classes"] if several else answer["classes"][1:]


def scores(answer: dict[str, Any]) -> list[tuple[str, str, float, float, float]]:
    """Return a classifier's scores: name, what the interval is for, its low end, the value, its high end.

    Answers of older versions state no intervals: theirs are computed from standard errors.
    """
    found = list[tuple[str, str, float, float, float]]()
    for name, score in ((answer["metric"], answer), ("accuracy", answer["accuracy"])):
        if not score:
            continue
        value = score["value"]
        reach = NORMAL_95 * float(np.hypot(score["standard_error"], score["sampling_error"]))
        usual = {"low": max(value - reach, 0.0), "high": min(value + reach, 1.0)}
        population = score.get("population") or usual
        found.append((name, POPULATION, population["low"], value, population["high"]))
        if records := score.get("these_records"):
            found.append((name, THESE_RECORDS, records["low"], value, records["high"]))
    return found

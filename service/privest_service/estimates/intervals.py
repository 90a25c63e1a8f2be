"""Intervals of 95 % around the numbers of answers, as pages and published tables tell them."""

from typing import Any

import numpy as np

from privest.arrays import Array

NORMAL_95 = 1.96
"""Standard errors on either side of a value that make an interval of 95 %."""


def standard_errors(answer: dict[str, Any]) -> Array:
    """(classes, features + 1) standard errors of a classifier's coefficients and, last, of its intercepts."""
    spreads = [answer["noise"], *([answer["sampling"]] if answer["sampling"] else [])]
    return np.sqrt(sum(np.atleast_2d(each["standard_errors"]) ** 2 for each in spreads))


def towards(answer: dict[str, Any]) -> list[str]:
    """The classes that a classifier has coefficients for: of two the second alone."""
    several = np.ndim(answer["coefficients"]) > 1
    return answer["classes"] if several else answer["classes"][1:]


def scores(answer: dict[str, Any]) -> list[tuple[str, float, float, float]]:
    """The scores of a classifier: name, lower end of the interval, value and upper end."""
    found = list[tuple[str, float, float, float]]()
    for name, score in ((answer["metric"], answer), ("accuracy", answer["accuracy"])):
        if score:
            reach = NORMAL_95 * float(np.hypot(score["standard_error"], score["sampling_error"]))
            low, value, high = (score["value"] + sign * reach for sign in (-1, 0, 1))
            found.append((name, max(low, 0.0), value, min(high, 1.0)))
    return found

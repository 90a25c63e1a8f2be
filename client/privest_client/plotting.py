"""Answers as pictures, where matplotlib is installed."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

_BLUE = "#1d4fd7"


def drawn(numbers: Mapping[str, Sequence[Any]], title: str) -> Any:
    """Axes with intervals, or with one bar for each number.

    Args:
        numbers: a table by its columns, the first of which has names.
        title: above all.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install matplotlib") from None
    groups = _groups(numbers)
    if "low" in numbers:
        heights = [0.6 + 0.25 * len(places) for places in groups]
        figure, axes = pyplot.subplots(
            len(groups), figsize=(7, sum(heights)), squeeze=False, height_ratios=heights, layout="constrained"
        )
        for axis, places in zip(axes[:, 0], groups, strict=True):
            _intervals(axis, numbers, places)
        shown = axes[:, 0]
    else:
        names, *columns = numbers.items()
        size = 4 * len(columns), 1 + 0.25 * len(names[1])
        figure, axes = pyplot.subplots(
            1, len(columns), figsize=size, sharey=True, squeeze=False, layout="constrained"
        )
        for axis, (called, values) in zip(axes[0], columns, strict=True):
            axis.barh(list(names[1]), list(values), color=_BLUE)
            axis.set(xlabel=called)
        axes[0, 0].invert_yaxis()
        shown = axes[0]
    figure.suptitle(title, fontsize="medium")
    return shown[0] if len(shown) == 1 else shown


def _groups(numbers: Mapping[str, Sequence[Any]]) -> list[list[int]]:
    """Places of rows that share an axis: a mean has one of its own, as each has its own units."""
    kinds = numbers.get("kind") or [""] * len(numbers["name"])
    alone = [[place] for place, kind in enumerate(kinds) if kind == "mean"]
    together = [place for place, kind in enumerate(kinds) if kind != "mean"]
    return [*alone, together] if together else alone


def _intervals(axis: Any, numbers: Mapping[str, Sequence[Any]], places: Sequence[int]) -> None:
    """Draw one value with its interval in each line."""
    low, value, high = (
        np.array([_point(numbers[part][place]) for place in places]) for part in ("low", "value", "high")
    )
    lines = np.arange(len(places))
    axis.hlines(lines, low, high, color=_BLUE)
    axis.plot(value, lines, "o", color=_BLUE)
    axis.set_yticks(lines, [numbers["name"][place] for place in places])
    axis.set_ylim(len(places) - 0.5, -0.5)


def _point(value: Any) -> Any:
    return np.datetime64(date.fromisoformat(value)) if isinstance(value, str) else value

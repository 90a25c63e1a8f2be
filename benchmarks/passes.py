"""Risk along a run, by passes over the data: what the figures of the papers have on their axes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

from privest.arrays import Array
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"

Curve = tuple[list[float], list[float]]
"""Passes, and the risk after them."""


def gradients(release: Release) -> float:
    """Gradients of a record that one answer takes, in expectation: the paper's IFO calls."""
    return release.divisor * (2 if release.statistic == "change" else 1)


class Traced(Oracle):
    """A gate that notes where gradients are asked for, and after how many passes over the data.

    Args:
        gate: which answers.
        releases: of the plan.
        n: number of records.
    """

    def __init__(self, gate: Gate, releases: Sequence[Release], n: int) -> None:
        self._gate, self._n = gate, n
        self._calls = {each.statistic: gradients(each) for each in releases}
        self.passes, self.points = list[float](), list[Any]()
        self.gone = 0.0

    def mean(self, point: Any, statistic: str = "gradient") -> Array:
        """The gate's answer."""
        if statistic in ("gradient", "change"):
            self.passes.append(self.gone)
            self.points.append(point[0] if statistic == "change" else point)
            self.gone += self._calls[statistic] / self._n
        return self._gate.mean(point, statistic)

    def pick(self, count: int) -> int:
        """The gate's choice."""
        return self._gate.pick(count)


def curve(traced: Traced, end: Any, risk: Callable[[Any], float], most: int = 60) -> Curve:
    """Risk at about so many of the points of a run, and at its end."""
    taken = np.unique(np.linspace(0, len(traced.points) - 1, most).round().astype(int))
    passes = [traced.passes[k] for k in taken]
    risks = [risk(traced.points[k]) for k in taken]
    return [*passes, traced.gone], [*risks, risk(end)]


def drawn(axis: Any, label: str, curves: Sequence[Curve]) -> None:
    """The median of several runs, which all have the same passes, into a picture."""
    passes = curves[0][0]
    middle = [median(risks) for risks in zip(*(risks for _, risks in curves), strict=True)]
    axis.semilogy(passes, middle, label=label, drawstyle="steps-post")


def saved(figure: Any, name: str, title: str) -> str:
    """The picture's line in Markdown."""
    figure.savefig(PICTURES / f"{name}.png", dpi=90, metadata={"Software": None})
    plt.close(figure)
    return f"![{title}](pictures/{name}.png)"

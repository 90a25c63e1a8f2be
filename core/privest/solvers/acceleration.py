"""Gradient descent with momentum: DP-GD, DP-HB and DP-NAG of paper 004, on noisy gradients."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from privest.arrays import Array

Method = Literal["gd", "hb", "nag"]


@dataclass(frozen=True)
class Momentum:
    """A method with its constants.

    Attributes:
        method: plain, heavy ball (Polyak 1964), or Nesterov's.
        step: α.
        momentum: β; 0 for `gd`.
    """

    method: Method
    step: float
    momentum: float

    def descend(self, start: Array, count: int, gradient: Callable[[Array], Array]) -> Array:
        """x ← x + β(x − x₋) − α·g, with g taken at x (`hb`, (5)) or at x + β(x − x₋) (`nag`, (6)).

        Args:
            start: first iterate.
            count: steps.
            gradient: noisy gradient at a point.

        Returns:
            the last iterate.
        """
        x = before = start
        for _ in range(count):
            ahead = x + self.momentum * (x - before)
            noisy = gradient(ahead if self.method == "nag" else x)
            x, before = ahead - self.step * noisy, x
        return x

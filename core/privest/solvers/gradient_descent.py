"""Gradient descent, full (DP-RGD) or on random batches (DP-RSGD): the gate's plan says which."""

from typing import Any, Protocol

from privest.arrays import Array
from privest.solvers.ball import Ball, Walk


class Oracle(Protocol):
    """The part of a gate that solvers use."""

    @property
    def remaining(self) -> int:
        """Answers left."""
        ...

    def mean(self, point: Any, statistic: str = "gradient") -> Array:
        """Noisy mean of the clipped negative gradients at `point`, or of another statistic of the plan."""
        ...

    def pick(self, count: int) -> int:
        """A uniform number below `count`."""
        ...


def gradient_descent(ball: Ball, gate: Oracle, *, start: Array, step_size: float) -> Array:
    """DP-RGD and DP-RSGD (paper 000, Section 5.3): w ← Exp_w(−η·noisy gradient), for each answer still owed.

    Args:
        ball: where the iterates stay.
        gate: source of noisy gradients.
        start: (*shape) first iterate.
        step_size: η.

    Returns:
        (*shape) the last iterate.
    """
    walk = Walk(ball, start)
    while gate.remaining:
        walk.step(step_size * gate.mean(walk.point))
    return walk.point

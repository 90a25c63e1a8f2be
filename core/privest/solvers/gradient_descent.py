"""Differentially private Riemannian gradient descent (DP-RGD)."""

from typing import Protocol

from privest.arrays import Array, lengths
from privest.manifolds import Manifold


class Oracle(Protocol):
    """The part of a gate that a first-order solver uses."""

    @property
    def remaining(self) -> int:
        """Answers left."""
        ...

    def mean(self, point: Array) -> Array:
        """Noisy mean of the clipped negative gradients at `point`, in coordinates there."""
        ...


def within_ball(manifold: Manifold, center: Array, radius: float, point: Array) -> Array:
    """The point itself, or where the geodesic from `center` to it leaves the ball."""
    away = manifold.log_coordinates(center, point)
    length = float(lengths(away))
    if length <= radius:
        return point
    return manifold.exp_coordinates(center, away * (radius / length))


def gradient_descent(
    manifold: Manifold,
    gate: Oracle,
    *,
    start: Array,
    center: Array,
    radius: float,
    step_size: float,
) -> Array:
    """DP-RGD (paper 000, Section 5.3): w ← Exp_w(−η·noisy gradient), for each answer the gate still owes.

    Iterates stay in the public ball B(center, radius) and no step is longer than its diameter: both are
    post-processing, and keep every iterate finite whatever the noise.

    Args:
        manifold: where the iterates live.
        gate: source of noisy gradients.
        start: (*shape) first iterate.
        center: (*shape) of the public ball.
        radius: of the public ball.
        step_size: η.

    Returns:
        (*shape) the last iterate.
    """
    point = start
    while gate.remaining:
        step = step_size * gate.mean(point)
        length = float(lengths(step))
        step *= min(1.0, 2 * radius / length) if length > 0 else 1.0
        point = within_ball(manifold, center, radius, manifold.exp_coordinates(point, step))
    return point

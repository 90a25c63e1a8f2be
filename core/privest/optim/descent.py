"""Noisy Riemannian gradient descent, and the public ball in which iterates stay."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array, lengths
from privest.manifolds import Manifold
from privest.privacy.oracle import Oracle

_SURE = 1 - 1e-9
"""Factor on the radius. It covers the rounding of a walk's length."""


@dataclass(frozen=True)
class Ball:
    """All points of a manifold within a public `radius` of `center`, a public (*shape) point.

    Keeping noisy iterates in it is post-processing, and costs no privacy.
    """

    manifold: Manifold
    center: Array
    radius: float

    def nearest(self, point: Array) -> tuple[Array, float]:
        """The point and its distance from the centre. A point outside moves along the geodesic to it."""
        away = self.manifold.log_coordinates(self.center, point)
        length = float(lengths(away))
        if length <= self.radius:
            return point, length
        return self.manifold.exp_coordinates(self.center, away * (self.radius / length)), self.radius


class Walk:
    """A sequence of iterates in a ball.

    The sum of step lengths bounds the distance from the centre. Only if this bound exceeds the radius is the
    distance computed, so that short steps are fast.

    Args:
        ball: the ball that the walk stays in.
        start: (*shape) first point. If it is outside the ball, the first step moves it back.
    """

    def __init__(self, ball: Ball, start: Array) -> None:
        self._ball = ball
        self.point = start
        self._reach = ball.radius

    def step(self, coordinates: Array) -> None:
        """Step by a (coordinate_size,) tangent vector, shortened to the ball's diameter if it is longer."""
        ball = self._ball
        length = sqrt(np.dot(coordinates, coordinates))
        if length > 2 * ball.radius:
            coordinates, length = coordinates * (2 * ball.radius / length), 2 * ball.radius
        self.point = ball.manifold.exp_coordinates(self.point, coordinates)
        self._reach += length
        if self._reach > ball.radius * _SURE:
            self.point, self._reach = ball.nearest(self.point)


def gradient_descent(ball: Ball, gate: Oracle, *, start: Array, step_size: float, steps: int) -> Array:
    """DP-RGD or DP-RSGD, as the gate's plan says: w ← Exp_w(−η·noisy gradient).

    Args:
        ball: the ball that the iterates stay in.
        gate: answers with noisy negative gradients.
        start: (*shape) first iterate.
        step_size: η.
        steps: how many, for each of which the plan has an answer.

    Returns:
        (*shape) the last iterate.

    References:
        Utpala et al. (2023), Section 5.3.
    """
    walk = Walk(ball, start)
    for _ in range(steps):
        walk.step(step_size * gate.mean(walk.point))
    return walk.point

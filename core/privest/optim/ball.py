"""The public ball in which an estimate is sought, and walks that stay in it."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array, lengths
from privest.manifolds import Manifold

_SURE = 1 - 1e-9
"""Factor on the radius, as rounding may add to the path of a walk."""


@dataclass(frozen=True)
class Ball:
    """All points within `radius` of `center`. Iterates are kept in it, whatever the noise: post-processing.

    Attributes:
        manifold: where the iterates live.
        center: (*shape) a public point.
        radius: public.
    """

    manifold: Manifold
    center: Array
    radius: float

    def nearest(self, point: Array) -> tuple[Array, float]:
        """The point itself, or where the geodesic from the centre to it leaves the ball; and its distance."""
        away = self.manifold.log_coordinates(self.center, point)
        length = float(lengths(away))
        if length <= self.radius:
            return point, length
        return self.manifold.exp_coordinates(self.center, away * (self.radius / length)), self.radius


class Walk:
    """Iterates, one after the other, none of them outside the ball.

    The triangle inequality tells how far the walk can have got; only where that is beyond the ball is the
    distance from its centre computed, so that short steps do not pay for it.

    Args:
        ball: where to stay.
        start: (*shape) first point, in the ball or drawn back to it by the first step.
    """

    def __init__(self, ball: Ball, start: Array) -> None:
        self._ball = ball
        self.point = start
        self._reach = ball.radius

    def step(self, coordinates: Array) -> None:
        """Go on by a tangent vector, given in coordinates; by no more than the ball's diameter."""
        ball = self._ball
        length = sqrt(np.dot(coordinates, coordinates))
        if length > 2 * ball.radius:
            coordinates, length = coordinates * (2 * ball.radius / length), 2 * ball.radius
        self.point = ball.manifold.exp_coordinates(self.point, coordinates)
        self._reach += length
        if self._reach > ball.radius * _SURE:
            self.point, self._reach = ball.nearest(self.point)

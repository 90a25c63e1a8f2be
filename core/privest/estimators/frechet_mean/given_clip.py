"""How far the answer of a descent with a given clip may be off, from a last look at the distances."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.frechet_mean.distances import Distances
from privest.estimators.frechet_mean.uncertainty import REACH, Displacement, MeanHessian, uncertainty
from privest.estimators.uncertainty import Uncertainty
from privest.optim.ball import Ball
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle


@dataclass(frozen=True)
class Facts:
    """What is public of the run.

    Attributes:
        ball: where the iterates stay.
        clip: of every gradient.
        noise: standard deviation of the noise in the answer, in each direction.
        curvature: bounds of the sectional curvature.
        look: release of the histogram.
    """

    ball: Ball
    clip: float
    noise: float
    curvature: tuple[float, float]
    look: Release

    def distances(self, gate: Oracle, point: Array) -> Distances:
        """The histogram at a point, read."""
        reach = REACH * self.ball.radius
        return Distances.read(gate.mean((point, reach), "distances"), self.look.deviation, reach)

    def hessian(self, distances: Distances, slope: float) -> MeanHessian:
        """Bounds that hold all the way to the mean, from a point where the mean gradient has this length."""
        way = slope / MeanHessian.of(distances, self.curvature).least
        return MeanHessian.of(distances, self.curvature, further=way)

    def told(
        self, clipped: Array, left: float, distances: Distances, hessian: MeanHessian, away: float
    ) -> Uncertainty:
        """The uncertainty of an answer that lies so far from the centre of the ball."""
        off = Displacement(self.ball.manifold.dim, self.noise, clipped, left)
        edge = away >= self.ball.radius * (1 - 1e-9)
        return uncertainty(off, distances, self.look, hessian=hessian, clip=self.clip, on_edge=edge)


def last_step(
    facts: Facts, gate: Oracle, point: Array, *, step_size: float, last: Release
) -> tuple[Array, Uncertainty]:
    """The last step of a descent on full gradients, and the uncertainty of its answer.

    The mean is the gradient, and what the clip cuts off, over the Hessian away from `point`.

    Args:
        facts: of the run.
        gate: releases the histogram, and the last gradient.
        point: (*shape) before the step.
        step_size: η.
        last: release of the gradient.
    """
    ball, distances = facts.ball, facts.distances(gate, point)
    gradient = gate.mean(point)
    slope = sqrt(max(0.0, float(np.dot(gradient, gradient)) - last.size * last.deviation**2))
    hessian, excess = facts.hessian(distances, slope), distances.excess(facts.clip)
    kept, doubt = hessian.contraction(step_size)
    left = (abs(kept) + doubt) / hessian.least
    ahead = ball.manifold.exp_coordinates(point, step_size * gradient)
    point, away = ball.nearest(ahead)
    left_to_go = left * slope + (float(ball.manifold.dist(point, ahead)) if away >= ball.radius else 0.0)
    return point, facts.told((step_size + left) * excess, left_to_go, distances, hessian, away)


def checked(facts: Facts, gate: Oracle, point: Array, *, check: Release) -> Uncertainty:
    """The uncertainty of any solver's answer, by a histogram and a gradient there.

    Args:
        facts: of the run.
        gate: releases the histogram, and the gradient as `check`.
        point: (*shape) the answer.
        check: release of the gradient.
    """
    distances, gradient = facts.distances(gate, point), gate.mean(point, "check")
    expected = check.size * check.deviation**2 + facts.ball.manifold.dim * facts.noise**2
    slope = sqrt(max(0.0, float(np.dot(gradient, gradient)) - expected))
    hessian, excess = facts.hessian(distances, slope), distances.excess(facts.clip)
    away = facts.ball.nearest(point)[1]
    return facts.told(excess / hessian.least, slope / hessian.least, distances, hessian, away)

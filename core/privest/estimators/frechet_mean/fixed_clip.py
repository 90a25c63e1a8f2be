"""The error of a mean of points with a fixed clip: its forecast, and what a run releases of it."""

from dataclasses import dataclass
from math import hypot, inf, sqrt
from typing import Annotated

import numpy as np
from scipy.special import chdtri, gammaincinv

from privest.arrays import Array
from privest.estimators.frechet_mean.gradient_solvers import ProblemBounds
from privest.estimators.frechet_mean.histogram import Histogram, with_outside
from privest.estimators.frechet_mean.region import (
    EDGE,
    SEVERAL,
    MeanHessian,
    Region,
    beyond_clip,
    outside,
    uncertainty,
    unseen,
)
from privest.estimators.uncertainty import ExpectedError, Uncertainty
from privest.optim.descent import Ball
from privest.options import Doc
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle


@dataclass(frozen=True)
class MeanError(ExpectedError):
    """Geodesic distance by which the noise alone moves the answer, where the clip does not bind."""

    standard_deviation: Annotated[float, Doc("root mean square distance")]
    radius_95: Annotated[float, Doc("not exceeded with probability 0.95")]

    def each_direction(self, dim: int) -> float:
        """Standard deviation in each direction of the normal law with this `radius_95`."""
        return self.radius_95 / sqrt(float(chdtri(dim, 0.05)))


def expected_error(deviation: float, last: Release, bounds: ProblemBounds, *, found: bool) -> MeanError:
    """The quantile by the law of the last step's noise, and how much worse it may come."""
    dim = bounds.space.dim
    if last.noise == "gaussian":
        ratio = sqrt(float(chdtri(dim, 0.05)) / dim)
    else:
        ratio = float(gammaincinv(last.size, 0.95)) / sqrt(last.size * (last.size + 1))
    radius = ratio * deviation
    if found:
        assumes = (
            f"the records are within {bounds.radius:.3g} of their mean; the error is in proportion to how "
            "far they are. Unfavourable: twice as far, and clipping moves as much as noise"
        )
        return MeanError(deviation, radius, assumes=assumes, unfavourable=2 * sqrt(2) * radius)
    assumes = (
        f"no record is further than the clip, {bounds.clip:.3g}, from the mean. Unfavourable: half of "
        "the records are twice as far, all in one direction"
    )
    return MeanError(deviation, radius, assumes=assumes, unfavourable=hypot(radius, 0.5 * bounds.clip))


@dataclass(frozen=True)
class Facts:
    """Public parameters of a run.

    Attributes:
        ball: where the iterates stay.
        clip: of every gradient.
        noise: standard deviation of the noise in the answer, in each direction.
        look: release of the histogram.
    """

    ball: Ball
    clip: float
    noise: float
    look: Release

    def distances(self, gate: Oracle, point: Array) -> Histogram:
        """Return the histogram of distances from a point."""
        space = self.ball.manifold
        reach = min(2 * self.ball.radius, space.diameter)
        nodes = reach * 2.0 ** (-np.arange(self.look.size - 2, -1.0, -1.0) / 2)
        nodes = with_outside(nodes, reach, space.diameter)
        return Histogram.read(
            point, gate.mean((point, nodes, point, inf), "distances"), nodes, self.look.deviation, reach
        )

    def hessian(self, distances: Histogram, slope: float) -> MeanHessian:
        """Return bounds that hold on the way to the mean, from a point with such a mean gradient."""
        space = self.ball.manifold
        return MeanHessian.of(distances, space, further=slope / MeanHessian.of(distances, space).least)

    def excess(self, distances: Histogram) -> float:
        """Return an upper bound of the mean distance beyond the clip."""
        return float(distances.excess(np.array([self.clip]))[0]) + distances.outside * distances.reach

    def told(
        self, moved: float, distances: Histogram, hessian: MeanHessian, away: float, release: Release
    ) -> Uncertainty:
        """Return the uncertainty of an answer that lies so far from the centre of the ball."""
        space = self.ball.manifold
        if hessian.is_flat:
            moved = max(moved, 2 * distances.average(lambda each: each))
        return uncertainty(
            Region.of(space, self.noise, moved, release),
            distances,
            int(self.look.divisor),
            spread=self.ball.radius,
            warnings=(
                *outside(distances.outside),
                *((EDGE,) if away >= self.ball.radius * (1 - 1e-9) else ()),
                *((SEVERAL,) if hessian.is_flat and space.cut_distance < inf else ()),
                *beyond_clip(distances, self.clip),
            ),
            unknown=(unseen(distances, int(self.look.divisor)),),
        )


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
    hessian, excess = facts.hessian(distances, slope), facts.excess(distances)
    left = hessian.contraction(step_size) / hessian.least
    ahead = ball.manifold.exp_coordinates(point, step_size * gradient)
    point, away = ball.nearest(ahead)
    left_to_go = left * slope + (float(ball.manifold.dist(point, ahead)) if away >= ball.radius else 0.0)
    return point, facts.told((step_size + left) * excess + left_to_go, distances, hessian, away, last)


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
    hessian, excess = facts.hessian(distances, slope), facts.excess(distances)
    away = facts.ball.nearest(point)[1]
    return facts.told((excess + slope) / hessian.least, distances, hessian, away, check)

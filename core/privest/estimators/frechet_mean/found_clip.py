"""A descent that finds its clip: noisy histograms of distances choose it, and tell what it cuts off."""

from dataclasses import dataclass, replace
from functools import partial
from math import inf, sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.frechet_mean.distances import Distances
from privest.estimators.frechet_mean.ranges import Range
from privest.estimators.frechet_mean.uncertainty import REACH, Displacement, MeanHessian, uncertainty
from privest.estimators.uncertainty import Uncertainty
from privest.manifolds import Manifold
from privest.optim.ball import Ball
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle

_UNSEEN = 0.02
"""What the next histogram need not see of the mean distance, as a part of the noise."""

_DONE = 0.25
"""What steps may leave to go for those before them to be left out, as a part of the answer's noise."""

_SURPRISE = 2.0
"""Standard deviations beyond which a gradient shows that more is left to go than was thought."""


@dataclass(frozen=True)
class Stage:
    """A histogram, and the steps that go by it.

    Attributes:
        look: the release of the histogram.
        gradients: the releases of the steps.
        far: of steps before these, which are made only where much is left to go.
    """

    look: NoisySum
    gradients: tuple[NoisySum, ...]
    far: tuple[NoisySum, ...] = ()

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise that the mean of all gradients would have."""
        return sum(release.deviation**-2 for release in self.gradients) ** -0.5


def stages(
    looks: tuple[NoisySum, ...], gradients: tuple[NoisySum, ...], far: tuple[NoisySum, ...] = ()
) -> tuple[Stage, ...]:
    """A stage for each look, of one step each, but for the last but one, which has all other steps."""
    early = len(looks) - 2
    parts = *((step,) for step in gradients[:early]), gradients[early:-1], gradients[-1:]
    found = [Stage(look, steps) for look, steps in zip(looks, parts, strict=True)]
    found[-2] = replace(found[-2], far=far)
    return tuple(found)


@dataclass(frozen=True)
class _Gradient:
    """A noisy gradient, and what is known of it.

    Attributes:
        vector: (size,) in coordinates.
        noise: variance in each of them.
        excess: quantiles of the mean that its clip cuts off.
        hessian: bounds on the mean Hessian.
    """

    vector: Array
    noise: float
    excess: Array
    hessian: MeanHessian


@dataclass(frozen=True)
class _State:
    """An iterate, and what is known of how far it is from the mean.

    Attributes:
        space: where it lives.
        point: (*shape) the iterate.
        noise: variance of the noise in it, in each direction.
        clipped: quantiles of what clipping moved it by at most.
        unfinished: what is left to go; infinite where nobody knows.
    """

    space: Manifold
    point: Array
    noise: float
    clipped: Array
    unfinished: float

    @property
    def square(self) -> float:
        """Square of the distance to expect."""
        return self.space.dim * self.noise + float(np.mean(self.clipped**2)) + self.unfinished**2

    def corrected(self, seen: _Gradient) -> "_State":
        """The state in view of a gradient: it may show that more is left to go, or less."""
        size = len(seen.vector)
        square = float(np.dot(seen.vector, seen.vector)) - size * seen.noise
        surplus = square - self.square if self.unfinished < inf else 0.0
        if surplus > _SURPRISE * sqrt(2 * size) * seen.noise:
            return replace(self, unfinished=sqrt(surplus) / seen.hessian.least)
        return replace(self, unfinished=min(self.unfinished, sqrt(max(0.0, square)) / seen.hessian.least))

    def stepped(self, gradient: _Gradient, *, first: bool) -> "_State":
        """The state after a step along a gradient, as long as that is worth."""
        added = self.space.dim * gradient.noise + float(np.mean(gradient.excess**2))
        length = gradient.hessian.length(inf if first else self.square, added)
        kept, doubt = gradient.hessian.contraction(length)
        return _State(
            self.space,
            self.space.exp_coordinates(self.point, length * gradient.vector),
            kept**2 * self.noise + length**2 * gradient.noise,
            abs(kept) * self.clipped + length * gradient.excess,
            abs(kept) * self.unfinished + doubt * sqrt(self.square),
        )


@dataclass(frozen=True)
class Surroundings:
    """Where the records are, before any step.

    Attributes:
        ball: in which the iterates stay, about the first of them.
        reach: the largest distance from there that the first histogram tells apart.
        most: what no later histogram need exceed.
    """

    ball: Ball
    reach: float
    most: float = inf

    @classmethod
    def ranged(cls, within: Range, gate: Oracle, start: Array, first: Release) -> "Surroundings":
        """Find where the records are by a histogram over many orders of magnitude.

        Args:
            within: which the records may be of the start.
            gate: releases the statistic `range` at (point, reach).
            start: (*shape) first iterate.
            first: the release of the range.
        """
        typical = within.read(gate.mean((start, within.top), "range"), first.deviation)
        ball = Ball(
            within.manifold, start, min(4 * max(typical, within.radius), within.manifold.widest_radius)
        )
        # A radius that is not refuted bounds what noise hides.
        most = REACH * within.radius if within.is_declared and typical <= within.radius else inf
        return cls(ball, min(8 * typical, most), most)


def descent(
    around: Surroundings, gate: Oracle, *, curvature: tuple[float, float], stages: tuple[Stage, ...]
) -> tuple[Array, Uncertainty]:
    """Steps along noisy gradients, each with the clip that the last histogram suggests.

    A step is as long as it is worth: the first goes all the way, and later ones weigh what they add of noise
    against what is left of earlier ones, as a Kalman filter does. On flat spaces the answer so is the mean of
    what all steps found, each with the inverse of its squared error for a weight.

    Args:
        around: where the records are.
        gate: releases the statistics `distances` at (point, reach), and `scaled` and `far` at (point, clip).
        curvature: bounds of the sectional curvature.
        stages: in order, at least one.

    Returns:
        (*shape) the last iterate, and its uncertainty.
    """
    ball, reach, most = around.ball, around.reach, around.most
    space, start = ball.manifold, ball.center
    state = _State(space, start, 0.0, np.zeros(1), inf)
    told: partial[Uncertainty] | None = None
    on_edge = False
    for place, stage in enumerate(stages):
        seen = gate.mean((state.point, reach), "distances")
        distances = Distances.read(seen, stage.look.doubt, reach)
        hessian = MeanHessian.of(distances, curvature)
        clip = distances.best_clip(sqrt(space.dim) * stage.deviation)
        excess = distances.excess(clip)
        unseen = _UNSEEN * sqrt(space.dim) * stage.deviation * clip
        reach = min(2 * distances.beyond_which(unseen), most)
        noise = clip * sqrt(space.dim) * stages[-1].deviation
        is_near = hessian.left(sqrt(state.square), len(stage.gradients) + 1) <= _DONE * noise
        steps = [("far", release) for release in stage.far if not is_near]
        steps += [("scaled", release) for release in stage.gradients]
        for step, (statistic, release) in enumerate(steps):
            vector = clip * gate.mean((state.point, clip), statistic)
            gradient = _Gradient(vector, (clip * release.doubt) ** 2, excess, hessian)
            is_first = place == 0 and step == 0
            state = state.corrected(gradient).stepped(gradient, first=is_first)
            point, away = ball.nearest(state.point)
            back = float(space.dist(point, state.point)) if away >= ball.radius else 0.0
            state = replace(state, point=point, unfinished=state.unfinished + back)
            on_edge = on_edge or (place > 0 and back > 0)
        told = partial(uncertainty, distances=distances, look=stage.look, hessian=hessian, clip=clip)
    assert told is not None  # noqa: S101 - there is a stage
    off = Displacement(space.dim, sqrt(state.noise), state.clipped, state.unfinished)
    return state.point, told(off, on_edge=on_edge)

"""The private Fréchet mean: the point of a manifold with the least mean squared distance to the records."""

from dataclasses import dataclass
from math import fsum, inf, nextafter, sqrt
from typing import Any

import numpy as np
from scipy.special import chdtri, gammaincinv

from privest.arrays import Array
from privest.losses.squared_distance import SquaredDistance
from privest.privacy.calibration import gaussian_delta, mu_for
from privest.privacy.certificates import Noise, NoisySum, noisy_sum
from privest.privacy.cost import Cost, PrivacyTarget
from privest.records import PointsShape
from privest.solvers.gradient_descent import Oracle, gradient_descent
from privest.solvers.schedule import Schedule, hessian_bounds, schedule

MOST_STEPS = 1000
"""Of a request that names the number of steps."""

_WEAK_DELTA = 1.0
"""A δ of this many over n is called weak: it allows one record of n to be published."""


@dataclass(frozen=True)
class FrechetMeanSpec:
    """What an analyst may choose; whatever is None follows from public facts.

    Attributes:
        start: first iterate, nested lists; the public centre by default.
        clip: bound on the distance by which one record pulls; the public radius by default.
        step_size: η of every step.
        steps: number of steps.
    """

    start: list[Any] | None = None
    clip: float | None = None
    step_size: float | None = None
    steps: int | None = None


@dataclass(frozen=True)
class ExpectedError:
    """Geodesic distance by which noise alone moves the answer, where the clip does not bind.

    Attributes:
        standard_deviation: root mean square distance.
        radius_95: distance not exceeded with probability 0.95.
    """

    standard_deviation: float
    radius_95: float


@dataclass(frozen=True)
class FrechetMeanPlan:
    """Everything about a run, before any row is read.

    Attributes:
        target: privacy as requested.
        shape: public facts of the data.
        start: first iterate, nested lists.
        center: of the ball in which the mean is sought, nested lists.
        radius: of that ball.
        clip: bound on one record's gradient.
        step_size: η of every step.
        releases: the noisy sums of the run, in order.
        cost: of all releases together.
        expected_error: by the noise.
        mechanism: in words.
        warnings: what the analyst should know.
    """

    target: PrivacyTarget
    shape: PointsShape
    start: list[Any]
    center: list[Any]
    radius: float
    clip: float
    step_size: float
    releases: tuple[NoisySum, ...]
    cost: Cost
    expected_error: ExpectedError
    mechanism: str
    warnings: tuple[str, ...]

    @property
    def statistic(self) -> SquaredDistance:
        """What the gate sums for this plan."""
        return SquaredDistance(self.shape.space)


def plan(spec: FrechetMeanSpec, shape: PointsShape, target: PrivacyTarget) -> FrechetMeanPlan:
    """Noise, steps and exact cost of a private Fréchet mean, from public facts alone.

    Args:
        spec: the analyst's choices.
        shape: public shape of the data.
        target: (ε, δ); δ = 0 plans Laplace noise, any other Gaussian noise.

    Raises:
        ValueError: a choice that is out of range, in words fit for whoever made it.
    """
    space = shape.space
    warnings: list[str] = []
    if shape.n < 1:
        raise ValueError("a mean needs at least one record")
    center, radius = shape.search_center, _positive(shape.search_radius, "radius", space.widest_radius)
    if shape.radius is None:
        warnings.append(
            f"the dataset's schema names no radius; {radius:.3g} about the centre is assumed. "
            "A mean outside that ball is not found, and a tighter ball costs less noise"
        )
    start = shape.point(spec.start, "start") if spec.start is not None else center
    clip = _positive(spec.clip, "clip") if spec.clip is not None else radius
    step_size = _positive(spec.step_size, "step_size") if spec.step_size is not None else None
    if spec.steps is not None and not 1 <= spec.steps <= MOST_STEPS:
        raise ValueError(f"steps must be between 1 and {MOST_STEPS}")

    noise: Noise = "laplace" if target.delta == 0 else "gaussian"
    with np.errstate(over="ignore"):
        distance = _positive(radius + float(space.dist(center, start)), "distance of the start")
    loss = target.epsilon if noise == "laplace" else mu_for(target.epsilon, target.delta)

    def release(share: float) -> NoisySum:
        part = loss * (share if noise == "laplace" else sqrt(share)) * (1 - 1e-12)
        return noisy_sum(noise, n=shape.n, size=space.coordinate_size, clip=clip, loss=part)

    chosen = schedule(
        space.dim * release(1.0).variance / shape.n**2,
        power=2 if noise == "laplace" else 1,
        curvature=space.curvature if space.dim > 1 else (0.0, 0.0),
        distance=distance,
        clip=clip,
        steps=spec.steps,
        step_size=step_size,
    )
    if chosen.step_size >= 2 / hessian_bounds(space.curvature, clip)[1]:
        warnings.append("step_size is so long that iterates need not settle; the expected error is a guess")
    releases = tuple(release(share) for share in chosen.shares)
    cost = sum((r.cost for r in releases), Cost())
    _certify(releases, cost, target)

    if target.delta * shape.n >= _WEAK_DELTA:
        warnings.append("delta is at least 1/n: such a guarantee allows a whole record to be published")
    expected = _expected_error(chosen, releases[-1], space.dim)
    if expected.radius_95 >= radius:
        warnings.append("the noise is wider than the public ball: expect no information from this query")
    return FrechetMeanPlan(
        target=target,
        shape=shape,
        start=start.tolist(),
        center=center.tolist(),
        radius=radius,
        clip=clip,
        step_size=chosen.step_size,
        releases=releases,
        cost=cost,
        expected_error=expected,
        mechanism=_in_words(releases),
        warnings=tuple(warnings),
    )


def run(planned: FrechetMeanPlan, gate: Oracle) -> Array:
    """The private mean, (*shape): sees the plan and the gate's noisy answers, never a row."""
    return gradient_descent(
        planned.shape.space,
        gate,
        start=np.array(planned.start, dtype=np.float64),
        center=np.array(planned.center, dtype=np.float64),
        radius=planned.radius,
        step_size=planned.step_size,
    )


def _positive(value: float, name: str, most: float = 1e100) -> float:
    """The value, if it is in a range where squares of lengths stay in float64.

    Raises:
        ValueError: it is not.
    """
    if not 1e-100 <= value <= most:
        raise ValueError(f"{name} must be between 1e-100 and {most:g}")
    return value


def _certify(releases: tuple[NoisySum, ...], cost: Cost, target: PrivacyTarget) -> None:
    """The cost covers the request by a second reading of the releases.

    Raises:
        ValueError: it does not; a defect of the planner, met before any charge.
    """
    if target.delta == 0:
        covered = nextafter(fsum(r.epsilon for r in releases), inf) <= target.epsilon
    else:
        mu = nextafter(sqrt(cost.mu_squared), inf)
        covered = gaussian_delta(target.epsilon, mu) <= target.delta
    if not covered:
        raise ValueError("this privacy cannot be certified in float64")


def _expected_error(chosen: Schedule, last: NoisySum, dim: int) -> ExpectedError:
    """From the last step's noise, widened by what earlier noise leaves behind."""
    deviation = chosen.noise_error
    if last.noise == "gaussian":
        ratio = sqrt(float(chdtri(dim, 0.05)) / dim)
    else:
        ratio = float(gammaincinv(last.size, 0.95)) / sqrt(last.size * (last.size + 1))
    return ExpectedError(deviation, ratio * deviation)


def _in_words(releases: tuple[NoisySum, ...]) -> str:
    count = len(releases)
    scales = [r.scale / r.n for r in releases]
    name = "Gaussian noise, σ" if releases[0].noise == "gaussian" else "Laplace noise, scale"
    spread = f"{scales[-1]:.4g}" if count == 1 else f"{scales[0]:.4g} falling to {scales[-1]:.4g}"
    return f"{name} = {spread} on the mean gradient, {count} {'step' if count == 1 else 'steps'}"

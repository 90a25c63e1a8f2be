"""Plans of means by gradient descent: number, length and budget of steps, and the error to expect.

All follow from public facts. Solvers: `rgd`, and on random batches `rsgd` and `rsvrg`.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, sqrt, tan, tanh
from typing import Literal

import numpy as np

from privest.arrays import Array
from privest.estimators.frechet_mean.histogram import DistanceShares
from privest.estimators.frechet_mean.losses import SquaredDistance, SquaredDistanceChange
from privest.estimators.frechet_mean.radius_search import Range
from privest.manifolds import Embedded, Manifold
from privest.memo import memoized
from privest.optim.descent import Ball
from privest.optim.variance_reduction import (
    MOST_PASSES,
    MOST_STEPS,
    AskedLoops,
    Epochs,
    LoopBounds,
    plan_loops,
)
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release, Scheme

_MOST_STEPS = 60
_GROWTHS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 15.0, 30.0, 100.0)
_WIDEST = 100.0
"""Logarithm of the largest share over the least: beyond, squares of shares leave float64."""

_LEAST_HESSIAN = 0.3
"""Assumed where geometry promises less: records all around a sphere."""

TYPICAL = 0.7
"""Distance of a typical record from the mean, in clips. It decides how fast earlier noise shrinks."""


@dataclass(frozen=True)
class Schedule:
    """Steps of one length, each with its share of the loss (μ², or ε for pure privacy)."""

    step_size: float
    shares: tuple[float, ...]
    error: float
    """Root mean square distance to the clipped mean that was predicted, from the worst start."""
    noise_error: float
    """Part of `error` by the noise alone, for records at a typical distance from their mean."""


def hessian_bounds(curvature: tuple[float, float], clip: float) -> tuple[float, float]:
    """Least and largest eigenvalue of the Hessian of ½dist², for records within `clip` of the point.

    With sectional curvature in [−k², K²] they are c·K/tan(c·K), at most 1, and c·k/tanh(c·k), at least 1
    (Hessian comparison; the constant ζ of Utpala et al. 2023, Section 2). Records beyond the clip have a
    Hessian between 0 and the same upper bound, so that steps below 2/upper are stable on any data.
    """
    low, high = 1.0, 1.0
    if curvature[1] > 0:
        angle = clip * sqrt(curvature[1])
        low = angle / tan(angle) if angle < 1.5 else 0.0
    if curvature[0] < 0:
        angle = clip * sqrt(-curvature[0])
        high = angle / tanh(angle)
    return max(low, _LEAST_HESSIAN), high


@memoized
def schedule(
    variance: float,
    *,
    power: int,
    curvature: tuple[float, float],
    distance: float,
    clip: float,
    steps: int | None = None,
    step_size: float | None = None,
) -> Schedule:
    """The schedule of least predicted error.

    A step of size η is taken to shorten the distance D to the mean by the slower of the factor
    max|1 − ηh| over Hessian eigenvalues h, and the share η·C/√(D² + C²) that clipped records pull from
    afar (docs/benchmarks.md has it measured). Earlier noise shrinks likewise, but by the Hessian of
    records at a typical distance: for the least favourable ones, all at the clip, twice the budget would
    go into steps that only few data sets need.

    Args:
        variance: total variance of the noise on one mean that has the whole loss for itself.
        power: that of the share by which it is divided: 1 where shares are of μ², 2 of ε.
        curvature: a lower bound of the sectional curvature, and its mean from above.
        distance: public bound on the distance from the start to the mean.
        clip: bound on one record's gradient.
        steps: number of steps, if it is given.
        step_size: length of a step, if it is given; else 1 over the largest Hessian eigenvalue.
    """
    low, high = hessian_bounds(curvature, clip)
    step = step_size if step_size is not None else 1 / high

    def contraction(bounds: tuple[float, float]) -> float:
        return min(1.0, max(abs(1 - step * bound) for bound in bounds))

    worst, typical = contraction((low, high)), contraction(hessian_bounds(curvature, TYPICAL * clip))

    counts = np.arange(1, _MOST_STEPS + 1) if steps is None else np.array([steps])
    count, growth = (grid.ravel() for grid in np.meshgrid(counts, _GROWTHS, indexing="ij"))
    fits = count * np.log(growth) < _WIDEST
    count, growth = count[fits], growth[fits]
    total = np.where(growth > 1, (1 - growth**-count) / (1 - 1 / np.maximum(growth, 1.01)), count)

    bias = np.full(len(count), distance)
    noise = np.zeros(len(count))
    for k in range(int(count.max())):
        on = k < count
        share = growth ** np.where(on, k - count + 1.0, 0.0) / total
        with np.errstate(over="ignore"):
            added = np.minimum(step**2 * variance / share**power, 1e300)
        slow = 1 - step * clip / np.sqrt(bias**2 + noise + clip**2)
        bias = np.where(on, bias * np.maximum(worst, slow), bias)
        noise = np.where(on, np.maximum(typical, slow) ** 2 * noise + added, noise)
    error = bias**2 + noise
    best = int(np.argmin(error))
    return Schedule(
        step,
        _shares(int(count[best]), float(growth[best])),
        sqrt(float(error[best])),
        sqrt(float(noise[best])),
    )


def _shares(count: int, growth: float) -> tuple[float, ...]:
    """Shares that grow by a constant factor from step to step and add up to one."""
    weights: Array = growth ** np.arange(1.0 - count, 1.0)
    return tuple((weights / weights.sum()).tolist())


@memoized
def stochastic_schedule(
    variance: float,
    *,
    sampling: float,
    distance: float,
    clip: float,
    hessian: float,
    most: float,
    steps: int | None = None,
    step_size: float | None = None,
) -> Schedule:
    """The number and the length of steps on random batches, all with the same noise.

    Each step pays for at least an even share of the budget, so that T steps see a noise of T·variance on
    their mean besides that of the sampling; iterates settle where η/(2 − η) of both is left.

    Args:
        variance: total variance of the noise on one mean of all records that has the whole μ² for itself.
        sampling: variance of a batch's mean about that of all records.
        distance: public bound on the distance from the start to the mean.
        clip: bound on one record's gradient.
        hessian: largest eigenvalue of the Hessian; steps are at most 1 over it.
        most: steps to consider.
        steps: T, if it is given.
        step_size: η, if it is given.
    """
    counts = np.unique(np.geomspace(1, most, 200).round()) if steps is None else np.array([float(steps)])
    sizes = np.geomspace(1e-4, 1.0, 60) / hessian if step_size is None else np.array([step_size])
    count, size = (grid.ravel() for grid in np.meshgrid(counts, sizes, indexing="ij"))
    travelled = np.maximum(distance - size * clip * count / 2, 0.0)
    bias = np.maximum(distance * np.maximum(1 - size, 0.0) ** count, travelled)
    noise = np.minimum(size, 1.9) / (2 - np.minimum(size, 1.9)) * (count * variance + sampling)
    best = int(np.argmin(bias**2 + noise))
    chosen = int(count[best])
    return Schedule(
        float(size[best]),
        (1 / chosen,) * chosen,
        sqrt(float(bias[best] ** 2 + noise[best])),
        sqrt(float(noise[best])),
    )


Solver = Literal["noisy-sum", "clipped-sum", "rgd", "rsgd", "rsvrg"]

SUMS = ("noisy-sum", "clipped-sum")
"""Solvers for columns of a table."""

MOST_NODES, FEW_NODES = 42, 16
"""Nodes of histograms with Gaussian noise, and with Laplace noise."""

_LOOK, _CHECK = 0.1, 0.1
"""Shares of the budget for a histogram at the end of a run, and for a gradient there."""


def mean_curvature(ball: Ball) -> tuple[float, float]:
    """Lower bound of the sectional curvature, which keeps steps stable, and a mean for forecasts."""
    space = ball.manifold
    if space.dim == 1:
        return (0.0, 0.0)
    return space.curvature[0], space.mean_curvature(ball.center, ball.radius)


@dataclass(frozen=True)
class ProblemBounds:
    """The public facts of a minimisation of ½ dist².

    Attributes:
        n: number of records.
        space: where the iterates live.
        center: (*shape) of the public ball.
        radius: of that ball.
        target: (ε, δ).
        distance: bound on the distance from the start to the minimiser.
        clip: C₀, bound on one record's gradient.
        spared: share of the budget that the steps leave for the diagnosis of their answer.
        is_declared: whether the schema has the radius.
    """

    n: int
    space: Manifold
    center: Array
    radius: float
    target: PrivacyTarget
    distance: float
    clip: float
    spared: float = 0.0
    is_declared: bool = True

    @property
    def range(self) -> Range:
        """What a run may find out about the distances of the records."""
        return Range(self.space, self.radius, self.is_declared)

    @property
    def has_ball(self) -> bool:
        """Whether a ball is declared, or the manifold is one itself."""
        return self.is_declared or isinstance(self.space, Embedded)

    @property
    def is_flat(self) -> bool:
        """Whether one gradient leads to the mean from anywhere."""
        space = self.space
        return space.cut_distance == inf and (space.dim == 1 or space.curvature == (0.0, 0.0))

    @property
    def distance_shares(self) -> DistanceShares:
        """The histogram of distances."""
        return distance_shares(self.space, pure=self.target.delta == 0)

    def budget(self, *, batches: bool = False) -> PrivacyBudget:
        """What the steps may spend."""
        of = PrivacyBudget.for_gaussian_batches if batches else PrivacyBudget.of
        return of(self.target, self.n).part(1 - self.spared)

    @cached_property
    def gradient(self) -> SquaredDistance:
        """The statistic of gradients."""
        return SquaredDistance(self.space)

    @cached_property
    def change(self) -> SquaredDistanceChange:
        """The statistic of changes of gradients."""
        return SquaredDistanceChange(self.space)

    def variance_of(self, release: Release) -> float:
        """Total variance of the noise on a released mean."""
        return self.space.dim * release.variance / release.divisor**2

    @property
    def curvature(self) -> tuple[float, float]:
        """Curvature of the public ball."""
        return mean_curvature(Ball(self.space, self.center, self.radius))

    @property
    def hessian(self) -> float:
        """Largest eigenvalue of the Hessian of the clipped loss."""
        return hessian_bounds(self.curvature, self.clip)[1]


@dataclass(frozen=True)
class SolverPlan:
    """A solver's run before any row is read."""

    solver: Solver
    releases: tuple[Release, ...]
    schedule: Schedule
    epochs: Epochs | None = None


def distance_shares(space: Manifold, *, pure: bool) -> DistanceShares:
    """Return the histogram of distances, with few nodes if δ is 0: Laplace noise grows with their number."""
    return DistanceShares(space, FEW_NODES if pure else MOST_NODES)


def longest(space: Manifold, radius: float) -> float:
    """Return the largest distance between two points of a ball."""
    return min(2 * radius, space.diameter)


def statistics(within: Range, *, pure: bool) -> dict[str, AnyStatistic]:
    """Return the statistics of solvers with a given clip, by the names that releases use."""
    space = within.manifold
    return {
        "range": within.counts,
        "gradient": SquaredDistance(space),
        "change": SquaredDistanceChange(space),
        "check": SquaredDistance(space, "the mean gradient at the answer"),
        "distances": distance_shares(space, pure=pure),
    }


def full_gradients(
    bounds: ProblemBounds, *, steps: int | None, step_size: float | None, local_steps: int = 1
) -> SolverPlan:
    """DP-RGD: full gradients, with shares of the budget that grow from step to step.

    With local steps each step is a round of as many gradients, whose mean has the Gaussian noise of one.

    Raises:
        ValueError: this privacy cannot be certified in float64.
    """
    budget = bounds.budget()

    def release(share: float, count: int = 1) -> NoisySum:
        return budget.release(bounds.gradient, "gradient", bounds.clip, share=share, count=count)

    chosen = schedule(
        bounds.space.dim * release(1.0).variance / bounds.n**2 * (local_steps if budget.pure else 1),
        power=2 if budget.pure else 1,
        curvature=bounds.curvature,
        distance=bounds.distance,
        clip=bounds.clip,
        steps=steps,
        step_size=step_size,
    )
    releases = tuple(release(share, local_steps) for share in chosen.shares)
    return SolverPlan("rgd", releases, chosen)


def diagnosed(
    bounds: ProblemBounds, *, batches: bool, check: bool
) -> tuple[ProblemBounds, tuple[NoisySum, ...]]:
    """What the steps may spend, and what tells of their answer how far it may be off.

    That is a histogram of distances and, if asked for, a gradient at the answer.

    Raises:
        ValueError: this privacy cannot be certified in float64.
    """
    budget = bounds.budget(batches=batches)
    look = budget.release(bounds.distance_shares, "distances", 1.0, share=_LOOK)
    if not check:
        return replace(bounds, spared=_LOOK), (look,)
    gradient = budget.release(bounds.gradient, "check", bounds.clip, share=_CHECK)
    return replace(bounds, spared=_LOOK + _CHECK), (look, gradient)


def why_full_gradients(bounds: ProblemBounds, chosen: SolverPlan) -> str:
    """Why a planner that is free to choose takes `rgd`: random batches cannot do better at any size."""
    if bounds.target.delta == 0:
        return "rgd: with delta = 0 batches have no certificate"
    best = stochastic_schedule(
        _unit_variance(bounds, mu_for(bounds.target.epsilon, bounds.target.delta)),
        sampling=0.0,
        distance=bounds.distance,
        clip=bounds.clip,
        hessian=bounds.hessian,
        most=1e6,
    )
    return (
        f"rgd: error {chosen.schedule.error:.3g} expected from the worst start; random batches could at best "
        f"reach {best.error:.3g}, since all their steps share one noise, and sampling adds to it"
    )


def random_batches(
    bounds: ProblemBounds,
    *,
    rate: float | None,
    scheme: Scheme,
    steps: int | None,
    step_size: float | None,
) -> SolverPlan:
    """DP-RSGD: random batches with the same noise at every step, certified as one run.

    Raises:
        ValueError: the rate is not in (0, 1], or the run cannot be certified.
    """
    budget = bounds.budget(batches=True)
    rate = budget.rate(rate, scheme)
    sampling = (1 - rate) * (TYPICAL * bounds.clip) ** 2 / (rate * bounds.n)
    chosen = stochastic_schedule(
        _unit_variance(bounds, budget.whole),
        sampling=sampling,
        distance=bounds.distance,
        clip=bounds.clip,
        hessian=bounds.hessian,
        most=min(MOST_PASSES / rate, MOST_STEPS),
        steps=steps,
        step_size=step_size,
    )
    count = len(chosen.shares)
    block = budget.batches(bounds.gradient, "gradient", bounds.clip, scheme=scheme, rate=rate, count=count)
    # What the certificate found the noise to be, instead of the even share that began the search.
    settled = min(chosen.step_size, 1.9) / (2 - min(chosen.step_size, 1.9))
    noise = sqrt(settled * (bounds.variance_of(block) + sampling))
    error = sqrt(max(0.0, chosen.error**2 - chosen.noise_error**2) + noise**2)
    return SolverPlan("rsgd", (block,), Schedule(chosen.step_size, chosen.shares, error, noise))


def variance_reduced_batches(
    bounds: ProblemBounds,
    asked: AskedLoops,
    *,
    rate: float | None,
    scheme: Scheme,
    step_size: float | None,
) -> SolverPlan:
    """DP-RSVRG: full gradients at anchors, and changes on random batches.

    Raises:
        ValueError: an option out of range, or the run cannot be certified.
    """
    planned = plan_loops(
        LoopBounds(
            n=bounds.n,
            dim=bounds.space.dim,
            distance=bounds.distance,
            clip=bounds.clip,
            hessian=bounds.hessian,
            budget=bounds.budget(batches=True),
            gradient=bounds.gradient,
            change=bounds.change,
        ),
        asked,
        rate=rate,
        scheme=scheme,
        step_size=step_size,
    )
    chosen = Schedule(planned.step_size, (), planned.error, planned.noise_error)
    return SolverPlan("rsvrg", planned.releases, chosen, planned.loops)


def _unit_variance(bounds: ProblemBounds, mu: float) -> float:
    """Total variance of the noise on one mean of all records that has all of μ."""
    return bounds.space.dim * (2 * bounds.clip / (mu * bounds.n)) ** 2

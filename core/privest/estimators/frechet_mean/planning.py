"""The course of a gradient solver: its releases, their cost and the error to expect, from public facts."""

from dataclasses import dataclass, replace
from math import fsum, inf, nextafter, sqrt
from typing import Literal

from privest.arrays import Array
from privest.estimators.frechet_mean.schedule import (
    TYPICAL,
    Schedule,
    hessian_bounds,
    schedule,
    stochastic_schedule,
)
from privest.estimators.frechet_mean.variance_reduction import FullNoise
from privest.manifolds import Manifold
from privest.privacy.budget import (
    LEAST_RATE,
    ROUNDING_GUARD,
    batches,
    cost_of_batches,
    covers,
    gaussian_budget,
    in_words,
)
from privest.privacy.calibration import mu_for
from privest.privacy.cost import Cost, PrivacyTarget
from privest.privacy.mechanisms import (
    Noise,
    NoisySum,
    Release,
    Scheme,
    SubsampledSum,
    noisy_sum,
)

Solver = Literal["rgd", "rsgd", "rsvrg"]

_BATCH = 256
"""Expected size of a batch that nobody asked for."""

MOST_STEPS = 1_000_000
"""Of a run on random batches; full gradients are held to a thousandth of it."""

_MOST_PASSES = 30
"""Over the data, of batches whose number nobody asked for (paper 000, Appendix C, goes up to 30)."""


@dataclass(frozen=True)
class ProblemBounds:
    """What is public of a minimisation of ½ dist².

    Attributes:
        n: number of records.
        space: where the iterates live.
        center: (*shape) of the public ball.
        radius: of that ball.
        target: (ε, δ).
        distance: bound on the distance from the start to the minimiser.
        clip: C₀, bound on one record's gradient.
    """

    n: int
    space: Manifold
    center: Array
    radius: float
    target: PrivacyTarget
    distance: float
    clip: float

    @property
    def size(self) -> int:
        """Length of a summed vector."""
        return self.space.coordinate_size

    @property
    def curvature(self) -> tuple[float, float]:
        """Lower bound of the sectional curvature, which keeps steps stable, and a mean for forecasts."""
        if self.space.dim == 1:
            return (0.0, 0.0)
        return self.space.curvature[0], self.space.mean_curvature(self.center, self.radius)

    @property
    def hessian(self) -> float:
        """Largest eigenvalue of the Hessian of the clipped loss."""
        return hessian_bounds(self.curvature, self.clip)[1]


@dataclass(frozen=True)
class Epochs:
    """The loops of `rsvrg`: S epochs of m steps, K times over, and when full gradients get noise."""

    epochs: int
    frequency: int
    restarts: int
    full_noise: FullNoise

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return self.epochs * self.frequency * self.restarts


@dataclass(frozen=True)
class SolverPlan:
    """A solver's run before it is run."""

    solver: Solver
    releases: tuple[Release, ...]
    cost: Cost
    schedule: Schedule
    epochs: Epochs | None = None

    @property
    def in_words(self) -> str:
        """The mechanism, for people."""
        return in_words(self.releases)


def full_gradients(
    bounds: ProblemBounds, *, steps: int | None, step_size: float | None, local_steps: int = 1
) -> SolverPlan:
    """DP-RGD: full gradients, with shares of the budget that grow from step to step.

    With local steps each step is a round of as many gradients, whose mean has the Gaussian noise of one.

    Raises:
        ValueError: this privacy cannot be certified in float64.
    """
    target = bounds.target
    noise: Noise = "laplace" if target.delta == 0 else "gaussian"
    loss = target.epsilon if noise == "laplace" else mu_for(target.epsilon, target.delta)

    def release(share: float) -> NoisySum:
        part = loss * (share if noise == "laplace" else sqrt(share)) * ROUNDING_GUARD
        return noisy_sum(noise, n=bounds.n, size=bounds.size, clip=bounds.clip, loss=part)

    chosen = schedule(
        bounds.space.dim * release(1.0).variance / bounds.n**2 * (local_steps if noise == "laplace" else 1),
        power=2 if noise == "laplace" else 1,
        curvature=bounds.curvature,
        distance=bounds.distance,
        clip=bounds.clip,
        steps=steps,
        step_size=step_size,
    )
    releases = tuple(replace(release(share / local_steps), count=local_steps) for share in chosen.shares)
    cost = sum((r.cost for r in releases), Cost())
    if noise == "laplace":
        covered = nextafter(fsum(r.epsilon * r.count for r in releases), inf) <= target.epsilon
    else:
        covered = covers(cost, target)
    if not covered:
        raise ValueError("this privacy cannot be certified in float64")
    return SolverPlan("rgd", releases, cost, chosen)


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
    rate = _rate(bounds, rate, scheme)
    mu, slack = gaussian_budget(bounds.target)
    sampling = (1 - rate) * (TYPICAL * bounds.clip) ** 2 / (rate * bounds.n)
    chosen = stochastic_schedule(
        _unit_variance(bounds, mu),
        sampling=sampling,
        distance=bounds.distance,
        clip=bounds.clip,
        hessian=bounds.hessian,
        most=min(_MOST_PASSES / rate, MOST_STEPS),
        steps=steps,
        step_size=step_size,
    )
    count = len(chosen.shares)
    block = batches(bounds.n, bounds.size, "gradient", bounds.clip, rate, scheme, count, mu, slack)
    cost = cost_of_batches((block,), slack)
    if not covers(cost, bounds.target):
        raise ValueError("this privacy cannot be certified in float64")
    # What the certificate found the noise to be, instead of the even share that began the search.
    settled = min(chosen.step_size, 1.9) / (2 - min(chosen.step_size, 1.9))
    per_step = bounds.space.dim * block.variance / block.divisor**2
    noise = sqrt(settled * (per_step + sampling))
    error = sqrt(max(0.0, chosen.error**2 - chosen.noise_error**2) + noise**2)
    return SolverPlan("rsgd", (block,), cost, Schedule(chosen.step_size, chosen.shares, error, noise))


def variance_reduced_course(
    bounds: ProblemBounds,
    *,
    rate: float | None,
    scheme: Scheme,
    epochs: int | None,
    frequency: int | None,
    restarts: int | None,
    clip_change: float | None,
    full_noise: FullNoise,
    step_size: float | None,
) -> SolverPlan:
    """DP-RSVRG: full gradients at anchors, changes on random batches, and the split between them.

    The split α of μ² leaves the least noise on full + change; it is found by certificate (paper 000,
    Section 5.1, minimises a moments bound instead).

    Raises:
        ValueError: an option out of range, or the run cannot be certified.
    """
    rate = _rate(bounds, rate, scheme)
    mu, slack = gaussian_budget(bounds.target)
    loops = Epochs(
        5 if epochs is None else epochs,
        10 if frequency is None else frequency,
        1 if restarts is None else restarts,
        full_noise,
    )
    changes = loops.steps
    if min(loops.epochs, loops.frequency, loops.restarts) < 1 or changes > MOST_STEPS:
        raise ValueError(f"epochs, steps and restarts must be at least 1, and at most {MOST_STEPS} together")
    fulls = changes if full_noise == "step" else loops.epochs * loops.restarts
    change = clip_change if clip_change is not None else bounds.clip

    def split(alpha: float) -> tuple[NoisySum, SubsampledSum]:
        loss = mu * sqrt(alpha / fulls) * ROUNDING_GUARD
        full = noisy_sum("gaussian", n=bounds.n, size=bounds.size, clip=bounds.clip, loss=loss, count=fulls)
        rest = mu * sqrt(1 - alpha) * ROUNDING_GUARD
        return full, batches(bounds.n, bounds.size, "change", change, rate, scheme, changes, rest, slack)

    def noise_of(release: Release) -> float:
        return bounds.space.dim * release.variance / release.divisor**2

    # Where both parts cost a multiple of (clip/noise)² the best split is in closed form; search around it.
    first = bounds.clip * sqrt(fulls)
    middle = first / (first + change * sqrt(changes))
    splits = [split(alpha) for alpha in (middle, middle**0.7, middle**1.4)]
    full, blocks = min(splits, key=lambda pair: sum(map(noise_of, pair)))
    cost = full.cost + cost_of_batches((blocks,), slack)
    if not covers(cost, bounds.target):
        raise ValueError("this privacy cannot be certified in float64")

    def predicted(step: float) -> tuple[float, float]:
        """Square of the error of steps of this length, and its part that is noise."""
        inner = min(step, 1.9)
        # Noise that is drawn once an epoch is followed by all its steps as by one long one.
        outer = 1 - (1 - min(step, 1.0)) ** loops.frequency if full_noise == "epoch" else inner
        noise = outer / (2 - outer) * noise_of(full) + inner / (2 - inner) * noise_of(blocks)
        nearer = max(0.0, bounds.distance - step * bounds.clip * changes / 2)
        left = max(0.0, 1 - step) ** 2
        run = loops.epochs * loops.frequency
        if loops.restarts == 1:
            kept = left**run
        else:  # a run ends with any of its iterates
            kept = (left * (1 - left**run) / (run * (1 - left))) ** loops.restarts
        return max(bounds.distance**2 * kept, nearer**2) + noise, noise

    lengths = (10.0 ** (-k / 10) / bounds.hessian for k in range(41)) if step_size is None else (step_size,)
    (error, noise), step = min((predicted(length), length) for length in lengths)
    return SolverPlan("rsvrg", (full, blocks), cost, Schedule(step, (), sqrt(error), sqrt(noise)), loops)


def _rate(bounds: ProblemBounds, given: float | None, scheme: Scheme) -> float:
    rate = min(1.0, _BATCH / bounds.n) if given is None else given
    if not LEAST_RATE <= rate <= 1:
        raise ValueError(f"rate must be between {LEAST_RATE:g} and 1")
    if scheme == "fixed":
        rate = max(1, round(rate * bounds.n)) / bounds.n
    return rate


def _unit_variance(bounds: ProblemBounds, mu: float) -> float:
    """Total variance of the noise on one mean of all records that has all of μ."""
    return bounds.space.dim * (2 * bounds.clip / (mu * bounds.n)) ** 2

"""Variance-reduced stochastic gradients (DP-RSVRG): loops and step length, the plan, and the run."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

from privest.arrays import Array
from privest.memo import memoized
from privest.optim.descent import Ball, Walk
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release, Scheme, SubsampledSum
from privest.privacy.oracle import Oracle

FullNoise = Literal["epoch", "step"]
"""Times of an anchor's full gradient: once an epoch, or at every inner step (Utpala et al. 2023)."""

MOST_STEPS = 1_000_000
"""Most steps of a run on random batches; a run on full gradients may have a thousandth of it."""

MOST_PASSES = 30
"""Most passes over the data by batches whose number nobody chose (Utpala et al. 2023, Appendix C, has 30)."""

_EPOCHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
_FREQUENCIES = (2, 3, 5, 7, 10, 15, 20)
_CLIPS = tuple((10.0 ** (-np.arange(7) / 4)).tolist())
_LENGTHS = tuple((10.0 ** (-np.arange(10) / 6)).tolist())
"""Loops that are considered: S, m, C₁ over C₀, and η times the largest Hessian eigenvalue. With m = 1 nothing
would have changed since the anchor, and noise on that be all that changes add."""

_LARGEST = 1e300
"""Stands for the error of steps that are so long that it leaves float64."""

_CASES = ((1.0, False), (1.0, True), (0.4, True), (0.15, True))
"""Places of the mean, of which the worst counts: its distance from the start over the bound on it, and
whether no gradient is clipped. A clip of changes that is right for one distance may be wrong for another."""


@dataclass(frozen=True)
class Epochs:
    """The loops of `rsvrg`: S epochs of m steps, K times over, and when full gradients get noise.

    Raises:
        ValueError: no steps, or too many.
    """

    epochs: int = 5
    frequency: int = 10
    restarts: int = 1
    full_noise: FullNoise = "epoch"

    def __post_init__(self) -> None:
        if min(self.epochs, self.frequency, self.restarts) < 1 or self.steps > MOST_STEPS:
            raise ValueError(
                f"epochs, steps and restarts must be at least 1, and at most {MOST_STEPS} together"
            )

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.epochs * self.frequency * self.restarts

    @property
    def full_gradients(self) -> int:
        """Number of full gradients that are released."""
        return self.steps if self.full_noise == "step" else self.epochs * self.restarts


@dataclass(frozen=True)
class AskedLoops:
    """Requested loops; a None is left to the planner.

    Attributes:
        epochs: S.
        frequency: m.
        restarts: K; 1 by default.
        full_noise: when full gradients get noise.
        clip: C₁.
    """

    epochs: int | None
    frequency: int | None
    restarts: int | None
    full_noise: FullNoise
    clip: float | None

    @property
    def is_whole(self) -> bool:
        """Return whether the planner has nothing to choose."""
        return None not in (self.epochs, self.frequency, self.clip)

    @property
    def asked(self) -> Epochs:
        """The loops, with S = 5 and m = 10 where none is given.

        Raises:
            ValueError: no steps, or too many.
        """
        given = {"epochs": self.epochs, "frequency": self.frequency, "restarts": self.restarts}
        counts = {name: count for name, count in given.items() if count is not None}
        return Epochs(full_noise=self.full_noise, **counts)


@dataclass(frozen=True)
class LoopProblem:
    """Public facts by which loops are chosen.

    Attributes:
        distance: bound on the distance from the start to the mean.
        clip: C₀.
        hessian: largest eigenvalue of the Hessian of the clipped loss.
        unit: total variance of the noise on a mean of all records, of clip 1, that has all of the budget.
        mu_squared: the budget.
        rate: q, probability of a record to be in a batch.
        curvatures: eigenvalues that the Hessian may have near the minimiser, of which the worst counts.
        reach: distance beyond which the mean gradient hardly grows; C₀ over the first of these by default.
    """

    distance: float
    clip: float
    hessian: float
    unit: float
    mu_squared: float
    rate: float
    curvatures: tuple[float, ...] = (1.0,)
    reach: float | None = None

    def batch_variance(self, clip: Array, count: Array, share: Array) -> Array:
        """Total variance of the noise on a batch's mean, for so many with this share of the budget.

        The variance of the privacy loss of Poisson batches with a share q of the records is 4q²·sinh((C/σ)²)
        where q is small; the certificate of the chosen run says what it is.
        """
        strength = np.arcsinh(self.mu_squared * share / (4 * self.rate**2 * count))
        return self.unit * clip**2 * self.mu_squared / (4 * self.rate**2 * strength)


@memoized
def best_loops(
    problem: LoopProblem,
    *,
    epochs: int | None,
    frequency: int | None,
    clip: float | None,
    step_size: float | None,
) -> tuple[Epochs, float, float]:
    """Loops, C₁ and η of least predicted error, with full gradients once an epoch; what is given is kept.

    Args:
        problem: public facts.
        epochs: S, if it is given.
        frequency: m, if it is given.
        clip: C₁, if it is given.
        step_size: η, if it is given.
    """
    grid = np.meshgrid(
        _EPOCHS if epochs is None else (epochs,),
        _FREQUENCIES if frequency is None else (frequency,),
        [problem.clip * each for each in _CLIPS] if clip is None else (clip,),
        [each / problem.hessian for each in _LENGTHS] if step_size is None else (step_size,),
        indexing="ij",
    )
    count, steps, change, length = (each.ravel().astype(np.float64) for each in grid)
    passes = count * (1 + 2 * steps * problem.rate)
    few = passes <= max(MOST_PASSES, float(passes.min()))
    count, steps, change, length = (each[few] for each in (count, steps, change, length))
    # The split of the budget that is best where both costs are a multiple of (C/σ)².
    first, second = problem.clip * np.sqrt(count), change * np.sqrt(count * steps)
    share = first / (first + second)
    full = problem.unit * problem.clip**2 * count / share
    changes = problem.batch_variance(change, count * steps, 1 - share)
    error, _ = predicted(problem, count, steps, change, length, full, changes)
    best = int(np.argmin(error))
    return Epochs(int(count[best]), int(steps[best])), float(change[best]), float(length[best])


@np.errstate(over="ignore", invalid="ignore")
def predicted(
    problem: LoopProblem,
    epochs: Array,
    steps: Array,
    clip: Array,
    length: Array,
    full: Array,
    change: Array,
) -> tuple[Array, Array]:
    """Square of the distance to the mean, from the worst start, and its part that is noise; of (k,) loops.

    An epoch's steps all see the same full gradient, and the change since its anchor. The clip C₁ lets through
    r = min(1, C₁/u) of it where iterates are u away. Where it cuts, less holds steps back: they go on, past
    the mean if they are many, and noise on the full gradient moves them as far as that does.

    Args:
        problem: public facts.
        epochs: (k,) S.
        steps: (k,) m.
        clip: (k,) C₁.
        length: (k,) η.
        full: (k,) total variance of the noise on a full gradient.
        change: (k,) total variance of the noise on a change.
    """
    cases = [(*case, curvature) for curvature in problem.curvatures for case in _CASES]
    shape = (len(cases), len(epochs))
    begin, whole, curvature = (np.array(each)[:, None] for each in zip(*cases, strict=True))
    reach = problem.clip / problem.curvatures[0] if problem.reach is None else problem.reach
    bias, noise = problem.distance * np.broadcast_to(begin, shape), np.zeros(shape)
    for epoch in range(int(epochs.max())):
        on = epoch < epochs
        away = np.sqrt(bias**2 + noise)
        pull = curvature * np.where(whole, 1.0, reach / np.sqrt(away**2 + reach**2))
        gone, follows, shaken = (np.zeros(shape) for _ in range(3))
        for step in range(int(steps.max())):
            goes = on & (step < steps)
            far = np.sqrt((gone * away) ** 2 + follows**2 * full + shaken)
            through = 1 / np.maximum(1.0, problem.hessian * far / clip)
            held = 1 - length * curvature * through
            gone = np.where(goes, gone * held + length * pull, gone)
            follows = np.where(goes, follows * held + length, follows)
            shaken = np.where(goes, shaken * held**2 + length**2 * change, shaken)
        kept = (1 - gone) ** 2
        bias = np.where(on, np.sqrt(kept) * bias, bias)
        noise = np.where(on, kept * noise + follows**2 * full + shaken, noise)
    largest = ((bias**2 + noise).max(axis=0), noise.max(axis=0))
    error, by_noise = (np.nan_to_num(each, nan=_LARGEST, posinf=_LARGEST) for each in largest)
    return error, by_noise


@dataclass(frozen=True)
class LoopBounds:
    """The public facts of a minimisation by DP-RSVRG.

    Attributes:
        n: number of records.
        dim: of the tangent spaces.
        distance: bound on the distance from the start to the minimiser.
        clip: C₀, bound on one record's gradient.
        hessian: largest eigenvalue of the Hessian.
        budget: what the run may spend, by batches too.
        gradient: the statistic of gradients.
        change: the statistic of changes of gradients.
        curvatures: eigenvalues that the Hessian may have near the minimiser, of which the worst counts.
        reach: distance beyond which the mean gradient hardly grows; see `LoopProblem`.
    """

    n: int
    dim: int
    distance: float
    clip: float
    hessian: float
    budget: PrivacyBudget
    gradient: AnyStatistic
    change: AnyStatistic
    curvatures: tuple[float, ...] = (1.0,)
    reach: float | None = None

    def variance_of(self, release: Release) -> float:
        """Total variance of the noise on a released mean."""
        return self.dim * release.variance / release.divisor**2

    def problem(self, rate: float) -> LoopProblem:
        """The facts by which loops are chosen."""
        mu = self.budget.whole
        return LoopProblem(
            self.distance,
            self.clip,
            self.hessian,
            self.dim * (2 / (mu * self.n)) ** 2,
            mu**2,
            rate,
            self.curvatures,
            self.reach,
        )


@dataclass(frozen=True)
class LoopsPlan:
    """A run of DP-RSVRG before any row is read.

    Attributes:
        releases: full gradients, and changes on batches.
        loops: how many.
        step_size: η.
        error: root mean square distance to the minimiser to expect, from the worst start.
        noise_error: its part that is noise.
    """

    releases: tuple[NoisySum, SubsampledSum]
    loops: Epochs
    step_size: float
    error: float
    noise_error: float


def plan_loops(
    bounds: LoopBounds,
    asked: AskedLoops,
    *,
    rate: float | None,
    scheme: Scheme,
    step_size: float | None,
) -> LoopsPlan:
    """Full gradients at anchors, changes on random batches, and the split of the budget between them.

    The split α of μ² leaves the least noise on full + change; it is found by certificate (Utpala et al. 2023,
    Section 5.1, minimise a moments bound instead).

    Raises:
        ValueError: an option out of range, or the run cannot be certified.
    """
    budget = bounds.budget
    rate = budget.rate(rate, scheme)
    problem = bounds.problem(rate)
    loops, clip, step_size = _chosen(problem, asked, step_size)
    fulls = loops.full_gradients

    def split(alpha: float) -> tuple[NoisySum, SubsampledSum]:
        return budget.release(
            bounds.gradient, "gradient", bounds.clip, share=alpha, count=fulls
        ), budget.batches(
            bounds.change, "change", clip, scheme=scheme, rate=rate, count=loops.steps, share=1 - alpha
        )

    # Where both parts cost a multiple of (clip/noise)² the best split is in closed form; search around it.
    first = bounds.clip * sqrt(fulls)
    middle = first / (first + clip * sqrt(loops.steps))
    splits = [split(alpha) for alpha in (middle, middle**0.7, middle**1.4)]
    best = min(splits, key=lambda pair: sum(map(bounds.variance_of, pair)))
    full, change = map(bounds.variance_of, best)
    lengths = (10.0 ** (-k / 10) / bounds.hessian for k in range(41)) if step_size is None else (step_size,)
    predictions = ((_error(problem, loops, clip, each, full, change), each) for each in lengths)
    (error, noise), step = min(predictions)
    return LoopsPlan(best, loops, step, sqrt(error), sqrt(noise))


def _chosen(
    problem: LoopProblem, asked: AskedLoops, step_size: float | None
) -> tuple[Epochs, float, float | None]:
    """Return S and m, C₁ and η: given values, and the best others where one run has a full gradient an epoch.

    Runs that begin anew, or have fresh noise on every step, take S = 5, m = 10 and C₁ = C₀ unless told
    otherwise.

    Raises:
        ValueError: an option out of range.
    """
    loops = asked.asked
    if asked.is_whole or asked.full_noise == "step" or loops.restarts > 1:
        return loops, asked.clip or problem.clip, step_size
    return best_loops(
        problem, epochs=asked.epochs, frequency=asked.frequency, clip=asked.clip, step_size=step_size
    )


def _error(
    problem: LoopProblem, loops: Epochs, clip: float, step: float, full: float, change: float
) -> tuple[float, float]:
    """Square of the error to expect after steps of this length, and its part that is noise.

    Args:
        problem: public facts.
        loops: how many steps there are.
        clip: C₁.
        step: their length.
        full: total variance of the noise on a full gradient.
        change: total variance of the noise on a change of gradients.
    """
    if loops.full_noise == "epoch" and loops.restarts == 1:
        facts = (loops.epochs, loops.frequency, clip, step, full, change)
        error, noise = predicted(problem, *(np.array([float(each)]) for each in facts))
        return float(error[0]), float(noise[0])
    inner = min(step, 1.9)
    # Noise that is drawn once an epoch is followed by all its steps as by one long one.
    outer = 1 - (1 - min(step, 1.0)) ** loops.frequency if loops.full_noise == "epoch" else inner
    noise = outer / (2 - outer) * full + inner / (2 - inner) * change
    nearer = max(0.0, problem.distance - step * problem.clip * loops.steps / 2)
    left = max(0.0, 1 - step) ** 2
    run = loops.epochs * loops.frequency
    if loops.restarts == 1:
        kept = left**run
    else:  # a run ends with any of its iterates
        kept = (left * (1 - left**run) / (run * (1 - left))) ** loops.restarts
    return max(problem.distance**2 * kept, nearer**2) + noise, noise


def variance_reduced(
    ball: Ball,
    gate: Oracle,
    *,
    asked: Callable[[Array], object] = lambda at: at,
    start: Array,
    step_size: float,
    loops: Epochs,
) -> Array:
    """DP-RSVRG, run once or several times over.

    An epoch takes the full gradient at its anchor and then m steps along it plus the change of
    a batch's gradients since the anchor. With one run the last iterate is returned (output I); with
    more, each run ends with one of its iterates at random (output II) and the next starts there.

    Args:
        ball: where the iterates stay.
        gate: releases gradients at a point, and the statistic `change` at (point, anchor).
        asked: what the gate is asked for the negative gradient at a point; by default the point itself.
        start: (*shape) first iterate.
        step_size: η.
        loops: S epochs of m steps, K times over.

    Returns:
        (*shape) the private point.

    References:
        Utpala et al. (2023), Algorithm 11, and Algorithm 12 for restarts.
    """
    for _ in range(loops.restarts):
        chosen = gate.pick(loops.epochs * loops.frequency)
        iterates = 0
        walk, kept = Walk(ball, start), start
        for _ in range(loops.epochs):
            anchor = asked(walk.point)
            full = gate.mean(anchor)
            for inner in range(loops.frequency):
                if inner and loops.full_noise == "step":
                    full = gate.mean(anchor)
                change = gate.mean((asked(walk.point), anchor), "change")
                walk.step(step_size * (full + change))
                kept = walk.point if iterates == chosen else kept
                iterates += 1
        start = walk.point if loops.restarts == 1 else kept
    return start

"""Plans of DP-RSVRG: its loops, the split of the budget between full gradients and changes, and the error."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.optim.loops import AskedLoops, Epochs, LoopProblem, best_loops, predicted
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release, Scheme, SubsampledSum


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
    """S and m, C₁ and η: what is given, and of one run with full gradients once an epoch the best of others.

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

"""Bounds on the error of accelerated descents: what is left of the start, and of the noise of every step.

The error after T steps is at most left·E₀ + Σ a_{T,t}·v_t/2, with v_t the total variance of a step's noise.
Of Nesterov's steps that holds on every loss with curvature between μ and L (Kuru et al. 2022, Theorems 4.1
and 4.3), of plain ones and the heavy ball on quadratics (Theorem 3.5, corrected).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt

import numpy as np

from privest.arrays import Array
from privest.memo import memoized
from privest_papers.acceleration_schedule import Curvature, Schedule

_EIGENVALUES = 65
"""Eigenvalues between μ and L, evenly spaced in their logarithms, of which the worst counts. Four thousand
of them make sums of a_{T,t} at most 5 % larger."""

_MOMENTA = 17
"""Number of momenta β among which the best is sought."""


class ErrorBound(ABC):
    """The bound on the error of a schedule, for each number of steps up to its own."""

    @property
    @abstractmethod
    def left(self) -> Array:
        """(T,) share of the error of the start that is left after 1, …, T steps."""

    @abstractmethod
    def weights(self, count: int) -> Array:
        """(count,) a_{T,1}, …, a_{T,T} for T = count: what a step's noise has left in the last iterate."""

    @abstractmethod
    def sums(self, power: int) -> Array:
        """(T,) (Σ a_{T,t}^(1/power))^power of T steps: what noise leaves where it is divided best."""

    @abstractmethod
    def distances(self, variances: Array, start: float) -> tuple[float, float]:
        """Variance of a weight by the noise of steps, and square of the distance that they leave undone.

        Args:
            variances: (T,) of the noise on a coordinate of each step's gradient.
            start: E₀, error of the first iterate.
        """


@dataclass(frozen=True, eq=False)
class NesterovBound(ErrorBound):
    """Theorems 4.1 and 4.3 of Kuru et al. (2022), by strong convexity for distances too.

    Attributes:
        curvature: bounds on the Hessian.
        logarithms: (T,) log a_{t,0}, by which an error at the start has shrunk after t steps: (34), or (29).
        entering: (T,) α(1 + αL): what half the variance of a step's noise adds to the error after that step.
    """

    curvature: Curvature
    logarithms: Array
    entering: Array

    @classmethod
    def of(cls, schedule: Schedule) -> "NesterovBound":
        """The bound of `nag` or `masg`: every change of stage doubles what is left of errors so far."""
        lengths, curvature = schedule.lengths, schedule.curvature
        kept = np.log1p(-np.sqrt(lengths * curvature.least)) + log(2) * np.diff(schedule.stages, prepend=1)
        return cls(curvature, np.cumsum(kept, dtype=np.float64), lengths * (1 + lengths * curvature.most))

    @property
    def left(self) -> Array:
        """(T,) a_{t,0}."""
        return np.exp(self.logarithms)

    def weights(self, count: int) -> Array:
        """(count,) a_{T,t} of (29) and (34)."""
        left = self.logarithms[:count]
        return np.exp(left[-1] - left) * self.entering[:count]

    def sums(self, power: int) -> Array:
        """(T,) (Σ a_{T,t}^(1/power))^power; by logarithms, for its terms may leave float64."""
        left = self.logarithms
        terms = np.logaddexp.accumulate((np.log(self.entering) - left) / power)
        return np.exp(power * terms + left)

    def distances(self, variances: Array, start: float) -> tuple[float, float]:
        """2/μ of the errors; see `ErrorBound.distances`."""
        least = self.curvature.least
        noise = float(self.weights(len(variances)) @ variances)
        return noise / least, 2 * float(self.left[len(variances) - 1]) * start / least


@dataclass(frozen=True, eq=False)
class HeavyBallBound(ErrorBound):
    """Theorem 3.5 of Kuru et al. (2022), corrected and exact: steps of one length α with one momentum β.

    On a quadratic the error along an eigenvector of its Hessian follows x ← (1 + β − αλ)x − βx₋ − αw. The
    noise of k steps ago is left in it −αg_k times, a start at rest c_k = g_k − βg_{k−1} times, where g₀ = 1,
    g₋₁ = 0 and g follows the same recursion: with roots r₊, r₋ of r² − (1 + β − αλ)r + β it is
    g_k = (r₊^{k+1} − r₋^{k+1})/(r₊ − r₋). The paper's (26) has the roots of Nesterov's steps in their place.
    Of all eigenvalues between μ and L the worst counts, for every step by itself.

    Without momentum the bound on distances, where the worst eigenvalue is μ, holds on every loss.

    Attributes:
        curvature: bounds on the Hessian.
        eigenvalues: (m,) λ.
        noise: (T, m) α²g_k², for k = 0, …, T − 1.
        start: (T, m) c_k², for k = 1, …, T.
    """

    curvature: Curvature
    eigenvalues: Array
    noise: Array
    start: Array

    @classmethod
    def of(cls, schedule: Schedule) -> "HeavyBallBound":
        """The bound of `gd` or `hb`."""
        length, momentum = float(schedule.lengths[0]), float(schedule.momenta[0])
        return heavy_ball(schedule.curvature, length, momentum, len(schedule.lengths))

    @property
    def left(self) -> Array:
        """(T,) max c_T² over eigenvalues."""
        return self.start.max(axis=1)

    @cached_property
    def _envelope(self) -> Array:
        """(T,) max λα²g_k² over eigenvalues."""
        return (self.noise * self.eigenvalues).max(axis=1)

    def weights(self, count: int) -> Array:
        """(count,) max λα²g_{T−t}² over eigenvalues."""
        return self._envelope[count - 1 :: -1]

    def sums(self, power: int) -> Array:
        """(T,) (Σ a_{T,t}^(1/power))^power: a further step only adds a term."""
        return np.cumsum(self._envelope ** (1 / power)) ** power

    def distances(self, variances: Array, start: float) -> tuple[float, float]:
        """Along the worst eigenvector; see `ErrorBound.distances`."""
        count = len(variances)
        noise = float((variances @ self.noise[count - 1 :: -1]).max())
        return noise, 2 * float(self.left[count - 1]) * start / self.curvature.least


def bound_of(schedule: Schedule) -> ErrorBound:
    """The bound on a schedule's error."""
    return (HeavyBallBound if schedule.method in ("gd", "hb") else NesterovBound).of(schedule)


@memoized
def heavy_ball(curvature: Curvature, length: float, momentum: float, count: int) -> HeavyBallBound:
    """The bound of so many steps of this length and momentum."""
    eigenvalues = np.geomspace(curvature.least, curvature.most, _EIGENVALUES)
    noise, start = zip(*_responses(eigenvalues, length, momentum, count), strict=True)
    return HeavyBallBound(curvature, eigenvalues, length**2 * np.stack(noise), np.stack(start))


def _responses(
    eigenvalues: Array, length: float, momentum: float | Array, count: int
) -> Iterator[tuple[Array, Array]]:
    """g_k² and c_{k+1}² of every eigenvalue, for k = 0, …, count − 1; see `HeavyBallBound`."""
    kept = 1 + momentum - length * eigenvalues
    before, now = np.zeros_like(kept), np.ones_like(kept)
    for _ in range(count):
        square = now * now
        before, now = now, kept * now - momentum * before
        yield square, (now - momentum * before) ** 2


def least_errors(bound: ErrorBound, *, start: float, variance: float, pure: bool) -> Array:
    """(T,) the bound on the error after each number of steps, where noise on full gradients is divided best.

    That is E_T ≤ a_{T,0}E₀ + v/2·(Σ a_t^⅓)³ (Kuru et al. 2022, (32)), with Gaussian noise v/2·(Σ √a_t)².

    Args:
        bound: on the steps to consider.
        start: E₀, error of the first iterate.
        variance: v, total variance of the noise on one gradient that has the whole budget.
        pure: whether noise is Laplace's.
    """
    return bound.left * start + variance / 2 * bound.sums(3 if pure else 2)


def best_count(bound: ErrorBound, *, start: float, variance: float, pure: bool) -> int:
    """T′: the number of steps with the least bound; see `least_errors`."""
    return int(np.argmin(least_errors(bound, start=start, variance=variance, pure=pure))) + 1


@memoized
def best_momentum(
    curvature: Curvature,
    length: float,
    count: int,
    *,
    start: float,
    variance: float,
    sampling: float,
    pure: bool,
) -> float:
    """β of heavy-ball steps of this length with the least bound at its own T′ ≤ count; see `least_errors`.

    It is sought between none and (1 − √(αμ))², from which on the slowest direction gains no more.
    """
    eigenvalues = np.geomspace(curvature.least, curvature.most, _EIGENVALUES)
    slowest = 1 - (1 - sqrt(length * curvature.least)) ** 2
    momenta = 1 - np.geomspace(1.0, slowest, _MOMENTA)
    found = _responses(eigenvalues, length, momenta[:, None], count)
    largest = [((noise * eigenvalues).max(axis=1), each.max(axis=1)) for noise, each in found]
    entering, left = (np.stack(each) for each in zip(*largest, strict=True))
    power = 3 if pure else 2
    terms = length**2 * entering
    noise = variance * np.cumsum(terms ** (1 / power), axis=0) ** power + sampling * np.cumsum(terms, axis=0)
    return float(momenta[np.argmin((left * start + noise / 2).min(axis=0))])

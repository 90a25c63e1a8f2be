"""Steps of accelerated solvers: lengths, momenta, stages, and what noise leaves in the last iterate.

For a Hessian with eigenvalues between μ and L, Theorems 4.1 and 4.3 of Kuru et al. (2022) bound the error of
the last iterate by a_{T,0}E₀ + Σ a_{T,t}·v_t/2, with v_t the total variance of the noise of step t.
"""

from dataclasses import dataclass, replace
from math import ceil, log, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array

Method = Literal["gd", "hb", "nag", "masg"]


@dataclass(frozen=True)
class Curvature:
    """Bounds μ and L on the Hessian's eigenvalues, from public facts."""

    least: float
    most: float

    @property
    def root(self) -> float:
        """√κ, of the condition L/μ."""
        return sqrt(self.most / self.least)


@dataclass(frozen=True)
class Schedule:
    """The steps of a run, all of it from public facts.

    Attributes:
        method: plain, heavy ball (Polyak 1964), Nesterov's, or that in stages (Aybat et al. 2019).
        curvature: bounds on the Hessian.
        lengths: (T,) α.
        stages: (T,) the stage that each step is in; momentum starts anew with a stage.
    """

    method: Method
    curvature: Curvature
    lengths: Array
    stages: NDArray[np.int64]

    @property
    def momenta(self) -> Array:
        """(T,) β: of `hb` as in Section 3.2 of Kuru et al. (2022), of `nag` and `masg` as in Theorem 4.1."""
        if self.method == "gd":
            return np.zeros(len(self.lengths))
        if self.method == "hb":
            root = self.curvature.root
            return np.full(len(self.lengths), ((root - 1) / (root + 1)) ** 2)
        slow = np.sqrt(self.lengths * self.curvature.least)
        begins = np.diff(self.stages, prepend=0) > 0
        return np.where(begins, 0.0, (1 - slow) / (1 + slow))

    @property
    def logarithms(self) -> Array:
        """(T,) log a_{t,0}, by which an error at the start has shrunk after t steps: (34), or (29).

        Every change of stage doubles what is left of errors so far.
        """
        slow = np.sqrt(self.lengths * self.curvature.least)
        kept = np.log1p(-slow) + log(2) * np.diff(self.stages, prepend=1)
        return np.cumsum(kept, dtype=np.float64)

    @property
    def left_of_start(self) -> float:
        """Bound on the loss at the end over that at the start, without noise; of `hb` none is known.

        Plain steps go slower than `logarithms` say.
        """
        if self.method == "gd":
            return float(np.exp(np.sum(np.log1p(-self.lengths * self.curvature.least))))
        return float(np.exp(self.logarithms[-1]))

    @property
    def entering(self) -> Array:
        """(T,) α(1 + αL): what half the variance of a step's noise adds to the error after that step."""
        return self.lengths * (1 + self.lengths * self.curvature.most)

    @property
    def weights(self) -> Array:
        """(T,) a_{T,1}, …, a_{T,T} of (29) and (34): what a step's noise has left in the last iterate."""
        logarithms = self.logarithms
        return np.exp(logarithms[-1] - logarithms) * self.entering

    def first(self, count: int) -> "Schedule":
        """The schedule of the first `count` steps alone."""
        return replace(self, lengths=self.lengths[:count], stages=self.stages[:count])


def schedule_of(method: Method, curvature: Curvature, *, scale: float, count: int) -> Schedule:
    """Steps of length scale/L; of `masg` in stages, from the second on of scale/(4^k·L) in the k-th.

    The k-th stage has 2^k·⌈√κ·log 8⌉ steps ((33), p = 1). The first may have any number; it has
    ⌈2√κ·log √κ⌉, as in the authors' code: by then the error of a start has shrunk by κ.

    Args:
        method: which.
        curvature: bounds on the Hessian.
        scale: c, at most 1.
        count: T.
    """
    stages = np.ones(count, dtype=np.int64)
    if method == "masg":
        root = curvature.root
        begin, stage = max(1, ceil(2 * root * log(root))), 2
        while begin < count:
            stages[begin:] = stage
            begin, stage = begin + 2**stage * ceil(root * log(8)), stage + 1
    shrink = np.where(stages == 1, 1.0, 0.25**stages)
    return Schedule(method, curvature, shrink * (scale / curvature.most), stages)


def best_count(schedule: Schedule, *, start: float, variance: float, pure: bool) -> int:
    """T′: the number of its steps with the least bound, where noise on full gradients is divided best.

    The bound is E_T ≤ a_{T,0}E₀ + v/2·(Σ a_t^⅓)³ (Kuru et al. 2022, (32)), with Gaussian noise v/2·(Σ √a_t)².

    Args:
        schedule: steps to consider.
        start: E₀, error of the first iterate.
        variance: v, total variance of the noise on one gradient that has the whole budget.
        pure: whether noise is Laplace's.
    """
    power = 3 if pure else 2
    left = schedule.logarithms
    # Σ over t ≤ T of a_{T,t}^(1/power), for every T at once; in logarithms, for they may leave float64.
    sums = np.logaddexp.accumulate((np.log(schedule.entering) - left) / power) + left / power
    errors = np.exp(left) * start + variance / 2 * np.exp(sums) ** power
    return int(np.argmin(errors)) + 1

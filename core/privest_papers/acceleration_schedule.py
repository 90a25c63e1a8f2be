"""Steps of accelerated solvers: lengths, momenta and stages."""

from dataclasses import dataclass
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
        momentum: β of `hb`; by default the one that is best without noise.
    """

    method: Method
    curvature: Curvature
    lengths: Array
    stages: NDArray[np.int64]
    momentum: float | None = None

    @property
    def momenta(self) -> Array:
        """(T,) β: of `hb` by default as in Section 3.2 of Kuru et al. (2022), else as in Theorem 4.1."""
        if self.method == "gd":
            return np.zeros(len(self.lengths))
        if self.method == "hb":
            root = self.curvature.root
            usual = ((root - 1) / (root + 1)) ** 2
            return np.full(len(self.lengths), usual if self.momentum is None else self.momentum)
        slow = np.sqrt(self.lengths * self.curvature.least)
        begins = np.diff(self.stages, prepend=0) > 0
        return np.where(begins, 0.0, (1 - slow) / (1 + slow))


def schedule_of(
    method: Method, curvature: Curvature, *, scale: float, count: int, momentum: float | None = None
) -> Schedule:
    """Steps of length scale/L; of `masg` in stages, from the second on of scale/(4^k·L) in the k-th.

    The k-th stage has 2^k·⌈√κ·log 8⌉ steps ((33), p = 1). The first may have any number; it has
    ⌈2√κ·log √κ⌉, as in the authors' code: by then the error of a start has shrunk by κ.

    Args:
        method: which.
        curvature: bounds on the Hessian.
        scale: c, at most 1.
        count: T.
        momentum: β of `hb`; by default the one that is best without noise.
    """
    stages = np.ones(count, dtype=np.int64)
    if method == "masg":
        root = curvature.root
        begin, stage = max(1, ceil(2 * root * log(root))), 2
        while begin < count:
            stages[begin:] = stage
            begin, stage = begin + 2**stage * ceil(root * log(8)), stage + 1
    shrink = np.where(stages == 1, 1.0, 0.25**stages)
    return Schedule(method, curvature, shrink * (scale / curvature.most), stages, momentum)

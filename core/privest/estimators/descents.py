"""Logistic regression by the descents of paper 004: their constants, releases and cost, and the run."""

from dataclasses import dataclass
from math import log, sqrt
from typing import Literal

import numpy as np

from privest.arrays import Array
from privest.estimators.budget import BELOW
from privest.losses.logistic import LogLoss
from privest.privacy.calibration import mu_for
from privest.privacy.certificates import NoisySum, noisy_sum
from privest.privacy.cost import PrivacyTarget
from privest.solvers.acceleration import Method
from privest.solvers.acceleration_schedule import Curvature, best_count, best_shares, momentum_of, weights
from privest.solvers.gradient_descent import Oracle

DescentSolver = Literal["gd", "hb", "nag", "nag-opt"]

MOST_STEPS = 1_000
_STEPS = 100
"""Of solvers that divide the budget evenly and that nobody gave a number (paper 004, Section 5)."""


@dataclass(frozen=True)
class Descent:
    """A descent on the mean logistic loss plus λ|w|², from zero.

    Attributes:
        solver: which.
        loss: its gradients.
        penalty: λ, above 0.
        steps: T; with `nag-opt` the most that are considered; by default 100, and 1000 there.
        step_scale: c of step lengths c/L; by default 1.
    """

    solver: DescentSolver
    loss: LogLoss
    penalty: float
    steps: int | None
    step_scale: float | None

    @property
    def curvature(self) -> Curvature:
        """μ = 2λ and L = |x|²/4 + 2λ (or /2, with more than two classes): from public bounds alone."""
        return Curvature(2 * self.penalty, self.loss.smoothness + 2 * self.penalty)

    def releases(self, n: int, target: PrivacyTarget) -> tuple[NoisySum, ...]:
        """The gradients of a run: noise shared evenly, or as the bound of `nag-opt` has it.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        loss, pure = self.loss, target.delta == 0
        budget = target.epsilon if pure else mu_for(target.epsilon, target.delta)

        def release(share: float, count: int) -> NoisySum:
            return noisy_sum(
                "laplace" if pure else "gaussian",
                n=n,
                size=loss.size,
                clip=loss.longest,
                loss=budget * (share if pure else sqrt(share)) * BELOW,
                count=count,
                diameter=loss.diameter(loss.longest),
            )

        if self.solver != "nag-opt":
            count = self.steps or _STEPS
            return (release(1 / count, count),)
        whole = release(1.0, 1)
        step = momentum_of("nag", self.curvature, self.step_scale or 1.0).step
        count = best_count(
            self.steps or MOST_STEPS,
            self.curvature,
            step,
            start=log(loss.classes),
            variance=whole.size * whole.variance / n**2,
            pure=pure,
        )
        shares = best_shares(weights(count, self.curvature, step), pure=pure)
        return tuple(release(share, 1) for share in shares.tolist())

    def run(self, releases: tuple[NoisySum, ...], gate: Oracle) -> tuple[Array, Array]:
        """Weights of the loss's shape, and their standard errors by the noise."""
        loss, curvature = self.loss, self.curvature
        method: Method = "nag" if self.solver == "nag-opt" else self.solver
        momentum = momentum_of(method, curvature, self.step_scale or 1.0)
        variances = np.concatenate([np.full(r.count, r.variance / r.divisor**2) for r in releases])
        fitted = momentum.descend(
            np.zeros(loss.shape),
            len(variances),
            lambda at: 2 * self.penalty * at - gate.mean(at).reshape(loss.shape),
        )
        # By Theorem 4.1 and strong convexity, for Nesterov's steps; the others are taken for as noisy.
        weight = weights(len(variances), curvature, momentum.step)
        spread = sqrt(float(weight @ variances) / curvature.least)
        return fitted, np.full(loss.shape, spread)

"""The division of a budget over steps whose noise weighs differently in the end.

Each step is given a strength y: Laplace noise has variance ∝ 1/y² with y its ε, Gaussian noise 1/y with y the
square of sensitivity over σ. Over full gradients strengths add up to the budget, and the best division is
in closed form. Over random batches strength costs less, but by a law of its own.
"""

from dataclasses import dataclass
from functools import cached_property
from math import inf, log

import numpy as np

from privest.arrays import Array
from privest.privacy.mechanisms import Scheme
from privest_papers.acceleration_bounds import ErrorBound

_POINTS = 20_000
_WEAKEST = 1e-18
"""Number of points, and least strength, of a table. An error of interpolation costs only its square."""

_LEAST_SHARE = 1e-12
"""Least share of a step, over the largest share."""

_LEAST_WEIGHT = 1e-300
"""Weights of early steps leave float64 where a schedule is long."""


def best_shares(weight: Array, *, pure: bool) -> Array:
    """Shares of ε (pure) or of μ² over full gradients that minimise Σ a_t·v_t.

    Laplace noise has v_t ∝ 1/ε_t², so that ε_t ∝ a_t^⅓ (Kuru et al. 2022, Proposition 4.2). Gaussian noise
    has v_t ∝ 1/μ_t², so that μ_t² ∝ √a_t: the division that the paper leaves as future work.
    """
    roots = weight ** (1 / 3 if pure else 1 / 2)
    # Steps that nothing is left of have a share too: without any, their noise would leave float64.
    roots = np.maximum(roots, _LEAST_SHARE * np.max(roots))
    return roots / np.sum(roots)


@dataclass(frozen=True)
class BatchLaw:
    """The cost of noise of strength y over random batches with a share q of the records.

    `pure`: the ε of `mechanisms.amplified`, with y the ε on a batch; of a `fixed` size it is (11) of Kuru et
    al. (2022). Otherwise μ² = 4q²·sinh(y) of Poisson batches, y = (C/σ)²: the variance of the privacy loss of
    small q. By it noise is divided; what that costs, a certificate of the whole run says.
    """

    pure: bool
    rate: float
    scheme: Scheme = "poisson"

    @property
    def power(self) -> int:
        """Power of the strength by which variance falls."""
        return 2 if self.pure else 1

    def cost(self, strength: Array) -> Array:
        """ε or μ² of steps, for y up to the strongest."""
        if self.pure:
            apart = strength / 2 if self.scheme == "poisson" else strength
            held = np.minimum(apart, 700.0)
            entering = np.log1p(self.rate * np.expm1(held)) + (apart - held)
            return entering - (np.log1p(self.rate * np.expm1(-held)) if self.scheme == "poisson" else 0.0)
        return 4 * self.rate**2 * np.sinh(strength)

    def divide(self, weight: Array, budget: float) -> Array:
        """(30): the strengths (T,) that cost `budget` and minimise Σ a_t·v_t.

        Variance is convex in the cost, so that this is where a/y^(p+1) is the same multiple of the cost's
        slope at every step. Strengths stay within what the table has.
        """
        from scipy.optimize import brentq  # noqa: PLC0415 - heavy, and for batches alone

        logs, prices = self._table
        a = np.log(np.maximum(weight, _LEAST_WEIGHT))

        def strengths(multiplier: float) -> Array:
            return np.exp(np.interp(a - multiplier, prices, logs))

        def excess(multiplier: float) -> float:
            return log(float(self.cost(strengths(multiplier)).sum())) - log(budget)

        low, high = float(a.min() - prices[-1]), float(a.max() - prices[0])
        if excess(low) <= 0 or excess(high) >= 0:  # more or less than any noise costs
            return strengths(low if excess(low) <= 0 else high)
        return strengths(float(brentq(excess, low, high, xtol=1e-9)))

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """log y, and the logarithm of the cost's slope times y^(p+1), which grows with it."""
        logs = np.linspace(log(_WEAKEST), log(1e6 if self.pure else 500.0), _POINTS)
        y = np.exp(logs)
        odds = log(1 / self.rate - 1) if self.rate < 1.0 else -inf
        if not self.pure:
            slope = np.logaddexp(y, -y)
        elif self.scheme == "fixed":
            slope = -np.logaddexp(0.0, odds - y)
        else:  # of the two logarithms, each with half of y
            slope = np.logaddexp(-np.logaddexp(0.0, odds - y / 2), -np.logaddexp(0.0, odds + y / 2)) - log(2)
        return logs, slope + (self.power + 1) * logs


def best_batch_count(
    bound: ErrorBound, law: BatchLaw, budget: float, *, start: float, unit: float, sampling: float
) -> int:
    """T′ of a run on random batches, as `best_count` has it on full gradients.

    Args:
        bound: on the steps to consider.
        law: of the noise.
        budget: ε or μ².
        start: E₀.
        unit: total variance of noise of strength 1.
        sampling: total variance of a batch's mean.
    """
    left = bound.left

    def error(count: int) -> float:
        weight = bound.weights(count)
        noise = unit / law.divide(weight, budget) ** law.power + sampling
        return float(left[count - 1]) * start + float(weight @ noise) / 2

    return min(range(1, len(left) + 1), key=error)

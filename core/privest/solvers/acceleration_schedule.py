"""Constants of paper 004's solvers, how the noise is divided over steps, and how many there are best to be.

For a Hessian with eigenvalues between μ and L, Theorem 4.1 bounds the error of the last iterate by
a_{T,0}E₀ + Σ a_{T,t}·v_t/2, with v_t the total variance of the noise of step t.
"""

from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from privest.arrays import Array
from privest.solvers.acceleration import Method, Momentum


@dataclass(frozen=True)
class Curvature:
    """Bounds μ and L on the Hessian's eigenvalues, from public facts."""

    least: float
    most: float


def momentum_of(method: Method, curvature: Curvature, scale: float) -> Momentum:
    """α = scale/L; β of HB as in Section 3.2 of paper 004, of NAG as in Theorem 4.1.

    Args:
        method: `gd`, `hb` or `nag`.
        curvature: bounds on the Hessian.
        scale: c, at most 1.
    """
    step = scale / curvature.most
    root = sqrt(curvature.most / curvature.least)
    slow = sqrt(step * curvature.least)
    betas = {"gd": 0.0, "hb": ((root - 1) / (root + 1)) ** 2, "nag": (1 - slow) / (1 + slow)}
    return Momentum(method, step, betas[method])


def weights(count: int, curvature: Curvature, step: float) -> Array:
    """a_{T,1}, …, a_{T,T} of (29): what a step's noise has left in the last iterate. (count,)"""
    kept = 1 - sqrt(curvature.least * step)
    return step * (1 + step * curvature.most) * kept ** np.arange(count - 1.0, -1.0, -1.0)


def best_shares(weight: Array, *, pure: bool) -> Array:
    """Shares of ε (pure) or of μ² over the steps that minimise Σ a_t·v_t.

    Laplace noise has v_t ∝ 1/ε_t², so that ε_t ∝ a_t^⅓ (Proposition 4.2). Gaussian noise has v_t ∝ 1/μ_t²,
    so that μ_t² ∝ √a_t: the division that the paper leaves as future work.
    """
    roots = weight ** (1 / 3 if pure else 1 / 2)
    return roots / np.sum(roots)


def best_count(
    most: int, curvature: Curvature, step: float, *, start: float, variance: float, pure: bool
) -> int:
    """T′: the number of steps of `nag` up to `most` with the least bound under the best shares.

    That is (32) of paper 004, E_T ≤ a_{T,0}E₀ + v/2·(Σ a_t^⅓)³, or with Gaussian noise v/2·(Σ √a_t)².

    Args:
        most: steps to consider.
        curvature: bounds on the Hessian.
        step: α.
        start: E₀, error of the first iterate.
        variance: v, total variance of the noise on one gradient that has the whole budget.
        pure: whether noise is Laplace's.
    """
    kept = 1 - sqrt(curvature.least * step)
    power = 3 if pure else 2
    sums = np.cumsum(weights(most, curvature, step)[::-1] ** (1 / power)) ** power
    counts = np.arange(1, most + 1)
    errors = np.exp(counts * log(kept)) * start + variance / 2 * sums
    return int(np.argmin(errors)) + 1

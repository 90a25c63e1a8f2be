"""One Newton step of logistic regression from zero, of moments with noise."""

from math import sqrt

import numpy as np

from privest.arrays import Array

_DAMPING = 0.7
"""Of the noise's largest eigenvalue, under which an eigenvalue of the moment is no longer divided by."""


def newton_step(
    first: Array, moment: Array, *, deviations: tuple[float, float], factor: float, penalty: float
) -> tuple[Array, Array]:
    """(moment/factor + 2λ)⁻¹ applied to class means, damped where noise rules, and the noise that is left.

    At zero weights the gradient of the mean logistic loss is −first (of y·x/2 with two classes), and its
    Hessian a multiple 1/factor of the second moment. Its eigenvalues are first put on the simplex, as the
    trace is at most one.

    Args:
        first: (columns, size) noisy means of z ⊗ x.
        moment: (size, size) noisy second moment, its trace at most one.
        deviations: of the noise on coordinates of the one and of the other.
        factor: 4/2 for a sign z, K for a softmax.
        penalty: λ, times factor.

    Returns:
        (columns, size) weights, and their standard errors by the noise (to first order).
    """
    noise, spread = deviations
    values, vectors = np.linalg.eigh(moment)
    loud = _DAMPING * spread * sqrt(2 * len(values))
    damped = np.sqrt(on_simplex(values) ** 2 + loud**2) + penalty
    inverse = (vectors / damped) @ vectors.T
    bare = first @ inverse
    errors = np.empty_like(bare)
    for place, u in enumerate(bare):
        shaken = (noise**2 + spread**2 / 2 * float(u @ u)) * np.eye(len(u)) + spread**2 / 2 * np.outer(u, u)
        errors[place] = np.sqrt(np.diag(inverse @ shaken @ inverse))
    return factor * bare, factor * errors


def on_simplex(values: Array) -> Array:
    """The nearest vector with entries from 0 on and the sum 1 (Held, Wolfe and Crowder 1974)."""
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, len(values) + 1)
    level = excess[np.count_nonzero(falling > excess) - 1]
    return np.maximum(values - level, 0.0)

"""Half lengths of the 95 % intervals that noise alone causes."""

from math import log, sqrt

import numpy as np
from scipy.special import chdtri, erf, gammaincinv

from privest.arrays import Array
from privest.privacy.mechanisms import NoisySum

_HEAVIER = 2.5
"""Variance of the square of a Laplace variate over that of a normal one with the same variance."""


def coordinate_radius(release: NoisySum) -> float:
    """Return half the length of the 95 % interval of one number of a released mean."""
    if release.noise == "gaussian":
        return 1.959964 * release.deviation
    if release.size == 1 or release.noise == "independent-laplace":
        return log(20) * release.scale / release.divisor
    # A normal vector of a random deviation W, where W² is χ² with size + 1 degrees of freedom.
    spread = np.sqrt(chdtri(release.size + 1, (np.arange(400) + 0.5) / 400))
    low, high = 0.0, 10 * float(spread.max())
    for _ in range(60):
        middle = (low + high) / 2
        within = float(erf(middle / (sqrt(2) * spread)).mean())
        low, high = (middle, high) if within < 0.95 else (low, middle)
    return high * release.scale / release.divisor


def joint_radius(deviations: Array, release: NoisySum) -> float:
    """Return the length that noise does not exceed with probability .95.

    The sum of squares of variates of these deviations is taken for a χ² variate with the same mean and
    variance (Satterthwaite 1946).
    """
    square = deviations**2
    if not square.any():
        return 0.0
    freedom = float(square.sum() ** 2 / (square**2).sum())
    if release.noise == "independent-laplace":
        freedom /= _HEAVIER
    radius = sqrt(float(square.sum()) * float(chdtri(freedom, 0.05)) / freedom)
    if release.noise != "laplace":
        return radius
    size = release.size
    return radius * float(gammaincinv(size, 0.95)) / sqrt((size + 1) * float(chdtri(size, 0.05)))

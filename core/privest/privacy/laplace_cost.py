"""What the Laplace mechanism for Euclidean sensitivity costs in the currency: its μ, by its own privacy loss.

The trade-off curve of density ∝ exp(−|z|/b) on R^d against its shift by `a`·b lies above that of a μ-Gaussian
mechanism exactly if both have no more than the same total variation. docs/privacy.md, "One currency", has
the proof.
"""

from math import exp, expm1, inf, log, log1p, nextafter, sqrt

import numpy as np
from scipy.special import erf, erfcx, erfinv, logsumexp, ndtri_exp

from privest.memo import memoized

_MARGIN = 1e-10
"""Relative margin on μ: far above the error of the sums, which tests find below 1e-13."""

_FAR = 1e6
"""Largest ratio that is summed. Beyond it the result is that of one dimension, which is larger."""


@memoized
def mu_of_laplace(ratio: float, size: int) -> float:
    """The least μ for which Laplace noise is μ-Gaussian private, rounded up.

    That is 2Φ⁻¹((1 + V)/2), where V = P(|z₁| < ratio/2) is the total variation.

    Args:
        ratio: sensitivity in units of the noise's scale b, which is the mechanism's pure ε.
        size: number of dimensions d.
    """
    variation, log_rest = _total_variation(ratio, size)
    if variation < 0.5:
        mu = 2 * sqrt(2) * float(erfinv(variation))
    else:
        mu = -2 * float(ndtri_exp(log_rest - log(2)))
    return nextafter(mu * (1 + _MARGIN), inf) if ratio > 0.0 else 0.0


def _total_variation(ratio: float, size: int) -> tuple[float, float]:
    """V and log(1 − V), where V = P(|z₁| < ratio/2), each with a small relative error.

    The noise is a normal vector of a random deviation W, and W² is χ² with d + 1 degrees of freedom: so
    V is the mean of erf(ratio/(2√2·W)). The sum is by the trapezoidal rule over v = log(W/√(d + 1)), which
    converges exponentially for such an integrand. As a closed form V is a·[K_ν(a)L_ν−1(a) + K_ν−1(a)L_ν(a)]
    with a = ratio/2, ν = d/2, and Bessel and Struve functions (Gradshteyn and Ryzhik, 6.561.4).
    """
    half, freedom = ratio / 2, size + 1
    if size == 1 or ratio > _FAR:
        return -expm1(-half), -half
    step = min(0.08, 0.4 / sqrt(freedom + half))
    low = -45 / size - 9 / sqrt(size)
    high = log1p(half / freedom) / 2 + 3.2 / sqrt(freedom) + 0.5
    v = np.arange(low, high, step)
    weight = freedom * (v - np.expm1(2 * v) / 2)
    z = half / sqrt(2 * freedom) * np.exp(-v)
    whole = logsumexp(weight)
    variation = exp(float(logsumexp(weight, b=erf(z)) - whole))
    return variation, float(logsumexp(weight - z * z + np.log(erfcx(z))) - whole)

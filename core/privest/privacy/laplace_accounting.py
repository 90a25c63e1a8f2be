"""Privacy cost of releases with Laplace noise, alone and composed, as μ of Gaussian differential privacy.

One release: the trade-off curve of density ∝ exp(−|z|/b) on R^d against its shift by `a`·b lies above that
of a μ-Gaussian mechanism exactly if both have no more than the same total variation. Many releases with
δ = 0: their summed privacy loss is nearly normal, and has a smaller μ than the releases one by one.
docs/privacy.md, "One currency", has the proofs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil, exp, expm1, frexp, inf, ldexp, log, log1p, nextafter, sqrt

import numpy as np
from scipy.special import erf, erfcx, erfinv, kve, log_ndtr, logsumexp, ndtr, ndtri_exp

from privest.arrays import Array
from privest.memo import memoized
from privest.privacy.accounting import Cost, largest, repeated

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


_MOST = 512
"""Most releases that are composed. More of them are added in blocks of so many, at next to no cost."""

_FURTHEST, _LARGEST = 20.0, 250.0
"""Largest loss of all releases together, over √count times the μ of one, and by itself. Within these bounds
float64 holds δ up to the end, where it is about e⁻³¹⁵."""

_LEAST = 1e-4
"""Least μ that is looked for. Below it the difference of two probabilities has too few digits."""

_CELLS, _CELLS_PER_MU = 8, 40.0
"""Least number of grid cells per largest loss of one release, and per μ of all."""

_ROUNDING = 2.0**-45
"""Relative error allowed for a tail, far above that of exponentials and of the quadrature."""

_COVER, _FLOOR = 1e-9, 1e-190
"""Relative error allowed for a composed δ: nine times over, sums of fewer than 2¹⁵ positive terms. And what
may be lost of it below float64's range: fewer than 2³⁰ terms of 2⁻¹⁰⁷⁴, times the exponential of the loss."""

MOST_FAR = 30.0
"""Largest vector of a record, over the noise's scale, with which the loss over a batch has its digits."""

MOST_SIZE = 16
"""Most dimensions in which a sum over all records has a law here. With more, next to nothing is won."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


@dataclass(frozen=True)
class PureLaw(ABC):
    """The law of one release's privacy loss, for two worlds that dominate all others and mirror each other.

    Attributes:
        epsilon: bound on the loss.
    """

    epsilon: float

    @abstractmethod
    def tails(self, losses: Array) -> tuple[Array, Array]:
        """The probabilities of at least each of ascending losses, in [0, ε), in either world.

        The first is the world for which a positive loss speaks.
        """


@dataclass(frozen=True)
class OnALine(PureLaw):
    """A number with Laplace noise, summed over all records or over a batch.

    *Poisson batches*: (1 − q)L(0) + qL(h) against (1 − q)L(0) + qL(−h). *Batches of a fixed size*:
    (1 − q)L(0) + qL(2h) against L(0), mirrored. Either dominates noise of density ∝ exp(−|z|) of any size.

    Attributes:
        far: h, the bound on one record's vector over the noise's scale: a replaced one moves the sum by 2h.
        rate: q, 1 for sums over all records.
        fixed: whether batches have a fixed size.
    """

    far: float
    rate: float = 1.0
    fixed: bool = False

    def tails(self, losses: Array) -> tuple[Array, Array]:
        """Where the loss is reached, and the probabilities of what lies beyond."""
        q, h = self.rate, self.far
        grown = np.expm1(losses) / q
        if self.fixed:
            base = np.log1p(grown)
            likely, unlikely = 1 - np.exp(np.minimum(base / 2 - h, 0.0)) / 2, np.exp(-base / 2 - h) / 2
            return (1 - q) * unlikely + q * likely, unlikely
        # e^loss·(1 − q + q·e^−h) = 1 − q + q·e^(2x − h) between 0 and h, with no digits lost next to 0.
        x = np.minimum(np.log1p(grown * (1 - q + q * exp(-h)) * exp(h)) / 2, h)
        outside = (1 - q) * np.exp(-x) / 2
        return outside + q * (1 - np.exp(x - h) / 2), outside + q * np.exp(-x - h) / 2


@dataclass(frozen=True)
class InSpace(PureLaw):
    """A vector of two numbers or more with noise of density ∝ exp(−|z|), summed over all records.

    In prolate spheroidal coordinates about 0 and the shift, the loss is εsin θ and θ has a density ∝
    e^(±εsin θ/2)·cosᵈ⁻²θ·(r + cos²θ), r = (2(d − 1)/ε)·K_d/2(ε/2)/K_d/2−1(ε/2).

    Attributes:
        size: d.
    """

    size: int

    def tails(self, losses: Array) -> tuple[Array, Array]:
        """Sums over cells between the losses, from the largest on."""
        d, half = self.size, self.epsilon / 2
        quotient = (d - 1) / half * float(kve(d / 2, half) / kve(d / 2 - 1, half))
        angles = np.arcsin(np.append(np.minimum(losses / self.epsilon, 1.0), 1.0))
        angles = np.concatenate([-angles[::-1], angles])
        widths = np.diff(angles)[:, None]
        theta = angles[:-1, None] + widths * (_NODES + 1) / 2
        mass = widths * _WEIGHTS * np.cos(theta) ** (d - 2) * (quotient + np.cos(theta) ** 2)
        cells = (mass * np.exp(half * np.sin(theta))).sum(axis=1)
        above = np.cumsum(cells[::-1])[::-1] / cells.sum()
        below = np.cumsum(cells) / cells.sum()
        count = len(losses)
        return above[-count:], below[:count][::-1]


@memoized
def cost_of_pure(law: PureLaw, mu: float, count: int) -> Cost:
    """The cost of `count` releases of one law, rounded up.

    Args:
        law: of their loss.
        mu: for which a single one is known to be μ-Gaussian private.
        count: how many.
    """
    if mu * sqrt(count) < _LEAST:
        return repeated(mu, count)
    one = _mu(law, 1, mu)
    most = min(_MOST, int((_FURTHEST * one / law.epsilon) ** 2), int(_LARGEST / law.epsilon))
    if most < 2 or count == 1:
        return repeated(one, count)
    blocks, rest = divmod(count, most)
    parts = ((most, blocks), (rest, 1))
    costs = (repeated(_mu(law, size, one * sqrt(size)), often) for size, often in parts if size and often)
    return sum(costs, Cost())


def _mu(law: PureLaw, count: int, known: float) -> float:
    """A μ near the least for which `count` releases are μ-Gaussian private together; at most `known`."""
    if known < _LEAST or count * law.epsilon > _LARGEST:
        return known
    cells = max(_CELLS, ceil(_CELLS_PER_MU * law.epsilon / known))
    cell = law.epsilon / cells * (1 + 1e-12)
    delta = _composed(law, cell, cells, count)
    if not _covers(delta, cell, known):
        return known
    less = largest(lambda gap: _covers(delta, cell, known - gap), 0.0, known * (1 - 1e-3))
    return min(known, _up(known - less))


def _up(mu: float) -> float:
    """The number rounded up to 30 bits, as other machines find other last ones."""
    mantissa, exponent = frexp(mu)
    return ldexp(ceil(mantissa * 2**30), exponent - 30)


def _composed(law: PureLaw, cell: float, cells: int, count: int) -> Array:
    """An upper bound on δ at ε = 0, cell, 2·cell, … of all releases together; at the last one it is 0.

    The mass of losses between two grid points goes to both so that the other world's stays the same
    ("connect the dots", Doroshenko et al. 2022). Composition adds and multiplies positive numbers alone.
    """
    edges = cell * np.arange(cells + 1.0)
    tail_p, tail_q = law.tails(edges[:-1])
    p, q = -np.diff(tail_p, append=0.0), -np.diff(tail_q, append=0.0)
    upper = (p - np.exp(edges[:-1]) * q) / -expm1(-cell) + _ROUNDING / cell * tail_p
    upper = np.clip(upper, 0.0, p)
    above = upper
    above[:-1] += (p - upper)[1:]
    below = above * np.exp(-edges[1:])
    one = np.concatenate([below[::-1], [max(0.0, 1 - above.sum() - below.sum())], above])
    mass = _power(one, count)[count * cells + 1 :]
    losses = cell * np.arange(1.0, len(mass) + 1)
    met = np.exp(losses) * np.cumsum((mass * np.exp(-losses))[::-1])[::-1]
    return np.append(np.cumsum(met[::-1])[::-1] * -expm1(-cell) * (1 + _COVER) + _FLOOR, 0.0)


def _power(mass: Array, count: int) -> Array:
    """The mass convolved with itself, `count` factors in all."""
    if count == 1:
        return mass
    half = _power(mass, count // 2)
    both = np.convolve(half, half)
    return np.convolve(both, mass) if count % 2 else both


def _covers(delta: Array, cell: float, mu: float) -> bool:
    """Whether δ lies below the curve of a μ-Gaussian mechanism.

    Between grid points δ is a line in e^ε, and the curve is convex: it lies above its tangent in the middle.
    So δ is below the curve if it is below that tangent at both ends.
    """
    middle = cell * (np.arange(len(delta) - 1.0) + 0.5)
    likely = ndtr(mu / 2 - middle / mu)
    log_slope = log_ndtr(-mu / 2 - middle / mu)
    value = likely * (1 - 1e-12) - np.exp(middle + log_slope) * (1 + 1e-12)
    step = np.exp(middle + log_slope)
    left = value - step * expm1(-cell / 2) * (1 - 1e-12)
    right = value - step * expm1(cell / 2) * (1 + 1e-12)
    return bool((delta[:-1] <= left).all() and (delta[1:] <= right).all())

"""Gaussian posterior of the coefficients, given noisy gradients and Hessians.

All numbers are in units of coefficients, with one column for two classes and otherwise one for each class.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privest.arrays import Array
from privest.estimators.linear_model.losses.curved import Curved

_ROUNDS = 6
"""Number of fixed-point rounds: the variance of the evidence depends on the distance to the mean."""

_CERTAIN = 1e6
"""Prior precision of the mean over classes, relative to that of a coefficient: it changes no probability."""

_LEAST_BEND = 0.1
"""Least length of the part of a gradient that a quadratic model misses, relative to twice the loss that the
model predicts. It is a fifth of the largest value of one row, because noise hides the true one where features
hardly vary. With several columns each has its own, for its part of the loss."""

_MOST_BEND = 0.5
"""Largest such ratio of one row, because |1 − 2p| is at most 1."""

_FREEDOM = 2.0
"""Degrees of freedom of the t prior of coefficients whose scale the evidence may determine."""


@dataclass(frozen=True)
class Prior:
    """Gaussian prior of the coefficients, the same for every column.

    Attributes:
        directions: (size, size) orthonormal columns, that of the intercept last.
        precisions: (size,) prior precision along each direction.
        penalty: (size,) second derivatives of the penalty.
        learned: number of leading directions along which the evidence determines the scale.
    """

    directions: Array
    precisions: Array
    penalty: Array
    learned: int

    @property
    def covariance(self) -> Array:
        """The (size, size) covariance of one column."""
        return (self.directions / self.precisions) @ self.directions.T

    def precision(self, columns: int, scales: Array | float = 1.0) -> Array:
        """Return the precision of all columns together, with a factor for each direction."""
        own = (self.directions * (self.precisions * scales)) @ self.directions.T
        alike = np.full((columns, columns), _CERTAIN / columns if columns > 1 else 0.0)
        usual = np.diag(self.directions**2 @ self.precisions)
        return np.kron(np.eye(columns), own) + np.kron(alike, usual)

    def scales(self, way: Array, covariance: Array) -> Array:
        """Return (size,) factors on the precisions: one round towards a t prior in each direction.

        The prior then shrinks coefficients less along directions in which the evidence shows large ones.

        Args:
            way: (columns, size) posterior mean less the prior mean.
            covariance: (columns·size, columns·size) posterior covariance.
        """
        columns, size = way.shape
        blocks = np.einsum("cicj->ij", covariance.reshape(columns, size, columns, size))
        square = blocks + way.T @ way
        along: Array = np.einsum("ik,ij,jk->k", self.directions, square, self.directions)
        factors = (_FREEDOM + max(columns - 1, 1)) / (_FREEDOM + self.precisions * along)
        factors[self.learned :] = 1.0
        return factors


@dataclass(frozen=True)
class Evidence:
    """Noisy gradient and Hessian at one point.

    Attributes:
        at: (columns, size) coefficients of the point.
        units: (size,) coefficient that a weight of one stands for.
        seen: gradient and Hessian in units of weights; contrasts with more than two classes.
        deviation: standard deviation of the noise on a coordinate of the gradient.
        curved: standard deviation of the noise on the diagonal of the Hessian.
    """

    at: Array
    units: Array
    seen: Curved
    deviation: float
    curved: float


@dataclass(frozen=True)
class Posterior:
    """Gaussian posterior of all columns·size coefficients.

    Attributes:
        mean: (columns, size).
        covariance: of the error of the mean by noise, curvature and the prior. Eigenvalues of the Hessian
            near its noise count for less, because a gradient divided by noise would seem to determine
            coefficients that it does not. The shrinkage by the prior, to first order, is added.
        noise: the part of the covariance that the noise of the gradients makes.
        shrinkage: matrix by which a distance from the prior mean is an error of the posterior mean.
        prior: prior precision, with the scales of the last round.
        bent: Hessian of the mean loss, without the penalty.
        ridge: (size,) second derivatives of the penalty.
        hidden: whether noise alone may explain the curvature along some direction. The covariance along it
            is that of the prior, narrowed by a curvature that may be too large: intervals along it have
            covered too rarely where the classes are almost separable.
    """

    mean: Array
    covariance: Array
    noise: Array
    shrinkage: Array
    prior: Array
    bent: Array
    ridge: Array
    hidden: bool

    def sampling(self, n: float) -> Array:
        """Return the covariance by the sampling of n rows, taking the model to hold."""
        ridge = np.tile(self.ridge, len(self.mean))
        inverse = np.linalg.inv(n * (self.bent + np.diag(ridge)) + self.prior)
        return inverse @ (n * self.bent + self.prior) @ inverse


def posterior_of(start: Array, prior: Prior, evidence: Sequence[Evidence], bias: float = 0.0) -> Posterior:
    """Return the posterior, given evidence about one loss, all of it in the same units.

    At a point a the gradient is g = (H − E)(b − a) + ν. Here b is the minimiser and H the pooled Hessian of
    all releases. E is the error of H, and ν the noise on g. E(b − a) counts as noise in each coordinate.
    Its two parts are the noise on H, times |b − a|, and the change of the Hessian on the way, in proportion
    to twice the loss that H predicts there. Both depend on b, and so do the scales of coefficients: a few
    rounds of a fixed point settle them.

    Args:
        start: (columns, size) prior mean.
        prior: the prior about that mean.
        evidence: gradients and Hessians, at least one.
        bias: standard deviation, in each coordinate, of a bias that all gradients share.
    """
    columns, pooled = len(start), _Pooled.of(evidence)
    units = np.tile(evidence[0].units, columns)
    slope = pooled.hessian / units + np.diag(units * np.tile(prior.penalty, columns))
    places = np.array([each.at.ravel() for each in evidence]) / units
    values = np.array([each.seen.pull.ravel() for each in evidence]) + places @ pooled.hessian
    own = np.array([each.deviation**2 for each in evidence])
    before = prior.precision(columns)
    mean, covariance = evidence[-1].at.ravel(), np.zeros_like(before)
    seen = slope - (pooled.hessian - pooled.seen) / units
    gain, noisy, trust = slope, 0.0, np.zeros(len(own))
    for _ in range(_ROUNDS):
        ways = mean / units - places
        spread = covariance / units[:, None] / units
        moved = np.vecdot(ways, ways) + float(np.trace(spread))
        lost = np.vecdot(ways @ pooled.hessian, ways) + float(np.sum(spread * pooled.hessian))
        noise = own + pooled.variance * moved
        trust = 1 / (noise + pooled.bend * lost**2 / len(units))
        precision = before + float(trust.sum()) * (slope.T @ slope)
        covariance = np.linalg.inv(precision).astype(np.float64)
        mean = covariance @ (before @ start.ravel() + slope.T @ (trust @ values))
        gain, noisy = covariance @ slope.T, float(noise @ trust**2)
        known = np.linalg.inv(before + float(trust.sum()) * (seen.T @ seen)).astype(np.float64)
        before = prior.precision(columns, prior.scales(mean.reshape(start.shape) - start, known))
    known = np.linalg.inv(before + float(trust.sum()) * (seen.T @ seen)).astype(np.float64)
    shrinkage = known @ before
    held = shrinkage @ (mean - start.ravel())
    bent = pooled.hessian / units[:, None] / units
    noisy = noisy * (gain @ gain.T)
    errors = known + np.outer(held, held) + (float(trust.sum()) * bias) ** 2 * (gain @ gain.T)
    return Posterior(
        mean.reshape(start.shape),
        errors,
        noisy,
        shrinkage,
        before,
        bent,
        prior.penalty,
        pooled.hides(columns),
    )


@dataclass(frozen=True)
class _Pooled:
    """Weighted mean of the released Hessians, in units of weights.

    Attributes:
        hessian: with eigenvalues raised to the standard deviation of the noise.
        seen: with eigenvalues shrunk by the noise, and negative ones set to 0.
        variance: of the noise on the diagonal.
        bend: squared length of the part of a gradient that the Hessian misses, relative to the square of
            twice the loss on the way.
    """

    hessian: Array
    seen: Array
    variance: float
    bend: float

    def hides(self, columns: int) -> bool:
        """Return whether noise alone may explain some eigenvalue of the contrasts.

        The largest eigenvalue of the noise is about √(2·size) deviations; two more are for chance.
        """
        size = len(self.hessian)
        loud = (np.sqrt(2 * size) + 2) * np.sqrt(self.variance)
        clear = np.count_nonzero(np.linalg.eigvalsh(self.hessian) > loud)
        return bool(clear < size * max(columns - 1, 1) / columns)

    @classmethod
    def of(cls, evidence: Sequence[Evidence]) -> "_Pooled":
        """Return the mean of all, with less weight on those that are noisy or unlike the last one.

        Half the difference of two Hessians, times the way between their points, is the part of the gradient
        that one Hessian misses on that way. The expected square of its noise is subtracted.
        """
        last = evidence[-1]
        noise = np.array([each.curved**2 for each in evidence])
        apart = np.array([each.seen.curvature - last.seen.curvature for each in evidence])
        size, both = apart.shape[-1], noise + noise[-1]
        unlike = np.sum(apart**2, axis=(1, 2)) / (size * (size + 1) / 2) - both
        weights = 1 / (noise + np.maximum(unlike, 0.0) * (noise != noise[-1]))
        weights /= weights.sum()
        values, vectors = np.linalg.eigh(last.seen.curvature + np.einsum("k,kij->ij", weights, apart))
        variance = float(weights**2 @ noise)
        values, shown = np.maximum(values, _floor(variance)), np.maximum(values, 0.0)
        hessian = (vectors * values) @ vectors.T
        likely = shown**2 / (shown**2 + variance)
        ways = np.array([((last.at - each.at) / last.units).ravel() for each in evidence])
        lost = np.vecdot(ways @ hessian, ways)
        shaken = both * (size + 1) / 8 * np.vecdot(ways, ways)
        excess = np.sum(np.einsum("kij,kj->ki", apart, ways) ** 2, axis=1) / 4 - shaken
        trust = (lost / np.maximum(shaken, 1e-100)) ** 2
        # Twice the loss on the way, by the mean of both Hessians: the last alone shows little of a long way.
        midway = np.maximum(lost + np.vecdot(np.einsum("kij,kj->ki", apart, ways), ways) / 2, lost / 10)
        bend = float(excess @ trust) / max(float(midway**2 @ trust), 1e-300)
        seen = (vectors * (shown * likely)) @ vectors.T
        bend = min(max(bend, _LEAST_BEND**2 / len(last.at)), _MOST_BEND**2)
        return cls(hessian, seen, variance, bend)


def _floor(variance: float) -> float:
    """Return the least eigenvalue of a pooled Hessian: the standard deviation of its noise.

    With 0 a gradient would carry no information along that direction. The mean would fall back to the prior
    mean, however long the gradients are.
    """
    return float(np.sqrt(variance))

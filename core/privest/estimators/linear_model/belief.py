"""What is believed of coefficients once noisy gradients and Hessians have been seen: a normal law.

All is in units of coefficients, with a column for each class, or one of two classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privest.arrays import Array
from privest.estimators.linear_model.losses.curved import Curved

_ROUNDS = 6
"""Rounds in which the way to the answer settles, and with it all that depends on its length."""

_CERTAIN = 1e6
"""Precision of what all classes have in common, which changes no probability, over that of a coefficient."""

_LEAST_BEND = 0.1
"""Length of what a Hessian leaves out of a gradient, over twice the loss that it foretells, as it is believed
to be at least: a fifth of the most that a row can have, as noise hides it where features hardly vary. Of
several columns each has its own, for its part of the loss."""

_MOST_BEND = 0.5
"""The most of it that one row can have, as |1 − 2p| is at most 1."""

_FREEDOM = 2.0
"""Degrees of freedom of the t law that coefficients have before any evidence, if it may tell their scale."""


@dataclass(frozen=True)
class Prior:
    """What is believed of coefficients before any evidence: a normal law, every column alike.

    Attributes:
        directions: (size, size) orthonormal columns, the intercept's last.
        precisions: (size,) along each of them.
        penalty: (size,) second derivatives of the penalty.
        learned: number of directions, the first ones, along which the evidence may tell a scale.
    """

    directions: Array
    precisions: Array
    penalty: Array
    learned: int

    @property
    def covariance(self) -> Array:
        """(size, size) of a column."""
        return (self.directions / self.precisions) @ self.directions.T

    def precision(self, columns: int, scales: Array | float = 1.0) -> Array:
        """The precision of all columns together, with a factor on that along each direction."""
        own = (self.directions * (self.precisions * scales)) @ self.directions.T
        alike = np.full((columns, columns), _CERTAIN / columns if columns > 1 else 0.0)
        usual = np.diag(self.directions**2 @ self.precisions)
        return np.kron(np.eye(columns), own) + np.kron(alike, usual)

    def scales(self, way: Array, covariance: Array) -> Array:
        """(size,) factors on precisions that make this law one round nearer to a t law in each direction.

        What is seen to be large there is then held back less, and what is not seen keeps its scale.

        Args:
            way: (columns, size) mean of the distance from the start.
            covariance: (columns·size, columns·size) of it.
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
    """A noisy gradient and Hessian at some coefficients.

    Attributes:
        at: (columns, size) coefficients.
        units: (size,) coefficients of weights of one.
        seen: in units of weights; of more than two classes, contrasts.
        deviation: of the noise on a coordinate of the gradient.
        curved: the same on the diagonal of the Hessian.
    """

    at: Array
    units: Array
    seen: Curved
    deviation: float
    curved: float


@dataclass(frozen=True)
class Belief:
    """A normal law of (columns·size) coefficients.

    Attributes:
        mean: (columns, size).
        covariance: of its error, by all that is known to move it. A Hessian tells the less the nearer its
            eigenvalues are to its noise: where they are made of it a gradient seems to tell coefficients
            that it does not. And what is believed before any evidence holds the mean back where it tells
            little: how far, to first order, counts as an error more.
        noise: the part of that which the noise makes.
        prior: precision before any evidence.
        bent: Hessian of the mean loss, without its penalty.
        ridge: (size,) second derivatives of the penalty.
        hidden: whether noise alone may have made the curvature along some direction that classes can differ
            in. Along it the covariance is as wide as coefficients usually are, and evidence narrows it by
            a curvature that may be less: it has held less often than it should where classes all but part.
    """

    mean: Array
    covariance: Array
    noise: Array
    prior: Array
    bent: Array
    ridge: Array
    hidden: bool

    def sampling(self, n: float) -> Array:
        """Covariance by the sampling of n rows, where the model holds: gradients then vary by the Hessian."""
        ridge = np.tile(self.ridge, len(self.mean))
        inverse = np.linalg.inv(n * (self.bent + np.diag(ridge)) + self.prior)
        return inverse @ (n * self.bent + self.prior) @ inverse


def concluded(start: Array, prior: Prior, evidence: Sequence[Evidence], bias: float = 0.0) -> Belief:
    """What is believed after some evidence about one loss, all with the same units.

    At a point a the gradient is g = (H − E)(b − a) + ν for the answer b, one Hessian H that is pooled of all
    that were released, its error E, and noise ν on g. In each coordinate E(b − a) counts as noise: by the
    noise on H, |b − a| times its deviation; and by the bend of the loss on the way, in proportion to twice
    the loss that H foretells there. All of this depends on b, and settles in a few rounds. So do the scales
    of coefficients.

    Args:
        start: (columns, size) mean before any evidence.
        prior: the law about it.
        evidence: at least one piece.
        bias: standard deviation, in each coordinate, of what all gradients lack alike.
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
    held = known @ before @ (mean - start.ravel())
    bent = pooled.hessian / units[:, None] / units
    noisy = noisy * (gain @ gain.T)
    errors = known + np.outer(held, held) + (float(trust.sum()) * bias) ** 2 * (gain @ gain.T)
    return Belief(
        mean.reshape(start.shape), errors, noisy, before, bent, prior.penalty, pooled.hides(columns)
    )


@dataclass(frozen=True)
class _Pooled:
    """A Hessian by all that were released, in units of weights.

    Attributes:
        hessian: with no eigenvalue below the noise's standard deviation, as none of the loss is below 0.
        seen: the same with less of eigenvalues that noise may have made, and none of those that are below 0.
        variance: of the noise on its diagonal.
        bend: square of what a Hessian leaves out of a gradient, over the square of twice the loss on the way.
    """

    hessian: Array
    seen: Array
    variance: float
    bend: float

    def hides(self, columns: int) -> bool:
        """Whether some eigenvalue of contrasts may be no larger than noise alone makes the largest.

        That is about √(2·size) deviations; and the eigenvalue's own noise may have made it two larger.
        """
        size = len(self.hessian)
        loud = (np.sqrt(2 * size) + 2) * np.sqrt(self.variance)
        clear = np.count_nonzero(np.linalg.eigvalsh(self.hessian) > loud)
        return bool(clear < size * max(columns - 1, 1) / columns)

    @classmethod
    def of(cls, evidence: Sequence[Evidence]) -> "_Pooled":
        """The mean of all, in which those that are noisy or unlike the last one count less.

        Half of the difference of two Hessians, times the way between their points, is what one of them leaves
        out of the gradient on that way, but for their noise, of which the expected square is taken off.
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
        # Clipped at 0, a gradient would tell nothing along that direction, and the mean would fall back to
        # where it started, however far off the gradients of all steps say that is.
        values, shown = np.maximum(values, np.sqrt(variance)), np.maximum(values, 0.0)
        hessian = (vectors * values) @ vectors.T
        likely = shown**2 / (shown**2 + variance)
        ways = np.array([((last.at - each.at) / last.units).ravel() for each in evidence])
        lost = np.vecdot(ways @ hessian, ways)
        shaken = both * (size + 1) / 8 * np.vecdot(ways, ways)
        excess = np.sum(np.einsum("kij,kj->ki", apart, ways) ** 2, axis=1) / 4 - shaken
        trust = (lost / np.maximum(shaken, 1e-100)) ** 2
        # Twice the loss on the way is by the mean of both, as the last alone has next to none of a long one.
        midway = np.maximum(lost + np.vecdot(np.einsum("kij,kj->ki", apart, ways), ways) / 2, lost / 10)
        bend = float(excess @ trust) / max(float(midway**2 @ trust), 1e-300)
        seen = (vectors * (shown * likely)) @ vectors.T
        bend = min(max(bend, _LEAST_BEND**2 / len(last.at)), _MOST_BEND**2)
        return cls(hessian, seen, variance, bend)

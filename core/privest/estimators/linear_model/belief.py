"""What is believed of coefficients once noisy gradients and Hessians have been seen: a normal law.

All is in units of coefficients, with a column for each class, or one of two classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privest.arrays import Array
from privest.estimators.linear_model.losses.curved import Curved

_ROUNDS = 6
"""Rounds in which the way to the answer settles, and what it makes of noise in a Hessian."""

_BEND = 0.05
"""Length of what a quadratic model leaves out of the mean gradient, over twice the loss that it foretells.
Of a single row it is up to ten times as much, of either sign."""

ROUGH = 1.15
"""Factor on variances: how much larger squares of errors were on tables than a linear model has them."""

_CERTAIN = 1e6
"""Precision of what all classes have in common, which changes no probability, over that of a coefficient."""


_PRIOR_WEIGHT = 2.0
"""Coefficients of the usual size that count, beside those that are seen, when a scale is learned."""


@dataclass(frozen=True)
class Prior:
    """What is believed of coefficients before any evidence: a normal law, every column alike.

    Attributes:
        precision: (size, size) of a column.
        penalty: (size,) second derivatives of the penalty.
        features: number of coefficients, before the intercept, whose scale the evidence may tell.
    """

    precision: Array
    penalty: Array
    features: int

    def of(self, columns: int) -> tuple[Array, Array]:
        """Precision of all columns: the part that a scale divides, and the rest."""
        own = np.kron(np.eye(columns), self.precision).astype(np.float64)
        scaled = np.tile(np.arange(len(self.penalty)) < self.features, columns)
        part = own * np.outer(scaled, scaled)
        alike = np.full((columns, columns), _CERTAIN / columns if columns > 1 else 0.0)
        return part, own - part + np.kron(alike, np.diag(np.diag(self.precision)))


@dataclass(frozen=True)
class Evidence:
    """A noisy gradient and Hessian at some coefficients.

    Attributes:
        at: (columns, size) coefficients.
        units: (size,) coefficients of weights of one.
        seen: in units of weights; of more than two classes, contrasts.
        lacking: (size,) variance of what far rows would add to the gradient, in a column.
        deviation: of the noise on a coordinate of the gradient.
        curved: the same on the diagonal of the Hessian.
    """

    at: Array
    units: Array
    seen: Curved
    lacking: Array
    deviation: float
    curved: float


@dataclass(frozen=True)
class Belief:
    """A normal law of (columns·size) coefficients.

    Attributes:
        mean: (columns, size).
        covariance: of its error, by all that is known to move it.
        noise: the part of that which the noise makes.
        prior: precision before any evidence.
        bent: Hessian of the mean loss, without its penalty.
        ridge: (size,) second derivatives of the penalty.
    """

    mean: Array
    covariance: Array
    noise: Array
    prior: Array
    bent: Array
    ridge: Array

    def sampling(self, n: float) -> Array:
        """Covariance by the sampling of n rows, where the model holds: gradients then vary by the Hessian."""
        ridge = np.tile(self.ridge, len(self.mean))
        inverse = np.linalg.inv(n * (self.bent + np.diag(ridge)) + self.prior)
        return inverse @ (n * self.bent + self.prior) @ inverse


def concluded(start: Array, prior: Prior, evidence: Sequence[Evidence]) -> Belief:
    """What is believed after some evidence, of which each piece is linear about its own point.

    At a point a the gradient is g = H(b − a) − E(b − a) + ν for the answer b, the released Hessian H, noise E
    on it and noise ν on g. E counts as noise of |b − a| times its own deviation in each coordinate. Both it
    and what a quadratic model leaves out depend on b, and settle in a few rounds. So does the scale of
    coefficients: the root mean square of their distance from the start, as it is believed to be.

    Args:
        start: (columns, size) mean before any evidence.
        prior: the law about it.
        evidence: at least one piece.
    """
    scaled, rest = prior.of(len(start))
    pieces = [_Piece.of(each, np.tile(prior.penalty, len(start))) for each in evidence]
    before = scaled + rest
    mean, covariance, gains = start.ravel(), np.zeros_like(before), list[Array]()
    moved = [0.0 for _ in pieces]
    for _ in range(_ROUNDS):
        ways = [each.way(mean, covariance) for each in pieces]
        moved = [way[0] for way in ways]
        weighted = [each.slope.T / each.variance(*way) for each, way in zip(pieces, ways, strict=True)]
        precision, right = before.copy(), before @ start.ravel()
        for each, weight in zip(pieces, weighted, strict=True):
            precision += weight @ each.slope
            right += weight @ each.value
        covariance = np.linalg.inv(precision).astype(np.float64)
        mean = covariance @ right
        gains = [covariance @ weight for weight in weighted]
        way = mean - start.ravel()
        known = float(way @ scaled @ way) + float(np.sum(scaled * covariance))
        before = scaled * (_PRIOR_WEIGHT + prior.features) / (_PRIOR_WEIGHT + known) + rest
    noise = np.zeros_like(covariance)
    for each, square, gain in zip(pieces, moved, gains, strict=True):
        noise += each.noisy(square) * (gain @ gain.T)
    last = pieces[-1]
    bent = last.bent / last.units[:, None] / last.units
    return Belief(mean.reshape(start.shape), ROUGH * covariance, ROUGH * noise, before, bent, prior.penalty)


@dataclass(frozen=True)
class _Piece:
    """A piece of evidence as a linear equation, value = slope·b + noise, and what its noise depends on.

    Attributes:
        at: (dim,) coefficients.
        units: (dim,) coefficients of weights of one.
        bent: (dim, dim) Hessian in units of weights, its noise put on the right side of 0.
        slope: (dim, dim).
        value: (dim,).
        own: variance of the noise on a gradient.
        curved: the same on a Hessian's diagonal.
        far: (dim,) variance of what far rows would add.
    """

    at: Array
    units: Array
    bent: Array
    slope: Array
    value: Array
    own: float
    curved: float
    far: Array

    @classmethod
    def of(cls, each: Evidence, ridge: Array) -> "_Piece":
        """The equation of a piece of evidence."""
        columns = len(each.at)
        at, units = each.at.ravel(), np.tile(each.units, columns)
        values, vectors = np.linalg.eigh(each.seen.curvature)
        bent = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return cls(
            at,
            units,
            bent,
            bent / units + np.diag(units * ridge),
            each.seen.pull.ravel() + bent @ (at / units),
            each.deviation**2,
            each.curved**2,
            np.tile(each.lacking, columns),
        )

    def noisy(self, moved: float) -> float:
        """Variance that the noise makes in each coordinate, where the answer is so far off in square."""
        return self.own + self.curved * moved

    def way(self, mean: Array, covariance: Array) -> tuple[float, float]:
        """Expected square of the way to the answer, and twice the loss on it, in units of weights."""
        way = (mean - self.at) / self.units
        spread = covariance / self.units[:, None] / self.units
        moved = float(way @ way) + float(np.trace(spread))
        return moved, float(way @ self.bent @ way) + float(np.sum(spread * self.bent))

    def variance(self, moved: float, loss: float) -> Array:
        """(dim,) in each coordinate of the equation."""
        return self.noisy(moved) + self.far + (_BEND * loss) ** 2 / len(self.at)

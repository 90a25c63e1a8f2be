"""Losses of one linear score, convex or not: derivatives, their bounds, and clipped sums of them for a gate.

φ(o + w·z) for labelled rows, where z is at most one long: a margin y·w·x, or a residual y − w·x.
Streams take gradients, Hessians and their changes of any smooth loss (Liu and Talwar 2025).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Protocol

import numpy as np
from numpy.polynomial import Polynomial
from scipy.special import expit

from privest.arrays import Array, SymmetricCoordinates, lengths
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.kernels import second_moment
from privest.privacy.clipped_sums import Opposable, any_floats, clipped_sum


class SmoothLoss(Protocol):
    """f(x; z) of a vector x and a record z, twice differentiable in x, with bounds for every record.

    The bounds follow from public facts. They steer steps and batches, and clips enforce what privacy needs of
    them: no guarantee rests on a record's keeping them.
    """

    @property
    def size(self) -> int:
        """d, length of x."""
        ...

    @property
    def gradient_bound(self) -> float:
        """G: |∇f| is at most this."""
        ...

    @property
    def gradient_lipschitz(self) -> float:
        """M: |∇f(x) − ∇f(y)| is at most M|x − y|, and no eigenvalue of the Hessian larger."""
        ...

    @property
    def hessian_lipschitz(self) -> float:
        """ρ: the Hessians at x and y are at most ρ|x − y| apart, in operator norm."""
        ...

    def gradients(self, point: Array, rows: Array) -> Array:
        """∇f at `point` (d,) for each of (n, ...) records: (n, d). Total: a record that overflows may give
        what is not finite, which clipping counts as zero."""
        ...

    def hessians(self, point: Array, rows: Array) -> Array:
        """The Hessians of f there: (n, d, d), symmetric."""
        ...


_BLOCK = 2**17
"""Numbers in Hessians that are made at a time: they stay in the cache, and there is room for them."""


@dataclass(frozen=True)
class Leaf:
    """The point, or change of points, at which a stream takes its next leaf, a mean over a batch.

    Attributes:
        point: x, (d,).
        before: y, (d,): the change since there is meant. None for the derivative itself.
        records: size of the batch.
    """

    point: Array
    before: Array | None
    records: int

    @property
    def moved(self) -> float:
        """|x − y|."""
        return 0.0 if self.before is None else float(np.linalg.norm(self.point - self.before))


@dataclass(frozen=True)
class Gradients(Opposable):
    """O₁ and O₂: ∇f(x) clipped to G, or ∇f(x) − ∇f(y) clipped to M|x − y|, over their number.

    Both are clipped to the bound of the stream as well, which is what privacy rests on.

    References:
        Liu and Talwar (2025), Algorithm 4.
    """

    loss: SmoothLoss

    description = "the mean gradient"

    @property
    def size(self) -> int:
        """d."""
        return self.loss.size

    @any_floats
    def clipped_sum(self, point: Leaf, rows: Array, clip: float) -> Array:
        """The sum over (n, ...) rows: (d,)."""
        loss = self.loss
        vectors = loss.gradients(point.point, rows)
        longest = loss.gradient_bound
        if point.before is not None:
            vectors = vectors - loss.gradients(point.before, rows)
            longest = loss.gradient_lipschitz * point.moved
        return _clipped_mean(vectors, point, clip, longest)


@dataclass(frozen=True)
class Hessians(Opposable):
    """O₃ and O₄: mean Hessians and their changes, clipped in Frobenius norm to √r·M and √r·ρ|x − y|.

    Attributes:
        loss: whose Hessians.
        rank: r of a record's Hessian, and of its change: a public fact of the loss, d where none is known.
    """

    loss: SmoothLoss
    rank: int

    description = "the mean Hessian"

    @property
    def size(self) -> int:
        """Number of orthonormal coordinates of a symmetric matrix."""
        return SymmetricCoordinates(self.loss.size).size

    def clipped_sum(self, point: Leaf, rows: Array, clip: float) -> Array:
        """The sum over (n, ...) rows, in `SymmetricCoordinates`: (d(d+1)/2,)."""
        block = max(1, _BLOCK // self.loss.size**2)
        total = np.zeros(self.size)
        for start in range(0, len(rows), block):
            total += self._of_block(point, rows[start : start + block], clip)
        return total

    @any_floats
    def _of_block(self, point: Leaf, rows: Array, clip: float) -> Array:
        loss = self.loss
        matrices = loss.hessians(point.point, rows)
        largest = loss.gradient_lipschitz
        if point.before is not None:
            matrices = matrices - loss.hessians(point.before, rows)
            largest = loss.hessian_lipschitz * point.moved
        vectors = SymmetricCoordinates(loss.size).of(matrices)
        return _clipped_mean(vectors, point, clip, sqrt(self.rank) * largest)


def _clipped_mean(vectors: Array, point: Leaf, clip: float, longest: float) -> Array:
    """Mean over the point's batch of vectors clipped to `longest`; zero if the point did not move."""
    clip = min(clip, longest / point.records)
    if clip == 0.0:
        vectors, clip = np.zeros_like(vectors), 1.0
    return clipped_sum(vectors / point.records, clip)


class ScalarLoss(Protocol):
    """φ(t), twice differentiable, by its derivatives. Total: a t of which there is none gives NaN."""

    @property
    def gradient_bound(self) -> float:
        """sup |φ′|."""
        ...

    @property
    def curvatures(self) -> tuple[float, float]:
        """inf φ″, at most 0, and sup φ″."""
        ...

    @property
    def hessian_lipschitz(self) -> float:
        """sup |φ‴|, the Lipschitz constant of φ″."""
        ...

    def slope(self, t: Array) -> Array:
        """φ′(t)."""
        ...

    def curvature(self, t: Array) -> Array:
        """φ″(t)."""
        ...


@dataclass(frozen=True)
class SigmoidPolynomialLoss:
    """A loss of a margin t whose slope is a polynomial q in p = 1/(1 + eᵗ).

    As p′ = −p(1 − p), every derivative of it is one too: φ″ = −p(1 − p)·q′ and so on, and their suprema are
    those of polynomials on [0, 1], at an end or at a root of the next derivative.

    Attributes:
        coefficients: of q, from the constant on.
    """

    coefficients: tuple[float, ...]

    @cached_property
    def _derivatives(self) -> tuple[Polynomial, Polynomial, Polynomial]:
        falling = Polynomial([0.0, -1.0, 1.0])
        first = Polynomial(self.coefficients)
        second = falling * first.deriv()
        return first, second, falling * second.deriv()

    @cached_property
    def _ranges(self) -> list[tuple[float, float]]:
        """The range of each derivative: sums ask for them again and again."""
        return [_range(each) for each in self._derivatives]

    @property
    def gradient_bound(self) -> float:
        """sup |φ′|."""
        return max(map(abs, self._ranges[0]))

    @property
    def curvatures(self) -> tuple[float, float]:
        """inf φ″ and sup φ″."""
        return self._ranges[1]

    @property
    def hessian_lipschitz(self) -> float:
        """sup |φ‴|."""
        return max(map(abs, self._ranges[2]))

    def slope(self, t: Array) -> Array:
        """φ′(t)."""
        return self._derivatives[0](expit(-t))

    def curvature(self, t: Array) -> Array:
        """φ″(t)."""
        return self._derivatives[1](expit(-t))


def _range(polynomial: Polynomial) -> tuple[float, float]:
    """Least and largest value on [0, 1]."""
    roots = polynomial.deriv().roots()
    inside = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)]
    values = polynomial(np.concatenate([[0.0, 1.0], inside]))
    return float(values.min()), float(values.max())


LOGISTIC = SigmoidPolynomialLoss((0.0, -1.0))
"""log(1 + e⁻ᵗ), convex: bounds 1, [0, 1/4], 1/(6√3)."""

SIGMOID = SigmoidPolynomialLoss((0.0, -1.0, 1.0))
"""p, from 0 for right to 1 for wrong (Mason, Baxter, Bartlett and Frean 1999): bounds 1/4, ±1/(6√3), 1/8."""

SAVAGE = SigmoidPolynomialLoss((0.0, 0.0, -2.0, 2.0))
"""p² (Masnadi-Shirazi and Vasconcelos 2008, at half the margin): steepest 8/27, where p = 2/3."""


@dataclass(frozen=True)
class GemanMcClure:
    """c²/2·u²/(1 + u²) of a residual t, u = t/c: flat far out, but never quite (Geman and McClure 1987).

    With v = 1/(1 + u²), φ′ = t·v², steepest at u² = 1/3; φ″ = 4v³ − 3v², least at u = ±1; and
    φ‴ = 12u(u² − 1)v⁴/c, largest at u² = 1 − 2/√5, a root of 1 − 10u² + 5u⁴.

    Attributes:
        scale: c, in units of the residual.
    """

    scale: float

    @property
    def gradient_bound(self) -> float:
        """3√3·c/16."""
        return 3 * sqrt(3) * self.scale / 16

    @property
    def curvatures(self) -> tuple[float, float]:
        """−1/4 and 1."""
        return -0.25, 1.0

    @property
    def hessian_lipschitz(self) -> float:
        """2.334/c."""
        square = 1 - 2 / sqrt(5)
        return 12 * sqrt(square) * (1 - square) / (1 + square) ** 4 / self.scale

    @any_floats
    def slope(self, t: Array) -> Array:
        """φ′(t)."""
        return t * self._near(t) ** 2

    @any_floats
    def curvature(self, t: Array) -> Array:
        """φ″(t)."""
        near = self._near(t)
        return (4 * near - 3) * near**2

    def _near(self, t: Array) -> Array:
        """v."""
        return 1 / (1 + (t / self.scale) ** 2)


_PENALTY = GemanMcClure(1.0)
"""Penalty on a weight: w²/(1 + w²) is twice its value."""


@dataclass(frozen=True, eq=False)
class LinearLoss(ABC):
    """φ(t) + λ Σ w_j²/(1 + w_j²), t = o + w·z: a `SmoothLoss` of labelled rows.

    The gradient of φ(t) is φ′(t)·z, its Hessian φ″(t)·zzᵀ, and with |z| ≤ 1, as `design` has it, the bounds
    are those of φ. The penalty's Hessian is diagonal; per coordinate its derivatives are at most 2λ·3√3/16,
    2λ in [−1/4, 1] and 2λ·2.334, so that the whole gradient of it is √d·0.65λ long at most (Antoniadis,
    Gijbels and Nikolova 2011 have it among others).

    Attributes:
        feature_map: what is seen of a row.
        profile: φ.
        penalty: λ.
    """

    feature_map: FeatureMap
    profile: ScalarLoss
    penalty: float = 0.0

    @property
    def size(self) -> int:
        """d, length of w."""
        return self.feature_map.size

    @property
    def gradient_bound(self) -> float:
        """G = sup |φ′| + 2λ√d·3√3/16."""
        return self.profile.gradient_bound + 2 * self.penalty * sqrt(self.size) * _PENALTY.gradient_bound

    @property
    def gradient_lipschitz(self) -> float:
        """M = sup |φ″| + 2λ."""
        return self.hessians_clip + 2 * self.penalty * _PENALTY.curvatures[1]

    @property
    def hessian_lipschitz(self) -> float:
        """ρ = sup |φ‴| + 2λ·2.334."""
        return self.profile.hessian_lipschitz + 2 * self.penalty * _PENALTY.hessian_lipschitz

    @property
    def hessians_clip(self) -> float:
        """sup |φ″|: bound on a row's Hessian without the penalty's, in Frobenius norm as in any other."""
        return max(map(abs, self.profile.curvatures))

    @abstractmethod
    def seen(self, point: Array, rows: Array) -> tuple[Array, Array]:
        """t at `point` (size,) of rows, (n,), and z, (n, size)."""

    def gradients(self, point: Array, rows: Array) -> Array:
        """∇f at `point` (size,) for each of (n, d + 1) labelled rows: (n, size); see `SmoothLoss`."""
        t, z = self.seen(point, rows)
        return self.profile.slope(t)[:, None] * z + self.penalty_gradient(point)

    def hessians(self, point: Array, rows: Array) -> Array:
        """The Hessians of f there: (n, size, size), symmetric."""
        t, z = self.seen(point, rows)
        own = self.profile.curvature(t)[:, None, None] * (z[:, :, None] * z[:, None, :])
        return own + np.diag(self.penalty_curvatures(point))

    def penalty_gradient(self, point: Array) -> Array:
        """Gradient of the penalty alone, which is public: (size,)."""
        return 2 * self.penalty * _PENALTY.slope(point)

    def penalty_curvatures(self, point: Array) -> Array:
        """The diagonal of the penalty's Hessian, (size,)."""
        return 2 * self.penalty * _PENALTY.curvature(point)


class MarginLoss(LinearLoss):
    """φ(y·w·x) of rows of two classes, y = ±1."""

    def seen(self, point: Array, rows: Array) -> tuple[Array, Array]:
        """y·w·x, and y·x."""
        z = self.feature_map.features(rows)
        z *= (2.0 * self.feature_map.labels(rows, 2) - 1.0)[:, None]
        return np.vecdot(z, point), z


@dataclass(frozen=True, eq=False)
class LinearQuery:
    """The loss and the weights at which derivatives are taken.

    Attributes:
        loss: of which.
        weights: (size,).
    """

    loss: LinearLoss
    weights: Array


@dataclass(frozen=True)
class ClippedGradient:
    """Σ of the negative gradients −φ′(t)·z of a linear loss, without the penalty's, which needs no row.

    Attributes:
        size: of a gradient.
    """

    size: int

    description = "the mean gradient"

    def diameter(self, clip: float) -> float:
        """Two gradients may be opposite: those of one row with either label, where its score is 0."""
        return 2.0 * clip

    @any_floats
    def clipped_sum(self, point: LinearQuery, rows: Array, clip: float) -> Array:
        """Σ over rows of gradients of length at most `clip`; see `Statistic`."""
        t, z = point.loss.seen(point.weights, rows)
        return _within(-point.loss.profile.slope(t), lengths(z), -clip, clip) @ z


@dataclass(frozen=True)
class ClippedHessian:
    """Σ of the Hessians φ″(t)·zzᵀ of a linear loss, in orthonormal coordinates of symmetric matrices.

    Attributes:
        width: length of z.
        least: inf φ″, at most 0.
        most: sup φ″.
    """

    width: int
    least: float
    most: float

    description = "the mean Hessian"

    @cached_property
    def symmetric(self) -> SymmetricCoordinates:
        """Coordinates of the summed matrix."""
        return SymmetricCoordinates(self.width)

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.symmetric.size

    def diameter(self, clip: float) -> float:
        """max(a + b, √2·max(a, b)) for φ″ in [−a, b], neither beyond the clip.

        For units u and v, |α·uuᵀ − β·vvᵀ|² = α² + β² − 2αβ(u·v)² in Frobenius norm. Where α and β have one
        sign that is at most α² + β², reached at right angles; else at most (|α| + |β|)², reached at u = v.
        """
        a, b = min(-self.least, clip), min(self.most, clip)
        return max(a + b, sqrt(2.0) * max(a, b))

    @any_floats
    def clipped_sum(self, point: LinearQuery, rows: Array, clip: float) -> Array:
        """Σ over rows of Hessians c·zzᵀ, c|z|² within −a and b; see `Statistic`."""
        t, z = point.loss.seen(point.weights, rows)
        least, most = max(self.least, -clip), min(self.most, clip)
        kept = _within(point.loss.profile.curvature(t), np.vecdot(z, z), least, most)
        return self.symmetric.of(second_moment(z, kept))


def _within(factor: Array, length: Array, least: float, most: float) -> Array:
    """(n,) factors, shortened so that factor·length is from `least` to `most`; 0 for what is not finite."""
    factor = np.where(np.isfinite(factor), factor, 0.0)
    reached = factor * length
    bound = np.where(reached < 0, -least, most)
    return factor * (bound / np.maximum(np.abs(reached), bound))

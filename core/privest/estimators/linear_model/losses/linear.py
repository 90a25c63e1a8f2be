"""Losses of one linear score, convex or not: their derivatives, and clipped sums of these for a gate.

φ(o + w·z) for labelled rows, where z is at most one long: a margin y·w·x, or a residual y − w·x.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from privest.arrays import Array, SymmetricCoordinates, lengths
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.losses.scalar import GemanMcClure, ScalarLoss
from privest.kernels import second_moment
from privest.privacy.clipped_sums import any_floats

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

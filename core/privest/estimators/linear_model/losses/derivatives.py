"""Gradients and Hessians of a smooth loss and their changes, as leaves of streams (Liu and Talwar 2025)."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array, SymmetricCoordinates
from privest.estimators.linear_model.losses.smooth import SmoothLoss
from privest.privacy.clipped_sums import Opposable, any_floats, clipped_sum

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

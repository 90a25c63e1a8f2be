"""Low-rank matrix completion: how far a subspace is from columns of which some entries are known."""

from dataclasses import dataclass

import numpy as np

from privest.arrays import Array, lengths
from privest.estimators.subspace.partial_rows import known_part
from privest.estimators.subspace.spherical import orthonormal
from privest.privacy.clipped_sums import Opposable

_FLOOR = 1e-3
"""λ of private gradients, next to eigenvalues of about the share of entries that are known."""


@dataclass(frozen=True)
class CompletionGradient(Opposable):
    """Σ of negative Riemannian gradients of ½‖P_Ω(Xv − a)‖² (Zhang et al. 2024, (13)) over known parts a.

    The coefficients v are those of least squares, but for a ridge λ that keeps them short where the known
    entries leave them open: with the Gram matrix G of the basis on those entries, (G + λ)⁻¹Xᵀa, refined once
    (iterated Tikhonov), so that of a column of the subspace itself only (λ/(g + λ))² is missed along an
    eigenvector with eigenvalue g of G. Then |v| ≤ max √g(g + 2λ)/(g + λ)² ≤ 0.79/√λ < 25, and as the residual
    is no longer than a, no record pulls by more than that before it is clipped.

    Attributes:
        dim: D, length of a row.
        rank: r, columns of a basis.
    """

    dim: int
    rank: int

    description = "the mean gradient"

    @property
    def size(self) -> int:
        """Length of the summed vector: the D×r gradient, row by row."""
        return self.dim * self.rank

    def clipped_sum(self, point: Array, rows: Array, clip: float) -> Array:
        """Σ of gradients at the basis `point`, tangent there, of length at most `clip`; see `Statistic`."""
        a, known = known_part(rows)
        point = orthonormal(point)
        products = (point[:, :, None] * point[:, None, :]).reshape(self.dim, -1)
        gram = (known @ products).reshape(-1, self.rank, self.rank) + _FLOOR * np.eye(self.rank)
        # No eigenvalue is below λ, so that no row makes these systems singular.
        v = np.linalg.solve(gram, (a @ point)[..., None])
        v = (v + _FLOOR * np.linalg.solve(gram, v))[..., 0]
        left = known * (a - v @ point.T)
        left -= (left @ point) @ point.T  # what the ridge has left along the basis
        pull = lengths(left) * lengths(v)
        return (left.T @ ((clip / np.maximum(pull, clip))[:, None] * v)).ravel()

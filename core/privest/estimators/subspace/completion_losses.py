"""Low-rank matrix completion: how far a subspace is from columns of which some entries are known."""

from dataclasses import dataclass

import numpy as np

from privest.arrays import Array, lengths
from privest.estimators.subspace.partial_rows import known_part

_RIDGE = 1e-12
"""Makes coefficients that too few entries leave open the shortest ones."""


def coefficients(basis: Array, columns: Array, mask: Array) -> Array:
    """V(X): the combinations of the basis nearest to each column's known entries (Zhang et al. 2024, (13)).

    Args:
        basis: X, (dim, rank) orthonormal columns.
        columns: (n, dim) records, each a column of the matrix to be completed.
        mask: (n, dim) ones where an entry is known, zeros elsewhere.

    Returns:
        (n, rank), V transposed.
    """
    dim, rank = basis.shape
    products = (basis[:, :, None] * basis[:, None, :]).reshape(dim, -1)
    gram = (mask @ products).reshape(-1, rank, rank)
    inverse = np.linalg.inv(gram + _RIDGE * np.eye(rank))
    seen = ((mask * columns) @ basis)[..., None]
    found = inverse @ seen
    found += inverse @ (seen - gram @ found)  # takes off what the ridge has changed
    return found[..., 0]


def gradient(basis: Array, columns: Array, mask: Array) -> Array:
    """Gradient of ½‖P_Ω(XV(X) − A)‖² in X: residuals on known entries times coefficients, (dim, rank).

    It is orthogonal to the basis by the normal equations, and so the Riemannian gradient both on the
    Stiefel and on the Grassmann manifold. V minimises, so how it moves with X adds nothing.

    Args:
        basis: as in `coefficients`.
        columns: as in `coefficients`.
        mask: as in `coefficients`.
    """
    found = coefficients(basis, columns, mask)
    return (mask * (found @ basis.T - columns)).T @ found


_FLOOR = 1e-3
"""λ of private gradients, next to eigenvalues of about the share of entries that are known."""


@dataclass(frozen=True)
class CompletionGradient:
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

    def diameter(self, clip: float) -> float:
        """Two gradients may be opposite."""
        return 2.0 * clip

    def clipped_sum(self, point: Array, rows: Array, clip: float) -> Array:
        """Σ of gradients at the basis `point`, tangent there, of length at most `clip`; see `Statistic`."""
        a, known = known_part(rows)
        products = (point[:, :, None] * point[:, None, :]).reshape(self.dim, -1)
        gram = (known @ products).reshape(-1, self.rank, self.rank) + _FLOOR * np.eye(self.rank)
        # No eigenvalue is below λ, so that no row makes these systems singular.
        v = np.linalg.solve(gram, (a @ point)[..., None])
        v = (v + _FLOOR * np.linalg.solve(gram, v))[..., 0]
        left = known * (a - v @ point.T)
        left -= (left @ point) @ point.T  # what the ridge has left along the basis
        pull = lengths(left) * lengths(v)
        return (left.T @ ((clip / np.maximum(pull, clip))[:, None] * v)).ravel()

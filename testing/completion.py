"""Low-rank matrix completion without privacy: how columns fit a subspace, and the gradient of that."""

import numpy as np

from privest.arrays import Array

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

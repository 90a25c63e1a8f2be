"""The leading subspace of a second moment whose diagonal is not known."""

import numpy as np

from privest.arrays import Array

_ROUNDS = 20
"""After five, diagonals of incoherent subspaces stand still; more coherent ones take longer."""


def hetero_pca(hollow: Array, rank: int) -> Array:
    """HeteroPCA (Zhang, Cai and Wu 2022, Algorithm 1), for a fixed number of rounds.

    The diagonal becomes, over and over, that of the nearest positive matrix of the given rank.

    Args:
        hollow: (dim, dim) symmetric matrix; its diagonal is passed over.
        rank: r.

    Returns:
        (dim, rank) orthonormal columns, the leading one first.
    """
    filled = hollow.copy()
    np.fill_diagonal(filled, 0.0)
    for _ in range(_ROUNDS):
        values, vectors = np.linalg.eigh(filled)
        leading = vectors[:, -rank:]
        np.fill_diagonal(filled, (leading**2) @ np.maximum(values[-rank:], 0.0))
    return np.linalg.eigh(filled)[1][:, ::-1][:, :rank]

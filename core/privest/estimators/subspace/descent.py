"""Robust subspaces by descent on noisy gradients, and the leading subspace of a noisy moment."""

from collections.abc import Callable, Sequence

import numpy as np

from privest.arrays import Array
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.optim.federated import Rounds, owners_descent
from privest.privacy.oracle import Oracle


def principal(moment: Array, count: int) -> Array:
    """(dim, count) leading eigenvectors of a symmetric matrix, the first first."""
    return np.linalg.eigh(moment)[1][:, ::-1][:, :count]


def with_signs(basis: Array) -> Array:
    """The basis with signs by a public rule: in each column the coordinate of largest size is above 0.

    Of equally large ones it is the first.

    Args:
        basis: (dim, rank).
    """
    largest = np.take_along_axis(basis, np.abs(basis).argmax(axis=0)[None], axis=0)
    return basis * np.where(largest < 0, -1.0, 1.0)


def descent(
    basis: Array,
    gate: Oracle,
    *,
    asked: Callable[[Array], object],
    rounds: Rounds,
) -> Array:
    """Descent on a gate's noisy gradients: by geodesics or, with local steps or by turns, federated.

    Args:
        basis: (dim, rank) orthonormal columns to start from.
        gate: of one owner, or several pooled.
        asked: what a gate is asked for the negative gradient at a basis.
        rounds: the steps, or the rounds of several owners.

    Returns:
        (dim, rank) orthonormal columns.

    References:
        Zhang et al. (2024), Algorithm 1, for local steps.
    """
    if rounds.local_steps == rounds.turns == 1:
        return geodesic_descent(basis, steps=rounds.lengths, gradient=lambda at: gate.mean(asked(at)))
    return owners_descent(Grassmann(*basis.shape), gate, asked=asked, start=basis, rounds=rounds)


def geodesic_descent(basis: Array, *, steps: Sequence[float], gradient: Callable[[Array], Array]) -> Array:
    """GGD and its noisy and stochastic forms: V ← Exp_V(−η_k·noisy gradient).

    Args:
        basis: (dim, rank) orthonormal columns to start from.
        steps: η_k.
        gradient: noisy mean of negative gradients at a basis, (dim·rank,).

    Returns:
        (dim, rank) orthonormal columns.

    References:
        Maunu et al. (2022), Section 2.
    """
    space = Grassmann(*basis.shape)
    for step in steps:
        basis = space.exp_coordinates(basis, step * gradient(basis))
    return basis

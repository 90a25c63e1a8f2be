"""Robust subspaces by geodesic descent, and the private starts that make it find the right one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from privest.arrays import Array
from privest.estimators.subspace.candidates import Candidates
from privest.manifolds.grassmann import Grassmann
from privest.optim.federated import owners_descent
from privest.privacy.oracle import Oracle

Refine = Callable[[Candidates], Array]
"""Noisy mean of all candidates' negative gradients, (count, rank + 1)."""


def principal(moment: Array, count: int) -> Array:
    """(dim, count) leading eigenvectors of a symmetric matrix, the first first."""
    return np.linalg.eigh(moment)[1][:, ::-1][:, :count]


def consensus(
    frame: Array,
    *,
    center: Array | None,
    scales: Sequence[float],
    steps: Sequence[float],
    tilt: Refine,
    objective: Callable[[Candidates], Array],
) -> Array:
    """Of the subspaces one dimension below a frame, the one that a bounded loss likes best.

    The candidates leave out one direction of the frame each; copies of them are tilted by descent on the
    bounded loss from wide to narrow, in r + 1 numbers each; the noisy objective decides among all of them.
    A direction that holds many rows but is no part of the subspace is so found out, where each row's
    pull is bounded and its distance alone is not (paper 001 leaves such outliers open).

    Args:
        frame: (dim, rank + 1) orthonormal columns.
        center: (dim,) of the rows.
        scales: c of the bounded loss at every step; the last one also decides.
        steps: their lengths.
        tilt: noisy gradients.
        objective: noisy values of 2·(rank + 1) candidates.

    Returns:
        (dim, rank) orthonormal columns.
    """
    plain = np.eye(frame.shape[1])
    normals = plain
    for scale, step in zip(scales, steps, strict=True):
        pull = step * tilt(Candidates(frame, normals, scale, center))
        pull -= np.vecdot(pull, normals)[:, None] * normals
        moved = normals + pull
        normals = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    every = Candidates(frame, np.vstack([plain, normals]), scales[-1], center)
    return every.basis(int(np.argmin(objective(every))))


def descent(
    basis: Array,
    gate: Oracle,
    *,
    asked: Callable[[Array], Any],
    steps: Sequence[float],
    local_steps: int,
) -> Array:
    """Descent on a gate's noisy gradients: by geodesics or, with local steps, Algorithm 1 of paper 002.

    Args:
        basis: (dim, rank) orthonormal columns to start from.
        gate: of one owner, or several pooled.
        asked: what a gate is asked for the negative gradient at a basis.
        steps: η_k, or the lengths of rounds.
        local_steps: τ.

    Returns:
        (dim, rank) orthonormal columns.
    """
    if local_steps == 1:
        return geodesic_descent(basis, steps=steps, gradient=lambda at: gate.mean(asked(at)))
    space = Grassmann(*basis.shape)
    return owners_descent(space, gate, asked=asked, start=basis, lengths=steps, local_steps=local_steps)


def geodesic_descent(basis: Array, *, steps: Sequence[float], gradient: Callable[[Array], Array]) -> Array:
    """GGD and its noisy and stochastic forms (paper 001, Section 2): V ← Exp_V(−η_k·noisy gradient).

    Args:
        basis: (dim, rank) orthonormal columns to start from.
        steps: η_k.
        gradient: noisy mean of negative gradients at a basis, (dim·rank,).

    Returns:
        (dim, rank) orthonormal columns.
    """
    space = Grassmann(*basis.shape)
    for step in steps:
        basis = space.exp_coordinates(basis, step * gradient(basis))
    return basis

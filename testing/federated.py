"""Federated descent as the paper has it, and beyond it: steps of any length, owners who are absent.

The private `privest.optim.federated.owners_descent` is the case of this in which all owners take part in all
rounds, which a test holds it to. Tests and benchmarks of the method itself do without noise and gates.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array, transposed
from privest.optim.federated import Gradient, Projection, mean_gradient


def nearby_frame(x: Array, rounds: int) -> Array:
    """The nearest frame, nearly: Newton–Schulz iterations for x(xᵀx)^−½, and no decomposition.

    Always two products with x and three of r×r matrices a round, so that neither time nor path tells
    anything of x. A singular value 1 − e comes out as 1 − e′ with e′ = e²(3 − e)/2 after one round: within
    half the reach (|e| ≤ ½) seven rounds leave only rounding. Beyond √3 it need not converge.

    Args:
        x: (..., m, r) matrices with singular values between 0 and √3.
        rounds: how often the error is squared.

    Returns:
        (..., m, r) matrices with the singular vectors of x.
    """
    identity = np.eye(x.shape[-1])
    left = transposed(x) @ x
    root = identity
    for _ in range(rounds):
        factor = 1.5 * identity - 0.5 * (root @ left)
        left, root = left @ factor, factor @ root
    return x @ root


@dataclass(frozen=True, eq=False)
class Federation:
    """What is public of a run: it alone says how often each owner is asked.

    Attributes:
        participation: (rounds, owners) who takes part in which round; in each at least one.
        steps: τ, of every owner that takes part in a round, one gradient each.
        step_size: η, of all rounds or of each. Besides what descent on the whole loss allows, corrections
            must settle: near a solution the error of an owner's becomes 1 − m times as large in a round, m
            being the mean of (1 + ηh)^t over t < τ, and −h a curvature of the owner's own loss there. Owners
            who disagree have negative ones; where m reaches 2, corrections alternate for ever and the whole
            loss is not minimised.
        server_step: η_g, likewise.
        weights: (owners,) positive weights of the owners' losses, of any sum; equal ones if left out.

    Raises:
        ValueError: no rounds, a round without owners, no steps, or weights that are not one positive number
            for each owner.
    """

    participation: NDArray[np.bool_]
    steps: int
    step_size: float | Array
    server_step: float | Array = 1.0
    weights: Array | None = None

    def __post_init__(self) -> None:
        shape, present = self.participation.shape, self.participation.any(axis=-1)
        if len(shape) != 2 or not shape[0] or not present.all():
            raise ValueError("participation must be (rounds, owners) with at least one owner in each round")
        if self.steps < 1:
            raise ValueError("steps must be at least 1")
        weights = self.weights
        if weights is not None and not (
            weights.shape == shape[1:] and np.isfinite(weights).all() and (weights > 0).all()
        ):
            raise ValueError("weights must be one positive number for each owner")

    @property
    def answers(self) -> NDArray[np.int64]:
        """(owners,) how many gradients each owner is asked for, whatever they are."""
        return self.steps * self.participation.sum(axis=0, dtype=np.int64)


def everyone(rounds: int, owners: int) -> NDArray[np.bool_]:
    """Full participation, the paper's: (rounds, owners)."""
    return np.ones((rounds, owners), dtype=np.bool_)


def iterates(
    project: Projection, owners: Sequence[Gradient], *, start: Array, federation: Federation
) -> Iterator[Array]:
    """Algorithm 1 of Zhang et al. (2024), in its compact form (5): the point P_M(x) after each round.

    An owner takes τ steps of its own from the common point, each along its gradient plus a correction: the
    direction of the last round, ḡ, less its own share in that, g_i. So in a stationary point the owners
    stay where they are although their own gradients pull them apart. It sends one matrix, the mean of its
    τ gradients; the printed ẑ_{i,τ} says the same to a server that keeps ḡ and every g_i.

    Where not all take part, which the paper leaves open, g_i is the owner's mean gradient of the last
    round in which it did, and ḡ the weighted mean of these over all owners that were ever there: an absent
    owner counts with what it said last, as in the incremental aggregated gradient method (Blatt, Hero and
    Gauchman 2007). The corrections so have mean zero over all these owners in every round, and stationary
    points of the whole loss are fixed points under any public schedule, random or not. Replacing absent
    owners by more weight on the others (SCAFFOLD, SAGA) would be free of bias under random schedules
    alone, and would blow up the owners' noise. An owner that comes for the first time has no past to be
    corrected for. With all owners in every round this is Algorithm 1; only who was absent needs ḡ sent
    besides the point, as others know it from the point's last move.

    Args:
        project: P_M.
        owners: n gradients, each asked `federation.answers` times; a noisy one is post-processed only.
        start: x¹, projected first.
        federation: what is public.

    Yields:
        (*shape) P_M(x²), …, P_M(x^{R+1}), one a round.

    Raises:
        ValueError: the federation is one of another number of owners.
    """
    count = federation.participation.shape[1]
    if len(owners) != count:
        raise ValueError(f"this federation is one of {count} owners")
    weights = np.ones(count) if federation.weights is None else federation.weights
    point = project(start)
    direction, said = np.zeros_like(point), np.zeros((count, *point.shape))
    known = np.zeros(count, dtype=np.bool_)
    rounds = len(federation.participation)
    lengths = np.broadcast_to(federation.step_size, rounds)
    server_steps = np.broadcast_to(federation.server_step, rounds)
    for present, eta, server_step in zip(federation.participation, lengths, server_steps, strict=True):
        for i, owner in enumerate(owners):
            if present[i]:
                correction = direction - said[i] if known[i] else np.zeros_like(point)
                said[i] = mean_gradient(project, owner, point, correction, federation.steps, eta)
        known |= present
        shares = np.where(known, weights, 0.0)
        direction = np.tensordot(shares / shares.sum(), said, 1)
        point = project(point - server_step * eta * federation.steps * direction)
        yield point


def federated_descent(
    project: Projection, owners: Sequence[Gradient], *, start: Array, federation: Federation
) -> Array:
    """The last of `iterates`, the output of Algorithm 1."""
    run = iterates(project, owners, start=start, federation=federation)
    return deque(run, maxlen=1).pop()

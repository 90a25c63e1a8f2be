"""Federated descent: owners take steps on their own and are corrected for drift (Zhang et al. 2024)."""

from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np

from privest.arrays import Array
from privest.manifolds import Embedded
from privest.options import Option
from privest.privacy.oracle import Oracle

Projection = Callable[[Array], Array]
"""P_M of a compact embedded manifold, `Embedded.project`, or something near it."""

Gradient = Callable[[Array], Array]
"""One owner's Riemannian gradient at a point, exact or noisy; every call is one answer of that owner."""

LocalSteps = Annotated[
    int,
    Option(
        "that each owner of several datasets takes by itself in a step, corrected for its drift",
        ge=1,
        omit_default=True,
    ),
]
"""Type of the option `local_steps` (Zhang et al. 2024, Algorithm 1). Its default is 1."""


def mean_gradient(
    project: Projection, owner: Gradient, point: Array, correction: Array, steps: int, eta: float
) -> Array:
    """The mean of an owner's gradients on its way (Zhang et al. 2024, lines 4–10 of Algorithm 1).

    The way itself leaves the manifold, so that the gradients add up; only where they are taken is on it.
    The last point is not projected, for no gradient is taken there.
    """
    way, total = point, np.zeros_like(point)
    for step in range(steps):
        gradient = owner(project(way) if step else point)
        total += gradient
        way = way - eta * (gradient + correction)
    return total / steps


_FURTHEST = 0.6
"""Largest η·τ of private rounds: with curvatures from −2 up, as PCA's are, m of `Federation` is below 2."""


def owners_descent(
    space: Embedded,
    gate: Oracle,
    *,
    asked: Callable[[Array], object],
    start: Array,
    lengths: Sequence[float],
    local_steps: int,
    within: Callable[[Array], Array] = lambda point: point,
) -> Array:
    """Algorithm 1 of Zhang et al. (2024) on the noisy gradients of the owners behind one gate.

    An owner takes τ steps of its own from the common point, each along its gradient plus a correction: the
    direction of the last round, less its own share in that. So in a stationary point the owners stay where
    they are although their own gradients pull them apart. `testing.federated` compares other ways.

    Every owner pays for its gradients. Corrections are made of what gates have released, and so is every
    point: for each owner a post-processing of its own gate's answers and of what others send.

    Args:
        space: where the iterates live.
        gate: of one owner, or several pooled, each with `local_steps` answers a round.
        asked: what a gate is asked for the negative gradient at a point.
        start: (*shape) first point.
        lengths: η_g·η·τ of every round: how far it goes along the mean gradient.
        local_steps: τ.
        within: draws points back to where they are sought.

    Returns:
        (*shape) the last point.

    References:
        Zhang et al. (2024), Algorithm 1, in its compact form (5).
    """
    whole = np.array(lengths, dtype=np.float64)
    own = np.minimum(whole, _FURTHEST)
    further = np.divide(whole, own, out=np.ones_like(whole), where=own > 0)  # a round may stand still

    def gradient_of(owner: Oracle) -> Gradient:
        return lambda point: -space.from_coordinates(point, owner.mean(asked(point)))

    def project(point: Array) -> Array:
        return within(space.project(point))

    owners = [gradient_of(owner) for owner in gate.owners]
    weights = np.array(gate.weights)
    point = project(start)
    direction, said = np.zeros_like(point), np.zeros((len(owners), *point.shape))
    for eta, server_step in zip(own / local_steps, further, strict=True):
        # In the first round nobody has said anything yet, so that there is nothing to be corrected by.
        corrections = direction - said
        for i, owner in enumerate(owners):
            said[i] = mean_gradient(project, owner, point, corrections[i], local_steps, eta)
        direction = np.tensordot(weights / weights.sum(), said, 1)
        point = project(point - server_step * eta * local_steps * direction)
    return point

"""Federated descent, in which owners take local steps that are corrected for drift (Zhang et al. 2024)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np

from privest.arrays import Array
from privest.manifolds import Embedded
from privest.options import Option
from privest.privacy.oracle import Oracle

Projection = Callable[[Array], Array]
"""A projection of ambient arrays onto a manifold, such as `Embedded.project`."""

Gradient = Callable[[Array], Array]
"""One owner's Riemannian gradient at a point, exact or noisy. Every call uses one answer of that owner."""

LocalSteps = Annotated[
    int,
    Option(
        "that each owner of several datasets takes by itself in a step, corrected for its drift",
        ge=1,
        omit_default=True,
    ),
]
"""The type of the option `local_steps`, τ of Zhang et al. (2024), Algorithm 1. Its default is 1."""


def mean_gradient(
    project: Projection, owner: Gradient, point: Array, correction: Array, steps: int, eta: float
) -> Array:
    """The mean of an owner's gradients over its local steps (Zhang et al. 2024, lines 4–10 of Algorithm 1).

    The iterates leave the manifold, so that gradients add up. Each gradient is taken at a projected iterate.

    Args:
        project: the projection onto the manifold.
        owner: the owner's gradient.
        point: (*shape) common first point, on the manifold.
        correction: (*shape) ambient array added to every gradient.
        steps: τ, number of local steps.
        eta: η, length factor of a local step.

    Returns:
        (*shape) mean gradient, an ambient array.
    """
    way, total = point, np.zeros_like(point)
    for step in range(steps):
        gradient = owner(project(way) if step else point)
        total += gradient
        way = way - eta * (gradient + correction)
    return total / steps


_FURTHEST = 0.6
"""Largest η·τ of a round. It keeps local steps stable if the loss has curvature at least −2, as in PCA."""


@dataclass(frozen=True)
class _Owners:
    """Owners who take local steps, and what those whose gates are here found in the last round, by place."""

    project: Projection
    gradient_of: Callable[[Oracle], Gradient]
    local_steps: int
    said: dict[int, Array]

    def mean_gradient(
        self, place: int, owner: Oracle, *, point: Array, direction: Array, eta: float
    ) -> Array:
        """An owner's mean gradient over its local steps, (size,); uncorrected in its first round."""
        correction = direction - self.said.get(place, direction)
        gradient = self.gradient_of(owner)
        self.said[place] = mean_gradient(self.project, gradient, point, correction, self.local_steps, eta)
        return self.said[place].ravel()


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
    """Algorithm 1 of Zhang et al. (2024) on the noisy gradients of several owners.

    In each round every owner takes τ steps from the common point. Each step follows the owner's gradient plus
    a correction: the last round's direction minus the owner's own mean gradient in it. So the owners stay at
    a stationary point, although their own gradients pull them apart.

    Corrections and points are computed from released answers, so privacy costs nothing beyond the gradients.

    Args:
        space: the manifold of the iterates.
        gate: one owner's gate, or several pooled. Each must allow `local_steps` answers a round.
        asked: maps a point to the query that a gate answers with the negative gradient there.
        start: (*shape) first point.
        lengths: η_g·η·τ of each round, the factor on the mean gradient.
        local_steps: τ, number of local steps a round.
        within: moves points back to the region that is searched.

    Returns:
        (*shape) the last point.

    References:
        Zhang et al. (2024), Algorithm 1, in its compact form (5).
    """
    whole = np.array(lengths, dtype=np.float64)
    own = np.minimum(whole, _FURTHEST)
    further = np.divide(whole, own, out=np.ones_like(whole), where=own > 0)  # lengths may be 0

    def project(point: Array) -> Array:
        return within(space.project(point))

    def gradient_of(owner: Oracle) -> Gradient:
        return lambda point: -space.from_coordinates(point, owner.mean(asked(point)))

    point = project(start)
    direction, owners = np.zeros_like(point), _Owners(project, gradient_of, local_steps, {})
    for eta, server_step in zip((own / local_steps).tolist(), further, strict=True):
        found = partial(owners.mean_gradient, point=point, direction=direction, eta=eta)
        direction = gate.pooled(found).reshape(point.shape)
        point = project(point - server_step * eta * local_steps * direction)
    return point

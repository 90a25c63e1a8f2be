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

ServerStep = Annotated[
    float,
    Option(
        "how far a round goes along the mean of the owners' own ways: larger ones shorten these, and leave "
        "the length of a round as it is",
        ge=0.01,
        le=1000,
        omit_default=True,
    ),
]
"""The type of the option `server_step`, η_g of Zhang et al. (2024), Algorithm 1. Its default is 1."""

APART = "server_step belongs to local_steps above 1"
"""The rule that refuses a server step which would change nothing: with one local step only lengths count."""

Turns = Annotated[
    int,
    Option(
        "owners of several datasets take part by turns: all in the first round of the descent, and each in "
        "every so many-th after it. Its last answer stands for it in between",
        ge=1,
        le=100,
        omit_default=True,
    ),
]
"""The type of the option `turns`, one over the share of owners in a round. Its default is 1."""


def takes_part(place: int, number: int, turns: int) -> bool:
    """Whether the owner at a place takes part in the round of this number, from 0. It is public.

    All take part in the first one, as nobody has an answer yet that could stand for it.
    """
    return number == 0 or number % turns == place % turns


def damping(turns: int) -> float:
    """Factor on the lengths of rounds, whose directions are old by up to `turns` rounds.

    Let a round of length η be stable where all take part: ηh ≤ 1 for a curvature h. With answers that are up
    to q rounds old the error's modes are roots of s² = −ηhq·(1 − exp(−s)) for many q, which have Re s < 0 up
    to ηhq = π²/2. This factor keeps ηhq ≤ 2.
    """
    return min(1.0, 2.0 / turns)


@dataclass(frozen=True)
class Rounds:
    """What is public of a federated descent: it alone says how often each owner is asked.

    Attributes:
        lengths: η_g·η·τ of each round, the factor on the mean gradient.
        local_steps: τ, number of local steps a round.
        server_step: η_g, length of a round over that of the owners' own ways.
        turns: q; see `takes_part`.
    """

    lengths: Sequence[float]
    local_steps: int = 1
    server_step: float = 1.0
    turns: int = 1


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
    rounds: Rounds
    said: dict[int, Array]

    def mean_gradient(
        self, place: int, owner: Oracle, *, number: int, point: Array, direction: Array, eta: float
    ) -> Array:
        """An owner's mean gradient over its local steps, (size,); uncorrected in its first round.

        Where an owner does not take part in a round, its last one stands for it (Blatt, Hero and Gauchman
        2007). So corrections always have mean zero, and stationary points stay where they are.
        """
        if takes_part(place, number, self.rounds.turns):
            correction = direction - self.said.get(place, direction)
            gradient, steps = self.gradient_of(owner), self.rounds.local_steps
            self.said[place] = mean_gradient(self.project, gradient, point, correction, steps, eta)
        return self.said[place].ravel()


def owners_descent(
    space: Embedded,
    gate: Oracle,
    *,
    asked: Callable[[Array], object],
    start: Array,
    rounds: Rounds,
    within: Callable[[Array], Array] = lambda point: point,
) -> Array:
    """Algorithm 1 of Zhang et al. (2024) on the noisy gradients of several owners.

    In each round every owner that takes part in it takes τ steps from the common point. Each step follows
    the owner's gradient plus a correction: the last round's direction minus the owner's own mean gradient in
    it. So the owners stay at a stationary point, although their own gradients pull them apart.

    Corrections and points are computed from released answers, so privacy costs nothing beyond the gradients.

    Args:
        space: the manifold of the iterates.
        gate: one owner's gate, or several pooled. Each must allow `local_steps` answers in each round in
            which its owner takes part.
        asked: maps a point to the query that a gate answers with the negative gradient there.
        start: (*shape) first point.
        rounds: how many, how long, and who takes part.
        within: moves points back to the region that is searched.

    Returns:
        (*shape) the last point.

    References:
        Zhang et al. (2024), Algorithm 1, in its compact form (5); Blatt, Hero and Gauchman (2007) for owners
        that take part by turns.
    """
    whole, local_steps = np.array(rounds.lengths, dtype=np.float64), rounds.local_steps
    own = np.minimum(whole / rounds.server_step, _FURTHEST)
    further = np.divide(whole, own, out=np.ones_like(whole), where=own > 0)  # lengths may be 0

    def project(point: Array) -> Array:
        return within(space.project(point))

    def gradient_of(owner: Oracle) -> Gradient:
        return lambda point: -space.from_coordinates(point, owner.mean(asked(point)))

    point = project(start)
    direction, owners = np.zeros_like(point), _Owners(project, gradient_of, rounds, {})
    for number, (eta, server_step) in enumerate(zip((own / local_steps).tolist(), further, strict=True)):
        found = partial(owners.mean_gradient, number=number, point=point, direction=direction, eta=eta)
        direction = gate.pooled(found).reshape(point.shape)
        point = project(point - server_step * eta * local_steps * direction)
    return point

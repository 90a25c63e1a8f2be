"""Two descents with noise of their own on each: the subspace between them, and how far it may be off.

The distance between their ends tells what their noise did, whatever the loss and the rows are. So that it
tells as well what they have in common, their start and the way up to where they part, they part by as much
as that may be off, in opposite directions: what is left of it at the end is what is left of the start.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from scipy.special import fdtri

from privest.arrays import Array
from privest.estimators.subspace.descent import principal
from privest.estimators.subspace.noisy_moment import NoisyMoment, Start
from privest.estimators.subspace.perturbation import LOST, Turn
from privest.manifolds.stiefel_grassmann import Grassmann

_PARTED_LATER = 2.0
"""The step by which they part on the way, in deviations of the noise of one step."""

_MOST_PARTED = 0.15
"""The longest step by which they part at the start, over the largest distance between subspaces."""

_MARGIN = 1.4
"""Factor on the 95 % quantile, as few directions may hold most of it. Tuned on `TUNE` of the real tables."""

_SURE = 1.0
"""Deviations of the noise by which memory may be more than it is seen."""

_LEAST_MEMORY, _MOST_START = 0.02, 0.3


@dataclass(frozen=True)
class DescentSchedule:
    """The steps of two descents, and what their noise is.

    Attributes:
        steps: lengths, first of those in common, then of either in turn.
        together: how many they have in common.
        deviation: of the noise on a coordinate of a gradient.
    """

    steps: Sequence[float]
    together: int
    deviation: float


def two_descents(
    start: Start, gradient: Callable[[Array], Array], schedule: DescentSchedule, moment: NoisyMoment
) -> tuple[Array, Turn]:
    """The subspace between the ends of two descents, and its distance from that of one without noise.

    Args:
        start: from where.
        gradient: noisy mean of negative gradients at a basis, (dim·rank,).
        schedule: of the steps.
        moment: of which the start is.

    Returns:
        (dim, rank) orthonormal columns, and the distance by which noise may have turned them.
    """
    dim, rank = start.basis.shape
    space, free = Grassmann(dim, rank), rank * (dim - rank)
    common, own = schedule.steps[: schedule.together], schedule.steps[schedule.together :]
    parting = start.basis
    for step in common:
        parting = space.exp_coordinates(parting, step * gradient(parting))
    way = space.project_tangent(parting, moment.start_error(start))
    off, most = float(np.linalg.norm(way)), _MOST_PARTED * space.natural_radius
    way *= (_PARTED_LATER * own[0] * schedule.deviation * sqrt(free) if common else min(off, most)) / off
    ends = [space.exp(parting, way), space.exp(parting, -way)]
    last = [0.0, 0.0]
    for place, step in enumerate(own):
        at, moved = ends[place % 2], step * gradient(ends[place % 2])
        ends[place % 2], last[place % 2] = space.exp_coordinates(at, moved), float(np.dot(moved, moved))
    middle = principal(ends[0] @ ends[0].T + ends[1] @ ends[1].T, rank)
    apart: Array = 0.5 * (space.log(middle, ends[0]) - space.log(middle, ends[1]))
    squares = moment.directions(middle).coordinates(apart) ** 2
    square = float(np.sum(squares))
    # As many equal directions would have these squares; of a normal variate the fourth power has mean 3.
    alike = min(float(free), 3 * square**2 / max(float(np.sum(squares**2)), 1e-300))
    widest = float(fdtri(alike, alike, 0.95))  # pyright: ignore[reportUnknownArgumentType]
    seen: Array = space.project_tangent(middle, way @ (parting.T @ middle))
    parted = float(np.linalg.norm(seen)) ** 2
    memory = float(np.vdot(apart, seen)) / parted + _SURE * sqrt(square / free / parted)
    square += _kept(schedule, min(max(memory, 0.0), 1.0), free, off, parted)
    radius = min(space.natural_radius, _MARGIN * sqrt(square * widest + 0.1 * sum(last)))
    if start.open > LOST:
        radius = max(radius, start.open)
    lost = min(rank, int((radius / LOST) ** 2))
    return middle, Turn(min(radius, sqrt(square)), radius, lost)


def _kept(schedule: DescentSchedule, memory: float, free: int, start: float, parted: float) -> float:
    """What is kept of the square of the error where descents part, beyond that of the step by which they do.

    Memory that falls to m over steps of total length L tells a curvature −log(m)/L, with which the noise of
    the steps before adds up and fades.

    Args:
        schedule: of the steps.
        memory: share that is left, at most, of the step by which they parted.
        free: directions of subspaces.
        start: error of the start.
        parted: square of the step.
    """
    common, own = schedule.steps[: schedule.together], schedule.steps[schedule.together :: 2]
    curvature = -log(max(memory, _LEAST_MEMORY)) / sum(own)
    variance = min(start**2 / free, _MOST_START**2)
    for step in common:
        variance = (1 - min(1.0, step * curvature)) ** 2 * variance + (step * schedule.deviation) ** 2
    return memory**2 * max(0.0, free * variance - parted)

"""Two descents with noise of their own on each: the subspace between them, and how far it may be off.

The distance between them tells what their noise did, whatever the loss and the rows are. What they have in
common, their start, or the way up to where they part, it does not tell. So they part by a known public step
in opposite directions, and what is left of that at the end is what is left of the start.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from scipy.special import fdtri

from privest.arrays import Array
from privest.estimators.subspace.descent import principal
from privest.estimators.subspace.perturbation import LOST, Turn
from privest.manifolds.grassmann import Grassmann

_SEED = int.from_bytes(b"two descents")
"""Seed of the public direction in which they part."""

_PARTED = 0.3
"""The step by which they part at the start, in deviations of the start."""

_PARTED_LATER = 2.0
"""The step by which they part on the way, in deviations of the noise of one step."""

_MARGIN, _MARGIN_LATER = 1.35, 2.0
"""Factors on the 95 % quantile, for directions that forget more slowly than the one that was looked at."""

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
    start: Array, gradient: Callable[[Array], Array], schedule: DescentSchedule, start_deviation: float
) -> tuple[Array, Turn]:
    """The subspace between the ends of two descents, and its distance from that of one without noise.

    Args:
        start: (dim, rank) orthonormal columns.
        gradient: noisy mean of negative gradients at a basis, (dim·rank,).
        schedule: of the steps.
        start_deviation: of the start, in any one direction of subspaces.

    Returns:
        (dim, rank) orthonormal columns, and the distance by which noise may have turned them.
    """
    dim, rank = start.shape
    space, free = Grassmann(dim, rank), rank * (dim - rank)
    common, own = schedule.steps[: schedule.together], schedule.steps[schedule.together :]
    parting = start
    for step in common:
        parting = space.exp_coordinates(parting, step * gradient(parting))
    size = _PARTED_LATER * own[0] * schedule.deviation if common else _PARTED * start_deviation
    public = np.random.default_rng(_SEED).standard_normal((dim, rank))
    way = size * space.project_tangent(parting, public)
    ends = [space.exp(parting, way), space.exp(parting, -way)]
    for place, step in enumerate(own):
        at = ends[place % 2]
        ends[place % 2] = space.exp_coordinates(at, step * gradient(at))
    middle = principal(ends[0] @ ends[0].T + ends[1] @ ends[1].T, rank)
    apart: Array = 0.5 * (space.log(middle, ends[0]) - space.log(middle, ends[1]))
    seen: Array = space.project_tangent(middle, way @ (parting.T @ middle))
    memory = float(np.vdot(apart, seen)) / max(float(np.linalg.norm(seen)) ** 2, 1e-300)
    noise = float(np.sum((apart - memory * seen) ** 2))
    start_variance = _at_parting(schedule, common, own[::2], memory, start_deviation)
    kept = max(memory, 0.0) ** 2 * free * start_variance
    margin = _MARGIN_LATER if common else _MARGIN
    widest = float(fdtri(free, free, 0.95))  # pyright: ignore[reportUnknownArgumentType]
    radius = min(space.natural_radius, margin * sqrt(noise * widest + kept))
    lost = min(rank, int((radius / LOST) ** 2))
    return middle, Turn(min(radius, sqrt(noise + kept)), radius, lost)


def _at_parting(
    schedule: DescentSchedule, common: Sequence[float], own: Sequence[float], memory: float, start: float
) -> float:
    """Variance, in any one direction, of the point where the descents part.

    Memory that falls to m over steps of total length L tells a curvature −log(m)/L, with which the noise of
    the steps before adds up and fades.
    """
    if not common:
        return start**2
    curvature = -log(min(max(memory, _LEAST_MEMORY), 1.0)) / sum(own)
    variance = min(start, _MOST_START) ** 2
    for step in common:
        variance = (1 - min(1.0, step * curvature)) ** 2 * variance + (step * schedule.deviation) ** 2
    return variance

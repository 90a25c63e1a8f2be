"""Descent that leaves saddle points, on gradients kept up by their changes (Liu and Talwar 2025)."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Literal

import numpy as np

from privest.arrays import Array, SymmetricCoordinates
from privest.estimators.linear_model.losses.derivatives import Leaf
from privest.privacy.oracle import StreamOracle

GRADIENT, HESSIAN, CURVATURE = "gradient", "hessian", "curvature"
"""The streams: of gradients, of Hessians for escapes, and of the one Hessian at the answer."""

Escape = Literal["released", "products"]
"""How an escape sees the Hessian: as one matrix released with noise, or, as printed, in noisy products with a
sum of matrices that stays in the gate."""


@dataclass(frozen=True)
class SpiderSchedule:
    """Public constants of a run; see `spider_schedule`.

    Attributes:
        step_size: η.
        batch: b, of a gradient.
        hessian_batch: the same of a Hessian.
        growth: records of a change of gradients, for each unit of length moved: bM/G.
        hessian_growth: the same of Hessians: bρ/M.
        drift: κ, sum of |g| after which the gradient is taken afresh.
        leaves: Σ, of a segment at most.
        calm: |g| at which an escape is tried.
        escape: how it sees the Hessian.
        escape_steps: Γ; 0 for no escapes.
        escape_radius: Ξ.
        escapes: τ, after which all is taken afresh: in `products`, for the sake of privacy.
        check: records that are kept for a Hessian at the answer.
    """

    step_size: float
    batch: int
    hessian_batch: int
    growth: float
    hessian_growth: float
    drift: float
    leaves: int
    calm: float
    escape: Escape
    escape_steps: int
    escape_radius: float
    escapes: int
    check: int


@dataclass(frozen=True)
class Descent:
    """All that a run released or made of it.

    Attributes:
        points: (T, d) where gradients were taken.
        gradients: (T, d) as released.
        begun: the places of points whose gradient was taken afresh.
        left: how many of these points there were each time an escape got away.
    """

    points: Array
    gradients: Array
    begun: tuple[int, ...]
    left: tuple[int, ...]

    @property
    def landed(self) -> int:
        """The place of the first point that no escape led away from."""
        return max((k for k in self.left if k < len(self.points)), default=0)

    @property
    def chosen(self) -> int:
        """The answer's place: the least released gradient, of points that no escape led away from.

        What an escape left was a saddle point, and its gradient may well be the least of all. All that is
        compared has been released, and was charged: to choose costs nothing more.
        """
        return self.landed + int(np.argmin(np.linalg.norm(self.gradients[self.landed :], axis=1)))

    @property
    def way(self) -> list[tuple[int, int]]:
        """The steps from where the last escape landed to the answer: of each segment, which of its prefixes.

        Numbers of the first and the last one, from 1 on.
        """
        found = list[tuple[int, int]]()
        for begin, end in pairwise((*self.begun, len(self.points))):
            first, last = max(begin, self.landed), min(end, self.chosen) - 1
            if first <= last:
                found.append((first - begin + 1, last - begin + 1))
        return found

    @property
    def answer(self) -> Array:
        """(d,)."""
        return self.points[self.chosen]


def curvatures_at(gate: StreamOracle, point: Array, schedule: SpiderSchedule) -> Array:
    """The eigenvalues of a noisy Hessian at a point, from records that no other leaf of the run has seen.

    They cost nothing more, as several streams cost as much as the costliest. What a run answers is so checked
    by what it has not seen.

    Returns:
        (d,) the least first.
    """
    gate.extend(CURVATURE, Leaf(point, None, schedule.check), schedule.check, anew=True)
    matrix = SymmetricCoordinates(len(point)).matrix(gate.prefix(CURVATURE))
    return np.asarray(np.linalg.eigvalsh(matrix), dtype=np.float64)


def spider(gate: StreamOracle, *, start: Array, schedule: SpiderSchedule) -> Descent:
    """SPIDER descent with escapes from saddle points, until the records run out.

    Where the paper leaves it open, or differs from itself:

    - drift adds up |g| (line 21), not the squares of Section 1.2, as Lemma 3.14 has it. Over an escape it
      grows by the way gone over η: no more than the sum of the steps.
    - an escape is Algorithm 2, start to end: g and H are those at its anchor, so nothing new is asked on the
      way. (Algorithm 3 goes on asking for both and does not use them.) It ends at a distance Ξ, or back at
      its anchor after Γ steps.
    - the next may begin Γ steps after the last one began, or after it came back; the first one at t = 0
      (line 13 has frozen of the step before, and so forbids it there alone).
    - a segment that has all its leaves is begun anew as well: Σ of the certificate.

    Args:
        gate: with the streams of the schedule.
        start: x₀, (d,), public.
        schedule: public constants.

    Raises:
        ValueError: not one batch fits into the gate's records.

    References:
        Liu and Talwar (2025), Algorithms 2 and 3.
    """
    estimates = _Estimates(gate, schedule)
    points, gradients, begun, left = list[Array](), list[Array](), list[int](), list[int]()
    point, frozen = start, 0
    while (gradient := estimates.at(point)) is not None:
        if estimates.fresh:
            begun.append(len(points))
        points.append(point)
        gradients.append(gradient)
        calm = float(np.linalg.norm(gradient)) <= schedule.calm
        if calm and frozen <= 0 and schedule.escape_steps:
            product = estimates.hessian(point)
            if product is None:
                break
            way, steps = _escape(product, gradient, schedule)
            frozen = schedule.escape_steps
            if way is not None:
                frozen -= steps
                left.append(len(points))
                point = point + way
                continue
        point = point - schedule.step_size * gradient
        frozen -= 1
    if not points:
        raise ValueError("not one batch fits")
    return Descent(np.stack(points), np.stack(gradients), tuple(begun), tuple(left))


def _escape(
    product: Callable[[Array], Array], gradient: Array, schedule: SpiderSchedule
) -> tuple[Array | None, int]:
    """The way (Algorithm 2) from the anchor to where it left the ball of radius Ξ, and its number of steps.

    ζ of its line 5 is what the gate adds to products. A released Hessian, and the gradient, carry their noise
    already: it is what makes them leave the saddle, and no more is added.
    """
    way = np.zeros_like(gradient)
    for step in range(schedule.escape_steps):
        way = way - schedule.step_size * (gradient + product(way))
        if float(np.linalg.norm(way)) >= schedule.escape_radius:
            return way, step + 1
    return None, schedule.escape_steps


class _Estimates:
    """∇̃ and H at the point where a run is, and the rule by which they are taken afresh (lines 5–11)."""

    def __init__(self, gate: StreamOracle, schedule: SpiderSchedule) -> None:
        self._gate, self._schedule = gate, schedule
        self._before: Array | None = None
        self._drift, self._leaves, self._escapes = 0.0, 0, 0

    @property
    def fresh(self) -> bool:
        """Whether the last gradient was taken afresh."""
        return self._leaves == 1

    def at(self, point: Array) -> Array | None:
        """The noisy gradient there, or None where records run out."""
        schedule, gate = self._schedule, self._gate
        moved = Leaf(point, self._before, 1).moved
        self._drift += moved / schedule.step_size
        if (
            self._before is None
            or self._drift >= schedule.drift
            or self._leaves == schedule.leaves
            or self._escapes >= schedule.escapes
        ):
            self._before, self._drift, self._leaves, self._escapes = None, 0.0, 0, 0
        streams = {GRADIENT: (schedule.batch, schedule.growth)}
        if schedule.escape == "products":
            streams[HESSIAN] = (schedule.hessian_batch, schedule.hessian_growth)
        sizes = {
            name: first if self._before is None else max(1, ceil(growth * moved))
            for name, (first, growth) in streams.items()
        }
        if sum(sizes.values()) > gate.unused - schedule.check:
            return None
        for name, records in sizes.items():
            gate.extend(name, Leaf(point, self._before, records), records, anew=self._before is None)
        self._before, self._leaves = point, self._leaves + 1
        return gate.prefix(GRADIENT)

    def hessian(self, point: Array) -> Callable[[Array], Array] | None:
        """A function that multiplies by a noisy Hessian there, or None where records run out."""
        schedule, gate = self._schedule, self._gate
        self._escapes += 1
        if schedule.escape == "products":
            radius = schedule.escape_radius
            return lambda way: radius * gate.product(HESSIAN, way / radius)
        if schedule.hessian_batch > gate.unused - schedule.check:
            return None
        gate.extend(HESSIAN, Leaf(point, None, schedule.hessian_batch), schedule.hessian_batch, anew=True)
        matrix = SymmetricCoordinates(len(point)).matrix(gate.prefix(HESSIAN))
        return lambda way: matrix @ way

"""Descent that leaves saddle points, on gradients kept up by their changes (Liu and Talwar 2025)."""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np

from privest.arrays import Array, SymmetricCoordinates
from privest.estimators.linear_model.escape import way_down
from privest.estimators.linear_model.losses.derivatives import Leaf
from privest.privacy.oracle import StreamOracle

GRADIENT, HESSIAN, CURVATURE = "gradient", "hessian", "curvature"
"""The streams: of gradients, of Hessians for escapes, and of the one Hessian at the answer."""

REACH = 3 / 4
"""Share of `way_down` that an escape goes. The whole would gain most if its curvature were as released; with
the largest errors that a plan allows for, this share does, nearly."""


@dataclass(frozen=True)
class SpiderSchedule:
    """Public constants of a run; see `spider_schedule`.

    Attributes:
        step_size: η.
        batch: b, of a gradient.
        hessian_batch: the same of a Hessian.
        growth: records of a change of gradients, for each unit of length moved: bM/G.
        drift: κ, sum of |g| after which the gradient is taken afresh.
        leaves: Σ, of a segment at most.
        calm: |g| at which a Hessian is asked for.
        steep: curvature, as a size, below which no saddle point of the guarantee can be taken to be.
        loud: largest error of a Hessian: what is released as steeper than that is negative in truth.
        hessian_lipschitz: ρ.
        rest: steps until the next Hessian, after one that showed nothing steep.
        escapes: whether there are any.
        check: records that are kept for a Hessian at the answer.
    """

    step_size: float
    batch: int
    hessian_batch: int
    growth: float
    drift: float
    leaves: int
    calm: float
    steep: float
    loud: float
    hessian_lipschitz: float
    rest: int
    escapes: bool
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

    Where the paper leaves it open, differs from itself, or does not hold:

    - drift adds up |g| (line 21), not the squares of Section 1.2, as Lemma 3.14 has it. Over an escape it
      grows by the way gone over η.
    - an escape is not Algorithm 2, descent by g + Hw until it is a distance off: `escape` tells why.
    - after one that was not of a steep curvature, or that the Hessian showed no way for, some steps are left
      to the gradient. (Algorithm 3 rests after each, and goes on asking for gradients and Hessians on the way
      of an escape, which it does not use.)
    - a segment that has all its leaves is begun anew as well: Σ of the certificate.

    Args:
        gate: with the streams of the schedule.
        start: x₀, (d,), public.
        schedule: public constants.

    Raises:
        ValueError: not one batch fits into the gate's records.

    References:
        Liu and Talwar (2025), Algorithm 3.
    """
    estimates = _Estimates(gate, schedule)
    points, gradients, begun, left = list[Array](), list[Array](), list[int](), list[int]()
    point, rest = start, 0
    while (gradient := estimates.at(point)) is not None:
        if estimates.fresh:
            begun.append(len(points))
        points.append(point)
        gradients.append(gradient)
        calm = float(np.linalg.norm(gradient)) <= schedule.calm
        if schedule.escapes and calm and rest <= 0:
            hessian = estimates.hessian(point)
            if hessian is None:
                break
            way, steep = escape(gradient, hessian, schedule)
            rest = 0 if steep else schedule.rest
            if way.any():
                left.append(len(points))
                point = point + way
                continue
        point = point - schedule.step_size * gradient
        rest -= 1
    if not points:
        raise ValueError("not one batch fits")
    return Descent(np.stack(points), np.stack(gradients), tuple(begun), tuple(left))


def escape(gradient: Array, hessian: Array, schedule: SpiderSchedule) -> tuple[Array, bool]:
    """The way off a saddle point, all at once, by its released gradient and Hessian; 0 where they show none.

    Let e and h be the largest errors of both, and −c the curvature as released along a unit u for which
    ⟨g, u⟩ <= 0. Then F falls on the way r·u by (c − h)r²/2 − er − ρr³/6 at least. h is in that, and in the
    decision too: a curvature of −√(ρα) may be released as h − √(ρα), and an equal one beside it be in truth
    no more than 2h − √(ρα). So what is `steep`, √(ρα) − h, comes first, and alone: this is what the plan
    counts on. Where nothing is, the least curvature is above −√(ρα), and where g is calm the point is already
    what the guarantee promises. So it costs the guarantee nothing that an escape follows weaker curvature
    from there, which must only be negative in truth.

    (Algorithm 2 descends on the model until it is at a distance Ξ. With the most noise that it allows for, a
    gradient takes it there along a direction that is flat, and upwards. The proof of its Lemma 3.8 takes 3γΓη
    from Ξ, which is more than Ξ = √(γ/ρ) for every Γ above M/(3√(ργ)).)

    Args:
        gradient: (d,).
        hessian: (d, d).
        schedule: public constants.

    Returns:
        (d,) and whether a curvature was steep.
    """
    steep = bool(np.linalg.eigvalsh(hessian)[0] < -schedule.steep)
    loud = schedule.steep if steep else schedule.loud
    return REACH * way_down(gradient, hessian, hessian_lipschitz=schedule.hessian_lipschitz, loud=loud), steep


class _Estimates:
    """∇̃ and H at the point where a run is, and the rule by which gradients are taken afresh (lines 5–11)."""

    def __init__(self, gate: StreamOracle, schedule: SpiderSchedule) -> None:
        self._gate, self._schedule = gate, schedule
        self._before: Array | None = None
        self._drift, self._leaves = 0.0, 0

    @property
    def fresh(self) -> bool:
        """Whether the last gradient was taken afresh."""
        return self._leaves == 1

    def at(self, point: Array) -> Array | None:
        """The noisy gradient there, or None where records run out."""
        schedule, gate = self._schedule, self._gate
        moved = Leaf(point, self._before, 1).moved
        self._drift += moved / schedule.step_size
        if self._before is None or self._drift >= schedule.drift or self._leaves == schedule.leaves:
            self._before, self._drift, self._leaves = None, 0.0, 0
        records = schedule.batch if self._before is None else max(1, ceil(schedule.growth * moved))
        if records > gate.unused - schedule.check:
            return None
        gate.extend(GRADIENT, Leaf(point, self._before, records), records, anew=self._before is None)
        self._before, self._leaves = point, self._leaves + 1
        return gate.prefix(GRADIENT)

    def hessian(self, point: Array) -> Array | None:
        """The noisy Hessian there, (d, d), or None where records run out."""
        records, gate = self._schedule.hessian_batch, self._gate
        if records > gate.unused - self._schedule.check:
            return None
        gate.extend(HESSIAN, Leaf(point, None, records), records, anew=True)
        return SymmetricCoordinates(len(point)).matrix(gate.prefix(HESSIAN))

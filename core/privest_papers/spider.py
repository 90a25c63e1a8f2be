"""A linear classifier by gradients kept up by their changes, each record seen once (Liu and Talwar 2025)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil
from typing import ClassVar, Self, cast

import numpy as np

from privest.arrays import Array, SymmetricCoordinates
from privest.data.metadata import LabelledMetadata
from privest.estimators.base import require
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import Curvature, Fit, same_steps
from privest.estimators.linear_model.linear_solver import Variances
from privest.estimators.linear_model.logistic_spec import LogisticSpec, NonconvexLoss
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.matrix_mechanism import PrefixSums, variance_of_total
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle, StreamOracle
from privest_papers.escape import way_down
from privest_papers.nonconvex import ON_THE_WAY, Nonconvex
from privest_papers.nonconvex_losses import Leaf
from privest_papers.spider_schedule import (
    CURVATURE,
    GRADIENT,
    HESSIAN,
    REACH,
    Problem,
    SpiderPlan,
    SpiderSchedule,
    plan,
)


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


_MOST_FEATURES = 300
"""Most features, as a Hessian is added up for every record of a batch."""

_SADDLE = "along some direction the loss falls away on both sides of the answer: it is no minimum"


@dataclass(frozen=True)
class SpiderSolver(Nonconvex):
    """Descent from zero with escapes, until the records run out.

    Attributes:
        target: privacy as requested.
    """

    learns_units: ClassVar[bool] = False

    target: PrivacyTarget

    @classmethod
    def refuse(cls, spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> None:
        """Refuse what does not go with this solver.

        Raises:
            ValueError: something does not.
        """
        require(
            target.delta > 0, "spider needs a delta above 0, as its noise is Gaussian; escape does without"
        )
        require(
            spec.standardisation != "private",
            "private standardisation does not belong to spider, which sees a record once: ask for escape",
        )
        require(
            shape.dim <= _MOST_FEATURES,
            f"spider takes at most {_MOST_FEATURES} features; escape takes any number",
        )
        Nonconvex.refuse(spec, shape, target)

    @classmethod
    def of(
        cls,
        spec: LogisticSpec,
        shape: LabelledMetadata,
        target: PrivacyTarget,
        budget: PrivacyBudget,
        penalty: float,
    ) -> Self:
        """Return the solver of a spec that was not refused."""
        del budget
        problem = (shape, cast("NonconvexLoss", spec.loss), penalty, spec.intercept)  # others were refused
        return cls(*problem, target)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the analyst, from public facts."""
        return self.planned.warnings

    @cached_property
    def planned(self) -> SpiderPlan:
        """The public constants of the run.

        Raises:
            ValueError: not one batch fits; or float64 cannot carry this privacy.
        """
        # A row's Hessian is of rank one, but for what a penalty adds to its diagonal.
        rank = self.objective.size if self.penalty else 1
        return plan(Problem(self.objective, rank, self.excess, self.shape.n, self.target))

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may add up, by the names that releases use."""
        return self.planned.statistics

    def releases(self) -> tuple[PrefixSums, PrefixSums, PrefixSums]:
        """The streams of Hessians, of gradients, and of the Hessian at the answer."""
        return self.planned.releases

    def run(self, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap) -> Fit:
        """The point of least released gradient. Its noise is what the steps since the last escape added.

        Its error is that of a whole segment at least, by which it is held to stand out: soon after an escape
        noise decided which point it is.
        """
        schedule = self.planned.schedule
        found = spider(gate.streams, start=np.zeros(self.objective.size), schedule=schedule)
        gradients = self.planned.releases[1]
        steps = sum(variance_of_total(gradients.factorisation, *prefixes) for prefixes in found.way)
        variance = steps * (schedule.step_size * gradients.scale) ** 2
        answer, segment = found.answer[None], self.noise_variance(releases)
        whole = same_steps(feature_map, answer, max(variance, segment))
        noise = same_steps(feature_map, answer, variance or segment).noise
        least = float(curvatures_at(gate.streams, found.answer, schedule)[0])
        curvature = Curvature(least, max(least - self.planned.doubt, -self.objective.gradient_lipschitz))
        warnings = (_SADDLE,) if least < -self.planned.doubt else ()
        return replace(whole, noise=noise, hidden=whole.is_useless, curvature=curvature, warnings=warnings)

    def noise_variance(self, releases: Sequence[Release]) -> float:  # noqa: ARG002
        """Variance of a weight, by the steps of one whole segment of the run, of which there may be more."""
        schedule, gradients = self.planned.schedule, self.planned.releases[1]
        whole = variance_of_total(gradients.factorisation, 1, schedule.leaves)
        return whole * (schedule.step_size * gradients.scale) ** 2

    @property
    def segments(self) -> int:
        """Most segments for which there are records: each begins with a batch."""
        return max(1, ceil(self.shape.n / self.planned.schedule.batch))

    def forecast(self, releases: Sequence[Release]) -> Variances:
        """Return how far a coefficient is expected to be off."""
        unit = float(self.feature_map.units[0]) ** 2
        variance = unit * self.noise_variance(releases)
        return Variances(variance, variance * self.segments, ON_THE_WAY, self.planned.accuracy)

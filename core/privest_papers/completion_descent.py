"""Low-rank matrix completion by descent on the distance from columns of which some entries are known.

The picture of its forecasts: rows lie in the subspace exactly, evenly spread in it. No guarantee rests on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from math import asin, sqrt

import numpy as np

from privest.arrays import Array, lengths
from privest.estimators.subspace.completion_schedule import DataModel
from privest.estimators.subspace.descent import descent, principal, with_signs
from privest.estimators.subspace.gap_moment import GapMoment
from privest.estimators.subspace.partial_rows import known_part
from privest.estimators.subspace.schedule import right_angles
from privest.estimators.subspace.solvers import Choices, Course, PlannedDescent
from privest.estimators.subspace.spherical import orthonormal
from privest.optim.federated import damping
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic, Opposable
from privest.privacy.oracle import Oracle

_BENT = 0.36
"""Squared angle by which the start turns as rows are divided by the length of their known part, times the
number of known entries. An upper bound measured for 5 to 30 known entries."""

_CURVATURE = 0.8
"""Curvature of the clipped loss over that of least squares: measured, for a tenth or more known."""

_NEAREST = 0.1
"""Rows are not taken to be nearer to the subspace than this, as a share of their length: clips fall no
further, so that rows somewhat off it still pull."""

_START = 0.3
"""Share of μ² for the start of a descent: more than rows of the assumed model need, as others come."""

_STEPS = 12
"""Default number of steps of a descent: enough to go a long way and to average noise."""

_FLOOR = 1e-3
"""λ of private gradients, next to eigenvalues of about the share of entries that are known."""


@dataclass(frozen=True)
class CompletionGradient(Opposable):
    """Σ of negative Riemannian gradients of ½‖P_Ω(Xv − a)‖² (Zhang et al. 2024, (13)) over known parts a.

    The coefficients v are those of least squares, but for a ridge λ that keeps them short where the known
    entries leave them open: with the Gram matrix G of the basis on those entries, (G + λ)⁻¹Xᵀa, refined once
    (iterated Tikhonov), so that of a column of the subspace itself only (λ/(g + λ))² is missed along an
    eigenvector with eigenvalue g of G. Then |v| ≤ max √g(g + 2λ)/(g + λ)² ≤ 0.79/√λ < 25, and as the residual
    is no longer than a, no record pulls by more than that before it is clipped.

    Attributes:
        dim: D, length of a row.
        rank: r, columns of a basis.
    """

    dim: int
    rank: int

    description = "the mean gradient"

    @property
    def size(self) -> int:
        """Length of the summed vector: the D×r gradient, row by row."""
        return self.dim * self.rank

    def clipped_sum(self, point: Array, rows: Array, clip: float) -> Array:
        """Σ of gradients at the basis `point`, tangent there, of length at most `clip`; see `Statistic`."""
        a, known = known_part(rows)
        point = orthonormal(point)
        products = (point[:, :, None] * point[:, None, :]).reshape(self.dim, -1)
        gram = (known @ products).reshape(-1, self.rank, self.rank) + _FLOOR * np.eye(self.rank)
        # No eigenvalue is below λ, so that no row makes these systems singular.
        v = np.linalg.solve(gram, (a @ point)[..., None])
        v = (v + _FLOOR * np.linalg.solve(gram, v))[..., 0]
        left = known * (a - v @ point.T)
        left -= (left @ point) @ point.T  # what the ridge has left along the basis
        pull = lengths(left) * lengths(v)
        return (left.T @ ((clip / np.maximum(pull, clip))[:, None] * v)).ravel()


@dataclass(frozen=True)
class CompletionDescent:
    """A descent from the subspace of a noisy moment; a `SubspaceSolver`.

    Attributes:
        rows: public facts of the rows.
    """

    rows: DataModel

    starts_itself = True
    usual_steps = _STEPS

    @property
    def reads(self) -> int:
        """Products that a step takes for each entry of a row, of which the Gram matrices are the most."""
        return (self.rows.rank + 4) ** 2

    @property
    def statistics(self) -> Mapping[str, AnyStatistic]:
        """The statistic of gradients, by its name in plans."""
        return {"gradient": self._gradient}

    def plan(self, budget: PrivacyBudget, choices: Choices, *, left: float, error: float) -> PlannedDescent:
        """Plan a moment with its share of the budget, and a descent from there; see `SubspaceSolver`."""
        del error
        gradient, moment = self._gradient, GapMoment(self.rows.dim)
        start = budget.release(moment, "moment", 1.0, share=_START * left)
        away = self._start_error(moment.noise(start.deviation))
        count, local = _STEPS if choices.steps is None else choices.steps, choices.local_steps
        each = (left - _START * left) / count
        # The mean of a round's gradients has the noise of one that has the whole share.
        deviation = budget.release(gradient, "gradient", 1.0, share=each).deviation
        damped = damping(choices.turns)
        clips, steps, forecast = self._steps(away, deviation, count, choices.step_size, damped)
        alike = [(clip, len(list(equal))) for clip, equal in groupby(clips)]
        sums = [
            budget.release(gradient, "gradient", clip, share=each * k, count=k * local) for clip, k in alike
        ]
        why = f"a descent, as asked for, from a squared distance of {away:.2g} to one of {forecast:.2g}"
        return PlannedDescent((start, *sums), tuple(steps), forecast, why=why)

    def run(self, gate: Oracle, start: Array | None, course: Course) -> Array:
        """Return (dim, rank) orthonormal columns; see `SubspaceSolver`."""
        del start
        moment, _ = GapMoment(self.rows.dim).whole(gate.mean(None, "moment"))
        begin = with_signs(principal(moment, self.rows.rank))
        return with_signs(descent(begin, gate, asked=course.asked, rounds=course.rounds))

    def _start_error(self, deviation: float) -> float:
        """Square of the angle by which the subspace of a noisy moment is expected to miss that of the rows.

        By the noise, by the choice of known entries in finitely many rows, and by the rows' division by
        different lengths, which does not fall with the others. Noise whose variance is x times the square of
        a direction's eigenvalue turns it by sin² = x, until it is lost (Benaych-Georges and Nadakuditi 2011).

        Args:
            deviation: of the noise on an orthonormal coordinate of the mean; on an entry, √2 less.
        """
        rows = self.rows
        gap = rows.known / rows.rank
        variance = deviation**2 / 2 + 1 / (rows.n * rows.dim**2)
        turned = (rows.free * variance / gap**2 + _BENT / (rows.known * rows.dim)) / rows.rank
        return rows.rank * asin(sqrt(min(turned, 1.0))) ** 2

    def _steps(
        self, error: float, deviation: float, count: int, longest: float | None, damping: float = 1.0
    ) -> tuple[list[float], list[float], float]:
        """Clips and lengths of steps, and the square of the distance at their end.

        At a distance e rows pull by about e/√(rp), which is the clip, and on average by he with h ≤ 1/r. The
        step that leaves least is that of a Kalman filter, ηh = h²e²/(h²e² + s²) against noise of total
        deviation s: long where the distance is what counts, an average of noisy gradients where noise is.

        Args:
            error: square of the distance at the start.
            deviation: of the noise on a coordinate of a mean gradient, over its clip.
            count: of steps.
            longest: step there may be; r, a Newton step, unless it is given.
            damping: factor on the lengths of steps.
        """
        rows = self.rows
        curvature = _CURVATURE * rows.seen**2 / rows.rank  # the square is what was measured
        longest = damping * rows.rank if longest is None else longest
        clips, steps = list[float](), list[float]()
        for _ in range(count):
            clip = max(sqrt(error), _NEAREST) / sqrt(rows.rank * rows.known)
            noise = rows.free * (deviation * clip) ** 2
            step = min(longest, damping * curvature * error / (curvature**2 * error + noise))
            error = min(right_angles(rows.rank), (1 - curvature * step) ** 2 * error + step**2 * noise)
            clips.append(clip)
            steps.append(step)
        return clips, steps, error

    @property
    def _gradient(self) -> CompletionGradient:
        return CompletionGradient(self.rows.dim, self.rows.rank)

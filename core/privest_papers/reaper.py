"""REAPER: a subspace relaxed to a symmetric matrix between 0 and I (Lerman et al. 2015).

The statistic of the relaxed distance, descents over it (projected, and by mirror), their plans and runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt

import numpy as np

from privest.arrays import Array, SymmetricCoordinates, lengths, seen_by
from privest.estimators.subspace.schedule import INLIERS, right_angles
from privest.estimators.subspace.sketch import noisy_span, sketch_columns, sketch_release
from privest.estimators.subspace.solvers import Choices, Course, PlannedDescent, noisy_gradients
from privest.estimators.subspace.spherical import on_sphere, orthonormal
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release, SubsampledSum
from privest.privacy.oracle import Oracle

WIDEST_RELAXATION = 300
"""Most columns for which REAPER relaxes to all D×D matrices; with more, to those within a sketch's span."""

_FRAME_SHARE = 0.5
"""Share of a REAPER run's budget for the sketch within whose span it relaxes."""

_FRAMED = f"sketch: above {WIDEST_RELAXATION} columns subspaces are relaxed within the span of one"
_AMID = "solvers that relax the subspace start amid all of them"
"""The reason for the start with a frame and without, for the analyst."""

_BATCHES = frozenset({"sgd-reaper", "smd-reaper"})
"""Solvers on random batches."""

_MIRROR = frozenset({"md-reaper", "smd-reaper"})
"""Solvers that take mirror steps."""

_LEAST_RESIDUAL = 1e-6
"""Residual below which rounding begins to turn directions; the gradient falls to zero there."""

_FURTHEST = 1e100
"""Largest entry of a relaxation: squares of what it leaves of a row stay finite."""

_COVER = 1 + 1e-9
"""Factor on a diameter, for directions that rounding has turned; the square of that is below 1e-12."""


@dataclass(frozen=True)
class Relaxation:
    """The matrix at which a gradient is asked for.

    Attributes:
        p: symmetric, of D rows; or of k rows in a frame, for the matrix BPBᵀ. Entries beyond ±1e100 count as
            these, and NaN as 0.
        center: (D,) to be taken off the rows.
        frame: B, (D, k) orthonormal columns, public or released; None for all of the space. Coordinate axes
            take the place of columns that are not orthonormal.
    """

    p: Array
    center: Array | None = None
    frame: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", np.clip(np.nan_to_num(self.p, nan=0.0), -_FURTHEST, _FURTHEST))
        if self.frame is not None:
            object.__setattr__(self, "frame", orthonormal(self.frame))


@dataclass(frozen=True)
class Reaper:
    """Σ of the negative gradients of ‖(I − P)x‖: the symmetric part of u·xᵀ, u the residual's direction.

    A row's gradient has Frobenius norm at most |u||x| = 1 (Maunu et al. 2022, (4.1)).

    Attributes:
        dim: rows of P: D, or k where matrices are kept within a frame of so many columns.
    """

    dim: int

    description = "the mean gradient"

    @cached_property
    def coordinates(self) -> SymmetricCoordinates:
        """Coordinates of symmetric matrices."""
        return SymmetricCoordinates(self.dim)

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.coordinates.size

    def diameter(self, clip: float) -> float:
        """√2·clip: two gradients may be orthogonal, and no further apart, as P is symmetric.

        With u = (I − P)x/|(I − P)x| and c = u·x the symmetric part A of uxᵀ has |A|² = ½(1 + c²), and
        2⟨A, A′⟩ = (u·u′)(x·x′) + (u·x′)(u′·x). The second product is (xᵀ(I − P)x′)² over lengths, so not
        below 0, and the first less the second is the product of u ∧ x and u′ ∧ x′, which is at least
        −√(1 − c²)√(1 − c′²). So −2⟨A, A′⟩ ≤ ½(1 − c²) + ½(1 − c′²), and |A − A′|² ≤ 2. Shorter gradients are
        no further apart.

        In a frame B the gradient is BᵀAB, of the A that BPBᵀ has: these are no further apart than the A are.
        """
        return sqrt(2.0) * _COVER * clip

    def clipped_sum(self, point: Relaxation, rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere; see `Statistic`."""
        x, left, length = _residuals(point, rows)
        weight = clip / np.maximum(np.maximum(length, _LEAST_RESIDUAL), clip * length)
        total = (weight[:, None] * left).T @ x
        return self.coordinates.of(0.5 * total + 0.5 * total.T)


def _residuals(point: Relaxation, rows: Array) -> tuple[Array, Array, Array]:
    """Rows on the sphere and what P leaves of them, both as the frame sees them, and the latter's length.

    As in `losses.residuals` a record's numbers have the same bits wherever in a batch it is.
    """
    x = on_sphere(rows, point.center)
    p = 0.5 * point.p + 0.5 * point.p.T  # the diameter rests on symmetry
    if point.frame is None:
        left = x - seen_by(x, p)
        return x, left, lengths(left)
    directions = np.ascontiguousarray(point.frame.T)
    along = seen_by(x, directions)
    x -= np.einsum("nk,kd->nd", seen_by(along, p), directions)
    return along, seen_by(x, directions), lengths(x)


def capped(values: Array, total: float) -> Array:
    """The nearest vector with entries between 0 and 1 and this sum: water-filling (Lerman et al. 2015).

    min(max(values + θ, 0), 1) for the level θ that fits; its sum is piecewise linear in θ, so that it is
    exact between the points where an entry meets 0 or 1.
    """
    levels = np.unique(np.concatenate([-values, 1.0 - values]))
    sums = np.clip(values + levels[:, None], 0.0, 1.0).sum(axis=1)
    return np.clip(values + np.interp(total, sums, levels), 0.0, 1.0)


def capped_entropic(logarithms: Array, total: float) -> Array:
    """The nearest vector in relative entropy with entries up to 1 and this sum: min(c·exp(logarithms), 1).

    Where nothing exceeds 1 this is the renormalisation that Maunu et al. (2022) print (Appendix A); else the
    largest entries are 1, and c fits the others.
    """
    order = np.argsort(-logarithms)
    falling = logarithms[order]
    tails = np.logaddexp.accumulate(falling[::-1])[::-1]
    # With the k largest at 1, the next must not exceed 1: the least such k.
    scales = np.log(total - np.arange(ceil(total))) - tails[: ceil(total)]
    k = int(np.argmax(scales + falling[: ceil(total)] <= 0.0))
    found = np.ones_like(falling)
    found[k:] = np.exp(np.minimum(scales[k] + falling[k:], 0.0))
    result = np.empty_like(found)
    result[order] = found
    return result


def reaper(
    gradient: Callable[[Array], Array],
    *,
    dim: int,
    rank: int,
    steps: Sequence[float],
    mirror: bool,
) -> Array:
    """Noisy gradient descent on 0 ⪯ P ⪯ I, tr P = r.

    Args:
        gradient: noisy mean of negative gradients at P, (dim, dim) symmetric.
        dim: D.
        rank: r.
        steps: length of each.
        mirror: entropic mirror descent (on sums of gradients: dual averaging), not Euclidean projection.

    Returns:
        (dim, dim) the eigenvectors of the mean of the iterates, the leading one first.

    References:
        Maunu et al. (2022), Algorithms 1 and 2, by projection or by mirror steps.
    """
    p = np.eye(dim) * (rank / dim)
    mean = np.zeros((dim, dim))
    dual = np.zeros((dim, dim))
    for step in steps:
        if mirror:
            dual = dual + step * gradient(p)
            values, vectors = np.linalg.eigh(dual)
            values = capped_entropic(values, rank)
        else:
            values, vectors = np.linalg.eigh(p + step * gradient(p))
            values = capped(values, rank)
        p = (vectors * values) @ vectors.T
        mean += p
    return np.linalg.eigh(mean)[1][:, ::-1]


@dataclass(frozen=True)
class ReaperSolver:
    """A descent over the relaxation, from amid all subspaces; a `SubspaceSolver`.

    Above 300 columns it relaxes within the span of a noisy sketch, which it has released first.

    Attributes:
        dim: D, length of a row.
        rank: r.
        name: of the solver.
        gradient: name of the statistic of its gradients.
    """

    dim: int
    rank: int
    name: str
    gradient: str = "gradient"

    starts_itself = True
    usual_steps = None

    @property
    def reads(self) -> int:
        """How often a step reads each entry of a row: in a frame, once for each column of it."""
        return self._width if self._is_framed else 1

    @property
    def statistics(self) -> Mapping[str, AnyStatistic]:
        """The statistic of gradients, by its name in plans."""
        return {self.gradient: self._statistic}

    def plan(self, budget: PrivacyBudget, choices: Choices, *, left: float, error: float) -> PlannedDescent:
        """Plan the sketch of the frame, if there is one, and the steps; see `SubspaceSolver`."""
        del error
        frame, missed, why = tuple[Release, ...](), 0.0, _AMID
        if self._is_framed:
            sketch, missed = sketch_release(budget, _FRAME_SHARE * left, self.dim, self.rank)
            left, frame, why = left - _FRAME_SHARE * left, (sketch,), _FRAMED
        count = choices.steps
        if count is None:
            count = relaxed_count(
                self._total(budget.release(self._statistic, self.gradient, 1.0, share=left))
            )
        steps, rate = noisy_gradients(
            budget,
            self._statistic,
            self.gradient,
            choices,
            batches=self.name in _BATCHES,
            share=left,
            count=count,
        )
        if self.gradient == "gradient":
            noise = sqrt(self._statistic.size * steps.deviation**2 + (1 - rate) / (rate * budget.n))
        else:
            noise = self._total(steps)
        forecast = missed + relaxed_error(count, noise, self._width, self.rank)
        return PlannedDescent(
            (*frame, steps),
            self._lengths(count, noise, choices.step_size),
            min(right_angles(self.rank), forecast),
            start="sketch" if frame else None,
            why=why,
        )

    def run(self, gate: Oracle, start: Array | None, course: Course) -> Array:
        """Return (dim, ·) orthonormal columns, the leading ones first; see `SubspaceSolver`."""
        del start
        steps, symmetric = course.rounds.lengths, SymmetricCoordinates(self._width)
        if self.gradient != "gradient":  # a start, whose steps no plan has
            sums = (each for each in course.releases if isinstance(each, NoisySum))
            (released,) = (each for each in sums if each.statistic == self.gradient)
            steps = self._lengths(released.count, self._total(released), None)
        center = course.center
        frame = noisy_span(gate, center, self.dim, self.rank) if self._is_framed else None
        found = reaper(
            lambda p: symmetric.matrix(gate.mean(Relaxation(p, center, frame), self.gradient)),
            dim=self._width,
            rank=self.rank,
            steps=steps,
            mirror=self.name in _MIRROR,
        )
        return found if frame is None else frame @ found

    def _lengths(self, count: int, noise: float, first: float | None) -> tuple[float, ...]:
        mirror = self.name in _MIRROR
        return relaxed_steps(count, noise, self._width, self.rank, mirror=mirror, first=first)

    def _total(self, release: NoisySum | SubsampledSum) -> float:
        """Total standard deviation of the noise on a gradient."""
        return release.deviation * sqrt(self._statistic.size)

    @property
    def _is_framed(self) -> bool:
        return self.dim > WIDEST_RELAXATION

    @property
    def _width(self) -> int:
        """Rows of the matrices."""
        return relaxed_rows(self.dim, self.rank)

    @property
    def _statistic(self) -> Reaper:
        return Reaper(self._width)


def relaxed_rows(dim: int, rank: int) -> int:
    """Rows of the matrices that a subspace is relaxed to."""
    return dim if dim <= WIDEST_RELAXATION else sketch_columns(dim, rank)


def relaxed_count(noise: float) -> int:
    """Steps of a REAPER descent, until more of them only divide the budget.

    Args:
        noise: total standard deviation of the noise on one gradient that has the whole budget.
    """
    return int(min(max(4 / noise**2, 20), 200))


def relaxed_steps(
    count: int, noise: float, dim: int, rank: int, *, mirror: bool, first: float | None
) -> tuple[float, ...]:
    """Lengths η/√k, as in Maunu et al. (2022), Section 5, who take η = 8 everywhere.

    Projected steps move in Frobenius norm, where gradients have length 1 and noise; those by mirror act
    on logarithms, against noise in spectral norm. The factors 2 and 16 are measured on haystacks.
    """
    if first is None:
        spectral = noise * 2 / sqrt(dim + 1)
        first = 16 / sqrt(1 + spectral**2) if mirror else 2 * sqrt(rank / (1 + noise**2))
    return tuple((first / np.sqrt(np.arange(1, count + 1))).tolist())


def relaxed_error(count: int, noise: float, dim: int, rank: int) -> float:
    """Square of the distance that the noise in the mean of the iterates makes, from above.

    Only the part between the subspace and the rest turns it; most of that is averaged and drawn back.
    """
    turning = rank * (dim - rank) / (dim * (dim + 1) / 2)
    return min(right_angles(rank), turning * noise**2 / (count * INLIERS**2 / rank))

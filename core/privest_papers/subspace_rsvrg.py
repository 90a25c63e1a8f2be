"""DP-RSVRG on squared distances from a subspace: variance-reduced steps on the Grassmann manifold."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array, lengths, seen_by
from privest.estimators.subspace.losses import SubspaceDistance, SubspaceQuery, residuals
from privest.estimators.subspace.schedule import INLIERS, right_angles
from privest.estimators.subspace.solvers import Choices, Course, PlannedDescent
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.optim.descent import Ball
from privest.optim.variance_reduction import AskedLoops, LoopBounds, plan_loops, variance_reduced
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic, Opposable
from privest.privacy.oracle import Oracle

PCA_HESSIAN = 2.0
"""Largest eigenvalue of the Hessian of squared distances of rows on the unit sphere."""

PCA_REACH = 0.5
"""Angle beyond which the pull of squared distances hardly grows: it is that of sin 2θ."""


def pca_curvatures(rank: int) -> tuple[float, ...]:
    """Eigenvalues that the Hessian of squared distances may have at the subspace: the picture's, and others.

    It is twice the gap between eigenvalues of the second moment. Loops that suit one gap run past the
    subspace where it is larger, and stop short of it where it is smaller.
    """
    return (2 * INLIERS / rank, 0.5 * INLIERS / rank, PCA_HESSIAN)


@dataclass(frozen=True)
class SubspaceDistanceChange(Opposable):
    """The change of the negative gradient of a residual loss from an anchor to a subspace near it.

    In the coordinates of all D×r matrices, of which the anchor's gradient keeps what is tangent at the other
    subspace. The change is clipped as a whole, so that a record has one bound C₁ and not two (Utpala et al.
    2023, Section 5, clips the two gradients apart: 4C₁). Columns of a change are formed one by one, so that
    thousands of columns of rows are no burden.

    Attributes:
        dim: D, length of a row.
        rank: r, columns of a basis.
    """

    dim: int
    rank: int

    description = "the mean change of gradients"

    @property
    def size(self) -> int:
        """Length of the summed vector: the D×r matrix, row by row."""
        return self.dim * self.rank

    def clipped_sum(self, point: tuple[SubspaceQuery, SubspaceQuery], rows: Array, clip: float) -> Array:
        """Σ of the changes, of length `clip` at most, `point` being (point, anchor); see `Statistic`."""
        at, anchor = point
        (along, pull), (before, pulled) = _pulls(at, rows), _pulls(anchor, rows)
        directions = np.ascontiguousarray(at.basis.T)
        pulled -= np.einsum("nr,rd->nd", seen_by(pulled, directions), directions)

        def column(k: int) -> Array:
            return pull * along[:, k, None] - pulled * before[:, k, None]

        square = np.zeros(len(rows))
        for k in range(self.rank):
            square += lengths(column(k)) ** 2
        weight = clip / np.maximum(np.sqrt(square), clip)
        return np.stack([weight @ column(k) for k in range(self.rank)], axis=1).ravel()


def _pulls(at: SubspaceQuery, rows: Array) -> tuple[Array, Array]:
    """The two factors of every row's negative gradient: (n, rank) Vᵀx, and (n, dim) Qx·w(d)."""
    along, left, length = residuals(at, rows)
    left *= at.loss.weight(length)[:, None]
    return along, left


@dataclass(frozen=True)
class SubspaceVarianceReduction:
    """Full gradients at anchors, and changes of gradients on random batches; a `SubspaceSolver`.

    Attributes:
        dim: D, length of a row.
        rank: r.
    """

    dim: int
    rank: int

    starts_itself = False
    usual_steps = None
    reads = 1

    @property
    def statistics(self) -> Mapping[str, AnyStatistic]:
        """The statistics of gradients and of their changes, by their names in plans."""
        return {
            "gradient": SubspaceDistance(self.dim, self.rank),
            "change": SubspaceDistanceChange(self.dim, self.rank),
        }

    def plan(self, budget: PrivacyBudget, choices: Choices, *, left: float, error: float) -> PlannedDescent:
        """Plan the loops, and split the share `left` between the two statistics; see `SubspaceSolver`."""
        rank, known = self.rank, self.statistics
        facts = (budget.n, rank * (self.dim - rank), sqrt(error), 1.0, PCA_HESSIAN, budget.part(left))
        curved = (pca_curvatures(rank), PCA_REACH)
        bounds = LoopBounds(*facts, known["gradient"], known["change"], *curved)
        asked = AskedLoops(choices.epochs, choices.steps, None, "epoch", None)
        planned = plan_loops(
            bounds, asked, rate=choices.rate, scheme=choices.sampling, step_size=choices.step_size
        )
        missed = min(right_angles(rank), planned.error**2)
        return PlannedDescent(planned.releases, (planned.step_size,), missed, epochs=planned.loops)

    def run(self, gate: Oracle, start: Array | None, course: Course) -> Array:
        """Return (dim, rank) orthonormal columns; see `SubspaceSolver`."""
        assert start is not None  # noqa: S101 - the plan has one
        assert course.epochs is not None  # noqa: S101 - as it has these
        # No subspace is outside this ball, whose border only rounding could reach.
        space = Grassmann(*start.shape)
        everywhere, (length, *_) = Ball(space, start, 2 * space.natural_radius), course.rounds.lengths
        return variance_reduced(
            everywhere, gate, asked=course.asked, start=start, step_size=length, loops=course.epochs
        )

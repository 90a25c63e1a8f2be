"""Candidate subspaces: their refinement, scores and selection by a bounded loss, for little noise.

Candidates lie in one frame of r + 1 columns, and each is the subspace normal to a unit vector there. So
a gradient has r + 1 numbers for a candidate, where in the whole space it has dim·rank.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.subspace.losses import Bounded
from privest.estimators.subspace.spherical import on_sphere, orthonormal
from privest.privacy.clipped_sums import clipped_sum

_SURE = 1.0
"""Deviations of the noise by which the best loss is less than another one if that is to be sure."""


@dataclass(frozen=True)
class Candidates:
    """Subspaces of rank r in a frame of rank r + 1.

    Attributes:
        frame: (dim, rank + 1) orthonormal columns; coordinate axes take the place of others.
        normals: (count, rank + 1) unit vectors, each normal to one candidate; the first coordinate axis takes
            the place of one that is not a unit vector.
        scale: c of the bounded loss.
        center: (dim,) to be taken off the rows.
    """

    frame: Array
    normals: Array
    scale: float
    center: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame", orthonormal(self.frame))
        units = [orthonormal(normal[:, None])[:, 0] for normal in self.normals]
        object.__setattr__(self, "normals", np.array(units).reshape(self.normals.shape))

    def basis(self, index: int) -> Array:
        """(dim, rank) orthonormal columns that span one candidate."""
        normal = self.normals[index][:, None]
        return self.frame @ np.linalg.qr(np.hstack([normal, np.eye(len(normal))]))[0][:, 1 : len(normal)]


def _seen(candidates: Candidates, rows: Array) -> tuple[Array, Array, Array]:
    """(n, rank + 1) rows in the frame, (n, count) their heights above candidates, and distances from them."""
    x = on_sphere(rows, candidates.center)
    y = x @ candidates.frame
    height = y @ candidates.normals.T
    outside = np.maximum(np.vecdot(x, x) - np.vecdot(y, y), 0.0)
    return y, height, np.sqrt(outside[:, None] + height**2)


@dataclass(frozen=True)
class CandidateGradients:
    """Σ of the negative gradients of the bounded loss with respect to each normal, all in one vector.

    Attributes:
        count: candidates.
        rank: of each.
    """

    count: int
    rank: int

    description = "the candidates' gradients"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.count * (self.rank + 1)

    def diameter(self, clip: float) -> float:
        """Two gradients may be opposite."""
        return 2.0 * clip

    def clipped_sum(self, point: Candidates, rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere of all gradients together, at most `clip` long; see `Statistic`."""
        y, height, distance = _seen(point, rows)
        tangent = y[:, None, :] - height[:, :, None] * point.normals
        pull = Bounded(point.scale).weight(distance) * height
        return clipped_sum((-pull[:, :, None] * tangent).reshape(len(y), -1), clip)


@dataclass(frozen=True)
class CandidateScores:
    """Σ of the bounded loss of each candidate; a row's values are between 0 and 1.

    Attributes:
        count: candidates.
    """

    count: int

    description = "the candidates' losses"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.count

    def diameter(self, clip: float) -> float:
        """No two vectors with entries between 0 and clip/√count are further apart than `clip`."""
        return clip

    def clipped_sum(self, point: Candidates, rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere; see `Statistic`."""
        distance = _seen(point, rows)[2]
        values = Bounded(point.scale).value(distance)
        return np.minimum(values, clip / sqrt(self.count)).sum(axis=0)


def select_candidate(
    frame: Array,
    *,
    center: Array | None,
    scales: Sequence[float],
    steps: Sequence[float],
    refine: Callable[[Candidates], Array],
    scores: Callable[[Candidates], Array],
    deviation: float,
) -> tuple[Array, float]:
    """The subspace, one dimension below a frame, with the least bounded loss.

    The candidates leave out one direction of the frame each. Copies of them are refined by descent on the
    bounded loss from wide to narrow, in r + 1 numbers each. The noisy scores decide among all of them. So a
    direction is found out that holds many rows but is no part of the subspace: each row's pull is bounded,
    where its distance alone is not (Maunu et al. 2022 leave such outliers open).

    Args:
        frame: (dim, rank + 1) orthonormal columns.
        center: (dim,) of the rows.
        scales: c of the bounded loss at every step; the last one also decides.
        steps: their lengths.
        refine: noisy mean of all candidates' negative gradients, in one vector.
        scores: noisy mean losses of 2·(rank + 1) candidates.
        deviation: of the noise on each of these.

    Returns:
        (dim, rank) orthonormal columns, and the largest angle to a candidate whose loss may be less.
    """
    plain = np.eye(frame.shape[1])
    normals = plain
    for scale, step in zip(scales, steps, strict=True):
        pull = step * refine(Candidates(frame, normals, scale, center)).reshape(normals.shape)
        pull -= np.vecdot(pull, normals)[:, None] * normals
        moved = normals + pull
        normals = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    every = Candidates(frame, np.vstack([plain, normals]), scales[-1], center)
    losses = scores(every)
    best = int(np.argmin(losses))
    rivals = losses <= losses[best] + _SURE * sqrt(2.0) * deviation
    cosines = np.abs(every.normals[rivals] @ every.normals[best])
    return every.basis(best), float(np.arccos(min(1.0, cosines.min())))

"""Rows by which an adversary would move a sum furthest, stop a run or poison it, and what they add to it."""

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np

from privest.arrays import Array
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.subspace.candidates import Candidates
from privest.estimators.subspace.spherical import on_sphere
from privest.manifolds import Manifold
from privest.privacy import clipped_sums
from privest.privacy.clipped_sums import Statistic
from privest_papers.reaper import Relaxation

EXTREMES = (
    *(0.0, 5e-324, 1e-310, 1e-160, 1e-155, 1e-20, 1.0, -1.0, 1e20, 1e149, 1e153, 1e155, 1e300, 1.79e308),
    *(inf, -inf, nan),
)
"""Numbers near the ends of float64 or of where their squares stay finite, and values that are no numbers."""


# Points of a manifold


def graded(m: int, rng: np.random.Generator, count: int, power: float) -> Array:
    """Symmetric matrices of wildly different scales: near the ends of float64 LAPACK gives up on some."""
    a = rng.standard_normal((count, m, m))
    g = 10.0 ** rng.uniform(-power, power - 7, (count, m, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        a = a * g * np.swapaxes(g, -1, -2)
        return 0.5 * a + 0.5 * np.swapaxes(a, -1, -2)


@functools.cache
def hostile_points(space: Manifold, seed: int = 0) -> Array:
    """Points, points far away, on the cut locus, off the manifold, and rows of extreme floats."""
    rng = np.random.default_rng(seed)
    good = np.stack([space.random_point(rng) for _ in range(20)])
    steps = space.coordinates(space.reference, space.log(space.reference, good[:10]))
    pairs = space.exp_coordinates(space.reference, np.concatenate([steps, -steps]))
    far = space.exp_coordinates(good[0], 20 * rng.standard_normal((20, space.coordinate_size)))
    noise = rng.standard_normal((30, *space.shape))
    with np.errstate(over="ignore", invalid="ignore"):
        rows = [
            good,
            pairs,
            far,
            -good,
            noise * 10.0 ** rng.uniform(-320, 308, (30, *[1] * len(space.shape))),
            noise * 10.0 ** rng.uniform(-320, 308, noise.shape),
            rng.choice(EXTREMES, (60, *space.shape)) * rng.choice([-1, 1], (60, *space.shape)),
            *(np.full((1, *space.shape), value) for value in EXTREMES),
        ]
    if space.name == "spd":
        rows += [graded(space.shape[0], rng, 40, power) for power in (8, 100, 160)]
    return np.concatenate(rows)


# Vectors, whole or with gaps


def frame(dim: int, columns: int, seed: int = 0) -> Array:
    """Random orthonormal columns."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, columns)))[0]


@dataclass(frozen=True)
class PlacedCase:
    """A statistic of vectors at one point.

    Attributes:
        name: of the case.
        statistic: whose diameter is declared.
        point: where it is summed.
        clip: as plans have it, or near it.
        dim: of a row.
        basis: of the subspace near which rows pull most. (dim, rank)
        reach: the share of the declared diameter that some pair must come to.
        center: that the statistic takes off a row.
        gaps: whether entries of a row may be unknown.
    """

    name: str
    statistic: Statistic
    point: Any
    clip: float
    dim: int
    basis: Array
    reach: float = 0.97
    center: Array | None = None
    gaps: bool = False

    def __str__(self) -> str:
        return f"{self.name}-{self.dim}-{self.basis.shape[1]}-{self.clip:.2g}"

    @property
    def allowed(self) -> float:
        """How far a record may move the sum: what noise is paid for."""
        return clipped_sums.sensitivity(
            self.statistic.diameter(self.clip), self.clip, self.statistic.size, 0.0
        )

    def alone(self, rows: Array) -> Array:
        """What each row adds to the sum. (n, size)"""
        return each_alone(self.statistic, self.point, rows, self.clip)

    def pool(self) -> Array:
        """Hostile rows, about the origin and about the center, with gaps and without. (n, dim)"""
        rows = hostile_vectors(self)
        if self.center is not None:
            with np.errstate(over="ignore"):
                rows = np.concatenate([rows, rows + self.center])
        return with_gaps(rows) if self.gaps else rows


def hostile_vectors(case: PlacedCase, seed: int = 0) -> Array:
    """Rows in the subspace, 1e-300 to 1 off it, far out, opposite, equal, empty, extreme, or no numbers."""
    rng, dim, v = np.random.default_rng(seed), case.dim, case.basis
    inside = np.concatenate([v.T, -v.T, rng.standard_normal((3, v.shape[1])) @ v.T])
    off = rng.standard_normal((2, dim))
    if isinstance(case.point, Relaxation) and case.point.frame is not None:  # outside, a frame sees nothing
        off = off @ case.point.frame @ case.point.frame.T
    off = on_sphere(off - (off @ v) @ v.T)
    off = np.concatenate([off, -off])
    tiny = np.concatenate([[0.0, 1e-300, 1e-13], 10.0 ** np.arange(-18, -2.0, 2.0), [1e-12, 2e-12]])
    angles = np.concatenate([np.geomspace(1e-4, 0.05, 24), np.linspace(0.06, np.pi / 2, 20)])
    near = [i + t * o for i in inside[:3] for o in off for t in tiny]
    turned = [np.cos(a) * i + np.sin(a) * o for i in inside[:2] for o in off[[0, 2]] for a in angles]
    if isinstance(case.point, Candidates):  # where candidates pull most, about the first of their normals
        normal = case.point.normals[0]
        flat = rng.standard_normal((3, len(normal)))
        flat = on_sphere(flat - np.outer(flat @ normal, normal))
        seen = [s * np.sin(a) * normal + np.cos(a) * f for f in flat for a in angles for s in (1, -1)]
        turned = [*turned, *(np.array(seen) @ case.point.frame.T)]
    noise = rng.standard_normal((30, dim))
    with np.errstate(over="ignore", invalid="ignore"):
        rows = [
            inside,
            off,
            np.array(near),
            np.array(turned),
            noise,
            np.repeat(noise[:2], 2, axis=0),
            noise * 10.0 ** rng.uniform(-320, 308, (30, 1)),
            noise * 10.0 ** rng.uniform(-320, 308, noise.shape),
            rng.choice(EXTREMES, (30, dim)) * rng.choice([-1, 1], (30, dim)),
            *(np.full((1, dim), value) for value in EXTREMES),
        ]
    return np.concatenate(rows)


def with_gaps(rows: Array) -> Array:
    """Rows whole and with gaps of every size, down to rows of which nothing is known."""
    rng = np.random.default_rng(1)
    some = rows[rng.permutation(len(rows))[:150]]
    masks = [rng.random(some.shape) < share for share in (0.1, 0.5, 0.9)]
    two = np.argsort(rng.random(some.shape), axis=1) < 2
    return np.concatenate([rows, *(np.where(mask, some, np.nan) for mask in (*masks, two))])


# Labelled records

FEATURES = 3

FEATURE_MAPS = {
    "plain": FeatureMap(np.zeros(FEATURES), np.ones(FEATURES), 1.0, 0.0, 1.0),
    "standardised": FeatureMap(np.array([1.0, -2.0, 0.0]), np.array([0.1, 3.0, 1e6]), 0.7, 0.25, 2.0),
}
"""Feature maps by which rows of three features are clipped."""


def hostile_records(feature_map: FeatureMap, labels: Sequence[float]) -> Array:
    """Usual features, extreme ones and far ones, with random ones of these labels last."""
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            rng.standard_normal((60, FEATURES)) * feature_map.scale + feature_map.mean,
            rng.standard_normal((60, FEATURES)) * 10.0 ** rng.uniform(-320, 308, (60, FEATURES)),
            rng.choice(EXTREMES, (80, FEATURES)),
            np.vstack([np.eye(FEATURES), -np.eye(FEATURES)]) * 1e9,
        ]
    )
    return np.column_stack([x, rng.choice(labels, len(x))])


# What they do


def total(statistic: Statistic, point: Any, rows: Array, clip: float) -> Array:
    """The clipped sum, where a warning is an error and a wrong value fails. (size,)"""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = statistic.clipped_sum(point, rows, clip)
    assert found.shape == (statistic.size,)
    assert np.isfinite(found).all()
    return found


def each_alone(statistic: Statistic, point: Any, rows: Array, clip: float) -> Array:
    """What each row adds to the sum. (n, size)"""
    return np.stack([total(statistic, point, row[None], clip) for row in rows])

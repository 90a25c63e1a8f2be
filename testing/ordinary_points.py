"""Points in one cluster or two on flat and curved spaces, and what private means of them come to."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt
from typing import Any
from zlib import crc32

import numpy as np

from privest import manifolds
from privest.arrays import Array
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean.frechet_mean import FRECHET_MEAN, FrechetMeanSpec, Mean
from privest.manifolds import Embedded, Manifold
from privest.privacy.accounting import PrivacyTarget, mu_for
from privest.privacy.gate import Gate
from testing.noise import ScaledNoise


@dataclass(frozen=True)
class PointsCase:
    """Points about a centre, and some of them about another point.

    Attributes:
        name: short, in tables.
        manifold: name and parameters.
        n: number of points.
        radius: declared; None where nobody declares it.
        spread: typical distance of a point from the centre of its cluster.
        away: distance of the first cluster from the declared centre.
        share: of the points in the second cluster.
        gap: distance of the second cluster from the first.
        epsilon: of the query; δ is n^-1.5.
    """

    name: str
    manifold: dict[str, Any]
    n: int
    radius: float | None
    spread: float
    away: float = 0.3
    share: float = 0.0
    gap: float = 0.0
    epsilon: float = 1.0

    @cached_property
    def space(self) -> Manifold:
        """The manifold."""
        return manifolds.get(**self.manifold)

    @property
    def metadata(self) -> PointsMetadata:
        """What is public."""
        return PointsMetadata(self.n, self.manifold, None, self.radius)

    @cached_property
    def points(self) -> Array:
        """(n, *shape), the same in each run."""
        space, rng = self.space, np.random.default_rng(crc32(self.name.encode()))
        first = _ahead(space, space.reference, rng, self.away)
        few = int(self.share * self.n)
        second = _ahead(space, first, rng, self.gap) if few else first
        deviation = self.spread / sqrt(space.dim)
        parts = [
            space.exp(at, space.sample_tangent_gaussian(rng, at, deviation, count))
            for at, count in ((first, self.n - few), (second, few))
            if count
        ]
        return np.concatenate(parts)

    @cached_property
    def mean(self) -> Array:
        """The Fréchet mean: the best end of descents from several points."""
        space, points = self.space, self.points
        starts = points[:: len(points) // 5] if space.cut_distance < inf else points[:1]
        ends = list[tuple[float, Array]]()
        for start in starts:
            at = start
            for _ in range(200):
                step = space.log_sum(at, points) / self.n
                at = space.exp_coordinates(at, 0.6 * step)
                if np.linalg.norm(step) < 1e-9:
                    break
            ends.append((float(np.mean(np.square(space.dist(at, points)))), at))
        return min(ends, key=lambda end: end[0])[1]

    @cached_property
    def hessian(self) -> Array:
        """(dim, dim) Hessian of the mean ½dist² at the mean, by differences along each direction."""
        space, small = self.space, 1e-5
        size = space.coordinate_size
        rows = list[Array]()
        for one in np.eye(size):
            tangent = space.project_tangent(self.mean, space.from_coordinates(self.mean, one))
            way = space.coordinates(self.mean, tangent)
            ahead, behind = (
                space.log_sum(space.exp_coordinates(self.mean, sign * small * way), self.points) / self.n
                for sign in (1, -1)
            )
            rows.append((behind - ahead) / (2 * small))
        return np.array(rows)

    @property
    def textbook(self) -> float:
        """Root mean square error of one noisy sum at the mean, clipped at the declared radius.

        Where no radius is declared the clip is the distance that holds .95 of the points, which nobody knows.
        """
        space = self.space
        away = space.dist(self.mean, self.points)
        known = self.radius or (space.natural_radius if isinstance(space, Embedded) else None)
        clip = float(np.quantile(away, 0.95)) if known is None else min(known, space.diameter)
        bends = np.sort(np.abs(np.linalg.eigvalsh((self.hessian + self.hessian.T) / 2)))[-space.dim :]
        amplified = float(np.linalg.norm(1 / bends))
        return 2 * clip * amplified / (self.n * mu_for(self.epsilon, self.n**-1.5))

    def answers(self, runs: int, seed: int | None = None) -> list[Mean]:
        """Return private means by default; with a seed they are the same each time."""
        plan = FRECHET_MEAN.plan(FrechetMeanSpec(), self.metadata, PrivacyTarget(self.epsilon, self.n**-1.5))
        records = Records(self.points, threads=1)
        noise = (None if seed is None else ScaledNoise(seed=[seed, run]) for run in range(runs))
        return [
            FRECHET_MEAN.run(plan, Gate(records, plan.statistics, plan.releases, *([each] if each else [])))
            for each in noise
        ]

    def off(self, found: list[Mean]) -> Array:
        """Return the distances of answers from the mean, (answers,)."""
        return np.array([float(self.space.dist(self.mean, each.point)) for each in found])


def radii(found: list[Mean]) -> Array:
    """Return the stated radii of answers, (answers,)."""
    return np.array([each.uncertainty.radius_95 if each.uncertainty else inf for each in found])


def _ahead(space: Manifold, point: Array, rng: np.random.Generator, distance: float) -> Array:
    """Return the point at this distance in a random direction."""
    if not distance:
        return point
    way = space.coordinates(point, space.sample_tangent_gaussian(rng, point, 1.0))
    return space.exp_coordinates(point, distance * way / np.linalg.norm(way))


def points_cases() -> Iterator[PointsCase]:
    """Yield the cases."""
    flat, spd = {"name": "euclidean", "dim": 10}, {"name": "spd", "dim": 3}
    circle, sphere = {"name": "sphere", "dim": 2}, {"name": "sphere", "dim": 3}
    planes = {"name": "grassmann", "dim": 5, "rank": 2}
    yield PointsCase("flat 10", flat, 2_000, 3.0, 1.0, 0.5)
    yield PointsCase("flat 10, two clusters", flat, 5_000, 3.0, 0.2, 0.3, 0.1, 2.0)
    yield PointsCase("flat 10, radius 10×", flat, 2_000, 30.0, 1.0, 0.5)
    yield PointsCase("flat 10, radius 100×", flat, 10_000, 300.0, 1.0, 0.5)
    yield PointsCase("flat 10, no radius", flat, 5_000, None, 1.0, 0.5)
    yield PointsCase("matrices 3×3", spd, 2_000, 1.0, 0.3)
    yield PointsCase("matrices 3×3, two clusters", spd, 5_000, 3.0, 0.2, 0.3, 0.1, 2.0)
    yield PointsCase("matrices 3×3, radius 10×", spd, 2_000, 10.0, 0.3)
    yield PointsCase("matrices 3×3, radius 100×", spd, 5_000, 100.0, 0.3)
    yield PointsCase("matrices 3×3, no radius", spd, 5_000, None, 0.3)
    yield PointsCase("matrices 3×3, no radius, two clusters", spd, 5_000, None, 0.2, 0.3, 0.1, 2.0)
    yield PointsCase("180 matrices 8×8, ε = 2", {"name": "spd", "dim": 8}, 180, 4.0, 1.5, 0.0, epsilon=2.0)
    yield PointsCase("matrices 8×8", {"name": "spd", "dim": 8}, 2_000, 8.0, 1.5, 0.5)
    hyperbolic = {"name": "poincare-ball", "dim": 5}
    yield PointsCase("hyperbolic 5", hyperbolic, 2_000, 3.0, 0.5, 1.0)
    yield PointsCase("hyperbolic 5, two clusters", hyperbolic, 5_000, 3.0, 0.3, 1.0, 0.1, 2.0)
    yield PointsCase("circle", circle, 5_000, None, 0.3, 1.0)
    yield PointsCase("circle, two clusters", circle, 5_000, None, 0.15, 1.0, 0.1, 2.0)
    yield PointsCase("circle, clusters nearly opposite", circle, 5_000, None, 0.15, 1.0, 0.1, 2.9)
    yield PointsCase("sphere", sphere, 5_000, None, 0.3, 1.0)
    yield PointsCase("sphere, two clusters", sphere, 5_000, None, 0.15, 1.0, 0.1, 2.0)
    yield PointsCase("sphere, clusters nearly opposite", sphere, 5_000, None, 0.15, 1.0, 0.1, 2.8)
    yield PointsCase("sphere 9, radius .8", {"name": "sphere", "dim": 10}, 2_000, 0.8, 0.4)
    yield PointsCase(
        "lines in space, two clusters",
        {"name": "grassmann", "dim": 3, "rank": 1},
        3_000,
        None,
        0.15,
        0.5,
        0.1,
        1.2,
    )
    yield PointsCase("planes", planes, 3_000, None, 0.3)
    yield PointsCase("planes, two clusters", planes, 3_000, None, 0.2, 0.3, 0.1, 1.2)
    frames = {"name": "stiefel", "dim": 3, "rank": 2}
    yield PointsCase("frames, two clusters", frames, 600, None, 0.2, 0.3, 0.1, 1.2, 2.0)

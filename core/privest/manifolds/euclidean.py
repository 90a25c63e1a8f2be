"""Flat space."""

from dataclasses import dataclass
from math import sqrt
from typing import Annotated

import numpy as np

from privest.arrays import Array, lengths
from privest.manifolds.base import Manifold
from privest.options import Option


@dataclass(frozen=True)
class Euclidean(Manifold):
    """Vectors of R^size with the usual metric."""

    size: Annotated[int, Option("numbers in a point", ge=1, le=10_000)]

    name = "euclidean"
    rules = ("finite",)

    @property
    def curvature(self) -> tuple[float, float]:
        return (0.0, 0.0)

    @property
    def dim(self) -> int:
        return self.size

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def reference(self) -> Array:
        return np.zeros(self.size)

    @property
    def natural_radius(self) -> float:
        """Typical length of a vector whose entries are about one."""
        return sqrt(self.size)

    def size_of(self, point: Array) -> float:
        """Largest entry, without its sign."""
        return float(np.abs(point).max())

    def random_point(self, rng: np.random.Generator) -> Array:
        return rng.standard_normal(self.size)

    def broken_rule(self, x: Array) -> Array:
        return np.where(np.isfinite(x).all(axis=-1), 0, 1)

    def canonical(self, x: Array) -> Array:
        return x

    def exp(self, base: Array, v: Array) -> Array:
        return base + v

    def log(self, base: Array, x: Array) -> Array:
        return x - base

    def dist(self, a: Array, b: Array) -> Array:
        return lengths(a - b)

    def project_tangent(self, base: Array, a: Array) -> Array:
        return a

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        return v

    def coordinates(self, base: Array, v: Array) -> Array:
        return v

    def from_coordinates(self, base: Array, c: Array) -> Array:
        return c

"""The oblique manifold of matrices with unit columns: a product of spheres."""

from dataclasses import dataclass
from functools import cached_property
from math import pi, sqrt
from typing import Annotated

import numpy as np

from privest.arrays import Array, lengths, transposed
from privest.manifolds.base import Embedded
from privest.manifolds.sphere import Sphere
from privest.options import Option


@dataclass(frozen=True)
class Oblique(Embedded):
    """Matrices with `size` rows and `rank` columns of unit length, with ⟨u, v⟩ = tr(uᵀv)."""

    size: Annotated[int, Option("rows of a matrix", ge=2, le=10_000)]
    rank: Annotated[int, Option("columns of a matrix", ge=1, le=100)]

    name = "oblique"
    rules = ("finite", "columns of unit length")

    @property
    def curvature(self) -> tuple[float, float]:
        return (0.0, 1.0)

    @property
    def reach(self) -> float:
        return 1.0

    @property
    def dim(self) -> int:
        return self.rank * (self.size - 1)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, self.rank)

    @property
    def reference(self) -> Array:
        return np.tile(self._sphere.reference[:, None], self.rank)

    @property
    def natural_radius(self) -> float:
        """The largest distance between two points."""
        return sqrt(self.rank) * pi

    @property
    def diameter(self) -> float:
        return self.natural_radius

    @property
    def cut_distance(self) -> float:
        return pi

    @cached_property
    def _sphere(self) -> Sphere:
        """The sphere of one column."""
        return Sphere(self.size)

    def mean_curvature(self, center: Array, radius: float) -> float:
        """(size − 2)/(dim − 1), as this is an Einstein manifold with Ricci curvature size − 2."""
        return (self.size - 2) / max(1, self.dim - 1)

    def broken_rule(self, x: Array) -> Array:
        broken = self._sphere.broken_rule(transposed(x))
        return np.where((broken == 1).any(axis=-1), 1, broken.max(axis=-1))

    def project(self, x: Array) -> Array:
        return transposed(self._sphere.project(transposed(x)))

    def exp(self, base: Array, v: Array) -> Array:
        return transposed(self._sphere.exp(transposed(base), transposed(v)))

    def log(self, base: Array, x: Array) -> Array:
        return transposed(self._sphere.log(transposed(base), transposed(x)))

    def dist(self, a: Array, b: Array) -> Array:
        return lengths(self._sphere.dist(transposed(a), transposed(b)))

    def project_tangent(self, base: Array, a: Array) -> Array:
        return transposed(self._sphere.project_tangent(transposed(base), transposed(a)))

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        return transposed(self._sphere.transport_from_reference(transposed(base), transposed(v)))

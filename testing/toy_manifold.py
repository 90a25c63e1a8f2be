"""A whole manifold in one file: vectors with another unit of length. It shows that nothing else is needed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from privest.arrays import Array, lengths
from privest.manifolds import Manifold
from privest.options import Option


@dataclass(frozen=True)
class Stretched(Manifold):
    """Vectors of R^size, with lengths multiplied by a factor."""

    size: int
    factor: float

    name = "stretched"
    curvature = (0.0, 0.0)
    rules = ("finite",)

    def __init__(
        self,
        dim: Annotated[int, Option("numbers in a point", ge=1, le=50)],
        factor: Annotated[float, Option("of lengths", gt=0, le=10)] = 1.0,
    ) -> None:
        object.__setattr__(self, "size", dim)
        object.__setattr__(self, "factor", factor)

    @property
    def dim(self) -> int:
        return self.size

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def params(self) -> Mapping[str, int | str]:
        return {"dim": self.size}

    @property
    def reference(self) -> Array:
        return np.zeros(self.size)

    @property
    def natural_radius(self) -> float:
        return self.factor

    @property
    def coordinate_size(self) -> int:
        return self.size

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
        return self.factor * lengths(a - b)

    def inner(self, base: Array, u: Array, v: Array) -> Array:
        return self.factor**2 * np.sum(u * v, axis=-1)

    def project_tangent(self, base: Array, a: Array) -> Array:
        return a

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        return v

    def coordinates(self, base: Array, v: Array) -> Array:
        return self.factor * v

    def from_coordinates(self, base: Array, c: Array) -> Array:
        return c / self.factor

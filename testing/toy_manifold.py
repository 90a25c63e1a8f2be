"""A whole manifold in one file: Euclidean space in another unit of length. Nothing else is needed."""

from dataclasses import dataclass
from typing import Annotated

from privest.arrays import Array
from privest.manifolds.euclidean import Euclidean
from privest.options import Option


@dataclass(frozen=True)
class Stretched(Euclidean):
    """Vectors of R^size, with lengths multiplied by a factor."""

    size: Annotated[int, Option("numbers in a point", ge=1, le=50)]
    factor: Annotated[float, Option("of lengths", gt=0, le=10)] = 1.0

    name = "stretched"

    @property
    def natural_radius(self) -> float:
        return self.factor * super().natural_radius

    def dist(self, a: Array, b: Array) -> Array:
        return self.factor * super().dist(a, b)

    def coordinates(self, base: Array, v: Array) -> Array:
        return self.factor * v

    def from_coordinates(self, base: Array, c: Array) -> Array:
        return c / self.factor

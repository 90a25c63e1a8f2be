"""Hyperbolic space as a sheet of the hyperboloid, time first."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from privest.arrays import Array, lengths
from privest.manifolds.base import Manifold
from privest.options import Option

_TOLERANCE = 1e-8
_FUSED = 100.0
"""Time of base points up to which a fused sum is as good as a plain one: its rounding grows as the square."""

_LONGEST = 300.0
"""Step whose end float64 still holds, squared, from any point that a search ball may hold."""


def _over(f: Array, x: Array) -> Array:
    """f/x, and 1 where x = 0: of sinh and asinh."""
    return np.where(x > 0, f / np.where(x > 0, x, 1.0), 1.0)


def _minkowski(u: Array, v: Array) -> Array:
    return np.vecdot(u[..., 1:], v[..., 1:]) - u[..., 0] * v[..., 0]


@dataclass(frozen=True)
class Lorentz(Manifold):
    """Rows (t, x) with t = √(1 + |x|²) and the metric that −dt² + |dx|² induces, of curvature −1.

    Coordinates of a tangent vector are the space part of its parallel transport to the origin
    (1, 0, …, 0), which is the inverse boost. (Utpala et al. 2023, Appendix A, have two signs wrong: what they
    print is not tangent.)
    """

    size: Annotated[int, Option("numbers in a point, less one", ge=1, le=10_000)]

    name = "lorentz"
    rules = ("finite", "on the hyperboloid (−t² + |x|² = −1, t > 0)")

    @property
    def curvature(self) -> tuple[float, float]:
        return (-1.0, -1.0)

    @property
    def widest_radius(self) -> float:
        return 12.0

    @property
    def dim(self) -> int:
        return self.size

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size + 1,)

    @property
    def reference(self) -> Array:
        return np.eye(1, self.size + 1)[0]

    @property
    def natural_radius(self) -> float:
        """Radius for points up to t = 3.8."""
        return 2.0

    @staticmethod
    def _lift(space: Array) -> Array:
        """The point above a space part."""
        return np.concatenate([np.hypot(1.0, lengths(space))[..., None], space], axis=-1)

    def random_point(self, rng: np.random.Generator) -> Array:
        return self._lift(rng.standard_normal(self.size) / np.sqrt(self.size))

    def broken_rule(self, x: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(x).all(axis=-1)
            time, above = x[..., 0], np.hypot(1.0, lengths(x[..., 1:]))
            return np.select([~finite, ~(np.abs(time - above) < _TOLERANCE * above)], [1, 2], 0)

    def canonical(self, x: Array) -> Array:
        return self._lift(x[..., 1:])

    def exp(self, base: Array, v: Array) -> Array:
        return self.exp_coordinates(base, self.coordinates(base, v))

    def exp_coordinates(self, base: Array, c: Array) -> Array:
        """Total: a way too long for float64 ends where that ends."""
        length = lengths(c)[..., None]
        distance = np.minimum(length, _LONGEST)
        z = c * _over(np.sinh(distance), length)
        t, w = base[..., :1], base[..., 1:]
        return self._lift(z + w * (np.vecdot(w, z)[..., None] / (1 + t) + np.cosh(distance)))

    def _unboosted(self, base: Array, x: Array) -> Array:
        """The space part of x after the boost that takes `base` to the origin.

        Taken of x − base, which keeps the digits of points that are close and far out.
        """
        t, w = base[..., :1], base[..., 1:]
        away = x[..., 1:] - w
        later = np.vecdot(away, x[..., 1:] + w)[..., None] / (x[..., :1] + t)
        away += w * (np.vecdot(w, away)[..., None] / (1 + t) - later)
        return away

    def log(self, base: Array, x: Array) -> Array:
        return self.from_coordinates(base, self.log_coordinates(base, x))

    def log_coordinates(self, base: Array, x: Array) -> Array:
        z = self._unboosted(base, x)
        length = lengths(z)[..., None]
        z *= _over(np.arcsinh(length), length)
        return z

    def log_sum(self, base: Array, x: Array) -> Array:
        """A weighted sum of the rows, boosted; far out, where that cancels, the plain sum."""
        if base[0] > _FUSED:
            return super().log_sum(base, x)
        t, w = base[0], base[1:]
        cosh = np.maximum(x @ np.concatenate([[t], -w]), 1.0)
        sinh = np.sqrt((cosh - 1) * (cosh + 1))
        total = _over(np.arcsinh(sinh), sinh) @ x
        return total[1:] + w * (w @ total[1:] / (1 + t) - total[0])

    def dist(self, a: Array, b: Array) -> Array:
        return np.arcsinh(lengths(self._unboosted(a, b)))

    def inner(self, base: Array, u: Array, v: Array) -> Array:
        return _minkowski(u, v)

    def project_tangent(self, base: Array, a: Array) -> Array:
        return a + _minkowski(base, a)[..., None] * base

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        return self.from_coordinates(base, v[..., 1:])

    def coordinates(self, base: Array, v: Array) -> Array:
        t, w = base[..., :1], base[..., 1:]
        return v[..., 1:] - w * (v[..., :1] / (1 + t))

    def from_coordinates(self, base: Array, c: Array) -> Array:
        t, w = base[..., :1], base[..., 1:]
        along = np.vecdot(w, c)[..., None]
        return np.concatenate([along, c + w * (along / (1 + t))], axis=-1)

"""Hyperbolic space in two models: upper sheet of a hyperboloid (Lorentz), and open unit ball (Poincaré).

The first coordinate of a point on the hyperboloid is its time.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from privest.arrays import Array, lengths
from privest.manifolds.base import ROUNDING, Hyperbolic
from privest.options import Option

_FUSED = 100.0
"""Largest time of a base point at which `log_sum` fuses the sum; the rounding error grows with its square."""

_LONGEST_LORENTZ = 300.0
"""Longest step. From every point of a search ball its end, squared, fits into float64."""


def _over(f: Array, x: Array) -> Array:
    """f/x, or 1 if x = 0, for f = sinh(x) or asinh(x)."""
    return np.where(x > 0, f / np.where(x > 0, x, 1.0), 1.0)


def _minkowski(u: Array, v: Array) -> Array:
    return np.vecdot(u[..., 1:], v[..., 1:]) - u[..., 0] * v[..., 0]


@dataclass(frozen=True)
class Lorentz(Hyperbolic):
    """Rows (t, x) with t = √(1 + |x|²) and the metric that −dt² + |dx|² induces, of curvature −1.

    The coordinates of a tangent vector are the space part of its parallel transport to the origin
    (1, 0, …, 0), which is the inverse boost. Utpala et al. (2023), Appendix A, print two wrong signs: their
    vector is not tangent.
    """

    size: Annotated[int, Option("numbers in a point, less one", ge=1, le=10_000)]

    name = "lorentz"
    rules = ("finite", "on the hyperboloid (−t² + |x|² = −1, t > 0)")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size + 1,)

    @property
    def reference(self) -> Array:
        return np.eye(1, self.size + 1)[0]

    @staticmethod
    def _lift(space: Array) -> Array:
        """The point with this space part."""
        return np.concatenate([np.hypot(1.0, lengths(space))[..., None], space], axis=-1)

    def random_point(self, rng: np.random.Generator) -> Array:
        return self._lift(rng.standard_normal(self.size) / np.sqrt(self.size))

    def broken_rule(self, x: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(x).all(axis=-1)
            time, above = x[..., 0], np.hypot(1.0, lengths(x[..., 1:]))
            return np.select([~finite, ~(np.abs(time - above) < ROUNDING * above)], [1, 2], 0)

    def canonical(self, x: Array) -> Array:
        return self._lift(x[..., 1:])

    def exp_coordinates(self, base: Array, c: Array) -> Array:
        """The exponential of coordinates. Steps beyond `_LONGEST_LORENTZ` are shortened."""
        length = lengths(c)[..., None]
        distance = np.minimum(length, _LONGEST_LORENTZ)
        z = c * _over(np.sinh(distance), length)
        t, w = base[..., :1], base[..., 1:]
        return self._lift(z + w * (np.vecdot(w, z)[..., None] / (1 + t) + np.cosh(distance)))

    def _unboosted(self, base: Array, x: Array) -> Array:
        """The space part of x after the boost that maps `base` to the origin.

        It is computed from x − base, which keeps the digits of points that are close to each other.
        """
        t, w = base[..., :1], base[..., 1:]
        away = x[..., 1:] - w
        later = np.vecdot(away, x[..., 1:] + w)[..., None] / (x[..., :1] + t)
        away += w * (np.vecdot(w, away)[..., None] / (1 + t) - later)
        return away

    def log_coordinates(self, base: Array, x: Array) -> Array:
        z = self._unboosted(base, x)
        length = lengths(z)[..., None]
        z *= _over(np.arcsinh(length), length)
        return z

    def log_sum(self, base: Array, x: Array) -> Array:
        """The sum of logarithms as one boosted, weighted sum of rows, or row by row if `base` is far out."""
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


_RIM = 1 - 2.0**-40
"""Largest norm of a canonical point, at a distance of about 28 from the origin."""

_LONGEST_IN_BALL = 100.0
"""Longest step. It exceeds the distance between any two canonical points."""


def _gap(x: Array) -> Array:
    """1 − |x|², (..., 1), computed without cancellation near the unit sphere."""
    norm = lengths(x)[..., None]
    return (1 - norm) * (1 + norm)


@dataclass(frozen=True)
class PoincareBall(Hyperbolic):
    """The open unit ball of R^size with ⟨u, v⟩_w = λ²⟨u, v⟩, λ = 2/(1 − |w|²), of curvature −1.

    Utpala et al. (2023), Section 4.2, print 4⟨u, v⟩/(1 − |w|²), and a/4 as a unit vector at the origin
    instead of a/2. Distances are 2·asinh(|a − b|/√((1 − |a|²)(1 − |b|²))), which keeps its digits near the
    unit sphere.
    """

    size: Annotated[int, Option("numbers in a point", ge=1, le=10_000)]

    name = "poincare-ball"
    rules = ("finite", "inside the unit ball")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def reference(self) -> Array:
        return np.zeros(self.size)

    def random_point(self, rng: np.random.Generator) -> Array:
        return self.exp_coordinates(self.reference, rng.standard_normal(self.size) / np.sqrt(self.size))

    def broken_rule(self, x: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(x).all(axis=-1)
            return np.select([~finite, ~(lengths(x) < 1)], [1, 2], 0)

    def canonical(self, x: Array) -> Array:
        """The points, with norms shortened to `_RIM` if they are larger."""
        return x * np.minimum(1.0, _RIM / np.maximum(lengths(x), _RIM))[..., None]

    def exp_coordinates(self, base: Array, c: Array) -> Array:
        """base ⊕ u = (|s|² base + (1 − |base|²)s)/(|s|² + (1 − |base|²)(1 − |u|²)) with s = base + u.

        The vector u has length tanh(|c|/2). In this form nothing cancels near the unit sphere.
        """
        length = lengths(c)[..., None]
        distance = np.minimum(length, _LONGEST_IN_BALL)
        u = c * np.where(length > 0, np.tanh(distance / 2) / np.where(length > 0, length, 1.0), 0.5)
        s, gap = base + u, _gap(base)
        square = np.vecdot(s, s)[..., None]
        return self.canonical((square * base + gap * s) / (square + gap / np.cosh(distance / 2) ** 2))

    def log_coordinates(self, base: Array, x: Array) -> Array:
        """The distance times the direction of (−w) ⊕ x, w = base: that of (1 − |w|²)(x − w) − |x − w|² w."""
        away = x - base
        apart = lengths(away)[..., None]
        gap = _gap(base)
        direction = gap * away - apart * apart * base
        length = lengths(direction)[..., None]
        distance = 2 * np.arcsinh(apart / np.sqrt(gap * _gap(x)))
        direction *= distance / np.where(length > 0, length, 1.0)
        return direction

    def dist(self, a: Array, b: Array) -> Array:
        return 2 * np.arcsinh(lengths(a - b) / np.sqrt(_gap(a) * _gap(b))[..., 0])

    def project_tangent(self, base: Array, a: Array) -> Array:
        return a

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        return v * _gap(base)

    def coordinates(self, base: Array, v: Array) -> Array:
        return v * (2 / _gap(base))

    def from_coordinates(self, base: Array, c: Array) -> Array:
        return c * (_gap(base) / 2)

"""Hyperbolic space as the open unit ball."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from privest.arrays import Array, lengths
from privest.manifolds.base import Hyperbolic
from privest.options import Option

_RIM = 1 - 2.0**-40
"""Largest norm of a canonical point, at a distance of about 28 from the origin."""

_LONGEST = 100.0
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
        distance = np.minimum(length, _LONGEST)
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

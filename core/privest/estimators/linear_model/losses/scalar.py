"""Scalar losses of one score, convex or not, with bounds on their first three derivatives."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Protocol

import numpy as np
from numpy.polynomial import Polynomial
from scipy.special import expit

from privest.arrays import Array
from privest.privacy.clipped_sums import any_floats


class ScalarLoss(Protocol):
    """φ(t), twice differentiable, by its derivatives. Total: a t of which there is none gives NaN."""

    @property
    def gradient_bound(self) -> float:
        """sup |φ′|."""
        ...

    @property
    def curvatures(self) -> tuple[float, float]:
        """inf φ″, at most 0, and sup φ″."""
        ...

    @property
    def hessian_lipschitz(self) -> float:
        """sup |φ‴|, the Lipschitz constant of φ″."""
        ...

    def slope(self, t: Array) -> Array:
        """φ′(t)."""
        ...

    def curvature(self, t: Array) -> Array:
        """φ″(t)."""
        ...


@dataclass(frozen=True)
class SigmoidPolynomialLoss:
    """A loss of a margin t whose slope is a polynomial q in p = 1/(1 + eᵗ).

    As p′ = −p(1 − p), every derivative of it is one too: φ″ = −p(1 − p)·q′ and so on, and their suprema are
    those of polynomials on [0, 1], at an end or at a root of the next derivative.

    Attributes:
        coefficients: of q, from the constant on.
    """

    coefficients: tuple[float, ...]

    @cached_property
    def _derivatives(self) -> tuple[Polynomial, Polynomial, Polynomial]:
        falling = Polynomial([0.0, -1.0, 1.0])
        first = Polynomial(self.coefficients)
        second = falling * first.deriv()
        return first, second, falling * second.deriv()

    @cached_property
    def _ranges(self) -> list[tuple[float, float]]:
        """The range of each derivative: sums ask for them again and again."""
        return [_range(each) for each in self._derivatives]

    @property
    def gradient_bound(self) -> float:
        """sup |φ′|."""
        return max(map(abs, self._ranges[0]))

    @property
    def curvatures(self) -> tuple[float, float]:
        """inf φ″ and sup φ″."""
        return self._ranges[1]

    @property
    def hessian_lipschitz(self) -> float:
        """sup |φ‴|."""
        return max(map(abs, self._ranges[2]))

    def slope(self, t: Array) -> Array:
        """φ′(t)."""
        return self._derivatives[0](expit(-t))

    def curvature(self, t: Array) -> Array:
        """φ″(t)."""
        return self._derivatives[1](expit(-t))


def _range(polynomial: Polynomial) -> tuple[float, float]:
    """Least and largest value on [0, 1]."""
    roots = polynomial.deriv().roots()
    inside = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)]
    values = polynomial(np.concatenate([[0.0, 1.0], inside]))
    return float(values.min()), float(values.max())


LOGISTIC = SigmoidPolynomialLoss((0.0, -1.0))
"""log(1 + e⁻ᵗ), convex: bounds 1, [0, 1/4], 1/(6√3)."""

SIGMOID = SigmoidPolynomialLoss((0.0, -1.0, 1.0))
"""p, from 0 for right to 1 for wrong (Mason, Baxter, Bartlett and Frean 1999): bounds 1/4, ±1/(6√3), 1/8."""

SAVAGE = SigmoidPolynomialLoss((0.0, 0.0, -2.0, 2.0))
"""p² (Masnadi-Shirazi and Vasconcelos 2008, at half the margin): steepest 8/27, where p = 2/3."""


@dataclass(frozen=True)
class GemanMcClure:
    """c²/2·u²/(1 + u²) of a residual t, u = t/c: flat far out, but never quite (Geman and McClure 1987).

    With v = 1/(1 + u²), φ′ = t·v², steepest at u² = 1/3; φ″ = 4v³ − 3v², least at u = ±1; and
    φ‴ = 12u(u² − 1)v⁴/c, largest at u² = 1 − 2/√5, a root of 1 − 10u² + 5u⁴.

    Attributes:
        scale: c, in units of the residual.
    """

    scale: float

    @property
    def gradient_bound(self) -> float:
        """3√3·c/16."""
        return 3 * sqrt(3) * self.scale / 16

    @property
    def curvatures(self) -> tuple[float, float]:
        """−1/4 and 1."""
        return -0.25, 1.0

    @property
    def hessian_lipschitz(self) -> float:
        """2.334/c."""
        square = 1 - 2 / sqrt(5)
        return 12 * sqrt(square) * (1 - square) / (1 + square) ** 4 / self.scale

    @any_floats
    def slope(self, t: Array) -> Array:
        """φ′(t)."""
        return t * self._near(t) ** 2

    @any_floats
    def curvature(self, t: Array) -> Array:
        """φ″(t)."""
        near = self._near(t)
        return (4 * near - 3) * near**2

    def _near(self, t: Array) -> Array:
        """v."""
        return 1 / (1 + (t / self.scale) ** 2)

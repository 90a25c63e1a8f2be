"""Losses of a residual, for rows whose label is a number: more cases for the linear losses of core."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.privacy.clipped_sums import any_floats
from privest_papers.nonconvex_losses import LinearLoss


class RegressionLoss(LinearLoss):
    """φ(y − w·x) of rows whose label y is a number."""

    def seen(self, point: Array, rows: Array) -> tuple[Array, Array]:
        """y − w·x, and −x."""
        z = -self.feature_map.features(rows)
        return rows[:, -1] + np.vecdot(z, point), z


@dataclass(frozen=True)
class Biweight:
    """Tukey's loss of a residual t, c²/6·(1 − (1 − u²)³) for u = t/c within ±1, and flat beyond.

    φ′ = t(1 − u²)², steepest at u² = 1/5; φ″ = (1 − u²)(1 − 5u²), least at u² = 3/5; φ‴ = (20u³ − 12u)/c,
    largest at u = 1, from inside (Beaton and Tukey 1974).

    Attributes:
        scale: c, in units of the residual.
    """

    scale: float

    @property
    def gradient_bound(self) -> float:
        """16c/(25√5)."""
        return 16 * self.scale / (25 * sqrt(5))

    @property
    def curvatures(self) -> tuple[float, float]:
        """−4/5 and 1."""
        return -0.8, 1.0

    @property
    def hessian_lipschitz(self) -> float:
        """8/c."""
        return 8 / self.scale

    @any_floats
    def slope(self, t: Array) -> Array:
        """φ′(t)."""
        return t * self._left(t) ** 2

    @any_floats
    def curvature(self, t: Array) -> Array:
        """φ″(t)."""
        left = self._left(t)
        return left * (5 * left - 4)

    def _left(self, t: Array) -> Array:
        """1 − u², or 0."""
        return np.maximum(1 - (t / self.scale) ** 2, 0.0)

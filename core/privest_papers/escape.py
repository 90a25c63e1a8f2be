"""A linear classifier by descent on a loss that need not be convex.

A noisy Hessian tells the step that leaves a saddle point.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from typing import Self, cast

import numpy as np

from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import Fit, same_steps
from privest.estimators.linear_model.linear_solver import Variances
from privest.estimators.linear_model.logistic_spec import LogisticSpec, NonconvexLoss
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle
from privest_papers.nonconvex import ON_THE_WAY, Nonconvex
from privest_papers.nonconvex_losses import ClippedGradient, ClippedHessian, LinearQuery


def noise_level(deviation: float, width: int) -> float:
    """The largest eigenvalue to expect of noise alone, σ√(2d).

    Args:
        deviation: σ, of the noise on a Hessian's coordinates under tr(ab): σ on its diagonal, σ/√2 off it.
        width: d, rows of the Hessian.
    """
    return deviation * sqrt(2 * width)


def way_down(gradient: Array, hessian: Array, *, hessian_lipschitz: float, loud: float) -> Array:
    """The step from a point along the curvatures there that are surely negative; 0 where none is.

    Along a unit u with curvature −c and descent, f falls by at least c·r²/2 − ρ·r³/6 within r, which is most,
    2c³/(3ρ²), at r = 2c/ρ: the second-order step of Nesterov and Polyak (2006) from a saddle point. Here u
    has a part in every eigenvector below the noise, in proportion to its eigenvalue and down the gradient.

    Args:
        gradient: ∇f there, (d,), noisy: where it is nothing but noise, that tosses the coin.
        hessian: ∇²f there, (d, d), noisy.
        hessian_lipschitz: ρ, Lipschitz constant of the Hessian.
        loud: size of eigenvalues that noise alone may have.

    Returns:
        (d,) change of the point: post-processing of what is noisy.
    """
    values, vectors = np.linalg.eigh(hessian)
    falling = np.where(values < -loud, -values, 0.0)
    down = vectors @ np.where(gradient @ vectors > 0, -falling, falling)
    length = float(np.linalg.norm(down))
    if length == 0.0:
        return down
    unit = down / length
    curvature = -float(unit @ hessian @ unit)
    return 2 * curvature / hessian_lipschitz * unit


def descend(
    start: Array,
    gradient: Callable[[Array], Array],
    hessian: Callable[[Array], Array],
    *,
    step: float,
    count: int,
    escapes: frozenset[int],
    hessian_lipschitz: float,
    loud: float = inf,
) -> Array:
    """Descent by noisy gradients, with `way_down` on top of the steps that a Hessian was planned for.

    Args:
        start: (d,) first point.
        gradient: noisy ∇f at a point, asked for once a step.
        hessian: noisy ∇²f at a point, (d, d), asked for once at each of `escapes`.
        step: η of w ← w − η·∇f.
        count: T, number of steps.
        escapes: the steps, from 0 on, that take a Hessian too, whatever their gradients are.
        hessian_lipschitz: ρ.
        loud: size of eigenvalues of a Hessian that noise alone may have.

    Returns:
        (d,) the last point.
    """
    at = start
    for place in range(count):
        slope = gradient(at)
        ahead = at - step * slope
        if place in escapes:
            ahead = ahead + way_down(slope, hessian(at), hessian_lipschitz=hessian_lipschitz, loud=loud)
        at = ahead
    return at


_NOISE = 0.04
"""Standard deviation that all steps leave on a score, in units of √(n·μ): with more records weights grow
further, and the more noise they bear."""

_STEPS, _MOST_STEPS = 20, 200
_PURE_STEPS = 5
"""Number of steps with δ = 0, where noise grows with that number and not with its root."""

_LONGEST = 30.0
"""Step on a bounded loss, in units of 1/M: most of its way is through margins where it is nearly flat."""

_HESSIAN_SHARE = 0.05
"""Share of μ² (or of ε) for the Hessian halfway."""

_LOUD = 0.1
"""Noise on its eigenvalues, in units of the largest that a row can have, with which it shows nothing."""

_MOST_FEATURES = 2_000
"""Most features with which a Hessian is released; it has a number for every pair."""


@dataclass(frozen=True)
class EscapeSolver(Nonconvex):
    """Descent from zero on clipped gradients, with one noisy Hessian halfway to leave a saddle point by.

    At zero a bounded loss pulls all rows alike: the first step goes along the difference of class means, as
    that of a convex fit would, so that no part of the budget is kept for a start. Whether there is a Hessian
    is public: not where noise would drown it, nor with a great many features.

    What is fixed was chosen once, on synthetic rows and digits; all else follows from n, the number of
    features, and the requested privacy.

    Attributes:
        budget: what may be spent.
    """

    budget: PrivacyBudget

    @classmethod
    def of(
        cls,
        spec: LogisticSpec,
        shape: LabelledMetadata,
        target: PrivacyTarget,
        budget: PrivacyBudget,
        penalty: float,
    ) -> Self:
        """Return the solver of a spec that was not refused."""
        del target
        problem = (shape, cast("NonconvexLoss", spec.loss), penalty, spec.intercept)  # others were refused
        return cls(*problem, budget)

    @property
    def _clip(self) -> float:
        """G of a row's part: no gradient is longer."""
        return self.objective.profile.gradient_bound

    @property
    def pulls(self) -> ClippedGradient:
        """The statistic of gradients."""
        return ClippedGradient(self.objective.size)

    @property
    def curvatures(self) -> ClippedHessian:
        """The statistic of Hessians."""
        return ClippedHessian(self.objective.size, *self.objective.profile.curvatures)

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return {"gradient": self.pulls, "hessian": self.curvatures}

    @property
    def _longest(self) -> float:
        """Step: 1/M on what is convex but for its penalty, longer on a bounded loss."""
        return (_LONGEST if self.loss != "logistic-nonconvex" else 1.0) / self.objective.gradient_lipschitz

    @property
    def _noise(self) -> float:
        """Standard deviation that all steps may leave on a score."""
        whole = self.budget.release(self.pulls, "gradient", self._clip)
        return _NOISE * sqrt(whole.diameter / whole.deviation)

    def _gradients(self, share: float, count: int) -> NoisySum:
        return self.budget.release(self.pulls, "gradient", self._clip, share=share, count=count)

    @property
    def steps(self) -> int:
        """Number of steps; the noise limits how far they may go, and `_longest` how far each goes."""
        if self.budget.pure:
            return _PURE_STEPS
        # T steps of length η leave √T·η times the noise of one, which itself is √T times that of the whole.
        way = self._noise / self._gradients(1.0, 1).deviation
        return min(max(ceil(way / self._longest), _STEPS), _MOST_STEPS)

    def releases(self) -> tuple[NoisySum, ...]:
        """Gradients that share the budget evenly, and among them, if it can show anything, a Hessian.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        steps, clip = self.steps, self.objective.hessians_clip
        if self.objective.size > _MOST_FEATURES:
            return (self._gradients(1.0, steps),)
        hessian = self.budget.release(self.curvatures, "hessian", clip, share=_HESSIAN_SHARE)
        if noise_level(hessian.deviation, self.objective.size) > _LOUD * clip:
            return (self._gradients(1.0, steps),)
        left, half = (1 - _HESSIAN_SHARE) / steps, steps // 2
        return (
            self._gradients(left * half, half),
            hessian,
            self._gradients(left * (steps - half), steps - half),
        )

    def run(self, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap) -> Fit:
        """The last iterate. Its noise is what the steps added, not what curvature made of that on the way."""
        loss, symmetric = replace(self.objective, feature_map=feature_map), self.curvatures.symmetric
        gradients = [release for release in releases if release.statistic == "gradient"]
        hessians = [release for release in releases if release.statistic == "hessian"]
        count = sum(release.count for release in gradients)
        step = self._step(releases)

        def gradient(at: Array) -> Array:
            return loss.penalty_gradient(at) - gate.mean(LinearQuery(loss, at))

        def hessian(at: Array) -> Array:
            noisy = symmetric.matrix(gate.mean(LinearQuery(loss, at), "hessian"))
            return noisy + np.diag(loss.penalty_curvatures(at))

        weights = descend(
            np.zeros(loss.size),
            gradient,
            hessian,
            step=step,
            count=count,
            escapes=frozenset({gradients[0].count} if hessians else ()),
            hessian_lipschitz=loss.hessian_lipschitz,
            loud=max((noise_level(release.deviation, loss.size) for release in hessians), default=0.0),
        )
        return same_steps(feature_map, weights[None], self.noise_variance(releases))

    def _step(self, releases: Sequence[Release]) -> float:
        """Step of the run."""
        return min(self._noise / _spread(releases), self._longest)

    def noise_variance(self, releases: Sequence[Release]) -> float:
        """Variance of a weight, by what the steps add."""
        return (self._step(releases) * _spread(releases)) ** 2

    def forecast(self, releases: Sequence[Release]) -> Variances:
        """Return how far a coefficient is expected to be off."""
        unit = float(self.feature_map.units[0]) ** 2
        variance = unit * self.noise_variance(releases)
        return Variances(variance, variance, ON_THE_WAY)


def _spread(releases: Sequence[Release]) -> float:
    """Standard deviation of the sum of all gradients' noise."""
    gradients = [release for release in releases if release.statistic == "gradient"]
    return sqrt(sum(release.count * release.deviation**2 for release in gradients))

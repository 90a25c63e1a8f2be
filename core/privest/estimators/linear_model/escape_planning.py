"""A linear classifier by descent on a loss that need not be convex: its constants, releases, and the run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.linear_model.escape import descend, noise_level
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import Fit, same_steps
from privest.estimators.linear_model.losses.linear import ClippedGradient, ClippedHessian, LinearQuery
from privest.estimators.linear_model.nonconvex import Nonconvex
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle

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


def _spread(releases: Sequence[Release]) -> float:
    """Standard deviation of the sum of all gradients' noise."""
    gradients = [release for release in releases if release.statistic == "gradient"]
    return sqrt(sum(release.count * release.deviation**2 for release in gradients))

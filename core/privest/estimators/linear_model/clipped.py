"""Logistic regression by descent on clipped gradients, in steps as long as their noise allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import SPREAD, Fit
from privest.estimators.linear_model.losses.logistic import Classifier, LogisticGradient
from privest.estimators.linear_model.newton_planning import TIGHT
from privest.estimators.linear_model.newton_start import INTERCEPT_VARIANCE, plain_fit
from privest.metadata import LabelledMetadata
from privest.privacy.budget import PrivacyBudget
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle
from privest.privacy.statistic import AnyStatistic

_CLIP = 0.1
"""Clip of gradients: all rows that are wrong, or right by log-odds below 2.2, pull alike."""

NOISE = 1.4
"""Standard deviation that all steps leave on a score: with more, noise decides; with less, the start."""

_STEPS, _MOST_STEPS = 20, 1_000
_PURE_STEPS = 5
"""Number of steps with δ = 0, where noise grows with that number and not with its root."""

_LONGEST = 20.0
"""Step, in units of the clip: what is gone in one step cannot be corrected within it."""


@dataclass(frozen=True)
class ClippedSolver:
    """Plain descent from zero whose step follows from the noise, not from the curvature.

    The sum of all noise is to move a score by about 1.4, the scale on which the logistic function turns: a
    longer way would be ruled by noise, a shorter one would leave what the data could still tell. A clip well
    below 1 makes the loss bounded in slope, so that few rows have much to say, and needs the less noise.

    Attributes:
        shape: public facts of the data.
        budget: what may be spent.
        intercept: whether there is one.
    """

    shape: LabelledMetadata
    budget: PrivacyBudget
    intercept: bool

    @property
    def feature_map(self) -> FeatureMap:
        """The map from a row to the features that the solver sees."""
        return FeatureMap.of(self.shape, self.shape.usual_length * TIGHT, intercept=self.intercept)

    @property
    def loss(self) -> LogisticGradient:
        """The statistic of gradients."""
        return LogisticGradient(self.feature_map.size, len(self.shape.classes))

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return {"gradient": self.loss}

    @property
    def steps(self) -> int:
        """Number of steps; the noise limits how far they may go, and `_LONGEST` how far each goes."""
        allowed = self.budget
        if allowed.pure:
            return _PURE_STEPS
        way = NOISE / 2 * allowed.n * allowed.whole
        return min(max(ceil(way / _LONGEST), _STEPS), _MOST_STEPS)

    def releases(self) -> tuple[NoisySum, ...]:
        """The gradients, which share the budget evenly.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        return (self.budget.release(self.loss, "gradient", _CLIP, count=self.steps),)

    def run(self, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap) -> Fit:
        """The last iterate; its noise is that of all steps, as none of them spreads what was there before."""
        (release,) = releases
        step = NOISE * release.divisor / sqrt(release.count * release.variance)
        weights: Array = np.zeros(self.loss.shape)
        for _ in range(release.count):
            noisy = gate.mean(Classifier(feature_map, weights))
            weights = weights + step * noisy.reshape(weights.shape)
        found = weights.reshape(-1, feature_map.size)
        noise = NOISE**2 * np.eye(feature_map.size)
        unseen = self._unseen(feature_map)
        # How far the steps went tells sides and no log-odds: the scale may be off by all of itself.
        return Fit(
            feature_map,
            found,
            error=lambda column: noise + unseen + np.outer(found[column], found[column]),
            noise=lambda _: noise,
            sampling=None,
            of=plain_fit(0.0),
            covers=True,
            believes=True,
            unknown=(
                "the error beside the noise is not measured: standardised coefficients are taken to be of "
                "the order of one, and the scale of the answer to be unknown",
            ),
        )

    def _unseen(self, feature_map: FeatureMap) -> Array:
        """(size, size) covariance of weights before anything is known."""
        usual = 1.0 if self.shape.scale is not None else self.shape.usual_length / sqrt(self.shape.dim)
        spread = np.full(feature_map.size, (SPREAD / usual) ** 2)
        if feature_map.constant:
            spread[-1] = INTERCEPT_VARIANCE
        return np.diag(spread / feature_map.units**2)

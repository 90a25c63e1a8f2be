"""Logistic regression by Newton steps: what they see of a row, their releases, and the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import Fit
from privest.estimators.linear_model.losses.logistic import Classifier, ClassMoments, LogisticGradient
from privest.estimators.linear_model.newton import Moment, ScoreModel, matched, mean_of
from privest.metadata import LabelledMetadata
from privest.privacy.budget import PrivacyBudget
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle
from privest.privacy.statistic import AnyStatistic

TIGHT, _WIDE = 0.6, 3.0
"""Least and largest length to which rows are shortened, over the usual one. With much noise, rows are
shortened most, as their direction is what tells classes apart."""

_LOUD = 0.03
"""Noise on the moment's eigenvalues from which on rows are shortened most."""

_STEPS = 3
"""Newton steps on the data, after those on moments; without noise the third was exact to a hundredth."""

_AVERAGED = 2
"""Number of last steps whose weights are averaged."""

_WORTHWHILE = 0.005
"""Noise on the moment's eigenvalues below which such steps find more than they lose."""

_HEAVY = 0.7
"""Noise on the moment's eigenvalues below which two classes' second moment is worth noise of its own."""


@dataclass(frozen=True)
class NewtonSolver:
    """Weights matched to class means and a second moment, which come in one release, and Newton steps.

    What is fixed was chosen once, on the benchmark's data and on synthetic rows; all else follows from n, the
    number of features and of classes, and the requested privacy.

    Attributes:
        shape: public facts of the data.
        budget: what may be spent.
        penalty: λ.
        intercept: whether there is one.
    """

    shape: LabelledMetadata
    budget: PrivacyBudget
    penalty: float
    intercept: bool

    @property
    def _columns(self) -> int:
        """Columns of weights: one with two classes, else one for each."""
        count = len(self.shape.classes)
        return 1 if count == 2 else count

    @property
    def noise_level(self) -> float:
        """Expected largest eigenvalue of the noise on a second moment that has the whole budget and ρ = ½.

        With more than two classes √(K/2) times as much, as their gradients have more coordinates.
        """
        allowed, size = self.budget, self.shape.dim + self.intercept
        coordinates = size * (size + 1) / 2 + self._columns * size
        single = sqrt(8.0) * (sqrt(coordinates + 1) if allowed.pure else 1.0) / (allowed.n * allowed.whole)
        return single * sqrt(2 * size) * sqrt(max(self._columns, 2) / 2)

    @property
    def steps(self) -> int:
        """Number of Newton steps on the data."""
        return _STEPS if self.noise_level < _WORTHWHILE else 0

    @property
    def feature_map(self) -> FeatureMap:
        """The map from a row to the features that the solver sees; less noise shortens less."""
        shape = self.shape
        tight = min(max(TIGHT * (_LOUD / self.noise_level) ** 0.3, TIGHT), _WIDE)
        return FeatureMap.of(
            shape,
            bound=shape.usual_length * (tight if shape.norm_bound is None else min(tight, 1.0)),
            intercept=self.intercept,
        )

    @property
    def moments(self) -> ClassMoments:
        """The statistic of the moments that weights are matched to."""
        heavy = self._columns == 1 and self.noise_level * 0.75 < _HEAVY
        return ClassMoments(self.feature_map.size, len(self.shape.classes), 1.0 if heavy else 0.5)

    @property
    def loss(self) -> LogisticGradient:
        """The statistic of gradients."""
        return LogisticGradient(self.feature_map.size, len(self.shape.classes))

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return {"moments": self.moments, "gradient": self.loss}

    def releases(self) -> tuple[NoisySum, ...]:
        """The moments, and the gradients of the steps on half of the budget.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        allowed, moments, loss, steps = self.budget, self.moments, self.loss, self.steps
        if not steps:
            return (allowed.release(moments, "moments", moments.longest),)
        return (
            allowed.release(moments, "moments", moments.longest, share=0.5),
            allowed.release(loss, "gradient", loss.longest, share=0.5, count=steps),
        )

    def run(self, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap) -> Fit:
        """The weights of the design's vectors, with what is known of their error."""
        moments, steps = self.moments, self.steps
        first, moment = released(moments, releases[0], gate, feature_map, self.penalty)
        if self._columns > 1:
            first = first - first.mean(axis=0)
        mean = mean_of(moment, feature_map.last)
        weights, shaken = matched(first, moment, mean, deviation=releases[0].deviation)
        # With more than two classes a gradient's mean over them is its noise alone, and moves nothing.
        free = self._columns - (self._columns > 1)
        passed: list[Array] = []
        left = 0.0
        for _ in range(steps):
            at = Classifier(feature_map, weights.reshape(self.loss.shape))
            gradient = gate.mean(at).reshape(weights.shape)
            gradient = gradient - 2 * self.penalty * weights
            if self._columns > 1:
                gradient = gradient - gradient.mean(axis=0)
            model = ScoreModel(weights, moment, mean)
            weights = weights + model.step(gradient)
            passed.append(weights)
            left = float(np.sum(gradient * gradient)) / (free * gradient.shape[1])
        if passed:
            # Where the last steps differ by their noise alone, the last gradient is its own noise less that
            # of the step before. What it is beyond that, steps have not come to the end of, as features are
            # not Gaussian or noise has turned the steps: errors are larger in proportion (Birge 1932).
            weights = np.mean(passed[-_AVERAGED:], axis=0)
            noise = releases[-1].deviation
            excess = max(1.0, left / (2 * noise**2))
            shaken = noise * sqrt(excess / _AVERAGED) * np.eye(self._columns)
        model, n = ScoreModel(weights, moment, mean), gate.share * self.budget.n
        return Fit(
            feature_map,
            weights,
            noise=lambda column: model.squared_inverse(column, shaken),
            sampling=lambda column: model.sampling(column) / n,
        )


def released(
    moments: ClassMoments, release: Release, gate: Oracle, feature_map: FeatureMap, penalty: float
) -> tuple[Array, Moment]:
    """The gate's next answer on moments: (columns, size) class means, and the second moment."""
    first, second = moments.parts(gate.mean(feature_map, "moments"))
    return first, Moment(second, release.deviation / moments.scale, 2 * penalty * moments.factor)

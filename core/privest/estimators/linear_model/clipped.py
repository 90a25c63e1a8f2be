"""Logistic regression by descent on clipped gradients, in steps as long as their noise allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Self

import numpy as np

from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.estimators.base import require
from privest.estimators.linear_model.feature_map import TIGHT, FeatureMap, ProjectedMap
from privest.estimators.linear_model.fit import SPREAD, Fit
from privest.estimators.linear_model.linear_solver import LARGE, ORDER, SolverDefaults, Variances
from privest.estimators.linear_model.logistic_spec import LogisticSpec
from privest.estimators.linear_model.losses.curved import CurvedGradient
from privest.estimators.linear_model.losses.logistic import Classifier, LogisticGradient
from privest.estimators.linear_model.losses.spread import ClassCounts
from privest.estimators.linear_model.newton import labels_share, plain_fit
from privest.estimators.linear_model.posterior import Evidence, Prior, posterior_of
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle

_CLIP = 0.1
"""Clip of gradients: all rows that are wrong, or right by log-odds below 2.2, pull alike."""

NOISE = 1.4
"""Standard deviation that all steps leave on a score: with more, noise decides; with less, the start."""

_STEPS, _MOST_STEPS = 20, 1_000
_PURE_STEPS = 5
"""Number of steps with δ = 0, where noise grows with that number and not with its root."""

_LONGEST = 20.0
"""Step, in units of the clip: what is gone in one step cannot be corrected within it."""


_SCALE_SHARES = (0.04, 0.08)
"""Shares of the steps that find scale and intercept."""

_SCALE, _INTERCEPT = 0.5, 0.5
"""Standard deviation before these steps of the scale, over that of the last iterate, and of the intercept."""

_MOST_LABELS = 0.1
"""Most of ε or of μ² for the number of records of each class, as an intercept decides few sides."""

_INTERCEPT_VARIANCE = 16.0
"""Variance of an intercept before anything is known."""


@dataclass(frozen=True)
class ClippedSolver(SolverDefaults):
    """Plain descent from zero whose step follows from the noise, not from the curvature.

    The sum of all noise is to move a score by about 1.4, the scale on which the logistic function turns: a
    longer way would be ruled by noise, a shorter one would leave what the data could still tell. A clip well
    below 1 makes the loss bounded in slope, so that few rows have much to say, and needs the less noise.

    The intercept starts at the log odds of the classes, whose numbers are released first. In the end weights
    of features are drawn to 0 by what the noise alone has of their length, the less the more even classes
    are. Of two classes two cheap steps then look for the scale of features and the intercept.

    Attributes:
        shape: public facts of the data.
        budget: what may be spent.
        intercept: whether there is one.
    """

    shape: LabelledMetadata
    budget: PrivacyBudget
    intercept: bool

    @classmethod
    def refuse(cls, spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> None:
        """Refuse what does not go with this solver.

        Raises:
            ValueError: something does not.
        """
        del shape, target
        require(
            spec.penalty is None,
            "penalty belongs to the other solvers: name one, as clipped is held back by its noise",
        )

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
        del target, penalty
        return cls(shape, budget, spec.intercept)

    def forecast(self, releases: Sequence[Release]) -> Variances:
        """Return how far a coefficient is expected to be off."""
        del releases
        unit = float(self.feature_map.units[0]) ** 2
        known = NOISE**2 * unit + SPREAD**2
        return Variances(known, known + 2 * LARGE**2, f"{ORDER}; nothing is released that shows it")

    @property
    def feature_map(self) -> FeatureMap:
        """The map from a row to the features that the solver sees."""
        return FeatureMap.of(self.shape, self.shape.usual_length * TIGHT, intercept=self.intercept)

    @property
    def loss(self) -> LogisticGradient:
        """The statistic of gradients."""
        return LogisticGradient(self.feature_map.size, len(self.shape.classes))

    @property
    def labels(self) -> ClassCounts:
        """The statistic of the number of records of each class."""
        return ClassCounts(len(self.shape.classes))

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return {"labels": self.labels, "gradient": self.loss, "curved": CurvedGradient(2, 2)}

    @property
    def steps(self) -> int:
        """Number of steps; the noise limits how far they may go, and `_LONGEST` how far each goes."""
        allowed = self.budget
        if allowed.pure:
            return _PURE_STEPS
        way = NOISE / 2 * allowed.n * allowed.whole
        return min(max(ceil(way / _LONGEST), _STEPS), _MOST_STEPS)

    def releases(self) -> tuple[NoisySum, ...]:
        """Return the number of labels, and the gradients, which share the rest of the budget evenly.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        allowed, loss, scale = self.budget, self.loss, CurvedGradient(2, 2)
        labels = min(labels_share(allowed), _MOST_LABELS)
        rest = 1.0 - labels - sum(self._scale_shares)
        return (
            allowed.release(self.labels, "labels", 1.0, share=labels),
            allowed.release(loss, "gradient", _CLIP, share=rest, count=self.steps),
            *(allowed.release(scale, "curved", scale.longest, share=each) for each in self._scale_shares),
        )

    @property
    def _scale_shares(self) -> tuple[float, ...]:
        """Shares of the steps that find the scale; of more than two classes there are none."""
        return _SCALE_SHARES if len(self.shape.classes) == 2 and self.intercept else ()

    def run(self, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap) -> Fit:
        """Return the last iterate, shortened; no step spreads the noise of those before."""
        counted, release, *scaling = releases
        shares, _ = self.labels.shares(gate.mean(feature_map, "labels"), counted.deviation)
        step = NOISE * release.divisor / sqrt(release.count * release.variance)
        weights = self._start(shares, feature_map)
        for _ in range(release.count):
            noisy = gate.mean(Classifier(feature_map, weights))
            weights = weights + step * noisy.reshape(weights.shape)
        found = weights.reshape(-1, feature_map.size)
        shortened = self._shortened(found, len(feature_map.mean), shares)
        found = self._scaled(found, shortened, scaling, gate, feature_map) if scaling else shortened
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
            has_prior=True,
            unknown=(
                "the error beside the noise is not measured: standardised coefficients are taken to be of "
                "the order of one, and the scale of the answer to be unknown",
            ),
        )

    def _start(self, shares: Array, feature_map: FeatureMap) -> Array:
        """Return the weights by which all rows have the shares of the classes as chances."""
        weights: Array = np.zeros(self.loss.shape)
        if feature_map.constant:
            odds = np.log(shares)
            weights[..., -1] = (
                odds[1] - odds[0] if len(odds) == 2 else odds - odds.mean()
            ) / feature_map.last
        return weights

    @staticmethod
    def _shortened(weights: Array, features: int, shares: Array) -> Array:
        """Return weights of which those of features lack what the noise has of their length.

        Of even classes all is left, as an uncertain intercept would decide sides that their direction tells.
        Where one class has nearly all records its share says nearly all, and noise would only spoil that.
        """
        even = (1.0 - float(shares @ shares)) * len(shares) / (len(shares) - 1)
        own = weights[:, :features]
        factor = 1.0 - own.size * NOISE**2 / max(float(np.sum(own**2)), 1e-300)
        return np.hstack([max(factor, even) * own, weights[:, features:]])

    @staticmethod
    def _scaled(
        weights: Array, shortened: Array, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap
    ) -> Array:
        """Return the weights in the direction of these, with the scale and the intercept that fit best.

        A logistic regression of two coefficients, by Newton steps: noise on it does not grow with the number
        of features.
        """
        direction = np.zeros((feature_map.size, 2))
        length = max(float(np.linalg.norm(weights[0, :-1])), 1e-300)
        direction[:-1, 0], direction[-1, 1] = weights[0, :-1] / length, 1.0
        start = np.array([[direction[:, 0] @ shortened[0], shortened[0, -1]]])
        signal = float(np.linalg.norm(shortened[0, :-1])) / length
        spread = np.array([_SCALE * length * signal, _INTERCEPT / feature_map.last])
        prior = Prior(np.eye(2), 1 / spread**2, np.zeros(2), 0)
        loss, at, evidence = CurvedGradient(2, 2), start, list[Evidence]()
        for release in releases:
            asked = Classifier(ProjectedMap(feature_map, direction), at[0])
            seen, deviation = loss.parts(gate.mean(asked, "curved")), release.deviation
            evidence.append(Evidence(at, np.ones(2), seen, deviation, deviation / loss.curvature_weight))
            at = posterior_of(start, prior, evidence).mean
        return at @ direction.T

    def _unseen(self, feature_map: FeatureMap) -> Array:
        """(size, size) covariance of weights before anything is known."""
        usual = 1.0 if self.shape.scale is not None else self.shape.usual_length / sqrt(self.shape.dim)
        spread = np.full(feature_map.size, (SPREAD / usual) ** 2)
        if feature_map.constant:
            spread[-1] = _INTERCEPT_VARIANCE
        return np.diag(spread / feature_map.units**2)

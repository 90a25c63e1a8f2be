"""Logistic regression by Newton steps: what they see of a row, their releases, and the run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.linear_model.belief import Belief, Evidence, Prior, concluded
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import Fit
from privest.estimators.linear_model.losses.curved import CurvedGradient
from privest.estimators.linear_model.losses.logistic import Classifier, ClassMoments
from privest.estimators.linear_model.newton import Moment, ScoreModel, matched, mean_of
from privest.estimators.linear_model.newton_start import (
    before_any,
    far_rows_lost,
    first_guess,
    hides_a_class,
    weighted_fit,
)
from privest.metadata import LabelledMetadata
from privest.privacy.budget import PrivacyBudget
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle
from privest.privacy.statistic import AnyStatistic

TIGHT = 0.6
"""Length to which rows are shortened where noise rules, over the usual one: their direction is what tells
classes apart."""

_BOUND = 1.5
"""Length from which on rows have less weight, over the usual one: of rows as they usually are few are longer,
and noise is in proportion to it."""

_DROWNED, _LOUD = 2.0, 0.4
"""Noise on the moment's eigenvalues, over their mean: from which on a Hessian shows nothing, and from which
on one step is enough."""

_SHARES = {0: (1.0,), 1: (0.7, 0.3), 6: (0.1, 0.02, 0.04, 0.06, 0.1, 0.18, 0.5)}
"""Shares of the moments and of each step, by the number of steps: the first need only come near."""

_MOST_COEFFICIENTS = 600
"""Most coefficients of all classes whose Hessian is released."""

_MUCH = 0.1
"""Part of all weight, taken off rows that are far out, from which on an answer warns of it."""

_TOGETHER = 0.05
"""Variance along some direction of standardised features below which they are said to hang together."""

_HANG_TOGETHER = (
    "features hang together, or the noise hides that they do not: along what they share coefficients may be "
    "much larger, and further off, than is stated"
)

_CURVATURE_HIDDEN = (
    "the noise hides the curvature of the loss along some direction of the coefficients: how far off they "
    "may be along it is stated as for coefficients of usual size, and larger ones may be further off"
)

_FURTHEST = 1.5
"""Root mean square by which a step may move scores."""


@dataclass(frozen=True)
class NewtonSolver:
    """Weights from class means and a second moment, which come in one release, and Newton steps on the data.

    A step is a gradient and a Hessian in one release. The first steps begin where the noise leaves them, and
    the last is the best of all that was seen: see `belief`. With too much noise for a Hessian there are
    moments alone. What is fixed was chosen once, on benchmarks' data and on synthetic rows; all else follows
    from n, the number of features and of classes, and the requested privacy.

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
    def _size(self) -> int:
        """Length of a row's vector."""
        return self.shape.dim + self.intercept

    @property
    def relative_noise(self) -> float:
        """Noise on a second moment that has the whole budget: expected largest eigenvalue over their mean.

        With more than two classes √(K/2) times as much, as their gradients have more coordinates.
        """
        allowed, size = self.budget, self._size
        coordinates = size * (size + 1) / 2 + self._columns * size
        single = sqrt(8.0) * (sqrt(coordinates + 1) if allowed.pure else 1.0) / (allowed.n * allowed.whole)
        return single * sqrt(2 * size) * sqrt(max(self._columns, 2) / 2) * size

    @property
    def steps(self) -> int:
        """Number of Newton steps on the data."""
        noise = self.relative_noise
        if noise > _DROWNED or self._columns * self._size > _MOST_COEFFICIENTS:
            return 0
        return 1 if noise > _LOUD else 6

    @property
    def bound(self) -> float:
        """R, the length from which on rows have less weight: `norm_bound`, or 1.5 times the usual one."""
        return self.shape.usual_length * (_BOUND if self.shape.norm_bound is None else 1.0)

    @property
    def feature_map(self) -> FeatureMap:
        """What is seen of a row; where noise hides curvature, of one that is shortened."""
        if self.steps:
            plain = FeatureMap.of(self.shape, bound=self.bound, intercept=self.intercept)
            return replace(plain, usual=self.bound)
        return FeatureMap.of(self.shape, bound=self.shape.usual_length * TIGHT, intercept=self.intercept)

    @property
    def moments(self) -> ClassMoments:
        """What weights are matched to."""
        return ClassMoments(self._size, len(self.shape.classes))

    @property
    def loss(self) -> CurvedGradient:
        """The statistic of steps."""
        return CurvedGradient(self._size, len(self.shape.classes))

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """What the gate may sum."""
        return {"moments": self.moments, "curved": self.loss}

    def releases(self) -> tuple[NoisySum, ...]:
        """The moments, and the gradients and Hessians of the steps.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        allowed, moments, loss = self.budget, self.moments, self.loss
        share, *later = _SHARES[self.steps]
        return (
            allowed.release(moments, "moments", moments.longest, share=share),
            *(allowed.release(loss, "curved", loss.longest, share=each) for each in later),
        )

    def run(self, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap) -> Fit:
        """The weights of the design's vectors, with what is known of their error."""
        moments, n = self.moments, gate.share * self.budget.n
        first, moment = released(moments, releases[0], gate, feature_map, self.penalty)
        if self._columns > 1:
            first = first - first.mean(axis=0)
        if self.steps == 0:
            return self._by_moments(first, moment, feature_map, releases[0].deviation, n)
        deviation, units = releases[0].deviation, feature_map.units
        guess = first_guess(first, moment, deviation, feature_map)
        prior = self._prior(moment, feature_map, guess)
        if self.steps == 1:
            start = matched(first, moment, mean_of(moment, feature_map.last), deviation=deviation)[0] * units
        else:
            start = concluded(guess.at, prior, [guess]).mean
        at, evidence = start, list[Evidence]()
        for place, release in enumerate(releases[1:], start=2):
            evidence.append(self._evidence(at, feature_map, release, gate))
            belief = concluded(start, prior, evidence)
            if place == len(releases):
                fit = self._concluded(belief, feature_map, n, evidence[-1].seen.taken)
                hidden = hides_a_class(first, deviation, feature_map)
                together = (_HANG_TOGETHER,) if self._hang_together(moment) else ()
                curvature = (_CURVATURE_HIDDEN,) if belief.hidden else ()
                return replace(fit, hidden=hidden, warnings=fit.warnings + together + curvature)
            way = (belief.mean - at) / units
            moved = sqrt(float(np.sum((way @ moment.clean) * way)) / len(way))
            at = at + min(1.0, _FURTHEST / max(moved, 1e-300)) * (belief.mean - at)
        raise ValueError("the plan has no step")

    def _prior(self, moment: Moment, feature_map: FeatureMap, guess: Evidence) -> Prior:
        """What is believed before any step; of how large coefficients are, only if more than one follows."""
        learned = self._columns == 1 and self.steps > 1
        return before_any(self.shape, self.penalty, moment, feature_map, guess.at[:, -1], learned=learned)

    def _evidence(self, at: Array, feature_map: FeatureMap, release: Release, gate: Oracle) -> Evidence:
        """The gate's next gradient and Hessian."""
        loss, units = self.loss, feature_map.units
        weights = at / units
        asked = Classifier(feature_map, weights[0] if self._columns == 1 else weights)
        seen, deviation = loss.parts(gate.mean(asked, "curved")), release.deviation
        return Evidence(at, units, seen, deviation, deviation / loss.curvature_weight)

    def _concluded(self, belief: Belief, feature_map: FeatureMap, n: float, taken: float) -> Fit:
        """The fit of a belief, where so much of all weight was taken off rows that are far out."""
        units, size = feature_map.units, self._size
        sampling = belief.sampling(n)
        told = far_rows_lost(taken)

        def of(covariance: Array) -> Callable[[int], Array]:
            return lambda column: _block(covariance, column, size) / np.outer(units, units)

        return Fit(
            feature_map,
            belief.mean / units,
            error=of(belief.covariance),
            noise=of(belief.noise),
            sampling=of(sampling),
            of=weighted_fit(self.penalty, feature_map.bound),
            covers=True,
            believes=True,
            unknown=(told,),
            warnings=(told,) if taken > _MUCH else (),
        )

    def _hang_together(self, moment: Moment) -> bool:
        """Whether features may, by what was seen of them."""
        least = float(np.linalg.eigvalsh(moment.noisy)[0]) - moment.deviation
        return least / float(self.feature_map.units[0]) ** 2 < _TOGETHER

    def _by_moments(
        self, first: Array, moment: Moment, feature_map: FeatureMap, deviation: float, n: float
    ) -> Fit:
        """The fit that moments alone give: how far it is from the plain one, nothing released shows."""
        mean = mean_of(moment, feature_map.last)
        weights, shaken = matched(first, moment, mean, deviation=deviation)
        model = ScoreModel(weights, moment, mean)
        guess = first_guess(first, moment, deviation, feature_map)
        prior = self._prior(moment, feature_map, guess)
        unseen = prior.covariance / np.outer(feature_map.units, feature_map.units)
        return Fit(
            feature_map,
            weights,
            error=lambda column: model.squared_inverse(column, shaken) + unseen,
            noise=lambda column: model.squared_inverse(column, shaken),
            sampling=lambda column: model.sampling(column) / n,
            of=weighted_fit(self.penalty, self.bound),
            covers=True,
            believes=True,
            unknown=(
                "the error beside the noise is not measured: coefficients are taken to be near the answer",
            ),
        )


def _block(covariance: Array, column: int, size: int) -> Array:
    """A column's block on the diagonal."""
    own = slice(column * size, (column + 1) * size)
    return covariance[own, own]


def released(
    moments: ClassMoments, release: Release, gate: Oracle, feature_map: FeatureMap, penalty: float
) -> tuple[Array, Moment]:
    """The gate's next answer on moments: (columns, size) class means, and the second moment."""
    first, second = moments.parts(gate.mean(feature_map, "moments"))
    return first, Moment(second, release.deviation / moments.scale, 2 * penalty * moments.factor)

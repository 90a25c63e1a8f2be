"""Logistic regression by noisy Newton steps: releases, the law before any step, and the run.

A run begins with the number of records of each class and the second moment of the features, and takes Newton
steps from there. Each step is a gradient and a Hessian in one release. The answer is the mean of a normal law
given all of them: see `posterior`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import pi, sqrt
from typing import ClassVar, Self

import numpy as np
from scipy.special import erfcx

from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.estimators.base import require
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.fit import SPREAD, Fit
from privest.estimators.linear_model.linear_solver import LARGE, ORDER, SolverDefaults, Variances
from privest.estimators.linear_model.logistic_spec import LogisticSpec
from privest.estimators.linear_model.losses.curved import Curved, CurvedGradient
from privest.estimators.linear_model.losses.logistic import Classifier, ClassMoments
from privest.estimators.linear_model.losses.spread import ClassCounts
from privest.estimators.linear_model.posterior import Evidence, Posterior, Prior, posterior_of
from privest.estimators.linear_model.score_model import Moment
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import NoisySum, Release
from privest.privacy.oracle import Oracle

_LABELS_SHARE, _CLEAR = 0.05, ((0.01, 0.25), (0.04, 0.5))
"""Least share of ε or of μ² for the number of records of each class, and the noise on a share of the records
that is to be reached, each with the share that it may take at most."""

_SHARES = (0.1, 0.02, 0.04, 0.06, 0.1, 0.18, 0.5)
"""Shares of the moments and of each step, of what the labels leave: the first steps need only come near."""

MOST_COEFFICIENTS = 1_500
"""Most coefficients of all classes whose Hessian is released."""

_CONSTANT, _LEAST_CONSTANT = 0.7, 0.2
"""Last coordinate of vectors, for the intercept, over their length: this over √d, and the least."""

_HIDDEN = 0.75
"""Power of a direction's variance that divides the variance of coefficients along it; see `prior_of`."""

_INTERCEPT, _STRETCH = 0.5, 0.2
"""Standard deviation of the intercept about the log odds of the classes: the least, and over these."""

_CLEAR_ODDS = 0.1
"""Error of log odds below which steps may tell how far the intercept is from them."""

_SEEN = 3.0
"""Share of a class over its noise from which on its rows are seen."""

_PULL = 0.4
"""Length of a gradient that rows beyond the bound lack, over the weight that they lost."""

_FURTHEST = 1.5
"""Root mean square by which a step may move scores."""

_TOGETHER = 0.05
"""Variance along some direction of standardised features below which they are said to hang together."""

_CURVATURE = 0.8
"""Curvature of the loss over that at even chances, in a favourable case: of scores that are not far apart."""

_FURTHER = 2.0
"""Bound on the length of features that a run finds, over the usual length, in a favourable case."""

_UNLIKE = (
    "features that do not hang together, classes alike in size, no rows far out; unfavourable is none of "
    f"that, where {ORDER}"
)

_HANG_TOGETHER = (
    "features hang together, or the noise hides that they do not: along what they share coefficients may be "
    "much larger, and further off, than is stated"
)

_CURVATURE_HIDDEN = (
    "the noise hides the curvature of the loss along some direction of the coefficients: how far off they "
    "may be along it is stated as for coefficients of usual size, and larger ones may be further off"
)

_RARE = (
    "too few records are of the class {name}, for this noise, to tell how it depends on the features: expect "
    "its share alone to be right"
)


def labels_share(budget: PrivacyBudget) -> float:
    """Return the share of a solver's budget for the number of records of each class."""
    power = 1 if budget.pure else 2
    needed = [min((1.0 / (budget.n * budget.whole * noise)) ** power, most) for noise, most in _CLEAR]
    return max(_LABELS_SHARE, *needed)


def intercept_constant(dim: int, *, intercept: bool) -> float:
    """Return the constant that vectors of so many features have for the intercept; 0 without one.

    Few features leave room for a larger one, which makes the noise on the intercept smaller.
    """
    return max(_CONSTANT / sqrt(dim), _LEAST_CONSTANT) if intercept else 0.0


def usual_penalty(shape: LabelledMetadata, *, intercept: bool) -> float:
    """Return the λ of scikit-learn's default, |b|²/(2n) of coefficients b of standardised features.

    With it there is one answer for any records, also for classes that a line parts; it moves that of well
    known coefficients by less than sampling does.
    """
    constant = intercept_constant(shape.dim, intercept=intercept)
    return 1 / (2 * shape.n * shape.usual_length**2 * (1 + constant**2))


@dataclass(frozen=True)
class NewtonSolver(SolverDefaults):
    """Newton's method on noisy gradients and Hessians.

    Constants were chosen on the tables that are for that and on synthetic rows. All else follows from n, the
    number of features and of classes, and the requested privacy.

    Attributes:
        shape: public facts of the data.
        budget: what may be spent.
        penalty: λ.
        intercept: whether there is one.
    """

    knows_sampling: ClassVar[bool] = True
    needs_lengths: ClassVar[bool] = True

    shape: LabelledMetadata
    budget: PrivacyBudget
    penalty: float
    intercept: bool

    @classmethod
    def refuse(cls, spec: LogisticSpec, shape: LabelledMetadata, target: PrivacyTarget) -> None:
        """Refuse what does not go with this solver.

        Raises:
            ValueError: something does not.
        """
        del spec, target
        columns = 1 if len(shape.classes) == 2 else len(shape.classes)
        require(
            columns * (shape.dim + 1) <= MOST_COEFFICIENTS,
            f"newton takes at most {MOST_COEFFICIENTS} coefficients of all classes; "
            "the others take any number",
        )

    @classmethod
    def usual_penalty(cls, spec: LogisticSpec, shape: LabelledMetadata) -> float:
        """Return the default λ."""
        return usual_penalty(shape, intercept=spec.intercept)

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
        return cls(shape, budget, penalty, spec.intercept)

    def forecast(self, releases: Sequence[Release]) -> Variances:
        """Return how far a coefficient is expected to be off."""
        curved = [release.deviation for release in releases if release.statistic == "curved"]
        classes, unit = len(self.shape.classes), float(self.feature_map.units[0]) ** 2
        even = 0.25 if classes == 2 else 1 / classes
        noise = (_FURTHER * curved[-1]) ** 2 / unit / (_CURVATURE * even) ** 2
        known = 1 / (1 / noise + 1 / SPREAD**2)
        return Variances(known, known + LARGE**2, _UNLIKE)

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
    def coefficients(self) -> int:
        """Number of coefficients of all classes."""
        return self._columns * self._size

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
    def feature_map(self) -> FeatureMap:
        """The map from a row to the features that the solver sees."""
        constant = intercept_constant(self.shape.dim, intercept=self.intercept)
        plain = FeatureMap.of(self.shape, self.shape.usual_length, intercept=self.intercept)
        return replace(plain, constant=constant)

    @property
    def labels(self) -> ClassCounts:
        """The statistic of the number of records of each class."""
        return ClassCounts(len(self.shape.classes))

    @property
    def moments(self) -> ClassMoments:
        """The statistic of the second moment."""
        return ClassMoments(self._size, len(self.shape.classes))

    @property
    def loss(self) -> CurvedGradient:
        """The statistic of steps."""
        return CurvedGradient(self._size, len(self.shape.classes))

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by name."""
        return {"labels": self.labels, "moments": self.moments, "curved": self.loss}

    def releases(self) -> tuple[NoisySum, ...]:
        """Return the releases: labels, moments, and the gradient and Hessian of each step.

        Raises:
            ValueError: float64 cannot carry this privacy.
        """
        allowed, moments, loss = self.budget, self.moments, self.loss
        share, *later = _SHARES
        rest = 1.0 - labels_share(allowed)
        return (
            allowed.release(self.labels, "labels", 1.0, share=labels_share(allowed)),
            allowed.release(moments, "moments", moments.longest, share=share * rest),
            *(allowed.release(loss, "curved", loss.longest, share=each * rest) for each in later),
        )

    def run(self, releases: Sequence[Release], gate: Oracle, feature_map: FeatureMap) -> Fit:
        """Return the weights of the map's vectors, with what is known of their error."""
        counted, second, *steps = releases
        shares, odds_errors = self.labels.shares(gate.mean(feature_map, "labels"), counted.deviation)
        first, moment = released(self.moments, second, gate, feature_map, self.penalty)
        units = feature_map.units
        prior, start = prior_of(
            self.shape, self.penalty, moment, feature_map, shares, odds_errors, learned=self._columns == 1
        )
        evidence = [self._first_guess(first, moment, second.deviation, feature_map, start, shares)]
        at = posterior_of(start, prior, evidence).mean
        evidence, posterior = list[Evidence](), None
        for release in steps:
            evidence.append(self._evidence(at, feature_map, release, gate))
            posterior = posterior_of(start, prior, evidence, self._bias(evidence))
            way = (posterior.mean - at) / units
            moved = sqrt(float(np.sum((way @ moment.clean) * way)) / len(way))
            at = at + min(1.0, _FURTHEST / max(moved, 1e-300)) * (posterior.mean - at)
        assert posterior is not None  # noqa: S101 - there are steps
        if np.any(shares < _SEEN * counted.deviation):
            # Of a class whose records noise hides steps tell nothing but noise: its share is the answer.
            undone = (posterior.mean - start).ravel()
            unsure = posterior.covariance + np.outer(undone, undone)
            posterior = replace(posterior, mean=start, covariance=unsure)
        return self._fit(
            posterior, moment, feature_map, gate.share * self.budget.n, shares, counted.deviation
        )

    def _first_guess(
        self,
        first: Array,
        moment: Moment,
        deviation: float,
        feature_map: FeatureMap,
        start: Array,
        shares: Array,
    ) -> Evidence:
        """Return gradient and Hessian where all features have the coefficient 0, by the moments alone."""
        columns, size = first.shape
        own = shares[1:] if columns == 1 else shares
        middle = moment.clean[-1] / feature_map.last if feature_map.constant else np.zeros(size)
        pull = first / (2 if columns == 1 else 1) - np.outer(own - 1 / max(columns, 2), middle)
        if columns > 1:
            pull = pull - pull.mean(axis=0)
        spread = np.diag(own) - np.outer(own, own)
        whole = (spread[:, None, :, None] * moment.clean[None, :, None, :]).reshape(columns * size, -1)
        noise = deviation / 2 if columns == 1 else deviation
        curved = moment.deviation * float(np.linalg.norm(spread, 2))
        return Evidence(start, feature_map.units, Curved(pull, 0.0, whole), noise, curved)

    def _evidence(self, at: Array, feature_map: FeatureMap, release: Release, gate: Oracle) -> Evidence:
        """Return the gate's next gradient and Hessian."""
        loss, units = self.loss, feature_map.units
        weights = at / units
        asked = Classifier(feature_map, weights[0] if self._columns == 1 else weights)
        seen, deviation = loss.parts(gate.mean(asked, "curved")), release.deviation
        return Evidence(at, units, seen, deviation, deviation / loss.curvature_weight)

    def _bias(self, evidence: Sequence[Evidence]) -> float:
        """Return how much of a gradient rows beyond the bound probably lack, by the weight they lost.

        Every step shows that weight. It is at least 0, and its mean given all of them is that of a normal law
        cut off there.
        """
        noise = np.array([each.deviation for each in evidence]) / self.loss.taken_weight
        variance = 1 / float(np.sum(noise**-2.0))
        seen = float(np.sum([each.seen.taken for each in evidence] / noise**2)) * variance
        # φ(t)/Φ(t) of t = seen/√variance, by a function that holds for any t.
        hazard = sqrt(2 / pi) / max(float(erfcx(-seen / sqrt(2 * variance))), 1e-300)
        return _PULL * max(seen + sqrt(variance) * hazard, 0.0)

    def _fit(
        self,
        posterior: Posterior,
        moment: Moment,
        feature_map: FeatureMap,
        n: float,
        shares: Array,
        deviation: float,
    ) -> Fit:
        """Return the fit of a law of the coefficients."""
        units, size = feature_map.units, self._size
        sampling = posterior.sampling(n)
        rare = [
            _RARE.format(name=name)
            for name, share in zip(self.shape.classes, shares.tolist(), strict=True)
            if share < _SEEN * deviation
        ]
        together = (_HANG_TOGETHER,) if self._hang_together(moment, feature_map) else ()
        curvature = (_CURVATURE_HIDDEN,) if posterior.hidden else ()

        def of(covariance: Array) -> Callable[[int], Array]:
            return lambda column: _block(covariance, column, size) / np.outer(units, units)

        def shrinkage(column: int) -> Array:
            return _block(posterior.shrinkage, column, size) * units / units[:, None]

        return Fit(
            feature_map,
            posterior.mean / units,
            error=of(posterior.covariance),
            noise=of(posterior.noise),
            sampling=of(sampling),
            of=plain_fit(self.penalty),
            covers=True,
            has_prior=True,
            shrinkage=shrinkage,
            hidden=bool(rare),
            warnings=(*rare, *together, *curvature),
        )

    def _hang_together(self, moment: Moment, feature_map: FeatureMap) -> bool:
        """Return whether features may hang together, by what was seen of them."""
        least = float(np.linalg.eigvalsh(moment.noisy)[0]) - moment.deviation
        return least / float(feature_map.units[0]) ** 2 < _TOGETHER


def plain_fit(penalty: float) -> str:
    """Return the target of a fit in words."""
    held = f"with the penalty λ = {penalty:.3g} on all but the intercept" if penalty else "without a penalty"
    return f"the logistic regression of these records without noise, {held}"


def prior_of(
    shape: LabelledMetadata,
    penalty: float,
    moment: Moment,
    feature_map: FeatureMap,
    shares: Array,
    odds_errors: Array,
    *,
    learned: bool,
) -> tuple[Prior, Array]:
    """Return a law of coefficients before any step, and its mean: the log odds of the classes.

    In a direction in which features hardly vary coefficients may be large. With the variance e < 1 there, as
    the moment has it, theirs is s²/e^¾: between coefficients alike in every direction (s²) and scores alike
    (s²/e), and nearer to these, so that little is stated with too small an error. What noise hides is taken
    to vary as the noise does.

    The intercept is near the classes' log odds l where features' mean m is zero and scores hardly vary.
    Scores that vary stretch l, and m moves it by what coefficients come to there.

    Args:
        shape: public facts of the data.
        penalty: λ.
        moment: second moment of what is seen of rows.
        feature_map: how that is seen.
        shares: (classes,) likely shares of the classes.
        odds_errors: (classes,) standard errors of their log odds.
        learned: whether the steps are to tell how large coefficients are.
    """
    units, dim = feature_map.units, shape.dim
    columns = 1 if len(shares) == 2 else len(shares)
    around = moment.noisy[:dim, :dim]
    if feature_map.constant:
        around = around - np.outer(moment.noisy[-1, :dim], moment.noisy[-1, :dim]) / feature_map.last**2
    values, vectors = np.linalg.eigh(around)
    usual = 1.0 if shape.scale is not None else shape.usual_length / sqrt(dim)
    varied = np.maximum(values, moment.deviation * sqrt(2 * dim)) / (units[0] * usual) ** 2
    precisions = np.minimum(varied, 1.0) ** _HIDDEN * (usual / SPREAD) ** 2
    mean = np.zeros((columns, len(units)))
    if feature_map.constant:
        vectors = np.pad(vectors, ((0, 1), (0, 1)))
        vectors[-1, -1] = 1.0
        middle = moment.clean[-1, :dim] / feature_map.last / (units[0] * usual)
        odds = np.log(shares[1:] / shares[:1]) if columns == 1 else np.log(shares) - np.log(shares).mean()
        own = _INTERCEPT**2 + float(np.max((_STRETCH * odds) ** 2)) + SPREAD**2 * float(middle @ middle)
        precisions = np.append(precisions, 1 / (own + float(np.max(odds_errors) ** 2)))
        mean[:, -1] = odds
    ridge = 2 * penalty / replace(feature_map, usual=shape.usual_length).units ** 2
    # A penalty on the intercept would hold back how rare a class may be.
    ridge[dim:] = 0.0
    # An intercept far from the log odds is only sought where these are clear: else noise would lead there.
    clear = float(np.max(odds_errors)) < _CLEAR_ODDS
    count = (len(units) if clear else dim) if learned else 0
    return Prior(vectors, precisions, ridge, count), mean


def _block(covariance: Array, column: int, size: int) -> Array:
    """Return a column's block on the diagonal."""
    own = slice(column * size, (column + 1) * size)
    return covariance[own, own]


def released(
    moments: ClassMoments, release: Release, gate: Oracle, feature_map: FeatureMap, penalty: float
) -> tuple[Array, Moment]:
    """Return the gate's next moments: (columns, size) class means, and the second moment."""
    first, second = moments.parts(gate.mean(feature_map, "moments"))
    return first, Moment(second, release.deviation / moments.scale, 2 * penalty * moments.factor)

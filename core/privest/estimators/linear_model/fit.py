"""A linear classifier as a solver leaves it, with what is known of its error."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import hypot, sqrt
from typing import Annotated, NamedTuple

import numpy as np

from privest.arrays import Array
from privest.data.tables import Truths
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.uncertainty import Uncertainty
from privest.options import Doc

SPREAD = 0.8
"""Standard deviation of a standardised coefficient before anything is known, as on real tables."""

_LARGE = 2.0
"""Standard deviation of one where an answer tells next to nothing, of its size neither."""

_UNSEEN = 25.0
"""Standard deviation of one whose feature may spread much less than its unit."""

_NORMAL_95 = 1.645

_USELESS = 0.6
"""Share of the variance before anything was known that is left where an answer tells next to nothing."""

_STANDS_OUT = 1.5
"""Length from which on coefficients stand out, over what noise alone exceeds in one of twenty runs: it makes
them so long in less than one of 300."""


@dataclass(frozen=True)
class Curvature:
    """How the mean loss bends at the answer, in weights of features in units of the norm bound."""

    least: Annotated[
        float, Doc("least eigenvalue of a noisy Hessian, from records that nothing else has seen")
    ]
    at_least: Annotated[
        float, Doc("what the least curvature is not below in 95 of 100 runs, whatever noise and sampling did")
    ]


@dataclass(frozen=True)
class Fit:
    """Weights of standardised vectors, a column for each class, or one of two classes.

    Attributes:
        feature_map: what was seen of a row.
        weights: (columns, size).
        error: a column's covariance by all that is known to move it, (size, size).
        noise: the part of that which the noise makes.
        sampling: the same by the sampling of rows, where it is known.
        of: what the error is about, in words.
        covers: whether the error covers more than the noise.
        has_prior: whether the error weighs a prior of the coefficients.
        shrinkage: (size, size) matrix of a column: what a distance of its weights without noise from the mean
            of the prior adds to their error. None stands for all of the distance.
        hidden: whether some class is hidden by the noise.
        unseen: (features,) whether the noise hides how far a feature spreads, and so its coefficient.
        left: length of what steps left to go, in all weights together, beside the error.
        unknown: what no figure covers, in words.
        warnings: what the run showed that the plan could not know.
        curvature: of the loss at the answer, where the run asked for it.
    """

    feature_map: FeatureMap
    weights: Array
    error: Callable[[int], Array]
    noise: Callable[[int], Array]
    sampling: Callable[[int], Array] | None
    of: str
    covers: bool
    has_prior: bool = False
    shrinkage: Callable[[int], Array] | None = None
    hidden: bool = False
    unseen: Truths | None = None
    left: float = 0.0
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    curvature: Curvature | None = None

    @property
    def uncertainty(self) -> Uncertainty:
        """The uncertainty of all standardised coefficients together, intercepts left out."""
        error = self._together(self._widened)
        noise = self._together(self.noise)
        left = self.left * float(self.feature_map.units[0])
        moved = left + sqrt(max(error.radius**2 - noise.radius**2, 0.0)) if self.covers else None
        sampling = None if self.sampling is None else self._together(self.sampling).deviation
        return Uncertainty(
            of=f"{self.of}: distance of all coefficients of standardised features together",
            standard_deviation=hypot(error.deviation, left),
            radius_95=error.radius + left,
            noise=noise.radius,
            moved=moved,
            sampling=sampling,
            unknown=self.unknown,
            warnings=((_WARNING,) if self.is_useless else ()) + self.warnings,
        )

    def stated(self, column: int) -> Array:
        """(size, size) covariance of a column that is stated, larger where the scale is unknown."""
        found = self._widened(column)
        if self.unseen is None:
            return found
        own = np.zeros(len(found))
        own[: len(self.unseen)] = _UNSEEN * self.unseen
        if self.shrinkage is not None:
            own *= np.clip(np.diag(self.shrinkage(column)), 0.0, 1.0)
        return found + np.diag((own / self.feature_map.units) ** 2)

    def _widened(self, column: int) -> Array:
        """Return a column's error, larger in the directions about which hardly anything is known.

        It is larger in all of them if a class is hidden or the size of the coefficients is unknown.
        """
        found = self.error(column)
        if not self.has_prior:
            return found
        if self.hidden or self._size_is_unknown:
            return found * (_LARGE / SPREAD) ** 2
        if self._unknown() <= _USELESS:
            return found
        own = self.feature_map.units[: len(self.feature_map.mean)]
        values, vectors = np.linalg.eigh(self._features(found))
        factors = np.where(values > _USELESS * SPREAD**2, _LARGE / SPREAD, 1.0)
        root = np.eye(len(found))
        root[: len(own), : len(own)] = (vectors * factors) @ vectors.T * own / own[:, None]
        return root @ found @ root.T

    @cached_property
    def is_useless(self) -> bool:
        """Return whether most directions are all but unknown, or nothing stands out from the noise."""
        if self.hidden:
            return True
        if not self.has_prior:
            return float(np.linalg.norm(self._coefficients)) < _STANDS_OUT * self._together(self.noise).radius
        return self._size_is_unknown or self._unknown(1.0) > _USELESS

    def _unknown(self, most: float = np.inf) -> float:
        """Return the mean variance of coefficients over that of the prior, at most `most` in a direction."""
        columns = len(self.weights)
        free = self._coefficients.size * (1 - 1 / columns if columns > 1 else 1.0)
        return float(np.minimum(self._variances, most).sum()) / free

    @cached_property
    def _variances(self) -> Array:
        """(columns, features) variances in the principal directions of the errors, over that of the prior."""
        errors = [self._features(self.error(column)) for column in range(len(self.weights))]
        return np.linalg.eigvalsh(np.array(errors)).astype(np.float64) / SPREAD**2

    @cached_property
    def _size_is_unknown(self) -> bool:
        """Return whether hardly anything is known along the answer, as where features separate the classes.

        Features whose spread the noise hides are left out: their coefficients are unknown anyway.
        """
        found = self._coefficients
        if self.unseen is not None:
            found = np.where(self.unseen, 0.0, found)
        unknown = np.array([self._features(self.error(column)) for column in range(len(found))])
        along = float(np.einsum("ci,cij,cj->", found, unknown, found))
        return along > _USELESS * SPREAD**2 * max(float(np.sum(found**2)), 1e-300)

    @property
    def _coefficients(self) -> Array:
        """(columns, features) coefficients of standardised features."""
        features = len(self.feature_map.mean)
        return self.weights[:, :features] * self.feature_map.units[:features]

    def _features(self, covariance: Array) -> Array:
        """(features, features) of a column, for coefficients of standardised features, no intercept."""
        own = self.feature_map.units[: len(self.feature_map.mean)]
        return covariance[: len(own), : len(own)] * np.outer(own, own)

    def _together(self, covariance: Callable[[int], Array]) -> "Distance":
        """The distance of all coefficients from where they would be."""
        total, spread = 0.0, 0.0
        for column in range(len(self.weights)):
            found = self._features(covariance(column))
            total += max(float(np.trace(found)), 0.0)
            # Columns may hang together: lengths add up where squares would be too little.
            spread += float(np.linalg.norm(found))
        return distance(total, spread)


class Distance(NamedTuple):
    """Root mean square of a normal vector's length, and what it exceeds with probability .05."""

    deviation: float
    radius: float


def distance(trace: float, frobenius: float) -> Distance:
    """Length of a normal vector of covariance V, by tr V and |V|.

    Its square has the mean tr V and the variance 2|V|², and is taken for a multiple of a χ² law with as many
    degrees of freedom as agree with both (Satterthwaite 1946), by its cube root (Wilson and Hilferty 1931).
    """
    if trace <= 0:
        return Distance(0.0, 0.0)
    spread = 2 * (frobenius / trace) ** 2 / 9
    return Distance(sqrt(trace), sqrt(trace * (1 - spread + _NORMAL_95 * sqrt(spread)) ** 3))


_WARNING = (
    "the noise leaves the coefficients all but unknown: read none of them, and classify with the answer only "
    "if a score shows that it is right often enough"
)


def same_steps(feature_map: FeatureMap, weights: Array, variance: float) -> Fit:
    """A fit of which only the noise of its steps is known, in every coordinate alike."""
    noise = variance * np.eye(feature_map.size)
    return Fit(
        feature_map,
        weights,
        error=lambda _: noise,
        noise=lambda _: noise,
        sampling=None,
        of="the classifier that the same steps find without noise, curvature left aside",
        covers=False,
        unknown=(
            "how far the steps are from a minimum of the loss, which may have several",
            "what curvature on the way made of the noise",
        ),
    )

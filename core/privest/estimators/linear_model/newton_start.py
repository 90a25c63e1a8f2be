"""Where Newton steps begin, and what is believed of coefficients before any."""

from dataclasses import replace
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.linear_model.belief import Evidence, Prior
from privest.estimators.linear_model.feature_map import CONSTANT, FeatureMap
from privest.estimators.linear_model.fit import SPREAD
from privest.estimators.linear_model.losses.curved import Curved
from privest.estimators.linear_model.newton import Moment
from privest.metadata import LabelledMetadata

INTERCEPT_VARIANCE = 16.0
"""Variance of an intercept before anything is known, class shares neither."""


_HIDDEN = 0.75
"""Power of a direction's variance that divides the variance of coefficients along it; see `before_any`."""

_SEEN = 3.0
"""Share of a class over its noise from which on its rows are seen."""


def usual_penalty(shape: LabelledMetadata, *, intercept: bool) -> float:
    """λ that scikit-learn's default comes to on standardised features: |b|²/(2n) of their coefficients b.

    With it there is one answer for any records, also for classes that a line parts; it moves that of well
    known coefficients by less than sampling does.
    """
    constant = CONSTANT if intercept else 0.0
    return 1 / (2 * shape.n * shape.usual_length**2 * (1 + constant**2))


def plain_fit(penalty: float) -> str:
    """The target, in words."""
    held = f"with the penalty λ = {penalty:.3g}" if penalty else "without a penalty"
    return f"the logistic regression of these records without noise, no row shortened, {held}"


def weighted_fit(penalty: float, bound: float) -> str:
    """The target of `newton`, in words."""
    held = f"the penalty λ = {penalty:.3g} on all but the intercept" if penalty else "no penalty"
    return (
        f"the logistic regression of these records without noise, with {held}, in which a record counts by "
        f"(R/length)² if the length of its standardised features is above R = {bound:.3g}"
    )


def far_rows_lost(taken: float) -> str:
    """How far the weighted fit may be from a plain one, as far as that is known, in words."""
    return (
        "how far the fit in which all records count alike is from this one: those further out than R have "
        f"lost {min(max(taken, 0.0), 1.0):.1%} of all weight"
    )


def before_any(
    shape: LabelledMetadata,
    penalty: float,
    moment: Moment,
    feature_map: FeatureMap,
    odds: Array,
    *,
    learned: bool,
) -> Prior:
    """What is believed of coefficients before any evidence.

    In a direction in which features hardly vary coefficients may be large. With the variance e < 1 there, as
    the moment has it, theirs is s²/e^¾: between coefficients alike in every direction (s²) and scores alike
    (s²/e), and nearer to these, so that little is stated with too small an error. What noise hides is taken
    to vary as the noise does.

    The intercept is near the classes' log odds l where features' mean m is zero and scores hardly vary.
    Scores that vary stretch l, and m moves it by what coefficients come to there: its variance is
    1 + l² + s²|m|².

    Args:
        shape: public facts of the data.
        penalty: λ.
        moment: second moment of what is seen of rows.
        feature_map: how that is seen.
        odds: (columns,) log odds of the classes, as far as they are seen; see `first_guess`.
        learned: whether the evidence is to tell how large coefficients are.
    """
    units, dim = feature_map.units, shape.dim
    around = moment.noisy[:dim, :dim]
    if feature_map.constant:
        around = around - np.outer(moment.noisy[-1, :dim], moment.noisy[-1, :dim]) / feature_map.last**2
    values, vectors = np.linalg.eigh(around)
    usual = 1.0 if shape.scale is not None else shape.usual_length / sqrt(dim)
    varied = np.maximum(values, moment.deviation * sqrt(2 * dim)) / (units[0] * usual) ** 2
    precisions = np.minimum(varied, 1.0) ** _HIDDEN * (usual / SPREAD) ** 2
    if feature_map.constant:
        vectors = np.pad(vectors, ((0, 1), (0, 1)))
        vectors[-1, -1] = 1.0
        mean = moment.clean[-1, :dim] / feature_map.last / (units[0] * usual)
        own = 1.0 + float(np.max(odds**2)) + SPREAD**2 * float(mean @ mean)
        precisions = np.append(precisions, 1 / own)
    ridge = 2 * penalty / replace(feature_map, usual=shape.usual_length).units ** 2
    # A penalty on the intercept would hold back how rare a class may be.
    ridge[dim:] = 0.0
    return Prior(vectors, precisions, ridge, dim if learned else 0)


def _class_shares(first: Array, feature_map: FeatureMap) -> Array:
    """(columns,) noisy shares of classes, of two that of the second: by the constant that every row has."""
    columns = len(first)
    return first[:, -1] / feature_map.last / (2 if columns == 1 else 1) + 1 / max(columns, 2)


def hides_a_class(first: Array, deviation: float, feature_map: FeatureMap) -> bool:
    """Whether the noise hides all rows of some class; without an intercept nobody can tell.

    Args:
        first: (columns, size) noisy means of z ⊗ x: z a sign, or e_y less the even mixture.
        deviation: of the noise on `first`.
        feature_map: what was seen of rows.
    """
    if not feature_map.constant:
        return False
    shares = _class_shares(first, feature_map)
    rarest = min(float(shares.min()), 1 - float(shares.max()))
    return rarest * feature_map.last * (2 if len(first) == 1 else 1) < _SEEN * deviation


def first_guess(first: Array, moment: Moment, deviation: float, feature_map: FeatureMap) -> Evidence:
    """The gradient and the Hessian of the classes' shares, by moments alone.

    At weights that know the shares alone the gradient is E[(y − p) ⊗ x] and the Hessian P ⊗ E[xxᵀ]. From
    there Newton's method does not go too far, as it may from weights that are too large.

    Args:
        first: (columns, size) noisy means of z ⊗ x: z a sign, or e_y less the even mixture.
        moment: second moment of x.
        deviation: of the noise on `first`.
        feature_map: what was seen of rows.
    """
    columns, size = first.shape
    weights, own = np.zeros_like(first), deviation / 2 if columns == 1 else deviation
    even = 1 / max(columns, 2)
    shares, middle = np.full(columns, even), np.zeros(size)
    if feature_map.constant:
        last, middle = feature_map.last, moment.clean[-1] / feature_map.last
        least = min(2 * deviation / last, even)
        shares = np.clip(_class_shares(first, feature_map), least, 1 - least)
        if columns == 1:
            weights[:, -1] = np.log(shares / (1 - shares)) / last
        else:
            shares = shares / shares.sum()
            weights[:, -1] = (np.log(shares) - np.mean(np.log(shares))) / last
    spread = np.diag(shares) - np.outer(shares, shares)
    pull = first / (2 if columns == 1 else 1) - np.outer(shares - even, middle)
    whole = (spread[:, None, :, None] * moment.clean[None, :, None, :]).reshape(columns * size, -1)
    seen = Curved(pull, 0.0, whole)
    curved = moment.deviation * float(np.linalg.norm(spread, 2))
    units = feature_map.units
    return Evidence(weights * units, units, seen, own, curved)

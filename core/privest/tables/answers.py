"""Answers on a table in the columns' own units: means with intervals, their forecast, and loadings."""

from dataclasses import dataclass
from math import ceil, floor, hypot, sqrt
from typing import Annotated, Literal

import numpy as np
from scipy.special import chdtri

from privest.arrays import Array
from privest.options import Doc
from privest.tables.columns import Feature, date_of
from privest.tables.recipe import Recipe

_NORMAL_95 = 1.96


@dataclass(frozen=True)
class ColumnMean:
    """The private mean of a column, or the share of records that are of a category."""

    name: Annotated[str, Doc("a column, `column=category`, or `column missing`")]
    value: Annotated[float | str, Doc("in the column's own units; an ISO date of a column of dates")]
    low: Annotated[float | str, Doc("lower end of an interval of 95 % for the mean of these records")]
    high: Annotated[float | str, Doc("upper end")]
    kind: Literal["mean", "share"]


@dataclass(frozen=True)
class ColumnError:
    """How far the mean of a column, or a share, is expected to be off."""

    name: Annotated[str, Doc("a column, `column=category`, or `column missing`")]
    radius_95: Annotated[
        float,
        Doc("half the length of its interval of 95 %, in the column's own units; days of a column of dates"),
    ]


@dataclass(frozen=True)
class Loadings:
    """How a feature points along each direction of a subspace."""

    name: Annotated[str, Doc("a column, `column=category`, or `column missing`")]
    loadings: Annotated[Array, Doc("a number for each direction", axes=(1,))]


def column_means(point: Array, recipe: Recipe, deviations: Array) -> tuple[ColumnMean, ...]:
    """The means of columns by the mean of their images.

    Args:
        point: (features,) mean of the images.
        recipe: of the images.
        deviations: (features,) root mean square errors of these.
    """
    ends = np.clip(np.multiply.outer([-_NORMAL_95, 0.0, _NORMAL_95], deviations) + point, *recipe.range)
    low, value, high = recipe.middle + recipe.half * ends
    told = zip(recipe.features, low.tolist(), value.tolist(), high.tolist(), strict=True)
    return tuple(_column_mean(*each) for each in told)


def column_errors(recipe: Recipe, deviations: Array) -> tuple[ColumnError, ...]:
    """The forecast of the intervals of `column_means`.

    Args:
        recipe: of the images.
        deviations: (features,) root mean square errors of these.
    """
    widths = (_NORMAL_95 * recipe.half * deviations).tolist()
    return tuple(ColumnError(f.name, width) for f, width in zip(recipe.features, widths, strict=True))


def alike(size: int, noise: float, moved: float) -> Array:
    """(size,) root mean square errors of features whose errors are alike.

    Noise is the same in every direction, so that its law in one follows from its length in all. What
    clipping may have moved is taken to be spread over all of them alike.

    Args:
        size: number of features.
        noise: length that the noise does not exceed with probability .95.
        moved: root mean square length of what clipping and unfinished steps may have moved.
    """
    return np.full(size, hypot(noise / sqrt(float(chdtri(size, 0.05))), moved / sqrt(size)))


def _column_mean(feature: Feature, low: float, value: float, high: float) -> ColumnMean:
    if feature.type == "date" and not feature.is_share:
        days = value, floor(low), ceil(high)
        return ColumnMean(feature.name, *map(date_of, days), kind="mean")
    return ColumnMean(feature.name, value, low, high, kind="share" if feature.is_share else "mean")


def loadings(basis: Array, recipe: Recipe) -> tuple[Loadings, ...]:
    """The rows of a basis by the names of their features."""
    return tuple(Loadings(f.name, row) for f, row in zip(recipe.features, basis, strict=True))

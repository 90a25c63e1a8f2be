"""Answers on a table in the columns' own units: means with intervals, their forecast, and loadings."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, floor, hypot, inf, isfinite, sqrt
from typing import Annotated, Literal

import numpy as np
from scipy.special import chdtri

from privest.arrays import Array
from privest.data.tables import Feature, Recipe, date_of
from privest.options import Doc

_NORMAL_95 = 1.96

NO_INTERVAL = 1e100
"""Half length that stands for no interval."""


@dataclass(frozen=True)
class ColumnMean:
    """The private mean of a column, or the share of records that are of a category.

    Of a column whose gaps are filled it is of the known values. The mean of all records, gaps as their fill,
    and the share of gaps follow it.
    """

    name: Annotated[str, Doc("a column, `column=category`, `column filled`, or `column missing`")]
    value: Annotated[float | str, Doc("in the column's own units; an ISO date of a column of dates")]
    low: Annotated[
        float | str | None,
        Doc("lower end of an interval of 95 % for the mean of these records; null where none holds"),
    ]
    high: Annotated[float | str | None, Doc("upper end; null where no interval holds")]
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
class Reference:
    """The categories of a column that coefficients of its other categories are relative to."""

    column: str
    categories: Annotated[
        tuple[str, ...],
        Doc("the reference level, and all others that are no features by themselves or in a merged one"),
    ]


@dataclass(frozen=True)
class Loadings:
    """How a feature points along each direction of a subspace."""

    name: Annotated[str, Doc("a column, `column=category`, or `column missing`")]
    loadings: Annotated[Array, Doc("a number for each direction", axes=(1,))]


def column_means(point: Array, recipe: Recipe, half_widths: Array) -> tuple[ColumnMean, ...]:
    """The means of columns by the mean of their images.

    Args:
        point: (features,) mean of the images.
        recipe: of the images.
        half_widths: (features,) halves of the 95 % intervals of these; at least 1e100 where none holds.
    """
    low, high = recipe.middle + recipe.half * recipe.range
    values = np.clip(recipe.middle + recipe.half * point, low, high).tolist()
    halves = [inf if half >= NO_INTERVAL else half for half in half_widths.tolist()]
    released = [
        _Released(feature, *each)
        for feature, *each in zip(
            recipe.features,
            values,
            (recipe.half * halves).tolist(),
            low.tolist(),
            high.tolist(),
            strict=True,
        )
    ]
    released = [shown for each in released for shown in _both(each, recipe)]
    gaps = {
        each.feature.column: each
        for each in released
        if each.feature.gap and recipe.columns[each.feature.column].missing == "filled"
    }
    found = list[ColumnMean]()
    for each in released:
        gap = gaps.get(each.feature.column)
        if gap is None or each is gap:
            found.append(each.shown())
            continue
        fill = recipe.columns[each.feature.column].fill
        assert fill is not None  # noqa: S101 - of a column whose gaps are filled
        levels = each.feature.levels
        found.append(_of_known(each, gap, float(fill in levels) if levels else fill).shown())
        found.append(replace(each.shown(), name=f"{each.feature.name} filled"))
    # The share of gaps is the last of its column's features, and so comes after them.
    return tuple(found)


def column_errors(recipe: Recipe, half_widths: Array) -> tuple[ColumnError, ...]:
    """The forecast of the intervals of `column_means`.

    Args:
        recipe: of the images.
        half_widths: (features,) halves of the 95 % intervals of these.
    """
    widths = (recipe.half * half_widths).tolist()
    return tuple(
        ColumnError(shown.name, width)
        for feature, width in zip(recipe.features, widths, strict=True)
        for shown in _levels_told(feature, recipe)
    )


def alike(size: int, noise: float, moved: float) -> Array:
    """(size,) halves of the 95 % intervals of features whose errors are alike.

    Noise is the same in every direction, so that its law in one follows from its length in all. What
    clipping may have moved is taken to be spread over all of them alike.

    Args:
        size: number of features.
        noise: length that the noise does not exceed with probability .95.
        moved: root mean square length of what clipping and unfinished steps may have moved.
    """
    return np.full(size, _NORMAL_95 * hypot(noise / sqrt(float(chdtri(size, 0.05))), moved / sqrt(size)))


def _levels_told(feature: Feature, recipe: Recipe) -> tuple[Feature, ...]:
    """Return the features that a released one determines: of the indicator of one of two categories, both."""
    column = recipe.columns[feature.column]
    if not feature.levels or len(column.classes) != 2 or recipe.shows_all(feature.column):
        return (feature,)
    reference = column.indicator(feature.column, (1 - feature.levels[0],))
    return (feature, reference) if feature.levels[0] == 0 else (reference, feature)


def _both(released: "_Released", recipe: Recipe) -> Iterator["_Released"]:
    """Yield the released share and, of one of two categories, that of the other: together they are 1."""
    for feature in _levels_told(released.feature, recipe):
        value = released.value if feature == released.feature else 1 - released.value
        yield replace(released, feature=feature, value=value)


@dataclass(frozen=True)
class _Released:
    """The released mean of a feature in its column's units.

    Attributes:
        feature: which.
        value: of it.
        half: half of its 95 % interval; infinite where none holds.
        low, high: bounds of the feature; infinite where none is declared.
        ends: of the interval, where `value` is not its middle.
    """

    feature: Feature
    value: float
    half: float
    low: float
    high: float
    ends: tuple[float, float] | None = None

    def shown(self) -> ColumnMean:
        """The mean as an answer states it."""
        low, high = self.ends or (self.value - self.half, self.value + self.half)
        within = tuple(min(max(end, self.low), self.high) for end in (low, high))
        ends = within if all(map(isfinite, within)) else (None, None)
        kind = "share" if self.feature.is_share else "mean"
        if self.feature.type != "date" or self.feature.is_share:
            return ColumnMean(self.feature.name, self.value, *ends, kind=kind)
        low, high = ends
        days = (None if low is None else date_of(floor(low)), None if high is None else date_of(ceil(high)))
        return ColumnMean(self.feature.name, date_of(self.value), *days, kind=kind)


def _of_known(mean: _Released, gaps: _Released, fill: float) -> _Released:
    """Return the mean of the known values, by that of all records and the share of gaps.

    With the mean m of all, gaps as f, and the share s of gaps it is κ = (m − f·s)/(1 − s). The interval holds
    all κ for which m − f·s − κ(1 − s) is within the 95 % that noise on m and s leaves (Fieller 1954). Where
    noise does not tell 1 − s from 0 it is all that the bounds allow.
    """
    known, above = 1 - gaps.value, mean.value - fill
    slack = known**2 - gaps.half**2
    if not (slack > 0 and isfinite(mean.half) and known > 0):
        value = fill + above / known if known > 0 else fill
        return replace(mean, value=min(max(value, mean.low), mean.high), ends=(-inf, inf))
    root = sqrt(max((above * known) ** 2 - slack * (above**2 - mean.half**2), 0.0))
    low, high = (fill + (above * known + way * root) / slack for way in (-1, 1))
    return replace(mean, value=min(max(fill + above / known, mean.low), mean.high), ends=(low, high))


def references(recipe: Recipe) -> tuple[Reference, ...]:
    """Return the references of a recipe's columns."""
    return tuple(Reference(column.name, categories) for column, categories in recipe.references)


def loadings(basis: Array, recipe: Recipe) -> tuple[Loadings, ...]:
    """The rows of a basis by the names of their features."""
    return tuple(Loadings(f.name, row) for f, row in zip(recipe.features, basis, strict=True))

"""The estimator of bounds and quantiles: of each column's values, or of the distances from a point.

Noisy histograms find them. Each quantile has an interval that holds it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from math import inf, isfinite, sqrt
from typing import Annotated

import numpy as np

from privest.arrays import Array, NestedList
from privest.data.metadata import PointsMetadata
from privest.data.tables import Feature, Recipe, date_of, listed
from privest.estimators.base import BasePlan, Estimator, least_noisy, require
from privest.estimators.range_finding.column_ranges import ENOUGH, ColumnCounts, ColumnRanges, Places
from privest.estimators.range_finding.projections import Coordinates, Distance, View, Viewed
from privest.estimators.uncertainty import Answer, ExpectedError, Uncertainty
from privest.manifolds import Euclidean
from privest.options import Doc, Option, Options
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget, certified
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.oracle import Oracle

NORMAL_95 = 1.96

FEWEST, _MOST = 32, 1024
"""Nodes of a column's last histogram."""


def deviation_of_levels(nodes: int) -> float:
    """Standard deviation of the noise on a share of the records below some node, at most, over that on one.

    All shares, missing values included, add up to one, so that noise on the sum of k of m + 1 of them has
    the variance k(m + 1 − k)/(m + 1).
    """
    return sqrt(nodes + 1) / 2


def best_nodes(deviation: float) -> int:
    """The number of nodes at which an interval is as wide by its two nodes as it is by noise.

    A quarter of the nodes hold most records, so that one of them has 4 times its even share.

    Args:
        deviation: of the noise on a share at one node, however many there are.
    """
    return int(min(max((4 / deviation) ** (2 / 3), FEWEST), _MOST))


@dataclass(frozen=True)
class Levels:
    """Shares of the known records below each node of a column.

    A record between two nodes counts at both. So the counts up to a node are of no fewer records than are
    below it, and of no more than are below the next one.

    Attributes:
        nodes: (columns, nodes) values.
        shares: (columns, nodes + 1) noisy shares of the records near each, and of missing values.
        deviation: of the noise on each.
        low: (columns,) public lower bounds; −∞ where none is declared.
        high: (columns,) upper bounds.
    """

    nodes: Array
    shares: Array
    deviation: float
    low: Array
    high: Array

    @cached_property
    def _below(self) -> tuple[Array, Array]:
        """(columns, nodes) noisy shares of records up to each node, and their noise."""
        shares, whole = self.shares, self.shares.shape[1]
        # What the shares lack to one is noise, and taken off all alike.
        even = shares + (1 - shares.sum(axis=1, keepdims=True)) / whole
        counted = np.arange(1.0, whole)
        noise = self.deviation * np.sqrt(counted * (whole - counted) / whole)
        return np.cumsum(even[:, :-1], axis=1), noise

    def at(self, level: float) -> tuple[Array, Array, Array]:
        """(columns,) quantiles of the known records, and the ends of intervals of 95 % for each.

        An end is what is declared, or infinite, where records may be beyond all nodes.

        Args:
            level: share of the known records that is below it.
        """
        below, noise = self._below
        missing = np.clip(self.shares[:, -1:], 0.0, 1.0)
        wanted, unsure = level * (1 - missing), np.hypot(noise, level * self.deviation)
        nodes = self.nodes
        rising = zip(wanted[:, 0], np.maximum.accumulate(below, axis=1), nodes, strict=True)
        value = np.array([np.interp(*each) for each in rising], dtype=np.float64)
        # From either end as far as it goes, so that one node alone decides whether a quantile is missed.
        fewer = np.logical_and.accumulate(below + NORMAL_95 * unsure < wanted, axis=1)
        more = np.logical_and.accumulate((below - NORMAL_95 * unsure > wanted)[:, ::-1], axis=1)
        low = _end(nodes, fewer.sum(axis=1) - 1, self.low)
        high = _end(nodes, nodes.shape[1] + 1 - more.sum(axis=1), self.high)
        return np.clip(value, low, high), low, high


def _end(nodes: Array, place: Places, beyond: Array) -> Array:
    """(columns,) nodes at these places; beyond all nodes what is given."""
    inside = (place >= 0) & (place < nodes.shape[1])
    at = np.clip(place, 0, nodes.shape[1] - 1)
    return np.where(inside, np.take_along_axis(nodes, at[:, None], axis=1)[:, 0], beyond)


_LOOKS = 0.4
"""Largest share of the budget for all histograms but the last."""

_LEVELS = (0.01, 0.05, 0.16, 0.25, 0.5, 0.75, 0.84, 0.95, 0.99)
"""Levels of the quantiles that are told."""

_OF = "the shares of these very records that are below each of the values told"

_USELESS = 0.1
"""Error of a share from which on an answer is of no use."""


@dataclass(frozen=True)
class BoundsSpec(Options):
    """What is asked of columns or distances."""

    point: Annotated[
        NestedList | None,
        Option(
            "of distances on a curved space: from where, as nested lists; by default the public centre. "
            "Of flat space and of tables each column is told of, and there is no such point"
        ),
    ] = None


@dataclass(frozen=True)
class Quantile:
    """A value that a share of the records is below."""

    level: Annotated[float, Doc("share of the records that is below it")]
    value: Annotated[float | str, Doc("the quantile; an ISO date of a column of dates")]
    low: Annotated[float | str | None, Doc("lower end of an interval of 95 % for it; null where unknown")]
    high: Annotated[float | str | None, Doc("upper end; null where unknown")]


@dataclass(frozen=True)
class Place:
    """Where most records are in a column, or among distances."""

    name: Annotated[str, Doc("a column, a coordinate such as `x1`, or `distance`")]
    center: Annotated[float | str, Doc("their median")]
    scale: Annotated[float, Doc("half of what lies between the levels .16 and .84: of a normal law its σ")]
    low: Annotated[
        float | str, Doc("a lower bound to declare: hardly more than one record in a hundred is below it")
    ]
    high: Annotated[
        float | str, Doc("an upper bound to declare, or a radius: hardly more than one in a hundred is above")
    ]
    quantiles: tuple[Quantile, ...]


@dataclass(frozen=True)
class Bounds(Answer):
    """Private bounds of columns or of distances."""

    places: Annotated[tuple[Place, ...], Doc("one for each column, or one of distances")]

    def in_columns(self, recipe: Recipe, expected: ExpectedError) -> "Bounds":
        """The bounds of a table's columns, in their own units."""
        del expected
        ordered = [at for at, feature in enumerate(recipe.features) if not feature.is_share]
        own = zip(self.places, ordered, strict=True)
        scaled = (
            _in_units(each, recipe.features[at], float(recipe.middle[at]), float(recipe.half[at]))
            for each, at in own
        )
        return replace(self, places=tuple(scaled))


def _in_units(place: Place, feature: Feature, middle: float, half: float) -> Place:
    """A place of images by the values that they are of."""

    def value(image: float | str | None) -> float | str | None:
        if not isinstance(image, float):
            return image
        own = middle + half * image
        return date_of(own) if feature.type == "date" else own

    told = {name: value(getattr(place, name)) for name in ("center", "low", "high")}
    quantiles = tuple(
        replace(each, **{name: value(getattr(each, name)) for name in ("value", "low", "high")})
        for each in place.quantiles
    )
    return replace(place, name=feature.name, scale=half * place.scale, quantiles=quantiles, **told)


@dataclass(frozen=True)
class BoundsError(ExpectedError):
    """How far a share of the records may be off, by the noise alone."""

    standard_deviation: Annotated[float, Doc("of a share of the records below some value, at most")]
    radius_95: Annotated[float, Doc("not exceeded with probability 0.95")]


@dataclass(frozen=True, kw_only=True)
class BoundsPlan(BasePlan):
    """A plan of private bounds.

    Attributes:
        point: of distances, nested lists; None where columns are asked about.
        nodes: values of a column at which the last histogram counts.
    """

    shape: PointsMetadata
    expected_error: BoundsError
    point: NestedList | None
    nodes: int

    @cached_property
    def view(self) -> View:
        """What is told of a record."""
        return _view(self.shape, self.point)

    @property
    def ranges(self) -> ColumnRanges:
        """What is public of it."""
        return ColumnRanges(self.view.low, self.view.high)

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate may sum, by the names that releases use."""
        return _statistics(self.view, self.nodes)


def _view(shape: PointsMetadata, point: NestedList | None) -> View:
    if point is not None:
        return Distance(shape.space, np.array(point, dtype=np.float64))
    return Coordinates.of(shape.space.shape[0], shape.recipe)


def _statistics(view: View, nodes: int) -> dict[str, AnyStatistic]:
    counts = {
        **ColumnRanges(view.low, view.high).statistics,
        "quantiles": ColumnCounts(len(view.names), nodes),
    }
    return {name: Viewed(each, view) for name, each in counts.items()}


def plan(spec: BoundsSpec, shape: PointsMetadata, target: PrivacyTarget) -> BoundsPlan:
    """Plan the noise and the exact cost of private bounds, from public facts alone.

    Where budgets add up ε and δ, the noise is Laplace noise if that has the smaller error and still shows
    where the values of a column are.

    Raises:
        ValueError: an option is out of range. The message is fit for the analyst.
    """

    def error(plan: BoundsPlan) -> float:
        *looks, _ = plan.releases
        shown = all(look.deviation * sqrt(len(plan.view.names)) <= 1.01 * ENOUGH for look in looks)
        return plan.expected_error.radius_95 if shown or plan.target.delta > 0 else inf

    return least_noisy(lambda target: _plan(spec, shape, target), target, error)


def _plan(spec: BoundsSpec, shape: PointsMetadata, target: PrivacyTarget) -> BoundsPlan:
    """Plan bounds with the noise that belongs to the δ of the target."""
    require(shape.n >= 1, "bounds need at least one record")
    point: NestedList | None = None
    if isinstance(shape.space, Euclidean):
        require(spec.point is None, "point belongs to distances on a curved space; here columns are told of")
    else:
        chosen = shape.search_center if spec.point is None else shape.point(spec.point, "point")
        point = chosen.tolist()
    view = _view(shape, point)
    require(len(view.low) > 0, "name at least one column of numbers or dates: others have no bounds to find")
    budget, ranges = PrivacyBudget.of(target, shape.n), ColumnRanges(view.low, view.high)
    rest = 1 - sum(share for _, share in ranges.looks(budget, _LOOKS))
    # The noise is the same however many nodes there are.
    alone = budget.release(ColumnCounts(len(view.names), FEWEST), "quantiles", 1.0, share=rest)
    nodes = best_nodes(alone.deviation * sqrt(len(view.names)))
    last = budget.release(ColumnCounts(len(view.names), nodes), "quantiles", 1.0, share=rest)
    releases = *ranges.releases(budget, _LOOKS), last
    deviation = last.deviation * sqrt(len(view.names)) * deviation_of_levels(nodes)
    assumes = (
        "nothing of the records: it is a share of them. How far a value is off follows from how dense they "
        "are there, which the answer's intervals tell"
    )
    return BoundsPlan(
        **certified(releases, _statistics(view, nodes), target, shape.n, _warnings(deviation)),
        shape=shape,
        releases=releases,
        expected_error=BoundsError(deviation, NORMAL_95 * deviation, assumes=assumes),
        point=point,
        nodes=nodes,
    )


def _warnings(deviation: float) -> tuple[str, ...]:
    if deviation < _USELESS:
        return ()
    return ("the noise on shares of the records is so large that little is learned; ask for fewer columns",)


def run(planned: BoundsPlan, gate: Oracle) -> Bounds:
    """The private bounds: sees the plan and the gate's noisy answers, never a row."""
    view, (*looks, last) = planned.view, planned.releases
    rough = planned.ranges.find(gate, looks)
    low, high, _ = planned.ranges.nearer(rough)
    nodes = np.linspace(low, high, planned.nodes, axis=1)
    counts = ColumnCounts(len(view.names), planned.nodes)
    deviation = last.deviation * sqrt(len(view.names))
    shares = counts.shares(gate.mean(nodes, "quantiles"))
    levels = Levels(nodes, shares, deviation, view.low, view.high)
    told = {level: levels.at(level) for level in _LEVELS}
    low = np.where(np.isfinite(told[_LEVELS[0]][1]), told[_LEVELS[0]][1], nodes[:, 0])
    high = np.where(np.isfinite(told[_LEVELS[-1]][2]), told[_LEVELS[-1]][2], nodes[:, -1])
    places = tuple(
        _place(
            name,
            {level: tuple(float(part[at]) for part in told[level]) for level in _LEVELS},
            (float(low[at]), float(high[at])),
        )
        for at, name in enumerate(view.names)
    )
    noise = deviation * deviation_of_levels(planned.nodes)
    return Bounds(
        places,
        uncertainty=Uncertainty(
            of=_OF,
            standard_deviation=noise,
            radius_95=NORMAL_95 * noise,
            noise=NORMAL_95 * noise,
            moved=0.0,
            sampling=0.5 / sqrt(planned.shape.n),  # of a share, at most
            warnings=_unseen(tuple(compress(view.names, ~rough.seen))),
        ),
    )


def _unseen(names: tuple[str, ...]) -> tuple[str, ...]:
    """A warning of columns that noise hides, if there are any."""
    if not names:
        return ()
    return (f"noise hides where the records are in {listed(names)}: what is told of it is a guess",)


def _place(name: str, told: dict[float, tuple[float, ...]], ends: tuple[float, float]) -> Place:
    quantiles = tuple(
        Quantile(level, value, low if isfinite(low) else None, high if isfinite(high) else None)
        for level, (value, low, high) in told.items()
    )
    scale = (told[0.84][0] - told[0.16][0]) / 2
    return Place(name, told[0.5][0], scale, *ends, quantiles)


BOUNDS = Estimator(
    name="bounds",
    schema_name="Bounds",
    title="bounds",
    summary="Private bounds: where most values of each column are, or most distances from a point",
    plain_words=(
        "The ends between which nearly all values of a column lie, and values in between, such as the "
        "median. Whoever declares bounds at an upload says what everybody may know. Where nobody does, a "
        "part of each question finds some privately, or a question of this kind asks for them."
    ),
    metadata=PointsMetadata,
    spec=BoundsSpec,
    plan_type=BoundsPlan,
    error=BoundsError,
    answer=Bounds,
    planner=plan,
    run=run,
    error_meaning="standard deviation of the noise on a share of the records below some value, at most",
    unit="",
)

"""Neighbouring pairs of every statistic there is, and a search for the pair that moves a sum furthest.

A new statistic is a new case in `CASES`. The audit searches in all of them, and quickly in every run of the
tests. Those look at each statistic at chosen points besides, among hostile rows (`testing.hostile_rows`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import floor, inf, isfinite, nan, sqrt
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize

from privest import manifolds
from privest.arrays import Array, lengths
from privest.data.metadata import PointsMetadata
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import Column, Recipe
from privest.estimators.frechet_mean.column_means import ColumnSum
from privest.estimators.frechet_mean.histogram import DistanceShares
from privest.estimators.frechet_mean.losses import (
    CandidateDistances,
    ScaledGradient,
    SquaredDistance,
    SquaredDistanceChange,
)
from privest.estimators.frechet_mean.radius_search import DistanceCounts, Range
from privest.estimators.linear_model.feature_map import FeatureMap
from privest.estimators.linear_model.losses.curved import CurvedGradient
from privest.estimators.linear_model.losses.logistic import Classifier, ClassMoments, LogisticGradient
from privest.estimators.linear_model.losses.scores import (
    LinearScores,
    RightAnswers,
    RightAnswersOfEach,
    ScoreHistogram,
)
from privest.estimators.linear_model.losses.spread import ClassCounts, FeatureSpread, LengthCounts
from privest.estimators.range_finding.column_ranges import ColumnCounts
from privest.estimators.range_finding.column_scales import Columns, Standardised
from privest.estimators.range_finding.projections import Coordinates, Distance, Viewed
from privest.estimators.subspace.candidates import CandidateGradients, Candidates, CandidateScores
from privest.estimators.subspace.column_center import CenterSum
from privest.estimators.subspace.completion_means import Completed, HeldOut, KnownSums, LeftMoment
from privest.estimators.subspace.distances import DistanceHistogram
from privest.estimators.subspace.gap_moment import GapMoment
from privest.estimators.subspace.losses import (
    Absolute,
    Bounded,
    Redescending,
    Squared,
    SubspaceDistance,
    SubspaceQuery,
)
from privest.estimators.subspace.second_look import SecondLook
from privest.estimators.subspace.second_moment import Frame, SecondMoment
from privest.estimators.subspace.sketch import Sketch
from privest.privacy import clipped_sums
from privest.privacy.clipped_sums import Statistic
from privest_papers.completion_descent import CompletionGradient
from privest_papers.nonconvex_losses import (
    LOGISTIC,
    SAVAGE,
    SIGMOID,
    ClippedGradient,
    ClippedHessian,
    GemanMcClure,
    Gradients,
    Hessians,
    Leaf,
    LinearQuery,
    MarginLoss,
)
from privest_papers.reaper import Reaper, Relaxation
from privest_papers.subspace_rsvrg import SubspaceDistanceChange
from testing.hostile_rows import FEATURE_MAPS, FEATURES, PlacedCase, each_alone
from testing.leading_eigenvector import LeadingEigenvector
from testing.regression import Biweight, RegressionLoss

_FOUND = 0.95
"""Share of the bound at which the quick search ends. The long search goes on."""

_CLIMB: Any = {"maxfun": 1_500}
Method = Literal["L-BFGS-B", "Nelder-Mead"]
"""Searches of scipy that serve here: by slopes, or without."""

_STARTS = 24, 40
"""Most starts of a quick search, and of a long one."""


@dataclass(frozen=True)
class Case:
    """A statistic, with all records and points that a search may choose.

    Attributes:
        statistic: whose diameter is declared.
        clip: as plans have it, or near it.
        record: a row of so many free numbers, (n,) to (1, ...).
        point: of free numbers.
        sizes: how many free numbers a record has, and a point.
    """

    statistic: Statistic
    clip: float
    record: Callable[[Array], Array]
    point: Callable[[Array], Any]
    sizes: tuple[int, int]

    def declared(self, share: float = 1.0) -> float:
        """What noise is for if this share of the diameter were declared: it, and rounding."""
        diameter = share * self.statistic.diameter(self.clip)
        return clipped_sums.sensitivity(diameter, self.clip, self.statistic.size, 0.0)

    def widest(self, *, long: bool) -> float:
        """The furthest that one record in another's place was seen to move the sum."""
        rng, found = np.random.default_rng(0), 0.0
        for _ in range(_STARTS[long]):
            found = max(found, self._climb(rng))
            if not long and found > _FOUND * self.statistic.diameter(self.clip):
                break
        return found

    def _climb(self, rng: np.random.Generator) -> float:
        """Uphill from two records, opposite ones every other time, seen from far or near."""
        of_record, of_point = self.sizes

        def minus(free: Array) -> float:
            one, other, at = np.split(free, [of_record, 2 * of_record])
            point = self.point(at)
            one, other = (
                self.statistic.clipped_sum(point, self.record(row), self.clip) for row in (one, other)
            )
            moved = float(np.linalg.norm(one - other)) / self.clip
            return -moved if isfinite(moved) else -inf

        pair = rng.standard_normal((2, of_record))
        if rng.random() < 0.5:
            pair[1] = -pair[0]
        point = rng.standard_normal(of_point) * 10.0 ** rng.uniform(-1.0, 1.5)
        start = np.concatenate([*pair, point])
        return -self.clip * _least(minus, start, "L-BFGS-B", _CLIMB)


def _least(minus: Callable[[Array], float], start: Array, method: Method, options: Any) -> float:
    """The least value that a search from here finds."""
    return float(minimize(minus, start, method=method, options=options).fun)


# Pairs among given rows


def widest(statistic: Statistic, point: Any, rows: Array, clip: float) -> float:
    """The furthest that one of the rows in another's place moves the sum; none is longer than the clip."""
    alone = each_alone(statistic, point, rows, clip)
    assert lengths(alone).max() <= clip * (1 + 1e-12)
    return float(lengths(alone[:, None] - alone[None]).max())


def _squares_apart(vectors: Array) -> Array:
    squares = np.vecdot(vectors, vectors)
    return squares[:, None] + squares - 2 * vectors @ vectors.T


def _furthest(squares: Array) -> Any:
    return np.unravel_index(np.argmax(squares), squares.shape)


def furthest_pair(case: PlacedCase) -> Array:
    """The two rows of its pool that move the sum furthest. (2, dim)"""
    pool = case.pool()
    return pool[list(_furthest(_squares_apart(case.alone(pool))))]


def worst_move(case: PlacedCase) -> float:
    """The furthest that one record was seen to move the sum, over what is paid for.

    First all pairs of its pool, then uphill from the widest pair of ordinary rows in what is known of them.
    """
    pool = case.pool()
    vectors = case.alone(pool) / case.clip
    squares = _squares_apart(vectors)
    first, second = _furthest(squares)
    worst, allowed = float(lengths(vectors[first] - vectors[second])), case.allowed / case.clip
    if worst < case.reach * allowed or case.dim <= 3:
        size = np.abs(np.where(np.isnan(pool), 0.0, pool)).max(axis=1)
        ordinary = (size < 1e3) & (size > 1e-3)
        start = pool[list(_furthest(np.where(ordinary[:, None] & ordinary, squares, -1.0)))]
        known = ~np.isnan(start)

        def minus(values: Array) -> float:
            pair = start.copy()
            pair[known] = values
            one, other = case.alone(pair)
            return -float(lengths(one - other)) / case.clip

        worst = max(worst, -_least(minus, start[known], "Nelder-Mead", {"maxfev": 400}))
    return worst / allowed


# Records and points of free numbers


def _row(free: Array) -> Array:
    return free[None]


def _labelled(classes: int, free: Array) -> Array:
    """The last number decides the label, and is far from where it changes it."""
    return np.append(free[:-1], float(int(10 * abs(free[-1])) % classes))[None]


def _unit(free: Array) -> Array:
    return free / np.linalg.norm(free)


def _frame(dim: int, free: Array) -> Array:
    """Orthonormal columns."""
    return np.linalg.qr(free.reshape(dim, -1))[0]


def _rising(free: Array) -> Array:
    """(columns, 4) nodes."""
    return np.cumsum(0.1 + np.abs(free.reshape(-1, 4)), axis=1) - 1.0


def _nothing(free: Array) -> None:
    return None


_DIM, _RANK = 5, 2
_SPACES = (
    ("euclidean", {"dim": 3}),
    ("sphere", {"dim": 3}),
    ("spd", {"dim": 2}),
    ("spd", {"dim": 2, "metric": "log-euclidean"}),
    ("spd", {"dim": 2, "metric": "bures-wasserstein"}),
    ("poincare-ball", {"dim": 2}),
    ("lorentz", {"dim": 2}),
    ("grassmann", {"dim": 3, "rank": 1}),
)


def _of_points() -> Iterator[Case]:
    for name, params in _SPACES:
        space = manifolds.get(name, **params)
        size, place = space.coordinate_size, partial(space.exp_coordinates, space.reference)

        def record(free: Array, place: Callable[[Array], Array] = place) -> Array:
            return place(free)[None]

        yield Case(SquaredDistance(space), 0.3, record, place, (size, size))

        def asked(free: Array, place: Callable[[Array], Array] = place) -> tuple[Array, float]:
            return place(free[:-1]), 0.3 * float(np.exp(np.clip(free[-1], -2, 2)))

        def shifted(free: Array, place: Callable[[Array], Array] = place) -> tuple[Array, Array, float]:
            point, center = np.split(free[:-1], 2)
            return place(point), center, float(np.exp(np.clip(free[-1], -2, 2)))

        yield Case(ScaledGradient(space), 1.0, record, shifted, (size, 2 * size + 1))
        yield Case(DistanceCounts(space), 1.0, record, asked, (size, size + 1))

        def among(free: Array, place: Callable[[Array], Array] = place) -> tuple[Array, Array, Array, float]:
            center, point = map(place, np.split(free, 2))
            return point, np.array([0.1, 0.3, 1.0, 3.0]), center, 1.0

        def candidates(free: Array, place: Callable[[Array], Array] = place) -> tuple[Array, ...]:
            return tuple(map(place, np.split(free, 2)))

        yield Case(DistanceShares(space, 4), 1.0, record, among, (size, 2 * size))
        yield Case(CandidateDistances(space, 2, 1.0), 1.0, record, candidates, (size, 2 * size))
        yield Case(Range(space, 1.0, is_declared=True).counts, 1.0, record, asked, (size, size + 1))
        away = Viewed(ColumnCounts(1, 4), Distance(space, place(np.full(size, 0.1))))
        yield Case(away, 1.0, record, _rising, (size, 4))
        # Where space is flat, all records change alike; batches pay for lengths, not for a diameter.
        if name != "euclidean" and params.get("metric") != "log-euclidean":

            def both(free: Array, place: Callable[[Array], Array] = place) -> tuple[Array, ...]:
                return tuple(map(place, np.split(free, 2)))

            yield Case(SquaredDistanceChange(space), 0.05, record, both, (size, 2 * size))
    yield Case(LeadingEigenvector(3), 1.0, lambda free: _unit(free)[None], _unit, (3, 3))


def _of_tables() -> Iterator[Case]:
    """Rows of a table through a recipe, which draws them in to their bounds."""
    columns = (Column("a", "number", -1.0, 1.0), Column("b", "number", -1.0, 1.0), Column("c", "boolean"))
    made = metadata_for(PointsMetadata, TableMetadata(1, columns), TableChoice())
    space = manifolds.get("euclidean", dim=3)

    def record(free: Array) -> Array:
        assert made.recipe is not None
        return made.recipe(np.append(free[:2], free[2] > 0)[None])

    yield Case(SquaredDistance(space), 0.3, record, lambda free: free, (3, 3))

    yield from _of_column_sums()

    for unsigned in (False, True):
        yield Case(ColumnCounts(3, 4, unsigned), 1.0, _row, _rising, (3, 12))

    def units(free: Array) -> tuple[Columns, tuple[Array, float]]:
        scale = np.exp(np.clip(free[3:6], -2, 2))
        return Columns(free[:3], scale, 2.0), (np.zeros(3), 3.0)

    yield Case(Standardised(DistanceCounts(space)), 1.0, _row, units, (3, 6))
    some = Coordinates(("a", "b", "c"), (0, 2, 3), (-1, 4, -1), np.zeros(3), np.ones(3))
    yield Case(Viewed(ColumnCounts(3, 4), some), 1.0, _row, _rising, (5, 12))


def _of_column_sums() -> Iterator[Case]:
    """Sums of numbers, yes/no, categories and gaps, within intervals that a run chose."""
    number, yes = Column("a", "number", -1.0, 1.0), Column("b", "boolean")
    three = Column("c", "category", categories=("x", "y", "z"))
    gaps = Column("d", "number", -1.0, 1.0, missing="filled", fill=1.0)
    for columns in ((number,), (number, number, yes), (three, number), (three, yes, gaps)):
        named = tuple(replace(column, name=f"c{at}") for at, column in enumerate(columns))
        recipe = metadata_for(PointsMetadata, TableMetadata(1, named), TableChoice()).recipe
        assert recipe is not None
        size = len(recipe.features)

        def image(free: Array, recipe: Recipe = recipe) -> Array:
            values = [
                (nan if column.missing == "filled" and value > 0.5 else value)
                if column.is_ordered
                else float(floor(10 * value) % len(column.values))
                for column, value in zip(recipe.columns, free.tolist(), strict=True)
            ]
            return recipe(np.array(values)[None])

        def interval(free: Array, recipe: Recipe = recipe, size: int = size) -> Columns:
            numbers = np.isin(np.arange(size), recipe.numbers)
            scale = np.where(numbers, np.exp(np.clip(free[size:], -2, 0)), 1.0)
            return Columns(np.where(numbers, np.clip(free[:size], -1, 1), 0.0), scale, 1.0)

        yield Case(ColumnSum(recipe), 1.0, image, interval, (len(columns), 2 * size))
        yield Case(CenterSum(recipe), 1.0, image, lambda _: None, (len(columns), 0))


def _of_vectors() -> Iterator[Case]:
    framed = (_DIM, _DIM * _RANK)
    for loss in (Absolute(), Squared(), Bounded(0.2), Redescending(0.5)):

        def at(free: Array, loss: Any = loss) -> SubspaceQuery:
            return SubspaceQuery(_frame(_DIM, free), loss)

        for clip in (1.0, 0.3):
            yield Case(SubspaceDistance(_DIM, _RANK), clip, _row, at, framed)
            yield Case(SecondLook(_DIM, _RANK), clip, _row, at, framed)
    for rank in (1, _RANK):
        yield Case(SubspaceDistanceChange(_DIM, rank), 0.05, _row, _both, (_DIM, 2 * _DIM * rank))
    for clip in (1.0, 0.3):
        # Also of P that no solver has.
        yield Case(Reaper(4), clip, _row, lambda free: Relaxation(free.reshape(4, 4)), (4, 16))
        yield Case(Reaper(_RANK), clip, _row, _within_frame, (_DIM, _DIM * _RANK + _RANK**2))
    for moment in (SecondMoment(_DIM), SecondLook(_DIM, _RANK)):
        yield Case(moment, 1.0, _row, lambda _: Frame(), (_DIM, 0))
    for rank in (1, _RANK):
        yield Case(SecondMoment(rank), 1.0, _row, lambda free: Frame(_frame(_DIM, free)), (_DIM, _DIM * rank))
    for clip in (0.2, 0.6, 1.0):
        yield Case(Sketch(_DIM, _RANK), clip, _row, lambda free: Frame(_frame(_DIM, free)), framed)
    # Any two rows in different bins are as far apart as can be: the first pair of a search may be such.
    yield Case(DistanceHistogram(), 1.0, _row, lambda free: Frame(_frame(_DIM, free)), framed)
    yield Case(GapMoment(_DIM), 1.0, _row, _nothing, (_DIM, 0))
    yield Case(KnownSums(_DIM), 1.0, _row, _nothing, (_DIM, 0))
    yield Case(LeftMoment(_DIM), 1.0, _row, np.tanh, (_DIM, _DIM))
    yield Case(HeldOut(), 1.0, _row, _completed, (_DIM, _DIM * (_RANK + 1)))
    for clip in (0.3, 0.05):
        yield Case(CompletionGradient(_DIM, _RANK), clip, _row, partial(_frame, _DIM), framed)
    candidates = (_DIM, _DIM * (_RANK + 1) + _RANK + 1)
    for scale in (0.15, 0.5):
        alike = partial(_candidates, _RANK + 1, scale)
        yield Case(CandidateGradients(_RANK + 1, _RANK), sqrt(_RANK + 1), _row, alike, candidates)
    count = 2 * _RANK + 2  # compared at the least scale: at a larger one no loss comes near 1
    alike = partial(_candidates, count, 0.15)
    yield Case(CandidateScores(count), sqrt(count), _row, alike, candidates)


def _completed(free: Array) -> Completed:
    """A completion by any means and basis."""
    return Completed(np.tanh(free[:_DIM]), _frame(_DIM, free[_DIM:]), np.full(_RANK, 0.3))


def _both(free: Array) -> tuple[SubspaceQuery, SubspaceQuery]:
    """A subspace and an anchor."""
    at, anchor = (_frame(_DIM, half) for half in np.split(free, 2))
    return SubspaceQuery(at, Squared()), SubspaceQuery(anchor, Squared())


def _within_frame(free: Array) -> Relaxation:
    """A relaxation within the span of a few directions."""
    frame, p = np.split(free, [_DIM * _RANK])
    return Relaxation(p.reshape(_RANK, _RANK), None, _frame(_DIM, frame))


def _candidates(count: int, scale: float, free: Array) -> Candidates:
    """All alike: what moves one moves all."""
    frame, normal = np.split(free, [_DIM * (_RANK + 1)])
    return Candidates(_frame(_DIM, frame), np.tile(_unit(normal), (count, 1)), scale)


_PLAIN = FEATURE_MAPS["plain"]
_WITH_INTERCEPT = FeatureMap(np.zeros(FEATURES), np.ones(FEATURES), 1.0, 0.2, 1.0)
_RECORD = FEATURES + 1


def _of_labelled() -> Iterator[Case]:
    feature_map = _WITH_INTERCEPT
    for classes in (2, 3, 10):
        moments = ClassMoments(feature_map.size, classes)
        yield Case(moments, moments.longest, partial(_labelled, classes), lambda _: feature_map, (_RECORD, 0))
    for classes in (2, 3):
        loss, record = LogisticGradient(feature_map.size, classes), partial(_labelled, classes)

        def classifier(free: Array, loss: LogisticGradient = loss) -> Classifier:
            return Classifier(feature_map, 5 * free.reshape(loss.shape))

        for clip in (loss.longest, 0.1):
            yield Case(loss, clip, record, classifier, (_RECORD, loss.size))
        curved = CurvedGradient(feature_map.size, classes)
        for clip in (curved.longest, 0.3):
            yield Case(curved, clip, record, classifier, (_RECORD, loss.size))
    two = partial(_labelled, 2)
    spread = FeatureSpread(FEATURES)
    yield Case(spread, spread.longest, two, lambda _: _PLAIN, (_RECORD, 0))
    for counts in (LengthCounts(), ClassCounts(2)):
        yield Case(counts, 1.0, two, lambda _: _PLAIN, (_RECORD, 0))
    yield Case(ClassCounts(3), 1.0, partial(_labelled, 3), lambda _: _PLAIN, (_RECORD, 0))
    scored = (_RECORD, _RECORD)
    for statistic in (RightAnswers(), ScoreHistogram(np.linspace(-2.0, 2.0, 5))):
        yield Case(statistic, 1.0, two, lambda free: LinearScores(free[:-1], free[-1]), scored)
    for clip in (sqrt(3.0), 1.0):
        yield Case(RightAnswersOfEach(3), clip, two, _three_alike, scored)


def _three_alike(free: Array) -> list[LinearScores]:
    """Three classifiers that hardly differ, as candidates may."""
    return [LinearScores(free[:-1] + tilt, free[-1]) for tilt in (-0.01, 0.0, 0.01)]


def _of_linear_losses() -> Iterator[Case]:
    two, sizes = partial(_labelled, 2), (_RECORD, FEATURES)
    margins = [(MarginLoss(_PLAIN, profile), two) for profile in (LOGISTIC, SIGMOID, SAVAGE)]
    residuals = [(RegressionLoss(_PLAIN, profile), _row) for profile in (Biweight(1.5), GemanMcClure(0.7))]
    for loss, record in (*margins, *residuals):
        placed = partial(LinearQuery, loss)
        for part in (1.0, 0.4):
            yield Case(ClippedGradient(FEATURES), part * loss.profile.gradient_bound, record, placed, sizes)
            curvatures = ClippedHessian(FEATURES, *loss.profile.curvatures)
            yield Case(curvatures, part * loss.hessians_clip, record, placed, sizes)
    # Streams, of the loss that bends both ways alike. A convex one's Hessians are closer together by √2, and
    # its changes of gradients by 2: a clip of lengths, which is all that privacy rests on, cannot tell.
    loss, batch, moved = MarginLoss(_PLAIN, SIGMOID), 7, 0.05
    changed = (_RECORD, 2 * FEATURES)

    def change(free: Array) -> Leaf:
        at, way = np.split(free, 2)
        return Leaf(at, at + moved * _unit(way), batch)

    for derivative, first, later in (
        (Gradients(loss), loss.gradient_bound, loss.gradient_lipschitz),
        (Hessians(loss, 1), loss.gradient_lipschitz, loss.hessian_lipschitz),
    ):
        for part in (1.0, 0.4):
            yield Case(derivative, part * first / batch, two, lambda free: Leaf(free, None, batch), sizes)
        yield Case(derivative, later * moved / batch, two, change, changed)


CASES: tuple[Case, ...] = (
    *_of_points(),
    *_of_tables(),
    *_of_vectors(),
    *_of_labelled(),
    *_of_linear_losses(),
)

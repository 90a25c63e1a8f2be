"""Private means of a table's columns: a noisy sum within declared bounds, or closer ones that surely win.

The baseline is one noisy sum of all columns, each in halves of its declared width. It is unbiased, and its
interval follows from the noise alone. Columns of yes/no and of categories get nothing else. For numbers and
dates the run first releases histograms, which show where most values are and how far the others get. A column
is clipped to a closer range only where noise and an upper bound of what that cuts off are less than half of
the plain error. A plain sum with a part of the budget checks each such column, and is the answer where the
two disagree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import inf, isfinite, log, sqrt

import numpy as np
from scipy.special import chdtri, erf, gammaincinv

from privest.arrays import Array
from privest.data.column_estimates import NO_INTERVAL
from privest.data.records import CHUNK
from privest.data.tables import Recipe, listed
from privest.estimators.frechet_mean.fixed_clip import MeanError
from privest.estimators.frechet_mean.histogram import NODES, excess_bounds
from privest.estimators.range_finding.column_ranges import ColumnCounts, ColumnRanges, Truths
from privest.estimators.range_finding.column_scales import Columns, Standardised
from privest.estimators.range_finding.projections import Coordinates, Viewed
from privest.estimators.uncertainty import Uncertainty
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic, any_floats, clipped_sum
from privest.privacy.mechanisms import AlternativeSum, NoisySum, Release, SampledSum
from privest.privacy.oracle import Oracle

_HEAVIER = 2.5
"""Variance of the square of a Laplace variate over that of a normal one with the same variance."""


def coordinate_radius(release: NoisySum) -> float:
    """Return half the length of the 95 % interval of one number of a released mean."""
    if release.noise == "gaussian":
        return 1.959964 * release.deviation
    if release.size == 1 or release.noise == "independent-laplace":
        return log(20) * release.scale / release.divisor
    # A normal vector of a random deviation W, where W² is χ² with size + 1 degrees of freedom.
    spread = np.sqrt(chdtri(release.size + 1, (np.arange(400) + 0.5) / 400))
    low, high = 0.0, 10 * float(spread.max())
    for _ in range(60):
        middle = (low + high) / 2
        within = float(erf(middle / (sqrt(2) * spread)).mean())
        low, high = (middle, high) if within < 0.95 else (low, middle)
    return high * release.scale / release.divisor


def joint_radius(deviations: Array, release: NoisySum) -> float:
    """Return the length that noise does not exceed with probability .95.

    The sum of squares of variates of these deviations is taken for a χ² variate with the same mean and
    variance (Satterthwaite 1946).
    """
    square = deviations**2
    if not square.any():
        return 0.0
    freedom = float(square.sum() ** 2 / (square**2).sum())
    if release.noise == "independent-laplace":
        freedom /= _HEAVIER
    radius = sqrt(float(square.sum()) * float(chdtri(freedom, 0.05)) / freedom)
    if release.noise != "laplace":
        return radius
    size = release.size
    return radius * float(gammaincinv(size, 0.95)) / sqrt((size + 1) * float(chdtri(size, 0.05)))


_WIN = 0.5
"""A clipped interval must be shorter than this part of the plain one."""

_SEEN = 4.0
"""Deviations of the noise by which a share of the records must exceed 0 to count as seen."""

_CLIPS = np.exp2(np.arange(-3, 33, 0.25))
"""Clips that are considered, over the distance within which most records are."""


@dataclass(frozen=True)
class ColumnHistograms:
    """The histograms of columns that are numbers or dates.

    Attributes:
        columns: these, in the units of records, with the bounds that they have.
    """

    columns: Coordinates

    @classmethod
    def at(cls, recipe: Recipe) -> "ColumnHistograms":
        """Return the histograms of all numbers and dates of a recipe; gaps count as their fill."""
        return cls(Coordinates.at(recipe.numbers, recipe))

    @property
    def low(self) -> Array:
        """(columns,) declared lower bounds; −∞ where there is none."""
        return self.columns.low

    @property
    def high(self) -> Array:
        """(columns,) declared upper bounds; ∞ where there is none."""
        return self.columns.high

    @property
    def is_open(self) -> Truths:
        """(columns,) whether a bound is missing."""
        return ~np.isfinite(self.high - self.low)

    @property
    def ranges(self) -> ColumnRanges:
        """Histograms that find where most values are."""
        return ColumnRanges(self.low, self.high)

    @property
    def distances(self) -> ColumnCounts:
        """Histogram of distances from there."""
        return ColumnCounts(len(self.columns.names), len(NODES), unsigned=True)

    @property
    def statistics(self) -> dict[str, AnyStatistic]:
        """The statistics that the gate sums, by name."""
        each = {**self.ranges.statistics, "spreads": Standardised(self.distances)}
        return {name: Viewed(statistic, self.columns) for name, statistic in each.items()}


@dataclass(frozen=True)
class ClippedIntervals:
    """The intervals to which columns are clipped.

    Attributes:
        intervals: (features,) centres and half widths.
        bias: (features,) upper bound of what clipping moves a mean, in the units of the records; infinite
            where none holds.
        is_clipped: (features,) whether the interval is closer than the declared one.
        squares: (features,) mean squared distance of values from their centre, about; of shares 0.
        hidden: names of columns without bounds whose values the noise hides.
        unbounded: names of columns without bounds that are seen, but whose tails nothing bounds.
        rare: share of the records that may be far from all others unseen; 0 where none can.
    """

    intervals: Columns
    bias: Array
    is_clipped: Truths
    squares: Array
    hidden: tuple[str, ...] = ()
    unbounded: tuple[str, ...] = ()
    rare: float = 0.0


def choose(recipe: Recipe, gate: Oracle, planned: Sequence[Release]) -> ClippedIntervals:
    """Return the intervals that histograms of the columns suggest."""
    histograms = ColumnHistograms.at(recipe)
    named = [each for each in planned if isinstance(each, NoisySum)]
    spreads = next(each for each in named if each.statistic == "spreads")
    clipped = next(each for each in named if each.statistic == "clipped")
    plain = next((each for each in named if each.statistic == "plain"), clipped)
    found = histograms.ranges.find(
        gate, [each for each in named if each.statistic in histograms.ranges.statistics]
    )
    step = (found.nodes[:, 1] - found.nodes[:, 0]) / 2
    half = np.maximum(found.width / 2, step)
    nodes, count = half[:, None] * NODES, len(half)
    units = Columns(found.center, np.ones(count))
    seen = histograms.distances.shares(gate.mean((units, nodes), "spreads"))[:, :-1]
    deviation = spreads.deviation * sqrt(count)
    sample = spreads.sample if isinstance(spreads, SampledSum) else inf
    per_width = coordinate_radius(clipped) * recipe.radius
    base = coordinate_radius(plain) * recipe.radius
    columns = [
        _Column(*ends, deviation=deviation, sample=sample, nodes=nodes[at], shares=seen[at])
        for at, ends in enumerate(
            zip(
                found.center.tolist(),
                half.tolist(),
                histograms.low.tolist(),
                histograms.high.tolist(),
                strict=True,
            )
        )
    ]
    chosen = [
        column.closest(per_width, _WIN * base) or (0.0, 1.0, 0.0)
        if isfinite(column.high - column.low)
        else column.open_interval(per_width, is_seen)
        for column, is_seen in zip(columns, found.seen.tolist(), strict=True)
    ]
    center, scale, bias = np.array(chosen).T
    squares = np.array([column.mean_square for column in columns])
    is_open = histograms.is_open
    missing = is_open & ~np.isfinite(bias)
    hidden, unbounded = (
        tuple(compress(histograms.columns.names, missing & part)) for part in (~found.seen, found.seen)
    )
    closer_than_declared = is_open | (scale < 1.0)
    intervals = Columns(_spread_out(recipe, center, 0.0), _spread_out(recipe, scale, 1.0), 1.0)
    return ClippedIntervals(
        intervals,
        _spread_out(recipe, bias, 0.0),
        among(recipe, closer_than_declared),
        _spread_out(recipe, squares, 0.0),
        hidden,
        unbounded,
        _SEEN * deviation,
    )


def among(recipe: Recipe, chosen: Truths) -> Truths:
    """Return (features,) truths of the columns that are numbers; false for the rest."""
    found = np.zeros(len(recipe.features), dtype=np.bool_)
    found[list(recipe.numbers)] = chosen
    return found


def _spread_out(recipe: Recipe, values: Array, others: float) -> Array:
    """Return (features,) values of the columns that are numbers, and others for the rest."""
    found = np.full(len(recipe.features), others)
    found[list(recipe.numbers)] = values
    return found


@dataclass(frozen=True)
class _Column:
    """Released histograms of one column.

    Attributes:
        center: of most values.
        half: distance within which most are.
        low, high: declared bounds; infinite where there is none.
        nodes: (nodes,) distances from the centre.
        shares: (nodes,) noisy shares of the records there.
        deviation: standard deviation of the noise on each.
        sample: number of records that were counted; infinite where it is all of them.
    """

    center: float
    half: float
    low: float
    high: float
    nodes: Array
    shares: Array
    deviation: float
    sample: float

    @property
    def _last(self) -> int:
        """The last node at which records are seen; 0 where noise hides all."""
        beyond = np.cumsum(self.shares[::-1])[::-1]
        seen = np.flatnonzero(beyond > _SEEN * self.deviation * np.sqrt(np.arange(len(beyond), 0, -1)))
        return int(seen[-1]) if len(seen) else 0

    @property
    def mean_square(self) -> float:
        """Mean squared distance of values from the centre, as far as they are seen; 0 where none are."""
        upto = self._last + 1 if self._last else 0
        return float(np.maximum(self.shares[:upto], 0.0) @ self.nodes[:upto] ** 2)

    @property
    def _reach(self) -> float:
        """Largest distance of a value from the centre."""
        return max(self.high - self.center, self.center - self.low)

    def _bounds(self, clips: Array) -> Array | None:
        """Return upper bounds of what each clip cuts off."""
        within = int(np.searchsorted(self.nodes, self._reach)) + 1
        if within < 4:
            return None
        return excess_bounds(
            self.nodes[:within], self.shares[:within], self.deviation, clips, sample=self.sample
        )

    def _within(self, clip: float) -> tuple[float, float]:
        """Return centre and half width of the part of the declared interval that a clip keeps."""
        low, high = max(self.low, self.center - clip), min(self.high, self.center + clip)
        return (low + high) / 2, (high - low) / 2

    def closest(self, noise: float, most: float) -> tuple[float, float, float] | None:
        """Return centre, half width and bias of the best clipped interval, or None if it is no better.

        Args:
            noise: half length of the interval by noise alone, for a half width of 1.
            most: the interval must be shorter than this.
        """
        clips = self.half * _CLIPS
        clips = clips[clips < self._reach]
        cut = self._bounds(clips) if len(clips) else None
        if cut is None:
            return None
        widths = np.array([self._within(clip)[1] for clip in clips.tolist()])
        lengths = noise * widths + cut
        best = int(lengths.argmin())
        return (*self._within(float(clips[best])), float(cut[best])) if lengths[best] < most else None

    def open_interval(self, noise: float, is_seen: bool) -> tuple[float, float, float]:
        """Return centre, half width and bias of the best interval of a column without bounds.

        The bias is infinite where nothing bounds it usefully: by less than the furthest distance at which
        values are seen. The interval is then twice as wide as that.
        """
        furthest = float(self.nodes[self._last]) if is_seen and self._last else self.half
        clips = self.half * _CLIPS
        cut = self._bounds(clips) if is_seen else None
        if cut is not None:
            lengths = noise * np.array([self._within(clip)[1] for clip in clips.tolist()]) + cut
            best = int(lengths.argmin())
            if lengths[best] < furthest:
                return (*self._within(float(clips[best])), float(cut[best]))
        return (*self._within(2 * furthest), inf)


_RANGES, _FAR = 0.06, 0.10
"""Largest shares of μ² for the histograms that find ranges, and for the one of distances from there."""

_PURE_RANGES, _PURE_FAR = 0.02, 0.04
"""These shares of ε where δ is 0. Errors grow with the share there and not with its root."""

_OPEN_RANGES, _OPEN_FAR = 0.1, 0.15
"""These shares where some column lacks a bound, so that there is no plain sum."""

_CHECK = 0.25
"""Share of the rest that the plain sum has where some column is clipped."""

_SUMS = ("plain", "check", "clipped")
"""Names of the releases that are sums of the columns."""

_DISAGREE = 3.0
"""Fewest deviations of its noise by which the plain sum must differ from the clipped one to count."""

_BLIND = 0.12
"""Noise on a share of the records from which on histograms cannot show a closer range: they are left out."""

_HIDDEN = 0.18
"""Noise on a share of the records from which on a column without bounds cannot be found."""

_SAMPLE = 32 * CHUNK
"""Records whose distances are counted where there are eight times as many or more: it saves time."""

_MOST_OPEN = 1_000
"""Most columns that lack a bound in one query: histograms of more take long to read."""

_USELESS = 0.5
"""Half length of an interval, over half of a column's declared width, that says nothing useful."""


@dataclass(frozen=True)
class ColumnSum:
    """The sum of records whose values are drawn in to an interval for each column, in halves of its width.

    Its query is `Columns`: (features,) centres and half widths. The vectors of all records lie in the ball of
    length `clip`, and no two are further apart than `diameter`, because of k exclusive indicators a row has
    one.

    This holds for rows of any numbers. With indicators as shares from 0 to 1, a row whose k shares add up to
    more than 1 has them divided by their sum. So they are a convex combination of no indicator and of the k
    that have one. All of these lie in the ball, and no two are further apart than two that have one. A row
    with one indicator stays the same to the last bit, so that this changes no answer.

    Attributes:
        recipe: makes the records.
    """

    recipe: Recipe
    description: str = "the mean of the columns"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return len(self.recipe.features)

    def diameter(self, clip: float) -> float:
        """Bound on the distance between the vectors of any two records."""
        return min(self.recipe.diameter / self.recipe.radius, 2.0) * clip

    def l1_diameter(self, clip: float) -> float:
        """Bound on their L1 distance: 2 half widths for a number, 4 for k exclusive indicators."""
        return self.recipe.l1_diameter / self.recipe.radius * clip * (1 + 1e-12)

    @any_floats
    def clipped_sum(self, query: Columns, rows: Array, clip: float) -> Array:
        """Σ of the records in half widths of their intervals, from the centre of the ball, scaled to `clip`.

        Args:
            query: the intervals; `most` is 1.
            rows: (n, features) records.
            clip: length of a record's vector at most.
        """
        vectors = query.images(rows)
        for group in self.recipe.groups:
            indicators = vectors[:, group]
            indicators += 1.0
            indicators /= np.maximum(indicators.sum(axis=1, keepdims=True) / 2, 1.0)
            indicators -= 1.0
        if self.recipe.center.any():
            vectors -= self.recipe.center
        vectors *= clip / self.recipe.radius
        return clipped_sum(vectors, clip)

    def mean(self, released: Array) -> Array:
        """(features,) mean in half widths of the intervals, by a released mean with the clip 1."""
        return released * self.recipe.radius + self.recipe.center


def statistics(recipe: Recipe) -> Mapping[str, AnyStatistic]:
    """Return the statistics that the gate may sum for means of columns, by the names of releases."""
    total = ColumnSum(recipe)
    check = ColumnSum(recipe, "the mean of the columns, as a check")
    clipped = ColumnSum(recipe, "the mean of the columns within closer ranges")
    histograms = ColumnHistograms.at(recipe).statistics if recipe.numbers else {}
    return {**histograms, "plain": total, "check": check, "clipped": clipped}


def releases(recipe: Recipe, target: PrivacyTarget, n: int, *, plain: bool) -> tuple[NoisySum, ...]:
    """Return the releases of a query for means of columns.

    Args:
        recipe: makes the records.
        target: (ε, δ).
        n: number of records.
        plain: whether to take the plain sum alone.

    Raises:
        ValueError: noise would hide where columns without bounds are, or a plain sum lacks bounds.
    """
    budget, total, histograms = PrivacyBudget.of(target, n), ColumnSum(recipe), ColumnHistograms.at(recipe)
    if plain or not recipe.numbers:
        if histograms.is_open.any():
            open_names = [
                name for name, one in zip(histograms.columns.names, histograms.is_open, strict=True) if one
            ]
            raise ValueError(
                f"a plain sum needs low and high of every column: declare those of {listed(open_names)}"
            )
        return (budget.release(total, "plain", 1.0),)
    some_open = bool(histograms.is_open.any())
    most, far = (
        (_OPEN_RANGES, _OPEN_FAR)
        if some_open
        else (_PURE_RANGES, _PURE_FAR)
        if budget.pure
        else (_RANGES, _FAR)
    )
    ranges = [_range_look(histograms, budget, *look) for look in histograms.ranges.looks(budget, most)]
    found = [release for release, _ in ranges]
    _require_visible(histograms, found)
    if not some_open and found[0].deviation * sqrt(len(recipe.numbers)) > _BLIND:
        return (budget.release(total, "plain", 1.0),)
    left = 1 - far - sum(share for _, share in ranges)
    spreads = budget.release(histograms.statistics["spreads"], "spreads", 1.0, share=far)
    if not budget.pure and n >= 8 * _SAMPLE:
        spreads = SampledSum.of(spreads, _SAMPLE)
    check = budget.release(total, "check", 1.0, share=left * _CHECK)
    clipped = budget.release(total, "clipped", 1.0, share=left * (1 - _CHECK))
    first = (*found, spreads)
    if some_open:
        return (*first, check, clipped)
    alone = AlternativeSum.of(budget.release(total, "plain", 1.0, share=left), 0, "plain")
    both = (AlternativeSum.of(each, 1, each.statistic) for each in (check, clipped))
    return (*first, alone, *both)


def _range_look(
    histograms: ColumnHistograms, budget: PrivacyBudget, name: str, share: float
) -> tuple[NoisySum, float]:
    """Return a histogram that finds ranges and its share of a budget; of a sample where one suffices."""
    statistic, sample = histograms.ranges.statistics[name], budget.sample(share)
    if sample is None:
        return budget.release(statistic, name, 1.0, share=share), share
    share *= (budget.n / sample) ** 2
    return SampledSum.of(budget.release(statistic, name, 1.0, share=share), sample), share


def _require_visible(histograms: ColumnHistograms, found: Sequence[NoisySum]) -> None:
    """Refuse columns without bounds that noise would hide."""
    count = int(histograms.is_open.sum())
    if count > _MOST_OPEN:
        raise ValueError(
            f"at most {_MOST_OPEN} columns may lack low and high in one query: name fewer columns"
        )
    if count and found[0].deviation * sqrt(len(histograms.columns.names)) > _HIDDEN:
        raise ValueError(
            "the noise would hide columns without low and high: declare their lowest and highest values, "
            "name fewer columns, or ask with a larger epsilon"
        )


def least_noise(recipe: Recipe, target: PrivacyTarget, n: int) -> PrivacyTarget:
    """Return the target with δ = 0 where a budget adds up (ε, δ) and Laplace noise has the smaller error.

    Args:
        recipe: makes the records.
        target: (ε, δ) as requested.
        n: number of records.
    """
    if target.delta == 0 or not target.adds_up:
        return target
    pure = PrivacyTarget(target.epsilon, 0.0)
    laplace, gaussian = (releases(recipe, each, n, plain=True)[0] for each in (pure, target))
    return pure if coordinate_radius(laplace) < coordinate_radius(gaussian) else target


def _of_forecast(planned: Sequence[Release]) -> NoisySum:
    """Return the plain sum or, where some column lacks a bound, the clipped one."""
    sums = [each for each in planned if isinstance(each, NoisySum)]
    return next((each for each in sums if each.statistic == "plain"), sums[-1])


def forecast(recipe: Recipe, planned: Sequence[NoisySum]) -> MeanError:
    """Return the error of the plain sum, which no clipped one exceeds unless it fails its check."""
    release = _of_forecast(planned)
    deviation = release.deviation * recipe.radius
    radius = joint_radius(np.full(release.size, deviation), release)
    if release.statistic == "plain":
        return MeanError(
            sqrt(release.size) * deviation,
            radius,
            assumes="nothing of the records: it is the noise of one sum over the declared bounds",
            unfavourable=radius if len(planned) == 1 else 2 * radius,
        )
    return MeanError(
        sqrt(release.size) * deviation,
        radius,
        assumes="most values are within 1 of each other in every column without bounds",
        unfavourable=2 * sqrt(2) * radius,
    )


def planned_half_widths(recipe: Recipe, planned: Sequence[Release]) -> Array:
    """Return the forecast of halves of the 95 % intervals, (features,), in the units of records."""
    release = _of_forecast(planned)
    return np.full(release.size, coordinate_radius(release) * recipe.radius)


def range_finding(planned: Sequence[Release]) -> tuple[Release, ...]:
    """Return the histograms of a plan."""
    return tuple(each for each in planned if each.statistic not in _SUMS)


def plan_warnings(recipe: Recipe, planned: Sequence[Release]) -> Iterator[str]:
    """Yield warnings of a plan, from public facts, the most important first."""
    open_columns = [feature.name for feature in recipe.features if not feature.is_bounded]
    if open_columns:
        yield (
            f"{listed(open_columns)} have no declared low and high: the interval then rests on what noisy "
            "histograms show, and where they show too little the answer states none. Declare the lowest and "
            "highest value that anybody may expect"
        )
    if planned_half_widths(recipe, planned)[0] >= _USELESS:
        yield (
            "the noise hides these columns: intervals will be half as wide as the declared ranges or wider. "
            "Ask with a larger epsilon, name fewer columns, or declare closer bounds"
        )


def reason(planned: Sequence[NoisySum], *, asked: bool) -> str:
    """Return why this solver and this noise were taken."""
    noise = "Laplace" if planned[0].noise == "laplace" else "Gaussian"
    least = f"{noise} noise has the least error here"
    if asked:
        return f"it was asked for; {least}"
    if len(planned) == 1:
        return f"one sum over the declared bounds is exact but for its noise; {least}"
    return f"one sum over the declared bounds, or over closer ones where these surely win; {least}"


@dataclass(frozen=True)
class ColumnsMean:
    """The means of columns, as a run estimated them.

    Attributes:
        point: (features,) in the units of the records.
        half_widths: (features,) halves of the 95 % intervals, in these units; `NO_INTERVAL` where none holds.
        uncertainty: of all columns together.
    """

    point: Array
    half_widths: Array
    uncertainty: Uncertainty


def run(recipe: Recipe, gate: Oracle, planned: Sequence[Release], n: int) -> ColumnsMean:
    """Return the means of columns: sees the plan and the gate's noisy answers, never a row.

    Args:
        recipe: makes the records.
        gate: releases the statistics of `statistics`.
        planned: the releases, as `releases` returns them.
        n: number of records.
    """
    size, total = len(recipe.features), ColumnSum(recipe)
    named = {each.statistic: each for each in planned if isinstance(each, NoisySum)}
    whole = Columns(np.zeros(size), np.ones(size), 1.0)
    choice = ClippedIntervals(whole, np.zeros(size), np.zeros(size, dtype=np.bool_), np.zeros(size))
    if "spreads" in named:
        choice = choose(recipe, gate, planned)
    if "plain" in named and not choice.is_clipped.any():
        release = named["plain"]
        image = total.mean(gate.mean(whole, "plain"))
        deviation = np.full(size, release.deviation * recipe.radius)
        return _answer(recipe, image, deviation, choice, release, n)
    return _checked(total, gate, named, choice, n)


def _checked(
    total: ColumnSum, gate: Oracle, named: Mapping[str, NoisySum], choice: ClippedIntervals, n: int
) -> ColumnsMean:
    """Return the answer by a plain sum and a clipped one, each column by the better of both.

    A clipped column is the clipped sum's if the plain one agrees, else the plain one's. Other columns have
    the same interval in both sums, and are their mean by inverse variances.
    """
    is_open = among(total.recipe, ColumnHistograms.at(total.recipe).is_open)
    wide = Columns(
        np.where(is_open, choice.intervals.center, 0.0), np.where(is_open, choice.intervals.scale, 1.0), 1.0
    )
    plain, clipped = (
        columns.center + columns.scale * total.mean(gate.mean(columns, name))
        for columns, name in ((wide, "check"), (choice.intervals, "clipped"))
    )
    radius = total.recipe.radius
    plain_noise = wide.scale * named["check"].deviation * radius
    clipped_noise = choice.intervals.scale * named["clipped"].deviation * radius
    alarm = _alarm(clipped_noise / plain_noise, named["check"])
    agrees = np.abs(plain - clipped) < alarm * plain_noise + choice.bias
    is_checked = choice.is_clipped & ~is_open
    weight = np.where(is_checked, agrees, plain_noise**2 / (plain_noise**2 + clipped_noise**2))
    used = replace(
        choice,
        bias=np.where(is_checked & ~agrees, 0.0, choice.bias),
        is_clipped=choice.is_clipped & (agrees | is_open),
    )
    return _answer(
        total.recipe,
        weight * clipped + (1 - weight) * plain,
        np.hypot(weight * clipped_noise, (1 - weight) * plain_noise),
        used,
        named["clipped"],
        n,
    )


def _alarm(ratio: Array, check: NoisySum) -> Array:
    """Return by how many deviations of its noise the plain sum must differ, (features,).

    A false alarm costs the square of that many deviations. So it must be the rarer, the less noise the
    clipped sum has, or false alarms would decide on the error.

    Args:
        ratio: (features,) noise of the clipped sum over that of the plain one.
        check: the plain sum.
    """
    gain = -np.log(np.minimum(ratio, 1.0))
    rare = 2 * np.sqrt(gain) if check.noise == "gaussian" else sqrt(2) * gain
    return np.maximum(_DISAGREE, rare)


def _answer(
    recipe: Recipe, image: Array, deviation: Array, choice: ClippedIntervals, release: NoisySum, n: int
) -> ColumnsMean:
    """Return the answer with its intervals."""
    quantile = coordinate_radius(release) / release.deviation
    half_widths = np.minimum(quantile * deviation + choice.bias, NO_INTERVAL)
    low, high = recipe.range
    point = np.clip(image, low, high)
    bounded = np.isfinite(choice.bias)
    bias = float(np.linalg.norm(choice.bias[bounded]))
    noise = joint_radius(deviation[bounded], release)
    radius = noise + bias if bounded.any() else NO_INTERVAL
    shares = np.array([feature.is_share for feature in recipe.features])
    squares = np.where(shares, np.maximum(1 - point**2, 0.0), choice.squares)
    known = bool(np.all(shares | (choice.squares > 0)))
    sampling = sqrt(float(squares.sum()) / n) if known else None
    return ColumnsMean(
        point,
        half_widths,
        Uncertainty(
            of="the mean of the records"
            if bounded.all()
            else "the mean of the records, of columns with an interval",
            standard_deviation=min(
                sqrt(float(np.sum(deviation[bounded] ** 2))) + bias if bounded.any() else inf, NO_INTERVAL
            ),
            radius_95=radius,
            noise=noise if bounded.any() else NO_INTERVAL,
            moved=bias,
            sampling=sampling,
            unknown=tuple(_assumptions(choice)),
            warnings=tuple(_warnings(recipe, half_widths, choice)),
        ),
    )


def _assumptions(choice: ClippedIntervals) -> Iterator[str]:
    """Yield what the histograms cannot show."""
    if choice.is_clipped.any():
        yield (
            f"columns are clipped to ranges closer than the declared ones: a group of fewer than about "
            f"{choice.rare:.1%} of the records, far from all others, would not be seen. The solver noisy-sum "
            "assumes nothing"
        )


def _warnings(recipe: Recipe, half_widths: Array, choice: ClippedIntervals) -> Iterator[str]:
    """Yield warnings for the analyst, the most important first."""
    if choice.hidden:
        yield (
            f"The noise hides {listed(choice.hidden)}: declare the lowest and highest value, or ask with a "
            "larger epsilon"
        )
    if choice.unbounded:
        yield (
            f"No interval holds for {listed(choice.unbounded)}: values far off may be too few to be seen. "
            "Declare the lowest and highest value, or ask with a larger epsilon"
        )
    low, high = recipe.range
    wide = np.isfinite(high - low) & (half_widths >= _USELESS)
    if wide.any():
        names = [feature.name for feature, one in zip(recipe.features, wide, strict=True) if one]
        yield (
            f"The noise hides {listed(names)}: the interval is half as wide as the declared range or wider. "
            "Ask with a larger epsilon, name fewer columns, or declare closer bounds"
        )

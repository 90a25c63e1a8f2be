"""The default solver of the Fréchet mean: plain sums over the declared ball, or clipped ones where that pays.

The run has three parts. Rough rounds of a histogram and a gradient each find where most records are. A fine
histogram there, whose nodes reach to the largest distance, decides between the alternatives of the plan:
plain gradients, which cut nothing off within the declared ball, gradients with a narrower clip and a plain
one as a check, or descents to several candidates. The chosen gradients then give the answer: the first ones
are noisy, and each step is as long as is best for what is known before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from math import cos, inf, log, pi, sin, sqrt

import numpy as np

from privest.arrays import Array
from privest.data.records import CHUNK
from privest.estimators.frechet_mean.gradient_solvers import (
    ProblemBounds,
    Schedule,
    SolverPlan,
    distance_shares,
    longest,
)
from privest.estimators.frechet_mean.histogram import Histogram, nodes_within, with_outside
from privest.estimators.frechet_mean.losses import CandidateDistances, ScaledGradient
from privest.estimators.frechet_mean.radius_search import Range
from privest.estimators.frechet_mean.region import (
    EDGE,
    SEVERAL,
    MeanHessian,
    Region,
    outside,
    uncertainty,
    unseen,
)
from privest.estimators.uncertainty import Uncertainty
from privest.manifolds import Manifold
from privest.optim.descent import Ball
from privest.privacy.budget import PrivacyBudget
from privest.privacy.clipped_sums import AnyStatistic
from privest.privacy.mechanisms import AlternativeSum, NoisySum, SampledSum
from privest.privacy.oracle import Oracle

WIN = 0.75
"""Error with a narrower clip over the plain one, at most, for the narrower to be taken."""

_HALF_OCTAVES = 24
"""Nodes of rough histograms below the largest distance, each over the next by √2."""

_CUT_NODES = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
"""Nodes near the cut distance, over it."""

_WIDER = 1.5
"""Clip of a rough gradient over the distance within which most records are."""

_APART = 2.5
"""Distance between the ends of paths to candidates, over the noise in it, from which they are two points."""

_UNDECLARED = 2.0
"""Clip over the distance within which most records are, where no ball is declared and no bound decides."""

_FOUND = 16.0
"""Radius of a ball that the run found, over the clip where noise hides the distances."""

_ANGLES = 181
"""Angles at which a largest length is sought."""

_SURPRISE, _DISAGREEMENT, _EQUAL = 4.0, 3.0, 2.0
"""Standard deviations from which a gradient shows that more is left than expected, a check disagrees with an
answer (at least), and two values of the objective differ."""


class Run(IntEnum):
    """Alternatives of a plan. The gate makes the releases of one."""

    PLAIN = 0
    CLIPPED = 1
    SEVERAL = 2

    @property
    def gradient(self) -> str:
        """Name of its gradients' statistic."""
        return f"{self.prefix}-gradient"

    @property
    def check(self) -> str:
        """Name of the statistic of its check."""
        return f"{self.prefix}-check"

    @property
    def prefix(self) -> str:
        """First part of the names of its statistics."""
        return ("plain", "clipped", "several")[self]


def statistics(within: Range, *, pure: bool) -> dict[str, AnyStatistic]:
    """Return the statistics that only this solver releases, by the names that releases use.

    Args:
        within: what the run may find out about the distances of the records.
        pure: whether δ is 0.
    """
    space = within.manifold
    gradients = ("rough-gradient", "several-paths", Run.CLIPPED.check, *(run.gradient for run in Run))
    return {
        **dict.fromkeys(gradients, ScaledGradient(space)),
        **dict.fromkeys(("rough-distances", "several-distances"), distance_shares(space, pure=pure)),
        "several-values": CandidateDistances(space, 2, longest(space, within.radius)),
    }


# The plan


@dataclass(frozen=True)
class _Shares:
    """Shares of the budget: of ε if the noise is Laplace's, else of μ².

    Attributes:
        rounds: largest number of rough rounds.
        rough: largest shares of a rough histogram and of a rough gradient.
        all_rough: largest share of all rough rounds.
        look: of the histogram that decides; the unused share of rough rounds is added.
        check: of a plain gradient that checks a clipped answer, of the rest after histograms.
        gradients: of each gradient on curved space, of the same rest.
        paths: of each gradient on the way to a candidate, and their number for each.
        values: of the objective at the candidates.
        last_look: of the histogram at the best candidate.
        several: of the gradients from the best candidate.
    """

    rounds: int
    rough: tuple[float, float]
    all_rough: float
    look: float
    check: float
    gradients: tuple[float, ...]
    paths: tuple[float, int]
    values: float
    last_look: float
    several: tuple[float, ...]


def _growing(growth: float, count: int) -> tuple[float, ...]:
    """Return shares of sum 1 that grow by a factor."""
    weights = [growth**place for place in range(count)]
    return tuple(each / sum(weights) for each in weights)


_OF_MU = _Shares(
    rounds=3,
    rough=(0.01, 0.02),
    all_rough=0.06,
    look=0.08,
    check=0.25,
    gradients=_growing(2.0, 5),
    paths=(0.015, 3),
    values=0.1,
    last_look=0.03,
    several=_growing(2.0, 4),
)
_OF_EPSILON = _Shares(
    rounds=2,
    rough=(0.006, 0.012),
    all_rough=0.03,
    look=0.05,
    check=0.25,
    gradients=_growing(6.0, 3),
    paths=(0.03, 2),
    values=0.1,
    last_look=0.04,
    several=_growing(6.0, 2),
)

_ENOUGH = 0.01, 0.02
"""Noise that is enough for rough rounds: of histograms in shares, of gradients in clips."""

_TOO_NOISY = 0.1, 0.5
"""Noise beyond which histograms and rough gradients are useless: on a share, and in clips."""

_SAMPLE, _PART, _OF_SAMPLE = 16 * CHUNK, 16, 0.004
"""Records in a sample for rough rounds, or this part of all if that is less, and a gradient's share of μ²."""


def plan(bounds: ProblemBounds) -> SolverPlan:
    """Return the plan of the default solver.

    Raises:
        ValueError: this privacy cannot be certified in float64.
    """
    budget = bounds.budget()
    shares = _OF_EPSILON if budget.pure else _OF_MU
    ranged = () if bounds.has_ball else (_range(bounds, budget),)
    looks = _looks(bounds, budget, shares)
    spent = _spent(budget, (*ranged, *looks))
    alternatives = tuple(_alternatives(bounds, budget, shares, 1 - spent, looked=bool(looks)))
    plain = [each for each in alternatives if each.statistic == Run.PLAIN.gradient]
    joint = sum(each.deviation**-2 for each in plain) ** -0.5
    noise = bounds.clip * joint * sqrt(bounds.space.dim)
    chosen = Schedule(1.0, tuple(1.0 for _ in plain), noise, noise)
    return SolverPlan("rgd", (*ranged, *looks, *alternatives), chosen)


def _spent(budget: PrivacyBudget, releases: tuple[NoisySum, ...]) -> float:
    """Return the share of the budget that releases take."""
    if budget.pure:
        return sum(each.epsilon for each in releases) / budget.whole
    return sum(each.cost.mu_squared for each in releases) / budget.whole**2


def _range(bounds: ProblemBounds, budget: PrivacyBudget) -> NoisySum:
    """Return the histogram over many orders of magnitude, where nobody declared a radius."""
    counts, power = bounds.range.counts, 1 if budget.pure else 2
    share = min(0.03, (budget.release(counts, "range", 1.0).deviation / _ENOUGH[0]) ** power)
    return budget.release(counts, "range", 1.0, share=share)


def _looks(bounds: ProblemBounds, budget: PrivacyBudget, shares: _Shares) -> tuple[NoisySum, ...]:
    """Return the histograms and gradients by which the run chooses, or none where noise hides all of them."""
    space, power = bounds.space, 1 if budget.pure else 2
    counts, scaled = bounds.distance_shares, ScaledGradient(space)

    def deviation(statistic: AnyStatistic, share: float) -> float:
        return budget.release(statistic, "", 1.0, share=share).deviation

    if deviation(counts, shares.look) > _TOO_NOISY[0] and bounds.is_flat and bounds.has_ball:
        return ()
    step = sqrt(scaled.size)
    wanted = (
        (deviation(counts, 1.0) / _ENOUGH[0]) ** power,
        (step * deviation(scaled, 1.0) / _ENOUGH[1]) ** power,
    )
    look, gradient = (min(most, each) for most, each in zip(shares.rough, wanted, strict=True))
    rounds = min(shares.rounds, int((shares.all_rough - look) / (look + gradient)))
    if step * deviation(scaled, gradient) > _TOO_NOISY[1] or deviation(counts, look) > _TOO_NOISY[0]:
        return (budget.release(counts, "distances", 1.0, share=shares.look),)
    sample = budget.sample(gradient)

    def rough(statistic: AnyStatistic, name: str, share: float) -> NoisySum:
        if not sample:
            return budget.release(statistic, name, 1.0, share=share)
        size = max(sample, min(_SAMPLE, CHUNK * (bounds.n // (_PART * CHUNK))))
        paid = min(_OF_SAMPLE, share * (bounds.n / size) ** 2)
        return SampledSum.of(budget.release(statistic, name, 1.0, share=paid), size)

    found = list[NoisySum]()
    for _ in range(rounds):
        found += [rough(counts, "rough-distances", look), rough(scaled, "rough-gradient", gradient)]
    found.append(rough(counts, "rough-distances", look))
    rest = shares.look + shares.all_rough - _spent(budget, tuple(found))
    return (*found, budget.release(counts, "distances", 1.0, share=rest))


def _alternatives(
    bounds: ProblemBounds, budget: PrivacyBudget, shares: _Shares, left: float, *, looked: bool
) -> Iterator[NoisySum]:
    """Yield the releases of each alternative."""
    space, left = bounds.space, left * (1 - 1e-9)
    scaled, counts = ScaledGradient(space), bounds.distance_shares

    def made(run: Run, statistic: AnyStatistic, name: str, share: float) -> AlternativeSum:
        return AlternativeSum.of(budget.release(statistic, name, 1.0, share=share * left), run, name)

    def gradients(run: Run, parts: tuple[float, ...], of: float) -> Iterator[NoisySum]:
        return (made(run, scaled, run.gradient, part * of) for part in parts)

    steps = (1.0,) if bounds.is_flat else shares.gradients
    if not looked:
        yield from (budget.release(scaled, Run.PLAIN.gradient, 1.0, share=part * left) for part in steps)
        return
    yield from gradients(Run.PLAIN, steps, 1.0)
    yield from gradients(Run.CLIPPED, steps, 1 - shares.check)
    yield made(Run.CLIPPED, scaled, Run.CLIPPED.check, shares.check)
    if space.cut_distance == inf:
        return
    path, each = shares.paths
    run, count = Run.SEVERAL, 2 * each
    candidates = CandidateDistances(space, 2, longest(space, bounds.radius))
    yield from (made(run, scaled, "several-paths", path) for _ in range(count))
    yield made(run, candidates, "several-values", shares.values)
    yield made(run, counts, "several-distances", shares.last_look)
    yield from gradients(run, shares.several, 1 - count * path - shares.values - shares.last_look)


# The run


@dataclass(frozen=True)
class _Gradient:
    """A noisy gradient.

    Attributes:
        vector: (size,) in coordinates.
        noise: variance in each of them.
        excess: upper bound of the mean that its clip cuts off.
    """

    vector: Array
    noise: float
    excess: float = 0.0


@dataclass(frozen=True)
class _State:
    """An iterate, and bounds on its distance from the mean.

    Attributes:
        space: where it lives.
        point: (*shape) the iterate.
        noise: variance of the noise in it, in each direction.
        bias: upper bound of the rest: what clips cut off, and what is left to go. Infinite where unknown.
    """

    space: Manifold
    point: Array
    noise: float = 0.0
    bias: float = inf

    @property
    def square(self) -> float:
        """Expected square of the distance."""
        return self.space.dim * self.noise + self.bias**2

    def stepped(self, gradient: _Gradient, hessian: MeanHessian) -> "_State":
        """Return the state after a step of the best length by what was known before its gradient.

        A length that followed the gradient would be longest where its noise is largest. Only where nothing
        was known, or where the gradient shows that more is left to go, a step goes all the way.
        """
        size = len(gradient.vector)
        square = float(np.dot(gradient.vector, gradient.vector)) - size * gradient.noise
        settles = square > self.square + _SURPRISE * sqrt(2 * size) * gradient.noise
        before = self
        if settles or self.bias == inf:
            most = sqrt(max(0.0, square) + 3 * sqrt(size) * gradient.noise) / hessian.least
            before, settles = replace(self, bias=most), True
        added = self.space.dim * gradient.noise + gradient.excess**2
        length = hessian.length(inf if settles else before.square, added)
        kept = hessian.contraction(length)
        return _State(
            self.space,
            self.space.exp_coordinates(self.point, length * gradient.vector),
            kept**2 * self.noise + length**2 * gradient.noise,
            kept * before.bias + length * gradient.excess,
        )


@dataclass(frozen=True)
class AdaptiveMean:
    """The releases and public facts of a run.

    Attributes:
        ball: declared ball, in which the mean is sought.
        start: (*shape) first iterate.
        releases: of the plan, by the names of their statistics, each in order.
        is_declared: whether the ball is declared. If the run found it, plain sums are no baseline.
    """

    ball: Ball
    start: Array
    releases: dict[str, tuple[NoisySum, ...]]
    is_declared: bool = True

    @property
    def _space(self) -> Manifold:
        return self.ball.manifold

    @property
    def _is_flat(self) -> bool:
        space = self._space
        return space.curvature == (0.0, 0.0) or (space.dim == 1 and space.cut_distance == inf)

    def widest(self, point: Array) -> float:
        """Return the largest distance from a point that a record of the ball may have."""
        away = float(self._space.dist(self.ball.center, point))
        return min(away + self.ball.radius, self._space.diameter)

    def _ball_of_gradients(self, point: Array) -> tuple[Array, float]:
        """Return centre and radius of a ball that holds the gradient of every record of the declared ball.

        The gradients are the logarithms of the records, and the centre is that of the ball's centre where
        this helps.

        Returns:
            (size,) coordinates at the point, and a radius.
        """
        space, widest, origin = self._space, self.widest(point), np.zeros(self._space.coordinate_size)
        high = 0.0 if space.dim == 1 else space.curvature[1]
        if widest >= space.cut_distance or sqrt(max(high, 0.0)) * widest >= pi:
            return origin, widest
        away = float(space.dist(self.ball.center, point))
        radius = _largest_difference(away, self.ball.radius, high)
        if radius >= widest:
            return origin, widest
        return space.log_coordinates(point, self.ball.center), radius

    def run(self, gate: Oracle) -> tuple[Array, Uncertainty]:
        """Return the (*shape) mean and its uncertainty."""
        state, held, clip = self._rough(gate)
        if "distances" not in self.releases:
            return self._answer(self._descended(gate, state, Run.PLAIN, inf, None), Run.PLAIN, None)
        distances = self._histogram(gate, "distances", state.point, held)
        if clip < inf:
            bias = state.bias + float(distances.excess(np.array([clip]))[0])
            state = replace(state, bias=min(bias, self.widest(state.point)))
        if Run.SEVERAL.gradient in self.releases and _several(distances, self._space):
            return self._best_of_several(gate, state, distances)
        return self._single(gate, state, distances)

    # Where the records are

    def _rough(self, gate: Oracle) -> tuple[_State, float | None, float]:
        """Return an iterate near most records, the distance within which they are, if seen, and its clip."""
        state, held, clip = _State(self._space, self.start, bias=self.widest(self.start)), None, inf
        looks = self.releases.get("rough-distances", ())
        for place in range(len(looks)):
            distances = self._histogram(gate, "rough-distances", state.point, None, place)
            held = distances.half_width()
            if place == len(looks) - 1:
                break
            release = self.releases["rough-gradient"][place]
            clip = self.widest(state.point) if held is None else min(_WIDER * held, self.widest(state.point))
            origin = np.zeros(self._space.coordinate_size)
            ahead = clip * gate.mean((state.point, origin, clip), "rough-gradient")
            point = self._within(self._space.exp_coordinates(state.point, ahead))
            state = _State(self._space, point, bias=2 * sqrt(release.size) * clip * release.doubt)
        return state, held, clip

    def _within(self, point: Array) -> Array:
        return self.ball.nearest(point)[0]

    def _histogram(
        self, gate: Oracle, name: str, point: Array, held: float | None, place: int = 0
    ) -> Histogram:
        """Release a histogram about a point.

        Args:
            gate: releases it.
            name: of its statistic.
            point: (*shape).
            held: distance within which most records are, for nodes that are fine there.
            place: of the release among those of the statistic.
        """
        release, reach, space = self.releases[name][place], self.widest(point), self._space
        if held is None:
            nodes = reach * 2.0 ** (-np.arange(_HALF_OCTAVES, -1.0, -1.0) / 2)
        else:
            nodes = nodes_within(min(held, reach), reach)
        if space.cut_distance <= reach:
            nodes = np.union1d(nodes[nodes < 0.4 * reach], np.append(space.cut_distance * _CUT_NODES, reach))
        inner = release.size - 2
        if len(nodes) > inner:
            nodes = nodes[np.unique(np.linspace(0, len(nodes) - 1, inner).round().astype(int))]
        nodes = with_outside(nodes, reach, space.diameter)
        radius = self.ball.radius if self.is_declared and nodes[-1] > reach else inf
        shares = gate.mean((point, nodes, self.ball.center, radius), name)
        return Histogram.read(point, shares, nodes, release.doubt, reach)

    # The choice of a clip

    def _single(self, gate: Oracle, state: _State, distances: Histogram) -> tuple[Array, Uncertainty]:
        """Return the answer of plain gradients, or of clipped ones where these are better by much."""
        clip = self._clip(distances, state)
        if clip is None:
            return self._answer(self._descended(gate, state, Run.PLAIN, inf, distances), Run.PLAIN, distances)
        found = self._descended(gate, state, Run.CLIPPED, clip, distances)
        return self._checked(gate, found, distances)

    def _clip(self, distances: Histogram, state: _State) -> float | None:
        """Return a clip whose error is at most `WIN` of the plain error, or None."""
        clips = distances.reach * 2.0 ** (-np.arange(0.25, 16, 0.25))
        clips = clips[clips > distances.nodes[0]]
        if not len(clips):
            return None
        hessian = self._hessian(distances)
        # On curved space the iterate moves on, by the bias at most, and records come nearer to the clip.
        shift = 0.0 if self._is_flat else state.bias
        cut = distances.excess(np.maximum(clips - shift, 0.0)) / hessian.least
        plain, clipped = (
            Region.of(self._space, _joint(steps), 0.0, steps[-1]).quantile()
            for steps in (self.releases[run.gradient] for run in (Run.PLAIN, Run.CLIPPED))
        )
        error = clips * clipped + cut
        best = int(np.argmin(error))
        whole = self.ball.radius if self._is_flat else self._ball_of_gradients(state.point)[1]
        if error[best] < WIN * plain * whole:
            return float(clips[best])
        return None if self.is_declared else self._usual(distances.half_width())

    def _usual(self, held: float | None) -> float:
        """Return a clip for a ball that the run found, by the distance within which most records are."""
        return self.ball.radius / _FOUND if held is None else min(_UNDECLARED * held, self.ball.radius)

    def _hessian(self, distances: Histogram | None, further: float = 0.0) -> MeanHessian:
        if self._is_flat:
            return MeanHessian(1.0, 1.0)
        if distances is None:
            distances = Histogram(
                self.ball.center, np.array([0.0, self.ball.radius]), np.array([0.0, 1.0]), 0.0
            )
        return MeanHessian.of(distances, self._space, further)

    # Gradients

    def _gradient(
        self, gate: Oracle, state: _State, name: str, place: int, clip: float, cut: float
    ) -> _Gradient:
        center, unit = self._ball_of_gradients(state.point)
        if clip < unit:
            center, unit = np.zeros(self._space.coordinate_size), clip
        vector = center + unit * gate.mean((state.point, center, unit), name)
        return _Gradient(vector, (unit * self.releases[name][place].doubt) ** 2, cut)

    def _descended(
        self, gate: Oracle, state: _State, run: Run, clip: float, distances: Histogram | None
    ) -> _State:
        """Return where the gradients of a run lead, clipped at most at `clip`.

        On flat space one gradient leads to the mean, whatever is known before it.
        """
        if self._is_flat:
            state = replace(state, bias=inf)
        for place in range(len(self.releases[run.gradient])):
            gone = 0.0 if distances is None else float(self._space.dist(distances.point, state.point))
            seen = self._gradient(gate, state, run.gradient, place, clip, self._cut(distances, clip, gone))
            state = self._drawn_in(state.stepped(seen, self._hessian(distances, gone)))
        return state

    def _cut(self, distances: Histogram | None, clip: float, gone: float) -> float:
        """Return an upper bound of what a clip cuts off, `gone` from where the histogram was taken."""
        if distances is None:
            return 0.0
        if clip == inf:
            return distances.outside * 0.1 * distances.reach
        return float(distances.excess(np.array([max(clip - gone, 0.0)]))[0])

    def _drawn_in(self, state: _State) -> _State:
        point, away = self.ball.nearest(state.point)
        if away < self.ball.radius:
            return state
        return replace(state, point=point)

    def _checked(self, gate: Oracle, found: _State, distances: Histogram) -> tuple[Array, Uncertainty]:
        """Return the clipped answer if a plain gradient agrees with it, else the plain answer."""
        space, run = self._space, Run.CLIPPED
        seen = self._gradient(gate, found, run.check, 0, inf, 0.0)
        hessian = self._hessian(distances)
        ahead = replace(found, bias=inf).stepped(seen, hessian)
        ahead = replace(ahead, point=self._within(ahead.point))
        apart = float(space.dist(ahead.point, found.point))
        doubt = Region.of(space, sqrt(seen.noise), 0.0, self.releases[run.check][0])
        # A false alarm costs more the narrower the clip is, and must be rarer by as much.
        ratio = sqrt(found.noise / seen.noise)
        deviations = max(_DISAGREEMENT, sqrt(max(0.0, -4 * log(max(ratio, 1e-9)))))
        allowed = deviations / 2 * hessian.settling * doubt.quantile() + found.bias
        if apart <= allowed:
            return self._answer(found, run, distances, is_clipped=True)
        left = 0.0 if self._is_flat else hessian.contraction(hessian.settling) * apart / hessian.least
        plain = replace(ahead, noise=(hessian.settling**2) * seen.noise, bias=left)
        return self._answer(plain, run, distances)

    # Several minima

    def _best_of_several(
        self, gate: Oracle, state: _State, distances: Histogram
    ) -> tuple[Array, Uncertainty]:
        """Return the best of two candidates: where descents from the bulk, and from its other side, end."""
        space, half = self._space, len(self.releases["several-paths"]) // 2
        hessian = self._hessian(distances)
        one = self._path(gate, state.point, 0, half, hessian)
        away = space.log_coordinates(state.point, one)
        other = self._path(gate, self._within(space.exp_coordinates(state.point, -away)), half, half, hessian)
        values = self.releases["several-values"][0]
        width = self._longest**2 * sqrt(values.size) / 2
        first, second = width * gate.mean((one, other), "several-values")
        between = float(space.dist(one, other))
        best, rest = (one, other) if first <= second else (other, one)
        are_equal = abs(first - second) < _EQUAL * sqrt(2) * width * values.doubt
        distances = self._histogram(gate, "several-distances", best, None)
        found = self._descended(gate, _State(space, best), Run.SEVERAL, inf, distances)
        # Noise alone moves the ends of both paths.
        noise = sqrt(2 * space.dim) * self.widest(one) * self.releases["several-paths"][0].deviation
        apart = float(space.dist(found.point, rest)) if are_equal and between > _APART * noise else 0.0
        return self._answer(found, Run.SEVERAL, distances, apart=apart)

    @property
    def _longest(self) -> float:
        return min(2 * self.ball.radius, self._space.diameter)

    def _path(self, gate: Oracle, point: Array, first: int, count: int, hessian: MeanHessian) -> Array:
        state = _State(self._space, point)
        for place in range(first, first + count):
            seen = self._gradient(gate, state, "several-paths", place, inf, 0.0)
            length = 2 / (1 + hessian.largest)
            ahead = self._space.exp_coordinates(state.point, length * seen.vector)
            state = _State(self._space, self._within(ahead))
        return state.point

    # The answer

    def _answer(
        self,
        state: _State,
        run: Run,
        distances: Histogram | None,
        *,
        is_clipped: bool = False,
        apart: float = 0.0,
    ) -> tuple[Array, Uncertainty]:
        """Return the answer and its uncertainty."""
        space, release = self._space, self.releases[run.gradient][-1]
        moved = state.bias
        hessian = self._hessian(distances)
        flat = hessian.is_flat and not apart and run is not Run.SEVERAL
        if distances is not None and flat and not self._is_flat:
            moved = max(moved, 2 * distances.average(lambda away: away))
        region = Region.of(space, sqrt(state.noise), moved, release)
        on_edge = self.ball.nearest(state.point)[1] >= self.ball.radius * (1 - 1e-9)
        warnings = (
            *(outside(distances.outside) if distances else ()),
            *((EDGE,) if on_edge and self.ball.radius < space.diameter else ()),
            *((SEVERAL,) if apart or (flat and space.cut_distance < inf) else ()),
        )
        unknown = (unseen(distances, release.n),) if distances and is_clipped else ()
        return state.point, uncertainty(
            region,
            distances,
            release.n,
            spread=self.ball.radius,
            warnings=warnings,
            unknown=unknown,
            apart=apart,
        )


def _largest_difference(away: float, radius: float, curvature: float) -> float:
    """Return how far the logarithms of two points are apart at most, where `curvature` is the largest.

    In a triangle the angle at the point is at most the one in a triangle with the same sides on the sphere of
    this curvature (Alexandrov), and on flat space if curvature is not positive.

    Args:
        away: distance of the first of the two points.
        radius: distance between the two points.
        curvature: upper bound; the sides are shorter than those of triangles on that sphere.
    """
    unit = sqrt(max(curvature, 0.0))
    first, second = away * unit, radius * unit
    if not first or not second:
        return radius
    angle = np.linspace(0, pi, _ANGLES)  # between the two sides that meet at the first point
    third = np.arccos(np.clip(cos(first) * cos(second) - sin(first) * sin(second) * np.cos(angle), -1, 1))
    at_point = (cos(second) - cos(first) * np.cos(third)) / np.maximum(sin(first) * np.sin(third), 1e-12)
    square = third**2 + first**2 - 2 * third * first * np.clip(at_point, -1, 1)
    return float(np.sqrt(square.max())) / unit


def _joint(steps: tuple[NoisySum, ...]) -> float:
    """Return the standard deviation of the noise that the best mean of all gradients has, over the clip."""
    return sum(step.deviation**-2 for step in steps) ** -0.5


def _several(distances: Histogram, space: Manifold) -> bool:
    """Return whether the objective may have several minima that compete.

    A point with a lower objective than here lies within a distance that the triangle inequality gives. Two
    minima there need records near the cut locus of a point between them.
    """
    shares, nodes = distances.denoised, distances.nodes
    here = float(shares @ nodes**2)
    tried = np.linspace(0, distances.reach, 200)
    there = np.maximum(tried[:, None] - nodes, 0.0) ** 2 @ shares
    within = float(tried[there <= here].max())
    return distances.beyond(space.cut_distance - within)[1]

"""Default solver of the Fréchet mean: plain sums over the declared ball, or clipped ones where that pays.

The run has three parts. Rough rounds of a histogram and a gradient each find where most records are. A fine
histogram there, whose nodes reach to the largest distance, decides between the alternatives of the plan:
plain gradients, which cut nothing off within the declared ball, gradients with a narrower clip and a plain
one as a check, or descents to several candidates. The chosen gradients then give the answer.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from math import inf, log, sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.frechet_mean.excess import nodes_within
from privest.estimators.frechet_mean.histogram import Histogram, with_outside
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
from privest.optim.ball import Ball
from privest.privacy.mechanisms import NoisySum
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

_DONE = 0.25
"""Distance that steps may leave for those before them to be left out, over the noise of the answer."""

_SURPRISE, _DISAGREEMENT, _EQUAL = 4.0, 3.0, 2.0
"""Standard deviations from which a gradient shows that more is left than expected, a check disagrees with an
answer (at least), and two values of the objective differ."""


class Run(IntEnum):
    """Alternatives of a plan. The gate makes the releases of one."""

    PLAIN = 0
    CLIPPED = 1
    FAR_PLAIN = 2
    FAR_CLIPPED = 3
    SEVERAL = 4

    @property
    def gradient(self) -> str:
        """Name of its gradients' statistic."""
        return f"{self.prefix}-gradient"

    @property
    def check(self) -> str:
        """Name of the statistic of its check."""
        return f"{self.prefix}-check"

    @property
    def look(self) -> str:
        """Name of the statistic of its last histogram."""
        return f"{self.prefix}-distances"

    @property
    def prefix(self) -> str:
        """First part of the names of its statistics."""
        return ("plain", "clipped", "far-plain", "far-clipped", "several")[self]


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
        moved: upper bound of what clips moved it by.
        unfinished: upper bound of what is left to go; infinite where unknown.
    """

    space: Manifold
    point: Array
    noise: float = 0.0
    moved: float = 0.0
    unfinished: float = inf

    @property
    def square(self) -> float:
        """Expected square of the distance."""
        return self.space.dim * self.noise + self.moved**2 + self.unfinished**2

    def stepped(self, gradient: _Gradient, hessian: MeanHessian) -> "_State":
        """Return the state after a step of the best length by what was known before its gradient.

        A length that followed the gradient would be longest where its noise is largest. Only where nothing
        was known, or where the gradient shows that more is left to go, a step goes all the way.
        """
        size = len(gradient.vector)
        square = float(np.dot(gradient.vector, gradient.vector)) - size * gradient.noise
        settles = square > self.square + _SURPRISE * sqrt(2 * size) * gradient.noise
        before = self
        if settles or self.unfinished == inf:
            most = sqrt(max(0.0, square) + 3 * sqrt(size) * gradient.noise) / hessian.least
            before, settles = replace(self, unfinished=most), True
        added = self.space.dim * gradient.noise + gradient.excess**2
        length = hessian.length(inf if settles else before.square, added)
        kept, doubt = hessian.contraction(length)
        return _State(
            self.space,
            self.space.exp_coordinates(self.point, length * gradient.vector),
            kept**2 * self.noise + length**2 * gradient.noise,
            abs(kept) * self.moved + length * gradient.excess,
            abs(kept) * before.unfinished + doubt * sqrt(before.square),
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

    def run(self, gate: Oracle) -> tuple[Array, Uncertainty]:
        """Return the (*shape) mean and its uncertainty."""
        state, held, clip = self._rough(gate)
        if "distances" not in self.releases:
            return self._told(self._descended(gate, state, Run.PLAIN, inf, None), Run.PLAIN, None, False)
        distances = self._histogram(gate, "distances", state.point, held)
        if clip < inf:
            beyond = float(distances.excess(np.array([clip]))[0])
            state = replace(state, unfinished=state.unfinished + beyond)
        if Run.SEVERAL.gradient in self.releases and _several(distances, self._space):
            return self._best_of_several(gate, state, distances)
        return self._single(gate, state, distances)

    # Where the records are

    def _rough(self, gate: Oracle) -> tuple[_State, float | None, float]:
        """Return an iterate near most records, the distance within which they are, if seen, and its clip."""
        state, held, clip = _State(self._space, self.start), None, inf
        looks = self.releases.get("rough-distances", ())
        for place in range(len(looks)):
            distances = self._histogram(gate, "rough-distances", state.point, None, place)
            held = distances.half_width()
            if place == len(looks) - 1:
                break
            release = self.releases["rough-gradient"][place]
            clip = self.widest(state.point) if held is None else min(_WIDER * held, self.widest(state.point))
            ahead = clip * gate.mean((state.point, clip), "rough-gradient")
            point = self._within(self._space.exp_coordinates(state.point, ahead))
            state = _State(self._space, point, unfinished=2 * sqrt(release.size) * clip * release.doubt)
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
        return Histogram.read(point, gate.mean((point, nodes), name), nodes, release.doubt, reach)

    # The choice of a clip

    def _single(self, gate: Oracle, state: _State, distances: Histogram) -> tuple[Array, Uncertainty]:
        """Return the answer of plain gradients, or of clipped ones where these are better by much."""
        clip = self._clip(distances, state)
        hessian = self._hessian(distances)
        steps = self.releases[Run.PLAIN.gradient]
        noise = (self.widest(state.point) if clip is None else clip) * sqrt(self._space.dim) * _joint(steps)
        is_far = (
            Run.FAR_PLAIN.gradient in self.releases
            and hessian.left(state.unfinished, len(steps)) > _DONE * noise
        )
        if clip is None:
            run = Run.FAR_PLAIN if is_far else Run.PLAIN
            return self._told(self._descended(gate, state, run, inf, distances), run, distances, False)
        run = Run.FAR_CLIPPED if is_far else Run.CLIPPED
        found = self._descended(gate, state, run, clip, distances)
        return self._checked(gate, found, run, distances)

    def _clip(self, distances: Histogram, state: _State) -> float | None:
        """Return a clip whose error is at most `WIN` of the plain error, or None."""
        clips = distances.reach * 2.0 ** (-np.arange(0.25, 16, 0.25))
        clips = clips[clips > distances.nodes[0]]
        if not len(clips):
            return None
        hessian = self._hessian(distances)
        # On curved space the iterate moves on by what is unfinished, and records come nearer to the clip.
        shift = 0.0 if self._is_flat else state.unfinished
        cut = distances.excess(np.maximum(clips - shift, 0.5 * clips)) / hessian.least
        plain, clipped = (
            Region.of(self._space, _joint(steps), 0.0, steps[-1]).quantile()
            for steps in (self.releases[run.gradient] for run in (Run.PLAIN, Run.CLIPPED))
        )
        error = clips * clipped + cut
        best = int(np.argmin(error))
        whole = self.ball.radius if self._is_flat else self.widest(state.point)
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
        clip = min(clip, self.widest(state.point))
        vector = clip * gate.mean((state.point, clip), name)
        return _Gradient(vector, (clip * self.releases[name][place].doubt) ** 2, cut)

    def _descended(
        self, gate: Oracle, state: _State, run: Run, clip: float, distances: Histogram | None
    ) -> _State:
        """Return where the gradients of a run lead, clipped at most at `clip`.

        On flat space a plain gradient is taken at the centre of the ball, from where its clip is least.
        """
        steps, name = self.releases[run.gradient], run.gradient
        if self._is_flat and clip == inf:
            state = _State(self._space, self.ball.center)
        origin, look = state.point, self.releases.get(run.look)
        first = len(steps) - _NEAR if look else None
        for place in range(len(steps)):
            if place == first:
                distances, origin = self._histogram(gate, run.look, state.point, None), state.point
            gone = float(self._space.dist(origin, state.point)) if place else 0.0
            cut = self._cut(distances, clip, gone)
            seen = self._gradient(gate, state, name, place, clip, cut)
            hessian = self._hessian(distances, 0.0)
            if self._is_flat:
                state = replace(state, unfinished=inf)
            state = self._drawn_in(state.stepped(seen, hessian))
        return state

    def _cut(self, distances: Histogram | None, clip: float, gone: float) -> float:
        """Return an upper bound of what a clip cuts off, `gone` from where the histogram was taken."""
        if distances is None:
            return 0.0
        if clip == inf:
            return distances.outside * 0.1 * distances.reach
        return float(distances.excess(np.array([max(clip - gone, 0.5 * clip)]))[0])

    def _drawn_in(self, state: _State) -> _State:
        point, away = self.ball.nearest(state.point)
        if away < self.ball.radius:
            return state
        return replace(state, point=point)

    def _checked(
        self, gate: Oracle, found: _State, run: Run, distances: Histogram
    ) -> tuple[Array, Uncertainty]:
        """Return the clipped answer if a plain gradient agrees with it, else the plain answer."""
        space = self._space
        at = _State(space, self.ball.center) if self._is_flat else found
        seen = self._gradient(gate, at, run.check, 0, inf, 0.0)
        hessian = self._hessian(distances)
        ahead = replace(at, unfinished=inf).stepped(seen, hessian)
        ahead = replace(ahead, point=self._within(ahead.point))
        apart = float(space.dist(ahead.point, found.point))
        doubt = Region.of(space, sqrt(seen.noise), 0.0, self.releases[run.check][0])
        # A false alarm costs more the narrower the clip is, and must be rarer by as much.
        ratio = sqrt(found.noise / seen.noise)
        deviations = max(_DISAGREEMENT, sqrt(max(0.0, -4 * log(max(ratio, 1e-9)))))
        allowed = deviations / 2 * hessian.settling * doubt.quantile() + found.moved + found.unfinished
        if apart <= allowed:
            return self._told(found, run, distances, True)
        left = 0.0 if self._is_flat else hessian.contraction(hessian.settling)[1] * apart / hessian.least
        plain = replace(ahead, noise=(hessian.settling**2) * seen.noise, moved=0.0, unfinished=left)
        return self._told(plain, run, distances, False)

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
        found = self._descended(gate, _State(space, best), Run.SEVERAL, inf, distances)
        # Noise alone moves the ends of both paths.
        noise = sqrt(2 * space.dim) * self.widest(one) * self.releases["several-paths"][0].deviation
        apart = float(space.dist(found.point, rest)) if are_equal and between > _APART * noise else 0.0
        return self._told(found, Run.SEVERAL, distances, False, apart)

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

    def _told(
        self, state: _State, run: Run, distances: Histogram | None, is_clipped: bool, apart: float = 0.0
    ) -> tuple[Array, Uncertainty]:
        """Return the answer and its uncertainty."""
        space, release = self._space, self.releases[run.gradient][-1]
        moved = state.moved + state.unfinished
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


_NEAR = 3
"""Last gradients of a run from afar, after its second histogram."""


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

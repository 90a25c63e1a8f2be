"""Certificates of runs of noisy sums over random batches, each computed as one privacy loss distribution.

This module imports slowly, so planners of stochastic solvers import it when they call it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from math import ceil, exp, expm1, floor, frexp, inf, ldexp, log, log1p, nextafter, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.optimize.elementwise import find_root
from scipy.special import log_ndtr, ndtr, ndtri

from privest.arrays import Array
from privest.memo import memoized
from privest.privacy.accounting import Cost, largest
from privest.privacy.mechanisms import Scheme, SubsampledRun, SubsampledSum

_FLOAT: Any = np.longdouble
"""Type of composed masses. Its rounding error, times the number of steps, limits the least δ to certify."""

_FFT_ERROR = 16
"""Error allowed per step of a composed δ, in units of `_FLOAT`'s rounding: 100 times the observed error."""

_COVER = 2.0**-40
"""Relative error allowed for a mass, far above that of `ndtr`."""

_ROUNDING = 2.0**-45
"""Relative error allowed for a normal tail, far above that of `ndtr`."""

_CELLS = 6.0
"""Least number of grid cells per standard deviation μ/√steps of one step's loss. The grid adds at most
cell²/4 to the variance."""

_CELLS_PER_MU = 200.0
"""Least number of grid cells per μ."""

_POINTS = 4000
"""Number of grid points at which δ is compared with that of a Gaussian mechanism."""

_TOLERANCE = 0.01
"""Relative change of μ at which refining the grid stops. Every grid gives a valid certificate."""

_MOST_CELLS = 2**19
"""Most grid cells of one step's loss."""

_WIDEST = 600.0
"""Largest loss of one step. The exponential of a larger one could leave float64."""

_NEAR = 0.002
"""In the logarithm of the noise: how near to the least one the search comes."""

_ROOM = 1.02
"""Factor on μ for pairs that are tried, as a finer grid may find less."""

_TOO_SMALL = "delta is too small for a certificate of so many sampled steps"

_TAIL = 2**20
"""The slack divided by this pays for losses off the grid: once for single steps, once for their sum."""


@dataclass(frozen=True)
class _Losses:
    """A distribution of privacy losses on multiples of `cell` that dominates both orders of neighbours.

    It is symmetric: the mass at −ε is e^−ε times the mass at ε. The remaining mass is at 0.
    """

    cell: float
    above: Array
    """Masses at cell, 2·cell, ..."""

    infinite: float
    """Mass of infinite loss."""

    @property
    def losses(self) -> Array:
        """The losses whose masses are in `above`."""
        return self.cell * np.arange(1.0, len(self.above) + 1)

    @property
    def below(self) -> Array:
        """Masses at −cell, −2·cell, ..."""
        return self.above * np.exp(-self.losses)

    @property
    def at_zero(self) -> float:
        """Mass at loss 0."""
        return max(0.0, 1 - self.infinite - float(self.above.sum() + self.below.sum()))


def _step(run: SubsampledRun, cell: float, rare: float) -> _Losses:
    """The pessimistic loss distribution of one step. Losses of probability `rare` count as infinite.

    *Poisson batches.* Let v and v′ be the vectors of a record and of its replacement, and α >= 1. Then the
    hockey-stick divergence is H_α = E[(q − a·X − αq·Y)₊] with a = (1 − q)(α − 1) and lognormal X, Y of mean
    one with parameters |v| <= C and |v − v′| <= D. It is convex, so it is largest if X and Y are widest and
    comonotone: at |v| = C and v′ = −(D − C)v/C. That is (1 − q)N(0) + qN(C) against (1 − q)N(0) + qN(C − D).

    *Batches of fixed size.* The curve is q·δ_G(log(1 + (e^ε − 1)/q)) for ε >= 0 and both orders, where G has
    sensitivity D (Balle et al. 2018, Theorem 9). It is that of (1 − q)N(0) + qN(D) against N(0).

    Both are mirrored for ε < 0. Both compare P = (1 − q)N(0) + qN(s) with Q = (1 − q)N(0) + qN(−t), t <= s,
    and the loss increases with the outcome. The mass P of losses in a cell [a, b] is divided so that Q stays
    the same: the part (P − e^a·Q)/(1 − e^(a−b)) goes to b, the rest to a ("connect the dots", Doroshenko et
    al. 2022).
    """
    q = run.rate
    s, t = (1.0, run.apart - 1) if run.scheme == "poisson" else (run.apart, 0.0)
    s, t = s / run.noise, t / run.noise
    far = s - float(ndtri(rare))
    if s * far > _WIDEST:
        raise ValueError("this sampled run is too costly to certify")
    widest = float(_log_ratio(np.array(far), q, s) - _log_ratio(np.array(far), q, -t))
    cells = ceil(widest / cell) + 1
    if cells > _MOST_CELLS:
        raise ValueError("this sampled run is too costly to certify")
    edges = cell * np.arange(cells + 1.0)
    x = _outcomes(edges, q, s, t)
    tail_p = (1 - q) * ndtr(-x) + q * ndtr(s - x)
    tail_q = (1 - q) * ndtr(-x) + q * ndtr(-t - x)
    p, likewise = -np.diff(tail_p), np.exp(edges[:-1]) * -np.diff(tail_q)
    upper = (p - likewise) / -expm1(-cell) + _ROUNDING / cell * tail_p[:-1]
    upper = np.clip(upper, 0.0, p)
    above = upper
    above[:-1] += (p - upper)[1:]
    return _Losses(cell, above * (1 + _COVER), float(tail_p[-1]) * (1 + _COVER))


def _log_ratio(x: Array, q: float, shift: float) -> Array:
    """The logarithm of the density of (1 − q)N(0) + qN(shift) over that of N(0)."""
    moved = shift * x - shift * shift / 2
    # Of either form's arguments none is so small that digits have cancelled.
    return np.where(
        moved < -1.0, np.log(1 - q + q * np.exp(moved)), np.log1p(q * np.expm1(np.maximum(moved, -1.0)))
    )


def _outcomes(losses: Array, q: float, s: float, t: float) -> Array:
    """Where the loss of (1 − q)N(0) + qN(s) against (1 − q)N(0) + qN(−t), s >= t, has these values.

    It has them but for a few units of roundoff, far below what is allowed for.
    """
    if t == s:
        return (np.arcsinh(np.sinh(losses / 2) * (exp(s * s / 2) * (1 - q) / q)) + losses / 2) / s
    alone: Array = s / 2 + np.log1p(np.expm1(losses) / q) / s  # at t = 0; a larger t adds to the loss
    if t == 0.0:
        return alone

    def over(x: Array, loss: Array) -> Array:
        return _log_ratio(x, q, s) - _log_ratio(x, q, -t) - loss

    return find_root(over, (np.full_like(alone, -t / 2 - 1), alone + 1), args=(losses,)).x


_Parts = Sequence[tuple[_Losses, int]]
"""Loss distributions on one grid, each with its number of steps."""


def _composed(parts: _Parts, tail: float) -> NDArray[Any]:
    """An upper bound on the δ of all steps at ε = 0, cell, 2·cell, ..., until a mass below `tail` is left."""
    reach = _reach(parts, tail)
    size = int(fft.next_fast_len(2 * max(reach, *(len(step.above) for step, _ in parts)) + 1, real=True))
    if size > 2 * _MOST_CELLS or parts[0][0].cell * reach > float(np.log(np.finfo(_FLOAT).max)) - 1:
        raise ValueError("this sampled run is too costly to certify")
    product: NDArray[Any] = reduce(np.multiply, (_transformed(step, size) ** count for step, count in parts))
    mass: NDArray[Any] = fft.irfft(product, size)[1 : reach + 1]
    losses = parts[0][0].cell * np.arange(reach + 1, dtype=_FLOAT)
    p = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    q = np.append(np.cumsum((mass * np.exp(-losses[1:]))[::-1])[::-1], 0.0)
    infinite = tail - expm1(sum(count * log1p(-step.infinite) for step, count in parts))
    error = _fft_error(sum(count for _, count in parts))
    return (p - np.exp(losses) * q + infinite) * (1 + error) + error


def _steps(runs: Iterable[SubsampledRun]) -> int:
    return sum(run.steps for run in runs)


def _fft_error(steps: int) -> float:
    return steps * _FFT_ERROR * float(np.finfo(_FLOAT).eps)


def _transformed(step: _Losses, size: int) -> NDArray[Any]:
    """The Fourier transform of one step's masses, on a circle of `size` cells."""
    around: NDArray[Any] = np.zeros(size, dtype=_FLOAT)
    around[0] = step.at_zero
    around[1 : len(step.above) + 1] = step.above
    around[-len(step.above) :] = step.below[::-1]
    return fft.rfft(around)


def _reach(parts: _Parts, tail: float) -> int:
    """The number of cells that the total loss exceeds with probability below `tail`, by Chernoff's bound."""
    cell = parts[0][0].cell
    most = cell * sum(count * len(step.above) for step, count in parts)
    orders = np.geomspace(0.005, 700.0, 32) / (cell * max(len(step.above) for step, _ in parts))
    sides = [(step.losses, step.above, step.below, step.at_zero, count) for step, count in parts]

    @cache
    def bound(at: int) -> float:
        total = 0.0
        for losses, above, below, at_zero, count in sides:
            grown = np.exp(orders[at] * losses)
            total += count * log(float(above @ grown + below @ (1 / grown)) + at_zero)
        return (total - log(tail)) / float(orders[at])

    # Bounds fall with the order and then rise, as the logarithm of a moment is convex: few are computed.
    best = bisect_left(range(len(orders) - 1), True, key=lambda at: bound(at) <= bound(at + 1))
    return ceil(min(most, bound(best)) / cell)


Allowed = tuple[tuple[float, float], ...]
"""What a run may cost: any of these μ, each with its slack."""


@dataclass(frozen=True)
class _Curve:
    """An upper bound on the δ of a whole run at ε = 0, cell, 2·cell, ..."""

    cell: float
    delta: NDArray[Any]

    def covered(self, slack: float) -> Callable[[float], bool]:
        """Tells of a μ whether a μ-Gaussian mechanism beside this slack covers the run.

        The loss distribution is symmetric, so ε >= 0 suffices. Between two grid points, δ at the left one is
        compared with the bound at the right one. Beyond the last point δ is below the slack.
        """
        by_slack = self.delta <= slack
        if not by_slack.any():
            return lambda _: False
        points = np.unique(np.linspace(0, int(np.argmax(by_slack)), _POINTS).astype(np.int64))
        needed = np.asarray((self.delta[points[:-1]] - slack) / (1 - slack), dtype=np.float64)
        right = self.cell * points[1:]

        def by(mu: float) -> bool:
            if not len(right) or mu <= 0.0:
                return not len(right)
            less, more = ndtr(mu / 2 - right / mu), np.exp(right + log_ndtr(-right / mu - mu / 2))
            return bool((needed <= less * (1 - 1e-12) - more * (1 + 1e-12)).all())

        return by

    def least(self, slack: float) -> float:
        """The least μ that covers the run beside this slack.

        Raises:
            ValueError: no μ does.
        """
        if self.delta[-1] > slack:
            raise ValueError(_TOO_SMALL)
        covered = self.covered(slack)
        if covered(0.0):
            return 0.0
        top = 4 * (1 + self.cell * int(np.argmax(self.delta <= slack)))
        if not covered(top):
            raise ValueError("this sampled run is too costly to certify")
        return top - largest(lambda gap: covered(top - gap), 0.0, top * (1 - 1e-12))


def _curve(runs: Sequence[SubsampledRun], slack: float, cell: float) -> _Curve:
    """The curve of a run on a grid of cells of this width, for certificates of this slack or more."""
    steps = _steps(runs)
    if slack <= 4 * _fft_error(steps):
        raise ValueError(_TOO_SMALL)
    parts = [(_step(run, cell, slack / _TAIL / steps), run.steps) for run in runs]
    return _Curve(cell, _composed(parts, slack / _TAIL))


@memoized
def certify(runs: tuple[SubsampledRun, ...], slack: float) -> Cost:
    """The cost of a whole run: the least μ with δ(ε) <= slack + (1 − slack)·δ_Gμ(ε) for every ε.

    Args:
        runs: the parts of the run, each with its own noise, in any order.
        slack: probability that the certificate may leave out.
    """
    steps = _steps(runs)
    cell = min(0.05, 0.5 / sqrt(steps))
    mu, before = _curve(runs, slack, cell).least(slack), inf
    while mu and (before - mu > _TOLERANCE * mu or cell > _cell_for(mu, steps)):
        before, cell = mu, min(cell / 2, _cell_for(mu, steps))
        try:
            mu = min(mu, _curve(runs, slack, cell).least(slack))
        except ValueError:
            break
    return Cost(nextafter(nextafter(mu, inf) ** 2, inf), slack)


def _canonical(runs: Iterable[SubsampledRun]) -> tuple[SubsampledRun, ...]:
    """The runs in a canonical order, so that equal runs share one memoized certificate."""
    return tuple(sorted(runs, key=lambda run: (run.scheme, run.rate, run.noise, run.apart)))


def _cell_for(mu: float, steps: int) -> float:
    """A width of grid cells that is fine enough for a run of this cost."""
    return min(mu / (_CELLS * sqrt(steps)), mu / _CELLS_PER_MU)


def noise_for(scheme: Scheme, rate: float, steps: int, allowed: Allowed, apart: float = 2.0) -> SubsampledRun:
    """The run of nearly the least noise that is certified to cost at most one of the pairs `allowed`."""
    (run,) = noises_for(scheme, rate, ((steps, 1.0),), allowed, apart)
    return run


@memoized
def noises_for(
    scheme: Scheme, rate: float, parts: tuple[tuple[int, float], ...], allowed: Allowed, apart: float = 2.0
) -> tuple[SubsampledRun, ...]:
    """The parts of the run of nearly the least noise that is certified to cost at most one of `allowed`.

    Each element of `parts` is a number of steps, and their noise relative to that of the other parts.
    """

    def runs(logarithm: float) -> tuple[SubsampledRun, ...]:
        return tuple(
            SubsampledRun(scheme, rate, _short(exp(logarithm) * ratio), count, apart)
            for count, ratio in parts
        )

    def fits(logarithm: float) -> bool:
        try:
            curve = _shared_curve(runs(logarithm), allowed)
        except ValueError:
            return False
        return any(curve.covered(slack)(mu) for mu, slack in allowed)

    # The noise at `high` suffices without sampling. At `low` even the smallest losses cost more than μ.
    most = max(mu for mu, _ in allowed)
    high = log(apart * sqrt(sum(count / ratio**2 for count, ratio in parts)) / most) + 0.1
    low = high + log(rate) - 1
    _shared_curve(runs(high), allowed)
    while high - low > _NEAR:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    # No certificate covers a run that is all but certain to tell who is in it: it is a long way up then.
    low, further = high, _NEAR
    while choice(runs(high), allowed) is None:
        low, high, further = high, high + further, 2 * further
    while high - low > 1.5 * _NEAR:
        middle = (low + high) / 2
        low, high = (low, middle) if choice(runs(middle), allowed) else (middle, high)
    return runs(high)


def choice(runs: Iterable[SubsampledRun], allowed: Allowed) -> Cost | None:
    """The cost of a run, if it is within one of the pairs `allowed`: that which leaves most of μ."""
    parts = _canonical(runs)
    curve = _shared_curve(parts, allowed)
    spent = {
        (mu, slack): curve.least(slack) / mu for mu, slack in allowed if curve.covered(slack)(mu * _ROOM)
    }
    for mu, slack in sorted(spent, key=spent.__getitem__):
        try:
            cost = certify(parts, slack)
        except ValueError:  # the coarse grid on which certificates begin can be too coarse
            continue
        if cost.mu_squared <= mu * mu:
            return cost
    return None


def _shared_curve(runs: Sequence[SubsampledRun], allowed: Allowed) -> _Curve:
    """The curve of a run by which all certificates can be told that composed δ are exact enough for."""
    steps = _steps(runs)
    slack = min((slack for _, slack in allowed if slack > 4 * _fft_error(steps)), default=0.0)
    return _curve(runs, slack, _cell_for(max(mu for mu, _ in allowed), steps))


def _short(noise: float) -> float:
    """The noise rounded down to 30 bits, so that noise that differs by rounding has the same certificate."""
    mantissa, exponent = frexp(noise)
    return ldexp(floor(mantissa * 2**30), exponent - 30)


def runs_of(releases: Iterable[SubsampledSum]) -> tuple[SubsampledRun, ...]:
    """All batches of a run, whatever other releases come between them, in the order that `certify` caches.

    Raises:
        ValueError: there are no batches, or they have Laplace noise.
    """
    kinds: Counter[tuple[Scheme, float, float, float]] = Counter()
    for block in releases:
        if block.noise != "gaussian":
            raise ValueError("Laplace noise is added up sum by sum")
        noise = _short(block.scale / block.sensitivity)
        kinds[block.scheme, block.rate, noise, block.apart] += block.count
    if not kinds:
        raise ValueError("a certificate covers one batch or more")
    return _canonical(
        SubsampledRun(scheme, rate, noise, count, apart)
        for (scheme, rate, noise, apart), count in kinds.items()
    )

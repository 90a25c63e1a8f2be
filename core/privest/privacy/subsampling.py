"""Certificates of noisy sums over random batches: a whole run of them as one privacy loss distribution.

Imported where plans are made for stochastic solvers, and by no other part of the web process.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import ceil, exp, expm1, floor, frexp, inf, ldexp, log, log1p, nextafter, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import log_ndtr, ndtr, ndtri

from privest.arrays import Array
from privest.privacy.calibration import largest
from privest.privacy.cost import Cost
from privest.privacy.mechanisms import Scheme, SubsampledRun, SubsampledSum

_FLOAT: Any = np.longdouble
"""Type of composed masses: its rounding, times the number of steps, limits how small a δ can be certified."""

_FFT_ERROR = 16
"""Error allowed for each step of a composed δ, in units of `_FLOAT`'s rounding: 100 times what is seen."""

_COVER = 2.0**-40
_ROUNDING = 2.0**-45
"""Relative errors of a mass and of a normal tail: far above those of `ndtr`."""

_CELLS = 6.0
"""Cells in a standard deviation μ/√steps of one step's loss; the grid adds at most cell²/4 to its square."""

_CELLS_PER_MU = 200.0
_POINTS = 4000
_TOLERANCE = 0.01
"""The grid is refined until μ moves by less than this; every grid gives a valid certificate."""

_MOST_CELLS = 2**19
_WIDEST = 600.0
"""Loss of one step; beyond, its exponential leaves float64."""

_TAIL = 2**20
"""One part in this many of the slack pays for losses off the grid, twice over."""


@dataclass(frozen=True)
class _Losses:
    """A distribution of privacy losses on multiples of `cell`, worst for both orders of a pair.

    Such a distribution has e^−ε times the mass of ε at −ε, and the rest of it at 0.
    """

    cell: float
    above: Array
    """Masses at cell, 2·cell, ..."""
    infinite: float

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
        """Mass at no loss."""
        return max(0.0, 1 - self.infinite - float(self.above.sum() + self.below.sum()))


def _step(run: SubsampledRun, cell: float, rare: float) -> _Losses:
    """One step, pessimistic; losses of probability `rare` count as infinite.

    *Poisson.* Whatever the vectors v, v′ that a record and its replacement contribute, and for α >= 1,
    H_α = E[(q − a·X − αq·Y)₊] with a = (1 − q)(α − 1) and X, Y lognormal of mean one with parameters |v|
    and |v − v′|. The function is convex, so it is largest where X and Y are widest and comonotone: at
    v = −v′, |v| = C. That pair, (1 − q)N(0) + qN(±C), is its own mirror image, which covers α < 1.

    *Fixed size.* q·δ_G(log(1 + (e^ε − 1)/q)) for ε >= 0 and either order, G of sensitivity 2C (Balle, Barthe
    and Gaboardi 2018, Theorem 9), mirrored below zero. Above it is the curve of (1 − q)N(0) + qN(2C)
    against N(0).

    Either way P = (1 − q)N(0) + qN(s) is held against Q = (1 − q)N(0) + qN(−t), and the loss grows with
    the outcome. A cell of losses [a, b] keeps its P and Q by giving P − e^a·Q over 1 − e^(a−b) to b and the
    rest of its P to a ("connect the dots", Doroshenko et al. 2022).
    """
    q = run.rate
    s, t = (1 / run.noise, 1 / run.noise) if run.scheme == "poisson" else (2 / run.noise, 0.0)
    far = s - float(ndtri(rare))
    if s * far > _WIDEST:
        raise ValueError("this sampled run is too costly to certify")
    widest = log1p(q * expm1(s * far - s * s / 2)) - log1p(q * expm1(-t * far - t * t / 2))
    cells = ceil(widest / cell) + 1
    if cells > _MOST_CELLS:
        raise ValueError("this sampled run is too costly to certify")
    edges = cell * np.arange(cells + 1.0)
    if run.scheme == "poisson":
        x = (np.arcsinh(np.sinh(edges / 2) * (exp(s * s / 2) * (1 - q) / q)) + edges / 2) / s
    else:
        x = s / 2 + np.log1p(np.expm1(edges) / q) / s
    tail_p = (1 - q) * ndtr(-x) + q * ndtr(s - x)
    tail_q = (1 - q) * ndtr(-x) + q * ndtr(-t - x)
    p, likewise = -np.diff(tail_p), np.exp(edges[:-1]) * -np.diff(tail_q)
    upper = (p - likewise) / -expm1(-cell) + _ROUNDING / cell * tail_p[:-1]
    upper = np.clip(upper, 0.0, p)
    above = upper
    above[:-1] += (p - upper)[1:]
    return _Losses(cell, above * (1 + _COVER), float(tail_p[-1]) * (1 + _COVER))


_Parts = Sequence[tuple[_Losses, int]]
"""Distributions on one grid, each with the number of its steps."""


def _composed(parts: _Parts, tail: float) -> NDArray[Any]:
    """δ at 0, cell, 2·cell, ... of all steps, up to where less than `tail` is left; never too small."""
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
    """The Fourier transform of one step, on a circle of so many cells."""
    around: NDArray[Any] = np.zeros(size, dtype=_FLOAT)
    around[0] = step.at_zero
    around[1 : len(step.above) + 1] = step.above
    around[-len(step.above) :] = step.below[::-1]
    return fft.rfft(around)


def _reach(parts: _Parts, tail: float) -> int:
    """Cells that the sum of the steps' losses exceeds with probability below `tail`, by Chernoff's bound."""

    def moment(step: _Losses, order: float) -> float:
        grown, shrunk = np.exp(order * step.losses), np.exp(-order * step.losses)
        return float(step.above @ grown + step.below @ shrunk) + step.at_zero

    def bound(order: float) -> float:
        return (sum(count * log(moment(step, order)) for step, count in parts) - log(tail)) / order

    cell = parts[0][0].cell
    widest = cell * max(len(step.above) for step, _ in parts)
    most = cell * sum(count * len(step.above) for step, count in parts)
    orders = np.geomspace(0.005, 700.0, 32) / widest
    return ceil(min(most, *map(bound, orders.tolist())) / cell)


def _mu(runs: Sequence[SubsampledRun], slack: float, cell: float) -> float:
    """The least μ that a grid of this cell certifies."""
    steps = _steps(runs)
    if slack <= 4 * _fft_error(steps):
        raise ValueError("delta is too small for a certificate of so many sampled steps")
    parts = [(_step(run, cell, slack / _TAIL / steps), run.steps) for run in runs]
    delta = _composed(parts, slack / _TAIL)
    covered_by_slack = delta <= slack
    if not covered_by_slack.any():
        raise ValueError("delta is too small for a certificate of so many sampled steps")
    last = int(np.argmax(covered_by_slack))
    points = np.unique(np.linspace(0, last, _POINTS).astype(np.int64))
    needed = np.asarray((delta[points[:-1]] - slack) / (1 - slack), dtype=np.float64)
    right = cell * points[1:]

    def covered(mu: float) -> bool:
        less, more = ndtr(mu / 2 - right / mu), np.exp(right + log_ndtr(-right / mu - mu / 2))
        return bool((needed <= less * (1 - 1e-12) - more * (1 + 1e-12)).all())

    top = 4 * (1 + cell * last)
    if not covered(top):
        raise ValueError("this sampled run is too costly to certify")
    return top - largest(lambda gap: covered(top - gap), 0.0, top * (1 - 1e-12)) if last else 0.0


@lru_cache(maxsize=256)
def certify(run: SubsampledRun | tuple[SubsampledRun, ...], slack: float) -> Cost:
    """The cost of a whole run: the least μ with δ(ε) <= slack + (1 − slack)·δ_Gμ(ε) for every ε.

    The distribution is symmetric, so ε >= 0 suffices. Between grid points δ at the left is held against
    the bound at the right; past the last one δ is below the slack.

    Args:
        run: what is released, with one noise or with several; their order does not matter.
        slack: probability that the certificate may leave out.

    Raises:
        ValueError: the slack is too small, or the run too costly, to be certified.
    """
    runs = (run,) if isinstance(run, SubsampledRun) else run
    steps = _steps(runs)
    cell = min(0.05, 0.5 / sqrt(steps))
    mu, before = _mu(runs, slack, cell), inf
    while mu and (before - mu > _TOLERANCE * mu or cell > _cell_for(mu, steps)):
        before, cell = mu, min(cell / 2, _cell_for(mu, steps))
        try:
            mu = min(mu, _mu(runs, slack, cell))
        except ValueError:
            break
    return Cost(nextafter(nextafter(mu, inf) ** 2, inf), slack)


def _together(runs: Iterable[SubsampledRun]) -> SubsampledRun | tuple[SubsampledRun, ...]:
    """Runs in one order, so that their certificate is found again."""
    first, *rest = sorted(runs, key=lambda run: (run.scheme, run.rate, run.noise))
    return (first, *rest) if rest else first


def _cell_for(mu: float, steps: int) -> float:
    """Fine enough for a run of this cost."""
    return min(mu / (_CELLS * sqrt(steps)), mu / _CELLS_PER_MU)


@lru_cache(maxsize=256)
def noise_for(scheme: Scheme, rate: float, steps: int, mu: float, slack: float) -> SubsampledRun:
    """The run of nearly the least noise that is certified to cost at most μ² with this slack.

    Raises:
        ValueError: none can be certified.
    """
    (run,) = noises_for(scheme, rate, ((steps, 1.0),), mu, slack)
    return run


@lru_cache(maxsize=256)
def noises_for(
    scheme: Scheme, rate: float, parts: tuple[tuple[int, float], ...], mu: float, slack: float
) -> tuple[SubsampledRun, ...]:
    """The run in parts of nearly the least noise that is certified to cost at most μ² with this slack.

    Each part is given by its number of steps and by its noise relative to that of the others.

    Raises:
        ValueError: none can be certified.
    """
    steps = sum(count for count, _ in parts)
    cell = _cell_for(mu, steps)

    def runs(logarithm: float) -> tuple[SubsampledRun, ...]:
        return tuple(
            SubsampledRun(scheme, rate, _short(exp(logarithm) * ratio), count) for count, ratio in parts
        )

    def fits(logarithm: float) -> bool:
        try:
            return _mu(runs(logarithm), slack, cell) <= mu
        except ValueError:
            return False

    # With this much noise, sampling need not help; with the other, the smallest losses alone cost μ.
    high = log(2 * sqrt(sum(count / ratio**2 for count, ratio in parts)) / mu) + 0.1
    low = high + log(rate) - 1
    _mu(runs(high), slack, cell)
    while high - low > 0.004:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    while certify(_together(runs(high)), slack).mu_squared > mu * mu:
        high += 0.004
    return runs(high)


def _short(noise: float) -> float:
    """Rounded down to 30 bits: noise that differs by rounding alone has the same certificate."""
    mantissa, exponent = frexp(noise)
    return ldexp(floor(mantissa * 2**30), exponent - 30)


def cost_of(releases: Iterable[SubsampledSum], slack: float) -> Cost:
    """The cost of all batches of a run, scattered over it as they may be: one certificate.

    Raises:
        ValueError: there are none, or they cannot be certified.
    """
    steps: Counter[tuple[Scheme, float, float]] = Counter()
    for block in releases:
        if block.noise != "gaussian":
            raise ValueError("Laplace noise is added up sum by sum")
        steps[block.scheme, block.rate, _short(block.scale / block.sensitivity)] += block.count
    if not steps:
        raise ValueError("a certificate covers one batch or more")
    return certify(_together(SubsampledRun(*kind, count) for kind, count in steps.items()), slack)

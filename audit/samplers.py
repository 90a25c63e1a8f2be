"""The laws of all that a gate draws, each held against what the real generator draws, and against a fault.

Of noise also single cells, whose probabilities no number of draws could show: by bits that are chosen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, permutations, repeat
from math import comb, sqrt
from typing import Any
from unittest.mock import patch

import mpmath  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from audit.lines import Finding, Line, Section
from privest.arrays import Array, lengths
from privest.privacy import noise
from privest.privacy.clipped_sums import Grid
from privest.privacy.mechanisms import Noise, Scheme
from privest.privacy.noise import (
    NoiseSource,
    Normals,
    Radius,
    SystemNoise,
    Words,
    gaussian_cells,
    laplace_cells,
)
from testing.noise import ScaledNoise

ALARM = 1e-9
"""Probability that a line rejects the right law."""


@dataclass(frozen=True)
class Law:
    """One thing that is drawn.

    Attributes:
        name: of the line.
        about: the law.
        p_value: of so many draws, under it.
        draws: of the quick form and of the long one.
        fault: in words.
        wrong: a source that has it.
    """

    name: str
    about: str
    p_value: Callable[[NoiseSource, int], float]
    draws: tuple[int, int]
    fault: str
    wrong: Callable[[], NoiseSource]

    @property
    def line(self) -> Line:
        """This law as a line of the report."""
        return Line(self.name, self.about, self._run)

    def _run(self, long: bool) -> Finding:
        count = self.draws[long]
        right, broken = self.p_value(SystemNoise(count), count), self.p_value(self.wrong(), count)
        return Finding(
            holds=broken < ALARM < right,
            claimed=f"the law itself: p ≥ {ALARM:.0e}",
            found=f"p = {right:.2g} of {count:,} draws",
            power=f"{self.fault}: p = {broken:.1g}",
        )


def _equally_likely(found: NDArray[np.int64], cells: int) -> float:
    """p-value of numbers below `cells` being equally likely, by χ²."""
    return float(stats.chisquare(np.bincount(found, minlength=cells)).pvalue)


# Noise

_SCALE, _SIZE = 2.5, 5
_SPACING = _SCALE * 2.0**-32


def _noise(source: NoiseSource, kind: Noise, size: int) -> Array:
    return Grid(_SPACING).values(source.draw(kind, _SCALE, size, _SPACING)) / _SCALE


def _normal(source: NoiseSource, count: int) -> float:
    drawn = np.concatenate([_noise(source, "gaussian", 1000) for _ in range(count // 1000)])
    return float(stats.kstest(drawn, stats.norm.cdf).pvalue)


def _laplace(source: NoiseSource, count: int) -> Array:
    return np.stack([_noise(source, "laplace", _SIZE) for _ in range(count)])


def _laplace_length(source: NoiseSource, count: int) -> float:
    return float(stats.kstest(lengths(_laplace(source, count)), stats.gamma(_SIZE).cdf).pvalue)


def _laplace_direction(source: NoiseSource, count: int) -> float:
    """p-value of a Laplace vector's direction: each of five coordinates is Beta(2, 2) on [−1, 1]."""
    drawn = _laplace(source, count)
    return float(stats.kstest(drawn[:, 0] / lengths(drawn), stats.beta(2, 2, -1, 2).cdf).pvalue)


def _low_bits(source: NoiseSource, count: int) -> float:
    """p-value of the low bits of the integers that noise is rounded to. They are even, grid or no grid."""
    return _equally_likely(source.draw("gaussian", _SCALE, count, _SPACING) & 15, 16)


class _Independent(SystemNoise):
    """Laplace noise coordinate by coordinate, of the same length on average."""

    def draw(self, noise: Noise, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
        """See `NoiseSource`."""
        draw = super().draw
        return np.concatenate([draw(noise, scale, 1, spacing) for _ in range(size)])


class _Coarse(SystemNoise):
    """Noise on a grid eight times as coarse."""

    def draw(self, noise: Noise, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
        """See `NoiseSource`."""
        return super().draw(noise, scale, size, 8 * spacing) * 8


# Records

_RECORDS, _RATE = 500, 0.07


def _poisson_sizes(source: NoiseSource, count: int) -> float:
    law = stats.binom(_RECORDS, _RATE)
    cuts = np.unique(law.ppf(np.linspace(0.0, 1.0, 15)[1:-1]))
    expected = np.diff(np.concatenate([[0.0], law.cdf(cuts), [1.0]])) * count
    sizes = [len(source.batch(_RECORDS, _RATE, "poisson")) for _ in range(count)]
    observed = np.bincount(np.searchsorted(cuts, sizes), minlength=len(expected))
    return float(stats.chisquare(observed, expected).pvalue)


def _sets(batch: int, source: NoiseSource, count: int) -> float:
    """p-value of batches drawn from six records. A batch that has one record twice is not a valid one."""
    known = {frozenset(members): place for place, members in enumerate(combinations(range(6), batch))}
    drawn = [frozenset(source.batch(6, batch / 6, "fixed").tolist()) for _ in range(count)]
    if not known.keys() >= set(drawn):
        return 0.0
    return _equally_likely(np.array([known[members] for members in drawn]), comb(6, batch))


def _orders(source: NoiseSource, count: int) -> float:
    known = {order: place for place, order in enumerate(permutations(range(4)))}
    drawn = [known[tuple(source.permutation(4).tolist())] for _ in range(count)]
    return _equally_likely(np.array(drawn), len(known))


def _numbers(source: NoiseSource, count: int) -> float:
    return _equally_likely(np.concatenate([source.indices(9, 4) for _ in range(count // 4)]), 9)


class _MoreOften(SystemNoise):
    """Each record a fiftieth more often than it should be in a batch."""

    def batch(self, n: int, rate: float, scheme: Scheme) -> NDArray[np.int64]:
        """See `NoiseSource`."""
        return super().batch(n, 1.02 * rate, scheme)


class _PutBack(SystemNoise):
    """Records of a batch are drawn one by one, and put back."""

    def batch(self, n: int, rate: float, scheme: Scheme) -> NDArray[np.int64]:  # noqa: ARG002
        """See `NoiseSource`."""
        return self.indices(n, round(rate * n))


class _Swaps(SystemNoise):
    """Each place is swapped with any other: 256 ways, for 24 orders."""

    def permutation(self, n: int) -> NDArray[np.int64]:
        """See `NoiseSource`."""
        order = np.arange(n)
        for place, other in enumerate(self.indices(n, n)):
            order[[place, other]] = order[[other, place]]
        return order


class _Remainders(SystemNoise):
    """What is left of six random bits."""

    def indices(self, n: int, size: int) -> NDArray[np.int64]:
        """See `NoiseSource`."""
        return super().indices(64, size) % n


# Cells of noise on the finest grid, of probability 2⁻³³ and less

_FINE = 2.0**-32
_NEAR = (54, 64)
"""Binary digits of a uniform number up to which a chosen one agrees with the edge between two cells."""


_HALF = 2**63
"""A word of one bit and 63 zeros."""


def _given(words: Sequence[int], then: int) -> Words:
    """A source of these words, and of one over and over after them."""
    left = chain(words, repeat(then))
    return lambda size: np.array([next(left) for _ in range(size)], dtype=np.uint64)


def _variate(number: Any) -> Normals:
    """The normal variate of a uniform number, which is given to 255 bits."""
    whole: Any = mpmath.floor(number * mpmath.mpf(2) ** 255)
    bits = int(whole)
    words = [bits >> 192 << 1, *(bits >> 64 * place & (2**64 - 1) for place in (2, 1, 0))]
    return Normals(_given(words, 0), 1.0, 1)


def _cell_of(number: Any) -> int:
    """The cell to which the noise of this uniform number is rounded."""
    return int(gaussian_cells([1.0], [_variate(number)], _FINE)[0])


def _wrong_pure_cells(count: int) -> int:
    """Hold cells of one coordinate of noise of density ∝ exp(−|z|) in three dimensions, of random lengths.

    Its factor √(−2·log u − 2·log v) has random bits, too: 63, and then words of one bit and 63 zeros.
    """
    rng, wrong = np.random.default_rng(0), 0
    more = 1 / (2 - mpmath.mpf(2) ** -63)  # bits after the 63rd, of one and 63 zeros each
    with mpmath.workdps(90):
        for deviations in (9 * rng.random(count)).tolist():
            firsts = rng.integers(0, 2**63, 2).tolist()
            factor = mpmath.sqrt(
                -2 * sum(mpmath.log((first + more) / mpmath.mpf(2) ** 63) for first in firsts)
            )
            k = int(deviations * factor / _FINE)
            edge = mpmath.erfc((k + mpmath.mpf(0.5)) * _FINE / factor / mpmath.sqrt(2))
            for deep in _NEAR:
                near = edge * mpmath.mpf(2) ** -deep
                for number, cell in ((edge - near, k + 1), (edge + near, k)):
                    radius = Radius(_given([first << 1 for first in firsts], _HALF), 3)
                    wrong += int(laplace_cells(_variate(number), radius, _FINE)[0]) != cell
    return wrong


def _wrong_cells(count: int) -> int:
    """How many of `count` edges, chosen at random up to nine deviations, do not part the two cells.

    The edge above cell k is at 2Φ(−(k + ½)·2⁻³²). A number a 2⁻⁶⁴th of it below belongs to k + 1, above to k.
    """
    rng, wrong = np.random.default_rng(0), 0
    with mpmath.workdps(90):
        for k in (rng.random(count) * 9 * 2**32).astype(np.int64).tolist():
            edge = mpmath.erfc((k + mpmath.mpf(0.5)) * _FINE / mpmath.sqrt(2))
            for deep in _NEAR:
                near = edge * mpmath.mpf(2) ** -deep
                wrong += (_cell_of(edge - near) != k + 1) + (_cell_of(edge + near) != k)
    return wrong


def _cells(wrong: Callable[[int], int], long: bool) -> Finding:
    count = 5_000 if long else 50
    right = wrong(count)
    with (
        patch.object(noise, "_RELATIVE", 0.0),
        patch.object(noise, "_ABSOLUTE", 0.0),
        patch.object(noise, "_LOGARITHM", 0.0),
    ):
        broken = wrong(count)
    return Finding(
        holds=right == 0 < broken,
        claimed="each edge parts two cells, to a relative 2⁻⁵⁴ and 2⁻⁶⁴ of its tail",
        found=f"{right} of {4 * count:,} numbers beside an edge are in wrong cells",
        power=f"float64 believed as it is: {broken:,}",
    )


_LAWS = (
    Law(
        "law-normal",
        "Gaussian noise, by Kolmogorov and Smirnov",
        _normal,
        (400_000, 10_000_000),
        "variance 1.05",
        partial(ScaledNoise, sqrt(1.05)),
    ),
    Law(
        "law-laplace-length",
        "the length of Laplace noise, Gamma(d)",
        _laplace_length,
        (4_000, 400_000),
        "a standard deviation for a scale, as in the code of Kuru et al. 2022",
        partial(ScaledNoise, 1 / sqrt(2)),
    ),
    Law(
        "law-laplace-direction",
        "the direction of Laplace noise, uniform",
        _laplace_direction,
        (6_000, 400_000),
        "a law for each coordinate",
        partial(_Independent, 0),
    ),
    Law(
        "law-low-bits",
        "the last bits of noise on its grid",
        _low_bits,
        (100_000, 10_000_000),
        "a grid eight times as coarse",
        partial(_Coarse, 0),
    ),
    Law(
        "law-poisson",
        "sizes of Poisson batches, binomial",
        _poisson_sizes,
        (10_000, 200_000),
        "a rate larger by a fiftieth",
        partial(_MoreOften, 0),
    ),
    *(
        Law(
            f"law-fixed-{batch}",
            f"batches of {batch} of six records, drawn {way}: all sets alike",
            partial(_sets, batch),
            (10_000, 400_000),
            "records put back",
            partial(_PutBack, 0),
        )
        for batch, way in ((2, "until none comes twice"), (3, "without repetition"))
    ),
    Law(
        "law-order",
        "the order in which streams see records: all alike",
        _orders,
        (20_000, 400_000),
        "swaps of any two",
        partial(_Swaps, 0),
    ),
    Law(
        "law-indices",
        "uniform numbers",
        _numbers,
        (100_000, 1_000_000),
        "remainders",
        partial(_Remainders, 0),
    ),
)

SECTION = Section(
    "What is drawn",
    f"""\
The real generator against the laws that certificates rest on; a line is wrong about a right sampler with a
probability of {ALARM:.0e}, and the same test must reject a wrong one. Cells of noise are too improbable for
that: the bits from which noise is made are chosen there, next to edges that mpmath computes from Φ alone.""",
    (
        Line(
            "law-cells",
            "cells of Gaussian noise on the finest grid, by bits that are chosen",
            partial(_cells, _wrong_cells),
        ),
        Line(
            "law-cells-pure",
            "cells of noise for δ = 0 in space on the finest grid, by bits that are chosen",
            partial(_cells, _wrong_pure_cells),
        ),
        *(law.line for law in _LAWS),
    ),
)

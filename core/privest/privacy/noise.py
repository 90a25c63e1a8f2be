"""Exact noise on an integer grid, batch sizes, and the cryptographic generator that draws them.

The operating system keys the generator. Only worker processes import this module.

*Noise.* A variate is a function of a uniform number of which 63 bits are drawn at first. Float64 then says in
which cell it lies, with a stated bound on its error. Where the bound reaches an edge of the cell, interval
arithmetic (Arb) encloses the variate, and more bits are drawn, until the interval lies in one cell.
docs/privacy.md has the argument, under "The noise that is drawn".

*Batch sizes* are binomial numbers with their exact law, from a uniform number likewise. Integers on both
sides of each edge between two sizes say whether more bits are needed, and then both have more digits, too.
"""

import os
import secrets
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate, count
from math import cos, fsum, pi, prod, sqrt
from typing import Any, Never, Protocol
from weakref import WeakSet

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray
from randomgen import AESCounter, ChaCha  # pyright: ignore[reportMissingTypeStubs]
from scipy.special import ndtri

from privest.arrays import Array
from privest.memo import memoized
from privest.privacy.mechanisms import Noise, Scheme

Words = Callable[[int], NDArray[np.uint64]]
"""Draws a given number of words of 64 random bits."""

Places = NDArray[np.int64]
"""Indices of some of the variates."""

_RELATIVE, _ABSOLUTE = 2.0**-48, 2.0**-52
"""A normal variate x is off by _RELATIVE·|x| + _ABSOLUTE at most. Half of the former is the bound on `ndtri`,
16 units of roundoff, of which tests find a third used. Half is for a few operations behind it. An error of u
moves x by Φ(−x)/φ(x) times its share of u: 1.26 times 0.75·2⁻⁵² at most below x = 3, 0.31·2⁻⁵² beyond."""

_LOGARITHM = 2.0**-50
"""Relative error of `log`, 8 units of roundoff; half of it bounds what an error of u by 2⁻⁵² of it adds."""

_MORE = 96
"""Binary digits that intervals are computed with, beyond 64 for each word. A deviation may be 2³² cells. With
too few digits intervals are wider, and more bits are drawn than are needed; no cell is another one."""


class Uniforms:
    """Independent uniform numbers in (0, 1), of each of which as many bits are drawn as are asked for.

    Attributes:
        values: (size,) float64, each within a relative 2⁻⁵² of the number.
        signs: (size,) float64 of random and independent signs.
        unknown: places of numbers below 2⁻⁶³, of which the values say nothing.
    """

    def __init__(self, words: Words, size: int) -> None:
        self._words = words
        drawn = words(size)
        self._first, self.signs = drawn >> np.uint64(1), 0.5 - (drawn & np.uint64(1))
        self._more: dict[int, int] = {}
        self.values = self._first * 2.0**-63
        # So few bits are left in one of 2¹⁰ numbers that its relative error would be larger.
        few = np.flatnonzero(self._first < np.uint64(2**53))
        if len(few):
            second = words(len(few))
            self._more = dict(zip(few.tolist(), ((1 << 64) + second.astype(object)).tolist(), strict=True))
            self.values[few] += second * 2.0**-127 + 2.0**-127
        self.unknown = few[self._first[few] == np.uint64(0)]

    def bits(self, place: int, words: int) -> tuple[int, int]:
        """m and n: the number lies in [m, m + 1]·2⁻ⁿ. At least so many words are drawn for it."""
        more = self._more.get(place, 1)  # the bits behind a leading one
        while more.bit_length() <= 64 * (words - 1):
            more = (more << 64) + int(self._words(1)[0])
        if words > 1:
            self._more[place] = more
        behind = more.bit_length() - 1
        return (int(self._first[place]) << behind) + more - (1 << behind), 63 + behind


class Normals:
    """Independent normal variates of mean zero and deviation `scale`, (size,), as precise as is asked for.

    Attributes:
        values: float64 of them, over `scale`.
        largest_error: bound on how far any of these is off.
    """

    def __init__(self, words: Words, scale: float, size: int) -> None:
        self.scale = scale
        self._uniform = Uniforms(words, size)
        self.values = ndtri(self._uniform.values * 0.5)  # not positive
        longest = -self.values.min(initial=0.0)
        self.largest_error = np.inf if len(self._uniform.unknown) else _RELATIVE * longest + _ABSOLUTE
        np.copysign(self.values, self._uniform.signs, out=self.values)

    def errors(self, places: Places | slice) -> Array:
        """Bounds on how far the values at these places are off."""
        bounds = _RELATIVE * np.abs(self.values[places]) + _ABSOLUTE
        if len(unknown := self._uniform.unknown):
            bounds[np.isin(np.arange(len(self.values))[places], unknown)] = np.inf
        return bounds

    def interval(self, place: int, words: int) -> arb:
        """Return an interval that holds one variate over `scale`, from so many words of its bits."""
        m, n = self._uniform.bits(place, words)
        # erfc keeps the digits of numbers next to 0, and erf those of numbers next to 1.
        small = m >> n - 1 == 0
        x = _interval(m, n).erfcinv() if small else _interval((1 << n) - 1 - m, n).erfinv()
        return x * arb(2).sqrt() * float(np.sign(self._uniform.signs[place]))


def _interval(m: int, n: int) -> arb:
    """The numbers from m to m + 1, times 2⁻ⁿ."""
    return arb((2 * m + 1, -n - 1), (1, -n - 1))


class Radius:
    """√χ² with d + 1 degrees of freedom: times d normal variates, a vector of density ∝ exp(−|z|) on R^d.

    Half of χ² is the sum of ⌊(d + 1)/2⌋ numbers −log u, and for even d one more times cos²(πv/2), v uniform.

    Attributes:
        value: float64 of it.
        error: bound on how far that is off.
    """

    def __init__(self, words: Words, size: int) -> None:
        self._half, self._even = (size + 1) // 2, size % 2 == 0
        self._uniform = Uniforms(words, self._half + 2 * self._even)
        self._intervals: dict[int, arb] = {}
        terms = -np.log(self._uniform.values)
        within = 2 * fsum(terms[: self._half].tolist())
        whole = within
        if self._even:
            last = 2 * float(terms[-2])
            within, whole = within + last * cos(pi / 2 * float(self._uniform.values[-1])) ** 2, whole + last
        self.value = sqrt(within)
        off = _LOGARITHM * (2 * whole + self._half + 1)
        self.error = off / self.value if self.value and not len(self._uniform.unknown) else np.inf

    def interval(self, words: int) -> arb:
        """Return an interval that holds it, from so many words of every uniform number's bits."""
        if words not in self._intervals:
            places = range(self._half + 2 * self._even)
            u = [_interval(*self._uniform.bits(place, words)) for place in places]
            square = -2 * prod(u[: self._half], start=arb(1)).log()
            if self._even:
                square -= 2 * u[-2].log() * (u[-1] / 2).cos_pi() ** 2
            self._intervals[words] = square.nonnegative_part().sqrt()
        return self._intervals[words]


def gaussian_cells(
    weights: Sequence[float], variates: Sequence[Normals], spacing: float, part: slice = slice(None)
) -> NDArray[np.int64]:
    """Σ weight·variate, rounded to multiples of the spacing: as int64, modulo 2⁶⁴.

    Args:
        weights: of each element of `variates`, not negative.
        variates: all of one size.
        spacing: of the grid, a power of two.
        part: which of the variates' places.
    """
    parts = [(weight, each.scale / spacing, each) for weight, each in zip(weights, variates, strict=True)]
    steps = reduce(np.add, [(weight * scale) * each.values[part] for weight, scale, each in parts])
    more = 1 + len(parts) / 32
    largest = more * sum(weight * scale * each.largest_error for weight, scale, each in parts)
    first = part.start or 0

    def doubt(places: Places) -> Array:
        ends = [weight * scale * each.errors(first + places) for weight, scale, each in parts]
        return more * reduce(np.add, ends)

    def interval(place: int, words: int) -> arb:
        terms = [weight * (scale * each.interval(first + place, words)) for weight, scale, each in parts]
        return reduce(arb.__add__, terms)

    return _cells(steps, largest, doubt, interval)


def laplace_cells(normals: Normals, radius: Radius, spacing: float) -> NDArray[np.int64]:
    """Noise of density ∝ exp(−|z|/scale), rounded to multiples of the spacing: as int64, modulo 2⁶⁴."""
    factor = normals.scale / spacing
    steps = factor * (radius.value * normals.values)
    off = normals.errors(slice(None))
    doubt = factor * (radius.value * off + radius.error * np.abs(normals.values)) * (1 + 2.0**-10)

    def interval(place: int, words: int) -> arb:
        return factor * normals.interval(place, words) * radius.interval(words)

    return _cells(steps, doubt.max(initial=0.0), doubt.__getitem__, interval)


def independent_laplace_cells(scale: float, uniforms: Uniforms, spacing: float) -> NDArray[np.int64]:
    """Noise of density ∝ exp(−|z|/scale) in each coordinate, in multiples of the spacing: int64, modulo 2⁶⁴.

    A variate is ±log u. Its error is that of the logarithm, relative, and what an error of u adds.
    """
    factor = scale / spacing
    lengths = -np.log(uniforms.values)
    doubt = factor * _LOGARITHM * (lengths + 1) * (1 + 2.0**-10)
    doubt[uniforms.unknown] = np.inf

    def interval(place: int, words: int) -> arb:
        log_u = _interval(*uniforms.bits(place, words)).log()
        return factor * float(-np.sign(uniforms.signs[place])) * log_u

    steps = factor * np.copysign(lengths, uniforms.signs)
    return _cells(steps, doubt.max(initial=0.0), doubt.__getitem__, interval)


def _cells(
    steps: Array,
    largest: float,
    doubt: Callable[[Places], Array],
    interval: Callable[[int, int], arb],
) -> NDArray[np.int64]:
    """The integers nearest to variates of which `steps` are float64 values.

    Args:
        steps: the values; they are overwritten.
        largest: bound on how far any of them is off.
        doubt: bounds on how far those at some places are off.
        interval: of a place, by so many words. It is asked for where an edge is within doubt.
    """
    nearest = np.rint(steps)
    steps -= nearest
    np.abs(steps, out=steps)
    near = np.flatnonzero(~(steps < 0.5 - largest))
    near = near[~(steps[near] + doubt(near) < 0.5)] if len(near) else near
    nearest[near] = 0.0
    cells = nearest.astype(np.int64)
    for place in near.tolist():
        cell = _refine_until_rounded(lambda words, place=place: interval(place, words))
        cells[place] = (cell + 2**63) % 2**64 - 2**63
    return cells


def _refine_until_rounded(interval: Callable[[int], arb]) -> int:
    """The integer nearest to all of an interval, with as many words of random bits as that takes."""
    for words in count(1):
        # Other threads may change these digits, which all share: that makes intervals wider, and none wrong.
        with ctx.workprec(64 * words + _MORE):
            cell = (interval(words) + 0.5).floor().unique_fmpz()
        if cell is not None:  # it is where the interval has an edge in it, or no end
            return int(cell)
    raise AssertionError


_MORE_DIGITS = 128
"""Binary digits of weights beyond those of edges. So many hide what is missing for any n below 2⁶⁰."""


def batch_sizes(words: Words, n: int, rate: float, count: int) -> NDArray[np.int64]:
    """Draw `count` independent batch sizes: of n records each is in a batch with probability `rate`.

    Args:
        words: draws a given number of words of 64 random bits.
        n: number of records.
        rate: probability in (0, 1] of a record.
        count: how many sizes.
    """
    first = words(count) >> np.uint64(1)
    least, low, high = _edges(n, rate, 63)
    sure = np.searchsorted(np.array(high, dtype=np.uint64), first, "right")
    possible = np.searchsorted(np.array(low, dtype=np.uint64), first, "right")
    sizes = least + sure
    for place in np.flatnonzero(sure != possible).tolist():
        sizes[place] = _refined_size(words, n, rate, int(first[place]))
    return sizes


def _refined_size(words: Words, n: int, rate: float, drawn: int) -> int:
    """The size that a uniform number tells whose first 63 bits are drawn, with as many more as that takes."""
    bits = 63
    while True:
        drawn, bits = drawn << 64 | int(words(1)[0]), bits + 64
        least, low, high = _edges(n, rate, bits)
        size = least + bisect_right(high, drawn)
        if size == least + bisect_right(low, drawn):
            return size


@memoized
def _edges(n: int, rate: float, bits: int) -> tuple[int, list[int], list[int]]:
    """Integers at most and at least 2^bits·P(size ≤ k) for each k that counts, and the least such k.

    Weights of sizes follow from one another, outwards from the likeliest, and are rounded down. As they fall,
    each lacks less than one unit for every step, and what is left out at the ends is as small.
    """
    taken, whole = rate.as_integer_ratio()
    left = whole - taken
    mode = min(n, (n + 1) * taken // whole)
    above, below = [1 << bits + _MORE_DIGITS], [1 << bits + _MORE_DIGITS]
    for k in range(mode, n):
        if not (weight := above[-1] * (n - k) * taken // ((k + 1) * left)):
            break
        above.append(weight)
    for k in range(mode, 0, -1):
        if not (weight := below[-1] * k * left // ((n - k + 1) * taken)):
            break
        below.append(weight)
    sums = list(accumulate(below[:0:-1] + above))
    least, missing = mode - len(below) + 1, (n + 1) * (len(sums) + 1)
    low = [(part << bits) // (sums[-1] + missing) for part in sums]
    high = [min(1 << bits, -(-(part + missing << bits) // sums[-1])) for part in sums]
    if mode + len(above) > n:
        low[-1] = high[-1] = 1 << bits
    if least:  # sizes below have a probability that is less than one unit
        least, low, high = least - 1, [0, *low], [-(-(missing << bits) // sums[-1]), *high]
    return least, low, high


_BLOCK = 2**15
"""Most normal variates drawn in one call. Larger blocks leave the cache and take twice as long."""

_NO_CELLS = np.empty(0, dtype=np.int64)

_LAWS = 16
"""Laws of which cells are kept ready: a run whose noise differs at every step would keep all it ever drew."""

_INDEX_BLOCK = 4096
"""Number of indices, or of batch sizes, drawn in one call."""


_SOURCES = WeakSet["SystemNoise"]()


def _end_copies() -> None:
    """A process that was copied would draw the same noise as the one it was copied from: it draws none."""
    for source in _SOURCES:
        vars(source).clear()


os.register_at_fork(after_in_child=_end_copies)


class NoiseSource(Protocol):
    """A source of noise for a gate. Only tests provide another than `SystemNoise`."""

    def draw(self, noise: Noise, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
        """One (size,) noise vector of the density that `NoisySum` states, in multiples of the spacing."""
        ...

    def normals(self, scale: float, size: int) -> Normals:
        """`size` normal variates of deviation `scale` for a stream, which rounds weighted sums of such."""
        ...

    def batch(self, n: int, rate: float, scheme: Scheme) -> NDArray[np.int64]:
        """Indices of the records in a random batch, without repetition."""
        ...

    def indices(self, n: int, size: int) -> NDArray[np.int64]:
        """`size` independent uniform integers in [0, n)."""
        ...

    def permutation(self, n: int) -> NDArray[np.int64]:
        """The integers in [0, n) in uniformly random order."""
        ...


def _generator() -> np.random.Generator:
    """AES in counter mode if the processor has AES instructions, else ChaCha20. It is keyed, never seeded."""
    bits: Any = AESCounter(key=secrets.randbits(128))
    if not bits.use_aesni:
        bits = ChaCha(key=secrets.randbits(256))
    return np.random.Generator(bits)


class SystemNoise:
    """Noise that nobody can predict or repeat, drawn ahead in blocks.

    Args:
        expected: number of normal variates that the run will use; blocks are no larger than that.
    """

    def __init__(self, expected: int) -> None:
        self._generator = _generator()
        self._expected = expected
        self._block = Normals(self._words, 1.0, 0)
        self._used, self._size = 0, 0
        self._ready: dict[tuple[float, float], tuple[NDArray[np.int64], int]] = {}
        self._index_block = np.empty(0, dtype=np.int64)
        self._index_limit, self._index_used = 0, 0
        self._counts: list[int] = []
        self._count_key = (0, 0.0)
        _SOURCES.add(self)

    def __reduce__(self) -> Never:
        """Two copies would draw the same noise.

        Raises:
            TypeError: always.
        """
        raise TypeError("a source of noise cannot be copied or sent")

    def _words(self, size: int) -> NDArray[np.uint64]:
        return self._generator.integers(0, 2**64 - 1, size, dtype=np.uint64, endpoint=True)

    def draw(self, noise: Noise, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
        """One (size,) noise vector of the density that `NoisySum` states, in multiples of the spacing."""
        if noise == "independent-laplace":
            return independent_laplace_cells(scale, Uniforms(self._words, size), spacing)
        if noise == "laplace":
            return laplace_cells(Normals(self._words, scale, size), Radius(self._words, size), spacing)
        if size <= _BLOCK:
            return self._gaussian(scale, size, spacing)
        pieces = [min(_BLOCK, size - start) for start in range(0, size, _BLOCK)]
        return np.concatenate([self._gaussian(scale, piece, spacing) for piece in pieces])

    def _gaussian(self, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
        """A normal vector of at most one block, in multiples of the spacing."""
        cells, used = self._ready.get((scale, spacing), (_NO_CELLS, 0))
        if used + size > len(cells):
            # What is asked for again is made ready twice as far ahead.
            ahead = max(size, min(2 * len(cells), self._expected, _BLOCK))
            cells, used = self._rounded(scale, spacing, ahead), 0
            if len(self._ready) == _LAWS:
                self._ready.pop(next(iter(self._ready)))
        self._expected = max(0, self._expected - size)
        self._ready[scale, spacing] = cells, used + size
        return cells[used : used + size]

    def _rounded(self, scale: float, spacing: float, size: int) -> NDArray[np.int64]:
        """The next variates of the block, in multiples of the spacing."""
        if self._used + size > self._size:
            self._size = max(size, min(self._expected, _BLOCK))
            self._block, self._used = Normals(self._words, 1.0, self._size), 0
        self._used += size
        return gaussian_cells([scale], [self._block], spacing, slice(self._used - size, self._used))

    def normals(self, scale: float, size: int) -> Normals:
        """`size` normal variates of deviation `scale` for a stream, which rounds weighted sums of such."""
        return Normals(self._words, scale, size)

    def batch(self, n: int, rate: float, scheme: Scheme) -> NDArray[np.int64]:
        """Indices of the records in a random batch, without repetition."""
        count = self._count(n, rate) if scheme == "poisson" else round(rate * n)
        if count * count > n:
            return self._generator.choice(n, count, replace=False, shuffle=False)
        # All sets of `count` records are equally likely: draw again until no index repeats.
        while True:
            drawn = self.indices(n, count)
            if count < 2 or len(set(drawn.tolist())) == count:
                return drawn

    def indices(self, n: int, size: int) -> NDArray[np.int64]:
        """`size` independent uniform integers in [0, n), drawn ahead in blocks."""
        if n != self._index_limit or self._index_used + size > len(self._index_block):
            self._index_block = self._generator.integers(0, n, max(size, _INDEX_BLOCK))
            self._index_limit, self._index_used = n, 0
        self._index_used += size
        return self._index_block[self._index_used - size : self._index_used]

    def permutation(self, n: int) -> NDArray[np.int64]:
        """The integers in [0, n) in uniformly random order."""
        return self._generator.permutation(n)

    def _count(self, n: int, rate: float) -> int:
        """The size of one Poisson batch, drawn ahead in blocks."""
        if (n, rate) != self._count_key or not self._counts:
            self._counts = batch_sizes(self._words, n, rate, _INDEX_BLOCK).tolist()
            self._count_key = (n, rate)
        return self._counts.pop()

"""A cryptographic generator, which the operating system keys, and all that is drawn by it.

Only worker processes import it.
"""

import os
import secrets
from typing import Any, Never, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray
from randomgen import AESCounter, ChaCha  # pyright: ignore[reportMissingTypeStubs]

from privest.privacy.batch_sizes import batch_sizes
from privest.privacy.exact_noise import (
    Normals,
    Radius,
    Uniforms,
    gaussian_cells,
    independent_laplace_cells,
    laplace_cells,
)
from privest.privacy.mechanisms import Noise, Scheme

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

"""Noise from a cryptographic generator that the operating system keys. Only worker processes import it."""

import secrets
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from randomgen import AESCounter, ChaCha  # pyright: ignore[reportMissingTypeStubs]

from privest.arrays import Array, lengths
from privest.privacy.mechanisms import Noise, Scheme

_BLOCK_BYTES = 2**20
"""Bytes of variates drawn in one call. Larger blocks leave the cache, and cost twice as much per variate."""

_INDEX_BLOCK = 4096
"""Number of indices, or of batch sizes, drawn in one call."""


class NoiseSource(Protocol):
    """A source of noise for a gate. Only tests provide another than `SystemNoise`."""

    def draw(self, noise: Noise, scale: float, size: int) -> Array:
        """One (size,) noise vector with the density that `NoisySum` states."""
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
        self._block = np.empty(0)
        self._used = 0
        self._index_block = np.empty(0, dtype=np.int64)
        self._index_limit, self._index_used = 0, 0
        self._counts: list[int] = []
        self._count_key = (0, 0.0)

    def _normal(self, size: int) -> Array:
        if self._used + size > len(self._block):
            self._block = self._generator.standard_normal(max(size, min(self._expected, _BLOCK_BYTES // 8)))
            self._used = 0
        self._expected = max(0, self._expected - size)
        self._used += size
        return self._block[self._used - size : self._used]

    def draw(self, noise: Noise, scale: float, size: int) -> Array:
        """One (size,) noise vector with the density that `NoisySum` states.

        Both laws come from numpy's ziggurat samplers, which take the logarithm of one of 2^53 numbers in
        the tails. So one Laplace variate never exceeds r + 53·ln 2 = 44.434 scales, where the tail begins
        at r = 7.697. An exact variate would with probability 5.0e-20. Beyond r + 21·ln 2 = 22.253 scales,
        the possible values lie further apart than the points of the finest grid, so some points are never
        drawn. An exact variate is that large with probability 2.2e-10. docs/privacy.md, "What is left
        open", states the consequence for δ = 0.
        """
        normal = self._normal(size)
        if noise == "gaussian":
            return scale * normal
        # |z| is Gamma(size)-distributed and independent of the direction.
        return scale * self._generator.standard_gamma(size) * normal / lengths(normal)

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
            self._counts = self._generator.binomial(n, rate, _INDEX_BLOCK).tolist()
            self._count_key = (n, rate)
        return self._counts.pop()

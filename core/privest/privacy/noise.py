"""Noise from a cryptographic generator keyed by the operating system; imported by workers alone."""

import secrets
from typing import Any, Protocol

import numpy as np
from randomgen import AESCounter, ChaCha  # pyright: ignore[reportMissingTypeStubs]

from privest.arrays import Array, lengths
from privest.privacy.certificates import Noise

_BLOCK_BYTES = 64 * 2**20


class NoiseSource(Protocol):
    """Where a gate gets its noise; only tests bring their own."""

    def draw(self, noise: Noise, scale: float, size: int) -> Array:
        """One noise vector of length `size` (see `NoisySum`)."""
        ...


def _generator() -> np.random.Generator:
    """AES in counter mode where the processor has it, else ChaCha20; keyed, never seeded."""
    bits: Any = AESCounter(key=secrets.randbits(128))
    if not bits.use_aesni:
        bits = ChaCha(key=secrets.randbits(256))
    return np.random.Generator(bits)


class SystemNoise:
    """Noise nobody can foresee or repeat, drawn ahead in blocks rather than at each step.

    Args:
        expected: normal variates that the run will use, to draw them in one call.
    """

    def __init__(self, expected: int) -> None:
        self._generator = _generator()
        self._expected = expected
        self._block = np.empty(0)
        self._used = 0

    def _normal(self, size: int) -> Array:
        if self._used + size > len(self._block):
            self._block = self._generator.standard_normal(max(size, min(self._expected, _BLOCK_BYTES // 8)))
            self._used = 0
        self._expected = max(0, self._expected - size)
        self._used += size
        return self._block[self._used - size : self._used]

    def draw(self, noise: Noise, scale: float, size: int) -> Array:
        """One noise vector of length `size` (see `NoisySum`)."""
        normal = self._normal(size)
        if noise == "gaussian":
            return scale * normal
        # |z| is Gamma(size)-distributed and independent of the direction.
        return scale * self._generator.standard_gamma(size) * normal / lengths(normal)

"""Noise sources that a gate is given in place of the system's, by tests, the audit and benchmarks."""

from collections.abc import Callable, Sequence

import numpy as np
from flint import arb
from numpy.typing import NDArray

from privest.arrays import Array
from privest.privacy.clipped_sums import Grid
from privest.privacy.mechanisms import Noise, Scheme
from privest.privacy.noise import Normals, SystemNoise

Drawn = tuple[Noise, float, int] | tuple[int, float, Scheme]
"""What a source was asked for: law, scale and size of a noise vector, or n, rate and scheme of a batch."""

Batch = Sequence[int] | NDArray[np.int64]


class ScaledNoise(SystemNoise):
    """The service's noise times a factor, or such noise that can be repeated.

    Args:
        factor: 1 as claimed, ½ for a fault that an attack must see.
        seed: of a generator in place of the system's.
        order: in which streams hand records out: from their number. By default the generator draws it; a
            certificate of streams holds for every order, that of the file (`numpy.arange`) among them.
        expected: normal variates that are drawn in one call.
    """

    def __init__(
        self,
        factor: float = 1.0,
        *,
        seed: int | Sequence[int] | None = None,
        order: Callable[[int], NDArray[np.int64]] | None = None,
        expected: int = 0,
    ) -> None:
        super().__init__(expected)
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self._factor, self._order = factor, order

    def draw(self, noise: Noise, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
        """One noise vector; see `NoiseSource`."""
        return super().draw(noise, self._factor * scale, size, spacing)

    def normals(self, scale: float, size: int) -> Normals:
        """Variates of a stream; see `NoiseSource`."""
        return super().normals(self._factor * scale, size)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """All records, in the given order or in a random one."""
        return super().permutation(n) if self._order is None else self._order(n)


class RecordedNoise(ScaledNoise):
    """Scaled noise that records what it was asked for.

    Args:
        factor: see `ScaledNoise`.
        seed: see `ScaledNoise`.

    Attributes:
        drawn: what was asked for, noise and batches in their order.
    """

    def __init__(self, factor: float = 1.0, *, seed: int | None = None) -> None:
        super().__init__(factor, seed=seed)
        self.drawn = list[Drawn]()

    def draw(self, noise: Noise, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
        """One noise vector; see `NoiseSource`."""
        self.drawn.append((noise, scale, size))
        return super().draw(noise, scale, size, spacing)

    def normals(self, scale: float, size: int) -> Normals:
        """Variates of a stream, written down as a noise vector; see `NoiseSource`."""
        self.drawn.append(("gaussian", scale, size))
        return super().normals(scale, size)

    def batch(self, n: int, rate: float, scheme: Scheme) -> NDArray[np.int64]:
        """The records of a random batch; see `NoiseSource`."""
        self.drawn.append((n, rate, scheme))
        return super().batch(n, rate, scheme)


class KnownNormals(Normals):
    """Variates without anything random."""

    def __init__(self, values: Array) -> None:
        self.scale, self.values, self.largest_error = 1.0, values, 0.0

    def interval(self, place: int, words: int) -> arb:  # noqa: ARG002 - as in `Normals`
        """The value alone."""
        return arb(float(self.values[place]))


class ScriptedNoise:
    """Nothing random at all: what a gate then answers is its exact sum, or that plus a known number.

    Streams hand records out in the order of the file.

    Args:
        batches: the records of each batch, in turn; where none is given, every batch holds all records.
        value: of every number of a noise vector.

    Attributes:
        drawn: what was asked for, noise and batches in their order.
    """

    def __init__(self, *batches: Batch, value: float = 0.0) -> None:
        self._batches, self._value = iter(batches) if batches else None, value
        self.drawn = list[Drawn]()

    def draw(self, noise: Noise, scale: float, size: int, spacing: float) -> NDArray[np.int64]:
        """One noise vector; see `NoiseSource`."""
        self.drawn.append((noise, scale, size))
        return Grid(spacing).quantise(np.full(size, self._value))

    def normals(self, scale: float, size: int) -> Normals:
        """Variates of a stream, all of the known value; see `NoiseSource`."""
        self.drawn.append(("gaussian", scale, size))
        return KnownNormals(np.full(size, self._value))

    def batch(self, n: int, rate: float, scheme: Scheme) -> NDArray[np.int64]:
        """The next of the given batches, or everybody."""
        self.drawn.append((n, rate, scheme))
        return np.arange(n) if self._batches is None else np.array(next(self._batches), dtype=np.int64)

    def indices(self, n: int, size: int) -> NDArray[np.int64]:  # noqa: ARG002 - as in `NoiseSource`
        """The first record, each time."""
        return np.zeros(size, dtype=np.int64)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Return records in the order of the file."""
        return np.arange(n)

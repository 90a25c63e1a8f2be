"""What a gate keeps of a stream: its sum since it last began, and the noise that all its prefixes share."""

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array, SymmetricCoordinates
from privest.privacy.grid import Grid
from privest.privacy.matrix_mechanism import PrefixProducts, PrefixSums, left_row
from privest.privacy.noise import NoiseSource


class Prefixes:
    """The prefixes of `PrefixSums`, each with its row of noise."""

    def __init__(self, release: PrefixSums, noise: NoiseSource) -> None:
        self.release, self._noise = release, noise
        self.begin()

    def begin(self) -> None:
        """A new segment: the sum is zero again, and so is the noise."""
        self._total = np.zeros(self.release.size, dtype=np.int64)
        self._drawn: list[Array] = []

    @property
    def full(self) -> bool:
        """Whether the segment has all its leaves."""
        return len(self._drawn) == self.release.leaves

    @property
    def empty(self) -> bool:
        """Whether there is nothing to be read."""
        return not self._drawn

    def add(self, leaf: NDArray[np.int64]) -> None:
        """One leaf more, in steps of the grid, with one vector of noise more."""
        self._drawn.append(self._noise.draw("gaussian", self.release.scale, self.release.size))
        self._total = self._total + leaf

    def read(self) -> Array:
        """The noisy sum of all leaves of the segment; asked for again, the same. (size,)"""
        grid = Grid(self.release.spacing)
        row = left_row(self.release.factorisation, len(self._drawn))
        noise = np.sum([weight * z for weight, z in zip(row, self._drawn, strict=True) if weight], axis=0)
        return grid.values(self._total + grid.quantise(noise))


class Products:
    """Products of the running sum of `PrefixProducts`, each with noise of its own."""

    def __init__(self, release: PrefixProducts, noise: NoiseSource) -> None:
        self.release, self._noise = release, noise
        self._symmetric = SymmetricCoordinates(release.rows)
        self.begin()

    def begin(self) -> None:
        """A new segment: the sum is zero again."""
        self._total = np.zeros(self.release.size, dtype=np.int64)
        self._left = self.release.count

    @property
    def full(self) -> bool:
        """Never: what is charged is products."""
        return False

    @property
    def empty(self) -> bool:
        """Whether the segment has had all its products."""
        return self._left == 0

    def add(self, leaf: NDArray[np.int64]) -> None:
        """One leaf more, in steps of the grid."""
        self._total = self._total + leaf

    def read(self, direction: Array) -> Array:
        """A noisy product; a direction longer than one is shortened to it. (rows,)"""
        self._left -= 1
        grid = Grid(self.release.spacing)
        unit = direction / max(1.0, float(np.linalg.norm(direction)))
        exact = grid.quantise(self._symmetric.matrix(grid.values(self._total)) @ unit)
        noise = self._noise.draw("gaussian", self.release.scale, self.release.rows)
        return grid.values(exact + grid.quantise(noise))

"""The state that a gate keeps of a stream: the sum of its current segment, and the noise drawn for it."""

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.privacy.exact_noise import Normals, gaussian_cells
from privest.privacy.grid import Grid
from privest.privacy.matrix_mechanism import PrefixSums, left_row
from privest.privacy.noise import NoiseSource


class Prefixes:
    """The state of a `PrefixSums` stream, which releases noisy prefixes."""

    def __init__(self, release: PrefixSums, noise: NoiseSource) -> None:
        self.release, self._noise = release, noise
        self.begin()

    def begin(self) -> None:
        """Begin a new segment: reset the sum to zero and discard the noise."""
        self._total = np.zeros(self.release.size, dtype=np.int64)
        self._drawn: list[Normals] = []

    @property
    def full(self) -> bool:
        """Whether the segment already has all its leaves."""
        return len(self._drawn) == self.release.leaves

    @property
    def empty(self) -> bool:
        """Whether the segment has no leaf yet, so that nothing can be read."""
        return not self._drawn

    def add(self, leaf: NDArray[np.int64]) -> None:
        """Add a (size,) leaf, in multiples of the grid's spacing, and draw one vector of noise for it."""
        self._drawn.append(self._noise.normals(self.release.scale, self.release.size))
        self._total = self._total + leaf

    def read(self) -> Array:
        """The noisy sum of all leaves of the segment, (size,). It is the same until a leaf is added."""
        grid = Grid(self.release.spacing)
        row = left_row(self.release.factorisation, len(self._drawn))
        parts = [(weight, z) for weight, z in zip(row.tolist(), self._drawn, strict=True) if weight]
        weights, variates = zip(*parts, strict=True)
        return grid.values(self._total + gaussian_cells(weights, variates, grid.spacing))

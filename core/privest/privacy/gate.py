"""The gate: the only holder of rows in a run, and the only way by which anything about them leaves."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.privacy.certificates import NoisySum
from privest.privacy.grid import Grid
from privest.privacy.noise import NoiseSource, SystemNoise
from privest.records import Records, blocks


class Statistic(Protocol):
    """A sum over records of vectors that it clips: see `losses`."""

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        ...

    def clipped_sum(self, point: Array, rows: Array, clip: float) -> Array:
        """Σ over rows of vectors of length at most `clip`, each a function of its row and `point` alone."""
        ...


class GateExhaustedError(RuntimeError):
    """More was asked of a gate than its plan allows."""


class Gate:
    """Answers the releases of one plan, each once and in order, and nothing else.

    Args:
        records: the rows; the gate keeps them to itself.
        statistic: what is summed.
        releases: the plan's releases, with noise, clip and grid fixed before any row was read.
        noise: for tests alone; a run's own generator is keyed by the operating system.

    Raises:
        ValueError: the releases were planned for another number of records or another statistic.
    """

    def __init__(
        self,
        records: Records,
        statistic: Statistic,
        releases: Sequence[NoisySum],
        noise: NoiseSource | None = None,
    ) -> None:
        if any(r.n != len(records) or r.size != statistic.size for r in releases):
            raise ValueError("the plan is for other data")
        self._records = records
        self._statistic = statistic
        self._releases = tuple(releases)
        self._noise = noise or SystemNoise(sum(r.size for r in releases))
        self._answered = 0

    @property
    def answered(self) -> int:
        """Releases made so far."""
        return self._answered

    @property
    def remaining(self) -> int:
        """Releases that the plan still allows."""
        return len(self._releases) - self._answered

    def mean(self, point: Array) -> Array:
        """The next release: the noisy clipped sum at `point`, divided by the public n. (size,)

        Raises:
            GateExhaustedError: the plan's releases are used up.
        """
        if not self.remaining:
            raise GateExhaustedError("the plan allows no further release")
        release = self._releases[self._answered]
        self._answered += 1
        grid = Grid(release.spacing)

        def of_chunk(rows: Array) -> NDArray[np.int64]:
            total = np.zeros(release.size)
            for block in blocks(rows):
                total += self._statistic.clipped_sum(point, block, release.clip)
            return grid.quantise(total)

        exact = self._records.sum(of_chunk)
        noise = self._noise.draw(release.noise, release.scale, release.size)
        return grid.values(exact + grid.quantise(noise)) / release.n

"""The gate: the only holder of rows in a run, and the only way by which anything about them leaves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, repeat
from typing import Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.data.records import Records, blocks
from privest.privacy.clipped_sums import AnyStatistic, Grid, Statistic, any_floats, within
from privest.privacy.matrix_mechanism import PrefixSums, left_row
from privest.privacy.mechanisms import (
    AlternativeSum,
    NoisySum,
    Release,
    SampledSum,
    SubsampledSum,
    is_for,
    parted,
)
from privest.privacy.noise import NoiseSource, Normals, SystemNoise, gaussian_cells
from privest.privacy.oracle import Oracle, StreamOracle


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
        """Return whether the segment already has all its leaves."""
        return len(self._drawn) == self.release.leaves

    @property
    def empty(self) -> bool:
        """Return whether the segment has no leaf yet, so that nothing can be read."""
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


Query = TypeVar("Query")


class GateExhaustedError(RuntimeError):
    """A solver asked a gate for more than its plan allows."""


@dataclass(frozen=True)
class ChunkSum(Generic[Query]):
    """Computes the clipped sum of one chunk of records, on the grid. It can be sent to where the rows are.

    Attributes:
        grouped: whether a record is a group of rows, whose vectors are averaged.
    """

    statistic: Statistic[Query]
    point: Query
    clip: float
    spacing: float
    grouped: bool

    def __call__(self, chunk: Array) -> NDArray[np.int64]:
        """The chunk's (size,) sum, in multiples of the spacing."""
        return self.of_pieces([chunk])

    def of_pieces(self, pieces: Iterable[Array]) -> NDArray[np.int64]:
        """The (size,) sum of a chunk that comes in pieces, in multiples of the spacing."""
        total = reduce(np.add, map(self._of_piece, pieces))
        return Grid(self.spacing).quantise(total)

    def _of_piece(self, piece: Array) -> Array:
        if not self.grouped:
            return self._clipped(piece)
        # Row k of all groups, for each k: so no float sum has more terms than one over a chunk of plain rows.
        places = piece.shape[1]
        return reduce(np.add, (self._clipped(piece[:, place]) for place in range(places))) / places

    def _clipped(self, rows: Array) -> Array:
        return reduce(np.add, map(self._of_block, blocks(rows)))

    @any_floats
    def try_on(self, record: Array) -> None:
        """Have the statistic sum a public record, so that a bug in it ends the run instead of making zeros.

        Args:
            record: (1, ...) record that no data row decides.

        Raises:
            ValueError: the sum has another shape than the statistic says.
            Exception: whatever the statistic raises. It depends on the point alone.
        """
        rows = record[:, 0] if self.grouped else record
        found = self.statistic.clipped_sum(self.point, rows, self.clip)
        if found.shape != (self.statistic.size,):
            raise ValueError(f"a statistic of size {self.statistic.size} has a sum of shape {found.shape}")

    @any_floats
    def _of_block(self, rows: Array) -> Array:
        """The clipped sum of (n, ...) rows, of length n·clip at most whatever the statistic does.

        The gate's last defence: statistics are total by themselves, and this rests on none of them. Where a
        sum is not finite, or too long, or where a row raises an error, rows are summed one at a time, and
        each that does so by itself counts as zero.
        """
        found = self._attempted(rows)
        if found is not None:
            return found
        alone = (self._attempted(rows[place : place + 1]) for place in range(len(rows)))
        return reduce(np.add, (each for each in alone if each is not None), np.zeros(self.statistic.size))

    def _attempted(self, rows: Array) -> Array | None:
        """The statistic's sum of these rows, or None if it fails or is longer than clips allow."""
        try:
            found = self.statistic.clipped_sum(self.point, rows, self.clip)
        except (ArithmeticError, LookupError, ValueError):  # all that numbers can cause, LinAlgError included
            return None
        return found if within(found, len(rows) * self.clip) else None


class Gate(Oracle):
    """Makes the releases of one plan, in order and each as often as planned, and nothing else.

    Of alternatives it makes those of one run: whichever the solver begins with, the others are closed.
    The solver decides when a stream grows (see `matrix_mechanism`), and by how many records. Streams see
    each record at most once in a run, in an order drawn before any row is read.

    Args:
        records: the rows, which never leave the gate.
        statistics: the statistics that may be summed, by the names that the releases use.
        releases: the plan's releases.
        noise: a source of noise for tests. By default the operating system keys a generator.

    Raises:
        ValueError: the releases were planned for another number of records or for another statistic.
    """

    def __init__(
        self,
        records: Records,
        statistics: Mapping[str, AnyStatistic],
        releases: Sequence[Release],
        noise: NoiseSource | None = None,
    ) -> None:
        if not all(release.n == len(records) and is_for(release, statistics) for release in releases):
            raise ValueError("the plan is for other data")
        self._records = records
        self._statistics = statistics
        sums = [r for r in releases if isinstance(r, NoisySum | SubsampledSum)]
        self._noise = noise or SystemNoise(sum(r.size * r.count for r in sums))
        self._owed = {
            name: chain.from_iterable([repeat(r, r.count) for r in sums if r.statistic == name])
            for name in statistics
        }
        self._answered, self._streamed, self._tried = 0, 0, set[str]()
        shared, alternatives = parted(sums)
        self._run: int | None = None
        self._counts = {each[0].run: _count(each) for each in alternatives}
        self._shared = _count(shared)
        self._last: tuple[object, tuple[str, float, float], NDArray[np.int64]] | None = None
        streams = [r for r in releases if isinstance(r, PrefixSums)]
        self._prefixes = {r.statistic: Prefixes(r, self._noise) for r in streams}
        self._fresh = self._noise.permutation(len(records)) if streams else np.empty(0, dtype=np.int64)

    @property
    def answered(self) -> int:
        """Number of releases made so far, those of streams included."""
        return self._answered + self._streamed

    @property
    def remaining(self) -> int:
        """Number of releases that the plan still allows, those of streams excluded."""
        most = max(self._counts.values(), default=0)
        return self._shared + (most if self._run is None else self._counts[self._run]) - self._answered

    @property
    def streams(self) -> StreamOracle:
        """The gate itself, which serves its streams."""
        return self

    @property
    def unused(self) -> int:
        """Number of records that no leaf has seen yet."""
        return len(self._fresh)

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """The statistic's next release: its noisy clipped sum at `point`, divided by the release's `divisor`.

        Raises:
            GateExhaustedError: the plan allows no further release of this statistic.
        """
        release = next(self._owed[statistic], None)
        if release is None:
            raise GateExhaustedError("the plan allows no further release")
        if isinstance(release, AlternativeSum):
            if self._run not in (None, release.run):
                raise GateExhaustedError("the plan allows one run of several, and another was begun")
            self._run = release.run
        self._answered += 1
        sampled = isinstance(release, SampledSum | SubsampledSum)
        exact = self._batch(release, point) if sampled else self._whole(release, point)
        grid = Grid(release.spacing)
        integers = self._noise.draw(release.noise, release.scale, release.size, release.spacing)
        integers += exact
        answer = grid.values(integers)
        answer /= release.divisor
        return answer

    def extend(self, stream: str, point: object, records: int, *, anew: bool = False) -> None:
        """Add a leaf to a stream: the clipped sum at `point` over records that no leaf has seen.

        Args:
            stream: name of the stream's statistic in the plan.
            point: where the statistic is evaluated.
            records: number of records, which must depend on public facts and released answers alone.
            anew: whether the leaf begins a new segment.

        Raises:
            GateExhaustedError: fewer records are left, or the segment already has all its leaves.
        """
        kept = self._prefixes[stream]
        if not 1 <= records <= self.unused or (kept.full and not anew):
            raise GateExhaustedError("the plan allows no such leaf")
        batch, self._fresh = self._fresh[:records], self._fresh[records:]
        if anew:
            kept.begin()
        kept.add(self._records.sum_of(batch, self._sum(kept.release, point).of_pieces))

    def prefix(self, stream: str) -> Array:
        """The noisy sum of the leaves in the stream's current segment, (size,); the same until one is added.

        Raises:
            GateExhaustedError: the stream has no leaf yet.
        """
        kept = self._prefixes[stream]
        if kept.empty:
            raise GateExhaustedError("the stream has no leaf yet")
        self._streamed += 1
        return kept.read()

    def pick(self, count: int) -> int:
        """A uniform random integer in [0, count), for solvers that return a random iterate."""
        return int(self._noise.indices(count, 1)[0])

    def _sum(self, release: Release, point: object) -> ChunkSum[object]:
        # This is the one place that looks a statistic up by name, so its query type is unknown here.
        statistic = cast("Statistic[object]", self._statistics[release.statistic])
        found = ChunkSum(statistic, point, release.clip, release.spacing, self._records.grouped)
        if release.statistic not in self._tried:
            self._tried.add(release.statistic)
            found.try_on(self._records.blank)
        return found

    def _whole(self, release: NoisySum, point: object) -> NDArray[np.int64]:
        """The sum over all records. The last one is kept, in case the same point is asked for again."""
        what = (release.statistic, release.clip, release.spacing)
        if self._last is not None and self._last[0] is point and self._last[1] == what:
            return self._last[2]
        total = self._records.sum(self._sum(release, point))
        self._last = (point, what, total)
        return total

    def _batch(self, release: SampledSum | SubsampledSum, point: object) -> NDArray[np.int64]:
        """The sum over a fresh batch or sample. The batch's indices never leave this method."""
        indices = self._noise.batch(release.n, release.rate, release.scheme)
        if not len(indices):
            return np.zeros(release.size, dtype=np.int64)
        return self._records.sum_of(indices, self._sum(release, point).of_pieces)


def _count(releases: Iterable[Release]) -> int:
    return sum(release.count for release in releases)

"""The gate: the only holder of rows in a run, and the only way by which anything about them leaves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, repeat
from typing import Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.privacy.grid import Grid
from privest.privacy.matrix_mechanism import PrefixProducts, PrefixSums
from privest.privacy.mechanisms import NoisySum, Release, SubsampledSum
from privest.privacy.noise import NoiseSource, SystemNoise
from privest.privacy.oracle import Oracle, StreamOracle
from privest.privacy.statistic import AnyStatistic, Statistic
from privest.privacy.streams import Prefixes, Products
from privest.records import Records, blocks

Query = TypeVar("Query")


class GateExhaustedError(RuntimeError):
    """More was asked of a gate than its plan allows."""


@dataclass(frozen=True)
class ChunkSum(Generic[Query]):
    """One chunk's clipped sum on the grid: of rows, or of the means of the groups that records are.

    It is an object of its own, so that it can be sent to where the rows are.
    """

    statistic: Statistic[Query]
    point: Query
    clip: float
    spacing: float
    grouped: bool

    def __call__(self, chunk: Array) -> NDArray[np.int64]:
        """The sum, in multiples of the spacing."""
        return self.of_pieces([chunk])

    def of_pieces(self, pieces: Iterable[Array]) -> NDArray[np.int64]:
        """The sum of a chunk that comes in pieces, in multiples of the spacing."""
        total = reduce(np.add, map(self._of_piece, pieces))
        return Grid(self.spacing).quantise(total)

    def _of_piece(self, piece: Array) -> Array:
        if not self.grouped:
            return self._clipped(piece)
        # The rows of a place in all groups at a time: no sum is then of more rows than of a plain chunk.
        places = piece.shape[1]
        return reduce(np.add, (self._clipped(piece[:, place]) for place in range(places))) / places

    def _clipped(self, rows: Array) -> Array:
        return reduce(
            np.add, (self.statistic.clipped_sum(self.point, block, self.clip) for block in blocks(rows))
        )


class Gate(Oracle):
    """Answers the releases of one plan, each as often as it allows and in order, and nothing else.

    Streams (`prefix_sums`) grow when the solver says, by as many records. No record is handed out twice in a
    run, and the order in which they are was drawn before any was read.

    Args:
        records: the rows; the gate keeps them to itself.
        statistics: what may be summed, by the names that the releases use.
        releases: the plan's releases, with noise, clip and grid fixed before any row was read.
        noise: for tests alone; a run's own generator is keyed by the operating system.

    Raises:
        ValueError: the releases were planned for other records or for another statistic.
    """

    def __init__(
        self,
        records: Records,
        statistics: Mapping[str, AnyStatistic],
        releases: Sequence[Release],
        noise: NoiseSource | None = None,
    ) -> None:
        if not all(_covers(release, statistics[release.statistic], len(records)) for release in releases):
            raise ValueError("the plan is for other data")
        self._records = records
        self._statistics = statistics
        sums = [r for r in releases if isinstance(r, NoisySum | SubsampledSum)]
        self._noise = noise or SystemNoise(sum(r.size * r.count for r in sums))
        self._owed = {
            name: chain.from_iterable([repeat(r, r.count) for r in sums if r.statistic == name])
            for name in statistics
        }
        self._answered, self._streamed = 0, 0
        self._total = sum(r.count for r in sums)
        self._last: tuple[object, tuple[str, float, float], NDArray[np.int64]] | None = None
        streams = [r for r in releases if isinstance(r, PrefixSums | PrefixProducts)]
        self._prefixes = {r.statistic: Prefixes(r, self._noise) for r in streams if isinstance(r, PrefixSums)}
        self._products = {
            r.statistic: Products(r, self._noise) for r in streams if not isinstance(r, PrefixSums)
        }
        self._fresh = self._noise.permutation(len(records)) if streams else np.empty(0, dtype=np.int64)

    @property
    def answered(self) -> int:
        """Releases made so far, by streams as well."""
        return self._answered + self._streamed

    @property
    def remaining(self) -> int:
        """Releases that the plan still allows, those of streams left out."""
        return self._total - self._answered

    @property
    def streams(self) -> StreamOracle:
        """The gate itself answers for its streams."""
        return self

    @property
    def unused(self) -> int:
        """Records that streams may still see."""
        return len(self._fresh)

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """The statistic's next release: noisy clipped sum at `point` over its (expected) count. (size,)

        Raises:
            GateExhaustedError: the plan's releases of this statistic are used up.
        """
        release = next(self._owed[statistic], None)
        if release is None:
            raise GateExhaustedError("the plan allows no further release")
        self._answered += 1
        whole = isinstance(release, NoisySum)
        exact = self._whole(release, point) if whole else self._batch(release, point)
        grid = Grid(release.spacing)
        noise = self._noise.draw(release.noise, release.scale, release.size)
        integers = grid.quantise(noise)
        integers += exact
        answer = grid.values(integers)
        answer /= release.divisor
        return answer

    def extend(self, stream: str, point: object, records: int, *, anew: bool = False) -> None:
        """Adds a leaf to a stream: the clipped sum at `point` over so many records that none has seen.

        Args:
            stream: its statistic.
            point: what the statistic is taken at.
            records: how many, chosen in view of nothing but what was released.
            anew: whether the leaf is the first of a new segment.

        Raises:
            GateExhaustedError: fewer records are left, or the segment has all its leaves.
        """
        kept = self._prefixes.get(stream) or self._products[stream]
        if not 1 <= records <= self.unused or (kept.full and not anew):
            raise GateExhaustedError("the plan allows no such leaf")
        batch, self._fresh = self._fresh[:records], self._fresh[records:]
        if anew:
            kept.begin()
        kept.add(self._records.sum_of(batch, self._sum(kept.release, point).of_pieces))

    def prefix(self, stream: str) -> Array:
        """The noisy sum of the leaves that a stream has had in its segment; the same until it grows. (size,)

        Raises:
            GateExhaustedError: it has had none.
        """
        kept = self._prefixes[stream]
        if kept.empty:
            raise GateExhaustedError("the stream has no leaf yet")
        self._streamed += 1
        return kept.read()

    def product(self, stream: str, direction: Array) -> Array:
        """The noisy product of a stream's running sum, a matrix, with a vector of length one at most. (rows,)

        Raises:
            GateExhaustedError: the segment has had all its products.
        """
        kept = self._products[stream]
        if kept.empty:
            raise GateExhaustedError("the plan allows no further product")
        self._streamed += 1
        return kept.read(direction)

    def pick(self, count: int) -> int:
        """A number below `count` that depends on nothing, for solvers that return a random iterate."""
        return int(self._noise.indices(count, 1)[0])

    def _sum(self, release: Release, point: object) -> ChunkSum[object]:
        # Only here a name becomes a statistic; plan and solver agree on what it is asked about.
        statistic = cast("Statistic[object]", self._statistics[release.statistic])
        return ChunkSum(statistic, point, release.clip, release.spacing, self._records.grouped)

    def _whole(self, release: NoisySum, point: object) -> NDArray[np.int64]:
        """The sum over all records; asked for again at the same point, it is not computed again."""
        what = (release.statistic, release.clip, release.spacing)
        if self._last is not None and self._last[0] is point and self._last[1] == what:
            return self._last[2]
        total = self._records.sum(self._sum(release, point))
        self._last = (point, what, total)
        return total

    def _batch(self, release: SubsampledSum, point: object) -> NDArray[np.int64]:
        """The sum over a fresh batch; which records are in it stays here."""
        indices = self._noise.batch(release.n, release.rate, release.scheme)
        if not len(indices):
            return np.zeros(release.size, dtype=np.int64)
        return self._records.sum_of(indices, self._sum(release, point).of_pieces)


def _covers(release: Release, statistic: AnyStatistic, n: int) -> bool:
    """Whether a release was planned, and certified, for this statistic of so many records."""
    if release.n != n or release.size != statistic.size:
        return False
    return not isinstance(release, NoisySum) or statistic.diameter(release.clip) <= release.diameter

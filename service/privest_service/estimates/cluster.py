"""Functions that Dask's workers run: whole jobs, and partitions of their sums. None tells Dask why it failed.

A task that raises has its arguments and its traceback logged by its worker, and sent on: nothing here does.
"""

import pickle
import time
import warnings
from collections.abc import Callable
from functools import cached_property, reduce
from math import prod
from typing import Any

import numpy as np
from distributed import get_client, secede
from numpy.typing import NDArray

from privest.data.metadata import DatasetMetadata
from privest.data.records import OfChunk, OfPieces, Records
from privest_service.workers.memory import keep_freed

_PARTITION_BYTES = 2**26
"""Bytes of rows in a partition, about. Only larger datasets are partitioned: fewer bytes are summed sooner
than they are sent.
"""

_LEAST_CHUNKS = 4
"""Fewest chunks in a partition."""

_A_THREAD = 2
"""Most partitions for each thread of the cluster. Several even out the work; each costs milliseconds."""


class PartLostError(RuntimeError):
    """A part of a sum failed; why is not told."""


class TooLateError(RuntimeError):
    """Nobody waits for this run any more."""


class Run:
    """A job on this worker.

    Args:
        deadline: by the monotonic clock. Dask cannot stop a thread: a run whose time is up stops itself.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._aside = False

    def check(self) -> None:
        """Go on only while somebody waits. Raises TooLateError: nobody does."""
        if time.monotonic() > self._deadline:
            raise TooLateError

    def step_aside(self) -> None:
        """Leave this worker's thread to others: from here on the job mostly waits for them."""
        if not self._aside:
            self._aside = True
            secede()


def attempt(seconds: float, function: Callable[..., str], *args: str) -> str | None:
    """Run a job on this worker, and its large sums on all of them; None if it failed.

    The function takes the arguments, and by the name `records` what opens rows.
    """
    run = Run(time.monotonic() + seconds)
    try:
        _keep_quiet()
        keep_freed()
        return function(*args, records=lambda path, shape: ClusterRecords(path, shape, run))
    except BaseException:  # of any kind: no word of it may reach Dask
        return None


def part_of_sum(path: str, start: int, stop: int, summed: bytes) -> NDArray[np.int64] | None:
    """The exact sum over some chunks of the rows in a file; None if it failed.

    What sums a chunk comes pickled, with the recipe of its records.
    """
    try:
        _keep_quiet()
        keep_freed()
        # Opened anew each time, which takes no time: a deleted dataset's rows are not held on to.
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
        of_chunk, recipe = pickle.loads(summed)  # noqa: S301 - of this cluster
        return Records(rows, 1, recipe=recipe).sum(of_chunk, range(start, stop))
    except BaseException:
        return None


def _keep_quiet() -> None:
    """Have this process log no warnings: whether there is one may tell of the rows."""
    warnings.simplefilter("ignore")


class ClusterRecords(Records):
    """Rows on the store that all workers share. Large datasets are summed by all workers, others here.

    Random batches are summed here: which records are in one stays in this process. Sums are of integers over
    chunks that are fixed, so that they have the same bits however many workers there are.

    The path is empty for synthetic rows. Sums are refused after the run's time.
    """

    def __init__(self, path: str, shape: DatasetMetadata, run: Run) -> None:
        from privest_service.estimates import worker  # noqa: PLC0415 - heavy, and for workers alone

        rows = worker.rows_in(path, shape)
        super().__init__(rows, 1, grouped=worker.is_grouped(rows, shape), recipe=shape.recipe)
        self._path = path
        self._run = run
        # Synthetic rows are made here, and stay here however many they stand for.
        self._bytes = 8 * prod(rows.shape) if path else 0

    @cached_property
    def _ends(self) -> list[int]:
        """The chunks at which partitions begin and end. Public facts alone decide them."""
        chunks = self.chunks
        count = min(-(-self._bytes // _PARTITION_BYTES), chunks // _LEAST_CHUNKS)
        if count < 2:
            return [0, chunks]
        self._run.step_aside()
        threads: Any = get_client().nthreads()
        count = max(2, min(count, _A_THREAD * sum(threads.values())))
        return [chunks * i // count for i in range(count + 1)]

    def sum(self, of_chunk: OfChunk, part: range | None = None) -> NDArray[np.int64]:
        """The exact integer sum, by all workers if the rows are many.

        Raises:
            PartLostError: a worker could not make its part.
            TooLateError: the run's time is up.
        """
        self._run.check()
        if len(self._ends) == 2 or part is not None:
            return super().sum(of_chunk, part)
        client, count = get_client(), len(self._ends) - 1
        tasks = client.map(
            part_of_sum,
            [self._path] * count,
            self._ends[:-1],
            self._ends[1:],
            [pickle.dumps((of_chunk, self.recipe))] * count,
            pure=False,
            retries=0,
            priority=1,  # before jobs that have not begun
        )
        parts: Any = client.gather(tasks)
        if any(part is None for part in parts):
            raise PartLostError
        return reduce(np.add, parts)

    def sum_of(self, indices: NDArray[np.int64], of_pieces: OfPieces) -> NDArray[np.int64]:
        """The exact integer sum over some of the rows. Raises TooLateError: the run's time is up."""
        self._run.check()
        return super().sum_of(indices, of_pieces)

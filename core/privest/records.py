"""The rows of a dataset, and exact sums over fixed chunks of them."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array

CHUNK = 4096
"""Records in a chunk at most, by row index: public, and the same whatever the worker."""

_CHUNK_BYTES = 2**24
"""Wide rows fall into smaller chunks, so that there are some for every thread."""

_BLOCK_BYTES = 2**20
"""Rows of a chunk are taken this many bytes at a time: what is made of them stays in the cache."""


class Records:
    """The rows of one dataset, read in chunks that depend on the row index alone.

    Args:
        rows: (n, ...) array, memory-mapped or not.
        threads: at most this many chunks at a time; by default one for each processor.
    """

    def __init__(self, rows: Array, threads: int | None = None) -> None:
        # A copy if they are not in C order, of which taking a few rows would make one each time.
        self._rows = np.asarray(rows, order="C")
        self._threads = threads or os.cpu_count() or 1

    def __len__(self) -> int:
        return len(self._rows)

    def sum(self, of_chunk: Callable[[Array], NDArray[np.int64]]) -> NDArray[np.int64]:
        """The exact integer sum of `of_chunk` over all chunks: the same for any number of threads."""
        row_bytes = self._rows[:1].nbytes
        size = min(CHUNK, max(1, _CHUNK_BYTES // max(1, row_bytes)))
        chunks = (self._rows[start : start + size] for start in range(0, len(self), size))
        threaded = self._threads > 1 and len(self) > size
        return _total(self._pool.map(of_chunk, chunks) if threaded else map(of_chunk, chunks))

    def sum_of(
        self, indices: NDArray[np.int64], of_chunk: Callable[[Array], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """The exact integer sum of `of_chunk` over some of the rows, a chunk of them at a time."""
        if len(indices) <= CHUNK:
            return of_chunk(self._rows.take(indices, axis=0))
        chunks = (indices[start : start + CHUNK] for start in range(0, len(indices), CHUNK))
        return _total(of_chunk(self._rows.take(chunk, axis=0)) for chunk in chunks)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """The threads of this dataset; they end with it."""
        return ThreadPoolExecutor(self._threads, thread_name_prefix="chunks")


def blocks(chunk: Array) -> list[Array]:
    """The rows of a chunk in pieces that fit the cache; where it is cut follows from its shape alone."""
    if chunk.nbytes <= _BLOCK_BYTES:
        return [chunk]
    size = max(1, _BLOCK_BYTES * len(chunk) // chunk.nbytes)
    return [chunk[start : start + size] for start in range(0, len(chunk), size)]


def _total(parts: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The sum of all parts, of which there may be too many to hold; zero of none."""
    return reduce(np.add, parts, np.int64(0))  # pyright: ignore[reportReturnType, reportCallIssue, reportArgumentType]

"""The rows of a dataset, and exact sums over fixed chunks of them."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array

CHUNK = 4096
"""Records in a chunk at most, by row index: public, and the same whatever the worker."""

MOST_PLACES = 1000
"""Most rows in a record that is a group of rows."""

_CHUNK_BYTES = 2**24
"""Wide rows fall into smaller chunks, so that there are some for every thread."""

_BLOCK_BYTES = 2**20
"""Rows of a chunk are taken this many bytes at a time: what is made of them stays in the cache."""


OfChunk = Callable[[Array], NDArray[np.int64]]
"""Makes integers of the records of a chunk."""

OfPieces = Callable[[Iterable[Array]], NDArray[np.int64]]
"""A function that makes integers of the records of a chunk that comes in pieces."""


@dataclass(frozen=True)
class Repeated:
    """`n` rows that are few rows over and over: synthetic records take no more memory than these."""

    few: Array
    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, ...)."""
        return (self.n, *self.few.shape[1:])

    def __getitem__(self, part: slice, /) -> Array:
        return self.take(np.arange(*part.indices(self.n)))

    def take(self, indices: NDArray[np.int64], axis: Literal[0] = 0) -> Array:
        """Some here and there."""
        return self.few.take(indices % len(self.few), axis=axis)


class Records:
    """The rows of one dataset, read in chunks that depend on the row index alone.

    Args:
        rows: (n, ...) array, memory-mapped or not, or what can be read like one.
        threads: at most this many chunks at a time; by default one for each processor.
        grouped: a record is a group of rows, (n, rows of a record, ...), whose mean counts.
    """

    def __init__(self, rows: Array | Repeated, threads: int | None = None, *, grouped: bool = False) -> None:
        # A copy if an array is not in C order, of which taking a few rows would make one each time.
        self._rows = np.asarray(rows, order="C") if isinstance(rows, np.ndarray) else rows
        self._threads = threads or os.cpu_count() or 1
        self.grouped = grouped

    def __len__(self) -> int:
        return self._rows.shape[0]

    @property
    def chunks(self) -> int:
        """How many there are."""
        return -(-len(self) // self._size)

    @cached_property
    def _size(self) -> int:
        """Records in a chunk."""
        record_bytes = 8 * prod(self._rows.shape[1:])
        return min(CHUNK, max(1, _CHUNK_BYTES // max(1, record_bytes)))

    def sum(self, of_chunk: OfChunk, part: range | None = None) -> NDArray[np.int64]:
        """The exact integer sum of `of_chunk` over all chunks: the same for any number of threads.

        Args:
            of_chunk: called on the rows of each.
            part: of which chunks alone, without gaps.
        """
        size, part = self._size, range(self.chunks) if part is None else part
        chunks = (self._rows[at * size : (at + 1) * size] for at in part)
        threaded = self._threads > 1 and len(part) > 1
        return _total(_pool(self._threads).map(of_chunk, chunks) if threaded else map(of_chunk, chunks))

    def sum_of(self, indices: NDArray[np.int64], of_pieces: OfPieces) -> NDArray[np.int64]:
        """The exact integer sum of `of_pieces` over some of the rows, a chunk of them at a time.

        Args:
            indices: of the rows.
            of_pieces: called on the pieces in which a chunk of wide rows comes.
        """
        chunks = (indices[start : start + CHUNK] for start in range(0, len(indices), CHUNK))
        return _total(of_pieces(self._pieces(chunk)) for chunk in chunks)

    def _pieces(self, chunk: NDArray[np.int64]) -> Iterator[Array]:
        for start in range(0, len(chunk), self._size):
            yield self._rows.take(chunk[start : start + self._size], axis=0)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """The threads of this process: one set for all datasets, as their stacks count as its memory."""
    return ThreadPoolExecutor(threads, thread_name_prefix="chunks")


def blocks(chunk: Array) -> list[Array]:
    """The rows of a chunk in pieces that fit the cache; where it is cut follows from its shape alone."""
    if chunk.nbytes <= _BLOCK_BYTES:
        return [chunk]
    size = max(1, _BLOCK_BYTES * len(chunk) // chunk.nbytes)
    return [chunk[start : start + size] for start in range(0, len(chunk), size)]


def _total(parts: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The sum of all parts, of which there may be too many to hold; zero of none."""
    return reduce(np.add, parts, np.int64(0))  # pyright: ignore[reportReturnType, reportCallIssue, reportArgumentType]

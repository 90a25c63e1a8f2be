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
from privest.data.tables import Recipe

CHUNK = 4096
"""Largest number of records in a chunk. It is public, and the same for every worker."""

MOST_PLACES = 1000
"""Most rows in a record that is a group of rows."""

_CHUNK_BYTES = 2**24
"""Largest size of a chunk. It makes chunks of wide rows small enough to give every thread some."""

_BLOCK_BYTES = 2**20
"""Largest size of the blocks in which a chunk is processed, so that intermediate results fit the cache."""

OfChunk = Callable[[Array], NDArray[np.int64]]
"""A function that sums the records of a chunk, as integers."""

OfPieces = Callable[[Iterable[Array]], NDArray[np.int64]]
"""A function that sums the records of a chunk given in several pieces, as integers."""


@dataclass(frozen=True)
class Repeated:
    """`n` synthetic rows that repeat a few rows, and so need the memory of these alone."""

    few: Array
    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array, (n, ...)."""
        return (self.n, *self.few.shape[1:])

    def __getitem__(self, part: slice, /) -> Array:
        return self.take(np.arange(*part.indices(self.n)))

    def take(self, indices: NDArray[np.int64], axis: Literal[0] = 0) -> Array:
        """The rows at these indices, as `numpy.ndarray.take` returns them."""
        return self.few.take(indices % len(self.few), axis=axis)


class Records:
    """The rows of one dataset, read in chunks that depend on the row index alone.

    Args:
        rows: (n, ...) array, memory-mapped or not, or `Repeated` rows.
        threads: largest number of chunks processed at a time; one per processor by default.
        grouped: whether `rows` is (n, rows of a record, ...), where each record counts by its rows' mean.
        recipe: what makes records of rows, chunk by chunk, as they are read; None where they are the records.
    """

    def __init__(
        self,
        rows: Array | Repeated,
        threads: int | None = None,
        *,
        grouped: bool = False,
        recipe: Recipe | None = None,
    ) -> None:
        # An array not in C order is copied once here, otherwise each batch would copy it again.
        self._rows = np.asarray(rows, order="C") if isinstance(rows, np.ndarray) else rows
        self._threads = threads or os.cpu_count() or 1
        self.grouped = grouped
        self.recipe = recipe

    def __len__(self) -> int:
        return self._rows.shape[0]

    @property
    def blank(self) -> Array:
        """A public record, of which all that is stored is 0. (1, ...)"""
        return self._made(np.zeros((1, *self._rows.shape[1:])))

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-len(self) // self._size)

    @cached_property
    def _size(self) -> int:
        """Number of records in a chunk."""
        record_bytes = 8 * prod(self._rows.shape[1:])
        if self.recipe is not None:  # an image may be wider than its row
            record_bytes = max(record_bytes, record_bytes // self._rows.shape[-1] * self.recipe.width)
        return min(CHUNK, max(1, _CHUNK_BYTES // max(1, record_bytes)))

    def sum(self, of_chunk: OfChunk, part: range | None = None) -> NDArray[np.int64]:
        """The exact integer sum of `of_chunk` over chunks. It does not depend on the number of threads.

        Args:
            of_chunk: called on the rows of each chunk.
            part: the contiguous range of chunks to sum; all chunks by default.
        """
        size, part = self._size, range(self.chunks) if part is None else part
        starts = range(part.start * size, part.stop * size, size)
        return self._summed(starts, lambda start: of_chunk(self._made(self._rows[start : start + size])))

    def sum_of(self, indices: NDArray[np.int64], of_pieces: OfPieces) -> NDArray[np.int64]:
        """The exact integer sum of `of_pieces` over the rows at `indices`, `CHUNK` rows at a time.

        It does not depend on the number of threads.

        Args:
            indices: indices of the rows.
            of_pieces: called on each chunk, which comes in pieces if its rows are wide.
        """
        starts = range(0, len(indices), CHUNK)
        return self._summed(starts, lambda start: of_pieces(self._pieces(indices[start : start + CHUNK])))

    def _summed(self, starts: range, from_place: Callable[[int], NDArray[np.int64]]) -> NDArray[np.int64]:
        """The sum over chunks, which begin at these places; zero if there are none."""
        threaded = self._threads > 1 and len(starts) > 1
        parts = _pool(self._threads).map(from_place, starts) if threaded else map(from_place, starts)
        return reduce(np.add, parts, np.int64(0))  # pyright: ignore[reportReturnType, reportCallIssue, reportArgumentType]

    def _pieces(self, chunk: NDArray[np.int64]) -> Iterator[Array]:
        for start in range(0, len(chunk), self._size):
            yield self._made(self._rows.take(chunk[start : start + self._size], axis=0))

    def _made(self, rows: Array) -> Array:
        """The records that stored rows stand for."""
        return rows if self.recipe is None else self.recipe(rows)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """The threads of this process. All datasets share them, as each thread's stack takes memory."""
    return ThreadPoolExecutor(threads, thread_name_prefix="chunks")


def blocks(chunk: Array) -> list[Array]:
    """The rows of a chunk in blocks that fit the cache. The chunk's shape alone decides where it is cut."""
    if chunk.nbytes <= _BLOCK_BYTES:
        return [chunk]
    size = max(1, _BLOCK_BYTES * len(chunk) // chunk.nbytes)
    return [chunk[start : start + size] for start in range(0, len(chunk), size)]

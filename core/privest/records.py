"""Rows behind a public shape, and sums over fixed chunks of them."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privest import manifolds
from privest.arrays import Array
from privest.manifolds import Manifold

CHUNK = 4096
"""Records in a chunk, by row index: public, and the same whatever the worker."""

_BLOCK_BYTES = 2**20
"""Rows of a chunk are taken this many bytes at a time: what is made of them stays in the cache."""


@dataclass(frozen=True)
class PointsShape:
    """What is public of a set of points: their number, their manifold, and where its owner expects them.

    `center` (nested lists) and `radius` come from the owner's schema, never from the rows.
    """

    n: int
    manifold: dict[str, Any]
    center: list[Any] | None = None
    radius: float | None = None

    @cached_property
    def space(self) -> Manifold:
        """The manifold that `manifold` describes."""
        return manifolds.get(**self.manifold)

    @cached_property
    def search_center(self) -> Array:
        """Of the ball in which an estimate is sought: the public centre, else the manifold's reference."""
        return self.space.reference if self.center is None else self.point(self.center, "center")

    @property
    def search_radius(self) -> float:
        """Of that ball: the public radius, else the manifold's natural one."""
        return self.space.natural_radius if self.radius is None else self.radius

    def point(self, given: list[Any], name: str) -> Array:
        """A public point, given as nested lists under this name, as an array.

        Raises:
            ValueError: it is no point of the manifold.
        """
        try:
            point = np.array(given, dtype=np.float64)
        except (ValueError, TypeError, OverflowError):
            point = np.empty(0)
        if point.shape != self.space.shape:
            raise ValueError(f"{name} must be numbers of shape {list(self.space.shape)}")
        if rule := int(self.space.broken_rule(point)):
            raise ValueError(f"{name} must be {self.space.rules[rule - 1]}")
        return self.space.canonical(point)


class Records:
    """The rows of one dataset, read in chunks that depend on the row index alone.

    Args:
        rows: (n, ...) array, memory-mapped or not.
        threads: at most this many chunks at a time; by default one for each processor.
    """

    def __init__(self, rows: Array, threads: int | None = None) -> None:
        self._rows = rows
        self._threads = threads or os.cpu_count() or 1

    def __len__(self) -> int:
        return len(self._rows)

    def sum(self, of_chunk: Callable[[Array], NDArray[np.int64]]) -> NDArray[np.int64]:
        """The exact integer sum of `of_chunk` over all chunks: the same for any number of threads."""
        chunks = (self._rows[start : start + CHUNK] for start in range(0, len(self), CHUNK))
        if self._threads == 1 or len(self) <= CHUNK:
            return np.sum([of_chunk(np.asarray(chunk)) for chunk in chunks], axis=0)
        return np.sum(list(self._pool.map(of_chunk, map(np.asarray, chunks))), axis=0)

    def sum_of(
        self, indices: NDArray[np.int64], of_chunk: Callable[[Array], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """The exact integer sum of `of_chunk` over some of the rows, a chunk of them at a time."""
        if len(indices) <= CHUNK:
            return of_chunk(np.asarray(self._rows[indices]))
        chunks = (indices[start : start + CHUNK] for start in range(0, len(indices), CHUNK))
        return np.sum([of_chunk(np.asarray(self._rows[chunk])) for chunk in chunks], axis=0)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """The threads of this dataset; they end with it."""
        return ThreadPoolExecutor(self._threads, thread_name_prefix="chunks")


def blocks(chunk: Array) -> Iterator[Array]:
    """The rows of a chunk in pieces that fit the cache; where it is cut follows from its shape alone."""
    row_bytes = max(1, chunk.nbytes // max(1, len(chunk)))
    size = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, len(chunk), size):
        yield chunk[start : start + size]

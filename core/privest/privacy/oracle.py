"""`Oracle`: the part of a gate that solvers may use to get noisy answers."""

from collections.abc import Callable
from typing import Protocol

from privest.arrays import Array


class StreamOracle(Protocol):
    """The part of a gate that serves streams, as `matrix_mechanism` defines them; `Gate` documents it."""

    @property
    def unused(self) -> int:
        """Number of records that no leaf has seen yet."""
        ...

    def extend(self, stream: str, point: object, records: int, *, anew: bool = False) -> None:
        """Add a leaf to a stream."""
        ...

    def prefix(self, stream: str) -> Array:
        """The noisy sum of the leaves in the stream's current segment, (size,)."""
        ...


class Oracle(Protocol):
    """Answers a solver's queries with noisy sums: one owner's gate, or the pooled gates of several.

    The defaults here are those of one owner without streams.
    """

    @property
    def share(self) -> float:
        """Share in (0, 1] of the records whose unweighted mean has the sampling error of these answers."""
        return 1.0

    @property
    def streams(self) -> StreamOracle:
        """The streams of a single gate.

        Raises:
            ValueError: this oracle has no streams.
        """
        raise ValueError("streams work on one dataset only")

    def pooled(self, found: Callable[[int, "Oracle"], Array]) -> Array:
        """The weighted sum of what each owner finds by answers of its own gate.

        Args:
            found: takes an owner's place among the owners and its gate, and returns a (size,) vector.
        """
        return found(0, self)

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """The noisy mean of the records' clipped vectors.

        Args:
            point: where the statistic is evaluated; see its `clipped_sum`.
            statistic: its name in the plan.

        Returns:
            (size,) noisy mean. For a gradient it is the negative one.
        """
        ...

    def pick(self, count: int) -> int:
        """A uniform random integer in [0, count) that no record influences."""
        ...

"""What solvers ask for noisy answers: the part of a gate that they may use."""

from collections.abc import Sequence
from typing import Protocol

from privest.arrays import Array


class StreamOracle(Protocol):
    """The part of a gate that works on streams; see `matrix_mechanism`."""

    @property
    def unused(self) -> int:
        """Records that streams may still see."""
        ...

    def extend(self, stream: str, point: object, records: int, *, anew: bool = False) -> None:
        """Adds a leaf to a stream."""
        ...

    def prefix(self, stream: str) -> Array:
        """The noisy sum of a stream's segment, (size,)."""
        ...

    def product(self, stream: str, direction: Array) -> Array:
        """The noisy product of a stream's running sum, a matrix, with a vector of length one at most."""
        ...


class Oracle(Protocol):
    """Answers a solver's questions with noisy sums; a gate, or several owners' gates as one.

    What is implemented here holds for one owner without streams.
    """

    @property
    def remaining(self) -> int:
        """Answers left."""
        ...

    @property
    def owners(self) -> Sequence["Oracle"]:
        """The gate of each owner, for solvers in which owners take steps on their own."""
        return (self,)

    @property
    def weights(self) -> Sequence[float]:
        """Weight of each owner's answers, of sum one."""
        return (1.0,)

    @property
    def share(self) -> float:
        """Share of the records behind this gate whose plain mean has the sampling error of its answers."""
        return 1.0

    @property
    def streams(self) -> StreamOracle:
        """The streams of a single gate.

        Raises:
            ValueError: there are none.
        """
        raise ValueError("streams work on one dataset only")

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """Noisy mean of the clipped negative gradients at `point`, or of another statistic of the plan.

        Args:
            point: what that statistic takes; see its `clipped_sum`.
            statistic: its name in the plan.

        Returns:
            (size,) noisy mean.
        """
        ...

    def pick(self, count: int) -> int:
        """A uniform number below `count`."""
        ...

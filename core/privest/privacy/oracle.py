"""What solvers ask for noisy answers: the part of a gate that they may use."""

from typing import Any, Protocol

from privest.arrays import Array


class Oracle(Protocol):
    """Answers a solver's questions with noisy sums; a gate, or several owners' gates as one."""

    @property
    def remaining(self) -> int:
        """Answers left."""
        ...

    def mean(self, point: Any, statistic: str = "gradient") -> Array:
        """Noisy mean of the clipped negative gradients at `point`, or of another statistic of the plan."""
        ...

    def pick(self, count: int) -> int:
        """A uniform number below `count`."""
        ...

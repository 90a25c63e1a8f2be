"""What a gate may sum: the one face of all losses."""

from typing import Any, Protocol

from privest.arrays import Array


class Statistic(Protocol):
    """A sum over records of vectors that it clips: see `losses`."""

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        ...

    def diameter(self, clip: float) -> float:
        """Bound on the distance between the vectors of any two rows; at most 2·clip."""
        ...

    def clipped_sum(self, point: Any, rows: Array, clip: float) -> Array:
        """Σ over rows of vectors of length at most `clip`, each a function of its row and `point` alone."""
        ...

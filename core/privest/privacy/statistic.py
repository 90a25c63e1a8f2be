"""`Statistic`: the interface of everything a gate may sum, such as gradients and moments."""

from math import sqrt
from typing import Never, Protocol, TypeVar

from privest.arrays import Array

Query_contra = TypeVar("Query_contra", contravariant=True)
"""The type of point at which a solver evaluates a statistic: an array, a basis or a classifier."""


class Statistic(Protocol[Query_contra]):
    """A sum over records. Each record adds one vector of limited length."""

    @property
    def description(self) -> str:
        """The released quantity in words for analysts, such as "the mean gradient"."""
        ...

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        ...

    def diameter(self, clip: float) -> float:
        """Bound on the distance between the vectors of any two records; at most 2·clip."""
        ...

    def clipped_sum(self, point: Query_contra, rows: Array, clip: float, /) -> Array:
        """The sum of one vector per row, each of length at most `clip`.

        A row's vector depends on that row and on `point` alone. The method must accept rows and points of any
        floats, infinities and NaN included, return finite numbers, and never raise: an error that one record
        could cause would reveal that record. To achieve this, decorate it with `clipping.any_floats` and sum
        with `clipping.clipped_sum`. No vector may be longer than the diameter, as rows at which a statistic
        fails count as zero in the gate.

        Args:
            point: where the solver evaluates the statistic; public, or computed from released answers, which
                may have taken it out of float64. Statistics that need no point call it `_`.
            rows: (n, ...) records.
            clip: bound on the Euclidean length of one record's vector.

        Returns:
            (size,) sum.
        """
        ...


class Opposable:
    """Base of statistics for which the vectors of two records may be opposite, as gradients may."""

    def diameter(self, clip: float) -> float:
        """Bound on the distance between the vectors of any two records: 2·clip."""
        return 2.0 * clip


AnyStatistic = Statistic[Never]
"""A statistic whose query type is unknown, as in a plan with several statistics."""


def l1_diameter(statistic: AnyStatistic, clip: float) -> float:
    """Return a bound on the L1 distance between the vectors of any two records.

    A statistic whose records move few of many numbers states its own as a method `l1_diameter`. Of others it
    is √size times the Euclidean one.
    """
    own = getattr(statistic, "l1_diameter", None)
    return float(own(clip)) if own else sqrt(statistic.size) * statistic.diameter(clip) * (1 + 1e-12)

"""What a gate may sum: the interface that all losses and moments share."""

from typing import Never, Protocol, TypeVar

from privest.arrays import Array

Query_contra = TypeVar("Query_contra", contravariant=True)
"""What a solver asks a statistic about: a point, a basis, a classifier."""


class Statistic(Protocol[Query_contra]):
    """A sum over records of vectors whose length it limits."""

    @property
    def description(self) -> str:
        """What is released, in words for analysts, such as "the mean gradient"."""
        ...

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        ...

    def diameter(self, clip: float) -> float:
        """Bound on the distance between the vectors of any two rows; at most 2·clip."""
        ...

    def clipped_sum(self, point: Query_contra, rows: Array, clip: float, /) -> Array:
        """Sum over rows of vectors of length at most `clip`, each a function of its row and `point` alone.

        It is total: for rows of any floats, infinite or none among them, it answers finite numbers within
        these bounds, and raises nothing. A fault that one record could cause would tell of that record.
        `privest.privacy.clipping` has what this takes: decorate with `any_floats`, sum with `clipped_sum`.

        Args:
            point: what the solver asks about; public, or made of released answers. A statistic that asks
                about nothing calls it `_`.
            rows: (n, ...) records.
            clip: bound on the Euclidean length of one record's vector.

        Returns:
            (size,) sum.
        """
        ...


class Opposable:
    """Base of statistics of which two rows may have opposite vectors, as two gradients are."""

    def diameter(self, clip: float) -> float:
        """Bound on the distance between the vectors of any two rows: 2·clip."""
        return 2.0 * clip


AnyStatistic = Statistic[Never]
"""A statistic whose kind of query is not known here, as in a plan that holds several."""

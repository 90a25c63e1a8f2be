"""Several owners' gates pooled into one oracle, which answers with weighted means."""

from collections.abc import Sequence
from dataclasses import dataclass

from privest.arrays import Array
from privest.privacy.oracle import Oracle, StreamOracle


@dataclass(frozen=True)
class Pooled:
    """An `Oracle` that asks each owner's gate the same query. Combining their answers is post-processing.

    Attributes:
        owners: the owners' gates. Their plans have the same statistics in the same order.
        weights: the positive weights of the owners' answers, which add up to one.
        share: share in (0, 1] of the records whose unweighted mean has the sampling error of the answers.
    """

    owners: Sequence[Oracle]
    weights: Sequence[float]
    share: float = 1.0

    @property
    def remaining(self) -> int:
        """Number of answers that each owner's plan still allows."""
        return self.owners[0].remaining

    @property
    def streams(self) -> StreamOracle:
        """Pooled gates have no streams.

        Raises:
            ValueError: always.
        """
        raise ValueError("streams work on one dataset only")

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """The weighted mean of the owners' noisy means at `point`, (size,)."""
        weighed = zip(self.owners, self.weights, strict=True)
        first, *others = (weight * owner.mean(point, statistic) for owner, weight in weighed)
        return sum(others, first)

    def pick(self, count: int) -> int:
        """A uniform random integer in [0, count), from the first owner's generator."""
        return self.owners[0].pick(count)

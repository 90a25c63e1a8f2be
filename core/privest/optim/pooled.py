"""Several owners' gates as one: weighted means of what they release."""

from collections.abc import Sequence
from dataclasses import dataclass

from privest.arrays import Array
from privest.privacy.oracle import Oracle, StreamOracle


@dataclass(frozen=True)
class Pooled:
    """Gates that are asked the same, one after the other. All that is made of answers is post-processing.

    Attributes:
        owners: a gate each, with plans of the same statistics in the same order.
        weights: of their answers, positive, of sum one.
        share: of all records, whose plain mean has the sampling error of this weighted one.
    """

    owners: Sequence[Oracle]
    weights: Sequence[float]
    share: float = 1.0

    @property
    def remaining(self) -> int:
        """Answers left, of each owner as many."""
        return self.owners[0].remaining

    @property
    def streams(self) -> StreamOracle:
        """There are none.

        Raises:
            ValueError: always.
        """
        raise ValueError("streams work on one dataset only")

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """The weighted mean of the owners' noisy means at `point`."""
        weighed = zip(self.owners, self.weights, strict=True)
        first, *others = (weight * owner.mean(point, statistic) for owner, weight in weighed)
        return sum(others, first)

    def pick(self, count: int) -> int:
        """A uniform number below `count`, from one owner's generator."""
        return self.owners[0].pick(count)

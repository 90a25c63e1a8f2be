"""Several owners' gates pooled into one oracle, which answers with weighted means."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from privest.arrays import Array
from privest.privacy.oracle import Oracle, StreamOracle


def weighted(answers: Sequence[Array], weights: Sequence[float]) -> Array:
    """The sum of arrays, each times its weight: term by term in order, so with the same bits anywhere."""
    first, *others = (weight * answer for answer, weight in zip(answers, weights, strict=True))
    return sum(others, first)


class WithoutStreams:
    """Base of oracles over several owners."""

    @property
    def streams(self) -> StreamOracle:
        """Several owners have no streams.

        Raises:
            ValueError: always.
        """
        raise ValueError("streams work on one dataset only")


@dataclass(frozen=True)
class Pooled(WithoutStreams):
    """An `Oracle` that asks each owner's gate the same query. Combining their answers is post-processing.

    Attributes:
        owners: the owners' gates. Their plans have the same statistics in the same order.
        weights: the positive weights of the owners' answers, which add up to one.
        share: share in (0, 1] of the records whose unweighted mean has the sampling error of the answers.
    """

    owners: Sequence[Oracle]
    weights: Sequence[float]
    share: float = 1.0

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """The weighted mean of the owners' noisy means at `point`, (size,)."""
        return self.pooled(lambda _, owner: owner.mean(point, statistic))

    def pooled(self, found: Callable[[int, Oracle], Array]) -> Array:
        """The weighted sum of what each owner finds by answers of its own gate."""
        return weighted([found(place, owner) for place, owner in enumerate(self.owners)], self.weights)

    def pick(self, count: int) -> int:
        """A uniform random integer in [0, count), from the first owner's generator."""
        return self.owners[0].pick(count)

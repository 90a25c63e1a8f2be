"""Pooled answers of several owners' gates: in one place, exchanged between places, or replayed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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


Exchange = Callable[[str, Array], Array]
"""Gives away an owner's noisy (size,) answer, under the name of what was asked, for the weighted sum of all
owners' answers. Raises what ends the run, such as a lost connection."""

_FURTHEST = 1e100
"""Largest number that a pooled answer may have: beyond, sums of squares are no numbers."""

_POOLED = "pooled"
"""Name under which owners exchange what they find by several answers of their own."""


@dataclass(frozen=True)
class Joined(WithoutStreams):
    """The pooled gates of several owners, where one of the gates is.

    A solver is a function of answers. So it comes to the same points in every place, and nobody has to send
    any: whoever answers here has computed by itself what is asked.

    Attributes:
        own: the gate that is here.
        place: of its owner among the owners.
        share: share in (0, 1] of the records whose unweighted mean has the sampling error of the answers.
        exchange: with the other places.
        choices: draws what all places choose alike. It is public, and draws no noise.
    """

    own: Oracle
    place: int
    share: float
    exchange: Exchange
    choices: np.random.Generator

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """The weighted mean of all owners' noisy means at `point`, (size,)."""
        return self._exchanged(statistic, self.own.mean(point, statistic))

    def pooled(self, found: Callable[[int, Oracle], Array]) -> Array:
        """The weighted sum of what each owner finds by answers of its own gate, (size,)."""
        return self._exchanged(_POOLED, found(self.place, self.own))

    def pick(self, count: int) -> int:
        """A uniform random integer in [0, count), the same in all places."""
        return int(self.choices.integers(count))

    def _exchanged(self, name: str, own: Array) -> Array:
        answer = self.exchange(name, own)
        if answer.shape != own.shape or not (np.abs(answer) <= _FURTHEST).all():
            raise ValueError("what came back for an answer is no weighted sum of such answers")
        return answer


@dataclass(frozen=True)
class Replayed(WithoutStreams):
    """The pooled gates of several owners once more, from a record of their pooled answers.

    Attributes:
        answers: each with its name, in order.
        share: see `Joined`.
        choices: drawn anew from the seed of the run.
    """

    answers: Iterator[tuple[str, Array]]
    share: float
    choices: np.random.Generator

    def mean(self, point: object, statistic: str = "gradient") -> Array:  # noqa: ARG002 - it was asked there
        """The pooled answer that was released at `point`, (size,)."""
        return self._next(statistic)

    def pooled(self, found: Callable[[int, Oracle], Array]) -> Array:  # noqa: ARG002 - owners found it then
        """The weighted sum of what each owner found, (size,)."""
        return self._next(_POOLED)

    def pick(self, count: int) -> int:
        """The integer that was picked."""
        return int(self.choices.integers(count))

    def _next(self, name: str) -> Array:
        recorded, answer = next(self.answers, ("", np.empty(0)))
        if recorded != name:
            raise ValueError("the record is not of this run: it has another answer here, or none")
        return answer

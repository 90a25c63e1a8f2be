"""Runs of plans over several datasets: in one place, in the places where the gates are, or from a record."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from privest.arrays import Array
from privest.estimators.base import BasePlan
from privest.estimators.federation import Federated
from privest.optim.joined import Exchange, Joined, Replayed
from privest.optim.pooled import Pooled
from privest.privacy.oracle import Oracle

P = TypeVar("P", bound=BasePlan)
R = TypeVar("R")


def run(planned: Federated[P], run_one: Callable[[P, Oracle], R], gates: Sequence[Oracle]) -> R:
    """The answer of an estimator's own `run_one` to the pooled answers of all gates, one gate per owner."""
    return run_one(planned.course, Pooled(gates, planned.weights, _share(planned)))


def run_joined(
    planned: Federated[P],
    run_one: Callable[[P, Oracle], R],
    gate: Oracle,
    place: int,
    exchange: Exchange,
    seed: int,
) -> R:
    """The answer of `run` where one owner's gate is: the other gates are behind an exchange of answers.

    Args:
        planned: the plan, the same in all places.
        run_one: the estimator's own.
        gate: of this owner, with the releases of its part.
        place: of this owner among the parts.
        exchange: with the others.
        seed: of choices that all places make alike, such as a random iterate. It is public.

    Raises:
        ValueError: what the exchange gave is no answer.
    """
    choices = np.random.default_rng(seed)
    return run_one(planned.course, Joined(gate, place, _share(planned), exchange, choices))


def replay(
    planned: Federated[P],
    run_one: Callable[[P, Oracle], R],
    answers: Iterable[tuple[str, Array]],
    seed: int,
) -> R:
    """The answer of `run_joined` once more, from the pooled answers of a run with their names, in order.

    Raises:
        ValueError: they are not all that such a run exchanges, or more.
    """
    left = iter(answers)
    answer = run_one(planned.course, Replayed(left, _share(planned), np.random.default_rng(seed)))
    if next(left, None) is not None:
        raise ValueError("the record is not of this run: it has more answers")
    return answer


def _share(planned: Federated[P]) -> float:
    """Share of all records whose unweighted mean has the sampling error of the weighted one."""
    counts, weights = np.array([part.n for part in planned.parts]), np.array(planned.weights)
    return min(1.0, float(1 / np.sum(weights**2 / counts) / counts.sum()))

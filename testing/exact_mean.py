"""The Fréchet mean without privacy, for tests and benchmarks to compare with."""

from collections.abc import Callable
from math import inf, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from privest.arrays import Array, lengths
from privest.data.records import Records, blocks
from privest.estimators.frechet_mean.gradient_solvers import hessian_bounds
from privest.manifolds import Manifold

_SHORTER = 0.9
"""Factor of the shortest gradient so far that a secant step must reach."""


class ExactMean(NamedTuple):
    """A Fréchet mean, and how many gradients over all records it took."""

    point: Array
    gradients: int


def exact_mean(
    space: Manifold, records: Records, *, start: Array, tolerance: float = 1e-8, most: int = 1000
) -> ExactMean:
    """A stationary point of the mean squared distance, by gradient descent with secant steps.

    A step is 1/curvature long, as the gradient's last change shows it (Barzilai and Borwein 1988). It counts
    only if it leaves a gradient well shorter than any before. Else it is taken again, 1 over a bound on the
    Hessian long, which lowers the objective from any point. So no run diverges or cycles: steps of the former
    kind are finitely many, and between them the objective falls.

    Without positive curvature there is one stationary point, the mean. Records in an open half of a sphere
    have one there (Afsari 2011); from a start far off another may be found.

    Args:
        space: where the records live.
        records: n of them, at least one; summed in their threads.
        start: (*shape) any point; the nearer the better.
        tolerance: on the length of the gradient. Rounding may leave more, on points that are far apart.
        most: gradients over all records before it gives up.

    Raises:
        ArithmeticError: no mean after that many gradients, or a gradient that is no number.
        ValueError: no records.
    """
    if not len(records):
        raise ValueError("no records have no mean")

    least = hessian_bounds(space.curvature, inf)[0]
    hessian_lipschitz = sqrt(max(0.0, -space.curvature[0]))
    here, pull = start, _mean_log(space, records, start)
    shortest = length = float(lengths(pull))
    step, sure = 1.0, False
    for gradients in range(1, most + 1):
        if length <= tolerance:
            return ExactMean(here, gradients)
        if not isfinite(length):
            raise ArithmeticError("no mean: records or start are not finite, or too far apart for float64")
        there = space.exp_coordinates(here, step * pull)
        there_pull = _mean_log(space, records, there)
        there_length = float(lengths(there_pull))
        if sure or there_length <= _SHORTER * shortest:
            curved = float((pull - there_pull) @ pull) / (step * length**2)
            here, pull, length = there, there_pull, there_length
            shortest = min(shortest, length)
            step, sure = 1 / max(curved, least), False
        else:
            # A record at distance d has Hessians up to kd/tanh(kd) ≤ 1 + kd, and d grows by a step at most.
            far = _mean_distance(space, records, here) + length if hessian_lipschitz else 0.0
            step, sure = 1 / (1 + hessian_lipschitz * far), True
    raise ArithmeticError(f"no mean to {tolerance:g} after {most} gradients: the last was {length:.1e} long")


def _mean_log(space: Manifold, records: Records, at: Array) -> Array:
    """(coordinate_size,) minus the gradient of half the mean squared distance."""
    return _mean(records, lambda rows: space.log_sum(at, rows))


def _mean_distance(space: Manifold, records: Records, at: Array) -> float:
    return float(_mean(records, lambda rows: space.dist(at, rows).sum(keepdims=True))[0])


def _mean(records: Records, sum_of: Callable[[Array], Array]) -> Array:
    def of_chunk(chunk: Array) -> Array:
        return np.sum([sum_of(block) for block in blocks(chunk)], axis=0)

    return records.sum(of_chunk) / len(records)  # pyright: ignore[reportArgumentType] - floats add up as well

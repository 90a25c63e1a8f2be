"""Parts that only workers import: the gate, with its generator, over rows that a permit lets them open."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil, floor, log2, prod

import numpy as np

from privest.arrays import Array
from privest.data.metadata import DatasetMetadata
from privest.data.records import CHUNK, Records, Repeated
from privest.estimators.base import BasePlan
from privest.estimators.federation import Federated, Plan
from privest.estimators.registry import ESTIMATORS
from privest.privacy.gate import Gate
from privest_service.estimates.plans import stored_plans
from privest_service.estimates.tasks import OpenRows

for _estimator in ESTIMATORS.values():  # once, in the process from which workers are forked
    stored_plans(_estimator)

_DUMMY_BYTES = 2**20
"""Bytes of distinct synthetic rows, about, for each of up to a hundred datasets."""


_LEAST, _STEP = 2**-7, 4.0
"""Shortest visible run time, and steps between the moments at which a long run may end, in seconds."""


class RunTokenGoneError(RuntimeError):
    """This job's rows were read before, or its time is over."""


def use_up(run_token: str) -> None:
    """Remove a permit. A file is removed once, whoever tries, so no job reads its rows twice on one charge.

    Raises:
        PermitGoneError: there is none.
    """
    try:
        os.unlink(run_token)  # noqa: PTH108 - the one call that counts
    except FileNotFoundError:
        raise RunTokenGoneError from None


def public_end(seconds: float) -> float:
    """Round a run time up to a moment at which a run may end: 1/128, 1/64 … 4, 8, 12 … seconds."""
    seconds = max(seconds, _LEAST)
    step = min(_STEP, 2.0 ** floor(log2(seconds)))
    return step * ceil(seconds / step)


@contextmanager
def padded() -> Iterator[None]:
    """End no sooner than at the next of few moments, whatever happens: rows decide by microseconds when.

    On one machine the worker is held as long: else the next job would tell.
    """
    begun = time.monotonic()
    try:
        yield
    finally:
        took = time.monotonic() - begun
        time.sleep(public_end(took) - took)


def gates(paths: Sequence[str], plan: Plan, records: OpenRows | None = None) -> list[Gate]:
    """A gate over the rows of each file, or without files over synthetic ones; each has its own generator."""
    opener = records or opened
    if not isinstance(plan, Federated):
        (path,) = paths or [""]
        return [Gate(opener(path, plan.shape), plan.statistics, plan.releases)]
    each = zip(paths or [""] * len(plan.parts), plan.shapes, plan.parts, strict=True)
    return [Gate(opener(path, shape), plan.statistics, part.releases) for path, shape, part in each]


def gate_of(path: str, plan: Federated[BasePlan], place: int) -> Gate:
    """A gate over the rows of one of several datasets, with the releases of its part."""
    return Gate(opened(path, plan.shapes[place]), plan.statistics, plan.parts[place].releases)


def opened(path: str, shape: DatasetMetadata) -> Records:
    """Rows for this process alone, with all of its threads."""
    rows = rows_in(path, shape)
    return Records(rows, grouped=is_grouped(rows, shape), recipe=shape.recipe)


def rows_in(path: str, shape: DatasetMetadata) -> Array | Repeated:
    """Rows that are read where they lie; without a path, few that the public shape alone makes, repeated."""
    if path:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    few = min(shape.n, CHUNK, max(1, _DUMMY_BYTES // (8 * prod(shape.record))))
    synthetic = shape.dummy if shape.recipe is None else shape.recipe.dummy  # a recipe makes records of rows
    return Repeated(synthetic(few, np.random.default_rng(0)), shape.n)


def is_grouped(rows: Array | Repeated, shape: DatasetMetadata) -> bool:
    """Whether a record is a group of rows."""
    return len(rows.shape) > 1 + len(shape.record)

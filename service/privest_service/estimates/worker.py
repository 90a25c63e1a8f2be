"""What only workers import: the gate, with its generator, over rows on disk that a permit lets them open."""

import os
from math import prod

import numpy as np

from privest.privacy.gate import Gate
from privest.records import CHUNK, Records, Repeated
from privest.shapes import Shape
from privest_service.estimates.kinds import OpenRows, Plan

_DUMMY_BYTES = 2**24
"""Of synthetic rows that differ."""


class PermitGoneError(RuntimeError):
    """This job's rows were read before, or its time is over."""


def use_up(permit: str) -> None:
    """Remove a permit. A file is removed once, whoever tries, so no job reads its rows twice on one charge.

    Raises:
        PermitGoneError: there is none.
    """
    try:
        os.unlink(permit)  # noqa: PTH108 - the one call that counts
    except FileNotFoundError:
        raise PermitGoneError from None


def gate(path: str, plan: Plan, records: OpenRows | None = None) -> Gate:
    """A gate over the rows of one file, or without one over synthetic ones, with a generator of its own."""
    rows = (records or mapped)(path, plan.shape) if path else synthetic(plan.shape)
    return Gate(rows, plan.statistics, plan.releases)


def synthetic(shape: Shape) -> Records:
    """Rows that the public shape alone makes, few of them over and over."""
    few = min(shape.n, CHUNK, max(1, _DUMMY_BYTES // (8 * prod(shape.record))))
    return Records(Repeated(shape.dummy(few, np.random.default_rng(0)), shape.n))


def mapped(path: str, shape: Shape) -> Records:
    """Rows that are read where they lie."""
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    return Records(rows, grouped=rows.ndim > 1 + len(shape.record))

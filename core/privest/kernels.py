"""Rows of few columns, standardised and summed in C: four times, and twice, as fast as numpy and BLAS.

numpy goes over all rows for each operation and begins anew with every row; here a row is done with at once.
BLAS does not know that a second moment is symmetric, and wants weighted rows of their own. Without a
C compiler (`compiled.py`), or on processors without AVX2, numpy and BLAS serve.
"""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from privest import compiled
from privest.arrays import Array, lengths

_MOST_COLUMNS = 64
"""Most columns of which the library sums second moments; beyond, BLAS is as fast."""


class _Question(ctypes.Structure):
    """How the library standardises rows; the fields of `Question` in kernels.c."""

    _fields_ = (
        ("features", ctypes.c_ssize_t),
        ("longest", ctypes.c_double),
        ("shrink", ctypes.c_double),
        ("constant", ctypes.c_double),
        ("mean", ctypes.c_void_p),
        ("unit", ctypes.c_void_p),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The compiled library; None where there is none, or the processor lacks what it is compiled for."""
    found = compiled.library(Path(__file__).with_name("kernels.c"))
    if found is None or not found.served():
        return None
    pointer, count = ctypes.c_void_p, ctypes.c_ssize_t
    found.standardised.argtypes = (pointer, pointer, count, pointer)
    found.second_moment.argtypes = (pointer, pointer, count, count, pointer)
    found.standardised.restype = found.second_moment.restype = None
    return found


def standardised(
    rows: Array, mean: Array, unit: Array, *, longest: float, shrink: float, constant: float
) -> Array:
    """(z, constant) of each row, for z = (x − mean)/unit, shortened to `longest` and divided by `shrink`.

    A row's vector depends on that row alone, to the last bit. Where float64 holds no length of z, z is zero.

    Args:
        rows: (n, d + 1): features x, and a label that is left out.
        mean: (d,).
        unit: (d,), positive.
        longest: most that z may be long before it is divided.
        shrink: divisor.
        constant: last coordinate of every vector; with 0 there is none.

    Returns:
        (n, d + 1) vectors, or (n, d) without a constant.
    """
    found = library()
    if found is None:
        return _standardised(rows, mean, unit, longest, shrink, constant)
    n, width = rows.shape
    rows, mean, unit = (np.ascontiguousarray(each, dtype=np.float64) for each in (rows, mean, unit))
    question = _Question(width - 1, longest, shrink, constant, mean.ctypes.data, unit.ctypes.data)
    vectors = np.empty((n, width - (not constant)))
    found.standardised(ctypes.byref(question), rows.ctypes.data, n, vectors.ctypes.data)
    return vectors


@np.errstate(over="ignore", invalid="ignore")
def _standardised(
    rows: Array, mean: Array, unit: Array, longest: float, shrink: float, constant: float
) -> Array:
    z = (rows[:, :-1] - mean) / unit
    length = lengths(z)
    usable = np.isfinite(length)
    length = np.where(usable, length, 0.0) / longest
    z *= (usable / np.maximum(length, 1.0) / shrink)[:, None]
    z[~usable] = 0.0
    return np.hstack([z, np.full((len(z), 1), constant)]) if constant else z


def second_moment(x: Array, weights: Array) -> Array:
    """(size, size) Σ wᵢ·xᵢxᵢᵀ of finite vectors x, (n, size), with weights w, (n,)."""
    found, (n, size) = library(), x.shape
    if found is None or size > _MOST_COLUMNS:
        return (x * weights[:, None]).T @ x
    x, weights = np.ascontiguousarray(x), np.ascontiguousarray(weights)
    moment = np.empty((size, size))
    found.second_moment(x.ctypes.data, weights.ctypes.data, n, size, moment.ctypes.data)
    return moment

"""Logarithms of many small positive definite matrices at once, in C: eight to eleven times as fast as LAPACK.

LAPACK works on one matrix at a time, and most of its time for small ones is not arithmetic. Here each lane of
a SIMD register has a matrix of its own, and no branch depends on what it holds. A matrix is brought to
tridiagonal form, as for its eigenvalues. There a rational function replaces the logarithm, with an error of
1.2e-16 beside it where eigenvalues lie between e⁻⁸ and e⁸:

    log z ≈ (z − 1/z) Σ w/(z + 1/z + c) = Σ w [1 − s/(z + s) − (1/s)/(z + 1/s)],  c = s + 1/s.

Without a C compiler there is no library (`compiled.py`), and LAPACK serves.

References:
    Hale, Higham and Trefethen (2008) compute functions of matrices by rational ones.
"""

import ctypes
from functools import cache
from math import exp
from pathlib import Path

import numpy as np

from privest import compiled
from privest.arrays import Array

MOST_ROWS = 32
"""Most rows of a matrix; beyond, the triangles of a few no longer fit the first cache."""

LOG_RANGE = 8.0
"""Largest absolute logarithm of an eigenvalue."""

_TERMS = (
    (1.2845930297211756, 0.500990793888947),
    (2.1211331629342944, 0.5022129886147106),
    (3.5084748004450934, 0.504371488492004),
    (5.8174892950041235, 0.5070587042692278),
    (9.67320639032, 0.5099351158536524),
    (16.1310285815762, 0.5128351717154478),
    (26.97867756036319, 0.5157917360363905),
    (45.25993496395992, 0.5190380200784706),
    (76.20075414390824, 0.5230405441897656),
    (128.89746575728418, 0.5286028324864006),
    (219.54146345329346, 0.5370892661207135),
    (378.017468231208, 0.5508694843239768),
    (662.7720239212216, 0.5742232498514351),
    (1198.9731549733165, 0.6153475817044737),
    (2295.15809875516, 0.6914663931498014),
    (4900.587199432318, 0.8447945267001438),
    (13298.350230985327, 1.2116438614107132),
    (74099.85085112043, 2.6001460764239277),
)
"""(s, w) of the terms. They interpolate t/(2 sinh t), z = eᵗ, at the 36 Zolotarev points of [0, 8], which
makes the largest relative error nearly least. `test_matrix_logarithm.py` holds them to the logarithm."""

_SHIFTS = np.array([s for s, _ in _TERMS] + [1 / s for s, _ in _TERMS])
_WEIGHTS = np.array([w * s for s, w in _TERMS] + [w / s for s, w in _TERMS])


class _Question(ctypes.Structure):
    """What the library applies to all matrices; the fields of `Question` in logarithms.c."""

    _fields_ = (
        ("size", ctypes.c_int),
        ("poles", ctypes.c_int),
        ("constant", ctypes.c_double),
        ("widest", ctypes.c_double),
        ("shifts", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("whitening", ctypes.c_void_p),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The compiled library; None where the package was installed without a C compiler."""
    found = compiled.library(Path(__file__).with_name("logarithms.c"))
    if found is None:
        return None
    found.logarithms.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_void_p)
    found.logarithms.restype = None
    return found


def log_coordinates(found: ctypes.CDLL, whitening: Array, rows: Array) -> Array:
    """Coordinates of log(b·x·bᵀ) of each matrix x, as `SymmetricCoordinates` has them.

    A matrix's result depends on that matrix and on b alone, to the last bit. Where eigenvalues are out of
    range, or the matrix is none of finite numbers, all of it is NaN. Other threads go on meanwhile.

    Args:
        found: the library.
        whitening: b, (m, m) lower triangular, m up to `MOST_ROWS`.
        rows: (n, m, m) symmetric matrices, of which the lower triangles count.

    Returns:
        (n, m(m + 1)/2) coordinates.
    """
    n, m, _ = rows.shape
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    whitening = np.ascontiguousarray(whitening, dtype=np.float64)
    question = _Question(
        m,
        len(_SHIFTS),
        float(sum(w for _, w in _TERMS)),
        exp(LOG_RANGE),
        _SHIFTS.ctypes.data,
        _WEIGHTS.ctypes.data,
        whitening.ctypes.data,
    )
    coordinates = np.empty((n, m * (m + 1) // 2))
    found.logarithms(ctypes.byref(question), rows.ctypes.data, n, coordinates.ctypes.data)
    return coordinates

"""Clipping of per-record vectors: the one place where a record's influence is bounded."""

from math import isfinite, sqrt

import numpy as np

from privest.arrays import Array, lengths

_ROUNDING = 1 + 1e-9
"""Factor on the length of a sum: more than float64 sums of vectors that were clipped are ever off by."""

any_floats = np.errstate(over="ignore", invalid="ignore", divide="ignore")
"""Decorator that silences numpy's floating-point warnings, which would reveal an unusual row.

A decorator costs 0.3 µs a call, a context manager 0.8 µs.
"""


def within(total: Array, longest: float) -> bool:
    """Whether a sum is finite and, but for rounding, at most so long."""
    return bool(np.dot(total, total) <= (longest * _ROUNDING) ** 2)


def without_axis(rows: Array) -> Array:
    """`rows[0]` for a batch of one row, otherwise `rows`. This saves 3 µs a step and changes no bit."""
    return rows[0] if len(rows) == 1 else rows


@any_floats
def clipped_sum(vectors: Array, clip: float) -> Array:
    """The sum of vectors, each shortened to length `clip` if it is longer: Σ min(clip/|v|, 1)·v.

    A vector with an infinity or NaN counts as zero, so no record can stop a run.
    Utpala et al. (2023), Section 5, print min(|v|/clip, 1)·v, which does not bound the length.

    Args:
        vectors: (n, size), one row per record, or (size,) for a single record.
        clip: bound on the Euclidean length of a record's vector; positive.

    Returns:
        (size,) sum.
    """
    if vectors.ndim == 1:
        alone = sqrt(np.dot(vectors, vectors))
        return clip / max(alone, clip) * vectors if isfinite(alone) else np.zeros_like(vectors)
    length = lengths(vectors)
    finite = np.isfinite(length)
    if np.count_nonzero(finite) < len(finite):
        length, vectors = np.where(finite, length, 0.0), np.where(finite[:, None], vectors, 0.0)
    return np.dot(clip / np.maximum(length, clip), vectors)

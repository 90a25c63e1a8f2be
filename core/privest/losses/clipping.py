"""Clipping of per-record vectors: the one place where a record's influence is bounded."""

import numpy as np

from privest.arrays import Array, lengths


def clipped_sum(vectors: Array, clip: float) -> Array:
    """The sum of vectors, each shortened to length `clip` where it is longer: Σ min(clip/|v|, 1)·v.

    Total: a vector that is not finite counts as zero, so that no record can stop a run or be seen in it.
    (Paper 000, Section 5, prints min(|v|/clip, 1)·v, which bounds nothing.)

    Args:
        vectors: (n, size), a row for each record.
        clip: bound on the Euclidean length of a row.

    Returns:
        (size,) sum.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        length = lengths(vectors)
    finite = np.isfinite(length)
    weight = clip / np.maximum(np.where(finite, length, clip), clip)
    return weight @ np.where(finite[:, None], vectors, 0.0)

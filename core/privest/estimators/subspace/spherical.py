"""Rows about a centre, put on the unit sphere, and the orthonormal directions in which they are seen."""

import numpy as np

from privest.arrays import Array, lengths

_ROUNDING = 1e-9
"""Largest error of an inner product of orthonormal columns that counts as rounding."""


def orthonormal(basis: Array) -> Array:
    """Return the basis if its columns are orthonormal, otherwise as many coordinate axes.

    Bounds on what a row adds rest on this. All solvers ask with orthonormal columns, unless released numbers
    took them out of float64; then the answer is of no use anyway, and the axes make it safe.

    Args:
        basis: (dim, k) columns of any floats.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(basis.T @ basis - np.eye(basis.shape[1]))
    return basis if (error <= _ROUNDING).all() else np.eye(*basis.shape)


def on_sphere(rows: Array, center: Array | None = None) -> Array:
    """Rows, less the centre if there is one, divided by their length.

    Total: what has no direction in float64 (a zero row, one of length below 1e-150 or above 1e150)
    becomes zero, so that no record can stop a run or be seen in it.

    Args:
        rows: (n, dim).
        center: (dim,) a public or privately released point.

    Returns:
        (n, dim) rows of length one, or zero.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        away = rows if center is None else rows - center
        length = lengths(away)
        usable = (length > 1e-150) & (length < 1e150)
        x = away * (usable / np.where(usable, length, 1.0))[:, None]
    x[~usable] = 0.0  # what was not finite
    return x

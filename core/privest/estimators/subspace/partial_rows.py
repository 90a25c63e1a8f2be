"""Rows of which some entries are not known, on the unit sphere: what matrix completion sees of a record."""

import numpy as np

from privest.arrays import Array
from privest.estimators.subspace.spherical import on_sphere


def known_part(rows: Array) -> tuple[Array, Array]:
    """Rows with zeros for what is not known, divided by their length, and what is known of them.

    Total, as `on_sphere` is: a row without a direction, or of which nothing is known, becomes zero.
    A column's length says nothing about the space that the columns span, so no bound on it is needed.

    Args:
        rows: (n, dim), NaN where an entry is not known.

    Returns:
        (n, dim) rows of length one, or zero; and (n, dim) ones where an entry is known, zeros elsewhere.
    """
    known = ~np.isnan(rows)
    return on_sphere(np.where(known, rows, 0.0)), known.astype(np.float64)

"""Descent over the REAPER relaxation: projected (GD) and by mirror (MD), the mean of the iterates."""

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np

from privest.arrays import Array


def capped(values: Array, total: float) -> Array:
    """The nearest vector with entries between 0 and 1 and this sum: water-filling (Lerman et al. 2015).

    min(max(values + θ, 0), 1) for the level θ that fits; its sum is piecewise linear in θ, so that it is
    exact between the points where an entry meets 0 or 1.
    """
    levels = np.unique(np.concatenate([-values, 1.0 - values]))
    sums = np.clip(values + levels[:, None], 0.0, 1.0).sum(axis=1)
    return np.clip(values + np.interp(total, sums, levels), 0.0, 1.0)


def capped_entropic(logarithms: Array, total: float) -> Array:
    """The nearest vector in relative entropy with entries up to 1 and this sum: min(c·exp(logarithms), 1).

    Where nothing exceeds 1 this is the renormalisation that Maunu et al. (2022) print (Appendix A); else the
    largest entries are 1, and c fits the others.
    """
    order = np.argsort(-logarithms)
    falling = logarithms[order]
    tails = np.logaddexp.accumulate(falling[::-1])[::-1]
    # With the k largest at 1, the next must not exceed 1: the least such k.
    scales = np.log(total - np.arange(ceil(total))) - tails[: ceil(total)]
    k = int(np.argmax(scales + falling[: ceil(total)] <= 0.0))
    found = np.ones_like(falling)
    found[k:] = np.exp(np.minimum(scales[k] + falling[k:], 0.0))
    result = np.empty_like(found)
    result[order] = found
    return result


def reaper(
    gradient: Callable[[Array], Array],
    *,
    dim: int,
    rank: int,
    steps: Sequence[float],
    mirror: bool,
) -> Array:
    """Noisy gradient descent on 0 ⪯ P ⪯ I, tr P = r.

    Args:
        gradient: noisy mean of negative gradients at P, (dim, dim) symmetric.
        dim: D.
        rank: r.
        steps: length of each.
        mirror: entropic mirror descent (on sums of gradients: dual averaging), not Euclidean projection.

    Returns:
        (dim, dim) the eigenvectors of the mean of the iterates, the leading one first.

    References:
        Maunu et al. (2022), Algorithms 1 and 2, by projection or by mirror steps.
    """
    p = np.eye(dim) * (rank / dim)
    mean = np.zeros((dim, dim))
    dual = np.zeros((dim, dim))
    for step in steps:
        if mirror:
            dual = dual + step * gradient(p)
            values, vectors = np.linalg.eigh(dual)
            values = capped_entropic(values, rank)
        else:
            values, vectors = np.linalg.eigh(p + step * gradient(p))
            values = capped(values, rank)
        p = (vectors * values) @ vectors.T
        mean += p
    return np.linalg.eigh(mean)[1][:, ::-1]

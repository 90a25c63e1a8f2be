"""How far noise turns the leading subspace of a symmetric matrix, drawn from what the noisy matrix shows.

An eigenvector v of the noisy matrix, with eigenvalue λ, is turned towards another one with μ by about
noise/(λ − μ), and tan² of its angle to the exact subspace is the sum of the squares: no model of the rows is
needed. Where eigenvalues on either side of the subspace are as near as the noise is large, that is no longer
so: noise drives them apart, and a gap that is seen may be none. There the noise is drawn and matrices are
decomposed, with eigenvalues drawn back by as much as noise drives them apart, and with the gap uncertain.
"""

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from privest.arrays import Array

_DRAWS = 400
_SEED = int.from_bytes(b"perturbation")
"""Seed of draws that are public: the same released numbers always have the same error."""

_NEAR = 8.0
"""Gap between eigenvalues, in deviations of the noise on an entry, below which noise is drawn."""

_MOST_NEAR = 6
"""Most eigenvalues on either side of the gap for which it is drawn."""

_ROUNDS = 6
"""Rounds in which eigenvalues are drawn back."""

_GAP = 1.0
"""Deviation of an eigenvalue on either side of the gap, in deviations of the noise on an entry."""

_MARGIN = 1.05
"""Factor on the 95 % quantile, for what is estimated in it. Tuned on the half `TUNE` of the real tables."""

LOST = 1.0
"""Angle, in radians, beyond which a direction is lost."""


@dataclass(frozen=True)
class Turn:
    """The distance between a noisy subspace and the exact one, in radians.

    Attributes:
        standard_deviation: root mean square.
        radius_95: not exceeded with probability 0.95.
        lost: how many directions of the subspace the noise may have put anywhere, to the same certainty.
    """

    standard_deviation: float
    radius_95: float
    lost: int


def turn_by_noise(eigenvalues: Array, rank: int, entry: float) -> Turn:
    """How far noise may have turned the leading subspace of a noisy symmetric matrix.

    Args:
        eigenvalues: (dim,) of the noisy matrix, the largest first.
        rank: of the leading subspace, below dim.
        entry: deviation of the noise on an entry off the diagonal.

    References:
        Benaych-Georges and Nadakuditi (2011) for separate eigenvalues.
    """
    rng = np.random.default_rng(_SEED)
    own, other = eigenvalues[:rank], eigenvalues[rank:]
    above = np.flatnonzero(own - other[0] < _NEAR * entry)[-_MOST_NEAR:]
    below = np.flatnonzero(own[-1] - other < _NEAR * entry)[:_MOST_NEAR]
    variances = entry**2 / ((own[:, None] - other) ** 2 + entry**2)
    variances[np.ix_(above, below)] = 0.0
    mean, spread = variances.sum(axis=1), 2 * (variances**2).sum(axis=1)
    # Sums of weighted squares of normal variates are nearly gamma variates (Satterthwaite).
    shape = mean**2 / np.maximum(spread, 1e-300)
    scale = spread / np.maximum(mean, 1e-300)
    angles = np.arctan(np.sqrt(rng.gamma(np.maximum(shape, 1e-3), scale, (_DRAWS, rank))))
    if len(above) and len(below):
        turned = _turned(np.concatenate([own[above], other[below]]), len(above), entry, rng)
        angles[:, above] = np.hypot(angles[:, above], turned)
    angles[angles > LOST] = pi / 2
    most = min(rank, len(other))
    distances = np.minimum(np.sqrt((angles**2).sum(axis=1)), sqrt(most) * pi / 2)
    return Turn(
        float(np.linalg.norm(distances)) / sqrt(_DRAWS),
        min(sqrt(most) * pi / 2, _MARGIN * float(np.quantile(distances, 0.95))),
        int(np.quantile((angles > LOST).sum(axis=1), 0.95, method="higher")),
    )


def _turned(near: Array, above: int, entry: float, rng: np.random.Generator) -> Array:
    """(draws, above) angles by which noise turns the leading eigenvectors of near eigenvalues.

    Args:
        near: eigenvalues as they are seen, the largest first.
        above: how many of them belong to the subspace.
        entry: see `turn_by_noise`.
        rng: of public draws.
    """
    count = len(near)
    noise = rng.standard_normal((_DRAWS, count, count)) * entry
    noise = (noise + noise.transpose(0, 2, 1)) / sqrt(2.0)
    exact, one = near, np.eye(count)
    for _ in range(_ROUNDS):
        seen = np.linalg.eigvalsh(exact * one + noise)[:, ::-1].mean(axis=0)
        exact = np.sort(exact + 0.8 * (near - seen))[::-1]
    middle = 0.5 * (exact[above - 1] + exact[above])
    shift = _GAP * entry * rng.standard_normal((_DRAWS, 1))
    drawn = np.hstack([np.maximum(exact[:above] - shift, middle), np.minimum(exact[above:] + shift, middle)])
    vectors = np.linalg.eigh(drawn[:, :, None] * one + noise)[1][:, :above, ::-1][:, :, :above]
    return np.arccos(np.clip(np.linalg.svd(vectors, compute_uv=False), 0.0, 1.0))

"""The error of a completed subspace: what the noise on the hollow moment turns, and what a descent leaves.

Noise on a moment whose diagonal is filled in turns its leading subspace more than it turns that of a whole
moment: it moves the diagonal too. So noise of the known law is added to the noisy moment once more, with
public draws, and the distance between what is then found and the answer's start is taken for the start's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from scipy.special import chdtri

from privest.arrays import Array
from privest.estimators.subspace.hetero_pca import hetero_pca
from privest.estimators.subspace.perturbation import LOST
from privest.estimators.subspace.principal_error import open_directions
from privest.estimators.uncertainty import Uncertainty
from privest.privacy.oracle import Oracle

_LEFT = 0.85
"""Most of the start's distance that a descent leaves: .5 to .97 on the half `TUNE` of the real tables."""

_LAST = 3
"""How many gradients are compared at the beginning and at the end of a descent."""

_FLATTER = 1.6
"""Factor on the pull that is left, as most of a pull is along directions that are forgotten sooner."""

_SURE = 2.0
"""Deviations of the noise by which the last pull may be longer than it is seen."""

_MARGIN = 1.15
"""Factor on the 95 % quantile, for what few draws leave open."""

_DRAWS, _WORK = (8, 40), 2e8
"""Fewest and most draws, and about how many products they take."""

_SEED = int.from_bytes(b"hollow moments")

_OFTEN = 0.1
"""Share of draws from which on it is said that directions are lost."""


@dataclass(frozen=True)
class Left:
    """What a descent leaves.

    Attributes:
        share: of the start's distance.
        noise: total standard deviation by its own noise.
    """

    share: float
    noise: float


@dataclass(frozen=True)
class Heard(Oracle):
    """An oracle whose gradients' squared lengths are kept.

    Attributes:
        gate: that answers.
        squares: are appended to.
    """

    gate: Oracle
    squares: list[float]

    @property
    def remaining(self) -> int:
        """Answers left."""
        return self.gate.remaining

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """The gate's answer."""
        found = self.gate.mean(point, statistic)
        self.squares.append(float(found @ found))
        return found

    def pick(self, count: int) -> int:
        """The gate's."""
        return self.gate.pick(count)


def pull_left(squares: Sequence[float], noises: Sequence[float], free: int) -> float:
    """The share of the start's distance that is left: of the first gradients' pull, what the last may have.

    Args:
        squares: of the lengths of noisy gradients.
        noises: their total standard deviations.
        free: numbers that these are made of.
    """
    if len(squares) < 2 * _LAST:
        return _LEFT
    noise = np.square(noises)
    first = float(np.mean(squares[:_LAST] - noise[:_LAST]))
    last = float(np.mean(squares[-_LAST:] - noise[-_LAST:]))
    unsure = _SURE * float(np.mean(noise[-_LAST:])) * sqrt(2 / (free * _LAST))
    if first <= 0:
        return _LEFT
    return min(_LEFT, _FLATTER * sqrt(max(last + unsure, 0.0) / first))


def completion_uncertainty(hollow: Array, start: Array, deviation: float, left: "Left") -> Uncertainty:
    """How far a completed subspace may be from the one that the same steps find without noise.

    Args:
        hollow: (dim, dim) noisy moment without its diagonal.
        start: (dim, rank) its leading subspace, orthonormal columns.
        deviation: of the noise on an entry.
        left: by a descent.
    """
    dim, rank = start.shape
    angles = _angles(hollow, start, deviation)
    squares: Array = np.vecdot(angles, angles)
    mean, most = float(squares.mean()), sqrt(min(rank, dim - rank)) * pi / 2
    free = 2 * mean**2 / max(float(squares.var()), 1e-300)
    free = min(max(free, 1.0), float(rank * (dim - rank)))
    square = left.share**2 * mean + left.noise**2
    radius = min(most, _MARGIN * sqrt(square * float(chdtri(free, 0.05)) / free))
    lost = int(np.quantile((angles > LOST).sum(axis=1), 1 - _OFTEN, method="higher"))
    return Uncertainty(
        of="the subspace that the same steps find without noise",
        standard_deviation=min(most, sqrt(square)),
        radius_95=radius,
        noise=radius,
        unknown=(
            "how far the division of rows by the length of their known parts turns the subspace",
            "how far few records, and few known entries of each, turn it",
        ),
        warnings=open_directions(lost, rank),
    )


def _angles(hollow: Array, start: Array, deviation: float) -> Array:
    """(draws, rank) principal angles between a start and what more noise makes of it."""
    dim, rank = start.shape
    draws = int(min(max(_WORK / (20 * dim**3), _DRAWS[0]), _DRAWS[1]))
    rng = np.random.default_rng(_SEED)
    found = np.empty((draws, rank))
    for place in range(draws):
        noise = rng.standard_normal((dim, dim)) * (deviation / sqrt(2.0))
        again = hetero_pca(hollow + noise + noise.T, rank)
        found[place] = np.arccos(np.clip(np.linalg.svd(start.T @ again, compute_uv=False), 0.0, 1.0))
    return found

"""A second moment as it is released: what its noise does to a subspace, and which directions rival it."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.subspace.perturbation import turn_by_noise
from privest.manifolds.stiefel_grassmann import Grassmann

_SEED = int.from_bytes(b"two descents")
"""Seed of the public draw of a start's error."""

_RIVAL = 0.7
"""Share of the variance along a direction of the answer from which on one outside is a rival of it."""


@dataclass(frozen=True)
class Start:
    """The basis that a moment, and a selection by more releases, gave to a descent.

    Attributes:
        basis: (dim, rank) orthonormal columns.
        selected: deviations of the noise by which selections turned it, one after the other, towards each of
            the directions that they left out.
        open: the largest angle to another start that may have been better.
    """

    basis: Array
    selected: tuple[float, ...] = ()
    open: float = 0.0


@dataclass(frozen=True)
class Directions:
    """The directions of a subspace and those beside it, each with the variance of the rows along it.

    Attributes:
        own: (rank,) variances, rising.
        turned: (rank, rank) their directions, as columns, in the subspace's basis.
        beside: (dim − rank,) variances, rising.
        away: (dim, dim − rank) their directions, as columns.
    """

    own: Array
    turned: Array
    beside: Array
    away: Array

    def tangent(self, coordinates: Array) -> Array:
        """(dim, rank) the tangent vector of these (dim − rank, rank) coordinates."""
        return self.away @ coordinates @ self.turned.T

    def coordinates(self, tangent: Array) -> Array:
        """(dim − rank, rank) the coordinates of a tangent vector."""
        return self.away.T @ tangent @ self.turned


@dataclass(frozen=True)
class NoisyMoment:
    """A second moment as it is released.

    Attributes:
        matrix: (dim, dim).
        deviation: of the noise on an orthonormal coordinate of it.
    """

    matrix: Array
    deviation: float

    def tells(self, ranks: Iterable[int]) -> bool:
        """Whether noise leaves no direction open of the leading subspace of one of these ranks."""
        eigenvalues = np.asarray(np.linalg.eigvalsh(self.matrix)[::-1], dtype=np.float64)
        below = (rank for rank in ranks if rank < len(eigenvalues))
        return any(not turn_by_noise(eigenvalues, rank, self.deviation / sqrt(2.0)).lost for rank in below)

    def directions(self, basis: Array) -> Directions:
        """What the moment tells of a subspace and its neighbourhood.

        Args:
            basis: (dim, rank) orthonormal columns.
        """
        others = np.linalg.qr(basis, mode="complete")[0][:, basis.shape[1] :]
        own, turned = np.linalg.eigh(basis.T @ self.matrix @ basis)
        beside, away = np.linalg.eigh(others.T @ self.matrix @ others)
        return Directions(own, turned, beside, others @ away)

    def start_error(self, start: Start) -> Array:
        """An error of a descent's start as large in every direction as is likely there, of public signs.

        Noise turns one direction towards another by what it is over the gap between their variances. It also
        drives the two apart, and the gap that is seen is less by that.

        Args:
            start: of this moment. Its selections turned it towards the leading directions beside it.

        Returns:
            (dim, rank) tangent vector.
        """
        at = self.directions(start.basis)
        gaps = at.own - at.beside[:, None] - self.deviation
        spread = self.deviation / (sqrt(2.0) * np.maximum(gaps, self.deviation))
        for place, deviation in enumerate(reversed(start.selected), 1):
            spread[-place] = deviation
        # Gaps so large that the spread is 0 follow from released numbers that no honest gate gives.
        length = max(float(np.linalg.norm(spread)), 1e-300)
        spread *= min(1.0, Grassmann(*start.basis.shape).natural_radius / length)
        return at.tangent(spread * np.random.default_rng(_SEED).choice([-1.0, 1.0], spread.shape))

    def rivals(self, basis: Array) -> tuple[str, ...]:
        """The warning that rows gather about a direction outside of a subspace, or none."""
        at = self.directions(basis)
        # Less what noise alone has.
        own, beside = float(at.own[0]), float(at.beside[-1]) - self.deviation * sqrt(2.0 * len(basis))
        if beside < _RIVAL * own:
            return ()
        return (
            f"rows gather about a direction outside of this subspace as well, with {beside:.0%} of their "
            f"variance where the weakest direction of it has {own:.0%}: which of them belong together was "
            "chosen, and another choice would be another subspace",
        )

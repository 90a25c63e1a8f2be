"""The default of robust PCA: it looks at released distances, and then chooses plain PCA or a robust loss.

Where all rows are of one population there is nothing to be robust against: a robust loss is flat about its
minimum, and noise turns the answer further than plain PCA's. Where some rows lie near a subspace and others
do not, only the near ones are to count. The choice is made from released numbers, and whatever it is, the
same releases are spent (see `SecondLook`): on the moment again, or on two descents on a robust loss.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.subspace.descent import principal
from privest.estimators.subspace.distances import shows_two_populations
from privest.estimators.subspace.losses import Redescending, SubspaceQuery
from privest.estimators.subspace.perturbation import Turn
from privest.estimators.subspace.principal_error import open_directions, principal_uncertainty
from privest.estimators.subspace.second_look import SecondLook
from privest.estimators.subspace.second_moment import Frame
from privest.estimators.subspace.two_descents import DescentSchedule, two_descents
from privest.estimators.uncertainty import Uncertainty
from privest.manifolds.grassmann import Grassmann
from privest.privacy.oracle import Oracle

_RIVAL = 0.7
"""Share of the variance along a direction of the answer from which on one outside is a rival of it."""


@dataclass(frozen=True)
class AdaptiveNoise:
    """Deviations of the noise on coordinates of the means that are released.

    Attributes:
        moment: on an orthonormal coordinate of the first moment.
        distances: on a share of distances.
        look: on a coordinate of a second look.
    """

    moment: float
    distances: float
    look: float


@dataclass(frozen=True)
class Adaptive:
    """What a run knows when it looks at distances.

    Attributes:
        look: the statistic of second looks.
        moment: (dim, dim) noisy moment.
        rank: r.
        n: number of records.
        center: (dim,) taken off the rows.
        noise: on what is released.
        schedule: of two descents, with a step for every second look.
    """

    look: SecondLook
    moment: Array
    rank: int
    n: int
    center: Array | None
    noise: AdaptiveNoise
    schedule: DescentSchedule

    def run(self, gate: Oracle, start: Array, scale: float) -> tuple[Array, Uncertainty]:
        """The subspace, and how far it may be from what it is taken for.

        Args:
            gate: which still owes distances and gradients.
            start: (dim, rank) orthonormal columns.
            scale: c of the redescending loss.
        """
        shares = gate.mean(Frame(start, self.center), "distances")
        if shows_two_populations(shares, self.noise.distances):
            return self._robust(gate, start, Redescending(scale))
        moment, entry = self._whole(gate)
        found = principal_uncertainty(moment, self.rank, self.n, of=principal_of(self.center), entry=entry)
        return principal(moment, self.rank), found

    def _whole(self, gate: Oracle) -> tuple[Array, float]:
        """The mean of all moments, weighed by their noise, and the deviation of an entry off its diagonal."""
        asked, count = Frame(None, self.center), len(self.schedule.steps)  # one object: it is summed once
        looks = np.sum([gate.mean(asked, "look") for _ in range(count)], axis=0)
        first, later = 1 / self.noise.moment**2, count / self.noise.look**2
        again = self.look.moment(looks / count)
        return (first * self.moment + later * again) / (first + later), 1 / sqrt(2 * (first + later))

    def _robust(self, gate: Oracle, start: Array, loss: Redescending) -> tuple[Array, Uncertainty]:
        """Two descents on a robust loss, from the start."""
        basis, turn = two_descents(
            start,
            lambda at: self.look.gradient(gate.mean(SubspaceQuery(at, loss, self.center), "look"), at),
            self.schedule,
            start_deviation(start, self.moment, self.noise.moment),
        )
        warned = rivals(basis, self.moment, self.noise.moment)
        return basis, descent_uncertainty(turn, self.rank, "redescending", warned)


def start_deviation(start: Array, moment: Array, noise: float) -> float:
    """Deviation of a start in any one direction of subspaces, by the noise on the moment that it is of.

    Args:
        start: (dim, rank) orthonormal columns.
        moment: (dim, dim) as released.
        noise: deviation of the noise on an orthonormal coordinate of it.
    """
    inside = float(np.linalg.eigvalsh(start.T @ moment @ start)[0])
    gap = inside - _outside(start, moment) - noise  # which drives the two apart
    anywhere = Grassmann(*start.shape).natural_radius / sqrt(start.size)
    return min(noise / (sqrt(2.0) * max(gap, noise)), anywhere)


def _outside(basis: Array, moment: Array) -> float:
    """The largest eigenvalue of what a subspace leaves of a moment."""
    left = moment - basis @ (basis.T @ moment)
    left -= (left @ basis) @ basis.T
    return float(np.linalg.eigvalsh(0.5 * (left + left.T))[-1])


def descent_uncertainty(turn: Turn, rank: int, loss: str, warnings: tuple[str, ...]) -> Uncertainty:
    """The uncertainty of the middle of two descents on a loss."""
    return Uncertainty(
        of=f"the subspace that the same descent on the {loss} loss finds without noise",
        standard_deviation=turn.standard_deviation,
        radius_95=turn.radius_95,
        noise=turn.radius_95,
        unknown=(
            "how far the same descent on very many records like these would end from here",
            "whether another subspace holds as many rows as this one",
        ),
        warnings=(*open_directions(turn.lost, rank), *warnings),
    )


def rivals(basis: Array, moment: Array, noise: float) -> tuple[str, ...]:
    """The warning that rows gather about a direction outside of a subspace, or none."""
    own = float(np.linalg.eigvalsh(basis.T @ moment @ basis)[0])
    outside = _outside(basis, moment) - noise * sqrt(2.0 * len(basis))  # less what noise alone has
    if outside < _RIVAL * own:
        return ()
    return (
        f"rows gather about a direction outside of this subspace as well, with {outside:.0%} of their "
        f"variance where the weakest direction of it has {own:.0%}: which of them belong together was "
        "chosen, and another choice would be another subspace",
    )


def principal_of(center: Array | None) -> str:
    """What plain PCA finds, in words."""
    about = "" if center is None else ", less the released centre"
    return f"the principal subspace of these records{about}, each divided by its length"

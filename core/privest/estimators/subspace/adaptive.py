"""The default of robust PCA: it looks at released distances, and then chooses plain PCA or a robust loss.

Where all rows are of one population there is nothing to be robust against: a robust loss is flat about its
minimum, and noise turns the answer further than plain PCA's. Where some rows lie near a subspace and others
do not, only the near ones are to count. But where noise leaves open where descents start, they may end
anywhere, and plain PCA tells by how much. The choice is made from released numbers, and whatever it is, the
same releases are spent (see `SecondLook`): on the moment again, or on two descents on a robust loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.data.tables import Recipe
from privest.estimators.subspace.descent import principal
from privest.estimators.subspace.distances import shows_two_populations
from privest.estimators.subspace.losses import Redescending, SubspaceQuery
from privest.estimators.subspace.noisy_moment import NoisyMoment, Start
from privest.estimators.subspace.perturbation import Turn
from privest.estimators.subspace.principal_error import open_directions, principal_uncertainty
from privest.estimators.subspace.second_look import SecondLook
from privest.estimators.subspace.second_moment import Frame
from privest.estimators.subspace.two_descents import DescentSchedule, two_descents
from privest.estimators.uncertainty import Uncertainty
from privest.privacy.oracle import Oracle

_TURNED = "how far the noise on the released centre turns the subspace"


@dataclass(frozen=True)
class Adaptive:
    """What a run knows when it looks at distances.

    Attributes:
        look: the statistic of second looks.
        moment: the first one.
        noise: deviations of the noise on what else is released, a coordinate of it, by name.
        rank: r.
        n: number of records.
        center: (dim,) taken off the rows.
        schedule: of two descents, with a step for every second look.
        of: what plain PCA finds, in words.
    """

    look: SecondLook
    moment: NoisyMoment
    noise: Mapping[str, float]
    rank: int
    n: int
    center: Array | None
    schedule: DescentSchedule
    of: str

    def run(self, gate: Oracle, start: Start, scale: float) -> tuple[Array, Uncertainty, Array]:
        """The subspace, how far it may be from what it is taken for, and the second moment of all rows.

        Args:
            gate: which still owes distances and gradients.
            start: from where.
            scale: c of the redescending loss.
        """
        shares = gate.mean(Frame(start.basis, self.center), "distances")
        robust = shows_two_populations(shares, self.noise["distances"])
        if robust and self.moment.tells(range(self.rank, self.rank + len(start.selected) + 1)):
            return *self._robust(gate, start, Redescending(scale)), self.moment.matrix
        moment, entry = self._whole(gate)
        found = principal_uncertainty(moment, self.rank, self.n, of=self.of, entry=entry)
        return principal(moment, self.rank), found, moment

    def _whole(self, gate: Oracle) -> tuple[Array, float]:
        """The mean of all moments, weighed by their noise, and the deviation of an entry off its diagonal."""
        asked, count = Frame(None, self.center), len(self.schedule.steps)  # one object: it is summed once
        looks = np.sum([gate.mean(asked, "look") for _ in range(count)], axis=0)
        first, later = 1 / self.moment.deviation**2, count / self.noise["look"] ** 2
        again = self.look.moment(looks / count)
        return (first * self.moment.matrix + later * again) / (first + later), 1 / sqrt(2 * (first + later))

    def _robust(self, gate: Oracle, start: Start, loss: Redescending) -> tuple[Array, Uncertainty]:
        """Two descents on a robust loss, from the start."""
        basis, turn = two_descents(
            start,
            lambda at: self.look.gradient(gate.mean(SubspaceQuery(at, loss, self.center), "look"), at),
            self.schedule,
            self.moment,
        )
        rivals = self.moment.rivals(basis)
        return basis, descent_uncertainty(turn, self.rank, "redescending", self.center, rivals)


def descent_uncertainty(
    turn: Turn, rank: int, loss: str, center: Array | None, warnings: tuple[str, ...]
) -> Uncertainty:
    """The uncertainty of the middle of two descents on a loss."""
    about, turned = ("", ()) if center is None else (", about the released centre", (_TURNED,))
    return Uncertainty(
        of=f"the subspace that the same descent on the {loss} loss finds without noise{about}",
        standard_deviation=turn.standard_deviation,
        radius_95=turn.radius_95,
        noise=turn.radius_95,
        unknown=(
            "how far the same descent on very many records like these would end from here",
            "whether another subspace holds as many rows as this one",
            *turned,
        ),
        warnings=(*open_directions(turn.lost, rank), *warnings),
    )


def principal_of(center: Array | None, recipe: Recipe | None = None) -> str:
    """What plain PCA finds, in words: of rows, or of a table's columns in the units of their bounds."""
    if recipe is not None and recipe.is_bounded:
        about = "" if center is None else "less the released means and "
        return (
            "the principal subspace of these records, each column divided by half its declared range and "
            f"each record {about}divided by its length"
        )
    about = "" if center is None else ", less the released centre"
    return f"the principal subspace of these records{about}, each divided by its length"

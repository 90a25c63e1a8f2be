"""Predicted errors of matrix completion, from public facts and a stated picture of the rows.

Each entry of a row is known with the declared probability. The picture of a moment: the variances along its
axes fall as 1/k, as they do on many real tables. Predictions rest on it; no guarantee does. Errors are
squares of the length of the vector of principal angles.
"""

from dataclasses import dataclass

import numpy as np

from privest.estimators.subspace.schedule import right_angles

_SMALL_GAP = 0.01
"""Share of the variance by which, in the unfavourable case, no direction exceeds one outside the subspace."""


@dataclass(frozen=True)
class DataModel:
    """Public facts of rows with unknown entries, and the subspace that is sought.

    Attributes:
        n: number of rows.
        dim: D, their length.
        rank: r.
        known: share of entries that are known.
    """

    n: int
    dim: int
    rank: int
    known: float

    @property
    def free(self) -> int:
        """Dimension of the Grassmann manifold."""
        return self.rank * (self.dim - self.rank)

    @property
    def seen(self) -> float:
        """Share of a residual that is left by coefficients that are fitted to the known entries.

        They take r of these: as much less is seen, and as much less of it pulls the right way.
        """
        return max(0.0, 1 - self.rank / (self.known * self.dim))

    def moment_error(self, deviation: float) -> float:
        """Square of the angle by which noise turns the leading subspace of a moment, as in the picture.

        Args:
            deviation: of the noise on an orthonormal coordinate of the mean; on an entry, √2 less.
        """
        shares = 1 / np.arange(1, self.dim + 1)
        shares *= self._beside / shares.sum()
        gaps = shares[: self.rank, None] - shares[self.rank :]
        return min(right_angles(self.rank), float((deviation**2 / 2 / gaps**2).sum()))

    def small_gap_error(self, deviation: float) -> float:
        """What `moment_error` is where no direction stands out by more than `_SMALL_GAP`."""
        gap = _SMALL_GAP * self._beside
        return min(right_angles(self.rank), self.free * deviation**2 / 2 / gap**2)

    @property
    def _beside(self) -> float:
        """Share of a row's entries that are known beside one that is, by which the noiseless moment falls."""
        return max(self.known * self.dim - 1, self.known) / (self.dim - 1)

"""Steps and predicted errors of matrix completion, from public facts and a stated picture of the rows.

Each entry of a row is known with the declared probability. The picture of a moment: the variances along its
axes fall as 1/k, as they do on many real tables. That of a descent: rows lie in the subspace exactly, evenly
spread in it. Predictions rest on these; no guarantee does. Errors are squares of the length of the vector of
principal angles.
"""

from dataclasses import dataclass
from math import asin, sqrt

import numpy as np

from privest.estimators.subspace.schedule import right_angles

_BENT = 0.36
"""Squared angle by which the start turns as rows are divided by the length of their known part, times the
number of known entries. An upper bound measured for 5 to 30 known entries."""

_CURVATURE = 0.8
"""Curvature of the clipped loss over that of least squares: measured, for a tenth or more known."""

_SMALL_GAP = 0.01
"""Share of the variance by which, in the unfavourable case, no direction exceeds one outside the subspace."""

_NEAREST = 0.1
"""Rows are not taken to be nearer to the subspace than this, as a share of their length: clips fall no
further, so that rows somewhat off it still pull."""


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

    def start_error(self, deviation: float) -> float:
        """Square of the angle by which the subspace of a noisy moment is expected to miss that of the rows.

        By the noise, by the choice of known entries in finitely many rows, and by the rows' division by
        different lengths, which does not fall with the others. Noise whose variance is x times the square of
        a direction's eigenvalue turns it by sin² = x, until it is lost (Benaych-Georges and Nadakuditi 2011).

        Args:
            deviation: of the noise on an orthonormal coordinate of the mean; on an entry, √2 less.
        """
        gap = self.known / self.rank
        variance = deviation**2 / 2 + 1 / (self.n * self.dim**2)
        turned = (self.free * variance / gap**2 + _BENT / (self.known * self.dim)) / self.rank
        return self.rank * asin(sqrt(min(turned, 1.0))) ** 2

    def descent(
        self, error: float, deviation: float, count: int, longest: float | None, damping: float = 1.0
    ) -> tuple[list[float], list[float], float]:
        """Clips and lengths of steps, and the square of the distance at their end.

        At a distance e rows pull by about e/√(rp), which is the clip, and on average by he with h ≤ 1/r. The
        step that leaves least is that of a Kalman filter, ηh = h²e²/(h²e² + s²) against noise of total
        deviation s: long where the distance is what counts, an average of noisy gradients where noise is.

        Args:
            error: square of the distance at the start.
            deviation: of the noise on a coordinate of a mean gradient, over its clip.
            count: of steps.
            longest: step there may be; r, a Newton step, unless it is given.
            damping: factor on the lengths of steps.
        """
        curvature = _CURVATURE * self.seen**2 / self.rank  # the square is what was measured
        longest = damping * self.rank if longest is None else longest
        clips, steps = list[float](), list[float]()
        for _ in range(count):
            clip = max(sqrt(error), _NEAREST) / sqrt(self.rank * self.known)
            noise = self.free * (deviation * clip) ** 2
            step = min(longest, damping * curvature * error / (curvature**2 * error + noise))
            error = min(right_angles(self.rank), (1 - curvature * step) ** 2 * error + step**2 * noise)
            clips.append(clip)
            steps.append(step)
        return clips, steps, error

"""Matrix completion of a table with bounds: what is left of rows after column and row means, and how well it
is completed.

A row of values within [−1, 1] is taken to be the columns' means, plus a mean of its own, plus a point of
the subspace, plus noise. The columns' means are released. A row's own mean and its point follow from its own
known entries, by least squares with a ridge, and are never released.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array
from privest.estimators.subspace.gap_moment import GapMoment
from privest.privacy.clipping import any_floats

_OWN = 1.0
"""Known entries by which a row's own mean is drawn to 0: as many of value 0 count beside its own."""

_FOLDS = 5
"""Parts of the columns, each of which is held out once."""

_SEED = int.from_bytes(b"held out")
"""Seed of the public draw of these parts."""

_LEAST_RIDGE, _MOST_RIDGE = 1e-3, 1e3


@any_floats
def _known(rows: Array) -> tuple[Array, Array]:
    """Values within [−1, 1], with zeros for what is not known, and ones where an entry is known."""
    known = ~np.isnan(rows)
    return np.where(known, np.clip(np.nan_to_num(rows), -1.0, 1.0), 0.0), known.astype(np.float64)


@dataclass(frozen=True)
class KnownSums:
    """Σ of a row's known values and of ones where they are known, both over the root of how many they are.

    Attributes:
        dim: D, length of a row.
    """

    dim: int

    description = "the sums and counts of known entries"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return 2 * self.dim

    def diameter(self, clip: float) -> float:
        """√2·clip: with a and k the two parts of a vector, |a_j| ≤ k_j and |k| = 1.

        |k − k′|² = 2 − 2k·k′, and |a − a′|² ≤ 2 + 2|a|·|a′| ≤ 2 + 2k·k′, so that both are at most 4 together,
        in vectors of length √2 at most, which are shortened to the clip.
        """
        return sqrt(2.0) * clip

    def clipped_sum(self, _: object, rows: Array, clip: float) -> Array:
        """Σ over rows of vectors of length `clip` at most; see `Statistic`."""
        values, known = _known(rows)
        weight = clip / np.sqrt(2.0 * np.maximum(known.sum(axis=1), 1.0))
        return np.concatenate([weight @ values, weight @ known])

    def means(self, released: Array, deviation: float) -> Array:
        """(dim,) means of the columns, drawn to the mean of all by as much as noise hides them.

        Args:
            released: (size,) mean.
            deviation: of the noise on each of its numbers.
        """
        sums, counts = released[: self.dim], np.maximum(released[self.dim :], deviation)
        middle = float(sums.sum() / counts.sum())
        off, noise = sums / counts - middle, (deviation / counts) ** 2
        spread = max(float(np.mean(off**2 - noise)), 0.0)
        kept = spread / np.maximum(spread + noise, 1e-300)
        return np.clip(middle + kept * off, -1.0, 1.0)


def _left(values: Array, known: Array, means: Array) -> tuple[Array, Array]:
    """What column and row means leave of known values, with zeros elsewhere; and the (n,) row means."""
    off = known * (values - means)
    own = off.sum(axis=1) / (known.sum(axis=1) + _OWN)
    return off - known * own[:, None], own


@dataclass(frozen=True)
class LeftMoment:
    """The moment of what column means and the rows' own means leave of the known entries.

    Attributes:
        dim: D, length of a row.
    """

    dim: int

    description = "the second moment of what means leave of the known entries"

    @property
    def moment(self) -> GapMoment:
        """The moment, of rows as they are."""
        return GapMoment(self.dim)

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.moment.size

    def diameter(self, clip: float) -> float:
        """The moment's own, whatever the rows are."""
        return self.moment.diameter(clip)

    def clipped_sum(self, means: Array, rows: Array, clip: float) -> Array:
        """Σ over rows, about the (dim,) `means`; see `Statistic`."""
        values, known = _known(rows)
        left = np.where(known > 0, _left(values, known, means)[0], np.nan)
        return self.moment.clipped_sum(None, left, clip)


@dataclass(frozen=True)
class Completed:
    """A fitted completion.

    Attributes:
        means: (dim,) of the columns.
        basis: (dim, rank).
        ridge: (rank,) penalty on a row's coefficient of each direction.
    """

    means: Array
    basis: Array
    ridge: Array

    def values(self, rows: Array, known: Array) -> Array:
        """(n, dim) completed rows, by their known values and zeros elsewhere."""
        left, own = _left(rows, known, self.means)
        rank = self.basis.shape[1]
        products = (self.basis[:, :, None] * self.basis[:, None, :]).reshape(len(self.basis), -1)
        gram = (known @ products).reshape(-1, rank, rank) + np.diag(self.ridge)
        weights = np.linalg.solve(gram, (left @ self.basis)[..., None])[..., 0]
        return np.clip(self.means + own[:, None] + weights @ self.basis.T, -1.0, 1.0)


def ridge_of(eigenvalues: Array, rank: int, noise: float) -> Array:
    """(rank,) the ridge of best prediction: the variance off the subspace over that along each direction.

    Args:
        eigenvalues: (dim,) of the moment of whole rows, the largest first.
        rank: r.
        noise: by which noise raises the largest eigenvalues.
    """
    beside = max(float(np.mean(eigenvalues[rank:])), 1e-12)
    along = np.maximum(eigenvalues[:rank] - noise - beside, 1e-12)
    return np.clip(beside / along, _LEAST_RIDGE, _MOST_RIDGE)


@dataclass(frozen=True)
class HeldOut:
    """Σ of rows' mean squared errors on entries that are held out: of a completion, and of column means.

    Every known entry is held out once, in a part of the columns. A mean counts as 1 at most, and
    that of a row without known entries as 0.
    """

    description = "the errors on entries that are held out"
    size = 2

    def diameter(self, clip: float) -> float:
        """Both numbers are between 0 and clip/√2."""
        return clip

    def clipped_sum(self, point: Completed, rows: Array, clip: float) -> Array:
        """Σ over rows; see `Statistic`."""
        values, known = _known(rows)
        dim = values.shape[1]
        parts = np.random.default_rng(_SEED).permutation(dim) % min(_FOLDS, dim)
        squares = np.zeros(len(values))
        for part in range(min(_FOLDS, dim)):
            out = (parts == part).astype(np.float64)
            shown = known * (1 - out)
            off = (values - point.values(values * shown, shown)) ** 2
            squares += (known * out * off).sum(axis=1)
        alone = (known * (values - point.means) ** 2).sum(axis=1)
        told = np.stack([squares, alone], axis=1) / np.maximum(known.sum(axis=1), 1.0)[:, None]
        return clip / sqrt(2.0) * np.minimum(np.nan_to_num(told), 1.0).sum(axis=0)

    def errors(self, released: Array) -> tuple[float, float]:
        """Root mean square errors of the completion and of the column means, in halves of declared widths."""
        first, second = (sqrt(min(max(sqrt(2.0) * float(each), 0.0), 1.0)) for each in released)
        return first, second

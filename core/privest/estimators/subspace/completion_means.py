"""Matrix completion of a table with bounds: what is left of rows after column and row means, and how well it
is completed.

A row of values within [−1, 1] is taken to be the columns' means, plus a mean of its own, plus a point of
the subspace, plus noise. The columns' means are released. A row's own mean and its point follow from its own
known entries, by least squares with a ridge, and are never released.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array, seen_by
from privest.estimators.subspace.gap_moment import GapMoment
from privest.estimators.subspace.spherical import orthonormal
from privest.privacy.clipped_sums import any_floats

_OWN = 1.0
"""Known entries by which a row's own mean is drawn to 0: as many of value 0 count beside its own."""

_FOLDS = 5
"""Parts of the columns, each of which is held out once."""

_SEED = int.from_bytes(b"held out")
"""Seed of the public draw of these parts."""

_LEAST_RIDGE, _MOST_RIDGE = 1e-3, 1e3

_LOUD = 0.3
"""Noise on the columns' means, over the size of entries about them, from which on an answer warns."""

_SURE = 2.0
"""Deviations of the noise that a difference of errors has to exceed to be seen."""


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

    def means(self, released: Array, deviation: float) -> tuple[Array, float]:
        """Return (dim,) means of the columns, drawn to the mean of all by as much as noise hides them.

        The root mean square of the noise on a column's mean before that stands beside them.

        Args:
            released: (size,) mean.
            deviation: of the noise on each of its numbers.
        """
        sums, counts = released[: self.dim], np.maximum(released[self.dim :], deviation)
        middle = float(sums.sum() / counts.sum())
        off, noise = sums / counts - middle, (deviation / counts) ** 2
        spread = max(float(np.mean(off**2 - noise)), 0.0)
        kept = spread / np.maximum(spread + noise, 1e-300)
        return np.clip(middle + kept * off, -1.0, 1.0), sqrt(float(np.mean(noise)))


def _within_bounds(means: Array) -> Array:
    """Return means within [−1, 1], with 0 for NaN: what is asked about may be any floats."""
    return np.clip(np.nan_to_num(means), -1.0, 1.0)


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
        left = np.where(known > 0, _left(values, known, _within_bounds(means))[0], np.nan)
        return self.moment.clipped_sum(None, left, clip)


@dataclass(frozen=True)
class Completed:
    """A fitted completion.

    Attributes:
        means: (dim,) of the columns, within [−1, 1].
        basis: (dim, rank) orthonormal columns; coordinate axes take the place of others.
        ridge: (rank,) penalty on a row's coefficient of each direction. Its least value keeps every row's
            equations solvable.
    """

    means: Array
    basis: Array
    ridge: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "means", _within_bounds(self.means))
        object.__setattr__(self, "basis", orthonormal(self.basis))
        ridge = np.nan_to_num(self.ridge, nan=_MOST_RIDGE)
        object.__setattr__(self, "ridge", np.clip(ridge, _LEAST_RIDGE, _MOST_RIDGE))

    def values(self, rows: Array, known: Array) -> Array:
        """Return (n, dim) completed rows, by their known values and zeros elsewhere."""
        left, own = _left(rows, known, self.means)
        rank = self.basis.shape[1]
        products = (self.basis[:, :, None] * self.basis[:, None, :]).reshape(len(self.basis), -1)
        gram = seen_by(known, np.ascontiguousarray(products.T)).reshape(-1, rank, rank) + np.diag(self.ridge)
        along = seen_by(left, np.ascontiguousarray(self.basis.T))
        weights: Array = np.linalg.solve(gram, along[..., None])[..., 0].astype(np.float64)
        return np.clip(self.means + own[:, None] + seen_by(weights, self.basis), -1.0, 1.0)


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

    def errors(self, released: Array, deviation: float) -> "HeldOutErrors":
        """Return the errors by a released mean with the clip 1.

        Args:
            released: (2,) mean.
            deviation: of the noise on each of its numbers.
        """
        squares = np.clip(sqrt(2.0) * released, 0.0, 1.0)
        return HeldOutErrors(float(squares[0]), float(squares[1]), sqrt(2.0) * deviation)


@dataclass(frozen=True)
class HeldOutErrors:
    """Noisy mean squared errors on entries that are held out, in halves of declared widths.

    Attributes:
        completed: square of a completion's error.
        alone: square of the column means' error.
        deviation: of the noise on each of the two squares.
    """

    completed: float
    alone: float
    deviation: float

    def warnings(self, noise: float) -> Iterator[str]:
        """Yield the warnings that means may be noise, and that completed entries are not seen to be better.

        Args:
            noise: root mean square of the noise on a column's mean.
        """
        length = sqrt(max(self.alone - _SURE * self.deviation, 0.0))
        if (share := min(1.0, noise / max(length, 1e-300))) >= _LOUD:
            yield (
                f"the noise on the released means is up to {share:.0%} as large as an entry less its "
                "column's mean usually is, so that directions may be those of this noise: declare closer low "
                "and high, take fewer columns or a larger epsilon"
            )
        if self.alone - self.completed <= _SURE * sqrt(2.0) * self.deviation:
            yield (
                "entries that were held out are not seen to be completed better "
                f"({sqrt(self.completed):.3g}) than by the means of their columns ({sqrt(self.alone):.3g}): "
                "take a smaller rank or a larger epsilon"
            )

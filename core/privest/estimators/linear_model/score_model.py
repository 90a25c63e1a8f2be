"""Information of labelled rows about logistic weights, by noisy moments of the features."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from scipy.special import expit, softmax

from privest.arrays import Array

_DAMPING = 0.7
"""Least eigenvalue of the moment to divide by, as a share of the noise's largest eigenvalue."""

_DRAWS = 2_000
"""Number of Gaussian scores to average over."""

_WHOLE = 400
"""Size up to which the Hessian is solved whole, in the directions along which scores vary."""

_SURE = 1e-6
"""Least variance of a row's label, as errors would vanish without any."""

_RARE = 1e-3
"""Least eigenvalue of the Hessian, as a share of the largest, as some class may have few rows."""


@dataclass(frozen=True)
class Moment:
    """A noisy second moment of vectors at most one long, made fit to be divided by.

    Its eigenvalues are put on a simplex, as the trace is at most one. Where noise rules they are damped,
    e to √(e² + l²), with l in proportion to the noise's largest eigenvalue.

    Attributes:
        noisy: (size, size).
        deviation: of the noise on an entry of the diagonal; off it, of √2 times the entry.
        ridge: added to every eigenvalue.
    """

    noisy: Array
    deviation: float
    ridge: float = 0.0

    @cached_property
    def _eigen(self) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(self.noisy)
        # Two standard deviations up: the trace is close to one more often than noise has it.
        trace = float(np.sum(values)) + 2 * self.deviation * sqrt(len(values))
        trace = min(max(trace, 1e-6), 1.0)
        return trace * on_simplex(values / trace), vectors

    @cached_property
    def clean(self) -> Array:
        """(size, size): with the eigenvalues on the simplex."""
        values, vectors = self._eigen
        return (vectors * values) @ vectors.T

    @cached_property
    def whitening(self) -> Array:
        """(size, size): S, with S·Sᵀ the damped inverse, so that Sᵀx has about the second moment I."""
        values, vectors = self._eigen
        loud = _DAMPING * self.deviation * sqrt(2 * len(values))
        return vectors / np.sqrt(np.hypot(values, loud) + self.ridge)

    @cached_property
    def ridge_shares(self) -> Array:
        """(size,): of what the columns of S divide by, the part that is the ridge."""
        return np.minimum(self.ridge * np.sum(self.whitening**2, axis=0), 1 - 1e-9)

    @cached_property
    def inverse(self) -> Array:
        """(size, size): S·Sᵀ."""
        return self.whitening @ self.whitening.T


class ScoreModel:
    """The logistic loss at some weights, as if features were Gaussian: all that it takes is two moments.

    The gradient is E[(y − p) ⊗ x] for p the softmax or the logistic function of scores Wx, and the Hessian
    E[P ⊗ xxᵀ] for P = diag(p) − ppᵀ or p(1 − p). In whitened coordinates, across the directions along which
    scores vary, the latter is E[P] ⊗ I; along them both are averaged over drawn scores.

    Args:
        weights: (columns, size).
        moment: second moment of x.
        mean: (size,) of x.
    """

    def __init__(self, weights: Array, moment: Moment, mean: Array) -> None:
        columns, self._whitening = len(weights), moment.whitening
        self._kept = np.sqrt(1 - moment.ridge_shares)
        # Sᵀ is inverted through its orthogonal columns.
        scores = weights @ (self._whitening / np.sum(self._whitening**2, axis=0))
        leading = np.linalg.svd(scores, full_matrices=False).Vh[: max(1, _WHOLE // columns)]
        white = mean @ self._whitening
        self._along = np.linalg.qr(np.vstack([white, leading]).T)[0]
        drawn = _draws(white @ self._along)
        chances = _chances(drawn @ (scores @ self._along).T)
        spread = _spread(chances)
        width = drawn.shape[1]
        outer = np.einsum("ni,nj->nij", drawn, drawn).reshape(_DRAWS, -1)
        whole = (spread.reshape(_DRAWS, -1).T @ outer / _DRAWS).reshape(columns, columns, width, width)
        whole = whole.transpose(0, 2, 1, 3).reshape(columns * width, -1)
        self._across = _inverse(spread.mean(axis=0), columns)
        self._within = _inverse(whole, columns).reshape(columns, width, columns, width)

    def sampling(self, column: int) -> Array:
        """(size, size): n times a column's covariance by the sampling of n rows.

        A block on the diagonal of the Hessian's inverse, of which a ridge r leaves e/(e + r) of what an
        eigenvalue e of the moment has: gradients vary by the Hessian of the data, and steps divide by that
        with the ridge.
        """
        across, within = self._blocks(column)
        whitening = self._whitening * self._kept
        seen = whitening @ self._along
        return across[column] * (whitening @ whitening.T) + seen @ within[column] @ seen.T

    def _blocks(self, column: int) -> tuple[Array, Array]:
        """A row of blocks of the inverse is a·S·Sᵀ + S·Q·W·Qᵀ·Sᵀ each: all a, and all W."""
        across, width = self._across[column], self._along.shape[1]
        return across, self._within[column].transpose(1, 0, 2) - across[:, None, None] * np.eye(width)


def mean_of(moment: Moment, constant: float) -> Array:
    """(size,) mean of vectors whose last coordinate is a constant, by their noisy second moment.

    Shortened by the noise's part in its length (James and Stein 1961): most means are public, and taken off.
    Without a constant nothing is known of the mean, and it is taken for zero.
    """
    if not constant:
        return np.zeros(len(moment.noisy))
    mean = moment.clean[:, -1] / constant
    inverse = moment.inverse[:-1, :-1]
    own = (moment.deviation / constant) ** 2 / 2 * float(np.trace(inverse))
    seen = float(mean[:-1] @ inverse @ mean[:-1])
    mean[:-1] *= max(0.0, 1 - own / max(seen, 1e-300))
    mean[-1] = constant
    return mean


def _draws(mean: Array) -> Array:
    """(draws, size) of a normal law with this mean and the second moment I, which they have exactly.

    They are the same whenever asked for: public, and no run's noise.
    """
    drawn = np.random.default_rng(5).standard_normal((_DRAWS // 2, len(mean)))
    drawn = np.vstack([drawn, -drawn])
    drawn = drawn @ np.linalg.inv(np.linalg.cholesky(drawn.T @ drawn / _DRAWS)).T.astype(np.float64)
    length = min(float(np.linalg.norm(mean)), 1 - 1e-9)
    if length > 0:
        # Shortened along the mean, which takes its part of the second moment.
        unit = mean / np.linalg.norm(mean)
        drawn += np.outer((drawn @ unit) * (sqrt(1 - length**2) - 1) + length, unit)
    return drawn


def _chances(scores: Array) -> Array:
    return expit(scores) if scores.shape[1] == 1 else softmax(scores, axis=1)


def _spread(chances: Array) -> Array:
    """(draws, columns, columns): p(1 − p), or diag(p) − ppᵀ; never quite 0, however far out scores are."""
    count = max(chances.shape[1], 2)
    chances = (1 - _SURE) * chances + _SURE / count
    if chances.shape[1] == 1:
        return (chances * (1 - chances))[..., None]
    return np.eye(chances.shape[1]) * chances[:, None] - chances[:, :, None] * chances[:, None, :]


def _inverse(hessian: Array, columns: int) -> Array:
    """The inverse on contrasts of columns, as what moves all classes alike changes no probability."""
    values, vectors = np.linalg.eigh(hessian)
    if columns > 1:
        parts = vectors.reshape(columns, -1, len(values))
        vectors = (parts - parts.mean(axis=0)).reshape(vectors.shape)
    return (vectors / np.maximum(values, _RARE * values[-1])) @ vectors.T


def on_simplex(values: Array) -> Array:
    """The nearest vector with entries from 0 on and the sum 1 (Held, Wolfe and Crowder 1974)."""
    # Less the largest, which changes nothing but rounding: values may be far beyond 1.
    values = values - np.max(values)
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, len(values) + 1)
    level = excess[np.count_nonzero(falling > excess) - 1]
    return np.maximum(values - level, 0.0)

"""The logistic loss's gradient with its curvature, and what rows that are shortened would add to it."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import expit, softmax

from privest.arrays import Array, SymmetricCoordinates, seen_by
from privest.estimators.linear_model.losses.logistic import Classifier

BANDS = np.array([1.0, 2.0, 4.0, 8.0])
"""Where bands of far rows begin, as lengths over the bound; the last has no end."""

_FARTHEST = 1e3
"""Length over the bound beyond which rows count as being there."""

_LEFT, _SHARES = 0.95, 0.22
"""Weights of what far rows would add, and of their shares; see `CurvedGradient.longest`."""


class Curved(NamedTuple):
    """A released mean of a `CurvedGradient`, by its parts.

    Attributes:
        pull: (columns, width) mean negative gradient; far rows have the weight 1/length².
        left: (bands, columns, width) what that weight takes away, of rows that are cut to length one.
        shares: (bands,) of rows, each as far as its weight is below 1.
        energy: (width,) share of every coordinate in the squared length of such rows.
        curvature: (columns·width, columns·width) Hessian of the weighted loss.
    """

    pull: Array
    left: Array
    shares: Array
    energy: Array
    curvature: Array


@dataclass(frozen=True)
class CurvedGradient:
    """Σ of a row's weighted negative gradient and Hessian, and of what the weight leaves out.

    A row x, of any length, has the weight w = min(1, 1/|x|²). It adds w(e_y − p) ⊗ x and w·P ⊗ xxᵀ for
    P = diag(p) − ppᵀ; of two classes e_y − p and P are numbers. These belong to one weighted loss, whose
    minimiser is the true one wherever the model holds, however weights depend on x (Künsch et al. 1989). Of
    rows with w < 1 it adds (1 − w)(e_y − p) ⊗ x/|x| to a band of lengths, and the shares.

    Attributes:
        width: length of what a classifier sees of a row.
        classes: number of classes.
    """

    width: int
    classes: int

    description = "the mean gradient, its curvature, and what far rows would add"

    @property
    def columns(self) -> int:
        """Columns of weights."""
        return 1 if self.classes == 2 else self.classes

    @property
    def free(self) -> float:
        """Number of free coordinates of a gradient: of more than two classes those of contrasts."""
        return float(self.width if self.columns == 1 else (self.columns - 1) * self.width)

    @cached_property
    def symmetric(self) -> SymmetricCoordinates:
        """Coordinates of the Hessian."""
        return SymmetricCoordinates(self.columns * self.width)

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        bands = len(BANDS)
        return (1 + bands) * self.columns * self.width + bands + self.width + self.symmetric.size

    @property
    def longest(self) -> float:
        """Length of the longest vector that a row can have: that of the longest gradient alone.

        Two classes, with r = |y − p| and P = r(1 − r): r² + 11P² ≤ 1, as r²(1 − r) is at most (1 + r)/11.
        More, with r = |e_y − p|: 2 − r² = 1 − |p|² + 2p_y ≥ tr P ≥ 2|P|², no eigenvalue of P being above ½
        (Böhning 1992), so that r² + 2|P|² ≤ 2. With a² = .9025 the Hessian's factor is √(11a²), or √(2a²),
        and a row with 1 − w = u has a squared length of at most r²(1 − u + a²u²) + 2(.22u)²·q + (factor·|P|)²
        for q = 1, or 2. That is convex in u: for u = 0 it is at most q, and for u = 1 at most (a² + .0968)q.
        """
        return 1.0 if self.classes == 2 else sqrt(2.0)

    @property
    def curvature_weight(self) -> float:
        """Factor on the Hessian in the sum."""
        return _LEFT * sqrt(11.0 if self.classes == 2 else 2.0)

    @property
    def left_weight(self) -> float:
        """Factor on what far rows would add."""
        return _LEFT

    @property
    def share_weight(self) -> float:
        """Factor on the shares of far rows."""
        return _SHARES * self.longest

    def diameter(self, clip: float) -> float:
        """Two gradients may be opposite."""
        return 2.0 * clip

    def clipped_sum(self, point: Classifier, rows: Array, clip: float) -> Array:
        """Σ over rows of vectors of length at most `clip`; see `Statistic`."""
        x = point.feature_map.features(rows, longest=_FARTHEST)
        squared = np.vecdot(x, x)
        kept = 1.0 / np.maximum(squared, 1.0)
        pull, chances = self._pull(point, rows, x)
        spread = chances * (1 - chances) if self.columns == 1 else _spread(chances)
        size = np.vecdot(pull, pull) * (kept**2 * squared + (_LEFT * (1 - kept)) ** 2)
        size += 2 * (self.share_weight * (1 - kept)) ** 2
        bent = np.sum(spread.reshape(len(x), -1) ** 2, axis=1)
        size += (self.curvature_weight * kept * squared) ** 2 * bent
        shrink = clip / np.maximum(np.sqrt(size), clip)
        in_band = BANDS[:, None] <= np.sqrt(squared)
        in_band[:-1] &= ~in_band[1:]
        left = in_band * ((1 - kept) * shrink)
        far = left / np.sqrt(np.maximum(squared, 1.0))
        pulls = [pull * (kept * shrink)[:, None], *(pull * (_LEFT * each)[:, None] for each in far)]
        energy = (left.sum(axis=0) / np.maximum(squared, 1.0)) @ (x * x)
        parts = (
            (np.hstack(pulls).T @ x).ravel(),
            self.share_weight * left.sum(axis=1),
            self.share_weight * energy,
            self.curvature_weight * self._hessian(x, chances, kept * shrink),
        )
        return np.concatenate(parts)

    def _pull(self, point: Classifier, rows: Array, x: Array) -> tuple[Array, Array]:
        """(n, columns) of e_y − p, and of p."""
        labels = point.feature_map.labels(rows, self.classes)
        if self.classes == 2:
            chances = np.asarray(expit(np.vecdot(x, point.weights)), dtype=np.float64)[:, None]
            return labels[:, None] - chances, chances
        each: Array = softmax(seen_by(x, point.weights), axis=1)
        pull = -each
        pull[np.arange(len(x)), labels] += 1.0
        return pull, each

    def _hessian(self, x: Array, chances: Array, weight: Array) -> Array:
        """Coordinates of Σ weight·P ⊗ xxᵀ."""
        if self.columns == 1:
            bent = weight * chances[:, 0] * (1 - chances[:, 0])
            return self.symmetric.of((x * bent[:, None]).T @ x)
        whole = np.empty((self.columns, self.width, self.columns, self.width))
        for i in range(self.columns):
            for j in range(i, self.columns):
                bent = weight * chances[:, i] * ((i == j) - chances[:, j])
                whole[i, :, j, :] = (x * bent[:, None]).T @ x
                whole[j, :, i, :] = whole[i, :, j, :].T
        return self.symmetric.of(whole.reshape(2 * [self.columns * self.width]))

    def parts(self, mean: Array) -> Curved:
        """A released mean by its parts; of more than two classes, contrasts: their mean is noise alone."""
        pulls = (1 + len(BANDS)) * self.columns * self.width
        ends = np.cumsum([pulls, len(BANDS), self.width])
        pull, shares, energy, curvature = np.split(mean, ends)
        pull = pull.reshape(1 + len(BANDS), self.columns, self.width)
        bent = self.symmetric.matrix(curvature / self.curvature_weight)
        if self.columns > 1:
            pull -= pull.mean(axis=1, keepdims=True)
            blocks = bent.reshape(self.columns, self.width, self.columns, self.width)
            blocks = blocks - blocks.mean(axis=0)
            bent = (blocks - blocks.mean(axis=2, keepdims=True)).reshape(bent.shape)
        return Curved(pull[0], pull[1:] / _LEFT, shares / self.share_weight, energy / self.share_weight, bent)


def _spread(chances: Array) -> Array:
    """(n, columns, columns): diag(p) − ppᵀ."""
    return np.eye(chances.shape[1]) * chances[:, None] - chances[:, :, None] * chances[:, None, :]

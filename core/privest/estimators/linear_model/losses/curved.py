"""The gradient and the curvature of the logistic loss in which rows that are far out count less."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import expit, softmax

from privest.arrays import Array, SymmetricCoordinates, seen_by
from privest.estimators.linear_model.losses.logistic import Classifier
from privest.kernels import second_moment
from privest.privacy.clipped_sums import Opposable

_FARTHEST = 1e3
"""Length over the bound beyond which rows count as being there."""

_TAKEN = 0.55
"""Weight of what is taken off rows; see `CurvedGradient.longest`."""


class Curved(NamedTuple):
    """A released mean of a `CurvedGradient`, by its parts.

    Attributes:
        pull: (columns, width) negative gradient of the weighted loss.
        taken: mean of what rows lack of the weight 1.
        curvature: (columns·width, columns·width) Hessian of the weighted loss.
    """

    pull: Array
    taken: float
    curvature: Array


@dataclass(frozen=True)
class CurvedGradient(Opposable):
    """Σ of a row's weighted negative gradient and Hessian, and of what its weight lacks of 1.

    A row x is a vector z of features, of any length in units of the bound, and the intercept's constant.
    It has the weight w = min(1, 1/|z|²), and adds w(e_y − p) ⊗ x and w·P ⊗ xxᵀ for P = diag(p) − ppᵀ; of two
    classes e_y − p and P are numbers. Both belong to one weighted loss. Its minimiser is the true classifier
    wherever the logistic model holds, as weights depend on x alone (Künsch et al. 1989), and no row moves it
    far (Avella-Medina 2021).

    Attributes:
        width: length of what a classifier sees of a row.
        classes: number of classes.
    """

    width: int
    classes: int

    description = "the mean gradient of the loss, its curvature, and how much weight rows far out lose"

    @property
    def columns(self) -> int:
        """Columns of weights."""
        return 1 if self.classes == 2 else self.classes

    @cached_property
    def symmetric(self) -> SymmetricCoordinates:
        """Coordinates of the Hessian."""
        return SymmetricCoordinates(self.columns * self.width)

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.columns * self.width + 1 + self.symmetric.size

    @property
    def longest(self) -> float:
        """Length of the longest vector that a row can have: that of the longest gradient alone.

        As x is |z|/√(1 + k²) and the constant k/√(1 + k²) long, w|x|² ≤ 1. Two classes, with r = |y − p| and
        P = r(1 − r): r² + 11P² ≤ 1, as r²(1 − r) is at most (1 + r)/11. More, with r = |e_y − p|: 2 − r² =
        1 − |p|² + 2p_y ≥ tr P ≥ 2|P|², no eigenvalue of P being above ½ (Böhning 1992), so that
        r² + 2|P|² ≤ 2. With the factor √11, or √2, on the Hessian and .55 times √q on 1 − w = u, a row has a
        squared length of at most r²(1 − u) + .3025u²q + (factor·|P|)² for q = 1, or 2. That is convex in u:
        for u = 0 at most q, and for u = 1 at most .3025 + 11/16, or .605 + 1 as |P|² < ½ there.
        """
        return 1.0 if self.classes == 2 else sqrt(2.0)

    @property
    def curvature_weight(self) -> float:
        """Factor on the Hessian in the sum."""
        return sqrt(11.0 if self.classes == 2 else 2.0)

    @property
    def taken_weight(self) -> float:
        """Factor on what weights lack of 1 in the sum."""
        return _TAKEN * self.longest

    def clipped_sum(self, point: Classifier, rows: Array, clip: float) -> Array:
        """Σ over rows of vectors of length at most `clip`; see `Statistic`."""
        x = point.feature_map.features(rows, longest=_FARTHEST)
        squared = np.vecdot(x, x)
        constant = point.feature_map.last**2
        weight = 1.0 / np.maximum((squared - constant) / (1.0 - constant), 1.0)
        pull, chances = self._pull(point, rows, x)
        taken = self.taken_weight * (1.0 - weight)
        size = weight**2 * squared * np.vecdot(pull, pull) + taken**2
        size += (self.curvature_weight * weight * squared) ** 2 * _spread_squared(chances)
        shrink = clip / np.maximum(np.sqrt(size), clip)
        weight *= shrink
        parts = (
            ((pull * weight[:, None]).T @ x).ravel(),
            [taken @ shrink],
            self.curvature_weight * self._hessian(x, chances, weight),
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
            return self.symmetric.of(second_moment(x, bent))
        whole = np.empty((self.columns, self.width, self.columns, self.width))
        for i in range(self.columns):
            for j in range(i, self.columns):
                bent = weight * chances[:, i] * ((i == j) - chances[:, j])
                whole[i, :, j, :] = whole[j, :, i, :] = second_moment(x, bent)
        return self.symmetric.of(whole.reshape(2 * [self.columns * self.width]))

    def parts(self, mean: Array) -> Curved:
        """A released mean by its parts; of more than two classes, contrasts: their mean is noise alone."""
        coordinates = self.columns * self.width
        pull, (taken,), curvature = np.split(mean, [coordinates, coordinates + 1])
        pull = pull.reshape(self.columns, self.width)
        bent = self.symmetric.matrix(curvature / self.curvature_weight)
        if self.columns > 1:
            pull = pull - pull.mean(axis=0)
            blocks = bent.reshape(self.columns, self.width, self.columns, self.width)
            blocks = blocks - blocks.mean(axis=0)
            bent = (blocks - blocks.mean(axis=2, keepdims=True)).reshape(bent.shape)
        return Curved(pull, float(taken) / self.taken_weight, bent)


def _spread_squared(chances: Array) -> Array:
    """(n,) squared Frobenius length of P: Σp²(1 − p)² on its diagonal, and (Σp²)² − Σp⁴ off it.

    Rounding may take the latter below zero where one chance is all but 1. A negative length would be no
    number, and one row would spoil a sum.
    """
    own = np.sum((chances * (1 - chances)) ** 2, axis=1)
    if chances.shape[1] == 1:
        return own
    squares = chances * chances
    return own + np.maximum(squares.sum(axis=1) ** 2 - np.vecdot(squares, squares), 0.0)

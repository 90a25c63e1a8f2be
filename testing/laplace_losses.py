"""The law of the privacy loss of noise of density ∝ exp(−|z|/b), by a formula that core does not use."""

from math import pi

import numpy as np
from scipy.special import kve

from privest.arrays import Array

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


class LaplaceLosses:
    """The loss aτ of a release whose sum may move by a = `ratio` scales, in two dimensions or more.

    In prolate spheroidal coordinates about 0 and the shift, a point's distances to both, in
    scales, have the mean aσ/2 and the difference aτ. With τ = sin θ the density of θ is
    e^(∓aτ/2)·cosᵈ⁻²θ·(A − Bτ²) in the two worlds, A and B the integrals over σ > 1 of
    σ²e^(−aσ/2)(σ² − 1)^((d−3)/2) and of the same without σ².

    Args:
        ratio: sensitivity in scales of the noise.
        size: number of dimensions d.
    """

    def __init__(self, ratio: float, size: int) -> None:
        self._ratio, self._size, self._unit = ratio, size, 1.0
        half = ratio / 2
        self._quotient = 1 + (size - 1) / half * float(kve(size / 2, half) / kve(size / 2 - 1, half))
        self._unit = float(self.tails(np.linspace(-ratio, ratio, 400))[1][0])

    def tails(self, losses: Array) -> tuple[Array, Array]:
        """The probabilities of more than each of ascending losses, in the world shifted and in the other."""
        edges = np.append(np.arcsin(np.clip(losses / self._ratio, -1.0, 1.0)), pi / 2)
        widths = np.diff(edges)[:, None]
        angles = edges[:-1, None] + widths * (_NODES + 1) / 2
        t = np.sin(angles)
        mass = widths / 2 * _WEIGHTS * np.cos(angles) ** (self._size - 2) * (self._quotient - t * t)
        less, more = (
            np.cumsum((mass * np.exp(sign * self._ratio * t / 2)).sum(axis=1)[::-1])[::-1] / self._unit
            for sign in (-1, 1)
        )
        return more, less

    def deltas(self, epsilons: Array) -> Array:
        """The δ at each of ascending ε."""
        p, q = self.tails(epsilons)
        return np.maximum(p - np.exp(epsilons) * q, 0.0)

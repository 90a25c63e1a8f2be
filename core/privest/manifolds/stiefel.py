"""The Stiefel manifold of orthonormal frames, with the metric of the space around it."""

from dataclasses import dataclass
from math import pi

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array, transposed
from privest.manifolds.frames import Frames

_SHOTS = 24
"""Shooting steps of the logarithm, always all of them: their number tells nothing of the points."""

_RUNGS = (1.0, 0.75, 0.5, 0.25)
"""Places on the way back to `base` where a miss is projected; with fewer, far points are not found."""

_LONGEST = 2 * pi
"""No vector that is looked for is longer than this; it keeps misses finite."""


@dataclass(frozen=True)
class Stiefel(Frames):
    """Frames under ⟨u, v⟩ = tr(uᵀv) (Edelman, Arias and Smith 1998, Section 2.2).

    Curvature is within these bounds, and geodesics are shortest up to length π, by Zimmermann and Stoye
    2024. Frames of full rank are orthogonal matrices, of which those of the other sign are out of reach.
    """

    name = "stiefel"

    @property
    def curvature(self) -> tuple[float, float]:
        return (-0.5, 1.0)

    @property
    def dim(self) -> int:
        return self.rank * self.size - self.rank * (self.rank + 1) // 2

    @property
    def natural_radius(self) -> float:
        """Half the length up to which geodesics are shortest; the logarithm is sure to be found within."""
        return pi / 2

    def random_point(self, rng: np.random.Generator) -> Array:
        """A point within 1 of the reference, so that the logarithm is found between any two."""
        v = self.project_tangent(self.reference, rng.standard_normal(self.shape))
        return self.exp(self.reference, _of_length(v, rng.uniform(size=(1, 1))))

    def project_tangent(self, base: Array, a: Array) -> Array:
        inward = transposed(base) @ a
        return a - base @ (0.5 * (inward + transposed(inward)))

    def exp(self, base: Array, v: Array) -> Array:
        frame = _around(base, v)
        return self.canonical(frame @ _geodesic(transposed(frame) @ v, (1.0,))[0])

    def log(self, base: Array, x: Array) -> Array:
        """The logarithm by shooting (Zimmermann and Hüper 2022, Algorithm 4): no closed form is known.

        Geodesics are shot at x, in a frame that holds both, and what they miss it by is carried back by
        projections along the way. Exact to rounding for points up to 2 away and to 1e-5 up to 2.5,
        at any size measured; beyond, the result is tangent and finite, but need not be the shortest
        vector, nor reach x.
        """
        frame = _around(base, x)
        goal = transposed(frame) @ x
        start = np.eye(*goal.shape[-2:])
        v = _of_length(self.project_tangent(start, goal - start), _length(goal - start))
        for _ in range(_SHOTS):
            way = _geodesic(v, _RUNGS)
            missed = goal - way[0]
            length = _length(missed)
            for point in (*way, start):
                missed = self.project_tangent(point, missed)
            v = self.project_tangent(start, v + _of_length(missed, length))
            v *= np.minimum(1.0, _LONGEST / np.maximum(_length(v), _LONGEST))
        return frame @ v


def _around(base: Array, a: Array) -> Array:
    """Frames (..., m, k) of up to twice the rank that begin with `base` and whose span holds `a` too."""
    base, a = np.broadcast_arrays(base, a)
    q = np.linalg.qr(np.concatenate([base, a], axis=-1))[0]
    return np.concatenate([base, q[..., base.shape[-1] :]], axis=-1)


def _geodesic(v: Array, times: tuple[float, ...]) -> Array:
    """The points exp(t·[[2A, −Rᵀ], [R, 0]])·[exp(−tA); 0] of the geodesic from [I; 0] along v = [A; R].

    (times, ..., k, r) for tangent vectors (..., k, r).
    """
    k, r = v.shape[-2:]
    a = 0.5 * (v[..., :r, :] - transposed(v[..., :r, :]))
    block = np.zeros((*v.shape[:-2], k, k))
    block[..., :r, :r] = 2 * a
    block[..., :r, r:] = -transposed(v[..., r:, :])
    block[..., r:, :r] = v[..., r:, :]
    return _exp_skew(block, times)[..., :r] @ _exp_skew(-a, times)


def _exp_skew(a: Array, times: tuple[float, ...]) -> Array:
    """exp(t·a) of (..., k, k) skew-symmetric matrices, through the Hermitian i·a: (times, ..., k, k)."""
    values, vectors = np.linalg.eigh(1j * a)
    phases = np.exp(-1j * np.multiply.outer(times, values))[..., None, :]
    turned: NDArray[np.complex128] = (vectors * phases) @ np.conj(np.swapaxes(vectors, -1, -2))
    return turned.real


def _length(v: Array) -> Array:
    """Euclidean length of (..., m, r) matrices, (..., 1, 1)."""
    return np.sqrt(np.sum(v * v, axis=(-1, -2), keepdims=True))


def _of_length(v: Array, length: Array) -> Array:
    """v stretched to this length; zero stays zero."""
    return v * (length / np.maximum(_length(v), 1e-300))

"""The Stiefel manifold of orthonormal frames, with the metric of the ambient space."""

from dataclasses import dataclass
from math import pi

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array, transposed
from privest.manifolds.frames import Frames

_SHOTS = 24
"""Number of shooting steps of the logarithm. It is constant, so that the duration reveals nothing."""

_RUNGS = (1.0, 0.75, 0.5, 0.25)
"""Times on the geodesic at which the error is projected on its way back. Far points need this many."""

_LONGEST = 2 * pi
"""Longest vector that a shooting step may try. It keeps errors finite."""


@dataclass(frozen=True)
class Stiefel(Frames):
    """Frames with ⟨u, v⟩ = tr(uᵀv) (Edelman et al. 1998, Section 2.2).

    The bounds on curvature, and that geodesics up to length π are shortest, are from Zimmermann and Stoye
    (2024). Frames of full rank are orthogonal matrices; no geodesic joins two with different determinants.
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
        """Half the length up to which geodesics are shortest. Within it the logarithm is always found."""
        return pi / 2

    @property
    def cut_distance(self) -> float:
        return pi

    def random_point(self, rng: np.random.Generator) -> Array:
        """A point within distance 1 of the reference, so that the logarithm between any two is found."""
        v = self.project_tangent(self.reference, rng.standard_normal(self.shape))
        return self.exp(self.reference, _of_length(v, rng.uniform(size=(1, 1))))

    def project_tangent(self, base: Array, a: Array) -> Array:
        inward = transposed(base) @ a
        return a - base @ (0.5 * (inward + transposed(inward)))

    def exp(self, base: Array, v: Array) -> Array:
        frame = _around(base, v)
        return self.canonical(frame @ _geodesic(transposed(frame) @ v, (1.0,))[0])

    def log(self, base: Array, x: Array) -> Array:
        """The logarithm by shooting (Zimmermann and Hüper 2022, Algorithm 4), as no closed form is known.

        Each step follows a geodesic, and carries its error at x back to `base` by projections. It was
        measured to be exact to rounding for distances up to 2, and to 1e-5 up to 2.5. Beyond, the result
        is tangent and finite, but may be too long or miss x.
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
    """Frames (..., m, k) that begin with `base` and whose span contains `a`; k is at most twice the rank."""
    base, a = np.broadcast_arrays(base, a)
    q = np.linalg.qr(np.concatenate([base, a], axis=-1))[0]
    return np.concatenate([base, q[..., base.shape[-1] :]], axis=-1)


def _geodesic(v: Array, times: tuple[float, ...]) -> Array:
    """The points exp(t·[[2A, −Rᵀ], [R, 0]])·[exp(−tA); 0] of the geodesic from [I; 0] along v = [A; R].

    Tangent vectors (..., k, r) yield points (times, ..., k, r).
    """
    k, r = v.shape[-2:]
    a = 0.5 * (v[..., :r, :] - transposed(v[..., :r, :]))
    block = np.zeros((*v.shape[:-2], k, k))
    block[..., :r, :r] = 2 * a
    block[..., :r, r:] = -transposed(v[..., r:, :])
    block[..., r:, :r] = v[..., r:, :]
    return _exp_skew(block, times)[..., :r] @ _exp_skew(-a, times)


def _exp_skew(a: Array, times: tuple[float, ...]) -> Array:
    """exp(t·a), (times, ..., k, k), of skew-symmetric (..., k, k), by an eigendecomposition of i·a."""
    values, vectors = np.linalg.eigh(1j * a)
    phases = np.exp(-1j * np.multiply.outer(times, values))[..., None, :]
    turned: NDArray[np.complex128] = (vectors * phases) @ np.conj(np.swapaxes(vectors, -1, -2))
    return turned.real


def _length(v: Array) -> Array:
    """Euclidean length of (..., m, r) matrices, (..., 1, 1)."""
    return np.sqrt(np.sum(v * v, axis=(-1, -2), keepdims=True))


def _of_length(v: Array, length: Array) -> Array:
    """`v` scaled to this length; zero stays zero."""
    return v * (length / np.maximum(_length(v), 1e-300))

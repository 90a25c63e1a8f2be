"""Manifolds of matrices: orthonormal frames (Stiefel), linear subspaces (Grassmann), unit columns (oblique).

The first two share a base, and the metric of the ambient space. The oblique manifold is a product of spheres.
"""

from dataclasses import dataclass
from functools import cached_property
from math import pi, sqrt
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array, lengths, one_by_one, transposed
from privest.manifolds.base import ROUNDING, Embedded
from privest.manifolds.sphere import Sphere
from privest.options import Option


def svd(a: Array) -> tuple[Array, Array, Array]:
    """The reduced singular value decomposition u·diag(s)·vt of (..., m, r) matrices; NaN if LAPACK fails."""
    u, s, vt = one_by_one(lambda a: np.linalg.svd(a, full_matrices=False), a)
    return u, s, vt


@dataclass(frozen=True)
class Frames(Embedded):
    """Matrices with orthonormal columns, with the metric of the ambient space.

    Raises:
        ValueError: `rank` exceeds `size`, or the manifold has dimension 0.
    """

    size: Annotated[int, Option("rows of a matrix", ge=1, le=10_000)]
    rank: Annotated[int, Option("columns of a matrix", ge=1, le=100)]

    rules = ("finite", "orthonormal columns")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank > self.size:
            raise ValueError("rank must be at most dim")
        if not self.dim:
            raise ValueError(f"{self.name} of this dim and rank must be more than single points")

    @property
    def reach(self) -> float:
        return 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, self.rank)

    @property
    def reference(self) -> Array:
        return np.eye(self.size, self.rank)

    def broken_rule(self, x: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(x).all(axis=(-1, -2))
            defect = np.abs(transposed(x) @ x - np.eye(self.rank)).max(axis=(-1, -2))
            return np.select([~finite, ~(defect <= ROUNDING)], [1, 2], 0)

    def project(self, x: Array) -> Array:
        """The nearest frame: the orthogonal factor of the polar decomposition."""
        u, _, vt = svd(x)
        return u @ vt

    def log_coordinates(self, base: Array, x: Array) -> Array:
        """The coordinates of the logarithm. An array that is no frame counts as `base`, so nothing raises."""
        x = np.where(self.belongs(x)[..., None, None], x, base)
        return self.coordinates(base, self.log(base, x))

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        """The product of `v` with an orthogonal matrix that maps the reference to `base`."""
        q, r = np.linalg.qr(base, mode="complete")
        signs = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
        q[..., : self.rank] *= signs[..., None, :]
        return q @ v


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


@dataclass(frozen=True)
class Grassmann(Frames):
    """Subspaces of dimension `rank`, each represented by any frame that spans it.

    Tangent vectors are horizontal: orthogonal to the frame. The distance is the Euclidean length of the
    vector of principal angles (Edelman et al. 1998, Section 2.5).
    """

    name = "grassmann"

    @property
    def curvature(self) -> tuple[float, float]:
        """The bounds 0 and 2 in general, 0 and 1 for projective spaces, whose rank or corank is 1."""
        return (0.0, 1.0 if min(self.rank, self.size - self.rank) <= 1 else 2.0)

    def mean_curvature(self, center: Array, radius: float) -> float:
        """(size − 2)/(dim − 1), as this is an Einstein manifold with Ricci curvature size − 2."""
        return (self.size - 2) / max(1, self.dim - 1)

    @property
    def dim(self) -> int:
        return self.rank * (self.size - self.rank)

    @property
    def natural_radius(self) -> float:
        """The largest distance between two subspaces."""
        return sqrt(min(self.rank, self.size - self.rank)) * pi / 2

    @property
    def diameter(self) -> float:
        return self.natural_radius

    @property
    def cut_distance(self) -> float:
        return pi / 2

    def project_tangent(self, base: Array, a: Array) -> Array:
        return a - base @ (transposed(base) @ a)

    def exp(self, base: Array, v: Array) -> Array:
        u, s, vt = svd(v)
        turned = (base @ transposed(vt)) * np.cos(s)[..., None, :] + u * np.sin(s)[..., None, :]
        return self.canonical(turned @ vt)

    def log(self, base: Array, x: Array) -> Array:
        """The logarithm by principal vectors.

        Let baseᵀx = PCQᵀ be the singular value decomposition, whose C holds the cosines of the principal
        angles θ. The part of xQ orthogonal to `base` is U·sin θ, and the result is UθPᵀ. At right angles
        several shortest vectors exist, and the result is one of them.
        """
        p, c, qt = svd(transposed(base) @ x)
        off = self.project_tangent(base, x @ transposed(qt))
        sine = lengths(transposed(off))
        angle = np.arctan2(sine, c)
        stretch = np.where(sine > 1e-12, angle / np.where(sine > 1e-12, sine, 1.0), 1.0)
        return (off * stretch[..., None, :]) @ transposed(p)


@dataclass(frozen=True)
class Oblique(Embedded):
    """Matrices with `size` rows and `rank` columns of unit length, with ⟨u, v⟩ = tr(uᵀv)."""

    size: Annotated[int, Option("rows of a matrix", ge=2, le=10_000)]
    rank: Annotated[int, Option("columns of a matrix", ge=1, le=100)]

    name = "oblique"
    rules = ("finite", "columns of unit length")

    @property
    def curvature(self) -> tuple[float, float]:
        return (0.0, 1.0)

    @property
    def reach(self) -> float:
        return 1.0

    @property
    def dim(self) -> int:
        return self.rank * (self.size - 1)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, self.rank)

    @property
    def reference(self) -> Array:
        return np.tile(self._sphere.reference[:, None], self.rank)

    @property
    def natural_radius(self) -> float:
        """The largest distance between two points."""
        return sqrt(self.rank) * pi

    @property
    def diameter(self) -> float:
        return self.natural_radius

    @property
    def cut_distance(self) -> float:
        return pi

    @cached_property
    def _sphere(self) -> Sphere:
        """The sphere of one column."""
        return Sphere(self.size)

    def mean_curvature(self, center: Array, radius: float) -> float:
        """(size − 2)/(dim − 1), as this is an Einstein manifold with Ricci curvature size − 2."""
        return (self.size - 2) / max(1, self.dim - 1)

    def broken_rule(self, x: Array) -> Array:
        broken = self._sphere.broken_rule(transposed(x))
        return np.where((broken == 1).any(axis=-1), 1, broken.max(axis=-1))

    def project(self, x: Array) -> Array:
        return transposed(self._sphere.project(transposed(x)))

    def exp(self, base: Array, v: Array) -> Array:
        return transposed(self._sphere.exp(transposed(base), transposed(v)))

    def log(self, base: Array, x: Array) -> Array:
        return transposed(self._sphere.log(transposed(base), transposed(x)))

    def dist(self, a: Array, b: Array) -> Array:
        return lengths(self._sphere.dist(transposed(a), transposed(b)))

    def project_tangent(self, base: Array, a: Array) -> Array:
        return transposed(self._sphere.project_tangent(transposed(base), transposed(a)))

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        return transposed(self._sphere.transport_from_reference(transposed(base), transposed(v)))

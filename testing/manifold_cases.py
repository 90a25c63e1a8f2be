"""What is known of manifolds on another way than their own code goes.

What an implementation says of its own metric is not believed: `Case.frame` gives orthonormal coordinates of
tangent vectors on another way. The cases themselves are in tests/core/manifolds/test_laws.py.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, pi

import numpy as np
import scipy.linalg

from privest import manifolds
from privest.manifolds import Manifold


def symmetric_basis(m):
    """Orthonormal symmetric matrices: (m(m + 1)/2, m, m)."""
    rows, columns = np.triu_indices(m)
    e = np.zeros((len(rows), m, m))
    e[range(len(rows)), rows, columns] = e[range(len(rows)), columns, rows] = np.sqrt(
        np.where(rows == columns, 1, 0.5)
    )
    return e


# Which vectors are tangent: rows that span those, flattened, which are orthogonal to all of them.


def none(base):
    return np.zeros((0, base.size))


def radial(base):
    return base[None]


def minkowski_radial(base):
    return (base * np.r_[-1, np.ones(base.size - 1)])[None]


def skew(base):
    m = len(base)
    return np.stack([np.outer(a, b) - np.outer(b, a) for a in np.eye(m) for b in np.eye(m)]).reshape(
        -1, m * m
    )


def frame_times_symmetric(base):
    return (base @ symmetric_basis(base.shape[1])).reshape(-1, base.size)


def frame_times_anything(base):
    return (base @ np.eye(base.shape[1] ** 2).reshape(-1, *[base.shape[1]] * 2)).reshape(-1, base.size)


# The metric on a basis b_1, …, b_d of the tangent space: F with ⟨b_i, b_j⟩ = (F·Fᵀ)_ij.


def induced(base, basis):
    return np.eye(len(basis))


def minkowski(base, basis):
    return np.linalg.cholesky(basis[:, 1:] @ basis[:, 1:].T - np.outer(basis[:, 0], basis[:, 0]))


def ball(base, basis):
    return 2 / (1 - base @ base) * np.eye(base.size)


def affine_invariant(base, basis):
    """w^-1/2 b w^-1/2, by eigenvalues: the code under test goes by Cholesky."""
    values, vectors = np.linalg.eigh(base)
    root = vectors / np.sqrt(values)
    return (root.T @ basis.reshape(-1, *base.shape) @ root).reshape(len(basis), -1) @ basis.T


def log_euclidean(base, basis):
    """Dlog_w[b] = ∫(w + s)⁻¹ b (w + s)⁻¹ ds, by the trapezoidal rule in log s: exact to 1e-16."""
    s = np.exp(np.arange(-54, 54, 0.5))[:, None, None]
    inverse = np.linalg.inv(base + s * np.eye(len(base)))
    kernel = np.einsum("s,sij,skl->ikjl", 0.5 * s.ravel(), inverse, inverse, optimize=True)
    return basis @ kernel.reshape(base.size, base.size) @ basis.T


def bures_wasserstein(base, basis):
    """½tr(L_i b_j), with L of wL + Lw = b by a Lyapunov solver."""
    b = basis.reshape(-1, *base.shape)
    solved = np.stack([scipy.linalg.solve_continuous_lyapunov(base, one) for one in b])
    gram = solved.reshape(len(b), -1) @ basis.T / 2
    return np.linalg.cholesky((gram + gram.T) / 2)


# Base points that are not moderate, and the relative rounding error of squared lengths there.


def wide_vector(space: Manifold, rng):
    return 1e6 * rng.standard_normal(space.shape)


def nearly_opposite(space: Manifold, rng):
    """Nearly the antipode of the reference."""
    return space.canonical(-space.reference + 1e-4 * rng.standard_normal(space.shape))


def eigenvalues(low, high):
    """SPD matrices with these eigenvalues, given as powers of ten, and others evenly between."""

    def matrix(space: Manifold, rng):
        m = space.shape[0]
        q = np.linalg.qr(rng.standard_normal((m, m)))[0]
        powers = np.array([rng.choice([low, high])]) if m == 1 else np.linspace(low, high, m)
        return space.canonical((q * 10.0**powers) @ q.T)

    return matrix


def equal_eigenvalues(space: Manifold, rng):
    return 2.5 * np.eye(space.shape[0])


def towards_the_rim(space: Manifold, rng):
    """1 − 1e-8 from the centre of the unit ball."""
    x = rng.standard_normal(space.shape)
    return (1 - 1e-8) * x / np.linalg.norm(x)


def ten_away(space: Manifold, rng):
    x = rng.standard_normal(space.dim)
    return np.r_[np.cosh(10), np.sinh(10) * x / np.linalg.norm(x)]


def any_frame(space: Manifold, rng):
    return np.linalg.qr(rng.standard_normal(space.shape))[0]


# Isometries that are linear maps of the space around.


def rotation(space: Manifold, rng):
    q = np.linalg.qr(rng.standard_normal((space.shape[0],) * 2))[0]
    return lambda a: a @ q.T


def boost(space: Manifold, rng):
    generator = np.zeros((space.dim + 1,) * 2)
    generator[0, 1:] = generator[1:, 0] = rng.standard_normal(space.dim)
    q = scipy.linalg.block_diag(np.eye(1), np.linalg.qr(rng.standard_normal((space.dim,) * 2))[0])
    return lambda a: a @ (q @ scipy.linalg.expm(generator)).T


def congruence(space: Manifold, rng):
    a = rng.standard_normal(space.shape) + 2 * np.eye(space.shape[0])
    return lambda x: a @ x @ a.T


def orthogonal_congruence(space: Manifold, rng):
    q = np.linalg.qr(rng.standard_normal(space.shape))[0]
    return lambda x: q @ x @ q.T


def orthogonal_both_sides(space: Manifold, rng):
    p, q = (np.linalg.qr(rng.standard_normal((size, size)))[0] for size in space.shape)
    return lambda x: p @ x @ q


def up_to(length):
    return lambda _: length


@dataclass(frozen=True)
class Case:
    """A space, and what is known of it on another way than the code under test goes."""

    name: str
    params: dict
    normals: Callable = none
    metric: Callable = induced
    wide: tuple = ()
    """Makers of base points that are not moderate, each with the relative error of squared lengths there."""
    wider: tuple = ()
    """Further ones, for what needs no logarithm, which loses too many digits there."""
    isometry: Callable = rotation
    reach: Callable = lambda _: inf
    """Length up to which the logarithm undoes the exponential."""
    near: str = ""
    """Reason why the logarithm is tested within reach alone."""
    not_parallel: str = ""
    """Reason why transport from the reference is no more than a linear isometry."""
    space: Manifold = None  # pyright: ignore[reportAssignmentType] - made of the name, unless it is given

    def __post_init__(self):
        object.__setattr__(self, "space", self.space or manifolds.get(self.name, **self.params))

    def __str__(self):
        return "-".join(map(str, (self.name, *self.params.values())))

    def __hash__(self):
        return hash(str(self))

    @functools.cache  # noqa: B019 - bases are few
    def _frame(self, base):
        base = np.frombuffer(base).reshape(self.space.shape)
        normals = self.normals(base)
        rank = np.linalg.matrix_rank(normals) if len(normals) else 0
        basis = np.linalg.svd(normals)[2][rank:] if rank else np.eye(base.size)
        return basis, self.metric(base, basis)

    def basis(self, base):
        """Tangent vectors at `base`, orthonormal in the space around: (dim, base.size)."""
        return self._frame(base.tobytes())[0]

    def frame(self, base, v):
        """Coordinates of tangent vectors (..., *shape) that are orthonormal in the metric."""
        basis, metric = self._frame(base.tobytes())
        return v.reshape(*v.shape[: v.ndim - base.ndim], -1) @ basis.T @ metric

    def points(self, rng, base, count):
        """Points whose logarithm at `base` is defined."""
        if not self.near:
            return points(self.space, rng, count)
        lengths = rng.uniform(0, self.reach(base), count)
        return self.space.exp(base, tangents(self, rng, base, count, lengths))


SPHERE = {"normals": radial, "wide": ((nearly_opposite, 1e-9),), "reach": up_to(pi)}
LORENTZ = {"normals": minkowski_radial, "metric": minkowski, "wide": ((ten_away, 1e-6),), "isometry": boost}
BALL = {"metric": ball, "wide": ((towards_the_rim, 1e-6),)}
SPD = {"normals": skew, "isometry": orthogonal_congruence}
STRETCHED = (eigenvalues(-6, 6), 2e-3)
ALIKE = ((equal_eigenvalues, 1e-10), (eigenvalues(1, 1 + 1e-8), 1e-10))
METRICS = {
    "affine-invariant": {"metric": affine_invariant, "wide": (STRETCHED, *ALIKE), "isometry": congruence},
    "log-euclidean": {"metric": log_euclidean, "wide": (STRETCHED, *ALIKE)},
    "bures-wasserstein": {
        "metric": bures_wasserstein,
        "wide": ((eigenvalues(-3, 3), 1e-3), *ALIKE),
        "wider": (STRETCHED,),
        "reach": lambda base: np.sqrt(np.linalg.eigvalsh(base)[0]),
    },
}
FRAMES = {
    "wide": ((any_frame, 1e-9),),
    "isometry": orthogonal_both_sides,
    "not_parallel": "parallel transport on frames costs an exponential; an isometry is all that noise needs",
}


def bases(case, rng, *, logs=False):
    """Base points with the relative error to expect there."""
    wide = case.wide if logs else (*case.wide, *case.wider)
    return [(case.space.random_point(rng), 1e-10), *((base(case.space, rng), error) for base, error in wide)]


def points(space, rng, count):
    return np.stack([space.random_point(rng) for _ in range(count)])


def tangents(case, rng, base, count, length=None):
    """Random tangent vectors, of these lengths if given: made by the case, not by the code under test."""
    basis, metric = case._frame(base.tobytes())
    z = rng.standard_normal((count, case.space.dim))
    if length is not None:
        z *= np.reshape(length, (-1, 1)) / np.linalg.norm(z, axis=1, keepdims=True)
    v = np.linalg.solve(metric.T, z.T).T @ basis
    return v.reshape(count, *case.space.shape)

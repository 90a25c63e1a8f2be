"""Symmetric positive definite matrices."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Annotated, ClassVar, Literal

import numpy as np

from privest.arrays import Array, SymmetricCoordinates, one_by_one, transposed
from privest.manifolds import matrix_logarithm
from privest.manifolds.base import ROUNDING, InCoordinates
from privest.options import Option

_LOG_LIMIT = 690.0
"""Largest absolute logarithm of an eigenvalue. Its exponential fits into float64."""

Rows = Annotated[int, Option("rows of a matrix", ge=1, le=200)]
Metric = Literal["affine-invariant", "log-euclidean", "bures-wasserstein"]


def symmetric(a: Array) -> Array:
    """The symmetric part of (..., m, m) matrices."""
    return 0.5 * a + 0.5 * transposed(a)


def eigen(a: Array) -> tuple[Array, Array]:
    """Ascending eigenvalues (..., m) and eigenvectors (..., m, m), from the lower triangles of matrices.

    If LAPACK fails on a matrix, its result is NaN, and the rest of the batch is unaffected. As LAPACK fails
    near the ends of float64's range, matrices are first scaled by a power of two to entries of about one.
    """
    size = np.abs(a).max(axis=(-1, -2), keepdims=True)
    scale = np.ldexp(1.0, np.frexp(size)[1] - 1)
    values, vectors = one_by_one(np.linalg.eigh, a / scale)
    with np.errstate(over="ignore"):
        return values * scale[..., 0], vectors


def spectral(a: Array, function: Callable[[Array], Array]) -> Array:
    """Symmetric matrices with `function` applied to their eigenvalues, (..., m, m); NaN if `eigen` is."""
    values, vectors = eigen(a)
    return (vectors * function(values)[..., None, :]) @ transposed(vectors)


def in_eigenbasis(
    base: Array, a: Array, kernel: Callable[[Array], Array], *, there: bool = True, back: bool = True
) -> Array:
    """Symmetric matrices `a` times `kernel(eigenvalues of base)`, entry by entry in the eigenbasis of `base`.

    Args:
        base: (..., m, m) positive definite matrices.
        a: (..., m, m) symmetric matrices.
        kernel: maps (..., m) eigenvalues to (..., m, m) factors.
        there: whether `a` is in the standard basis, rather than in the eigenbasis.
        back: whether to return the result in the standard basis, rather than in the eigenbasis.
    """
    values, vectors = eigen(base)
    adjoint = transposed(vectors)
    scaled = (adjoint @ a @ vectors if there else a) * kernel(_positive(values))
    return symmetric(vectors @ scaled @ adjoint if back else scaled)


def _positive(values: Array) -> Array:
    """Eigenvalues clipped to [exp(−_LOG_LIMIT), exp(_LOG_LIMIT)], as rounding may leave them not positive."""
    return np.clip(values, np.exp(-_LOG_LIMIT), np.exp(_LOG_LIMIT))


def _gram(root: Array) -> Array:
    """root·rootᵀ, with eigenvalues raised if they are too small, beside the largest, to stay positive."""
    x = symmetric(root @ transposed(root))
    share = x.shape[-1] * 2.0**-48
    trace = np.trace(x, axis1=-2, axis2=-1)[..., None, None]
    try:
        np.linalg.cholesky(x - share * trace * np.eye(x.shape[-1]))
    except np.linalg.LinAlgError:
        values, vectors = eigen(x)
        least = values[..., -1:] * share
        raised = (vectors * np.maximum(values, least)[..., None, :]) @ transposed(vectors)
        return np.where(values[..., :1, None] < least[..., None], symmetric(raised), x)
    return x


def _cholesky(base: Array) -> Array:
    """The lower triangular L with LLᵀ = `base`; NaN if a matrix is not positive definite."""
    try:
        return np.asarray(np.linalg.cholesky(base), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.full_like(base, np.nan)


@dataclass(frozen=True)
class SPD(InCoordinates):
    """Symmetric positive definite matrices with `size` rows.

    Coordinates are the upper triangle of a symmetric matrix, with off-diagonal entries times √2: those of an
    orthonormal basis. Utpala et al. (2023), Lemma 1.1, omit the diagonal.
    """

    size: Rows
    metric: ClassVar[str]

    name = "spd"
    rules = ("finite", "symmetric", "positive definite")

    @classmethod
    def of(
        cls,
        size: Rows,
        metric: Annotated[Metric, Option("of the space")] = "affine-invariant",
    ) -> "SPD":
        """The manifold of matrices with `size` rows and the metric called `metric`.

        Raises:
            ValueError: there is no such metric.
        """
        if metric not in METRICS:
            raise ValueError(f"metric of {cls.name} must be one of {', '.join(METRICS)}")
        return METRICS[metric](size)

    @property
    def dim(self) -> int:
        return self.size * (self.size + 1) // 2

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, self.size)

    @property
    def params(self) -> Mapping[str, float | str]:
        return {**super().params, "metric": self.metric}

    @property
    def reference(self) -> Array:
        return np.eye(self.size)

    @property
    def natural_radius(self) -> float:
        """Radius that includes all matrices whose eigenvalues are within a factor e of one."""
        return sqrt(self.size)

    def random_point(self, rng: np.random.Generator) -> Array:
        a = symmetric(rng.standard_normal(self.shape)) / sqrt(self.size)
        return spectral(a, np.exp)

    def broken_rule(self, x: Array) -> Array:
        finite = np.isfinite(x).all(axis=(-1, -2))
        x = np.where(np.asarray(finite)[..., None, None], x, np.eye(self.size))
        size = np.abs(x).max(axis=(-1, -2))
        scaled = x / np.where(size > 0, size, 1.0)[..., None, None]
        gap = np.abs(scaled - transposed(scaled)).max(axis=(-1, -2))
        definite = np.linalg.eigvalsh(symmetric(scaled))[..., 0] > 0
        return np.select([~finite, gap > ROUNDING, ~definite], [1, 2, 3], 0)

    def canonical(self, x: Array) -> Array:
        return symmetric(x)

    def project_tangent(self, base: Array, a: Array) -> Array:
        return symmetric(a)

    @cached_property
    def _symmetric(self) -> SymmetricCoordinates:
        return SymmetricCoordinates(self.size)


@dataclass(frozen=True)
class AffineInvariantSPD(SPD):
    """The affine-invariant metric ⟨u, v⟩_w = tr(w⁻¹u w⁻¹v) (Utpala et al. 2023, Section 4.1).

    The coordinates of v at w = LLᵀ are those of the symmetric matrix L⁻¹vL⁻ᵀ, with L the Cholesky factor.
    """

    metric = "affine-invariant"

    @property
    def curvature(self) -> tuple[float, float]:
        return (-0.5, 0.0)

    @property
    def widest_radius(self) -> float:
        return 100.0

    @staticmethod
    def _whiten(base: Array, a: Array) -> Array:
        """L⁻¹aL⁻ᵀ, which is symmetric up to rounding."""
        inverse = np.asarray(np.linalg.inv(_cholesky(base)), dtype=np.float64)
        return inverse @ a @ transposed(inverse)

    @staticmethod
    def _congruence(factor: Array, a: Array) -> Array:
        return symmetric(factor @ a @ transposed(factor))

    def exp_coordinates(self, base: Array, c: Array) -> Array:
        values, vectors = eigen(self._symmetric.matrix(c))
        return _gram(_cholesky(base) @ (vectors * _root_exp(values)[..., None, :]))

    def log_coordinates(self, base: Array, x: Array) -> Array:
        """The coordinates of the logarithm. A point too far away for float64 counts as `base`."""
        library = matrix_logarithm.library()
        if library is None or base.ndim > 2 or self.size > matrix_logarithm.MOST_ROWS:
            return self._log_by_eigenvalues(base, x)
        inverse = np.asarray(np.linalg.inv(_cholesky(base)), dtype=np.float64)
        found = matrix_logarithm.log_coordinates(library, inverse, x.reshape(-1, *self.shape))
        # Each point alone decides which way is taken for it, so that none changes another's rounding.
        far = np.isnan(found[:, 0])
        if far.any():
            found[far] = self._log_by_eigenvalues(base, x.reshape(-1, *self.shape)[far])
        return found.reshape(*x.shape[:-2], self.dim)

    def _log_by_eigenvalues(self, base: Array, x: Array) -> Array:
        white = self._whiten(base, x)
        held = np.isfinite(white).all(axis=(-1, -2), keepdims=True)
        return self._symmetric.of(spectral(np.where(held, white, np.eye(self.size)), _bounded_log))

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        return self._congruence(spectral(base, _root), v)

    def coordinates(self, base: Array, v: Array) -> Array:
        return self._symmetric.of(symmetric(self._whiten(base, v)))

    def from_coordinates(self, base: Array, c: Array) -> Array:
        return self._congruence(_cholesky(base), self._symmetric.matrix(c))


@dataclass(frozen=True)
class LogEuclideanSPD(SPD):
    """The metric ⟨u, v⟩_w = tr(Dlog_w[u]·Dlog_w[v]), under which the matrix logarithm is an isometry.

    In the eigenbasis of w, Dlog_w multiplies entry (r, s) by (log λr − log λs)/(λr − λs), or by 1/λ if both
    eigenvalues are λ. Utpala et al. (2023), Section 4.1, print (x − y)/(eˣ − eʸ) of the eigenvalues instead.

    References:
        Arsigny et al. (2007).
    """

    metric = "log-euclidean"

    @property
    def curvature(self) -> tuple[float, float]:
        return (0.0, 0.0)

    @property
    def widest_radius(self) -> float:
        return 100.0

    @staticmethod
    def _kernel(values: Array) -> Array:
        """(x − y)/(log x − log y) of all pairs, computed as √(xy)·sinh(u)/u with u = log √(x/y)."""
        logs = np.log(values) / 2
        u = logs[..., :, None] - logs[..., None, :]
        mean = np.exp(logs[..., :, None] + logs[..., None, :])
        return mean * np.where(u == 0, 1.0, np.sinh(u) / np.where(u == 0, 1.0, u))

    def exp_coordinates(self, base: Array, c: Array) -> Array:
        values, vectors = eigen(spectral(base, _bounded_log) + self._symmetric.matrix(c))
        return _gram(vectors * _root_exp(values)[..., None, :])

    def log_coordinates(self, base: Array, x: Array) -> Array:
        return self._symmetric.of(spectral(x, _bounded_log) - spectral(base, _bounded_log))

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        return in_eigenbasis(base, v, self._kernel)

    def coordinates(self, base: Array, v: Array) -> Array:
        return self._symmetric.of(in_eigenbasis(base, v, lambda values: 1 / self._kernel(values)))

    def from_coordinates(self, base: Array, c: Array) -> Array:
        return in_eigenbasis(base, self._symmetric.matrix(c), self._kernel)


@dataclass(frozen=True)
class BuresWassersteinSPD(SPD):
    """The metric ⟨u, v⟩_w = ½tr(Lv) with wL + Lw = u of optimal transport between centred Gaussians.

    At I it is ⟨u, v⟩_F/4. Coordinates are taken in the eigenbasis of w. There, entry (r, s) of a tangent
    vector has length |v_rs|/√(2(λr + λs)). Curvature is positive, and unbounded near singular matrices.
    Geodesics end there, the nearest after a length of √λ_min. The logarithm reaches every matrix. Algorithm 4
    of Utpala et al. (2023) samples twice too large at I; its K = (λr + λs)/(δr + δs) is no isometry.

    References:
        Bhatia et al. (2019).
    """

    metric = "bures-wasserstein"

    @property
    def curvature(self) -> tuple[float, float]:
        return (0.0, np.inf)

    @property
    def widest_radius(self) -> float:
        return 1e30

    @property
    def natural_radius(self) -> float:
        """Half the distance between I and the zero matrix."""
        return sqrt(self.size) / 2

    def size_of(self, point: Array) -> float:
        """Root of the largest entry, as a distance is one of square roots of matrices."""
        return sqrt(float(np.abs(point).max()))

    def mean_curvature(self, center: Array, radius: float) -> float:
        """The mean curvature 3/(2(m + 1)λ) at λI, with λ the least eigenvalue of matrices in the ball.

        It follows from O'Neill's formula for the projection A → AAᵀ of flat space, averaged over planes.
        √λ is less than the centre's by at most the radius. If λ may be 0, the result is infinite.
        """
        root = sqrt(float(eigen(center)[0][0])) - radius
        return 1.5 / (self.size + 1) / root**2 if root > 0 else np.inf

    @staticmethod
    def _kernel(values: Array) -> Array:
        return np.sqrt(2 * (values[..., :, None] + values[..., None, :]))

    def exp_coordinates(self, base: Array, c: Array) -> Array:
        """(I + L)·base·(I + L) with L_rs = v_rs/(λr + λs). Beyond a singular matrix it is no geodesic."""
        values, vectors = eigen(base)
        values = _positive(values)
        push = np.eye(self.size) + 2 * self._symmetric.matrix(c) / self._kernel(values)
        return _gram((vectors @ push) * np.sqrt(values)[..., None, :])

    def log_coordinates(self, base: Array, x: Array) -> Array:
        """The coordinates of T·base + base·T − 2·base with the optimal map T = s⁻¹(s·x·s)^½s⁻¹, s² = base."""
        values, vectors = eigen(base)
        values = _positive(values)
        root = np.sqrt(values)
        half = vectors * root[..., None, :]
        cross = spectral(transposed(half) @ x @ half, _root)
        stretch = self._kernel(values) / (2 * root[..., :, None] * root[..., None, :])
        return self._symmetric.of(cross * stretch - root[..., None] * np.eye(self.size))

    def transport_from_reference(self, base: Array, v: Array) -> Array:
        return in_eigenbasis(base, v, lambda values: self._kernel(values) / 2)

    def coordinates(self, base: Array, v: Array) -> Array:
        return self._symmetric.of(in_eigenbasis(base, v, lambda values: 1 / self._kernel(values), back=False))

    def from_coordinates(self, base: Array, c: Array) -> Array:
        return in_eigenbasis(base, self._symmetric.matrix(c), self._kernel, there=False)


def _root(values: Array) -> Array:
    return np.sqrt(np.maximum(values, 0.0))


def _bounded_log(values: Array) -> Array:
    return np.log(_positive(values))


def _root_exp(values: Array) -> Array:
    return np.exp(0.5 * np.clip(values, -_LOG_LIMIT, _LOG_LIMIT))


METRICS: Mapping[str, Callable[[int], SPD]] = {
    kind.metric: kind for kind in (AffineInvariantSPD, LogEuclideanSPD, BuresWassersteinSPD)
}
"""The class of each metric, by its name."""

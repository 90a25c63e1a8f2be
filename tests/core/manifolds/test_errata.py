"""What Utpala et al. 2023 print and this package does not build: each formula fails the law that ours keeps.

The laws are those of `testing.manifold_laws`, run on a space with the printed formula in it. (Its clip is in
`estimators/frechet_mean/test_frechet_mean_sensitivity.py`.)
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from privest.arrays import transposed
from privest.manifolds.hyperbolic import Lorentz, PoincareBall
from privest.manifolds.spd import AffineInvariantSPD, BuresWassersteinSPD, LogEuclideanSPD
from privest.manifolds.sphere import Sphere
from testing import manifold_laws as laws
from testing.manifold_cases import BALL, LORENTZ, METRICS, SPD, SPHERE, Case


def of_eigenvalues(base, v, kernel):
    values, p = np.linalg.eigh(base)
    return p @ (kernel(values[:, None], values[None]) * (transposed(p) @ v @ p)) @ p.T


def minkowski(u, v):
    return np.sum(u[..., 1:] * v[..., 1:], axis=-1, keepdims=True) - u[..., :1] * v[..., :1]


@dataclass(frozen=True)
class BallMetric(PoincareBall):
    """Section 4.2: 4⟨u, v⟩/(1 − |w|²)."""

    def inner(self, base, u, v):
        return 4 * np.vecdot(u, v) / (1 - base @ base)


@dataclass(frozen=True)
class BallBasis(PoincareBall):
    """Algorithm 6: a/4 at the origin, times 1 − |w|²."""

    def from_coordinates(self, base, c):
        return c * (1 - base @ base) / 4


@dataclass(frozen=True)
class LogEuclideanKernel(LogEuclideanSPD):
    """Section 4.1 and Appendix A: (x − y)/(eˣ − eʸ), and 1/eˣ where x = y."""

    @staticmethod
    def printed(x, y):
        apart = x != y
        return np.where(apart, (x - y) / np.where(apart, np.exp(x) - np.exp(y), 1), 1 / np.exp(x))

    def transport_from_reference(self, base, v):
        return of_eigenvalues(base, v, self.printed)

    def from_coordinates(self, base, c):
        return self.transport_from_reference(base, self._symmetric.matrix(c))


@dataclass(frozen=True)
class BuresWassersteinScale(BuresWassersteinSPD):
    """Algorithm 4: 4·C⊙A at I."""

    def from_coordinates(self, base, c):
        return self.transport_from_reference(base, 4 * self._symmetric.matrix(c))


@dataclass(frozen=True)
class BuresWassersteinTransport(BuresWassersteinSPD):
    """Appendix A: K = (λr + λs)/(δr + δs), with δ = 1."""

    def transport_from_reference(self, base, v):
        return of_eigenvalues(base, v, lambda x, y: (x + y) / 2)


@dataclass(frozen=True)
class LorentzBasis(Lorentz):
    """Section 4.2: ē_i − w_{i+1}/(1 + w_1)·(e_1 + w)."""

    def from_coordinates(self, base, c):
        padded = np.concatenate([0 * c[..., :1], c], axis=-1)
        return padded - np.vecdot(base[1:], c)[..., None] / (1 + base[0]) * (self.reference + base)


@dataclass(frozen=True)
class LorentzTransport(Lorentz):
    """Appendix A: u − ⟨w, u⟩/(1 − ⟨ŵ, w⟩)·(ŵ + w)."""

    def transport_from_reference(self, base, v):
        return v - minkowski(base, v) / (1 - minkowski(self.reference, base)) * (self.reference + base)


@dataclass(frozen=True)
class SphereBasis(Sphere):
    """Section 4.3: ē_i − w_{i+1}·w."""

    def from_coordinates(self, base, c):
        return super().from_coordinates(base, c * (1 - self.reference))


@dataclass(frozen=True)
class SphereTransport(Sphere):
    """Appendix A: (I + (cos|v| − 1)vvᵀ/|v| − sin|v|·ŵvᵀ/|v|)u."""

    def transport_from_reference(self, base, v):
        way = self.log(self.reference, base)
        length = np.linalg.norm(way)
        along = (v @ way)[..., None] / length
        return v + (np.cos(length) - 1) * along * way - np.sin(length) * along * self.reference


@dataclass(frozen=True)
class WithoutDiagonal(AffineInvariantSPD):
    """Section 4.1: the basis of all pairs i < j."""

    def from_coordinates(self, base, c):
        return super().from_coordinates(
            base, self._symmetric.of(self._symmetric.matrix(c) * (1 - np.eye(self.size)))
        )


VARIANCE = laws.noise_is_isotropic_with_the_stated_variance
ISOMETRY = laws.transport_is_a_linear_isometry
TANGENCY = laws.vectors_are_tangent
ERRATA = [
    (BallMetric, BALL, laws.metric_is_that_of_the_frame),
    (BallBasis, BALL, VARIANCE),
    (LogEuclideanKernel, SPD | METRICS["log-euclidean"], VARIANCE),
    (LogEuclideanKernel, SPD | METRICS["log-euclidean"], ISOMETRY),
    (BuresWassersteinScale, SPD | METRICS["bures-wasserstein"], VARIANCE),
    (BuresWassersteinTransport, SPD | METRICS["bures-wasserstein"], ISOMETRY),
    (LorentzBasis, LORENTZ, TANGENCY),
    (LorentzTransport, LORENTZ, TANGENCY),
    (SphereBasis, SPHERE, VARIANCE),
    (SphereTransport, SPHERE, TANGENCY),
    (WithoutDiagonal, SPD | METRICS["affine-invariant"], VARIANCE),
]


@pytest.mark.parametrize(
    ("printed", "facts", "law"),
    ERRATA,
    ids=lambda x: x.__name__.removeprefix("test_") if callable(x) else None,
)
@pytest.mark.parametrize("dim", [3, 5])
def test_the_law_fails_where_the_paper_is_followed(printed, facts, law, dim):
    ours = printed.__bases__[0](dim)
    case = Case(ours.name, dict(ours.params), **facts | {"wide": (), "wider": ()}, space=ours)
    law(case, np.random.default_rng(dim))
    with pytest.raises(AssertionError):
        law(replace(case, space=printed(dim)), np.random.default_rng(dim))

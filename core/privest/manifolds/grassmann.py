"""The Grassmann manifold of linear subspaces."""

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from privest.arrays import Array, lengths, transposed
from privest.manifolds.frames import Frames, svd


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

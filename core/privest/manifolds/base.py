"""What every manifold offers: geodesics, distances, and orthonormal coordinates of tangent spaces."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import ClassVar

import numpy as np

from privest.arrays import Array
from privest.options import Option, declared


def public(field: str) -> str:
    """What callers call the parameter that a manifold holds in this field."""
    return "dim" if field == "size" else field


class Manifold(ABC):
    """A Riemannian manifold whose points are float64 arrays of one shape.

    Every method batches over leading axes and broadcasts them. `base`, `a`, `b`, `x` are points, `v` a
    tangent vector in the ambient representation, of the same shape as a point.

    A manifold is a frozen dataclass. Its fields are its parameters, each with an `Option` that declares
    what it means and its bounds. A field called `size` is the parameter `dim` to callers: here `dim` is the
    intrinsic dimension, which a sphere has one less of. No field is called `radius` or `center`: forms have
    fields of these names, for the ball in which a mean is sought.

    Attributes:
        name: by which `manifolds.get` finds it.
        rules: what a point must be, in the order in which `broken_rule` checks it.

    Raises:
        ValueError: there is no such manifold, because a parameter is below its least value.
    """

    name: ClassVar[str]
    rules: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        # What is large exists: upper bounds limit the work of a service, in `manifolds.get`.
        for field, (_, doc) in declared(type(self)).items():
            if isinstance(doc, Option):
                replace(doc, le=None).check(f"{public(field)} of {self.name}", getattr(self, field))

    @property
    def params(self) -> Mapping[str, float | str]:
        """What `manifolds.get(name, **params)` needs to build this manifold again."""
        options = [field for field, (_, doc) in declared(type(self)).items() if isinstance(doc, Option)]
        return {public(field): getattr(self, field) for field in options}

    @property
    @abstractmethod
    def curvature(self) -> tuple[float, float]:
        """Lower and upper bound of the sectional curvature.

        Forecasts of a mean know of this and of `mean_curvature`, and nothing of a cut locus. On a space that
        closes up and is flat, like a torus, they hold for a public ball that is far from it.
        """

    @property
    def widest_radius(self) -> float:
        """Largest radius of a search ball: float64 holds its points, and those its diameter away."""
        return 1e100

    @property
    @abstractmethod
    def dim(self) -> int:
        """Intrinsic dimension."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the array that represents one point."""

    @property
    @abstractmethod
    def reference(self) -> Array:
        """The point from which tangent vectors are transported, and the default centre."""

    @property
    @abstractmethod
    def natural_radius(self) -> float:
        """A search radius about the reference, for data of which nothing else is public."""

    @property
    def coordinate_size(self) -> int:
        """Length of a coordinate vector: `dim`, or that of the ambient space for an embedded manifold."""
        return self.dim

    @abstractmethod
    def random_point(self, rng: np.random.Generator) -> Array:
        """A point of moderate spectrum or radius. Not uniform; for tests and synthetic data."""

    @abstractmethod
    def broken_rule(self, x: Array) -> Array:
        """Which rule each point breaks: 0 for none, otherwise one more than its place in `rules`.

        Args:
            x: (..., *shape) candidate points.

        Returns:
            (...) integers as int64.
        """

    def mean_curvature(self, center: Array, radius: float) -> float:
        """What the sectional curvature within a ball is at most, averaged over all planes at a point.

        Forecasts rest on it, never a guarantee. `curvature` bounds every plane, which most spaces lack.
        """
        return self.curvature[1]

    @abstractmethod
    def canonical(self, x: Array) -> Array:
        """The exact representative of points that keep every rule within rounding."""

    @abstractmethod
    def exp(self, base: Array, v: Array) -> Array:
        """The point at the end of the geodesic that leaves `base` with velocity `v`."""

    @abstractmethod
    def log(self, base: Array, x: Array) -> Array:
        """The tangent vector at `base` whose geodesic reaches `x` at time one; a shortest such vector."""

    @abstractmethod
    def dist(self, a: Array, b: Array) -> Array:
        """Geodesic distance, (...)."""

    def inner(self, base: Array, u: Array, v: Array) -> Array:
        """Riemannian inner product of tangent vectors, (...)."""
        return np.vecdot(self.coordinates(base, u), self.coordinates(base, v))

    @abstractmethod
    def project_tangent(self, base: Array, a: Array) -> Array:
        """Orthogonal projection of an ambient array onto the tangent space at `base`."""

    @abstractmethod
    def transport_from_reference(self, base: Array, v: Array) -> Array:
        """A linear isometry from the tangent space at the reference to that at `base`.

        It is all that Utpala et al. (2023), Section 3, ask for. On frames (`stiefel`, `grassmann`) no more is
        promised; elsewhere it is the parallel transport along the geodesic.
        """

    @abstractmethod
    def coordinates(self, base: Array, v: Array) -> Array:
        """A linear isometry of the tangent space at `base` into R^coordinate_size: (..., coordinate_size)."""

    @abstractmethod
    def from_coordinates(self, base: Array, c: Array) -> Array:
        """The adjoint of `coordinates`: its inverse on its image, and an orthogonal projection before it.

        An isotropic Gaussian in coordinates therefore becomes the tangent Gaussian at `base`
        (Utpala et al. 2023, Section 3): E|v|² = dim·σ² for standard deviation σ, at every base point.
        """

    def log_coordinates(self, base: Array, x: Array) -> Array:
        """`coordinates(base, log(base, x))`, for spaces that get there on a shorter way."""
        return self.coordinates(base, self.log(base, x))

    def log_sum(self, base: Array, x: Array) -> Array:
        """`log_coordinates(base, x)` summed over rows, for spaces that need no array of logarithms for it.

        For sums without privacy alone: the gate clips each record's vector, and never sees this sum.

        Args:
            base: (*shape) a point; here there are no batches of them.
            x: (n, *shape) points.

        Returns:
            (coordinate_size,) as the plain sum, but for rounding.
        """
        return self.log_coordinates(base, x).sum(axis=0)

    def exp_coordinates(self, base: Array, c: Array) -> Array:
        """`exp(base, from_coordinates(base, c))`, for spaces that get there on a shorter way."""
        return self.exp(base, self.from_coordinates(base, c))

    def belongs(self, x: Array) -> Array:
        """Whether each point lies on the manifold within rounding: (...) booleans."""
        return self.broken_rule(x) == 0

    def norm(self, base: Array, v: Array) -> Array:
        """Riemannian norm of tangent vectors, (...)."""
        return np.sqrt(np.maximum(self.inner(base, v, v), 0.0))

    def sample_tangent_gaussian(
        self,
        rng: np.random.Generator,
        base: Array,
        sigma: float,
        size: int | tuple[int, ...] | None = None,
    ) -> Array:
        """Tangent Gaussian vectors at one base point (Utpala et al. 2023, Algorithm 2).

        Args:
            rng: source of randomness; for noise that protects records it comes from the gate alone.
            base: (*shape) a point.
            sigma: standard deviation in every orthonormal direction.
            size: leading axes of the result; none for a single vector.

        Returns:
            (*size, *shape) tangent vectors.
        """
        lead = () if size is None else (size,) if isinstance(size, int) else size
        return self.from_coordinates(base, sigma * rng.standard_normal((*lead, self.coordinate_size)))


class Embedded(Manifold):
    """A compact submanifold of a space of arrays, under the metric of the space around it.

    Coordinates are those of the space around, so that an ambient Gaussian projected onto the tangent space
    is the tangent Gaussian.
    """

    @property
    @abstractmethod
    def reach(self) -> float:
        """The constant of proximal smoothness (Zhang et al. 2024, Definition 2.2).

        Nearer to the manifold than this the nearest point is unique, and up to half as far `project` is
        2-Lipschitz (there (3), with γ = reach/2).
        """

    @abstractmethod
    def project(self, x: Array) -> Array:
        """P_M: the nearest point in the Euclidean metric (Zhang et al. 2024, (2)), or one of several.

        Args:
            x: (..., *shape) arrays of the space around, of finite length.
        """

    def canonical(self, x: Array) -> Array:
        return self.project(x)

    @property
    def coordinate_size(self) -> int:
        return prod(self.shape)

    def inner(self, base: Array, u: Array, v: Array) -> Array:
        return np.sum(u * v, axis=tuple(range(-len(self.shape), 0)))

    def coordinates(self, base: Array, v: Array) -> Array:
        return v.reshape(*v.shape[: v.ndim - len(self.shape)], self.coordinate_size)

    def from_coordinates(self, base: Array, c: Array) -> Array:
        return self.project_tangent(base, c.reshape(*c.shape[:-1], *self.shape))

"""Base classes of manifolds: geodesics, distances, and orthonormal coordinates of tangent spaces."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from math import inf, prod
from typing import ClassVar

import numpy as np

from privest.arrays import Array, lengths
from privest.options import Option, declared

ROUNDING = 2.0**-20
"""Largest relative deviation from a rule of a manifold that counts as rounding, about 1e-6.

It is 16 times the rounding of float32 (2⁻²⁴), so that unit vectors, frames and symmetric matrices that were
computed in float32 are accepted. `canonical` then makes them exact in float64.
"""


def public(field: str) -> str:
    """The public name of the parameter that a manifold stores in this field: `dim` for `size`."""
    return "dim" if field == "size" else field


class Manifold(ABC):
    """A Riemannian manifold whose points are float64 arrays of one shape.

    Every method accepts leading batch axes and broadcasts them: `base`, `a`, `b` and `x` are points,
    (..., *shape). `u` and `v` are tangent vectors of the same shape, and `c` is (..., coordinate_size).

    A manifold is a frozen dataclass. Its fields are its parameters, each with an `Option` that declares its
    meaning and bounds. The field `size` is the public parameter `dim`, because the property `dim` is the
    intrinsic dimension, which is smaller for a sphere. No field is called `radius` or `center`: forms have
    fields of these names, for the ball in which a mean is sought.

    Attributes:
        name: the manifold's name for `manifolds.get`.
        rules: conditions that a point must meet, in the order in which `broken_rule` checks them.

    Raises:
        ValueError: a parameter is below its least value.
    """

    name: ClassVar[str]
    rules: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        # Upper bounds limit the work of a service, so only `manifolds.get` checks them.
        for field, (_, doc) in declared(type(self)).items():
            if isinstance(doc, Option):
                replace(doc, le=None).check(f"{public(field)} of {self.name}", getattr(self, field))

    @property
    def params(self) -> Mapping[str, float | str]:
        """The parameters with which `manifolds.get(name, **params)` builds this manifold."""
        options = [field for field, (_, doc) in declared(type(self)).items() if isinstance(doc, Option)]
        return {public(field): getattr(self, field) for field in options}

    @property
    @abstractmethod
    def curvature(self) -> tuple[float, float]:
        """Lower and upper bound on the sectional curvature.

        Forecasts of a mean rest on it and on `mean_curvature`, and know nothing of a cut locus. On a flat
        space that closes up, like a torus, they hold for a public ball that is far from it.
        """

    @property
    def widest_radius(self) -> float:
        """Largest radius of a search ball. Float64 can hold all points within three times this distance."""
        return 1e100

    def size_of(self, point: Array) -> float:
        """Unit of distances near a point: float64 resolves 1e-16 of it there, but for a factor."""
        return 1.0

    @property
    def diameter(self) -> float:
        """Largest distance between two points; infinite where there is none, or where it is not known."""
        return inf

    @property
    def cut_distance(self) -> float:
        """Least distance of two points that several shortest geodesics join; infinite if there are none."""
        return inf

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
        """The default centre of a search, and the point that `transport_from_reference` starts from."""

    @property
    @abstractmethod
    def natural_radius(self) -> float:
        """The default search radius about the reference, if nothing about the data is public."""

    @property
    def coordinate_size(self) -> int:
        """Length of a coordinate vector: `dim`, or the dimension of the ambient space if `Embedded`."""
        return self.dim

    @abstractmethod
    def random_point(self, rng: np.random.Generator) -> Array:
        """A random point of moderate size, for tests and synthetic data. It is not uniformly distributed."""

    @abstractmethod
    def broken_rule(self, x: Array) -> Array:
        """The first rule that each candidate point breaks, counted from 1; 0 if none. (...) int64."""

    def mean_curvature(self, center: Array, radius: float) -> float:
        """Bound on the mean sectional curvature over all planes at any point within a ball.

        Forecasts of errors use it. Guarantees use `curvature`, which bounds every single plane.
        """
        return self.curvature[1]

    @abstractmethod
    def canonical(self, x: Array) -> Array:
        """The exact points nearest to points that meet every rule up to rounding."""

    @abstractmethod
    def exp(self, base: Array, v: Array) -> Array:
        """The point at time one on the geodesic that leaves `base` with velocity `v`."""

    @abstractmethod
    def log(self, base: Array, x: Array) -> Array:
        """A shortest tangent vector at `base` whose geodesic reaches `x` at time one."""

    def dist(self, a: Array, b: Array) -> Array:
        """Geodesic distance, (...)."""
        return lengths(self.log_coordinates(a, b))

    def inner(self, base: Array, u: Array, v: Array) -> Array:
        """Riemannian inner product of tangent vectors, (...)."""
        return np.vecdot(self.coordinates(base, u), self.coordinates(base, v))

    @abstractmethod
    def project_tangent(self, base: Array, a: Array) -> Array:
        """Orthogonal projection of an ambient array onto the tangent space at `base`."""

    @abstractmethod
    def transport_from_reference(self, base: Array, v: Array) -> Array:
        """A linear isometry from the tangent space at the reference to that at `base`.

        Utpala et al. (2023), Section 3, need no more. Except on `stiefel` and `grassmann` it is the parallel
        transport along the geodesic.
        """

    @abstractmethod
    def coordinates(self, base: Array, v: Array) -> Array:
        """The coordinates of tangent vectors, (..., coordinate_size): a linear isometry at every `base`."""

    @abstractmethod
    def from_coordinates(self, base: Array, c: Array) -> Array:
        """The adjoint of `coordinates`: it projects `c` onto their image and inverts them.

        So an isotropic Gaussian in coordinates becomes the tangent Gaussian at `base` (Utpala et al. 2023,
        Section 3, Algorithm 2): E|v|² = dim·σ² for standard deviation σ, at every base point.
        """

    def log_coordinates(self, base: Array, x: Array) -> Array:
        """`coordinates(base, log(base, x))`; some manifolds compute it faster."""
        return self.coordinates(base, self.log(base, x))

    def log_sum(self, base: Array, x: Array) -> Array:
        """The sum of `log_coordinates(base, x)` over rows, (coordinate_size,); some manifolds are faster.

        It is for sums without privacy: a gate clips each record's vector before it sums.

        Args:
            base: (*shape) a single point.
            x: (n, *shape) points.
        """
        return self.log_coordinates(base, x).sum(axis=0)

    def exp_coordinates(self, base: Array, c: Array) -> Array:
        """`exp(base, from_coordinates(base, c))`; some manifolds compute it faster."""
        return self.exp(base, self.from_coordinates(base, c))

    def belongs(self, x: Array) -> Array:
        """Whether each point lies on the manifold up to rounding, (...)."""
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


class InCoordinates(Manifold):
    """A manifold whose geodesics are computed in the coordinates of the tangent space."""

    def exp(self, base: Array, v: Array) -> Array:
        return self.exp_coordinates(base, self.coordinates(base, v))

    @abstractmethod
    def exp_coordinates(self, base: Array, c: Array) -> Array: ...

    def log(self, base: Array, x: Array) -> Array:
        return self.from_coordinates(base, self.log_coordinates(base, x))

    @abstractmethod
    def log_coordinates(self, base: Array, x: Array) -> Array: ...


class Hyperbolic(InCoordinates):
    """A model of the hyperbolic space of curvature −1."""

    size: int

    @property
    def curvature(self) -> tuple[float, float]:
        return (-1.0, -1.0)

    @property
    def widest_radius(self) -> float:
        return 12.0

    @property
    def dim(self) -> int:
        return self.size

    @property
    def natural_radius(self) -> float:
        """Radius that includes time 3.8 on the hyperboloid, and norm 0.76 in the unit ball."""
        return 2.0


class Embedded(Manifold):
    """A compact submanifold of a space of arrays, with the metric of that ambient space.

    Coordinates are those of the ambient space. So an ambient Gaussian, projected onto the tangent space, is
    the tangent Gaussian.
    """

    @property
    @abstractmethod
    def reach(self) -> float:
        """The constant of proximal smoothness (Zhang et al. 2024, Definition 2.2).

        Arrays closer to the manifold than this have a unique nearest point. Up to half this distance
        `project` is 2-Lipschitz (Zhang et al. 2024, (3) with γ = reach/2).
        """

    @abstractmethod
    def project(self, x: Array) -> Array:
        """The nearest points of the manifold to finite ambient arrays (P_M of Zhang et al. 2024, (2)).

        If several points are equally near, it returns one of them.
        """

    def random_point(self, rng: np.random.Generator) -> Array:
        return self.canonical(rng.standard_normal(self.shape))

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

"""A statistic that a run may ask two things of: a second moment, or the gradient of a robust loss."""

from dataclasses import dataclass
from functools import cached_property

from privest.arrays import Array, SymmetricCoordinates
from privest.estimators.subspace.losses import SubspaceDistance, SubspaceQuery
from privest.estimators.subspace.second_moment import Frame, SecondMoment


@dataclass(frozen=True)
class SecondLook:
    """Σ of xxᵀ, or of symmetric parts of gradients; released numbers decide which.

    The symmetric part ½(GVᵀ + VGᵀ) of a gradient G at a basis V has all of it, and 1/√2 of its length.

    Attributes:
        dim: D, length of a row.
        rank: r, columns of a basis.
    """

    dim: int
    rank: int

    description = "the second moment again, or the mean gradient"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self._moment.size

    def diameter(self, clip: float) -> float:
        """√2·clip: that of moments, and of gradients, which may be opposite, over √2."""
        return self._moment.diameter(clip)

    def clipped_sum(self, point: Frame | SubspaceQuery, rows: Array, clip: float) -> Array:
        """Σ over rows on the sphere of matrices of norm at most `clip`; see `Statistic`."""
        if isinstance(point, Frame):
            return self._moment.clipped_sum(point, rows, clip)
        v, gradients = point.basis, SubspaceDistance(self.dim, self.rank)
        gradient = gradients.clipped_sum(point, rows, clip).reshape(v.shape)
        gradient -= v @ (v.T @ gradient)  # what rounding left of rows that lie in the subspace
        half = 0.5 * gradient @ v.T
        return self._coordinates.of(half + half.T)

    def moment(self, released: Array) -> Array:
        """The (dim, dim) matrix that was released of a moment."""
        return self._coordinates.matrix(released)

    def gradient(self, released: Array, basis: Array) -> Array:
        """The (dim·rank,) gradient at a basis; noise on each number is √2 times that of a coordinate."""
        turned = self._coordinates.matrix(released) @ basis
        return (2.0 * (turned - basis @ (basis.T @ turned))).ravel()

    @cached_property
    def _moment(self) -> SecondMoment:
        return SecondMoment(self.dim)

    @property
    def _coordinates(self) -> SymmetricCoordinates:
        return self._moment.coordinates

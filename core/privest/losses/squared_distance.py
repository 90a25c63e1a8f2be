"""Half the squared geodesic distance to a point: its minimiser is the Fréchet mean."""

from dataclasses import dataclass

import numpy as np

from privest.arrays import Array
from privest.losses.clipping import clipped_sum
from privest.manifolds import Manifold


@dataclass(frozen=True)
class SquaredDistance:
    """f(w; x) = ½ dist(w, x)², whose negative gradient at w is log_w(x) (paper 000, Appendix C.1).

    Clipped at c, the loss becomes Huber's: quadratic up to distance c, linear beyond. The minimiser is
    the Fréchet mean itself where no record is further than c from it.
    """

    manifold: Manifold

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.manifold.coordinate_size

    def clipped_sum(self, point: Array, rows: Array, clip: float) -> Array:
        """Σ of the clipped negative gradients at `point`, in orthonormal coordinates there.

        Args:
            point: (*shape) where the gradient is taken.
            rows: (n, *shape) records.
            clip: bound on the length of one record's gradient.

        Returns:
            (size,) sum; one record replaced moves it by at most 2·clip.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            vectors = self.manifold.log_coordinates(point, rows)
        return clipped_sum(vectors, clip)


@dataclass(frozen=True)
class SquaredDistanceChange:
    """How the negative gradient of ½ dist(·, x)² changes between an anchor and a point near it.

    In coordinates, which carry one tangent space into the other. It is clipped as a whole, so that a
    record has one bound C₁ and not two (paper 000, Section 5, clips the two gradients apart: 4C₁).
    """

    manifold: Manifold

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.manifold.coordinate_size

    def clipped_sum(self, point: tuple[Array, Array], rows: Array, clip: float) -> Array:
        """Σ of the clipped changes, `point` being (point, anchor); else as `SquaredDistance`."""
        at, anchor = point
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            vectors = self.manifold.log_coordinates(at, rows) - self.manifold.log_coordinates(anchor, rows)
        return clipped_sum(vectors, clip)

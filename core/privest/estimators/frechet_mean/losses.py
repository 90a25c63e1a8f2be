"""Half the squared geodesic distance to a point: its minimiser is the Fréchet mean."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from privest.arrays import Array, lengths
from privest.manifolds import Manifold
from privest.privacy.clipped_sums import Opposable, any_floats, clipped_sum, without_axis


@dataclass(frozen=True)
class SquaredDistance(Opposable):
    """f(w; x) = ½ dist(w, x)², whose negative gradient at w is log_w(x) (Utpala et al. 2023, Appendix C.1).

    Clipped at c, the loss becomes Huber's: quadratic up to distance c, linear beyond. The minimiser is
    the Fréchet mean itself where no record is further than c from it.
    """

    manifold: Manifold
    description: str = "the mean gradient"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.manifold.coordinate_size

    @any_floats
    def clipped_sum(self, point: Array, rows: Array, clip: float) -> Array:
        """Σ of the clipped negative gradients at `point`, in orthonormal coordinates there.

        Args:
            point: (*shape) where the gradient is taken.
            rows: (n, *shape) records.
            clip: bound on the length of one record's gradient.

        Returns:
            (size,) sum; one record replaced moves it by at most 2·clip.
        """
        return clipped_sum(self.manifold.log_coordinates(point, without_axis(rows)), clip)


@dataclass(frozen=True)
class ScaledGradient(Opposable):
    """The negative gradient of ½ dist(·, x)², less a public vector, clipped at a length and divided by it.

    A record so adds a vector of length 1 at most whatever the clip, and the noise that hides it is a fixed
    multiple of a clip that released answers may choose. Queries are (point, center, clip).
    """

    manifold: Manifold
    description: str = "the mean gradient, in clips"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.manifold.coordinate_size

    @any_floats
    def clipped_sum(self, query: tuple[Array, Array, float], rows: Array, clip: float) -> Array:
        """Return the (size,) sum of the scaled gradients.

        Args:
            query: (*shape) where the gradients are taken, (size,) coordinates that are taken off each, and
                the length at which the rest is clipped.
            rows: (n, *shape) records.
            clip: length to which a gradient of the clip's length is scaled.
        """
        point, center, unit = query
        scale = clip / np.float64(unit)  # infinite, not an error, where the unit is 0
        away = self.manifold.log_coordinates(point, without_axis(rows)) - center
        return clipped_sum(away * scale, clip)


@dataclass(frozen=True)
class SquaredDistanceChange(Opposable):
    """The change of the negative gradient of ½ dist(·, x)² from an anchor to a point near it.

    In coordinates, which carry one tangent space into the other. It is clipped as a whole, so that a
    record has one bound C₁ and not two (Utpala et al. 2023, Section 5, clips the two gradients apart: 4C₁).
    """

    manifold: Manifold

    description = "the mean change of gradients"

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.manifold.coordinate_size

    @any_floats
    def clipped_sum(self, point: tuple[Array, Array], rows: Array, clip: float) -> Array:
        """Σ of the clipped changes, `point` being (point, anchor); else as `SquaredDistance`."""
        (at, anchor), rows = point, without_axis(rows)
        change = self.manifold.log_coordinates(at, rows) - self.manifold.log_coordinates(anchor, rows)
        return clipped_sum(change, clip)


@dataclass(frozen=True)
class CandidateDistances(Opposable):
    """Squared distances of the records from a few candidates, scaled to between −1 and 1.

    Their mean is the objective of the Fréchet mean at each candidate. Queries are tuples of (*shape) points.

    Attributes:
        manifold: space of the records.
        size: number of candidates.
        longest: distance at which records that are further off count.
    """

    manifold: Manifold
    size: int
    longest: float
    description: str = "the mean squared distance from candidates"

    @any_floats
    def clipped_sum(self, query: tuple[Array, ...], rows: Array, clip: float) -> Array:
        """Return the (size,) sum; a record without a finite distance adds zeros.

        Args:
            query: the candidates.
            rows: (n, *shape) records.
            clip: bound on the length of one record's vector.
        """
        each = [lengths(self.manifold.log_coordinates(point, rows)) for point in query]
        squares = np.square(np.minimum(np.stack(each, axis=-1) / self.longest, 1.0))
        return clipped_sum((2 * squares - 1) * (clip / sqrt(self.size)), clip)

"""What a run of the Fréchet mean tells of its own error, by a histogram of distances and the noise's law."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf, pi, sqrt

import numpy as np
from scipy.special import chndtr, ndtr

from privest.arrays import Array
from privest.estimators.frechet_mean.distances import Distances
from privest.estimators.uncertainty import Uncertainty
from privest.privacy.mechanisms import Release

_CANCELLED = np.array([0.4, 0.6, 0.8, 1.0])
"""Shares of what the clip cuts off that do not cancel between directions, equally likely.

Measured at the clips that are found, between .2 (many columns: digits, spam) and 1 (one long tail: savings).
"""

_FURTHEST = 50.0
"""Displacement, in standard deviations, beyond which the noncentral law is taken for a normal one."""

REACH = 2.0
"""Largest distance that histograms tell apart, in radii of the public ball: two may lie within it."""


_UNSEEN = 0.05
"""Share of records at the reach beyond which an answer warns."""

_STEEPEST, _FLATTEST = 1e4, 0.25
"""Largest sectional curvature, and least mean Hessian, that are reckoned with."""


@dataclass(frozen=True)
class MeanHessian:
    """Bounds on the mean Hessian of ½dist² over the records, at a histogram's point."""

    least: float
    largest: float

    @classmethod
    def of(cls, distances: Distances, curvature: tuple[float, float], further: float = 0.0) -> "MeanHessian":
        """Bounds that follow from those of the sectional curvature, as in `hessian_bounds`.

        Args:
            distances: of the records from a point.
            curvature: bounds of the sectional curvature.
            further: the least Hessian is that of all points which are at most so far from the first.
        """
        low, high = (sqrt(max(0.0, bound)) for bound in (-curvature[0], min(curvature[1], _STEEPEST)))

        def least(away: Array) -> Array:
            angle = np.clip((away + further) * high, 1e-6, 0.9 * pi)
            return np.maximum(angle / np.tan(angle), -1.0)

        def largest(away: Array) -> Array:
            angle = np.maximum(away * low, 1e-6)
            return angle / np.tanh(angle)

        return cls(max(distances.average(least), _FLATTEST), distances.average(largest))

    @property
    def is_flat(self) -> bool:
        """Whether records are so far apart that ½dist² may have several minima."""
        return self.least <= _FLATTEST

    def length(self, before: float, added: float) -> float:
        """The step length of least error.

        Args:
            before: square of the error to expect before the step; infinite for a start.
            added: that of the gradient.
        """
        settling = 2 / (self.least + self.largest)
        if before == inf:
            return settling
        return min(self.least * before / (self.least**2 * before + added), settling)

    def left(self, distance: float, steps: int) -> float:
        """What so many of the first step's length leave of a distance to the mean, at most."""
        return distance * self.contraction(self.length(inf, 0.0))[1] ** steps

    def contraction(self, length: float) -> tuple[float, float]:
        """What a step of this length leaves of the distance to the mean: a factor, and its tolerance."""
        middle = (self.least + self.largest) / 2
        return 1 - length * middle, length * (self.largest - self.least) / 2


@dataclass(frozen=True)
class Displacement:
    """How far an answer may be from the mean.

    Attributes:
        dim: of the manifold.
        noise: standard deviation of the noise in each direction.
        clipped: (40,) quantiles of what clipping moved at most, rising.
        unfinished: what the steps left to go.
    """

    dim: int
    noise: float
    clipped: Array
    unfinished: float = 0.0

    @property
    def moved(self) -> Array:
        """Displacements that are equally likely."""
        return np.sort(np.multiply.outer(_CANCELLED, self.clipped).ravel()) + self.unfinished

    @property
    def root_mean_square(self) -> float:
        """Root mean square of the whole distance."""
        return sqrt(self.dim * self.noise**2 + float(np.mean(self.moved**2)))

    def radius(self, moved: Array) -> float:
        """The distance not exceeded with probability .95, with displacements that are equally likely."""
        off = moved / self.noise
        near = np.minimum(off, _FURTHEST)
        low, high = 0.0, sqrt(self.dim) + 3 + float(off.max())
        for _ in range(50):
            middle = (low + high) / 2
            lengths = np.sqrt(off**2 + self.dim - 1)
            within = np.where(off < _FURTHEST, chndtr(middle**2, self.dim, near**2), ndtr(middle - lengths))
            low, high = (middle, high) if float(within.mean()) < 0.95 else (low, middle)
        return high * self.noise


def uncertainty(
    displacement: Displacement,
    distances: Distances,
    look: Release,
    *,
    hessian: MeanHessian,
    clip: float,
    on_edge: bool,
) -> Uncertainty:
    """The uncertainty of an answer.

    Where records are too far to be seen, or no Hessian bounds what is left to go, the triangle inequality
    does: the records are nearer to their mean than to the answer.

    Args:
        displacement: of the answer from the mean.
        distances: of the records from a point near the answer.
        look: the release of that histogram.
        hessian: there.
        clip: of the last step.
        on_edge: whether the answer lies on the edge of the ball in which it was sought.
    """
    unseen = distances.average(lambda away: (away > 0.9 * distances.reach).astype(np.float64))
    if unseen > _UNSEEN or hessian.is_flat:
        displacement = replace(displacement, unfinished=max(displacement.unfinished, 2 * distances.mean))
    n, radius = int(look.divisor), displacement.radius(displacement.moved)
    noise = displacement.radius(np.zeros(1))
    spread = sqrt(distances.average(np.square))
    return Uncertainty(
        of="the Fréchet mean of the records",
        standard_deviation=displacement.root_mean_square,
        radius_95=radius,
        noise=noise,
        moved=sqrt(float(np.mean(displacement.moved**2))),
        sampling=spread / sqrt(n),
        unknown=(
            f"a few records far off, up to {min(n, ceil(2 * n * look.deviation))}, would not be seen in the "
            f"noise of the histogram; each moves the mean by its distance over {n}",
        ),
        warnings=(
            *_of_size(radius, noise, spread),
            *_of_distances(distances, clip, unseen),
            *((_EDGE,) if on_edge else ()),
            *((_SEVERAL,) if hessian.is_flat else ()),
        ),
    )


_EDGE = "the answer lies on the edge of the public ball: the mean may be outside. Declare a larger radius"

_SEVERAL = "the records are so far apart that they may have several means: the answer is near one of them"


def _of_size(radius: float, noise: float, spread: float) -> Iterator[str]:
    """What the size of the region tells."""
    if radius >= spread:
        yield (
            "the answer may be further from the mean than the records are: expect no information from it. "
            "More records or a larger epsilon would help"
        )
    elif radius >= 2 * noise:
        yield "clipping and unfinished steps may move the answer by more than the noise"


def _of_distances(distances: Distances, clip: float, unseen: float) -> Iterator[str]:
    """What records far off mean for the answer."""
    if unseen > _UNSEEN:
        yield (
            f"about {unseen:.0%} of the records are further off than {distances.reach:.3g}, how far nobody "
            "sees: expect no information from it. Declare a larger radius"
        )
    beyond = distances.average(lambda away: (away > clip).astype(np.float64))
    if beyond > 0.2:
        yield f"about {beyond:.0%} of the records are beyond the clip of {clip:.3g} and are pulled in to it"

"""The stated region of a Fréchet mean: noise, an upper bound of what clips cut off, and unfinished steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, hypot, inf, pi, sqrt

import numpy as np
from scipy.special import chdtri, chndtr, gammaincinv, ndtr

from privest.arrays import Array
from privest.estimators.frechet_mean.histogram import Histogram
from privest.estimators.uncertainty import Uncertainty
from privest.manifolds import Manifold
from privest.privacy.mechanisms import Release

_FURTHEST = 50.0
"""Displacement, in standard deviations, beyond which a noncentral law is replaced by a normal one."""

_STEEPEST, _FLATTEST = 1e4, 0.1
"""Largest sectional curvature, and least mean Hessian, of the bounds."""

_LEVELS = (np.arange(64) + 0.5) / 64
"""Probabilities of the quantiles that stand for the mixing law of Laplace noise."""

_MANY = 0.2
"""Share of the records beyond a clip that is worth a warning."""


@dataclass(frozen=True)
class MeanHessian:
    """Bounds on the mean Hessian of ½dist² over the records."""

    least: float
    largest: float

    @classmethod
    def of(cls, distances: Histogram, space: Manifold, further: float = 0.0) -> "MeanHessian":
        """Return the bounds that follow from distances and sectional curvature (Hessian comparison).

        Where gradients jump at a cut locus, as on circles, records there lower the Hessian: by the cut
        distance times their density.

        Args:
            distances: of the records from a point.
            space: of the records.
            further: the bounds hold at all points within this distance of the first.
        """
        low, high = (0.0, 0.0) if space.dim == 1 else space.curvature
        if high == inf:
            high = space.mean_curvature(distances.point, distances.average(lambda away: away) + further)
        low, high = sqrt(max(0.0, -low)), sqrt(max(0.0, min(high, _STEEPEST)))

        def least(away: Array) -> Array:
            angle = np.clip((away + further) * high, 1e-6, 0.9 * pi)
            return angle / np.tan(angle)

        def largest(away: Array) -> Array:
            angle = np.maximum((away + further) * low, 1e-6)
            return angle / np.tanh(angle)

        lowered = 0.0
        if space.cut_distance - further <= distances.reach:
            share, seen = distances.beyond(0.99 * (space.cut_distance - further))
            width = space.cut_distance - float(distances.nodes[-2])
            lowered = 2 * space.cut_distance * share / max(width, further, 1e-9) if seen else 0.0
        return cls(max(distances.average(least) - lowered, _FLATTEST), distances.average(largest))

    @property
    def is_flat(self) -> bool:
        """Whether the bounds leave open that ½dist² has several minima."""
        return self.least <= _FLATTEST

    @property
    def settling(self) -> float:
        """The step length that shortens the distance to the mean most."""
        return 2 / (self.least + self.largest)

    def length(self, before: float, added: float) -> float:
        """Return the step length of least error.

        Args:
            before: square of the expected error before the step; infinite for a start.
            added: that of the gradient.
        """
        if before == inf:
            return self.settling
        return min(self.least * before / (self.least**2 * before + added), self.settling)

    def contraction(self, length: float) -> float:
        """Return the factor by which a step of this length shortens any distance to the mean at least."""
        return max(abs(1 - length * self.least), abs(1 - length * self.largest))


@dataclass(frozen=True)
class Region:
    """Law of the distance of an answer from the mean.

    Attributes:
        dim: of the manifold.
        noise: standard deviation of the noise in each direction.
        moved: upper bound of what clips and unfinished steps moved.
        size: length of the noisy vectors if the noise is Laplace's; None if it is Gaussian.
    """

    dim: int
    noise: float
    moved: float
    size: int | None = None

    @classmethod
    def of(cls, space: Manifold, noise: float, moved: float, release: Release) -> "Region":
        """Return the region of an answer with the noise of such a release."""
        return cls(space.dim, noise, moved, release.size if release.noise == "laplace" else None)

    @property
    def root_mean_square(self) -> float:
        """Upper bound of the root mean square distance."""
        return hypot(sqrt(self.dim) * self.noise, self.moved)

    @cached_property
    def _widths(self) -> Array:
        """Standard deviations, over `noise`, of normal laws whose mixture is the law of the noise."""
        if self.size is None:
            return np.ones(1)
        # Laplace noise by length is normal with a χ² variance of size + 1 degrees of freedom.
        freedom = self.size + 1
        return np.sqrt(2 * gammaincinv(freedom / 2, _LEVELS) / freedom)

    def quantile(self, moved: float | None = None) -> float:
        """Return the distance that is not exceeded with probability .95."""
        noise = np.maximum(self.noise * self._widths, 1e-300)
        moved = self.moved if moved is None else moved
        off = moved / noise
        low, high = 0.0, moved + self.noise * 3 * float(self._widths.max()) * sqrt(chdtri(self.dim, 0.05))
        for _ in range(60):
            middle = (low + high) / 2
            reached = middle / noise
            far = ndtr(reached - np.sqrt(off**2 + self.dim - 1))
            near = chndtr(
                np.minimum(reached, 2 * _FURTHEST + self.dim) ** 2, self.dim, np.minimum(off, _FURTHEST) ** 2
            )
            within = float(np.where(off < _FURTHEST, near, far).mean())
            low, high = (middle, high) if within < 0.95 else (low, middle)
        return high


EDGE = (
    "The answer lies on the edge of the declared ball, so the mean may lie outside. Declare a larger radius"
)

SEVERAL = (
    "The records are so far apart that several points may be about equally good means; the answer is one of "
    "them"
)


def outside(share: float) -> Iterator[str]:
    """Yield the warning that so many of the records are outside the ball, if there are any."""
    if share:
        yield (
            f"About {share:.1%} of the records lie outside the declared ball and were moved to its edge, by "
            "which the answer may be off by more than the stated error. Declare a larger radius"
        )


def uncertainty(
    region: Region,
    distances: Histogram | None,
    n: int,
    *,
    spread: float,
    warnings: tuple[str, ...],
    unknown: tuple[str, ...],
    apart: float = 0.0,
) -> Uncertainty:
    """Return the uncertainty of an answer.

    Args:
        region: law of its distance from the mean.
        distances: of the records from a point near the answer, if the run looked at them.
        n: number of records.
        spread: public bound on the records' distance from their mean, for runs without a histogram.
        warnings: the most important first.
        unknown: assumptions, in words.
        apart: distance of another point that may be the mean instead.
    """
    radius, noise = region.quantile() + apart, region.quantile(0.0)
    seen = None if distances is None else sqrt(distances.average(np.square))
    useless = radius >= (spread if seen is None else seen)
    return Uncertainty(
        of="the Fréchet mean of the records",
        standard_deviation=hypot(region.root_mean_square, apart),
        radius_95=radius,
        noise=noise,
        moved=region.moved + apart,
        sampling=None if seen is None else seen / sqrt(n),
        unknown=unknown,
        warnings=(*((_USELESS,) if useless else ()), *warnings),
    )


_USELESS = (
    "The noise hides the mean: the answer may be further from it than the records are; expect no information "
    "from it. Ask with a larger epsilon, or declare a smaller radius"
)


def unseen(distances: Histogram, n: int) -> str:
    """Return the assumption that no small group is far outside the bulk."""
    count = min(n, ceil(4 * n * distances.deviation))
    return (
        f"A group of up to about {count} records far away from all others may be hidden by the noise of the "
        f"histogram; each such record moves the mean by its distance over {n}"
    )


def beyond_clip(distances: Histogram, clip: float) -> Iterator[str]:
    """Yield the warning that many records are beyond a clip."""
    share = distances.average(lambda away: (away > clip).astype(np.float64))
    if share > _MANY:
        yield f"About {share:.0%} of the records are beyond the clip of {clip:.3g} and count as if there"

"""Forecast of the error of a Fréchet mean, and what it assumes."""

from dataclasses import dataclass
from math import hypot, sqrt
from typing import Annotated

from scipy.special import chdtri, gammaincinv

from privest.estimators.frechet_mean.planning import ProblemBounds
from privest.estimators.uncertainty import ExpectedError
from privest.options import Doc
from privest.privacy.mechanisms import Release


@dataclass(frozen=True)
class MeanError(ExpectedError):
    """Geodesic distance by which the noise alone moves the answer, where the clip does not bind."""

    standard_deviation: Annotated[float, Doc("root mean square distance")]
    radius_95: Annotated[float, Doc("not exceeded with probability 0.95")]

    def each_direction(self, dim: int) -> float:
        """Standard deviation in each direction of the normal law with this `radius_95`."""
        return self.radius_95 / sqrt(float(chdtri(dim, 0.05)))


def expected_error(deviation: float, last: Release, bounds: ProblemBounds, *, found: bool) -> MeanError:
    """The quantile by the law of the last step's noise, and how much worse it may come."""
    dim = bounds.space.dim
    if last.noise == "gaussian":
        ratio = sqrt(float(chdtri(dim, 0.05)) / dim)
    else:
        ratio = float(gammaincinv(last.size, 0.95)) / sqrt(last.size * (last.size + 1))
    radius = ratio * deviation
    if found:
        assumes = (
            f"the records are within {bounds.radius:.3g} of their mean; the error is in proportion to how "
            "far they are. Unfavourable: twice as far, and clipping moves as much as noise"
        )
        return MeanError(deviation, radius, assumes=assumes, unfavourable=2 * sqrt(2) * radius)
    assumes = (
        f"no record is further than the clip, {bounds.clip:.3g}, from the mean. Unfavourable: half of "
        "the records are twice as far, all in one direction"
    )
    return MeanError(deviation, radius, assumes=assumes, unfavourable=hypot(radius, 0.5 * bounds.clip))

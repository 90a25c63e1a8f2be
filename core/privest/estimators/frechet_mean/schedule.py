"""The number of gradient steps, their length, and their shares of the budget, from public facts alone."""

from dataclasses import dataclass
from math import sqrt, tan, tanh

import numpy as np

from privest.arrays import Array
from privest.memo import memoized

_MOST_STEPS = 60
_GROWTHS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 15.0, 30.0, 100.0)
_WIDEST = 100.0
"""Logarithm of the largest share over the least: beyond, squares of shares leave float64."""

_LEAST_HESSIAN = 0.3
"""Assumed where geometry promises less: records all around a sphere."""

TYPICAL = 0.7
"""Distance of a typical record from the mean, in clips. It decides what is left of earlier noise."""


@dataclass(frozen=True)
class Schedule:
    """Steps of one length, each with its share of the loss (μ², or ε for pure privacy)."""

    step_size: float
    shares: tuple[float, ...]
    error: float
    """Root mean square distance to the clipped mean that was predicted, from the worst start."""
    noise_error: float
    """Part of `error` by the noise alone, for records at a typical distance from their mean."""


def hessian_bounds(curvature: tuple[float, float], clip: float) -> tuple[float, float]:
    """Least and largest eigenvalue of the Hessian of ½dist², for records within `clip` of the point.

    With sectional curvature in [−k², K²] they are c·K/tan(c·K), at most 1, and c·k/tanh(c·k), at least 1
    (Hessian comparison; the constant ζ of Utpala et al. 2023, Section 2). Records beyond the clip have a
    Hessian between 0 and the same upper bound, so that steps below 2/upper are stable on any data.
    """
    low, high = 1.0, 1.0
    if curvature[1] > 0:
        angle = clip * sqrt(curvature[1])
        low = angle / tan(angle) if angle < 1.5 else 0.0
    if curvature[0] < 0:
        angle = clip * sqrt(-curvature[0])
        high = angle / tanh(angle)
    return max(low, _LEAST_HESSIAN), high


@memoized
def schedule(
    variance: float,
    *,
    power: int,
    curvature: tuple[float, float],
    distance: float,
    clip: float,
    steps: int | None = None,
    step_size: float | None = None,
) -> Schedule:
    """The schedule of least predicted error.

    A step of size η is taken to shorten the distance D to the mean by the slower of the factor
    max|1 − ηh| over Hessian eigenvalues h, and the share η·C/√(D² + C²) that clipped records pull from
    afar (docs/benchmarks.md has it measured). Earlier noise shrinks likewise, but by the Hessian of
    records at a typical distance: for the least favourable ones, all at the clip, twice the budget would
    go into steps that only few data sets need.

    Args:
        variance: total variance of the noise on one mean that has the whole loss for itself.
        power: that of the share by which it is divided: 1 where shares are of μ², 2 of ε.
        curvature: a lower bound of the sectional curvature, and its mean from above.
        distance: public bound on the distance from the start to the mean.
        clip: bound on one record's gradient.
        steps: number of steps, if it is given.
        step_size: length of a step, if it is given; else 1 over the largest Hessian eigenvalue.
    """
    low, high = hessian_bounds(curvature, clip)
    step = step_size if step_size is not None else 1 / high

    def contraction(bounds: tuple[float, float]) -> float:
        return min(1.0, max(abs(1 - step * bound) for bound in bounds))

    worst, typical = contraction((low, high)), contraction(hessian_bounds(curvature, TYPICAL * clip))

    counts = np.arange(1, _MOST_STEPS + 1) if steps is None else np.array([steps])
    count, growth = (grid.ravel() for grid in np.meshgrid(counts, _GROWTHS, indexing="ij"))
    fits = count * np.log(growth) < _WIDEST
    count, growth = count[fits], growth[fits]
    total = np.where(growth > 1, (1 - growth**-count) / (1 - 1 / np.maximum(growth, 1.01)), count)

    bias = np.full(len(count), distance)
    noise = np.zeros(len(count))
    for k in range(int(count.max())):
        on = k < count
        share = growth ** np.where(on, k - count + 1.0, 0.0) / total
        with np.errstate(over="ignore"):
            added = np.minimum(step**2 * variance / share**power, 1e300)
        slow = 1 - step * clip / np.sqrt(bias**2 + noise + clip**2)
        bias = np.where(on, bias * np.maximum(worst, slow), bias)
        noise = np.where(on, np.maximum(typical, slow) ** 2 * noise + added, noise)
    error = bias**2 + noise
    best = int(np.argmin(error))
    return Schedule(
        step,
        _shares(int(count[best]), float(growth[best])),
        sqrt(float(error[best])),
        sqrt(float(noise[best])),
    )


def _shares(count: int, growth: float) -> tuple[float, ...]:
    """Shares that grow by a constant factor from step to step and add up to one."""
    weights: Array = growth ** np.arange(1.0 - count, 1.0)
    return tuple((weights / weights.sum()).tolist())


@memoized
def stochastic_schedule(
    variance: float,
    *,
    sampling: float,
    distance: float,
    clip: float,
    hessian: float,
    most: float,
    steps: int | None = None,
    step_size: float | None = None,
) -> Schedule:
    """The number and the length of steps on random batches, all with the same noise.

    Each step pays for at least an even share of the budget, so that T steps see a noise of T·variance on
    their mean besides that of the sampling; iterates settle where η/(2 − η) of both is left.

    Args:
        variance: total variance of the noise on one mean of all records that has the whole μ² for itself.
        sampling: variance of a batch's mean about that of all records.
        distance: public bound on the distance from the start to the mean.
        clip: bound on one record's gradient.
        hessian: largest eigenvalue of the Hessian; steps are at most 1 over it.
        most: steps to consider.
        steps: T, if it is given.
        step_size: η, if it is given.
    """
    counts = np.unique(np.geomspace(1, most, 200).round()) if steps is None else np.array([float(steps)])
    sizes = np.geomspace(1e-4, 1.0, 60) / hessian if step_size is None else np.array([step_size])
    count, size = (grid.ravel() for grid in np.meshgrid(counts, sizes, indexing="ij"))
    travelled = np.maximum(distance - size * clip * count / 2, 0.0)
    bias = np.maximum(distance * np.maximum(1 - size, 0.0) ** count, travelled)
    noise = np.minimum(size, 1.9) / (2 - np.minimum(size, 1.9)) * (count * variance + sampling)
    best = int(np.argmin(bias**2 + noise))
    chosen = int(count[best])
    return Schedule(
        float(size[best]),
        (1 / chosen,) * chosen,
        sqrt(float(bias[best] ** 2 + noise[best])),
        sqrt(float(noise[best])),
    )

"""How many gradient steps, how long, and how the budget is divided over them: from public facts alone."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt, tan, tanh

_MOST_STEPS = 60
_GROWTHS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 15.0, 30.0, 100.0)
_WIDEST = 100.0
"""Logarithm of the largest share over the least: beyond, squares of shares leave float64."""

_TRAVEL = 0.7
"""Share of the clip by which a step nears a far-off mean. Measured on SPD(11): see docs/benchmarks.md."""

_LEAST_CURVATURE = 0.3
"""Hessian assumed where geometry promises less: records all around a sphere."""


@dataclass(frozen=True)
class Schedule:
    """Steps of one length, each with its share of the loss (μ², or ε for pure privacy)."""

    step_size: float
    shares: tuple[float, ...]
    error: float
    """Root mean square distance to the clipped mean that was predicted, from the worst start."""
    noise_error: float
    """Its part that the noise alone makes."""


def hessian_bounds(curvature: tuple[float, float], clip: float) -> tuple[float, float]:
    """Least and largest eigenvalue of the Hessian of ½dist², for records within `clip` of the point.

    With sectional curvature in [−k², K²] they are c·K/tan(c·K), at most 1, and c·k/tanh(c·k), at least 1
    (Hessian comparison; the constant ζ of paper 000, Section 2). Records beyond the clip have a
    Hessian between 0 and the same upper bound, so that 2/upper bounds the stable step on any data.
    """
    low, high = 1.0, 1.0
    if curvature[1] > 0:
        angle = clip * sqrt(curvature[1])
        low = angle / tan(angle) if angle < 1.5 else 0.0
    if curvature[0] < 0:
        angle = clip * sqrt(-curvature[0])
        high = angle / tanh(angle)
    return max(low, _LEAST_CURVATURE), high


def _predict(
    shares: tuple[float, ...],
    noise_variance: Callable[[float], float],
    *,
    distance: float,
    clip: float,
    step: float,
    contraction: float,
) -> tuple[float, float]:
    """Square of the predicted distance to the mean after the last step, and its part that is noise."""
    squared, noise = distance**2, 0.0
    for share in shares:
        reached = sqrt(squared)
        nearer = max(contraction * reached, reached - _TRAVEL * step * clip)
        added = min(step**2 * noise_variance(share), 1e300)
        squared = nearer**2 + added
        noise = contraction**2 * noise + added
    return squared, noise


def schedule(
    noise_variance: Callable[[float], float],
    *,
    curvature: tuple[float, float],
    distance: float,
    clip: float,
    steps: int | None = None,
    step_size: float | None = None,
) -> Schedule:
    """The schedule of least predicted error.

    Args:
        noise_variance: total variance of the noise on one mean, as a function of its share of the loss.
        curvature: bounds on the sectional curvature.
        distance: public bound on the distance from the start to the mean.
        clip: bound on one record's gradient.
        steps: number of steps, if it is given.
        step_size: length of a step, if it is given; else 2/(least + largest Hessian eigenvalue).
    """
    low, high = hessian_bounds(curvature, clip)
    step = step_size if step_size is not None else 2 / (low + high)
    contraction = max(abs(1 - step * low), abs(1 - step * high))

    def candidate(count: int, growth: float) -> Schedule:
        weights = [growth**-k for k in range(count)][::-1]
        total = sum(weights)
        shares = tuple(weight / total for weight in weights)
        squared, noise = _predict(
            shares, noise_variance, distance=distance, clip=clip, step=step, contraction=min(contraction, 1.0)
        )
        return Schedule(step, shares, sqrt(squared), sqrt(noise))

    def fits(count: int, growth: float) -> bool:
        return count * log(growth) < _WIDEST

    counts = (steps,) if steps is not None else range(1, _MOST_STEPS + 1)
    return min(
        (candidate(count, growth) for count in counts for growth in _GROWTHS if fits(count, growth)),
        key=lambda s: (s.error, len(s.shares)),
    )

"""Descent on a loss that need not be convex, and the step that leaves a saddle point by a noisy Hessian."""

from collections.abc import Callable
from math import inf, sqrt

import numpy as np

from privest.arrays import Array


def noise_level(deviation: float, width: int) -> float:
    """The largest eigenvalue to expect of noise alone, σ√(2d).

    Args:
        deviation: σ, of the noise on a Hessian's coordinates under tr(ab): σ on its diagonal, σ/√2 off it.
        width: d, rows of the Hessian.
    """
    return deviation * sqrt(2 * width)


def way_down(gradient: Array, hessian: Array, *, hessian_lipschitz: float, loud: float) -> Array:
    """The step from a point along the curvatures there that are surely negative; 0 where none is.

    Along a unit u with curvature −c and descent, f falls by at least c·r²/2 − ρ·r³/6 within r, which is most,
    2c³/(3ρ²), at r = 2c/ρ: the second-order step of Nesterov and Polyak (2006) from a saddle point. Here u
    has a part in every eigenvector below the noise, in proportion to its eigenvalue and down the gradient.

    Args:
        gradient: ∇f there, (d,), noisy: where it is nothing but noise, that tosses the coin.
        hessian: ∇²f there, (d, d), noisy.
        hessian_lipschitz: ρ, Lipschitz constant of the Hessian.
        loud: size of eigenvalues that noise alone may have.

    Returns:
        (d,) change of the point: post-processing of what is noisy.
    """
    values, vectors = np.linalg.eigh(hessian)
    falling = np.where(values < -loud, -values, 0.0)
    down = vectors @ np.where(gradient @ vectors > 0, -falling, falling)
    length = float(np.linalg.norm(down))
    if length == 0.0:
        return down
    unit = down / length
    curvature = -float(unit @ hessian @ unit)
    return 2 * curvature / hessian_lipschitz * unit


def descend(
    start: Array,
    gradient: Callable[[Array], Array],
    hessian: Callable[[Array], Array],
    *,
    step: float,
    count: int,
    escapes: frozenset[int],
    hessian_lipschitz: float,
    loud: float = inf,
) -> Array:
    """Descent by noisy gradients, with `way_down` on top of the steps that a Hessian was planned for.

    Args:
        start: (d,) first point.
        gradient: noisy ∇f at a point, asked for once a step.
        hessian: noisy ∇²f at a point, (d, d), asked for once at each of `escapes`.
        step: η of w ← w − η·∇f.
        count: T, number of steps.
        escapes: the steps, from 0 on, that take a Hessian too, whatever their gradients are.
        hessian_lipschitz: ρ.
        loud: size of eigenvalues of a Hessian that noise alone may have.

    Returns:
        (d,) the last point.
    """
    at = start
    for place in range(count):
        slope = gradient(at)
        ahead = at - step * slope
        if place in escapes:
            ahead = ahead + way_down(slope, hessian(at), hessian_lipschitz=hessian_lipschitz, loud=loud)
        at = ahead
    return at

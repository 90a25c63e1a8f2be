"""Gradient descent, full (DP-RGD) or on random batches (DP-RSGD): the gate's plan says which."""

from privest.arrays import Array
from privest.optim.ball import Ball, Walk
from privest.privacy.oracle import Oracle


def gradient_descent(ball: Ball, gate: Oracle, *, start: Array, step_size: float) -> Array:
    """DP-RGD and DP-RSGD: w ← Exp_w(−η·noisy gradient), for each answer still owed.

    Args:
        ball: where the iterates stay.
        gate: source of noisy gradients.
        start: (*shape) first iterate.
        step_size: η.

    Returns:
        (*shape) the last iterate.

    References:
        Utpala et al. (2023), Section 5.3.
    """
    walk = Walk(ball, start)
    while gate.remaining:
        walk.step(step_size * gate.mean(walk.point))
    return walk.point

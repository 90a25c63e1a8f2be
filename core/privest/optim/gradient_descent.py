"""Noisy Riemannian gradient descent on all records (DP-RGD) or on random batches (DP-RSGD)."""

from privest.arrays import Array
from privest.optim.ball import Ball, Walk
from privest.privacy.oracle import Oracle


def gradient_descent(ball: Ball, gate: Oracle, *, start: Array, step_size: float, steps: int) -> Array:
    """DP-RGD or DP-RSGD, as the gate's plan says: w ← Exp_w(−η·noisy gradient).

    Args:
        ball: the ball that the iterates stay in.
        gate: answers with noisy negative gradients.
        start: (*shape) first iterate.
        step_size: η.
        steps: how many, for each of which the plan has an answer.

    Returns:
        (*shape) the last iterate.

    References:
        Utpala et al. (2023), Section 5.3.
    """
    walk = Walk(ball, start)
    for _ in range(steps):
        walk.step(step_size * gate.mean(walk.point))
    return walk.point

"""Gradient descent with momentum on noisy gradients: DP-GD, DP-HB, DP-NAG and DP-MASG."""

from collections.abc import Callable

from privest.arrays import Array
from privest.estimators.linear_model.acceleration_schedule import Schedule


def descend(schedule: Schedule, start: Array, gradient: Callable[[Array], Array]) -> Array:
    """x ← x + β(x − x₋) − α·g, with g taken at x (`hb`, (5)) or at x + β(x − x₋) (`nag`, (6)).

    Args:
        schedule: α and β of every step. A step without β is one from rest: plain descent, or a new stage.
        start: first iterate.
        gradient: noisy gradient at a point.

    Returns:
        the last iterate.

    References:
        Kuru et al. (2022), (5), (6) and Section 4.
    """
    x = before = start
    ahead_of_itself = schedule.method != "hb"
    for length, momentum in zip(schedule.lengths.tolist(), schedule.momenta.tolist(), strict=True):
        ahead = x + momentum * (x - before)
        noisy = gradient(ahead if ahead_of_itself else x)
        x, before = ahead - length * noisy, x
    return x

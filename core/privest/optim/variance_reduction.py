"""Variance-reduced stochastic gradients (DP-RSVRG), with and without restarts."""

from collections.abc import Callable

from privest.arrays import Array
from privest.optim.ball import Ball, Walk
from privest.optim.loops import Epochs
from privest.privacy.oracle import Oracle


def variance_reduced(
    ball: Ball,
    gate: Oracle,
    *,
    asked: Callable[[Array], object] = lambda at: at,
    start: Array,
    step_size: float,
    loops: Epochs,
) -> Array:
    """DP-RSVRG, run once or several times over.

    An epoch takes the full gradient at its anchor and then m steps along it plus the change of
    a batch's gradients since the anchor. With one run the last iterate is returned (output I); with
    more, each run ends with one of its iterates at random (output II) and the next starts there.

    Args:
        ball: where the iterates stay.
        gate: releases gradients at a point, and the statistic `change` at (point, anchor).
        asked: what the gate is asked for the negative gradient at a point; by default the point itself.
        start: (*shape) first iterate.
        step_size: η.
        loops: S epochs of m steps, K times over.

    Returns:
        (*shape) the private point.

    References:
        Utpala et al. (2023), Algorithm 11, and Algorithm 12 for restarts.
    """
    for _ in range(loops.restarts):
        chosen = gate.pick(loops.epochs * loops.frequency)
        iterates = 0
        walk, kept = Walk(ball, start), start
        for _ in range(loops.epochs):
            anchor = asked(walk.point)
            full = gate.mean(anchor)
            for inner in range(loops.frequency):
                if inner and loops.full_noise == "step":
                    full = gate.mean(anchor)
                change = gate.mean((asked(walk.point), anchor), "change")
                walk.step(step_size * (full + change))
                kept = walk.point if iterates == chosen else kept
                iterates += 1
        start = walk.point if loops.restarts == 1 else kept
    return start

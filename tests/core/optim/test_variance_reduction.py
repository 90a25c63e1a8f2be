"""The loops of DP-RSVRG that public facts choose, and the model of clipped changes by which they are."""

from dataclasses import replace

import numpy as np
import pytest

from privest.optim.variance_reduction import AskedLoops, Epochs, LoopProblem, best_loops, predicted

FACTS = LoopProblem(distance=2.0, clip=0.75, hessian=1.0, unit=1e-3, mu_squared=0.01, rate=0.15)


def error_of(problem, *loops, full=0.0, change=0.0):
    error, noise = predicted(problem, *(np.array([float(each)]) for each in (*loops, full, change)))
    return float(error[0]), float(noise[0])


def on_the_line(away, epochs, steps, clip, length):
    """Distance left where all records are in one place within the clip, step by step."""
    at = 0.0
    for _ in range(int(epochs)):
        anchor, full = at, away - at
        for _ in range(int(steps)):
            at += length * (full - np.clip(at - anchor, -clip, clip))
    return abs(away - at)


def test_changes_that_no_clip_cuts_are_those_of_gradient_descent():
    """(1 − η)^(S·m) of the distance is left, if nothing is clipped, and noise is followed by all steps."""
    far = replace(FACTS, clip=1e9)
    error, _ = error_of(far, 3, 5, 1e9, 0.3)
    assert error == pytest.approx(4.0 * 0.7**30, rel=1e-9)
    error, noise = error_of(far, 1, 5, 1e9, 0.3, full=1e-4, change=1e-3)
    kept = 0.7 ** np.arange(0, 10, 2)
    assert noise == pytest.approx((1 - 0.7**5) ** 2 * 1e-4 + 0.09 * kept.sum() * 1e-3, rel=1e-9)


@pytest.mark.parametrize("loops", [(1, 10, 0.1, 0.2), (3, 20, 0.05, 0.3), (2, 5, 0.3, 0.2)])
def test_what_runs_past_the_mean_is_foreseen(loops):
    """The worst distance in which the mean may be is at least as bad as any of those that are looked at."""
    near = replace(FACTS, distance=0.7)
    error, _ = error_of(near, *loops)
    worst = max(on_the_line(each * 0.7, *loops) for each in (1.0, 0.4, 0.15))
    assert error >= 0.95 * worst**2


def test_small_clips_of_changes_are_not_chosen_where_epochs_are_long():
    """C₁ = C₀/56 over twenty long steps ends far beyond the mean, as `test_variance_reduction` has it."""
    lost, _ = error_of(FACTS, 3, 20, 0.75 / 56, 0.2)
    found, _ = error_of(FACTS, 3, 20, 0.75, 0.2)
    assert lost > 5 * found


@pytest.mark.parametrize("mu_squared", [1e-3, 0.1, 1e3])
def test_the_choice_is_the_best_of_those_that_are_given(mu_squared):
    """More privacy takes a smaller clip; what is given is kept; and never more than thirty passes."""
    problem = replace(FACTS, mu_squared=mu_squared, unit=1e-5 / mu_squared)
    loops, clip, length = best_loops(problem, epochs=None, frequency=None, clip=None, step_size=None)
    assert loops.full_noise == "epoch"
    assert loops.frequency >= 2
    assert loops.epochs * (1 + 2 * loops.frequency * problem.rate) <= 30
    assert 0 < clip <= problem.clip
    assert 0 < length <= 1
    kept = best_loops(problem, epochs=7, frequency=4, clip=0.3, step_size=0.05)
    assert kept == (Epochs(7, 4), 0.3, 0.05)


def test_loops_that_nobody_asked_for_are_those_of_old_with_restarts():
    asked = AskedLoops(None, None, 2, "epoch", None)
    assert asked.asked == Epochs(5, 10, 2)
    assert not asked.is_whole
    assert AskedLoops(3, 4, None, "epoch", 0.1).is_whole

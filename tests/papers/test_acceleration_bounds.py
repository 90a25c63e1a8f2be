"""Theorem 3.5 of Kuru et al. 2022, corrected: by simulation, by roots in mpmath, and by its limit."""

from math import log

import mpmath
import numpy as np
import pytest

from privest_papers.accelerated import descend
from privest_papers.acceleration_bounds import (
    best_momentum,
    bound_of,
    heavy_ball,
    least_errors,
)
from privest_papers.acceleration_schedule import Curvature, schedule_of

CURVATURE = Curvature(0.02, 0.27)
pairs = pytest.mark.parametrize(("scale", "momentum"), [(1.0, 0.0), (1.0, 0.6), (0.3, 0.9), (1.0, 0.97)])


def radius(alpha, beta, eigenvalue):
    """Spectral radius of the step (x, x₋) ↦ ((1 + β − αλ)x − βx₋, x)."""
    step = mpmath.matrix([[1 + beta - alpha * eigenvalue, -beta], [1, 0]])
    return max(abs(root) for root in mpmath.eig(step, left=False, right=False))


def printed(alpha, beta, eigenvalue):
    """|a_λ±| of (26) as printed, the larger."""
    kept = 1 - alpha * eigenvalue
    root = mpmath.sqrt((1 + beta) ** 2 * kept**2 - 4 * beta * kept)
    return max(abs((1 + beta) * kept + sign * root) / 2 for sign in (1, -1))


def test_the_printed_rate_is_that_of_another_method():
    """At μ = ½, L = 1, α = 1, β = ½ (26) has ½; the heavy ball keeps √½ a step, as does what is built."""
    curvature = Curvature(0.5, 1.0)
    assert max(printed(1.0, 0.5, each) for each in (0.5, 1.0)) == pytest.approx(0.5)
    assert max(radius(1.0, 0.5, each) for each in (0.5, 1.0)) == pytest.approx(0.5**0.5)
    left = heavy_ball(curvature, 1.0, 0.5, 300).left
    assert (left[-1] / left[99]) ** (1 / 400) == pytest.approx(0.5**0.5, rel=0.01)
    # What is printed are the roots of a step that takes its gradient ahead: Nesterov's.
    for eigenvalue in (0.5, 0.8):
        kept = 1 - eigenvalue
        ahead = mpmath.matrix([[1.5 * kept, -0.5 * kept], [1, 0]])
        roots = mpmath.eig(ahead, left=False, right=False)
        assert float(max(map(abs, roots))) == pytest.approx(float(printed(1.0, 0.5, eigenvalue)))


@pairs
def test_what_is_left_is_what_roots_say(scale, momentum):
    """g_k and c_k from the roots, in 50 digits; at every eigenvalue, and for every number of steps."""
    alpha, count = scale / CURVATURE.most, 60
    bound = heavy_ball(CURVATURE, alpha, momentum, count)
    with mpmath.workdps(50):
        for place in (0, 7, 40, 64):
            eigenvalue = mpmath.mpf(bound.eigenvalues[place])
            half = (1 + mpmath.mpf(momentum) - mpmath.mpf(alpha) * eigenvalue) / 2
            root = mpmath.sqrt(half**2 - mpmath.mpf(momentum))
            up, down = half + root, half - root

            def g(k, up=up, down=down):
                return ((up ** (k + 1) - down ** (k + 1)) / (up - down)).real

            for k in range(count):
                # Near a root of g rounding shows; against its largest value it is nothing.
                noise = float((mpmath.mpf(alpha) * g(k)) ** 2)
                start = float((g(k + 1) - mpmath.mpf(momentum) * g(k)) ** 2)
                assert bound.noise[k, place] == pytest.approx(noise, rel=1e-8, abs=1e-9 * alpha**2)
                assert bound.start[k, place] == pytest.approx(start, rel=1e-8, abs=1e-9)


@pairs
def test_what_noise_leaves_for_ever_is_m(scale, momentum):
    """The variance of (25): α(1 + β)/((1 − β)λ(2 + 2β − αλ)), which many steps come to."""
    alpha = scale / CURVATURE.most
    bound = heavy_ball(CURVATURE, alpha, momentum, 3000)
    for place in (0, 20, 64):
        eigenvalue = bound.eigenvalues[place]
        limit = alpha * (1 + momentum) / (1 - momentum) / eigenvalue
        limit /= 2 + 2 * momentum - alpha * eigenvalue
        assert bound.noise[:, place].sum() == pytest.approx(limit, rel=1e-9)


@pairs
def test_errors_of_runs_with_noise_are_what_is_stated(scale, momentum):
    """20,000 runs on a quadratic with one eigenvalue in each coordinate, noise that changes on the way.

    A mean square has a standard error of 1 %: off by 5 % in less than one run of a million.
    """
    rng, count = np.random.default_rng(4), 40
    schedule = schedule_of("hb", CURVATURE, scale=scale, count=count, momentum=momentum)
    bound = bound_of(schedule)
    places = [0, 30, 64]
    hessian = bound.eigenvalues[places]
    deviations = np.geomspace(1.0, 0.2, count)
    noise = iter(deviations[:, None, None] * rng.standard_normal((count, 20_000, 3)))
    begin = np.full((20_000, 3), 5.0)
    ends = descend(schedule, begin, lambda at: at * hessian + next(noise))
    variance = deviations**2 @ bound.noise[::-1, places]
    wanted = variance + 25 * bound.start[-1, places]
    np.testing.assert_allclose(np.mean(ends**2, axis=0), wanted, rtol=0.05)
    # The bound on the loss is above it, and no more than twice.
    error = np.mean(ends**2, axis=0) @ hessian / 2
    start = 25 * hessian.sum() / 2
    stated = bound.left[-1] * start + bound.weights(count) @ deviations**2 * 3 / 2
    assert error <= stated
    # And that on distances is that of the worst coordinate.
    spread, _ = bound.distances(deviations**2, start)
    assert 0.95 < spread / variance.max() < 1.5


def test_plain_steps_are_bounded_on_every_loss():
    """The bound on distances of `gd`, where the curvature changes on the way: 4,000 runs on log cosh.

    Maps x − α∇F(x) contract by 1 − αμ, whatever the curvature. A mean square has a standard error of 2 %.
    """
    rng, curvature, count = np.random.default_rng(6), Curvature(0.05, 1.05), 80
    schedule = schedule_of("gd", curvature, scale=1.0, count=count)
    noise = iter(2.0 * rng.standard_normal((count, 4_000, 2)))
    ends = descend(schedule, np.zeros((4_000, 2)), lambda at: np.tanh(at) + 0.05 * at + next(noise))
    spread, _ = bound_of(schedule).distances(np.full(count, 4.0), 1.0)
    assert 0.05 * spread < float(np.mean(ends**2)) <= spread


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("least", [1e-9, 0.02, 0.2])
def test_enough_eigenvalues_are_looked_at(momentum, least, monkeypatch):
    """Sixty times as many find sums of a_{T,t} that are at most 5 % larger, and hardly more of the start."""
    curvature = Curvature(least, 0.27)
    few = heavy_ball(curvature, 1 / 0.27, momentum, 200)
    monkeypatch.setattr("privest_papers.acceleration_bounds._EIGENVALUES", 3_841)
    many = heavy_ball(curvature, 1 / 0.27, momentum, 200)
    assert np.all(few.sums(2) <= many.sums(2) * (1 + 1e-12))
    assert np.all(many.sums(2) <= 1.05 * few.sums(2))
    assert np.all(many.left <= few.left + 0.02)


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize("least", [1e-4, 0.02])
def test_the_best_momentum_is_that_of_a_finer_grid(pure, least):
    """But for 10 % of the bound; and it is no worse than none, or than the best without noise.

    With Gaussian noise that is divided as is best, and steps enough, none is best.
    """
    curvature = Curvature(least, 0.27)
    length, found = 1 / curvature.most, []
    usual = float(schedule_of("hb", curvature, scale=1.0, count=1).momenta[0])
    for variance in (1e-9, 1e-5, 1e-2, 10.0):
        facts = {"start": log(2), "variance": variance, "pure": pure}

        def error(momentum, facts=facts):
            return least_errors(heavy_ball(curvature, length, momentum, 300), **facts).min()

        best = best_momentum(curvature, length, 300, sampling=0.0, **facts)
        assert error(best) <= min(error(0.0), 1.05 * error(usual))
        assert error(best) <= 1.1 * min(error(each) for each in np.linspace(0, 0.98, 50))
        found.append(best)
    assert found[-1] == 0.0  # one short step is all that so much noise allows
    assert (max(found) > 0.3) == (pure or least < 1e-3)


def test_sampling_counts_against_momentum():
    facts = {"start": log(2), "variance": 1e-6, "pure": True}
    quiet, sampled = (
        best_momentum(Curvature(1e-3, 0.27), 1 / 0.27, 300, sampling=s, **facts) for s in (0.0, 0.1)
    )
    assert sampled < quiet

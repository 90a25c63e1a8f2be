"""Gradient descent and its schedule: where it goes without noise, and that no noise leads it astray."""

import numpy as np
import pytest

from privest import manifolds
from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean import frechet_mean
from privest.estimators.frechet_mean.frechet_mean import FrechetMeanSpec
from privest.estimators.frechet_mean.gradient_solvers import hessian_bounds, schedule
from privest.optim.descent import Ball, gradient_descent
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.gate import Gate

SPACES = [
    manifolds.get("euclidean", dim=4),
    manifolds.get("sphere", dim=2),
    manifolds.get("sphere", dim=4),
    manifolds.get("spd", dim=3),
]
each_space = pytest.mark.parametrize("space", SPACES, ids=lambda s: f"{s.name}-{s.params['dim']}")


class Oracle:
    """Answers from a list; keeps the points at which it was asked."""

    def __init__(self, answers):
        self.answers, self.points = list(answers), []

    def mean(self, point, statistic="gradient"):  # noqa: ARG002
        self.points.append(point)
        return self.answers.pop(0)


class Exact:
    """The mean log towards given rows, without clip or noise."""

    def __init__(self, space, rows):
        self.space, self.rows = space, rows

    def mean(self, point, statistic="gradient"):  # noqa: ARG002
        return self.space.log_coordinates(point, self.rows).mean(axis=0)


def cloud(space, rng, n, spread):
    c = rng.standard_normal((n, space.coordinate_size))
    c *= spread * rng.uniform(0, 1, (n, 1)) / np.linalg.norm(c, axis=1, keepdims=True)
    return space.exp_coordinates(space.random_point(rng), c)


@each_space
def test_the_mean_is_found_without_noise(space):
    rng = np.random.default_rng(0)
    rows = cloud(space, rng, 50, 0.7)
    start = rows[0]
    found = gradient_descent(
        Ball(space, start, 3.0), Exact(space, rows), start=start, step_size=0.9, steps=60
    )
    gradient = space.log_coordinates(found, rows).mean(axis=0)
    assert np.linalg.norm(gradient) < 1e-9


@each_space
def test_every_answer_is_used_and_no_more(space):
    oracle = Oracle(np.zeros((5, space.coordinate_size)))
    start = space.random_point(np.random.default_rng(1))
    end = gradient_descent(Ball(space, start, 1.0), oracle, start=start, step_size=1.0, steps=5)
    assert len(oracle.points) == 5
    assert space.dist(start, end) < 1e-7


@each_space
@pytest.mark.parametrize("size", [1e-300, 1.0, 1e3, 1e12, 1e100])
def test_iterates_stay_in_the_public_ball(space, size):
    rng = np.random.default_rng(2)
    center = space.random_point(rng)
    oracle = Oracle(size * rng.standard_normal((50, space.coordinate_size)))
    end = gradient_descent(Ball(space, center, 0.8), oracle, start=center, step_size=1.0, steps=50)
    iterates = np.stack([*oracle.points, end])
    assert space.belongs(iterates).all()
    assert space.dist(center, iterates).max() <= 0.8 + 1e-9


@each_space
def test_points_beyond_the_ball_come_back_to_its_edge(space):
    rng = np.random.default_rng(3)
    center = space.random_point(rng)
    for length in (0.1, 0.5, 1.0, 2.0):
        v = space.from_coordinates(center, rng.standard_normal(space.coordinate_size))
        v *= length / space.norm(center, v)
        point = space.exp(center, v)
        back, distance = Ball(space, center, 0.6).nearest(point)
        assert distance == pytest.approx(min(length, 0.6), rel=1e-9)
        if length <= 0.6:
            np.testing.assert_array_equal(back, point)
        else:
            np.testing.assert_allclose(space.dist(center, back), 0.6, rtol=1e-9)
            assert space.dist(back, point) == pytest.approx(length - 0.6, rel=1e-6)


@each_space
def test_hessian_bounds_hold_within_the_clip(space):
    """The second difference of ½dist² along a geodesic through the point lies between the bounds."""
    if space.dim < 2:
        pytest.skip("flat")
    rng = np.random.default_rng(4)
    clip, h = 1.2, 1e-3
    low, high = hessian_bounds(space.curvature, clip)
    point = space.random_point(rng)
    c = rng.standard_normal((40, space.coordinate_size))
    rows = space.exp_coordinates(point, 0.5 * clip * c / space.dim**0.5)
    rows = rows[space.dist(point, rows) <= clip]
    assert len(rows) > 5
    v = space.from_coordinates(point, rng.standard_normal(space.coordinate_size))
    v *= h / space.norm(point, v)

    def value(at):
        return 0.5 * space.dist(at, rows) ** 2

    second = (value(space.exp(point, v)) + value(space.exp(point, -v)) - 2 * value(point)) / h**2
    assert second.min() >= min(low, 1.0) - 1e-3
    assert second.max() <= high + 1e-3


@pytest.mark.few(10)
@pytest.mark.parametrize("steps", [None, 1, 2, 60, 200, 1000])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("noise", [1e-290, 1e-12, 1.0, 1e12, 1e290])
def test_shares_are_positive_and_make_one(steps, power, noise):
    for curvature in [(0.0, 0.0), (-0.5, 0.0), (1.0, 1.0)]:
        for step_size in (None, 1e-3, 1.0, 1e90):
            chosen = schedule(
                noise,
                power=power,
                curvature=curvature,
                distance=3.0,
                clip=2.0,
                steps=steps,
                step_size=step_size,
            )
            assert steps is None or len(chosen.shares) == steps
            assert min(chosen.shares) > 1e-50
            assert sum(chosen.shares) == pytest.approx(1.0, rel=1e-12)
            assert np.isfinite([chosen.error, chosen.noise_error, chosen.step_size]).all()


@pytest.mark.parametrize("dim", [2, 5, 11])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_widely_spread_matrices_do_not_diverge(dim, delta):
    """Log-eigenvalues uniform on (−8, 8): the gradient shrinks, and the answer is as near as predicted."""
    rng = np.random.default_rng(dim)
    n = 200
    q = np.linalg.qr(rng.standard_normal((n, dim, dim)))[0]
    spread = np.exp(rng.uniform(-8, 8, (n, 1, dim)))
    radius = 8.0 * dim**0.5
    shape = PointsMetadata(n, {"name": "spd", "dim": dim}, radius=radius)
    rows = shape.space.canonical((q * spread) @ np.swapaxes(q, -1, -2))
    plan = frechet_mean.plan(FrechetMeanSpec(diagnostics=False), shape, PrivacyTarget(1000.0, delta))
    answer = frechet_mean.run(plan, Gate(Records(rows), plan.statistics, plan.releases))
    assert shape.space.belongs(answer)

    def pull(at):
        return np.linalg.norm(shape.space.log_coordinates(at, rows).mean(axis=0))

    assert pull(answer) < 0.5 * pull(shape.space.exp_coordinates(answer, np.full(shape.space.dim, 1.0)))
    exact = gradient_descent(
        Ball(shape.space, shape.space.reference, radius),
        Exact(shape.space, rows),
        start=answer,
        step_size=plan.step_size,
        steps=100,
    )
    assert pull(exact) < 0.01
    assert shape.space.dist(exact, answer) < 1.0 + 3 * plan.expected_error.radius_95


@pytest.mark.parametrize(
    "name_dim", [("euclidean", 3), ("sphere", 2), ("sphere", 5), ("spd", 1), ("spd", 2), ("spd", 11)]
)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("radius", [None, 1e-9, 30.0, 100.0])
def test_hugely_noisy_runs_return_points(name_dim, delta, radius):
    """Two records and ε = 0.001: the answer is noise, but it is on the manifold, and nothing warns."""
    name, dim = name_dim
    shape = PointsMetadata(2, {"name": name, "dim": dim}, radius=radius)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows = np.stack([shape.space.random_point(rng) for _ in range(2)])
        plan = frechet_mean.plan(
            FrechetMeanSpec(diagnostics=False, steps=12 if seed % 2 else None),
            shape,
            PrivacyTarget(1e-3, delta),
        )
        answer = frechet_mean.run(plan, Gate(Records(rows), plan.statistics, plan.releases))
        assert shape.space.belongs(answer)

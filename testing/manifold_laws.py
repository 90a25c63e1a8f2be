"""The laws of a Riemannian manifold: functions of a case and a generator, which fail where a law is broken.

Statistical laws state their false-alarm rate.
"""

import numpy as np
import pytest
from scipy import stats

from privest import manifolds
from testing.manifold_cases import bases, induced, points, tangents

DRAWS = 2000
ALARM = 1e-9


def facts_are_consistent(case, rng):
    space = case.space
    assert space == manifolds.get(space.name, **space.params)
    assert space.reference.shape == space.shape == space.random_point(rng).shape
    assert space.belongs(space.reference)
    assert space.belongs(points(space, rng, 50)).all()
    assert space.dim == len(case.basis(space.reference)) <= space.coordinate_size
    assert all(space.belongs(base) for base, _ in bases(case, rng))


def vectors_are_tangent(case, rng):
    space = case.space
    for base, error in bases(case, rng):
        vectors = {
            "log": space.log(base, case.points(rng, base, 20)),
            "from_coordinates": space.from_coordinates(
                base, rng.standard_normal((20, space.coordinate_size))
            ),
            "transport": space.transport_from_reference(base, tangents(case, rng, space.reference, 20)),
            "noise": space.sample_tangent_gaussian(rng, base, 3.0, (20,)),
            "projection": space.project_tangent(base, rng.standard_normal((20, *space.shape))),
        }
        basis = case.basis(base)
        for name, v in vectors.items():
            assert v.shape == (20, *space.shape), name
            size = np.abs(v).max()
            flat = v.reshape(20, -1)
            assert np.abs(flat - flat @ basis.T @ basis).max() <= 1e-10 * size, name
            assert np.abs(v - space.project_tangent(base, v)).max() <= error * size, name


def projection_is_orthogonal_in_an_induced_metric(case, rng):
    if case.metric is not induced:
        pytest.skip("the metric is not that of the space around")
    for base, _ in bases(case, rng):
        a, basis = rng.standard_normal((5, *case.space.shape)), case.basis(base)
        flat = case.space.project_tangent(base, a).reshape(5, -1)
        np.testing.assert_allclose(flat, a.reshape(5, -1) @ basis.T @ basis, rtol=0, atol=1e-12)


def noise_is_isotropic_with_the_stated_variance(case, rng):
    """Chi-square tests of |ξ|² and of the variance along every axis and diagonal of an orthonormal basis.

    Exact but for rounding; two-sided, Bonferroni over all directions: false alarm below 2e-9 a base point.
    """
    dim = case.space.dim
    for base, _ in bases(case, rng):
        sigma = 0.3
        z = case.frame(base, case.space.sample_tangent_gaussian(rng, base, sigma, (DRAWS,))) / sigma
        assert z.shape == (DRAWS, dim)
        low, high = (stats.chi2.ppf(tail, DRAWS * dim) for tail in (ALARM / 2, 1 - ALARM / 2))
        assert low < np.sum(z * z) < high
        gram = z.T @ z
        along = np.diagonal(gram)
        diagonals = (along[:, None] + along[None, :]) / 2 + gram * (1 - np.eye(dim))
        low, high = stats.chi2.ppf(np.array([ALARM / 2 / gram.size, 1 - ALARM / 2 / gram.size]), DRAWS)
        assert low < along.min()
        assert along.max() < high
        off = diagonals[~np.eye(dim, dtype=bool)]
        assert ((low < off) & (off < high)).all()


def noise_is_gaussian(case, rng):
    """Kolmogorov-Smirnov along one random direction: false alarm 1e-9 a base point."""
    for base, _ in bases(case, rng):
        direction = rng.standard_normal(case.space.dim)
        z = case.frame(base, case.space.sample_tangent_gaussian(rng, base, 1.0, (DRAWS,)))
        assert stats.kstest(z @ direction / np.linalg.norm(direction), "norm").pvalue > ALARM


def sample_shapes(case, rng):
    space, base = case.space, case.space.random_point(rng)
    assert space.sample_tangent_gaussian(rng, base, 1.0).shape == space.shape
    assert space.sample_tangent_gaussian(rng, base, 1.0, (2, 3)).shape == (2, 3, *space.shape)


def metric_is_that_of_the_frame(case, rng):
    for base, error in bases(case, rng):
        u, v = tangents(case, rng, base, 2)
        x, y = case.frame(base, np.stack([u, v]))
        size = np.linalg.norm(x) * np.linalg.norm(y)
        assert abs(case.space.inner(base, u, v) - x @ y) <= error * size
        assert abs(case.space.norm(base, u) - np.linalg.norm(x)) <= error * np.linalg.norm(x)


def coordinates_are_an_isometry_and_from_coordinates_its_adjoint(case, rng):
    space = case.space
    for base, error in bases(case, rng):
        v = tangents(case, rng, base, 4)
        c = rng.standard_normal((4, space.coordinate_size))
        ours, frame = space.coordinates(base, v), case.frame(base, v)
        size = np.max(np.abs(frame @ frame.T))
        np.testing.assert_allclose(ours @ ours.T, frame @ frame.T, rtol=0, atol=error * size)
        adjoint = case.frame(base, space.from_coordinates(base, c))
        np.testing.assert_allclose(ours @ c.T, frame @ adjoint.T, rtol=0, atol=error * (1 + size))
        back = case.frame(base, space.from_coordinates(base, ours))
        np.testing.assert_allclose(back, frame, rtol=0, atol=error * (1 + size))


def transport_is_a_linear_isometry(case, rng):
    space = case.space
    for base, error in bases(case, rng):
        v = tangents(case, rng, space.reference, 4)
        there = case.frame(base, space.transport_from_reference(base, v))
        here = case.frame(space.reference, v)
        np.testing.assert_allclose(there @ there.T, here @ here.T, rtol=0, atol=error * 10 * space.dim)
        combined = space.transport_from_reference(base, 2 * v[0] - v[1])
        size = np.abs(combined).max()
        parts = 2 * space.transport_from_reference(base, v[0]) - space.transport_from_reference(base, v[1])
        np.testing.assert_allclose(combined, parts, rtol=0, atol=1e-12 * size)


def transport_is_parallel(case, rng):
    """Transport carries a geodesic's direction along itself, and any vector as a pole ladder does."""
    if case.not_parallel:
        pytest.skip(case.not_parallel)
    space, small = case.space, 1e-3
    base = space.random_point(rng)
    way = space.log(space.reference, base)
    along = space.transport_from_reference(base, way)
    np.testing.assert_allclose(along, -space.log(base, space.reference), rtol=0, atol=1e-9)
    v = tangents(case, rng, space.reference, 1, 1.0)[0]
    carried = v
    for rung in range(16):
        here, middle, there = (space.exp(space.reference, (rung + t) / 16 * way) for t in (0, 0.5, 1))
        side = space.exp(middle, -space.log(middle, space.exp(here, small * carried)))
        carried = -space.log(there, side) / small
    np.testing.assert_allclose(space.transport_from_reference(base, v), carried, rtol=0, atol=1e-4)


def exp_is_the_exponential_map_of_the_metric(case, rng):
    """Gauss's lemma, with a derivative of one at zero: only the exponential map has both."""
    space, h = case.space, 1e-5
    base = space.random_point(rng)
    u = tangents(case, rng, base, 5, 1.0)
    for length in (0.0, 0.5 * min(case.reach(base), 2.0)):
        v = tangents(case, rng, base, 5, length)
        end = space.exp(base, v)
        along = (space.exp(base, (1 + h) * v) - space.exp(base, (1 - h) * v)) / (2 * h)
        across = (space.exp(base, v + h * u) - space.exp(base, v - h * u)) / (2 * h)
        for i in range(5):
            x, y = (case.frame(end[i], side[i]) for side in (along, across))
            radial, other = case.frame(base, v[i]), case.frame(base, u[i])
            assert abs(x @ y - radial @ other) < 1e-6
            assert abs(x @ x - radial @ radial) < 1e-6
            assert length or abs(y @ y - 1) < 1e-6


def exp_undoes_log(case, rng):
    for base, error in bases(case, rng, logs=True):
        x = case.points(rng, base, 20)
        there = case.space.exp(base, case.space.log(base, x))
        assert (case.space.dist(there, x) <= error * (1 + case.space.dist(base, x))).all()


def log_undoes_exp_and_distance_is_its_length(case, rng):
    space = case.space
    for base, error in bases(case, rng, logs=True):
        far = min(case.reach(base), 5.0 if error < 1e-5 else 1.0)
        for length in (1e-6 * far, 0.2 * far, 0.99 * far):
            v = tangents(case, rng, base, 20, length)
            there = space.exp(base, v)
            assert space.belongs(there).all()
            back = case.frame(base, space.log(base, there) - v)
            noise = error * (1 + length) ** 2
            assert np.abs(back).max() <= noise
            np.testing.assert_allclose(space.dist(base, there), length, rtol=0, atol=noise)


def distance_is_a_metric(case, rng):
    space = case.space
    a, b, c = (points(space, rng, 50) for _ in range(3))
    ab, bc, ac = space.dist(a, b), space.dist(b, c), space.dist(a, c)
    np.testing.assert_allclose(ab, space.dist(b, a), rtol=1e-9)
    np.testing.assert_allclose(ab, space.norm(a, space.log(a, b)), rtol=1e-9)
    assert (ab > 0).all()
    assert np.abs(space.dist(a, a)).max() < 1e-7
    assert (ac <= ab + bc + 1e-12).all()


def isometries_leave_the_metric_alone(case, rng):
    space = case.space
    base, x = space.random_point(rng), points(space, rng, 10)
    v = tangents(case, rng, base, 10, 0.5)
    move = case.isometry(space, rng)
    there = space.canonical(move(base))
    np.testing.assert_allclose(space.dist(there, move(x)), space.dist(base, x), rtol=1e-8)
    np.testing.assert_allclose(space.norm(there, move(v)), space.norm(base, v), rtol=1e-8)
    assert space.dist(space.exp(there, move(v)), space.canonical(move(space.exp(base, v)))).max() < 1e-7


def leading_axes_are_batches(case, rng):
    space = case.space
    base = points(space, rng, 6).reshape(3, 2, *space.shape)
    x = points(space, rng, 6).reshape(3, 2, *space.shape)
    v = np.stack([space.log(b, y) for b, y in zip(base[:, 0], x[:, 0], strict=True)])[:, None]
    v = np.concatenate([v, 0 * v], axis=1)
    c = rng.standard_normal((3, 2, space.coordinate_size))
    calls = {
        "exp": (base, v),
        "log": (base, x),
        "dist": (base, x),
        "project_tangent": (base, x),
        "transport_from_reference": (base, v),
        "coordinates": (base, v),
        "from_coordinates": (base, c),
        "log_coordinates": (base, x),
        "exp_coordinates": (base, c),
        "norm": (base, v),
        "broken_rule": (x,),
        "canonical": (x,),
    }
    for name, arguments in calls.items():
        method = getattr(space, name)
        looped = np.array([[method(*(a[i, j] for a in arguments)) for j in range(2)] for i in range(3)])
        np.testing.assert_allclose(method(*arguments), looped, rtol=1e-10, atol=1e-12, err_msg=name)
        if len(arguments) == 2:
            one, many = base[0, 0], arguments[1]
            looped = np.array([[method(one, many[i, j]) for j in range(2)] for i in range(3)])
            np.testing.assert_allclose(method(one, many), looped, rtol=1e-9, atol=1e-12, err_msg=name)


def short_ways_agree_with_long_ways(case, rng):
    space = case.space
    for base, error in bases(case, rng, logs=True):
        x = case.points(rng, base, 10)
        long = space.coordinates(base, space.log(base, x))
        short = space.log_coordinates(base, x)
        np.testing.assert_allclose(short, long, rtol=0, atol=error * np.abs(long).max())
        c = 0.3 * rng.standard_normal((10, space.coordinate_size))
        there = space.exp(base, space.from_coordinates(base, c))
        assert space.dist(space.exp_coordinates(base, c), there).max() <= 10 * error * (1 + np.abs(c).max())


def curvature(space, base, u, v):
    """Sectional curvature of the plane of two orthogonal unit vectors.

    By the law of cosines to fourth order: c² = a² + b² − 2ab·cos γ − (K/3)·a²b²·sin²γ.
    """
    side = 0.02
    third = float(space.dist(space.exp(base, side * u), space.exp(base, side * v)))
    return 3 * (2 * side**2 - third**2) / side**4


def small_triangles_respect_the_stated_curvature(case, rng):
    space = case.space
    if space.dim < 2:
        pytest.skip("a line has no sectional curvature")
    low, high = space.curvature
    for _ in range(20):
        base = space.random_point(rng)
        u, v = tangents(case, rng, base, 2, 1.0)
        v = v - space.inner(base, u, v) * u
        measured = curvature(space, base, u, v / space.norm(base, v))
        assert low - 0.02 <= measured <= high + 0.02


LAWS = (
    facts_are_consistent,
    vectors_are_tangent,
    projection_is_orthogonal_in_an_induced_metric,
    noise_is_isotropic_with_the_stated_variance,
    noise_is_gaussian,
    sample_shapes,
    metric_is_that_of_the_frame,
    coordinates_are_an_isometry_and_from_coordinates_its_adjoint,
    transport_is_a_linear_isometry,
    transport_is_parallel,
    exp_is_the_exponential_map_of_the_metric,
    exp_undoes_log,
    log_undoes_exp_and_distance_is_its_length,
    distance_is_a_metric,
    isometries_leave_the_metric_alone,
    leading_axes_are_batches,
    short_ways_agree_with_long_ways,
    small_triangles_respect_the_stated_curvature,
)

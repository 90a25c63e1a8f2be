"""The laws of a Riemannian manifold, one suite for all of them: a new manifold is a new line in `CASES`.

What an implementation says of its own metric is not believed: `frame` gives orthonormal coordinates of
tangent vectors on another way. Statistical tests use fixed seeds and state their false-alarm rate.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import stats

from privest import manifolds
from privest.manifolds import Manifold

DRAWS = 2000
ALARM = 1e-9


def embedded_frame(space: Manifold, base, v):
    """Coordinates in an orthonormal basis of the tangent space, cut out of the ambient space by SVD."""
    axes = np.eye(base.size).reshape(-1, *space.shape)
    projection = np.stack([space.project_tangent(base, axis).ravel() for axis in axes])
    basis = np.linalg.svd(projection)[2][: space.dim]
    return v.reshape(*v.shape[: -base.ndim], base.size) @ basis.T


def spd_frame(space: Manifold, base, v):
    """Of w^-1/2 v w^-1/2, by eigenvalues: the code under test goes by Cholesky."""
    values, vectors = np.linalg.eigh(base)
    root = vectors / np.sqrt(values)
    white = root.T @ v @ root
    rows, columns = np.triu_indices(space.shape[0], 1)
    return np.concatenate(
        [np.diagonal(white, axis1=-2, axis2=-1), np.sqrt(2) * white[..., rows, columns]], axis=-1
    )


def wide_vector(space: Manifold, rng):
    return 1e6 * rng.standard_normal(space.shape)


def wide_sphere(space: Manifold, rng):
    """Nearly the antipode of the reference."""
    return space.canonical(-space.reference + 1e-4 * rng.standard_normal(space.shape))


def wide_spd(space: Manifold, rng):
    """Eigenvalues from 1e-6 to 1e6, the ends included."""
    m = space.shape[0]
    q = np.linalg.qr(rng.standard_normal((m, m)))[0]
    powers = np.array([rng.choice([-6, 6])]) if m == 1 else np.linspace(-6, 6, m)
    return space.canonical((q * 10.0**powers) @ q.T)


def rotation(space: Manifold, rng):
    q = np.linalg.qr(rng.standard_normal((space.shape[0],) * 2))[0]
    return lambda a: a @ q.T


def congruence(space: Manifold, rng):
    a = rng.standard_normal(space.shape) + 2 * np.eye(space.shape[0])
    return lambda x: a @ x @ a.T


@dataclass(frozen=True)
class Case:
    name: str
    params: dict
    frame: Callable = embedded_frame
    wide: Callable = wide_vector
    isometry: Callable = rotation
    injectivity: float = np.inf
    wide_error: float = 1e-9
    """Relative rounding error of squared lengths at wide base points: condition number times 2^-53."""
    space: Manifold = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "space", manifolds.get(self.name, **self.params))

    def __str__(self):
        return f"{self.name}-{self.params['dim']}"


SPHERE = {"wide": wide_sphere, "injectivity": np.pi}
SPD = {"frame": spd_frame, "wide": wide_spd, "isometry": congruence, "wide_error": 2e-3}
CASES = [
    *(Case("euclidean", {"dim": dim}) for dim in (2, 3, 20)),
    *(Case("sphere", {"dim": dim}, **SPHERE) for dim in (2, 3, 20)),
    *(Case("spd", {"dim": dim}, **SPD) for dim in (1, 2, 5, 11)),
]


@pytest.fixture(params=CASES, ids=str)
def case(request) -> Case:
    return request.param


@pytest.fixture
def space(case) -> Manifold:
    return case.space


@pytest.fixture
def rng(case) -> np.random.Generator:
    return np.random.default_rng([ord(letter) for letter in str(case)])


def bases(case, rng):
    """Base points with the relative error to expect there."""
    return [(case.space.random_point(rng), 1e-10), (case.wide(case.space, rng), case.wide_error)]


def points(space, rng, count):
    return np.stack([space.random_point(rng) for _ in range(count)])


def tangents(space, rng, base, count, length=None):
    v = space.from_coordinates(base, rng.standard_normal((count, space.coordinate_size)))
    if length is None:
        return v
    scale = length / space.norm(base, v)
    return v * scale.reshape(-1, *[1] * len(space.shape))


def test_facts_are_consistent(case, space, rng):
    assert space == manifolds.get(space.name, **space.params)
    assert space.reference.shape == space.shape == space.random_point(rng).shape
    assert space.belongs(space.reference)
    assert space.belongs(points(space, rng, 50)).all()
    assert space.dim <= space.coordinate_size
    assert all(space.belongs(base) for base, _ in bases(case, rng))


def test_vectors_are_tangent(case, space, rng):
    for base, _ in bases(case, rng):
        vectors = {
            "log": space.log(base, points(space, rng, 20)),
            "from_coordinates": tangents(space, rng, base, 20),
            "transport": space.transport_from_reference(base, tangents(space, rng, space.reference, 20)),
            "noise": space.sample_tangent_gaussian(rng, base, 3.0, 20),
        }
        for name, v in vectors.items():
            assert v.shape == (20, *space.shape), name
            size = np.abs(v).max()
            assert np.abs(v - space.project_tangent(base, v)).max() <= 1e-10 * size, name


def test_noise_is_isotropic_with_the_stated_variance(case, space, rng):
    """Chi-square tests of |ξ|² and of the variance along every axis and diagonal of an orthonormal basis.

    Exact but for rounding; two-sided, Bonferroni over all directions: false alarm below 2e-9 a base point.
    """
    for base, _ in bases(case, rng):
        sigma = 0.3
        z = case.frame(space, base, space.sample_tangent_gaussian(rng, base, sigma, DRAWS)) / sigma
        assert z.shape == (DRAWS, space.dim)
        total = DRAWS * space.dim
        low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], total)
        assert low < np.sum(z * z) < high
        gram = z.T @ z
        along = np.diagonal(gram)
        diagonals = (along[:, None] + along[None, :]) / 2 + gram * (1 - np.eye(space.dim))
        low, high = stats.chi2.ppf([ALARM / 2 / gram.size, 1 - ALARM / 2 / gram.size], DRAWS)
        assert low < along.min()
        assert along.max() < high
        off = diagonals[~np.eye(space.dim, dtype=bool)]
        assert ((low < off) & (off < high)).all()


def test_noise_is_gaussian(case, space, rng):
    """Kolmogorov-Smirnov along one random direction: false alarm 1e-9 a base point."""
    for base, _ in bases(case, rng):
        direction = rng.standard_normal(space.dim)
        z = case.frame(space, base, space.sample_tangent_gaussian(rng, base, 1.0, DRAWS))
        assert stats.kstest(z @ direction / np.linalg.norm(direction), "norm").pvalue > ALARM


def test_sample_shapes(space, rng):
    base = space.random_point(rng)
    assert space.sample_tangent_gaussian(rng, base, 1.0).shape == space.shape
    assert space.sample_tangent_gaussian(rng, base, 1.0, (2, 3)).shape == (2, 3, *space.shape)


def test_metric_is_that_of_the_frame(case, space, rng):
    for base, error in bases(case, rng):
        u, v = tangents(space, rng, base, 2)
        x, y = case.frame(space, base, np.stack([u, v]))
        size = np.linalg.norm(x) * np.linalg.norm(y)
        assert abs(space.inner(base, u, v) - x @ y) <= error * size
        assert abs(space.norm(base, u) - np.linalg.norm(x)) <= error * np.linalg.norm(x)


def test_coordinates_are_an_isometry_and_from_coordinates_its_adjoint(case, space, rng):
    for base, error in bases(case, rng):
        v = tangents(space, rng, base, 4)
        c = rng.standard_normal((4, space.coordinate_size))
        ours, frame = space.coordinates(base, v), case.frame(space, base, v)
        size = np.max(np.abs(frame @ frame.T))
        np.testing.assert_allclose(ours @ ours.T, frame @ frame.T, rtol=0, atol=error * size)
        adjoint = case.frame(space, base, space.from_coordinates(base, c))
        np.testing.assert_allclose(ours @ c.T, frame @ adjoint.T, rtol=0, atol=error * (1 + size))
        back = case.frame(space, base, space.from_coordinates(base, ours))
        np.testing.assert_allclose(back, frame, rtol=0, atol=error * (1 + size))


def test_transport_is_a_linear_isometry(case, space, rng):
    for base, error in bases(case, rng):
        v = tangents(space, rng, space.reference, 4)
        there = case.frame(space, base, space.transport_from_reference(base, v))
        here = case.frame(space, space.reference, v)
        np.testing.assert_allclose(there @ there.T, here @ here.T, rtol=0, atol=error * 10 * space.dim)
        combined = space.transport_from_reference(base, 2 * v[0] - v[1])
        size = np.abs(combined).max()
        parts = 2 * space.transport_from_reference(base, v[0]) - space.transport_from_reference(base, v[1])
        np.testing.assert_allclose(combined, parts, rtol=0, atol=1e-12 * size)


def test_transport_carries_the_geodesic_along_itself(space, rng):
    base = space.random_point(rng)
    carried = space.transport_from_reference(base, space.log(space.reference, base))
    np.testing.assert_allclose(carried, -space.log(base, space.reference), rtol=0, atol=1e-9)


def test_exp_undoes_log(case, space, rng):
    for base, error in bases(case, rng):
        x = points(space, rng, 20)
        there = space.exp(base, space.log(base, x))
        assert (space.dist(there, x) <= error * (1 + space.dist(base, x))).all()


def test_log_undoes_exp_and_distance_is_its_length(case, space, rng):
    for base, error in bases(case, rng):
        for length in (1e-6, 1.0, 0.99 * min(case.injectivity, 5.0)):
            v = tangents(space, rng, base, 20, length)
            there = space.exp(base, v)
            assert space.belongs(there).all()
            back = case.frame(space, base, space.log(base, there) - v)
            noise = error * (1 + length) ** 2
            assert np.abs(back).max() <= noise
            np.testing.assert_allclose(space.dist(base, there), length, rtol=0, atol=noise)


def test_distance_is_a_metric(case, space, rng):
    a, b, c = (points(space, rng, 50) for _ in range(3))
    ab, bc, ac = space.dist(a, b), space.dist(b, c), space.dist(a, c)
    np.testing.assert_allclose(ab, space.dist(b, a), rtol=1e-9)
    np.testing.assert_allclose(ab, space.norm(a, space.log(a, b)), rtol=1e-9)
    assert (ab > 0).all()
    assert np.abs(space.dist(a, a)).max() < 1e-7
    assert (ac <= ab + bc + 1e-12).all()


def test_isometries_leave_the_metric_alone(case, space, rng):
    base, x = space.random_point(rng), points(space, rng, 10)
    v = tangents(space, rng, base, 10, 0.5)
    move = case.isometry(space, rng)
    there = space.canonical(move(base))
    np.testing.assert_allclose(space.dist(there, move(x)), space.dist(base, x), rtol=1e-8)
    np.testing.assert_allclose(space.norm(there, move(v)), space.norm(base, v), rtol=1e-8)
    assert space.dist(space.exp(there, move(v)), space.canonical(move(space.exp(base, v)))).max() < 1e-7


def test_leading_axes_are_batches(space, rng):
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
    one = base[0, 0]
    np.testing.assert_allclose(space.dist(one, x)[1, 1], space.dist(one, x[1, 1]), rtol=1e-12)
    np.testing.assert_allclose(
        space.exp_coordinates(one, c)[2, 1], space.exp_coordinates(one, c[2, 1]), rtol=1e-9, atol=1e-12
    )


def test_short_ways_agree_with_long_ways(case, space, rng):
    for base, error in bases(case, rng):
        x = points(space, rng, 10)
        long = space.coordinates(base, space.log(base, x))
        short = space.log_coordinates(base, x)
        np.testing.assert_allclose(short, long, rtol=0, atol=error * np.abs(long).max())
        c = 0.3 * rng.standard_normal((10, space.coordinate_size))
        there = space.exp(base, space.from_coordinates(base, c))
        assert space.dist(space.exp_coordinates(base, c), there).max() <= 10 * error * (1 + np.abs(c).max())


def test_small_triangles_respect_the_stated_curvature(space, rng):
    """Law of cosines to fourth order: c² = a² + b² − 2ab·cos γ − (K/3)·a²b²·sin²γ."""
    if space.dim < 2:
        pytest.skip("a line has no sectional curvature")
    side, (low, high) = 0.02, space.curvature
    for _ in range(20):
        base = space.random_point(rng)
        u, v = tangents(space, rng, base, 2, side)
        cosine = float(space.inner(base, u, v)) / side**2
        if 1 - cosine**2 < 0.3:
            continue
        third = float(space.dist(space.exp(base, u), space.exp(base, v))) ** 2
        measured = 3 * (2 * side**2 * (1 - cosine) - third) / (side**4 * (1 - cosine**2))
        assert low - 0.02 <= measured <= high + 0.02


@pytest.mark.parametrize("dim", [2, 3, 20])
@pytest.mark.parametrize("offset", [0.0, 1e-300, 1e-17, 1e-15, 2e-15, 1e-12, 1e-8])
def test_antipodes_are_finite_and_reached(dim, offset):
    space, rng = manifolds.get("sphere", dim=dim), np.random.default_rng(dim)
    for base in (space.reference, -space.reference, space.random_point(rng)):
        side = space.project_tangent(base, rng.standard_normal(dim))
        antipode = space.canonical(-base + offset * side)
        v = space.log(base, antipode)
        assert np.isfinite(v).all()
        assert abs(base @ v) < 1e-12
        assert abs(np.linalg.norm(v) - np.pi) < 1e-6
        assert space.dist(space.exp(base, v), antipode) < 1e-14 + offset * 1e-3
        np.testing.assert_array_equal(v, space.log(base, antipode))


@pytest.mark.parametrize("dim", [2, 5, 11])
@pytest.mark.parametrize("least", [1e-12, 1e-15, 1e-17, 0.0, 1e-300])
def test_nearly_singular_matrices_are_finite(dim, least):
    space, rng = manifolds.get("spd", dim=dim), np.random.default_rng(dim)
    q = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    x = space.canonical((q * np.r_[least, np.ones(dim - 1)]) @ q.T)
    base = space.random_point(rng)
    assert np.isfinite(space.log_coordinates(base, x)).all()
    assert np.isfinite(space.log(base, x)).all()
    assert np.isfinite(space.dist(base, x))


@pytest.mark.parametrize("dim", [1, 2, 5, 11])
@pytest.mark.parametrize("length", [30.0, 100.0, 300.0, 1e4])
def test_far_steps_stay_on_the_spd_manifold(dim, length):
    space, rng = manifolds.get("spd", dim=dim), np.random.default_rng(dim)
    c = rng.standard_normal((50, space.coordinate_size))
    c *= length / np.linalg.norm(c, axis=-1, keepdims=True)
    assert space.belongs(space.exp_coordinates(space.reference, c)).all()


@pytest.mark.parametrize("dim", [1, 2, 11])
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e307])
def test_scale_of_the_unit_does_not_matter(dim, scale):
    space, rng = manifolds.get("spd", dim=dim), np.random.default_rng(dim)
    a, b = points(space, rng, 2)
    np.testing.assert_allclose(space.dist(scale * a, scale * b), space.dist(a, b), rtol=1e-9)
    assert np.isfinite(space.canonical(scale * a)).all()


def test_unknown_manifolds_and_parameters_are_refused():
    for name, params in [
        ("torus", {}),
        ("sphere", {"dim": 1}),
        ("spd", {"dim": 0}),
        ("euclidean", {"dim": 0}),
    ]:
        with pytest.raises(ValueError, match=r"must be|unknown"):
            manifolds.get(name, **params)
    with pytest.raises(ValueError, match="metric"):
        manifolds.get("spd", dim=2, metric="secret")
    with pytest.raises(TypeError):
        manifolds.get("spd", dim=2, rank=1)

"""The laws of a Riemannian manifold, one suite for all of them: a new manifold is a new line in `CASES`.

What an implementation says of its own metric is not believed: `Case.frame` gives orthonormal coordinates
of tangent vectors on another way. Statistical tests use fixed seeds and state their false-alarm rate.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, pi

import mpmath
import numpy as np
import pytest
import scipy.linalg
from scipy import stats

from privest import manifolds
from privest.arrays import lengths
from privest.manifolds import Manifold

DRAWS = 2000
ALARM = 1e-9


def symmetric_basis(m):
    """Orthonormal symmetric matrices: (m(m + 1)/2, m, m)."""
    rows, columns = np.triu_indices(m)
    e = np.zeros((len(rows), m, m))
    e[range(len(rows)), rows, columns] = e[range(len(rows)), columns, rows] = np.sqrt(
        np.where(rows == columns, 1, 0.5)
    )
    return e


# Which vectors are tangent: rows that span those, flattened, which are orthogonal to all of them.


def none(base):
    return np.zeros((0, base.size))


def radial(base):
    return base[None]


def minkowski_radial(base):
    return (base * np.r_[-1, np.ones(base.size - 1)])[None]


def skew(base):
    m = len(base)
    return np.stack([np.outer(a, b) - np.outer(b, a) for a in np.eye(m) for b in np.eye(m)]).reshape(
        -1, m * m
    )


def frame_times_symmetric(base):
    return (base @ symmetric_basis(base.shape[1])).reshape(-1, base.size)


def frame_times_anything(base):
    return (base @ np.eye(base.shape[1] ** 2).reshape(-1, *[base.shape[1]] * 2)).reshape(-1, base.size)


def columns_of(base):
    return (base * np.eye(base.shape[1])[:, None]).reshape(base.shape[1], -1)


# The metric on a basis b_1, …, b_d of the tangent space: F with ⟨b_i, b_j⟩ = (F·Fᵀ)_ij.


def induced(base, basis):
    return np.eye(len(basis))


def minkowski(base, basis):
    return np.linalg.cholesky(basis[:, 1:] @ basis[:, 1:].T - np.outer(basis[:, 0], basis[:, 0]))


def ball(base, basis):
    return 2 / (1 - base @ base) * np.eye(base.size)


def affine_invariant(base, basis):
    """w^-1/2 b w^-1/2, by eigenvalues: the code under test goes by Cholesky."""
    values, vectors = np.linalg.eigh(base)
    root = vectors / np.sqrt(values)
    return (root.T @ basis.reshape(-1, *base.shape) @ root).reshape(len(basis), -1) @ basis.T


def log_euclidean(base, basis):
    """Dlog_w[b] = ∫(w + s)⁻¹ b (w + s)⁻¹ ds, by the trapezoidal rule in log s: exact to 1e-16."""
    s = np.exp(np.arange(-54, 54, 0.5))[:, None, None]
    inverse = np.linalg.inv(base + s * np.eye(len(base)))
    kernel = np.einsum("s,sij,skl->ikjl", 0.5 * s.ravel(), inverse, inverse, optimize=True)
    return basis @ kernel.reshape(base.size, base.size) @ basis.T


def bures_wasserstein(base, basis):
    """½tr(L_i b_j), with L of wL + Lw = b by a Lyapunov solver."""
    b = basis.reshape(-1, *base.shape)
    solved = np.stack([scipy.linalg.solve_continuous_lyapunov(base, one) for one in b])
    gram = solved.reshape(len(b), -1) @ basis.T / 2
    return np.linalg.cholesky((gram + gram.T) / 2)


# Base points that are not moderate, and the relative rounding error of squared lengths there.


def wide_vector(space: Manifold, rng):
    return 1e6 * rng.standard_normal(space.shape)


def nearly_opposite(space: Manifold, rng):
    """Nearly the antipode of the reference."""
    return space.canonical(-space.reference + 1e-4 * rng.standard_normal(space.shape))


def eigenvalues(low, high):
    """SPD matrices with these eigenvalues, given as powers of ten, and others evenly between."""

    def matrix(space: Manifold, rng):
        m = space.shape[0]
        q = np.linalg.qr(rng.standard_normal((m, m)))[0]
        powers = np.array([rng.choice([low, high])]) if m == 1 else np.linspace(low, high, m)
        return space.canonical((q * 10.0**powers) @ q.T)

    return matrix


def equal_eigenvalues(space: Manifold, rng):
    return 2.5 * np.eye(space.shape[0])


def towards_the_rim(space: Manifold, rng):
    """1 − 1e-8 from the centre of the unit ball."""
    x = rng.standard_normal(space.shape)
    return (1 - 1e-8) * x / np.linalg.norm(x)


def ten_away(space: Manifold, rng):
    x = rng.standard_normal(space.dim)
    return np.r_[np.cosh(10), np.sinh(10) * x / np.linalg.norm(x)]


def any_frame(space: Manifold, rng):
    return np.linalg.qr(rng.standard_normal(space.shape))[0]


# Isometries that are linear maps of the space around.


def rotation(space: Manifold, rng):
    q = np.linalg.qr(rng.standard_normal((space.shape[0],) * 2))[0]
    return lambda a: a @ q.T


def boost(space: Manifold, rng):
    generator = np.zeros((space.dim + 1,) * 2)
    generator[0, 1:] = generator[1:, 0] = rng.standard_normal(space.dim)
    q = scipy.linalg.block_diag(1, np.linalg.qr(rng.standard_normal((space.dim,) * 2))[0])
    return lambda a: a @ (q @ scipy.linalg.expm(generator)).T


def congruence(space: Manifold, rng):
    a = rng.standard_normal(space.shape) + 2 * np.eye(space.shape[0])
    return lambda x: a @ x @ a.T


def orthogonal_congruence(space: Manifold, rng):
    q = np.linalg.qr(rng.standard_normal(space.shape))[0]
    return lambda x: q @ x @ q.T


def orthogonal_both_sides(space: Manifold, rng):
    p, q = (np.linalg.qr(rng.standard_normal((size, size)))[0] for size in space.shape)
    return lambda x: p @ x @ q


def orthogonal_from_the_left(space: Manifold, rng):
    q = np.linalg.qr(rng.standard_normal((space.shape[0],) * 2))[0]
    return lambda x: q @ x[..., ::-1]


def up_to(length):
    return lambda _: length


@dataclass(frozen=True)
class Case:
    """A space, and what is known of it on another way than the code under test goes."""

    name: str
    params: dict
    normals: Callable = none
    metric: Callable = induced
    wide: tuple = ()
    """Base points and errors."""
    wider: tuple = ()
    """The same, for what needs no logarithm: there it loses too many digits."""
    isometry: Callable = rotation
    reach: Callable = lambda _: inf
    """Up to which length the logarithm undoes the exponential."""
    near: str = ""
    """Why the logarithm is asked for points within reach alone."""
    not_parallel: str = ""
    """Why transport from the reference is a linear isometry and no more."""
    space: Manifold = None

    def __post_init__(self):
        object.__setattr__(self, "space", self.space or manifolds.get(self.name, **self.params))

    def __str__(self):
        return "-".join(map(str, (self.name, *self.params.values())))

    def __hash__(self):
        return hash(str(self))

    @functools.cache  # noqa: B019 - bases are few
    def _frame(self, base):
        base = np.frombuffer(base).reshape(self.space.shape)
        normals = self.normals(base)
        rank = np.linalg.matrix_rank(normals) if len(normals) else 0
        basis = np.linalg.svd(normals)[2][rank:] if rank else np.eye(base.size)
        return basis, self.metric(base, basis)

    def basis(self, base):
        """Tangent vectors at `base`, orthonormal in the space around: (dim, base.size)."""
        return self._frame(base.tobytes())[0]

    def frame(self, base, v):
        """Coordinates of tangent vectors (..., *shape) that are orthonormal in the metric."""
        basis, metric = self._frame(base.tobytes())
        return v.reshape(*v.shape[: v.ndim - base.ndim], -1) @ basis.T @ metric

    def points(self, rng, base, count):
        """Whose logarithm at `base` is defined."""
        if not self.near:
            return points(self.space, rng, count)
        lengths = rng.uniform(0, self.reach(base), count)
        return self.space.exp(base, tangents(self, rng, base, count, lengths))


SPHERE = {"normals": radial, "wide": ((nearly_opposite, 1e-9),), "reach": up_to(pi)}
LORENTZ = {"normals": minkowski_radial, "metric": minkowski, "wide": ((ten_away, 1e-6),), "isometry": boost}
BALL = {"metric": ball, "wide": ((towards_the_rim, 1e-6),)}
SPD = {"normals": skew, "isometry": orthogonal_congruence}
STRETCHED = (eigenvalues(-6, 6), 2e-3)
ALIKE = ((equal_eigenvalues, 1e-10), (eigenvalues(1, 1 + 1e-8), 1e-10))
METRICS = {
    "affine-invariant": {"metric": affine_invariant, "wide": (STRETCHED, *ALIKE), "isometry": congruence},
    "log-euclidean": {"metric": log_euclidean, "wide": (STRETCHED, *ALIKE)},
    "bures-wasserstein": {
        "metric": bures_wasserstein,
        "wide": ((eigenvalues(-3, 3), 1e-3), *ALIKE),
        "wider": (STRETCHED,),
        "reach": lambda base: np.sqrt(np.linalg.eigvalsh(base)[0]),
    },
}
FRAMES = {
    "wide": ((any_frame, 1e-9),),
    "isometry": orthogonal_both_sides,
    "not_parallel": "parallel transport on frames costs an exponential; an isometry is all that noise needs",
}
STIEFEL = FRAMES | {
    "normals": frame_times_symmetric,
    "reach": up_to(2.0),
    "near": "shooting finds the vectors to points up to 2 away",
}
GRASSMANN = FRAMES | {"normals": frame_times_anything, "reach": up_to(pi / 2)}
OBLIQUE = SPHERE | {"normals": columns_of, "isometry": orthogonal_from_the_left}
CASES = [
    *(Case("euclidean", {"dim": dim}, wide=((wide_vector, 1e-9),)) for dim in (1, 3, 20)),
    *(Case("sphere", {"dim": dim}, **SPHERE) for dim in (2, 3, 20)),
    *(Case("poincare-ball", {"dim": dim}, **BALL) for dim in (1, 2, 10)),
    *(Case("lorentz", {"dim": dim}, **LORENTZ) for dim in (1, 2, 10)),
    *(
        Case("spd", {"dim": dim, "metric": metric}, **SPD | facts)
        for metric, facts in METRICS.items()
        for dim in (1, 2, 5, 11)
    ),
    *(
        Case("stiefel", {"dim": dim, "rank": rank}, **STIEFEL)
        for dim, rank in ((2, 1), (4, 1), (3, 2), (7, 3), (4, 4))
    ),
    *(
        Case("grassmann", {"dim": dim, "rank": rank}, **GRASSMANN)
        for dim, rank in ((2, 1), (5, 1), (5, 4), (7, 3))
    ),
    *(
        Case("oblique", {"dim": dim, "rank": rank}, **OBLIQUE)
        for dim, rank in ((2, 1), (2, 3), (3, 2), (7, 3), (3, 5))
    ),
]


@pytest.fixture(params=CASES, ids=str)
def case(request) -> Case:
    return request.param


@pytest.fixture
def rng(case) -> np.random.Generator:
    return np.random.default_rng([ord(letter) for letter in str(case)])


def bases(case, rng, *, logs=False):
    """Base points with the relative error to expect there."""
    wide = case.wide if logs else (*case.wide, *case.wider)
    return [(case.space.random_point(rng), 1e-10), *((base(case.space, rng), error) for base, error in wide)]


def points(space, rng, count):
    return np.stack([space.random_point(rng) for _ in range(count)])


def tangents(case, rng, base, count, length=None):
    """Random tangent vectors, of these lengths if given: made by the case, not by the code under test."""
    basis, metric = case._frame(base.tobytes())
    z = rng.standard_normal((count, case.space.dim))
    if length is not None:
        z *= np.reshape(length, (-1, 1)) / np.linalg.norm(z, axis=1, keepdims=True)
    v = np.linalg.solve(metric.T, z.T).T @ basis
    return v.reshape(count, *case.space.shape)


def test_facts_are_consistent(case, rng):
    space = case.space
    assert space == manifolds.get(space.name, **space.params)
    assert space.reference.shape == space.shape == space.random_point(rng).shape
    assert space.belongs(space.reference)
    assert space.belongs(points(space, rng, 50)).all()
    assert space.dim == len(case.basis(space.reference)) <= space.coordinate_size
    assert all(space.belongs(base) for base, _ in bases(case, rng))


def test_vectors_are_tangent(case, rng):
    space = case.space
    for base, error in bases(case, rng):
        vectors = {
            "log": space.log(base, case.points(rng, base, 20)),
            "from_coordinates": space.from_coordinates(
                base, rng.standard_normal((20, space.coordinate_size))
            ),
            "transport": space.transport_from_reference(base, tangents(case, rng, space.reference, 20)),
            "noise": space.sample_tangent_gaussian(rng, base, 3.0, 20),
            "projection": space.project_tangent(base, rng.standard_normal((20, *space.shape))),
        }
        basis = case.basis(base)
        for name, v in vectors.items():
            assert v.shape == (20, *space.shape), name
            size = np.abs(v).max()
            flat = v.reshape(20, -1)
            assert np.abs(flat - flat @ basis.T @ basis).max() <= 1e-10 * size, name
            assert np.abs(v - space.project_tangent(base, v)).max() <= error * size, name


def test_projection_is_orthogonal_in_an_induced_metric(case, rng):
    if case.metric is not induced:
        pytest.skip("the metric is not that of the space around")
    for base, _ in bases(case, rng):
        a, basis = rng.standard_normal((5, *case.space.shape)), case.basis(base)
        flat = case.space.project_tangent(base, a).reshape(5, -1)
        np.testing.assert_allclose(flat, a.reshape(5, -1) @ basis.T @ basis, rtol=0, atol=1e-12)


def test_noise_is_isotropic_with_the_stated_variance(case, rng):
    """Chi-square tests of |ξ|² and of the variance along every axis and diagonal of an orthonormal basis.

    Exact but for rounding; two-sided, Bonferroni over all directions: false alarm below 2e-9 a base point.
    """
    dim = case.space.dim
    for base, _ in bases(case, rng):
        sigma = 0.3
        z = case.frame(base, case.space.sample_tangent_gaussian(rng, base, sigma, DRAWS)) / sigma
        assert z.shape == (DRAWS, dim)
        low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], DRAWS * dim)
        assert low < np.sum(z * z) < high
        gram = z.T @ z
        along = np.diagonal(gram)
        diagonals = (along[:, None] + along[None, :]) / 2 + gram * (1 - np.eye(dim))
        low, high = stats.chi2.ppf([ALARM / 2 / gram.size, 1 - ALARM / 2 / gram.size], DRAWS)
        assert low < along.min()
        assert along.max() < high
        off = diagonals[~np.eye(dim, dtype=bool)]
        assert ((low < off) & (off < high)).all()


def test_noise_is_gaussian(case, rng):
    """Kolmogorov-Smirnov along one random direction: false alarm 1e-9 a base point."""
    for base, _ in bases(case, rng):
        direction = rng.standard_normal(case.space.dim)
        z = case.frame(base, case.space.sample_tangent_gaussian(rng, base, 1.0, DRAWS))
        assert stats.kstest(z @ direction / np.linalg.norm(direction), "norm").pvalue > ALARM


def test_sample_shapes(case, rng):
    space, base = case.space, case.space.random_point(rng)
    assert space.sample_tangent_gaussian(rng, base, 1.0).shape == space.shape
    assert space.sample_tangent_gaussian(rng, base, 1.0, (2, 3)).shape == (2, 3, *space.shape)


def test_metric_is_that_of_the_frame(case, rng):
    for base, error in bases(case, rng):
        u, v = tangents(case, rng, base, 2)
        x, y = case.frame(base, np.stack([u, v]))
        size = np.linalg.norm(x) * np.linalg.norm(y)
        assert abs(case.space.inner(base, u, v) - x @ y) <= error * size
        assert abs(case.space.norm(base, u) - np.linalg.norm(x)) <= error * np.linalg.norm(x)


def test_coordinates_are_an_isometry_and_from_coordinates_its_adjoint(case, rng):
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


def test_transport_is_a_linear_isometry(case, rng):
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


def test_transport_is_parallel(case, rng):
    """It carries the geodesic along itself, and any vector where a pole ladder carries it."""
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


def test_exp_is_the_exponential_map_of_the_metric(case, rng):
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


def test_exp_undoes_log(case, rng):
    for base, error in bases(case, rng, logs=True):
        x = case.points(rng, base, 20)
        there = case.space.exp(base, case.space.log(base, x))
        assert (case.space.dist(there, x) <= error * (1 + case.space.dist(base, x))).all()


def test_log_undoes_exp_and_distance_is_its_length(case, rng):
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


def test_distance_is_a_metric(case, rng):
    space = case.space
    a, b, c = (points(space, rng, 50) for _ in range(3))
    ab, bc, ac = space.dist(a, b), space.dist(b, c), space.dist(a, c)
    np.testing.assert_allclose(ab, space.dist(b, a), rtol=1e-9)
    np.testing.assert_allclose(ab, space.norm(a, space.log(a, b)), rtol=1e-9)
    assert (ab > 0).all()
    assert np.abs(space.dist(a, a)).max() < 1e-7
    assert (ac <= ab + bc + 1e-12).all()


def test_isometries_leave_the_metric_alone(case, rng):
    space = case.space
    base, x = space.random_point(rng), points(space, rng, 10)
    v = tangents(case, rng, base, 10, 0.5)
    move = case.isometry(space, rng)
    there = space.canonical(move(base))
    np.testing.assert_allclose(space.dist(there, move(x)), space.dist(base, x), rtol=1e-8)
    np.testing.assert_allclose(space.norm(there, move(v)), space.norm(base, v), rtol=1e-8)
    assert space.dist(space.exp(there, move(v)), space.canonical(move(space.exp(base, v)))).max() < 1e-7


def test_leading_axes_are_batches(case, rng):
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


def test_short_ways_agree_with_long_ways(case, rng):
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
    """Of the plane of two orthogonal unit vectors.

    By the law of cosines to fourth order: c² = a² + b² − 2ab·cos γ − (K/3)·a²b²·sin²γ.
    """
    side = 0.02
    third = float(space.dist(space.exp(base, side * u), space.exp(base, side * v)))
    return 3 * (2 * side**2 - third**2) / side**4


def test_small_triangles_respect_the_stated_curvature(case, rng):
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


@pytest.mark.parametrize(
    ("name", "rank", "u", "v", "extreme"),
    [
        ("stiefel", 2, [((3, 0), 1)], [((4, 0), 1)], 1.0),
        ("stiefel", 2, [((3, 0), 1)], [((3, 1), 1)], -0.5),
        ("grassmann", 2, [((3, 0), 1)], [((4, 1), 1)], 0.0),
        ("grassmann", 2, [((2, 0), 1), ((3, 1), 1)], [((2, 1), 1), ((3, 0), -1)], 2.0),
        ("grassmann", 1, [((2, 0), 1)], [((3, 0), 1)], 1.0),
        ("spd", None, [((0, 0), 1), ((1, 1), -1)], [((0, 1), 1), ((1, 0), 1)], -0.5),
    ],
)
def test_curvature_bounds_are_reached(name, rank, u, v, extreme):
    """Stiefel under the induced metric: Zimmermann and Stoye 2024; Grassmann: Wong 1968."""
    space = manifolds.get(name, dim=5, **({"rank": rank} if rank else {}))
    x, y = np.zeros((2, *space.shape))
    for vector, entries in ((x, u), (y, v)):
        for place, value in entries:
            vector[place] = value / np.sqrt(len(entries))
    assert abs(curvature(space, space.reference, x, y) - extreme) < 1e-3
    assert extreme in space.curvature


@pytest.mark.parametrize("length", [30.0, 100.0, 300.0, 1e4])
def test_far_steps_stay_on_the_manifold(case, rng, length):
    space = case.space
    c = rng.standard_normal((50, space.coordinate_size))
    c *= length / np.linalg.norm(c, axis=-1, keepdims=True)
    for base in (space.reference, space.random_point(rng)):
        assert space.belongs(space.exp_coordinates(base, c)).all()


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


metrics = pytest.mark.parametrize("metric", METRICS)


@metrics
@pytest.mark.parametrize("dim", [2, 5, 11])
@pytest.mark.parametrize("least", [1e-12, 1e-15, 1e-17, 0.0, 1e-300])
def test_nearly_singular_matrices_are_finite(metric, dim, least):
    space, rng = manifolds.get("spd", dim=dim, metric=metric), np.random.default_rng(dim)
    q = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    x = space.canonical((q * np.r_[least, np.ones(dim - 1)]) @ q.T)
    diagonal = np.diag(np.r_[least or 5e-324, np.ones(dim - 1)])
    base = space.random_point(rng)
    for near in (x, diagonal):
        assert np.isfinite(space.log_coordinates(base, near)).all()
        assert np.isfinite(space.log(base, near)).all()
        assert np.isfinite(space.dist(base, near))
    if least > 1e-16:
        v = space.log(x, base)
        assert np.isfinite(v).all()
        assert space.belongs(space.exp(x, v))
        assert np.isfinite(space.sample_tangent_gaussian(rng, x, 1.0)).all()


@pytest.mark.parametrize(
    ("metric", "power", "held"),
    [("affine-invariant", 0, 1e308), ("log-euclidean", 0, 1e290), ("bures-wasserstein", 0.5, 1e100)],
)
@pytest.mark.parametrize("dim", [1, 2, 11])
@pytest.mark.parametrize("scale", [1e-300, 1e-280, 1e-90, 1e90, 1e280, 1e307])
def test_scale_of_the_unit_does_not_matter(metric, power, held, dim, scale):
    """As far as the metric is `held` in float64: Bures-Wasserstein multiplies two points."""
    space, rng = manifolds.get("spd", dim=dim, metric=metric), np.random.default_rng(dim)
    a, b = points(space, rng, 2)
    assert np.isfinite(space.canonical(scale * a)).all()
    if 1 / held <= scale <= held:
        expected = scale**power * space.dist(a, b)
        np.testing.assert_allclose(space.dist(scale * a, scale * b), expected, rtol=1e-9)


@pytest.mark.parametrize("x", [1e-200, 1e-6, 0.3, 1.0, 1e6, 1e200])
@pytest.mark.parametrize("apart", [0.0, 2.0**-52, 1e-14, 1e-10, 1e-5, 0.1, 3.0, 1e12, 1e90])
def test_log_euclidean_metric_keeps_its_digits(x, apart):
    """The kernel (log x − log y)/(x − y), to 40 digits, where eigenvalues are nearly equal, or far apart."""
    space, y = manifolds.get("spd", dim=2, metric="log-euclidean"), x * (1 + apart)
    with mpmath.workdps(60):
        a, b = mpmath.mpf(x), mpmath.mpf(y)
        kernel = float((mpmath.log(a) - mpmath.log(b)) / (a - b) if a != b else 1 / a)
    found = space.coordinates(np.diag([x, y]), np.array([[0, 1.0], [1, 0]]))
    np.testing.assert_allclose(found, [0, np.sqrt(2) * kernel, 0], rtol=1e-13 * max(1, abs(np.log(x))))


@pytest.mark.parametrize("dim", [1, 2, 10])
def test_ball_and_hyperboloid_are_one_space(dim):
    """Under x ↦ (1 + |x|², 2x)/(1 − |x|²), which twice a vector at the origin has for its derivative."""
    ball, lorentz = (manifolds.get(name, dim=dim) for name in ("poincare-ball", "lorentz"))
    rng = np.random.default_rng(dim)

    def above(x):
        square = np.sum(x * x, axis=-1, keepdims=True)
        return np.concatenate([1 + square, 2 * x], axis=-1) / (1 - square)

    for scale in (0.01, 1.0, 3.0):
        a, b = ball.exp_coordinates(ball.reference, scale * rng.standard_normal((2, 50, dim)) / np.sqrt(dim))
        c = scale * rng.standard_normal((50, dim))
        np.testing.assert_allclose(ball.dist(a, b), lorentz.dist(above(a), above(b)), rtol=1e-9)
        np.testing.assert_allclose(
            ball.log_coordinates(a, b), lorentz.log_coordinates(above(a), above(b)), atol=1e-9
        )
        there = lorentz.exp_coordinates(above(a), c)
        np.testing.assert_allclose(
            above(ball.exp_coordinates(a, c)), there, rtol=1e-6, atol=1e-6 * there.max()
        )
        v = ball.from_coordinates(a, c)
        moved = (above(a + 1e-6 * v) - above(a - 1e-6 * v)) / 2e-6
        np.testing.assert_allclose(
            lorentz.from_coordinates(above(a), c), moved, rtol=1e-5, atol=1e-5 * np.abs(moved).max()
        )


@pytest.mark.parametrize(("dim", "rank"), [(4, 1), (5, 2), (7, 3), (4, 4), (6, 5)])
def test_geodesics_of_frames_are_those_of_edelman_arias_and_smith(dim, rank):
    """Their equation 2.42, and vᵀ·base = 0: with vectors whose columns are zero or alike, and with zero."""
    rng = np.random.default_rng(dim)
    for name in ("stiefel", "grassmann") if rank < dim else ("stiefel",):
        space = manifolds.get(name, dim=dim, rank=rank)
        base = any_frame(space, rng)
        for columns in (
            np.eye(rank),
            np.eye(rank)[:, ::-1].cumsum(axis=0),
            np.zeros((rank, rank)),
            np.ones((rank, rank)),
        ):
            for kept in (slice(None), slice(1, None), slice(-1, None)):
                a = np.zeros(space.shape)
                a[:, kept] = (rng.standard_normal(space.shape) @ columns)[:, kept]
                v = space.project_tangent(base, a)
                inward = base.T @ v
                turn = scipy.linalg.expm(np.block([[inward, -v.T @ v], [np.eye(rank), inward]]))[:, :rank]
                there = np.hstack([base, v]) @ turn @ scipy.linalg.expm(-inward)
                np.testing.assert_allclose(space.exp(base, v), there, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dim", "rank", "right"), [(2, 1, 1), (4, 2, 1), (4, 2, 2), (7, 3, 3)])
def test_subspaces_at_right_angles_are_finite_and_reached(dim, rank, right):
    space = manifolds.get("grassmann", dim=dim, rank=rank)
    rng = np.random.default_rng(dim)
    turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    base, x = turn[:, :rank], np.roll(turn, -right, axis=1)[:, :rank]
    for near in (x, x @ np.linalg.qr(rng.standard_normal((rank, rank)))[0], space.canonical(x + 1e-9 * base)):
        v = space.log(base, near)
        assert np.abs(base.T @ v).max() < 1e-12
        assert abs(np.linalg.norm(v) - np.sqrt(right) * pi / 2) < 1e-7
        assert space.dist(space.exp(base, v), near) < 1e-7


@pytest.mark.parametrize(("dim", "rank"), [(2, 1), (3, 1), (3, 3), (5, 2), (6, 5), (12, 4)])
def test_frames_out_of_reach_have_finite_tangent_logarithms(dim, rank):
    space, rng = manifolds.get("stiefel", dim=dim, rank=rank), np.random.default_rng(dim)
    base = any_frame(space, rng)
    for x in (-base, base[:, ::-1], np.stack([any_frame(space, rng) for _ in range(20)]), base):
        v = space.log(base, x)
        assert np.isfinite(v).all()
        assert np.abs(v - space.project_tangent(base, v)).max() < 1e-12
    assert np.abs(space.log(base, base)).max() < 1e-14


def test_one_bad_column_spoils_a_matrix_of_unit_columns():
    space = manifolds.get("oblique", dim=3, rank=2)
    x = np.stack([space.reference] * 5)
    x[1, 0, 1], x[2, 2, 0], x[3, 2, 0], x[4, 1, 1] = 1 + 1e-7, np.nan, np.inf, 1e308
    x[3, :, 1] = 0.0
    np.testing.assert_array_equal(space.broken_rule(x), [0, 2, 1, 1, 2])


def test_unknown_manifolds_and_parameters_are_refused():
    for name, params in [
        ("torus", {}),
        ("sphere", {"dim": 1}),
        ("spd", {"dim": 0}),
        ("euclidean", {"dim": 0}),
        ("poincare-ball", {"dim": 0}),
        ("lorentz", {"dim": 0}),
        ("stiefel", {"dim": 3, "rank": 0}),
        ("stiefel", {"dim": 3, "rank": 4}),
        ("stiefel", {"dim": 1, "rank": 1}),
        ("grassmann", {"dim": 3, "rank": 3}),
        ("oblique", {"dim": 1, "rank": 2}),
        ("oblique", {"dim": 3, "rank": 0}),
    ]:
        with pytest.raises(ValueError, match=r"must be|unknown"):
            manifolds.get(name, **params)
    with pytest.raises(ValueError, match="metric"):
        manifolds.get("spd", dim=2, metric="secret")
    with pytest.raises(TypeError):
        manifolds.get("spd", dim=2, rank=1)


@pytest.mark.parametrize(
    ("space", "base"),
    [
        (manifolds.get("spd", dim=4, metric="bures-wasserstein"), 9 * np.eye(4)),
        (manifolds.get("grassmann", dim=8, rank=2), None),
        (manifolds.get("grassmann", dim=5, rank=1), None),
        (manifolds.get("sphere", dim=4), None),
        (manifolds.get("oblique", dim=4, rank=3), None),
    ],
    ids=["bures-wasserstein", "grassmann", "projective", "sphere", "oblique"],
)
def test_the_mean_curvature_is_that_of_small_triangles(space, base):
    """dist(exp(tu), exp(tv))² = 2t² − Kt⁴/3 + O(t⁶); off by 5 standard errors once in 10⁶."""
    rng = np.random.default_rng(0)
    base = space.reference if base is None else base
    u, v = space.coordinates(
        base, space.from_coordinates(base, rng.standard_normal((2, 2000, space.coordinate_size)))
    )
    u = u / lengths(u)[:, None]
    v = v - np.vecdot(u, v)[:, None] * u
    v = v / lengths(v)[:, None]
    t = 0.03
    d = space.dist(space.exp_coordinates(base, t * u), space.exp_coordinates(base, t * v))
    found = 3 * (2 * t**2 - d**2) / t**4
    stated = space.mean_curvature(base, 0.0)
    assert abs(found.mean() - stated) < 5 * found.std() / np.sqrt(len(found)) + 0.01 * stated
    assert space.mean_curvature(base, 0.5) >= stated

"""The Fréchet mean without privacy: the mean it is, from wherever it starts; and fused sums of logs."""

import numpy as np
import pytest

from privest import manifolds
from privest.data.records import CHUNK, Records
from privest.manifolds import Manifold
from testing.exact_mean import exact_mean

SPACES = [
    manifolds.get("euclidean", dim=4),
    manifolds.get("sphere", dim=2),
    manifolds.get("sphere", dim=8),
    manifolds.get("lorentz", dim=1),
    manifolds.get("lorentz", dim=6),
    manifolds.get("poincare-ball", dim=3),
    *(
        manifolds.get("spd", dim=3, metric=metric)
        for metric in ("affine-invariant", "log-euclidean", "bures-wasserstein")
    ),
    manifolds.get("stiefel", dim=5, rank=2),
    manifolds.get("grassmann", dim=5, rank=2),
]
FUSED = [
    manifolds.get(name, dim=dim)
    for name, dims in {"sphere": (2, 3, 40), "lorentz": (1, 2, 40)}.items()
    for dim in dims
]


def label(space):
    return "-".join(map(str, (space.name, *space.params.values())))


def vectors(rng, space, n, lengths):
    """Coordinate vectors up to these lengths, in all directions."""
    c = rng.standard_normal((n, space.coordinate_size))
    return c * (lengths / np.linalg.norm(c, axis=1, keepdims=True))


def cloud(space, rng, n, spread=0.7):
    return space.exp_coordinates(space.random_point(rng), vectors(rng, space, n, spread * rng.random((n, 1))))


def wide_matrices(rng, n, m):
    """Log-eigenvalues uniform on (−8, 8)."""
    q = np.linalg.qr(rng.standard_normal((n, m, m)))[0]
    x = (q * np.exp(rng.uniform(-8, 8, (n, 1, m)))) @ np.swapaxes(q, -1, -2)
    return (x + np.swapaxes(x, -1, -2)) / 2


def hemisphere(rng, n, size):
    x = rng.standard_normal((n, size))
    x[:, 0] = np.abs(x[:, 0])
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def objective(space, point, rows):
    return 0.5 * float(np.mean(space.dist(point, rows) ** 2))


def assert_mean(space, point, rows, tolerance=1e-8):
    """No way to go by the plain sum of logs, and nothing lower anywhere near."""
    assert space.belongs(point)
    assert np.linalg.norm(space.log_coordinates(point, rows).mean(axis=0)) < 2 * tolerance
    least = objective(space, point, rows)
    around = vectors(np.random.default_rng(9), space, 20, 0.1)
    assert all(objective(space, space.exp_coordinates(point, c), rows) > least for c in around)


@pytest.mark.parametrize("space", SPACES, ids=label)
@pytest.mark.parametrize("n", [1, 2, 3, 200])
def test_nothing_near_the_mean_is_lower(space, n):
    rng = np.random.default_rng(n)
    rows = cloud(space, rng, n)
    point, gradients = exact_mean(space, Records(rows), start=rows[0])
    assert_mean(space, point, rows)
    assert gradients < 20


def test_the_mean_in_flat_space_takes_one_step():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2 * CHUNK + 5, 3)) + 7
    space = manifolds.get("euclidean", dim=3)
    point, gradients = exact_mean(space, Records(rows), start=rows[0], tolerance=1e-12)
    np.testing.assert_allclose(point, rows.mean(axis=0), atol=1e-12)
    assert gradients == 2


def test_the_log_euclidean_mean_is_the_exponential_of_mean_logs():
    space = manifolds.get("spd", dim=4, metric="log-euclidean")
    rows = cloud(space, np.random.default_rng(1), 100, 2.0)
    values, q = np.linalg.eigh(rows)
    values, q = np.linalg.eigh(np.mean((q * np.log(values)[:, None]) @ np.swapaxes(q, 1, 2), axis=0))
    point, _ = exact_mean(space, Records(rows), start=rows[0])
    np.testing.assert_allclose(point, (q * np.exp(values)) @ q.T, rtol=1e-8, atol=1e-8)


def test_commuting_matrices_have_the_mean_of_their_logarithms():
    """Diagonal matrices are flat in the affine-invariant metric, however wide."""
    logs = np.random.default_rng(2).uniform(-8, 8, (50, 3))
    space = manifolds.get("spd", dim=3)
    point, _ = exact_mean(space, Records(np.exp(logs)[:, None] * np.eye(3)), start=space.reference)
    np.testing.assert_allclose(point, np.diag(np.exp(logs.mean(axis=0))), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("m", [2, 5, 10])
@pytest.mark.parametrize("n", [3, 200])
@pytest.mark.parametrize("begin", ["record", "average", "reference", "far"])
def test_widely_spread_matrices_do_not_diverge(m, n, begin):
    rng = np.random.default_rng(m)
    rows = wide_matrices(rng, n, m)
    space = manifolds.get("spd", dim=m)
    start = {
        "record": rows[0],
        "average": rows.mean(axis=0),
        "reference": space.reference,
        "far": np.exp(20.0) * rows[0],
    }[begin]
    point, gradients = exact_mean(space, Records(rows), start=start)
    assert_mean(space, point, rows)
    assert gradients < 150


@pytest.mark.parametrize("size", [2, 3, 10, 100])
@pytest.mark.parametrize("begin", ["record", "average", "edge", "antipode"])
def test_records_in_a_whole_hemisphere(size, begin):
    rng = np.random.default_rng(size)
    rows = hemisphere(rng, 500, size)
    space = manifolds.get("sphere", dim=size)
    average = space.canonical(rows.mean(axis=0))
    starts = {
        "record": rows[0],
        "average": average,
        "edge": rows[np.argmin(rows[:, 0])],
        "antipode": -average,
    }
    point, gradients = exact_mean(space, Records(rows), start=starts[begin])
    assert_mean(space, point, rows)
    assert point[0] > 0
    assert gradients < 200


@pytest.mark.parametrize("size", [2, 3, 10, 100])
def test_records_all_around_a_sphere_do_not_cycle(size):
    space = manifolds.get("sphere", dim=size)
    rows = space.canonical(np.random.default_rng(size).standard_normal((500, size)))
    point, _ = exact_mean(space, Records(rows), start=rows[0])
    assert np.linalg.norm(space.log_coordinates(point, rows).mean(axis=0)) < 2e-8
    assert objective(space, point, rows) < objective(space, rows[0], rows)


@pytest.mark.parametrize("dim", [1, 2, 10])
@pytest.mark.parametrize("spread", [1.0, 4.0, 8.0])
def test_records_far_apart_in_hyperbolic_space(dim, spread):
    rng = np.random.default_rng(dim)
    space = manifolds.get("lorentz", dim=dim)
    rows = space.exp_coordinates(space.reference, vectors(rng, space, 500, spread * rng.random((500, 1))))
    for start in (rows[0], rows[np.argmax(rows[:, 0])], space.reference):
        point, gradients = exact_mean(space, Records(rows), start=start)
        assert_mean(space, point, rows)
        assert gradients < 20


@pytest.mark.parametrize("space", FUSED, ids=label)
@pytest.mark.parametrize("seed", range(5))
def test_fused_sums_are_plain_sums(space, seed):
    """Records near and far, the base point itself and twice, and on spheres its antipode and almost."""
    rng = np.random.default_rng(seed)
    base = space.random_point(rng)
    reach = np.pi if space.name == "sphere" else 12.0
    steps = reach * np.r_[rng.random(50), 10.0 ** -np.arange(1, 20), np.zeros(2)][:, None]
    rows = space.exp_coordinates(base, vectors(rng, space, len(steps), steps))
    if space.name == "sphere":
        close = space.canonical(
            -base + 10.0 ** -np.arange(1.0, 17)[:, None] * rng.standard_normal(space.shape)
        )
        rows = np.concatenate([rows, close, -base[None]])
    rows = np.concatenate([rows, rows[:3], base[None]])
    plain = Manifold.log_sum(space, base, rows)
    np.testing.assert_allclose(space.log_sum(base, rows), plain, atol=1e-11 * len(rows))
    np.testing.assert_allclose(
        np.sum([space.log_sum(base, row[None]) for row in rows], axis=0), plain, atol=1e-11 * len(rows)
    )
    np.testing.assert_array_equal(space.log_sum(base, rows[:0]), np.zeros(space.coordinate_size))


@pytest.mark.parametrize("dim", [1, 2, 40])
@pytest.mark.parametrize("away", np.linspace(0, 15, 16))
def test_fused_sums_far_out_on_the_hyperboloid(dim, away):
    """Fused sums are as good as plain ones for records near and far, at any distance from the origin."""
    rng = np.random.default_rng(dim)
    space = manifolds.get("lorentz", dim=dim)
    base = space.exp_coordinates(space.reference, vectors(rng, space, 1, away)[0])
    for spread in (1e-6, 0.1, 3.0):
        rows = space.exp_coordinates(base, vectors(rng, space, 100, spread * rng.random((100, 1))))
        rows = np.concatenate([rows, cloud(space, rng, 20), rows[:2], base[None]])
        plain, fused = Manifold.log_sum(space, base, rows), space.log_sum(base, rows)
        assert np.linalg.norm(fused - plain) / len(rows) < 1e-11


def test_threads_do_not_change_the_mean():
    space = manifolds.get("sphere", dim=5)
    rows = cloud(space, np.random.default_rng(4), 3 * CHUNK + 7)
    found = [exact_mean(space, Records(rows, threads), start=rows[0]).point for threads in (1, 2, 5)]
    assert all((point == found[0]).all() for point in found)


def test_what_has_no_mean_is_refused():
    space = manifolds.get("spd", dim=3)
    rows = cloud(space, np.random.default_rng(5), 30, 3.0)
    with pytest.raises(ArithmeticError, match="after 3 gradients"):
        exact_mean(space, Records(rows), start=rows[0], most=3)
    with pytest.raises(ArithmeticError, match="no mean to 1e-30"):
        exact_mean(space, Records(rows), start=rows[0], tolerance=1e-30, most=100)
    sphere = manifolds.get("sphere", dim=3)
    with pytest.raises(ArithmeticError, match="not finite"):
        exact_mean(sphere, Records(np.full((4, 3), np.nan)), start=sphere.reference)
    with pytest.raises(ValueError, match="no records"):
        exact_mean(space, Records(rows[:0]), start=rows[0])

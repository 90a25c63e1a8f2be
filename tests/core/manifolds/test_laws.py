"""The laws of a Riemannian manifold, for all of them, and what is known of some.

A new manifold is a new line in `CASES`, with what is known of it on another way than its own code goes
(`testing.manifold_cases`). Seeds are fixed.
"""

from math import pi

import mpmath
import numpy as np
import pytest
import scipy.linalg

from privest import manifolds
from privest.arrays import lengths
from privest.manifolds import Manifold
from privest.manifolds.euclidean import Euclidean
from privest.manifolds.spd import AffineInvariantSPD
from privest.manifolds.sphere import Sphere
from privest.manifolds.stiefel_grassmann import Grassmann, Oblique
from testing.manifold_cases import (
    BALL,
    FRAMES,
    LORENTZ,
    METRICS,
    SPD,
    SPHERE,
    Case,
    any_frame,
    frame_times_anything,
    frame_times_symmetric,
    points,
    up_to,
    wide_vector,
)
from testing.manifold_laws import LAWS, curvature
from testing.toy_manifold import Stretched


def columns_of(base):
    return (base * np.eye(base.shape[1])[:, None]).reshape(base.shape[1], -1)


def orthogonal_from_the_left(space: Manifold, rng):
    q = np.linalg.qr(rng.standard_normal((space.shape[0],) * 2))[0]
    return lambda x: q @ x[..., ::-1]


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
TOYS = [
    Case(
        "stretched",
        {"dim": 3, "factor": factor},
        metric=lambda _, basis, factor=factor: factor * np.eye(len(basis)),
        wide=((wide_vector, 1e-9),),
        space=Stretched(3, factor),
    )
    for factor in (0.3, 2.0)
]


def test_every_manifold_has_a_case():
    missing = manifolds.MANIFOLDS.keys() - {case.name for case in CASES}
    assert not missing, f"CASES in tests/core/manifolds/test_laws.py has no case of {', '.join(missing)}"


@pytest.fixture(params=[*CASES, *TOYS], ids=str)
def case(request, monkeypatch) -> Case:
    monkeypatch.setitem(manifolds.MANIFOLDS, Stretched.name, Stretched)
    return request.param


@pytest.fixture
def rng(case) -> np.random.Generator:
    return np.random.default_rng([ord(letter) for letter in str(case)])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_law_is_kept(case, rng, law):
    law(case, rng)


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
    """The law holds as far as the metric is `held` in float64. Bures-Wasserstein multiplies two points."""
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
    """The map is x ↦ (1 + |x|², 2x)/(1 − |x|²), whose derivative at the origin doubles a vector."""
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
    x[1, 0, 1], x[2, 2, 0], x[3, 2, 0], x[4, 1, 1] = 1 + 1e-6, np.nan, np.inf, 1e308
    x[3, :, 1] = 0.0
    np.testing.assert_array_equal(space.broken_rule(x), [0, 2, 1, 1, 2])


@pytest.mark.parametrize("name", manifolds.MANIFOLDS)
def test_no_parameter_has_the_name_of_a_field_of_the_form(name: str):
    assert not {"name", "radius", "center"} & manifolds.parameters(name).keys()


def test_a_missing_parameter_is_called_as_callers_call_it():
    with pytest.raises(TypeError, match="sphere needs dim"):
        manifolds.get("sphere")
    with pytest.raises(TypeError, match="stiefel needs dim, rank"):
        manifolds.get("stiefel")


def test_unknown_manifolds_and_parameters_are_refused():
    for name, params in [
        ("globe", {}),
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


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: Sphere(1), "dim of sphere must be at least 2"),
        (lambda: Euclidean(0), "dim of euclidean must be at least 1"),
        (lambda: AffineInvariantSPD(0), "dim of spd must be at least 1"),
        (lambda: Oblique(3, 0), "rank of oblique must be at least 1"),
        (lambda: Grassmann(3, 4), "rank must be at most dim"),
        (lambda: Stretched(2, 0.0), "factor of stretched must be above 0"),
    ],
)
def test_what_cannot_exist_is_not_built(build, told):
    with pytest.raises(ValueError, match=f"^{told}$"):
        build()


def test_what_is_larger_than_a_service_takes_can_be_built():
    assert Euclidean(10**6).dim == 10**6

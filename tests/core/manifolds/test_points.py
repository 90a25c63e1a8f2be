"""What is a point and what is not: `broken_rule` names the rule, never raises and never warns."""

import warnings

import numpy as np
import pytest

from privest import manifolds

E, S, P, B = (manifolds.get(name, dim=3) for name in ("euclidean", "sphere", "spd", "poincare-ball"))
L = manifolds.get("lorentz", dim=2)
F, G = (manifolds.get(name, dim=3, rank=2) for name in ("stiefel", "grassmann"))
SPACES = [E, S, P, B, L, F, G]
UNIT = [0.6, 0.0, 0.8]
ABOVE = "on the hyperboloid (−t² + |x|² = −1, t > 0)"


def spd(*diagonal, **entries):
    a = np.diag(diagonal).astype(float)
    for place, value in entries.items():
        a[int(place[1]), int(place[2])] = value
    return a


CASES = [
    (E, [1.0, 2.0, 3.0], None),
    (E, [0.0, -0.0, 5e-324], None),
    (E, [1.7e308, -1.7e308, 1e308], None),
    (E, [np.nan, 0, 0], "finite"),
    (E, [0, np.inf, 0], "finite"),
    (E, [0, 0, -np.inf], "finite"),
    (S, UNIT, None),
    (S, [1 + 9e-7, 0, 0], None),
    (S, [1 + 1e-6, 0, 0], "of unit length"),
    (S, [0.0, 0.0, 0.0], "of unit length"),
    (S, [5e-324] * 3, "of unit length"),
    (S, [1e308] * 3, "of unit length"),
    (S, [np.nan, 1, 0], "finite"),
    (S, [np.inf, -np.inf, 0], "finite"),
    (P, spd(1, 2, 3), None),
    (P, spd(1e-6, 1, 1e6), None),
    (P, spd(1e308, 1e308, 1e308), None),
    (P, spd(1e-300, 1e-300, 1e-300), None),
    (P, spd(1, 1, 1, e01=0.5, e10=0.5), None),
    (P, spd(1, 1, 1, e01=0.5, e10=0.5 + 9e-7), None),
    (P, spd(1, 1, 1, e01=0.5, e10=0.5 + 1e-6), "symmetric"),
    (P, spd(1, 1, 1, e01=0.5, e10=0.5001), "symmetric"),
    (P, spd(1, 1, 1, e01=1e308, e10=-1e308), "symmetric"),
    (P, spd(1, 1, 1, e02=5e-324), None),
    (P, spd(0, 0, 0), "positive definite"),
    (P, spd(1, 1, 0), "positive definite"),
    (P, spd(1, 1, -1e-9), "positive definite"),
    (P, spd(-1e308, -1e308, -1e308), "positive definite"),
    (P, spd(1, 1, 1, e01=2, e10=2), "positive definite"),
    (P, np.ones((3, 3)) * 1e308, "positive definite"),
    (P, spd(1, 1, np.nan), "finite"),
    (P, spd(1, 1, 1, e01=np.inf, e10=np.inf), "finite"),
    (B, [0.0, 0.0, 0.0], None),
    (B, [0.6, 0.0, 0.799], None),
    (B, [1 - 1e-8, 0, 0], None),
    (B, [1.0, 0, 0], "inside the unit ball"),
    (B, [0.6, 0.0, 0.8001], "inside the unit ball"),
    (B, [1e308] * 3, "inside the unit ball"),
    (B, [np.nan, 0, 0], "finite"),
    (B, [np.inf, 0, 0], "finite"),
    (L, [1.0, 0, 0], None),
    (L, [np.cosh(10), np.sinh(10), 0], None),
    (L, [np.sqrt(26) * (1 + 9e-7), 3, 4], None),
    (L, [np.sqrt(26) * (1 + 1e-6), 3, 4], ABOVE),
    (L, [-1.0, 0, 0], ABOVE),
    (L, [0.0, 0, 0], ABOVE),
    (L, [0.0, 1e200, 0], ABOVE),
    (L, [1e308, 1e308, 1e308], ABOVE),
    (L, [np.nan, 0, 0], "finite"),
    (L, [1, -np.inf, 0], "finite"),
    *(
        (space, np.array(point, dtype=float).reshape(3, 2), rule)
        for space in (F, G)
        for point, rule in [
            ([1, 0, 0, 1, 0, 0], None),
            ([0.6, 0, 0.8, 0, 0, -1], None),
            ([1 + 4e-7, 0, 0, 1, 0, 0], None),
            ([1 + 1e-6, 0, 0, 1, 0, 0], "orthonormal columns"),
            ([1, 0, 0, 1e-6, 0, 0], "orthonormal columns"),
            ([1, 1, 0, 0, 0, 0], "orthonormal columns"),
            ([1e308] * 6, "orthonormal columns"),
            ([1e308, -1e308] * 3, "orthonormal columns"),
            ([0] * 6, "orthonormal columns"),
            ([np.nan] + [0] * 5, "finite"),
            ([np.inf, -np.inf] * 3, "finite"),
        ]
    ),
]


@pytest.mark.parametrize(
    ("space", "made"),
    [
        (manifolds.get("sphere", dim=2000), lambda x: x[:, 0] / np.linalg.norm(x[:, 0], axis=-1)[:, None]),
        (manifolds.get("stiefel", dim=2000, rank=3), lambda x: np.linalg.qr(np.swapaxes(x, 1, 2))[0]),
        (
            manifolds.get("spd", dim=3),
            # Covariances whose lower triangles are off by some units of rounding.
            lambda x: x @ np.swapaxes(x, 1, 2) / 2000 * (1 + np.float32(2e-7) * np.tri(3)),
        ),
    ],
    ids=["sphere", "stiefel", "spd"],
)
def test_points_that_were_computed_in_float32_are_accepted_and_made_exact(space, made):
    rows = made(np.random.default_rng(0).normal(size=(20, 3, 2000)).astype(np.float32)).astype(np.float32)
    points = rows.astype(np.float64)
    assert (space.broken_rule(points) == 0).all()
    exact = space.canonical(points)
    np.testing.assert_allclose(exact, points, atol=2e-6 * np.abs(points).max())
    if space.name == "spd":
        np.testing.assert_array_equal(exact, np.swapaxes(exact, 1, 2))
    else:
        columns = exact.reshape(20, 2000, -1)
        gram = np.swapaxes(columns, 1, 2) @ columns
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape), atol=1e-14)


@pytest.mark.parametrize(("space", "point", "rule"), CASES)
def test_the_broken_rule_is_named(space, point, rule):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        broken = int(space.broken_rule(np.asarray(point, dtype=float)))
        held = bool(space.belongs(np.asarray(point, dtype=float)))
    assert (space.rules[broken - 1] if broken else None) == rule
    assert held == (rule is None)


@pytest.mark.parametrize("space", SPACES, ids=lambda s: s.name)
def test_rules_batch_and_one_bad_point_does_not_hide_another(space):
    batch = [(np.asarray(point, dtype=float), rule) for of, point, rule in CASES if of is space]
    broken = space.broken_rule(np.stack([point for point, _ in batch]))
    assert [space.rules[b - 1] if b else None for b in broken] == [rule for _, rule in batch]


@pytest.mark.parametrize(
    "space",
    [*SPACES, *(manifolds.get("spd", dim=d) for d in (1, 2, 5, 11))],
    ids=lambda s: f"{s.name}-{s.dim}",
)
def test_rules_are_total_over_all_of_float64(space):
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**64, (2000, *space.shape), dtype=np.uint64).view(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(space.broken_rule(bits)) <= set(range(len(space.rules) + 1))
    if space.name == "spd":
        with np.errstate(invalid="ignore"):
            mirrored = np.tril(bits) + np.swapaxes(np.tril(bits, -1), -1, -2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            broken = space.broken_rule(mirrored)
        assert set(broken) <= {0, 1, 3}


@pytest.mark.parametrize("space", SPACES, ids=lambda s: s.name)
def test_canonical_points_keep_every_rule(space):
    for of, point, rule in CASES:
        if of is space and rule is None:
            exact = space.canonical(np.asarray(point, dtype=float))
            assert space.belongs(exact)
            np.testing.assert_allclose(exact, point, rtol=1e-6, atol=1e-300)

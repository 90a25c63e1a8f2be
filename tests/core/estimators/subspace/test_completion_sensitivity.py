"""An adversary against everything that matrix completion releases: pairs of rows with and without gaps.

As in `test_subspace_sensitivity`, whose rows these are, with entries that are not known. Nothing is random
but fixed seeds.
"""

from math import sqrt

import numpy as np
import pytest
from scipy.optimize import minimize
from test_subspace_sensitivity import SHAPES, Case, Silence, frame, hostile, total

from privest.arrays import lengths
from privest.estimators.subspace import completion_losses, off_diagonal_moment, partial_rows
from privest.estimators.subspace.completion_losses import CompletionGradient
from privest.estimators.subspace.off_diagonal_moment import OffDiagonalMoment
from privest.estimators.subspace.partial_rows import known_part
from privest.manifolds.grassmann import Grassmann
from privest.privacy import grid
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import noisy_sum
from privest.records import CHUNK, Records


def cases():
    for dim, rank in SHAPES:
        v = frame(dim, rank)
        yield Case("hollow", OffDiagonalMoment(dim), None, 1.0, dim, v, 0.97)
        yield Case("moment-clipped", OffDiagonalMoment(dim), None, 0.2, dim, v, 0.97)
        for clip in (0.3, 0.05):
            yield Case("gradient", CompletionGradient(dim, rank), v, clip, dim, v, 0.97)
        # A frame of which some rows are nearly zero: few entries tell a column's coefficients.
        spiked = np.linalg.qr(np.eye(dim, rank) + 1e-3 * frame(dim, rank, 1))[0]
        yield Case("gradient-spiked", CompletionGradient(dim, rank), spiked, 0.3, dim, spiked, 0.97)


CASES = list(cases())
each_case = pytest.mark.parametrize(
    "case", CASES, ids=lambda c: f"{c.name}-{c.dim}-{c.basis.shape[1]}-{c.clip:.2g}"
)


def gapped(case):
    """Hostile rows, whole and with gaps of every size, down to rows of which nothing is known."""
    rng, rows = np.random.default_rng(1), hostile(case)
    some = rows[rng.permutation(len(rows))[:150]]
    masks = [rng.random(some.shape) < share for share in (0.1, 0.5, 0.9)]
    two = np.argsort(rng.random(some.shape), axis=1) < 2
    return np.concatenate([rows, *(np.where(mask, some, np.nan) for mask in (*masks, two))])


def alone(case, rows):
    return np.stack([total(case.statistic, case.point, row[None], case.clip) for row in rows])


def worst_move(case):
    """The furthest that one record was seen to move the sum, over what is paid for: of pairs, then uphill."""
    pool = gapped(case)
    vectors = alone(case, pool) / case.clip
    squares = np.vecdot(vectors, vectors)
    far = squares[:, None] + squares - 2 * vectors @ vectors.T
    worst = sqrt(far.max())
    size = np.nanmax(np.abs(np.where(np.isnan(pool), 0.0, pool)), axis=1)
    ordinary = (size < 1e3) & (size > 1e-3)
    far = np.where(ordinary[:, None] & ordinary, far, -1.0)
    pair = np.concatenate([pool[k] for k in np.unravel_index(np.argmax(far), far.shape)])
    known = ~np.isnan(pair)

    def minus(values):
        rows = pair.copy()
        rows[known] = values
        one, other = alone(case, rows.reshape(2, -1))
        return -float(lengths(one - other)) / case.clip

    found = minimize(minus, pair[known], method="Nelder-Mead", options={"maxfev": 400})
    return max(worst, -found.fun) / (case.statistic.diameter(case.clip) / case.clip * (1 + 1e-9))


@each_case
def test_no_pair_moves_the_sum_by_more_than_the_diameter(case):
    """And some pair comes close, so that a diameter declared 3 % too short would be seen."""
    assert case.reach <= worst_move(case) <= 1.0


def test_the_diameter_of_the_hollow_moment_is_reached():
    pair = np.array([[1.0, 1.0, np.nan], [3.0, -3.0, np.nan]])
    statistic = OffDiagonalMoment(3)
    one, other = (statistic.clipped_sum(None, row[None], 1.0) for row in pair)
    assert lengths(one - other) == pytest.approx(statistic.diameter(1.0), rel=1e-15)


def named(name, dim=5):
    return next(c for c in CASES if c.name == name and c.dim == dim)


def not_normalised(rows):
    known = np.isfinite(rows)
    return np.where(known, rows, 0.0), known.astype(float)


MUTANTS = [
    ("hollow", OffDiagonalMoment, "diameter", lambda _, clip: 1.35 * clip),
    ("gradient", CompletionGradient, "diameter", lambda _, clip: sqrt(2) * clip),
    ("hollow", off_diagonal_moment, "known_part", not_normalised),
    ("gradient", completion_losses, "lengths", lambda v: np.zeros(len(v))),
    ("gradient-spiked", completion_losses, "_FLOOR", 0.0),
    ("hollow", partial_rows, "on_sphere", lambda rows: rows),
]


@pytest.mark.parametrize(("name", "where", "what", "mutant"), MUTANTS)
def test_the_search_catches_mutants(monkeypatch, name, where, what, mutant):
    monkeypatch.setattr(where, what, mutant)
    with pytest.raises((AssertionError, RuntimeWarning, np.linalg.LinAlgError)):
        assert worst_move(named(name)) <= 1.0


@each_case
def test_no_record_among_others_stops_warns_or_poisons_a_chunk(case):
    rows = gapped(case)
    s = total(case.statistic, case.point, np.concatenate([rows, rows[::-1]]), case.clip)
    assert lengths(s) <= 2 * len(rows) * case.clip * (1 + 1e-9)


@each_case
def test_a_record_is_shortened_to_its_clip_and_its_gradient_is_tangent(case):
    vectors = alone(case, gapped(case))
    assert lengths(vectors).max() <= case.clip * (1 + 1e-14)
    if "gradient" in case.name:
        pulls = vectors.reshape(-1, *case.basis.shape)
        assert np.abs(case.basis.T @ pulls).max() < 1e-12


@pytest.mark.parametrize("dim", [2, 5, 20])
def test_no_pull_is_longer_than_the_ridge_allows(dim):
    """By the stated bound, of every row and also where the basis is least seen."""
    for name in ("gradient", "gradient-spiked"):
        case = named(name, dim)
        vectors = np.stack([total(case.statistic, case.point, row[None], 1e9) for row in gapped(case)])
        assert lengths(vectors).max() <= 0.79 / sqrt(completion_losses._FLOOR)


def test_the_known_part_is_one_long_and_no_gap_counts():
    rows = np.array([[3.0, np.nan, -4.0], [np.nan] * 3, [0.0, np.nan, 0.0], [5e-324, np.nan, 0], [1e308] * 3])
    a, known = known_part(rows)
    np.testing.assert_allclose(a[:4], [[0.6, 0, -0.8], [0, 0, 0], [0, 0, 0], [0, 0, 0]], rtol=1e-15)
    np.testing.assert_array_equal(known, ~np.isnan(rows))
    assert not a[4].any()  # 1e308 has no length in float64, as in `on_sphere`


def test_the_gradient_is_that_of_least_squares_where_rows_tell_their_coefficients():
    """That of `gradient`, whose coefficients have no ridge; and it falls along a geodesic as it should."""
    rng, dim, rank = np.random.default_rng(3), 12, 2
    space, base, truth = Grassmann(dim, rank), frame(dim, rank), frame(dim, rank, 5)
    rows = np.where(rng.random((40, dim)) < 0.7, rng.standard_normal((40, rank)) @ truth.T, np.nan)
    a, known = known_part(rows)
    found = CompletionGradient(dim, rank).clipped_sum(base, rows, 1e9).reshape(dim, rank)
    np.testing.assert_allclose(found, -completion_losses.gradient(base, a, known), atol=1e-3)

    def loss(basis):
        fitted = completion_losses.coefficients(basis, a, known) @ basis.T
        return 0.5 * (known * (fitted - a) ** 2).sum()

    way = space.project_tangent(base, rng.standard_normal((dim, rank)))
    slope = (loss(space.exp(base, 1e-5 * way)) - loss(space.exp(base, -1e-5 * way))) / 2e-5
    assert slope == pytest.approx(-float((found * way).sum()), rel=1e-3)


def test_a_column_of_the_subspace_hardly_pulls():
    rng, basis = np.random.default_rng(4), frame(30, 3)
    rows = np.where(rng.random((500, 30)) < 0.4, rng.standard_normal((500, 3)) @ basis.T, np.nan)
    assert lengths(alone(Case("", CompletionGradient(30, 3), basis, 1.0, 30, basis, 0), rows)).max() < 0.05
    assert lengths(CompletionGradient(30, 3).clipped_sum(basis, rows, 1.0)) / 500 < 1e-4


@pytest.mark.parametrize("kind", ["one way", "random", "alternating", "gaps"])
@pytest.mark.parametrize(("dim", "rank"), [(2, 1), (24, 3)])
def test_float_sums_of_a_chunk_stay_within_the_stated_bound(kind, dim, rank):
    """Off the sum in long doubles of what the records add alone."""
    rng = np.random.default_rng(3)
    normal = rng.standard_normal((CHUNK, dim))
    rows = {
        "one way": np.ones((CHUNK, dim)) * normal[0],
        "random": normal,
        "alternating": np.where(np.arange(CHUNK) % 2, 1e100, -1e-100)[:, None] * normal[0],
        "gaps": np.where(rng.random((CHUNK, dim)) < 0.3, normal, np.nan),
    }[kind]
    for statistic, clip in [(OffDiagonalMoment(dim), 1.0), (CompletionGradient(dim, rank), 0.1)]:
        case = Case("", statistic, frame(dim, rank), clip, dim, None, 0)
        stated = grid._chunk_error(clip, statistic.size, 0.0)
        error = total(statistic, case.point, rows, clip) - alone(case, rows).astype(np.longdouble).sum(axis=0)
        assert np.sqrt((error * error).sum()) <= stated


@pytest.mark.parametrize("name", ["hollow", "gradient"])
@pytest.mark.parametrize("dim", [5, 20])
def test_neighbours_differ_at_the_gate_by_at_most_the_certified_sensitivity(name, dim):
    """Chunks, blocks, grid and float sums included; the neighbours are the widest pair of the pool."""
    case, n = named(name, dim), CHUNK + 105
    pool = gapped(case)
    vectors = alone(case, pool)
    squares = np.vecdot(vectors, vectors)
    pair = np.unravel_index(np.argmax(squares[:, None] + squares - 2 * vectors @ vectors.T), [len(pool)] * 2)
    release = noisy_sum(
        "gaussian",
        n=n,
        size=case.statistic.size,
        clip=case.clip,
        loss=1.0,
        diameter=case.statistic.diameter(case.clip),
    )
    rng = np.random.default_rng(5)
    rows = np.where(rng.random((n, dim)) < 0.6, rng.standard_normal((n, dim)), np.nan)

    def exact(place, row):
        data = rows.copy()
        data[place] = row
        gate = Gate(Records(data, threads=1), {"gradient": case.statistic}, [release], Silence())
        return gate.mean(case.point) * n

    for place in (0, CHUNK - 1, CHUNK, n - 1):
        moved = lengths(exact(place, pool[pair[0]]) - exact(place, pool[pair[1]]))
        assert 0.6 * case.statistic.diameter(case.clip) < moved <= release.sensitivity * (1 + 1e-11)

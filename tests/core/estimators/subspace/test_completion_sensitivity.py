"""An adversary against everything that matrix completion releases: pairs of rows with and without gaps.

As in `test_subspace_sensitivity`, whose rows these are, with entries that are not known. Nothing is random
but fixed seeds.
"""

from math import sqrt

import numpy as np
import pytest

from privest.arrays import lengths
from privest.data.records import CHUNK, Records
from privest.estimators.subspace import gap_moment, partial_rows
from privest.estimators.subspace.gap_moment import GapMoment
from privest.estimators.subspace.partial_rows import known_part
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.privacy import clipped_sums
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import noisy_sum
from privest_papers import completion_descent
from privest_papers.completion_descent import CompletionGradient
from testing import completion
from testing.hostile_rows import PlacedCase, each_alone, frame, total
from testing.neighbours import furthest_pair, worst_move
from testing.noise import ScriptedNoise


def cases():
    for dim, rank in ((2, 1), (3, 1), (5, 2), (20, 3)):
        v = frame(dim, rank)
        yield PlacedCase("moment", GapMoment(dim), None, 1.0, dim, v, gaps=True)
        yield PlacedCase("moment-clipped", GapMoment(dim), None, 0.2, dim, v, gaps=True)
        for clip in (0.3, 0.05):
            yield PlacedCase("gradient", CompletionGradient(dim, rank), v, clip, dim, v, gaps=True)
        # A frame of which some rows are nearly zero: few entries tell a column's coefficients.
        spiked = np.linalg.qr(np.eye(dim, rank) + 1e-3 * frame(dim, rank, 1))[0]
        yield PlacedCase(
            "gradient-spiked", CompletionGradient(dim, rank), spiked, 0.3, dim, spiked, gaps=True
        )


CASES = list(cases())
each_case = pytest.mark.parametrize("case", CASES, ids=str)


@each_case
def test_no_pair_moves_the_sum_by_more_than_the_diameter(case):
    """Some pair comes close to the diameter, so a diameter declared 3 % too short would be seen."""
    assert case.reach <= worst_move(case) <= 1.0


def test_the_diameter_of_the_moment_is_reached():
    """Two rows at right angles reach it, of which one is known wholly, and of the other one entry."""
    pair = np.array([[0.0, -1.0, 3.0], [2.0, np.nan, np.nan]])
    statistic = GapMoment(3)
    one, other = (statistic.clipped_sum(None, row[None], 1.0) for row in pair)
    assert lengths(one - other) == pytest.approx(statistic.diameter(1.0), rel=1e-15)


def named(name, dim=5):
    return next(c for c in CASES if c.name == name and c.dim == dim)


def not_normalised(rows):
    known = np.isfinite(rows)
    return np.where(known, rows, 0.0), known.astype(float)


MUTANTS = [
    ("moment", GapMoment, "diameter", lambda _, clip: 1.35 * clip),
    ("gradient", CompletionGradient, "diameter", lambda _, clip: sqrt(2) * clip),
    ("moment", gap_moment, "known_part", not_normalised),
    ("gradient", completion_descent, "lengths", lambda v: np.zeros(len(v))),
    ("gradient-spiked", completion_descent, "_FLOOR", 0.0),
    ("moment", partial_rows, "on_sphere", lambda rows: rows),
]


@pytest.mark.parametrize(("name", "where", "what", "mutant"), MUTANTS)
def test_the_search_catches_mutants(monkeypatch, name, where, what, mutant):
    monkeypatch.setattr(where, what, mutant)
    with pytest.raises((AssertionError, RuntimeWarning, np.linalg.LinAlgError)):
        assert worst_move(named(name)) <= 1.0


@each_case
def test_no_record_among_others_stops_warns_or_poisons_a_chunk(case):
    rows = case.pool()
    s = total(case.statistic, case.point, np.concatenate([rows, rows[::-1]]), case.clip)
    assert lengths(s) <= 2 * len(rows) * case.clip * (1 + 1e-9)


@each_case
def test_a_record_is_shortened_to_its_clip_and_its_gradient_is_tangent(case):
    vectors = case.alone(case.pool())
    assert lengths(vectors).max() <= case.clip * (1 + 1e-14)
    if "gradient" in case.name:
        pulls = vectors.reshape(-1, *case.basis.shape)
        assert np.abs(case.basis.T @ pulls).max() < 1e-12


@pytest.mark.parametrize("dim", [2, 5, 20])
def test_no_pull_is_longer_than_the_ridge_allows(dim):
    """The bound holds for every row, also where the basis is least seen."""
    for name in ("gradient", "gradient-spiked"):
        case = named(name, dim)
        vectors = each_alone(case.statistic, case.point, case.pool(), 1e9)
        assert lengths(vectors).max() <= 0.79 / sqrt(completion_descent._FLOOR)


def test_the_known_part_is_one_long_and_no_gap_counts():
    rows = np.array([[3.0, np.nan, -4.0], [np.nan] * 3, [0.0, np.nan, 0.0], [5e-324, np.nan, 0], [1e308] * 3])
    a, known = known_part(rows)
    np.testing.assert_allclose(a[:4], [[0.6, 0, -0.8], [0, 0, 0], [0, 0, 0], [0, 0, 0]], rtol=1e-15)
    np.testing.assert_array_equal(known, ~np.isnan(rows))
    assert not a[4].any()  # 1e308 has no length in float64, as in `on_sphere`


def test_the_gradient_is_that_of_least_squares_where_rows_tell_their_coefficients():
    """It equals the sum of `gradient`, which has no ridge, and falls along a geodesic as it should."""
    rng, dim, rank = np.random.default_rng(3), 12, 2
    space, base, truth = Grassmann(dim, rank), frame(dim, rank), frame(dim, rank, 5)
    rows = np.where(rng.random((40, dim)) < 0.7, rng.standard_normal((40, rank)) @ truth.T, np.nan)
    a, known = known_part(rows)
    found = CompletionGradient(dim, rank).clipped_sum(base, rows, 1e9).reshape(dim, rank)
    np.testing.assert_allclose(found, -completion.gradient(base, a, known), atol=1e-3)

    def loss(basis):
        fitted = completion.coefficients(basis, a, known) @ basis.T
        return 0.5 * (known * (fitted - a) ** 2).sum()

    way = space.project_tangent(base, rng.standard_normal((dim, rank)))
    slope = (loss(space.exp(base, 1e-5 * way)) - loss(space.exp(base, -1e-5 * way))) / 2e-5
    assert slope == pytest.approx(-float((found * way).sum()), rel=1e-3)


def test_a_column_of_the_subspace_hardly_pulls():
    rng, basis = np.random.default_rng(4), frame(30, 3)
    rows = np.where(rng.random((500, 30)) < 0.4, rng.standard_normal((500, 3)) @ basis.T, np.nan)
    assert lengths(each_alone(CompletionGradient(30, 3), basis, rows, 1.0)).max() < 0.05
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
    for statistic, clip in [(GapMoment(dim), 1.0), (CompletionGradient(dim, rank), 0.1)]:
        at = frame(dim, rank)
        stated = clipped_sums._chunk_error(clip, statistic.size, 0.0)
        error = total(statistic, at, rows, clip) - each_alone(statistic, at, rows, clip).astype(
            np.longdouble
        ).sum(axis=0)
        assert np.sqrt((error * error).sum()) <= stated


@pytest.mark.parametrize("name", ["moment", "gradient"])
@pytest.mark.parametrize("dim", [5, 20])
def test_neighbours_differ_at_the_gate_by_at_most_the_certified_sensitivity(name, dim):
    """Chunks, blocks, grid and float sums included; the neighbours are the widest pair of the pool."""
    case, n = named(name, dim), CHUNK + 105
    one, other = furthest_pair(case)
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
        gate = Gate(Records(data, threads=1), {"gradient": case.statistic}, [release], ScriptedNoise())
        return gate.mean(case.point) * n

    for place in (0, CHUNK - 1, CHUNK, n - 1):
        moved = lengths(exact(place, one) - exact(place, other))
        assert 0.6 * case.statistic.diameter(case.clip) < moved <= release.sensitivity * (1 + 1e-11)

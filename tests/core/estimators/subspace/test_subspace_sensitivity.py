"""An adversary against everything that robust PCA releases: pairs of rows, their place, and float sums.

A statistic's diameter may be below twice its clip here, so that the search has to reach it where it can be
reached, and a wrong one has to be caught. Nothing is random but fixed seeds.
"""

from math import sqrt

import numpy as np
import pytest

from privest.arrays import lengths
from privest.data.records import CHUNK, Records
from privest.estimators.subspace import losses, sketch
from privest.estimators.subspace.candidates import CandidateGradients, Candidates, CandidateScores
from privest.estimators.subspace.distances import DistanceHistogram
from privest.estimators.subspace.losses import (
    Absolute,
    Bounded,
    Redescending,
    Squared,
    SubspaceDistance,
    SubspaceQuery,
)
from privest.estimators.subspace.second_look import SecondLook
from privest.estimators.subspace.second_moment import Frame, SecondMoment
from privest.estimators.subspace.sketch import Sketch
from privest.estimators.subspace.spherical import on_sphere
from privest.manifolds.stiefel_grassmann import Grassmann
from privest.privacy import clipped_sums
from privest.privacy.gate import Gate
from privest.privacy.mechanisms import noisy_sum
from privest_papers import reaper
from privest_papers.reaper import Reaper, Relaxation
from privest_papers.subspace_rsvrg import SubspaceDistanceChange
from testing.hostile_rows import EXTREMES, PlacedCase, frame, total
from testing.neighbours import furthest_pair, worst_move
from testing.noise import ScriptedNoise

LOSSES = {
    "absolute": Absolute(),
    "squared": Squared(),
    **{f"bounded-{c:g}": Bounded(c) for c in (1e-3, 0.2, 1e3)},
    **{f"redescending-{c:g}": Redescending(c) for c in (1e-3, 0.5, 1e3)},
}


def projection(dim, rank, values=1.0):
    v = frame(dim, rank)
    return (v * values) @ v.T


def framed(wide, center):
    size = wide.shape[1]
    return Relaxation(projection(size, size - 1), center, wide)


SHAPES = [(2, 1), (4, 1), (5, 2), (20, 3)]


def cases():
    for dim, rank in SHAPES:
        v, wide = frame(dim, rank), frame(dim, min(dim, rank + 1))
        inside = wide @ frame(wide.shape[1], rank)
        away = np.linspace(0.1, 0.3, dim)

        def case(name, statistic, point, clip, reach=0.97, center=None, dim=dim, v=v):
            return PlacedCase(name, statistic, point, clip, dim, v, reach, center)

        for name, loss in LOSSES.items():
            for clip, center in ((1.0, None), (0.3, None), (1.0, away)):
                at = SubspaceQuery(v, loss, center)
                yield case(name, SubspaceDistance(dim, rank), at, clip, center=center)
                yield case("look", SecondLook(dim, rank), at, clip, center=center)
        for clip, center in ((0.05, None), (0.01, away)):
            near = Grassmann(dim, rank).exp_coordinates(v, np.full(dim * rank, 0.1))
            both = tuple(SubspaceQuery(each, Squared(), center) for each in (near, v))
            yield case("change", SubspaceDistanceChange(dim, rank), both, clip, center=center)
        yield case("look", SecondLook(dim, rank), Frame(None, away), 1.0, center=away)
        yield case("moment", SecondMoment(dim), Frame(None, away), 1.0, center=away)
        yield case("distances", DistanceHistogram(), Frame(v, away), 1.0, center=away)
        yield case("distances", DistanceHistogram(), Frame(v), 0.3)
        yield case("moment-clipped", SecondMoment(dim), Frame(), 0.2)
        yield case("explained", SecondMoment(rank), Frame(v, away), 1.0, center=away)
        # A frame of one column sees no two rows at right angles: 1 is then the most, not √2.
        for clip, reach in ((0.05, 0.97), (0.2, 0.97), (1.0, 0.97 if rank > 1 else 0.97 / sqrt(2))):
            yield case("sketch", Sketch(dim, rank), Frame(v), clip, reach)
        for scale in (0.15, 0.5):
            own, same = np.eye(rank + 1), np.tile(frame(rank + 1, 1, 3).T, (rank + 1, 1))
            for normals, clip, reach in ((own, 0.3, 0.97), (same, sqrt(rank + 1), 0.96)):
                at = Candidates(wide, normals, scale)
                yield case("tilt", CandidateGradients(rank + 1, rank), at, clip, reach)
            every = Candidates(wide, np.vstack([same, same]), scale, away)
            for clip, reach in ((0.1, 0.97), (sqrt(2 * rank + 2), 0.97 / (1 + scale**2))):
                yield case("objective", CandidateScores(2 * rank + 2), every, clip, reach, center=away)
        for clip in (1.0, 0.3):
            yield case("reaper", Reaper(dim), Relaxation(projection(dim, rank)), clip)
            yield case("reaper-framed", Reaper(rank + 1), framed(wide, None), clip, v=inside)
        amid = Relaxation(np.eye(dim) * rank / dim, away)
        yield case("reaper-amid", Reaper(dim), amid, 1.0, center=away)
        at = framed(wide, away)
        yield case("reaper-framed-amid", Reaper(rank + 1), at, 1.0, center=away, v=inside)


CASES = list(cases())
each_case = pytest.mark.parametrize("case", CASES, ids=str)


@each_case
def test_no_pair_moves_the_sum_by_more_than_the_diameter(case):
    """Some pair comes close to the diameter, so a diameter declared 3 % too short would be seen."""
    assert case.reach <= worst_move(case) <= 1.0


def named(name, dim=5, clip=None):
    return next(c for c in CASES if c.name == name and c.dim == dim and clip in (None, c.clip))


def without_normalisation(rows, center=None):
    return np.where(np.isfinite(rows).all(axis=1)[:, None], rows, 0.0)


def by_pythagoras(honest):
    """d = √(1 − |Vᵀx|²), which is rounding where the residual is small."""

    def residuals(at, rows):
        along, left, _ = honest(at, rows)
        return along, left, np.sqrt(np.maximum(1 - np.vecdot(along, along), 0.0))

    return residuals


MUTANTS = [
    ("absolute", SubspaceDistance, "diameter", lambda _, clip: sqrt(2) * clip),
    ("squared", SubspaceDistance, "diameter", lambda _, clip: sqrt(2) * clip),
    ("moment", SecondMoment, "diameter", lambda _, clip: clip),
    ("look", SecondLook, "diameter", lambda _, clip: clip),
    ("distances", DistanceHistogram, "diameter", lambda _, clip: clip),
    ("sketch", Sketch, "diameter", lambda _, clip: sqrt(2) * clip),
    ("tilt", CandidateGradients, "diameter", lambda _, clip: sqrt(2) * clip),
    ("objective", CandidateScores, "diameter", lambda _, clip: clip / sqrt(2)),
    ("reaper", Reaper, "diameter", lambda _, clip: 1.3 * clip),
    ("absolute", losses, "residuals", by_pythagoras(losses.residuals)),
    ("redescending-0.5", losses, "residuals", by_pythagoras(losses.residuals)),
    ("reaper", reaper, "on_sphere", without_normalisation),
    ("reaper-framed", Reaper, "diameter", lambda _, clip: 1.3 * clip),
    ("reaper-framed", reaper, "on_sphere", without_normalisation),
    ("sketch", sketch, "on_sphere", without_normalisation),
    ("sketch", sketch, "lengths", lambda v: np.zeros(len(v))),
    ("squared", Squared, "weight", lambda _, d: np.full_like(d, np.nan)),
]


@pytest.mark.parametrize(("name", "where", "what", "mutant"), MUTANTS)
def test_the_search_catches_mutants(monkeypatch, name, where, what, mutant):
    monkeypatch.setattr(where, what, mutant)
    with pytest.raises((AssertionError, RuntimeWarning)):
        assert worst_move(named(name)) <= 1.0


@pytest.mark.parametrize("name", [*LOSSES, "reaper"])
def test_a_clip_below_one_shortens_what_is_longer(name):
    case = named(name, clip=0.3)
    worst = max(lengths(total(case.statistic, case.point, r[None], 0.3)) for r in case.pool())
    assert worst <= 0.3 * (1 + 1e-14)
    unclipped = max(lengths(total(case.statistic, case.point, r[None], 1.0)) for r in case.pool())
    assert unclipped > 0.7


@each_case
def test_no_record_among_others_stops_warns_or_poisons_a_chunk(case):
    rows = case.pool()
    s = total(case.statistic, case.point, np.concatenate([rows, rows[::-1]]), case.clip)
    assert lengths(s) <= 2 * len(rows) * case.clip * (1 + 1e-9)


def test_what_has_no_direction_is_zero_and_all_else_has_length_one():
    rng = np.random.default_rng(0)
    for exponent in range(-330, 309, 3):
        rows = rng.standard_normal((5, 7)) * 10.0**exponent
        length = lengths(on_sphere(rows))
        assert np.all((length == 0.0) | (np.abs(length - 1) < 1e-14))
        if -149 <= exponent <= 148:
            assert np.all(length > 0)
    assert not on_sphere(np.zeros((3, 4))).any()
    assert not on_sphere(np.full((3, 4), np.nan)).any()
    center = rng.standard_normal(7)
    assert not on_sphere(np.stack([center, center]), center).any()


PLACES = [(n, dim, rank) for n in (1, 2, 3, 70) for dim in (2, 3, 7, 8, 33, 200) for rank in (1, 2, 3, 8)]


def sampled_statistics(dim, rank, rng):
    """Statistics that batches are summed of, at points of every kind: (statistic, point)."""
    v = frame(dim, rank, dim + rank)
    for loss in (Absolute(), Redescending(0.5), Bounded(0.2), Squared()):
        yield (
            SubspaceDistance(dim, rank),
            SubspaceQuery(v, loss, rng.standard_normal(dim) if rank == 2 else None),
        )
    yield Reaper(dim), Relaxation(projection(dim, rank))
    yield Reaper(rank), Relaxation(0.5 * np.eye(rank), None, v)


def each_record_s_vector(statistic, point, rows):
    """What a chunk's sum adds up, (n, size): the statistic itself, of which the sum is left out."""
    if isinstance(statistic, Reaper):
        x, left, length = reaper._residuals(point, rows)
        return np.concatenate([x, left, length[:, None]], axis=1)
    along, left, length = losses.residuals(point, rows)
    weight = point.loss.weight(length)[:, None]
    pull = weight[:, 0] * length * lengths(along)
    return np.concatenate([along, left, length[:, None], weight, pull[:, None]], axis=1)


def near_the_subspace(dim, rank, n, rng):
    v = frame(dim, rank, dim + rank)
    off = rng.standard_normal((n, dim)) * 10.0 ** rng.uniform(-17, 0, (n, 1))
    return rng.standard_normal((n, rank)) @ v.T + off


def moved_by_its_place(shapes):
    """Whether some record's vector has other bits alone, elsewhere in a batch, or read from elsewhere."""
    for n, dim, rank in shapes:
        if rank >= dim:
            continue
        rng = np.random.default_rng(n)
        rows = near_the_subspace(dim, rank, n, rng)
        shifted = np.empty(rows.size + 1)[1:].reshape(rows.shape)
        shifted[...] = rows
        columns = np.asfortranarray(rows)
        for statistic, point in sampled_statistics(dim, rank, rng):
            whole = each_record_s_vector(statistic, point, rows)
            order = rng.permutation(n)
            others = [(shifted, slice(None)), (Records(columns)._rows, slice(None)), (rows[order], order)]
            for start in {0, 1, n // 2, n - 1} - {n}:
                others.append((rows[start:], slice(start, None)))
                others.append((rows[start : start + 1].copy(), slice(start, start + 1)))
            for batch, expected in others:
                if not np.array_equal(each_record_s_vector(statistic, point, batch), whole[expected]):
                    return True
    return False


def test_a_record_s_vector_has_the_same_bits_wherever_in_a_batch_it_is():
    """Poisson batches differ by one record, which shifts the others."""
    assert not moved_by_its_place(PLACES)


@pytest.mark.parametrize("module", [losses, reaper])
def test_products_of_whole_matrices_would_be_caught(monkeypatch, module):
    monkeypatch.setattr(module, "seen_by", lambda rows, directions: rows @ directions.T)
    assert moved_by_its_place(PLACES)


def test_numpy_s_row_products_do_not_depend_on_the_place():
    """What `arrays.seen_by` and `estimators.subspace.losses.residuals` rest on; also of slices."""
    rng = np.random.default_rng(2)
    for dim in (*range(1, 20), 64, 127, 200):
        for rank in range(1, 9):
            x, d = rng.standard_normal((70, dim)), rng.standard_normal((rank, dim))
            a = np.vecdot(x[:, None, :], d)
            e = np.einsum("nr,rd->nd", a, d)
            for n in (1, 2, 3, 7, 16, 33, 69):
                part = slice(1, 1 + n)
                for y in (x[part], np.hstack([x, x])[part, dim:], x[::-1][70 - 1 - n : 69][::-1]):
                    b = np.vecdot(y[:, None, :], d)
                    assert np.array_equal(b, a[part])
                    assert np.array_equal(np.einsum("nr,rd->nd", b, d), e[part])


@pytest.mark.parametrize("statistic", ["absolute", "reaper"])
def test_a_memory_map_counts_as_the_array(tmp_path, statistic):
    case = named(statistic)
    rows = near_the_subspace(case.dim, case.basis.shape[1], 500, np.random.default_rng(1))
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for part in (slice(None), slice(3, 77), slice(1, None, 3)):
        found = total(case.statistic, case.point, mapped[part], 1.0)
        np.testing.assert_array_equal(found, total(case.statistic, case.point, rows[part], 1.0))


def summed_exactly(statistic, point, rows, clip):
    """Σ in long doubles of records' vectors, of which no more is taken from the code than their factors."""
    long = np.longdouble
    if isinstance(statistic, SubspaceDistance):
        along, left, length = losses.residuals(point, rows)
        pull = point.loss.weight(length) * length * lengths(along)
        weight = point.loss.weight(length) * (clip / np.maximum(pull, clip))
        return np.einsum("n,nd,nr->dr", weight.astype(long), left.astype(long), along.astype(long)).ravel()
    if isinstance(statistic, Reaper):
        x, left, length = reaper._residuals(point, rows)
        weight = clip / np.maximum(np.maximum(length, reaper._LEAST_RESIDUAL), clip * length)
        a = np.einsum("n,nd,ne->de", weight.astype(long), left.astype(long), x.astype(long))
        a = (a + a.T) / 2
    else:
        x = on_sphere(rows, point.center).astype(long)
        seen = x if point.basis is None else x @ point.basis.astype(long)
        if isinstance(statistic, Sketch):
            weight = np.minimum(1, clip / np.maximum(np.sqrt((seen * seen).sum(axis=1)), long(1e-300)))
            return np.einsum("n,nd,nk->dk", weight, x, seen).ravel()
        weight = np.minimum(1, clip / np.maximum((seen * seen).sum(axis=1), long(1e-300)))
        a = np.einsum("n,nd,ne->de", weight, seen, seen)
    places = np.triu_indices(len(a))
    return a[places] * np.where(places[0] == places[1], long(1), np.sqrt(long(2)))


@pytest.mark.parametrize("kind", ["one way", "random", "near", "alternating", "extreme"])
@pytest.mark.parametrize(("dim", "rank"), [(2, 1), (24, 3)])
def test_float_sums_of_a_chunk_stay_within_the_stated_bound(kind, dim, rank):
    rng, v = np.random.default_rng(3), frame(dim, rank)
    rows = {
        "one way": np.ones((CHUNK, dim)) * rng.standard_normal(dim),
        "random": rng.standard_normal((CHUNK, dim)),
        "near": near_the_subspace(dim, rank, CHUNK, rng),
        "alternating": np.where(np.arange(CHUNK) % 2, 1e100, -1e-100)[:, None] * rng.standard_normal(dim),
        "extreme": rng.choice(EXTREMES, (CHUNK, dim)) * rng.choice([-1, 1], (CHUNK, dim)),
    }[kind]
    for statistic, point, clip in [
        *(
            (SubspaceDistance(dim, rank), SubspaceQuery(v, loss), clip)
            for loss in LOSSES.values()
            for clip in (1.0, 0.1)
        ),
        (SecondMoment(dim), Frame(), 1.0),
        (SecondMoment(rank), Frame(v, rng.standard_normal(dim)), 0.5),
        (Sketch(dim, rank), Frame(v), 0.4),
        (Reaper(dim), Relaxation(projection(dim, rank)), 1.0),
        (Reaper(rank), Relaxation(0.5 * np.eye(rank), None, v), 1.0),
    ]:
        stated = clipped_sums._chunk_error(clip, statistic.size, 0.0)
        assert stated <= 3e-9 * clip
        error = total(statistic, point, rows, clip) - summed_exactly(statistic, point, rows, clip)
        assert np.sqrt((error * error).sum()) <= stated


@pytest.mark.parametrize(
    "name", ["absolute", "moment", "sketch", "tilt", "objective", "reaper", "reaper-framed"]
)
@pytest.mark.parametrize("dim", [5, 20])
def test_neighbours_differ_at_the_gate_by_at_most_the_certified_sensitivity(name, dim):
    """Chunks, blocks, grid and float sums included; the neighbours are the widest pair of the search."""
    case = named(name, dim)
    n = CHUNK + 105
    one, other = furthest_pair(case)
    release = noisy_sum(
        "gaussian",
        n=n,
        size=case.statistic.size,
        clip=case.clip,
        loss=1.0,
        diameter=case.statistic.diameter(case.clip),
    )
    rows = near_the_subspace(dim, case.basis.shape[1], n, np.random.default_rng(5))

    def exact(place, row):
        data = rows.copy()
        data[place] = row
        gate = Gate(Records(data, threads=1), {"gradient": case.statistic}, [release], ScriptedNoise())
        return gate.mean(case.point) * n

    for place in (0, CHUNK - 1, CHUNK, n - 1):
        moved = lengths(exact(place, one) - exact(place, other))
        # Returned means are divided by n: a rounding of each coordinate that no release depends on.
        assert 0.7 * case.reach * case.statistic.diameter(case.clip) < moved
        assert moved <= release.sensitivity * (1 + 1e-11)


def test_a_statistic_wider_than_its_release_is_refused_by_the_gate():
    case = named("absolute")
    release = noisy_sum("gaussian", n=9, size=case.statistic.size, clip=1.0, loss=1.0, diameter=sqrt(2.0))
    with pytest.raises(ValueError, match="other data"):
        Gate(Records(np.zeros((9, 5))), {"gradient": case.statistic}, [release])


def wide_rows_are_cut(columns):
    sizes = []
    Records(np.zeros((600, columns)), threads=1).sum(lambda c: np.full(1, sizes.append(len(c)) or 0))
    return sizes


def test_wide_rows_fall_into_smaller_chunks_by_their_shape_alone():
    assert wide_rows_are_cut(10) == [600]
    assert wide_rows_are_cut(10_000) == [209, 209, 182]
    assert max(wide_rows_are_cut(400)) <= CHUNK

"""Sums over fixed chunks: exact, complete, and the same whatever the threads."""

import threading

import numpy as np
import pytest

from privest.data.metadata import PointsMetadata
from privest.data.records import CHUNK, Records, Repeated
from testing.server import HANG_GUARD

COUNTS = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7]


@pytest.mark.parametrize("n", COUNTS)
def test_every_row_is_summed_once_in_public_chunks(n):
    rows = np.arange(n, dtype=np.float64)[:, None]
    seen: list[tuple[float, int]] = []

    def of_chunk(chunk):
        seen.append((chunk[0, 0], len(chunk)))
        return chunk.sum(axis=0).astype(np.int64)

    total = Records(rows, threads=3).sum(of_chunk)
    assert np.all(total == n * (n - 1) // 2)
    assert sorted(seen) == [(start, min(CHUNK, n - start)) for start in range(0, n, CHUNK)]


def test_sums_do_not_depend_on_threads():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((5 * CHUNK + 11, 4)) * 1e15
    sums = [
        Records(rows, threads=t).sum(lambda c: np.rint(c).sum(axis=0).astype(np.int64)) for t in (1, 2, 7)
    ]
    assert all((s == sums[0]).all() for s in sums)


def test_chunks_of_a_sample_are_summed_side_by_side():
    both = threading.Barrier(2)

    def of_pieces(pieces):
        both.wait(HANG_GUARD)
        return np.rint(np.concatenate(list(pieces)).sum(axis=0)).astype(np.int64)

    rows = np.arange(3.0 * CHUNK)[:, None]
    chosen = np.random.default_rng(5).permutation(len(rows))[: 2 * CHUNK]
    assert Records(rows, threads=2).sum_of(chosen, of_pieces) == chosen.sum()


def test_an_error_in_a_thread_is_not_swallowed():
    def broken(chunk):
        raise RuntimeError("no sum")

    with pytest.raises(RuntimeError, match="no sum"):
        Records(np.zeros((3 * CHUNK, 1)), threads=2).sum(broken)


def test_a_public_shape_knows_its_ball():
    shape = PointsMetadata(5, {"name": "sphere", "dim": 3})
    assert shape.search_radius == pytest.approx(np.pi)
    np.testing.assert_array_equal(shape.search_center, shape.space.reference)
    named = PointsMetadata(5, {"name": "sphere", "dim": 3}, center=[0.0, 0.6, 0.8], radius=0.5)
    assert named.search_radius == 0.5
    np.testing.assert_allclose(named.search_center, [0.0, 0.6, 0.8], rtol=1e-15)


@pytest.mark.parametrize("count", [1, CHUNK, CHUNK + 1, 2 * CHUNK + 9])
def test_chosen_rows_are_summed_once_at_most_a_chunk_at_a_time(count, tmp_path):
    rows = np.arange(3.0 * CHUNK)[:, None]
    np.save(tmp_path / "rows.npy", rows)
    chosen = np.random.default_rng(4).permutation(len(rows))[:count]
    for data in (rows, np.load(tmp_path / "rows.npy", mmap_mode="r")):
        sizes: list[int] = []

        def of_pieces(pieces, sizes=sizes):
            chunk = np.concatenate(list(pieces))
            sizes.append(len(chunk))
            return chunk.sum(axis=0).astype(np.int64)

        assert Records(data).sum_of(chosen, of_pieces) == chosen.sum()
        assert max(sizes) <= CHUNK
        assert sum(sizes) == count


def test_wide_rows_are_taken_a_few_at_a_time():
    """Only two of a chunk's 4,096 rows of 8 MB each are in memory at once."""
    rows, sizes = Repeated(np.ones((1, 1000, 1000)), CHUNK), []

    def of_pieces(pieces):
        return sum(
            (sizes.append(len(piece)) or piece[:, 0, :1].sum(axis=0).astype(np.int64)) for piece in pieces
        )

    assert Records(rows).sum_of(np.arange(100), of_pieces) == 100
    assert max(sizes) == 2


def test_any_number_of_datasets_share_the_threads():
    """The stacks of more would count as memory that a worker may take."""
    before = threading.active_count()
    many = [Records(np.ones((3 * CHUNK, 2)), threads=5) for _ in range(40)]
    assert [rows.sum(lambda chunk: chunk.sum(axis=0).astype(np.int64))[0] for rows in many] == [
        3 * CHUNK
    ] * 40
    assert threading.active_count() - before <= 5

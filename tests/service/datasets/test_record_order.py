"""Records that decide the places of others: replaced, they move a sum by no more than is certified."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from pydantic import SecretStr

from privest import manifolds
from privest.arrays import Array
from privest.data.records import CHUNK, Records
from privest.estimators.frechet_mean.losses import SquaredDistance
from privest.privacy import clipped_sums
from privest.privacy.gate import ChunkSum
from privest.privacy.noise import SystemNoise
from privest_service.connections.schemas import NewDatabase
from privest_service.connections.sources import fetch
from privest_service.datasets import ingest as ingest_module
from privest_service.datasets.ingest import ingest
from privest_service.datasets.schemas import SCHEMA
from testing.server import csv_of

LINE = manifolds.get("euclidean", dim=1)
CHUNKS = 20
CLIP, SPACING = 1.0, 2.0**-10
CERTIFIED = clipped_sums.sensitivity(2 * CLIP, CLIP, 1, SPACING)
Order = Callable[[int], "np.ndarray"]
World = Callable[[Path, bool, Order], Array]


def values() -> Array:
    """Records in the order of their keys: one place on, and every chunk's sum is rounded the other way.

    The last of a chunk is δ less than that of the chunk before, and the first makes the chunk's sum just less
    than what is rounded up. The very last one is replaced.
    """
    delta = SPACING / 4
    rows = np.zeros((CHUNKS, CHUNK))
    rows[:, -1] = -delta * np.arange(CHUNKS)
    rows[:, 0] = SPACING / 2 - delta / 2 - rows[:, -1]
    rows[-1, -1] = -CLIP
    return rows.ravel()


def table(values: Array, *, replaced: bool) -> list[tuple[int, float]]:
    """(key, value) of records; the last one's are others in the neighbouring world."""
    rows = [(key + 1, float(value)) for key, value in enumerate(values)]
    if replaced:
        rows[-1] = (0, CLIP)
    return rows


def of_a_database(directory: Path, replaced: bool, order: Order) -> Array:
    """Records as a database gives them, in the order of its primary key."""
    path, copied, stored = (directory / f"{replaced}.{end}" for end in ("db", "arrow", "npy"))
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, x REAL)")
        database.executemany("INSERT INTO rows VALUES (?, ?)", table(values(), replaced=replaced))
    database.close()
    copied.touch()
    source = NewDatabase.model_construct(name="a", url=SecretStr(f"sqlite:///{path}"))
    assert fetch(source, "rows", str(copied), 2**30, str(directory)) == "arrow"
    # The key is a number of the record too, as of any table; here it does not count.
    intake = SCHEMA.validate_python({"kind": "vectors", "dim": 2}).intake()
    # Every other record keeps the place that it has in the first world.
    moved = (lambda n: (order(n) + 1) % n) if replaced else order
    with patch.object(ingest_module, "_random_order", moved):
        ingest(str(copied), "arrow", intake, str(stored), 2**30, ordered=False)
    return np.load(stored)[:, 1:]


def _named(rows: Array) -> bytes:
    """A csv file of units and their numbers."""
    return b"who,x\n" + csv_of(rows).partition(b"\n")[2]


def of_units(directory: Path, replaced: bool, order: Order) -> Array:
    """Records that are units of one row each, in one order in the file, whatever their names."""
    file, stored = directory / f"{replaced}.csv", directory / f"{replaced}.npy"
    rows = table(values(), replaced=replaced)
    file.write_bytes(_named(np.array(rows)))
    schema = {"kind": "vectors", "dim": 1, "unit": {"column": "who", "rows": 1}}
    # Ranks of units as they came: in both worlds the same.
    with patch.object(ingest_module, "_random_order", order):
        ingest(str(file), "csv", SCHEMA.validate_python(schema).intake(), str(stored), 2**30)
    return np.load(stored)[:, 0]


def moved(directory: Path, world: World, *orders: Order) -> float:
    """Change of the integer sum by the replaced record, in units of the values."""
    sums = [
        Records(world(directory, replaced, order)).sum(
            ChunkSum(SquaredDistance(LINE), LINE.reference, CLIP, SPACING, False)
        )
        for replaced, order in zip((False, True), orders, strict=True)
    ]
    return float(np.linalg.norm(sums[1] - sums[0])) * SPACING


@pytest.mark.parametrize("world", [of_a_database, of_units])
def test_a_record_that_sorts_first_moves_a_sum_by_no_more_than_is_certified(
    tmp_path: Path, world: World
) -> None:
    """Every order of the one world stands for an equally likely one of the other, a record apart."""
    drawn = np.random.default_rng(0).permutation(CHUNKS * CHUNK)
    assert moved(tmp_path, world, lambda _: drawn, lambda _: drawn) <= CERTIFIED


def test_in_the_order_of_keys_it_would(tmp_path: Path) -> None:
    """Without this, the test above would show nothing."""
    ends = [np.arange, lambda n: np.roll(np.arange(n), 1)]
    assert moved(tmp_path, of_units, *ends) > CERTIFIED + (CHUNKS - 4) * SPACING / 2


@pytest.mark.system_noise
@pytest.mark.parametrize("unit", [True, False])
def test_the_order_is_drawn_by_the_generator_of_noise(tmp_path: Path, unit: bool) -> None:
    """A new one for each upload; every record is there, and the digest is of the file's order."""
    source, target = tmp_path / "rows.csv", tmp_path / "rows.npy"
    source.write_bytes(_named(np.array([(at, at) for at in range(500)])))
    schema = {"kind": "vectors", "dim": 1, "unit": {"column": "who", "rows": 1}}
    intake = SCHEMA.validate_python(schema if unit else {"kind": "vectors", "dim": 2}).intake()
    drawn, orders = SystemNoise.permutation, list[list[float]]()
    with patch.object(SystemNoise, "permutation", autospec=True, side_effect=drawn) as asked:
        digests = set[str]()
        for _ in range(2):
            digests.add(ingest(str(source), "csv", intake, str(target), 2**20, ordered=False).digest)
            orders.append(np.load(target).reshape(500, -1)[:, -1].tolist())
            target.unlink()
    assert [call.args[1] for call in asked.call_args_list] == [500, 500]
    assert orders[0] != orders[1]
    assert [sorted(order) for order in orders] == [list(range(500))] * 2
    assert len(digests) == 1
    assert ingest(str(source), "csv", intake, str(target), 2**20).n == 500
    in_order = np.load(target).reshape(500, -1)[:, -1].tolist() == list(range(500))
    assert in_order is not unit  # a file's own order stays

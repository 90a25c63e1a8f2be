"""Questions on synthetic rows, which are free, and on rows that come with the question, which are not."""

import io
import json
import os
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sqlalchemy import func, select

from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.datasets.schemas import SCHEMA
from privest_service.jobs.models import Job
from privest_service.ledger.models import Account
from testing.server import SPD3, Caller, Server, csv_of, npy, problem, spd, until

pytestmark = pytest.mark.either

LABELLED: dict[str, Any] = {
    "kind": "labelled",
    "features": ["age", "sex"],
    "label": "ill",
    "classes": ["no", "yes"],
    "categories": {"sex": ["f", "m"]},
    "mean": [50, None],
    "scale": [20, None],
}
VECTORS = {"kind": "vectors", "dim": 4}


def table(n: int = 200) -> bytes:
    rng = np.random.default_rng(0)
    lines = [f"{rng.integers(20, 80)},{'fm'[i % 2]},{['no', 'yes'][i % 2]}" for i in range(n)]
    return "\n".join(["age,sex,ill", *lines]).encode()


# Dummies


@pytest.mark.parametrize("kind", ["frechet-mean", "robust-pca", "logistic-regression"])
def test_a_dummy_answers_like_the_dataset_and_costs_nothing(server: Server, kind: str) -> None:
    owner, analyst = server.owner(), server.analyst()
    if kind == "frechet-mean":
        dataset, options = owner.dataset(), {}
    elif kind == "robust-pca":
        rows = np.random.default_rng(0).standard_normal((300, 4))
        dataset, options = owner.dataset(rows, VECTORS), {"rank": 2}
    else:
        dataset, options = owner.upload(table(), LABELLED, "ill.csv").json()["id"], {}
    owner.grant(dataset, analyst)
    before = owner.budget(), owner.ledger()
    answer = analyst.post(
        f"/v1/estimates/{kind}",
        headers={"Idempotency-Key": "d", "Prefer": "wait=240"},
        json={"dataset": {"id": dataset, "dummy": True}, "privacy": {"epsilon": 90.0}} | options,
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["dummy"] is True
    assert body["state"] == "committed"
    assert body["charges"] == []
    assert body["receipt"] is None
    assert problem(analyst.get(f"/v1/jobs/{body['id']}/receipt"), 404, "not-found")
    assert (owner.budget(), owner.ledger()) == before
    real = owner.estimate(dataset, kind=kind, epsilon=0.5, **options).json()
    assert real["dummy"] is False
    assert {name: np.shape(value) for name, value in real["estimate"].items()} == {
        name: np.shape(value) for name, value in body["estimate"].items()
    }


WIDE: dict[str, dict[str, Any]] = {
    "vectors": {"kind": "vectors", "dim": 100_000},
    "partial vectors": {"kind": "partial-vectors", "dim": 100_000},
    **{
        name: {"kind": "points", "manifold": {"name": name, "dim": 10_000}}
        for name in ("euclidean", "sphere", "poincare-ball", "lorentz")
    },
    **{
        name: {"kind": "points", "manifold": {"name": name, "dim": 10_000, "rank": 10}}
        for name in ("stiefel", "grassmann", "oblique")
    },
}
"""Schemas as wide as a dummy may have, or nearly."""


@pytest.mark.few(3)
@pytest.mark.parametrize("what", WIDE)
def test_a_dummy_takes_memory_by_its_own_numbers(what: str) -> None:
    """It does not take the square of a record's numbers: spheres in 10,000 dimensions took 1.6 GB."""
    schema = SCHEMA.validate_python(WIDE[what])
    tracemalloc.start()
    try:
        rows = np.array(datasets.dummy_rows(schema.shape(2)), dtype=np.float64)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
    assert 2 <= len(rows) <= 20
    assert rows.size <= 200_000


@pytest.mark.parametrize("rank", [11, 100])
def test_records_that_are_too_wide_are_not_made_up(server: Server, rank: int) -> None:
    owner, n = server.owner(), 2
    frames = {"kind": "points", "manifold": {"name": "stiefel", "dim": 10_000, "rank": rank}}
    points = np.broadcast_to(np.eye(10_000, rank), (n, 10_000, rank))
    dataset = owner.dataset(points, frames)
    refused = problem(owner.get(f"/v1/datasets/{dataset}/dummy"), 422, "invalid")
    assert "too wide to be shown: the most is 100000" in refused["detail"]


def test_no_row_moves_a_dummy(server: Server) -> None:
    """Two datasets with one schema and other rows: the same synthetic records, and answers of one law.

    At ε = 1e6 the noise is below 1e-4, and the answers are those of the same rows.
    """
    owner = server.owner()
    found = []
    for seed in (1, 2):
        dataset = owner.dataset(spd(500, seed=seed) * seed)
        ask = {"dataset": {"id": dataset, "dummy": True}, "privacy": {"epsilon": 1e6, "delta": 0.5}}
        answer = owner.post(
            "/v1/estimates/frechet-mean",
            headers={"Idempotency-Key": f"d{seed}", "Prefer": "wait=240"},
            json=ask,
        )
        found.append((answer.json()["estimate"]["point"], owner.get(f"/v1/datasets/{dataset}/dummy").json()))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-2)
    assert found[0][1] == found[1][1]
    assert owner.budget()["queries"] == 0


def test_a_dummy_never_opens_the_rows(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    (server.data_dir / "rows" / owner.id / f"{dataset}.npy").unlink()
    asked = {"dataset": {"id": dataset, "dummy": True}, "privacy": {"epsilon": 1.0}}
    headers = {"Idempotency-Key": "d", "Prefer": "wait=240"}
    assert (
        owner.post("/v1/estimates/frechet-mean", headers=headers, json=asked).json()["state"] == "committed"
    )
    assert owner.estimate(dataset).json()["state"] == "failed"


def test_dummies_and_answers_are_never_mistaken_for_each_other(server: Server) -> None:
    """One question is asked of a dataset's rows and of its dummies: two jobs, and a key is of one of them."""
    owner = server.owner()
    dataset = owner.dataset()
    ask = {"dataset": {"id": dataset, "dummy": True}, "privacy": {"epsilon": 0.1}}

    def dummy(key: str) -> Any:
        headers = {"Idempotency-Key": key, "Prefer": "wait=240"}
        return owner.post("/v1/estimates/frechet-mean", headers=headers, json=ask)

    first, real, again = dummy("a").json(), owner.estimate(dataset, key="b").json(), dummy("c").json()
    assert first["id"] == again["id"] != real["id"]
    assert again["reused"]
    assert not real["reused"]
    problem(dummy("b"), 422, "idempotency-key-reused")
    assert owner.budget()["queries"] == 1


def test_a_dummy_needs_access(server: Server) -> None:
    dataset = server.owner().dataset()
    ask = {"dataset": {"id": dataset, "dummy": True}, "privacy": {"epsilon": 0.1}}
    for caller in (server.owner(), server.analyst()):
        answer = caller.post("/v1/estimates/frechet-mean", headers={"Idempotency-Key": "x"}, json=ask)
        problem(answer, 404, "not-found")


# Inline rows


def inline(
    owner: Caller,
    rows: Any,
    schema: Any,
    key: str = "i",
    kind: str = "frechet-mean",
    told: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    ask = {
        "dataset": {"inline": {"schema": schema, "rows": rows} | (told or {})},
        "privacy": {"epsilon": 0.5, "delta": 1e-6},
    } | more
    headers = {"Idempotency-Key": key, "Prefer": "wait=240", "Content-Type": "application/json"}
    return owner.post(f"/v1/estimates/{kind}", headers=headers, content=json.dumps(ask))


def files_of(owner: Caller) -> list[str]:
    folder = owner.server.data_dir / "rows" / owner.id
    left = [file.name for file in folder.iterdir()] if folder.exists() else []
    incoming = [file.name for file in (owner.server.data_dir / "incoming").iterdir()]
    return left + [name for name in incoming if name.startswith("ds_")]


def test_inline_rows_are_charged_and_gone_with_their_answer(server: Server) -> None:
    owner = server.owner(epsilon=5)
    rows = spd(60).tolist()
    answer = inline(owner, rows, SPD3)
    assert answer.status_code == 200, answer.text
    assert answer.json()["state"] == "committed"
    assert answer.json()["receipt"]
    assert owner.budget()["queries"] == 1
    assert owner.get("/v1/datasets").json()["datasets"] == []
    until(lambda: not files_of(owner))
    problem(owner.get(f"/v1/datasets/{answer.json()['receipt']['statement']['dataset']}"), 404, "not-found")
    assert inline(owner, rows, SPD3).json() == answer.json()  # the same key and body, for ever
    problem(inline(owner, rows[1:], SPD3), 422, "idempotency-key-reused")
    assert owner.budget()["queries"] == 1
    assert inline(owner, rows, SPD3, key="j").json()["id"] != answer.json()["id"]
    assert owner.budget()["queries"] == 2


def test_inline_tables_are_read_as_json_files_are(server: Server) -> None:
    owner = server.owner(epsilon=5)
    rows = [{"age": 20 + i, "sex": "fm"[i % 2], "ill": ["no", "yes"][i % 2]} for i in range(40)]
    for key, given in (("a", rows), ("b", [list(row.values()) for row in rows])):
        answer = inline(owner, given, LABELLED, key, "logistic-regression")
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["estimate"]["coefficients"]) == 3


def test_a_plan_for_inline_rows_costs_what_the_estimate_does(server: Server) -> None:
    owner = server.owner(epsilon=50, delta=0.1)
    unit = SPD3 | {"unit": {"column": "who", "rows": 2}}
    named = [{"who": i % 20, **{str(j): v for j, v in enumerate(m.ravel())}} for i, m in enumerate(spd(60))]
    for key, schema, rows, n in (("a", SPD3, spd(60).tolist(), 60), ("b", unit, named, 20)):
        ask = {"dataset": {"inline": {"schema": schema, "rows": rows}}, "privacy": {"epsilon": 0.5}}
        plan = owner.post("/v1/estimates/frechet-mean/plan", json=ask).json()
        assert plan["privacy"]["delta"] == pytest.approx(n**-1.5, rel=1e-12, abs=0)
        assert plan["privacy"]["delta"] <= n**-1.5
        assert inline(owner, rows, schema, key, **ask).json()["privacy"] == plan["privacy"]


@pytest.mark.parametrize(
    ("rows", "slug"),
    [
        ([[1, 2], [3]], "dataset-invalid"),
        ([[1, 2], [3, "x"]], "dataset-invalid"),
        ([[1, 2], [3, float("nan")]], "dataset-invalid"),
        ([[1, 2], [3, 10**400]], "dataset-invalid"),
        ([[1, 2]], "invalid"),
        ("rows", "invalid"),
        ({"a": 1}, "invalid"),
    ],
)
def test_bad_inline_rows_leave_nothing(server: Server, rows: Any, slug: str) -> None:
    owner = server.owner(epsilon=5)
    schema = {"kind": "points", "manifold": {"name": "euclidean", "dim": 2}}
    problem(inline(owner, rows, schema), 422, slug)
    assert not files_of(owner)
    assert owner.budget()["queries"] == 0
    assert inline(owner, [[1, 2], [3, 4]], schema).status_code == 200  # the key is free


def test_refused_inline_rows_are_not_kept(server: Server) -> None:
    owner = server.owner(epsilon=0.1)
    problem(inline(owner, spd(60).tolist(), SPD3), 409, "budget-exceeded")
    problem(inline(owner, spd(60).tolist(), SPD3, kind="robust-pca", rank=1), 422, "invalid")
    assert not files_of(owner)
    problem(inline(server.analyst(), spd(60).tolist(), SPD3), 403, "forbidden")


def traces(server: Server, owner: Caller) -> dict[str, int]:
    """How much the database knows of an owner."""
    database = Database(server.database_url)
    with database.read() as session:
        found = {
            table.__tablename__: session.scalar(
                select(func.count()).select_from(table).where(table.owner_id == owner.id)
            )
            for table in (Dataset, Account, Job)
        }
    database.close()
    return found


def test_inline_rows_that_are_refused_leave_no_trace(server: Server) -> None:
    owner = server.owner(epsilon=0.1)
    before = traces(server, owner)
    rows = spd(60).tolist()
    problem(inline(owner, rows, SPD3), 409, "budget-exceeded")
    problem(inline(owner, rows, SPD3, kind="robust-pca", rank=1), 422, "invalid")
    problem(inline(owner, rows, SPD3, steps=10**6), 422, "invalid")
    problem(inline(owner, [*rows[1:], [[1]]], SPD3, privacy={"epsilon": 0.01}), 422, "dataset-invalid")
    assert traces(server, owner) == before
    assert not files_of(owner)


def test_units_of_inline_rows_are_counted_as_they_are_read(server: Server) -> None:
    """1 and 1.0 are one unit of JSON numbers, and one unit alone is no dataset."""
    owner = server.owner(epsilon=5)
    line = {"kind": "points", "manifold": {"name": "euclidean", "dim": 1}, "radius": 1}
    schema = line | {"unit": {"column": "who", "rows": 2}}
    rows: list[dict[str, Any]] = [{"who": who, "x": 0.5} for who in (1, 1.0, 2, " 2")]
    ask = {"dataset": {"inline": {"schema": schema, "rows": rows}}, "privacy": {"epsilon": 0.5}}
    plan = owner.post("/v1/estimates/frechet-mean/plan", json=ask).json()
    assert plan["privacy"]["delta"] == 2**-1.5
    for few in (rows[:2], [{"who": who, "x": 0.5} for who in ([], {}, None, True)]):
        ask["dataset"]["inline"]["rows"] = few
        problem(owner.post("/v1/estimates/frechet-mean/plan", json=ask), 422, "invalid")


@pytest.mark.parametrize("backend", ["sqlite"])
def test_all_rows_of_an_owner_have_room_together(
    start_server: Callable[..., Server],
) -> None:
    server = start_server(max_owner_bytes=10_000)
    owner, other = server.owner(), server.owner()
    first = owner.dataset(np.ones((300, 3)), {"kind": "vectors", "dim": 3})
    more = npy(np.ones((200, 3)))
    schema = {"kind": "vectors", "dim": 3}
    problem(owner.upload(more, schema), 413, "too-large")
    assert other.upload(more, schema).status_code == 201
    owner.delete(f"/v1/datasets/{first}")
    assert owner.upload(more, schema).status_code == 201


@pytest.mark.parametrize("backend", ["postgresql"])
def test_rows_that_a_killed_service_left_are_deleted_at_the_next_start(
    start_server: Callable[..., Server],
) -> None:
    server = start_server()
    owner = server.owner()
    kept = owner.dataset()
    folder = server.data_dir / "rows" / owner.id
    old, young = folder / "ds_gone.npy", folder / "ds_coming.npy"
    for left in (old, young):
        left.write_bytes(b"rows")
    for path in (old, folder / f"{kept}.npy"):
        os.utime(path, (0, 0))
    server.stop()
    start_server()
    assert {path.name for path in folder.iterdir()} == {f"{kept}.npy", "ds_coming.npy"}


def test_rows_brought_along_share_the_cap_of_the_dataset_that_they_are_said_to_be(server: Server) -> None:
    owner = server.owner(epsilon=5)
    rows = spd(60)
    dataset = owner.dataset(rows)
    assert owner.put(f"/v1/datasets/{dataset}/cap", json={"epsilon": 0.6, "delta": 1e-5}).status_code == 200
    told: dict[str, Any] = {"rows_of": dataset}
    assert inline(owner, rows.tolist(), SPD3, told=told).status_code == 200
    refused = problem(inline(owner, rows.tolist(), SPD3, key="j", told=told), 409, "budget-exceeded")
    assert refused["scope"] == "dataset"
    assert inline(owner, rows.tolist(), SPD3, key="k").status_code == 200  # equal rows alone join nothing


# Units and raw records, from upload to answer


def test_a_person_with_many_rows_counts_once(server: Server) -> None:
    """One of forty has a thousand rows far away, and moves the mean by no more than any other could."""
    owner = server.owner(epsilon=1e6, delta=0.1)
    schema = {
        "kind": "points",
        "manifold": {"name": "euclidean", "dim": 1},
        "radius": 10,
        "unit": {"column": "who", "rows": 4},
    }
    lines = [f"p{i},{0.1 * (i % 2)}" for i in range(39)] + ["rich,9.0"] * 1000
    answer = owner.upload("\n".join(["who,x", *lines]).encode(), schema, "x.csv").json()
    assert answer["n"] == 40
    assert answer["shape"] == [40, 1]
    ask = {"clip": 20.0, "delta": 1e-3}
    point = owner.estimate(answer["id"], epsilon=1e5, **ask).json()["estimate"]["point"][0]
    assert point == pytest.approx((9.0 + 0.1 * 19) / 40, abs=1e-2)


def test_raw_images_become_descriptors(server: Server) -> None:
    owner = server.owner(epsilon=5)
    images = np.random.default_rng(0).integers(0, 17, (80, 8, 8))
    raw = {"transform": "covariance-descriptor", "height": 8, "width": 8, "largest": 16}
    schema = {"kind": "points", "manifold": {"name": "spd", "dim": 8}, "raw": raw}
    dataset = owner.upload(csv_of(images), schema, "images.csv").json()
    assert dataset["shape"] == [80, 8, 8]
    assert np.shape(owner.estimate(dataset["id"], epsilon=0.5).json()["estimate"]["point"]) == (8, 8)
    wrong = schema | {"manifold": {"name": "spd", "dim": 9}}
    problem(owner.upload(csv_of(images), wrong, "images.csv"), 422, "invalid")


def test_raw_windows_of_a_series_become_covariances(server: Server) -> None:
    """A parquet column of nested lists has the windows: each is a record, or each person's together.

    The variances are a factor of 4 apart, 1.4 in the logarithm; the noise is below 0.03 (expected error).
    """
    owner = server.owner(epsilon=1000)
    windows = np.random.default_rng(0).standard_normal((90, 16, 3)) * [1.0, 2.0, 0.5]
    raw = {"transform": "window-covariance", "length": 16, "channels": 3}
    schema: dict[str, Any] = {"kind": "points", "manifold": {"name": "spd", "dim": 3}, "raw": raw}
    table = pa.table({"who": [i % 30 for i in range(90)], "window": windows.tolist()})
    file = io.BytesIO()
    parquet.write_table(table.select(["window"]), file)
    alone = owner.upload(file.getvalue(), schema, "windows.parquet").json()
    assert alone["shape"] == [90, 3, 3]
    file = io.BytesIO()
    parquet.write_table(table, file)
    schema["unit"] = {"column": "who", "rows": 3}
    grouped = owner.upload(file.getvalue(), schema, "windows.parquet").json()
    assert grouped["shape"] == [30, 3, 3]
    for dataset in (alone, grouped):
        ask: dict[str, Any] = {"epsilon": 300.0, "delta": 1e-6}
        assert owner.plan(dataset["id"], **ask).json()["expected_error"]["standard_deviation"] < 0.03
        point = np.array(owner.estimate(dataset["id"], **ask).json()["estimate"]["point"])
        assert point[1, 1] > point[0, 0] > point[2, 2] > 0

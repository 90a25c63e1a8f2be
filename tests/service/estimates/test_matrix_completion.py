"""Rows with unknown entries: the same from every format, and matrix completion over HTTP."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from privest.manifolds.stiefel_grassmann import Grassmann
from privest_service.datasets import ingest as ingest_module
from privest_service.datasets.schemas import SCHEMA
from privest_service.datasets.service import dummy_rows
from privest_service.formats import Format
from privest_service.ledger.receipts import Receipt, signed_by
from testing.server import Caller, Server, csv_of, npy, problem
from testing.uploads import FORMATS, TABLES, arrow_file, refused, rows_as, table_as, taken


@pytest.fixture
def backend() -> str:
    """One database will do, as it plays no part here."""
    return "sqlite"


GAPS = {"kind": "partial-vectors", "dim": 3}
VECTORS = {"kind": "vectors", "dim": 3}
ROWS = np.random.default_rng(0).standard_normal((50, 3))
ROWS[np.random.default_rng(1).random(ROWS.shape) < 0.4] = np.nan
ROWS[7] = np.nan

ASK = {"kind": "matrix-completion", "rank": 2, "epsilon": 2.0, "delta": 1e-6}

only_on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests in which no database plays a part."""


def gaps_as(rows: np.ndarray, form: Format) -> bytes:
    """Rows as people would write them: empty cells, nulls, and NaN where there is nothing else."""
    cells = np.where(np.isnan(rows), np.array(None), rows)
    if form in ("npy", "npz"):
        return rows_as(rows, form)
    if form == "json":
        return json.dumps(cells.tolist()).encode()
    return table_as(pa.table({f"c{at}": pa.array(cells[:, at], pa.float64()) for at in range(3)}), form)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_records_and_unknown_entries(tmp_path: Path, form: Format) -> None:
    mark, found = taken(tmp_path, gaps_as(ROWS, form), form, GAPS)
    np.testing.assert_array_equal(found, ROWS)
    assert mark == taken(tmp_path, npy(ROWS), "npy", GAPS)[0]
    if form != "npz":  # of which a member may lie about until its reader is collected
        assert refused(tmp_path, gaps_as(ROWS, form), form, VECTORS)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_columns_hold_nulls_nan_texts_integers_and_nothing(tmp_path: Path, form: Format) -> None:
    columns = [
        pa.array([1.0, float("nan"), None]),
        pa.array([4, None, 6], pa.int32()),
        pa.nulls(3),
        pa.array(["7.5", "", None]),
        pa.array([True, None, False]),
    ]
    table = pa.table({f"c{at}": column for at, column in enumerate(columns)})
    nan = np.nan
    expected = [[1, 4, nan, 7.5, 1], [nan, nan, nan, nan, nan], [nan, 6, nan, nan, 0]]
    content = table_as(table, form)
    np.testing.assert_array_equal(taken(tmp_path, content, form, GAPS | {"dim": 5})[1], expected)
    lists = pa.table({"row": pa.array([[1, None, 3], [None] * 3], pa.list_(pa.float64()))})
    expected = [[1, nan, 3], [nan] * 3]
    np.testing.assert_array_equal(taken(tmp_path, table_as(lists, form), form, GAPS)[1], expected)
    fixed = pa.table({"row": pa.array([[1, None, 3], [None] * 3], pa.list_(pa.float64(), 3))})
    np.testing.assert_array_equal(taken(tmp_path, arrow_file(fixed), "arrow", GAPS)[1], expected)


def test_empty_cells_of_csv_are_unknown_whatever_else_a_line_holds(tmp_path: Path) -> None:
    plain = b"a,b,c\n1,,3\n,,\n4, ,0.5\n,nan,+6\n"  # what Arrow does not take for numbers is read as texts
    nan = np.nan
    expected = [[1, nan, 3], [nan] * 3, [4, nan, 0.5], [nan, nan, 6]]
    np.testing.assert_array_equal(taken(tmp_path, plain, "csv", GAPS)[1], expected)
    np.testing.assert_array_equal(
        taken(tmp_path, b",2,\n1,,\n", "csv", GAPS, header=False)[1], [[nan, 2, nan], [1, nan, nan]]
    )


@patch.object(ingest_module, "_random_order", np.arange)
def test_objects_by_column_and_units_have_gaps_too(tmp_path: Path) -> None:
    schema = GAPS | {"unit": {"column": "who", "rows": 2}}
    rows = [{"a": i, "who": "pq"[i % 2], "b": None, "c": 1.5 if i else None} for i in range(4)]
    mark, found = taken(tmp_path, json.dumps(rows).encode(), "json", schema)
    nan = np.nan
    expected = [[[0, nan, nan], [2, nan, 1.5]], [[1, nan, 1.5], [3, nan, 1.5]]]
    np.testing.assert_array_equal(found, expected)
    lines = b"a,who,b,c\n0,p,,\n1,q,,1.5\n2,p,,1.5\n3,q,,1.5\n"
    assert taken(tmp_path, lines, "csv", schema)[0] == mark


BITS = (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF)


@pytest.mark.parametrize("unit", [None, {"column": "who", "rows": 1}])
@patch.object(ingest_module, "_random_order", np.arange)
def test_fingerprints_and_stored_bits_know_one_nan(tmp_path: Path, unit: dict[str, Any] | None) -> None:
    schema, seen = GAPS | {"unit": unit}, set[tuple[str, bytes]]()
    for bits in BITS:
        rows = np.ones((4, 3))
        rows[1, 2] = rows[3, 0] = np.uint64(bits).view(np.float64)
        columns = {f"c{at}": rows[:, at] for at in range(3)} | ({"who": [*"abcd"]} if unit else {})
        mark, found = taken(tmp_path, arrow_file(pa.table(columns)), "arrow", schema)
        seen.add((mark, found.tobytes()))
    assert len(seen) == 1


INFINITE = np.where(np.arange(3) == 1, -np.inf, ROWS[:5])
INFINITE[:4, 1] = np.nan

BAD: dict[str, tuple[bytes, Format, tuple[int | None, str | None, str]]] = {
    "infinite": (npy(INFINITE), "npy", (4, "[1]", "finite")),
    "infinite in csv": (b"1,1,1\n" * 9 + b",inf,\n", "csv", (9, "[1]", "finite")),
    "a word": (b"1,2,3\n1,,MARKER\n", "csv", (1, "[2]", "number")),
    "a word with texts": (b"1,+2,\n1,,MARKER\n", "csv", (1, "[2]", "number")),
    "a column too few": (b"1,2,3\n,\n", "csv", (1, None, "columns")),
    "a word in JSON": (b'[[1, null, 3], [1, "MARKER", 3]]', "json", (1, None, "numbers")),
    "a list in JSON": (b"[[1, null, 3], [1, [2], 3]]", "json", (1, None, "numbers")),
    "NaN in JSON": (b"[[1, null, 3], [1, NaN, 3]]", "json", (None, None, "JSON")),
    "null in place of a row": (b"[[1, null, 3], null]", "json", (1, None, "lists")),
    "truth in an object": (
        b'[{"a": 1, "b": null, "c": 3}, {"a": 1, "b": true, "c": 3}]',
        "json",
        (1, "b", "null"),
    ),
    "a list in an object": (
        b'[{"a": 1, "b": null, "c": 3}, {"a": [], "b": 1, "c": 3}]',
        "json",
        (1, "a", "null"),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_number_is_named_by_record_field_and_rule(tmp_path: Path, name: str) -> None:
    content, form, (record, field, word) = BAD[name]
    # Of JSON objects columns have names only where there is a unit.
    unit = {"column": "who", "rows": 1} if b'"a"' in content else None
    if unit:
        content = content.replace(b'{"a"', b'{"who": 1, "a"')
    (fault,) = refused(tmp_path, content, form, GAPS | {"unit": unit}, header=False)
    assert fault[:2] == (record, field)
    assert word in fault[2]
    assert "MARKER" not in str(fault)


@pytest.mark.parametrize("form", TABLES)
def test_nan_stays_refused_of_every_other_kind(tmp_path: Path, form: Format) -> None:
    labelled = {"kind": "labelled", "features": ["c0", "c1"], "label": "c2", "classes": ["0", "1"]}
    rows = np.zeros((5, 3))
    rows[3, 1] = np.nan
    content = gaps_as(rows, form)
    if form != "json":  # whose records without names are refused as a whole
        assert refused(tmp_path, content, form, labelled)[0][:2] == (3, "c1")
    sphere = {"kind": "points", "manifold": {"name": "euclidean", "dim": 3}}
    assert refused(tmp_path, content, form, sphere)[0][0] == 3


@pytest.mark.parametrize(
    "change", [{"known": 0}, {"known": 1.1}, {"known": "0.5"}, {"dim": 1}, {"norm_bound": 1.0}]
)
def test_schemas_that_declare_nothing_possible_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="partial-vectors"):
        SCHEMA.validate_python(GAPS | change)


# Over HTTP


def planted(n: int = 4000, dim: int = 20, known: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the span of two directions, of all lengths, with gaps."""
    rng = np.random.default_rng(7)
    truth = np.linalg.qr(rng.standard_normal((dim, 2)))[0]
    rows = rng.standard_normal((n, 2)) @ truth.T * rng.uniform(0.1, 10.0, (n, 1))
    return np.where(rng.random((n, dim)) < known, rows, np.nan), truth


def csv_with_gaps(rows: np.ndarray) -> bytes:
    return csv_of(rows).replace(b"nan", b"")


def test_from_an_upload_with_gaps_to_the_bill(server: Server) -> None:
    owner, analyst = server.owner(epsilon=10.0), server.analyst()
    rows, truth = planted()
    schema = {"kind": "partial-vectors", "dim": 20, "known": 0.5}
    uploaded = owner.upload(csv_with_gaps(rows), schema, "rows.csv")
    assert uploaded.status_code == 201, uploaded.text
    told = uploaded.json()
    assert (told["kind"], told["n"], told["shape"]) == ("partial-vectors", 4000, [4000, 20])
    assert told["schema"] == schema | {"unit": None}
    assert owner.upload(npy(rows), schema).json()["fingerprint"] == told["fingerprint"]

    owner.grant(told["id"], analyst)
    asked = ASK | {"steps": 12}
    planned = analyst.plan(told["id"], **asked)
    assert planned.status_code == 200, planned.text
    plan = planned.json()
    assert plan["kind"] == "matrix-completion"
    assert "descent" in plan["why"]
    job = analyst.estimate(told["id"], **asked).json()
    assert job["state"] == "committed", job
    basis = np.array(job["estimate"]["basis"])
    assert basis.shape == (20, 2)
    assert np.abs(basis.T @ basis - np.eye(2)).max() < 1e-10
    assert job["uncertainty"]["of"] == "the subspace that the same steps find without noise"
    # Of 300 runs with other noise none was further off than 0.84 of this.
    assert Grassmann(*truth.shape).dist(basis, truth) < 2 * job["forecast"]["standard_deviation"] < 0.02
    entry, *_ = owner.ledger()
    assert (entry["kind"], entry["estimate"], entry["state"]) == ("debit", "matrix-completion", "committed")
    assert owner.budget()["queries"] == 1
    receipt = Receipt.model_validate_json(owner.get(f"/v1/jobs/{job['id']}/receipt").content)
    assert signed_by(receipt, receipt.public_key)
    assert receipt.statement.kind == "matrix-completion"
    assert "second moment of what is known" in job["privacy"]["mechanism"]

    plain = analyst.estimate(told["id"], **ASK).json()
    assert "principal subspace of these records" in plain["uncertainty"]["of"]
    assert any("a descent" in warning for warning in plain["warnings"])
    # Rows of half of their length each turn it by .1; noise has a tenth of that.
    assert Grassmann(*truth.shape).dist(np.array(plain["estimate"]["basis"]), truth) < 0.3


@only_on_sqlite
def test_dummy_rows_have_gaps_and_answer(server: Server) -> None:
    owner = server.owner()
    schema = {"kind": "partial-vectors", "dim": 20, "known": 0.3}
    dataset = owner.dataset(planted()[0], schema)
    rows = owner.get(f"/v1/datasets/{dataset}/dummy").json()["rows"]
    known = [value is not None for row in rows for value in row]
    assert 0.2 < np.mean(known) < 0.4
    assert rows == json.loads(
        json.dumps(dummy_rows(SCHEMA.validate_python(schema).shape(2)), allow_nan=False)
    )
    answer = owner.post(
        "/v1/estimates/matrix-completion",
        headers={"Idempotency-Key": "d", "Prefer": "wait=240"},
        json={"dataset": {"id": dataset, "dummy": True}, "privacy": {"epsilon": 9.0}, "rank": 2},
    ).json()
    assert (answer["state"], answer["dummy"], answer["charges"]) == ("committed", True, [])


@only_on_sqlite
def test_rows_with_gaps_come_with_the_question(server: Server) -> None:
    owner = server.owner()
    rows = np.where(np.isnan(ROWS), np.array(None), ROWS).tolist()
    body = {"dataset": {"inline": {"schema": GAPS, "rows": rows}}, "privacy": {"epsilon": 0.5}, "rank": 1}
    answer = owner.post(
        "/v1/estimates/matrix-completion",
        headers={"Idempotency-Key": "q", "Prefer": "wait=240"},
        json=body,
    )
    assert answer.json()["state"] == "committed", answer.text


@only_on_sqlite
def test_several_rows_of_a_unit_are_one_record(server: Server) -> None:
    owner = server.owner(epsilon=10.0)
    rows, truth = planted(12_000)
    table = b"\n".join(
        b"p%d,%s" % (i // 3, line) for i, line in enumerate(csv_with_gaps(rows).splitlines()[1:])
    )
    head = ",".join(["who", *(f"x{i}" for i in range(20))]).encode() + b"\n"
    schema = {"kind": "partial-vectors", "dim": 20, "unit": {"column": "who", "rows": 3}}
    made = owner.upload(head + table, schema, "rows.csv").json()
    assert made["n"] == 4000
    job = owner.estimate(made["id"], **ASK, steps=12).json()
    assert Grassmann(*truth.shape).dist(np.array(job["estimate"]["basis"]), truth) < 0.02


def says(owner: Caller, dataset: str, **asked: Any) -> str:
    """What a plan and a query are refused with, alike, while nothing is charged."""
    before = owner.budget(), owner.ledger()
    first = problem(owner.plan(dataset, **ASK | asked), 422, "invalid")
    assert problem(owner.estimate(dataset, **ASK | asked), 422, "invalid") == first
    assert (owner.budget(), owner.ledger()) == before
    return json.dumps(first)


@only_on_sqlite
def test_bad_questions_are_refused_and_cost_nothing(server: Server) -> None:
    owner = server.owner()
    gaps, vectors = owner.dataset(ROWS, GAPS), owner.dataset(np.ones((50, 3)), VECTORS)
    assert "below the number of columns" in says(owner, gaps, rank=3)
    assert "rank" in says(owner, gaps, rank=0)
    assert "delta must be above 0" in says(owner, gaps, delta=0.0)
    assert "dataset of kind vectors" in says(owner, gaps, kind="robust-pca")
    assert "dataset of kind partial-vectors" in says(owner, vectors)
    assert "step_size" in says(owner, gaps, step_size=0)
    wide = owner.dataset(np.ones((50, 1001)), GAPS | {"dim": 1001})
    assert "at most 1000 columns" in says(owner, wide)


@only_on_sqlite
def test_infinity_is_refused_with_its_record_and_field(server: Server) -> None:
    told = problem(server.owner().upload(npy(INFINITE), GAPS), 422, "dataset-invalid")
    assert [(f["record"], f["field"]) for f in told["faults"]] == [(4, "[1]")]


@only_on_sqlite
@pytest.mark.parametrize("row", [np.full(3, np.nan), np.full(3, 1e308), np.full(3, 5e-324), np.zeros(3)])
def test_no_row_stops_a_run(server: Server, row: np.ndarray) -> None:
    owner = server.owner(epsilon=100.0)
    rows = ROWS.copy()
    rows[::2] = row
    job = owner.estimate(owner.dataset(rows, GAPS | {"known": 0.9}), **ASK, steps=3).json()
    assert job["state"] == "committed", job

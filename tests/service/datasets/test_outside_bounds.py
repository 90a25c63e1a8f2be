"""Values outside declared bounds are counted for the response to their owner's upload, and nowhere else."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privest_service.datasets.ingest import ingest
from privest_service.datasets.schemas import SCHEMA
from privest_service.formats import Format
from testing.server import Caller, Server, npy
from testing.uploads import LIMIT, TABLES, table_as

SCHEMA_OF_ROWS: dict[str, Any] = {
    "kind": "table",
    "columns": [
        {"name": "age", "type": "integer", "low": 0, "high": 110, "missing": "filled", "fill": 40},
        {"name": "income", "type": "number", "low": 0},
        {"name": "seen", "type": "date", "low": "2020-01-01", "high": "2020-12-31"},
        {"name": "weight", "type": "number", "low": 0, "high": 400},
        {"name": "free", "type": "number"},
        {"name": "sex", "type": "category", "categories": ["f", "m"]},
    ],
}
AGES = [-1, 0, 110, 111, 500, None, 40, 41]
ROWS = pa.table(
    {
        "age": AGES * 5,
        "income": [-0.5, 1e9, 0, 1, 2, 3, 4, 5] * 5,
        "seen": [f"20{19 + at % 2}-06-01" for at in range(40)],
        "weight": [70.5] * 40,
        "free": [1e300] * 40,
        "sex": ["f", "m"] * 20,
    }
)
COUNTS = {"age": 15, "income": 5, "seen": 20}


@pytest.fixture
def backend() -> str:
    """One database: the counts are in neither."""
    return "sqlite"


@pytest.fixture
def owner(server: Server) -> Caller:
    return server.owner()


@pytest.mark.parametrize("form", TABLES)
def test_values_of_each_column_are_counted_over_all_blocks(tmp_path: Path, form: Format) -> None:
    (tmp_path / "upload").write_bytes(table_as(ROWS, form))
    intake = SCHEMA.validate_python(SCHEMA_OF_ROWS).intake()
    found = ingest(str(tmp_path / "upload"), form, intake, str(tmp_path / "rows.npy"), LIMIT)
    assert found.outside == (15, 5, 20, 0, 0, 0)
    assert np.load(tmp_path / "rows.npy")[3, 0] == 111  # stored as it came: the gate clips


def test_values_are_counted_before_rows_are_grouped(tmp_path: Path) -> None:
    (tmp_path / "upload").write_bytes(b"who,age\na,-3\na,500\na,40\nb,50\nc,40\n")
    schema = {"kind": "table", "columns": SCHEMA_OF_ROWS["columns"][:1], "unit": {"column": "who", "rows": 1}}
    intake = SCHEMA.validate_python(schema).intake()
    found = ingest(str(tmp_path / "upload"), "csv", intake, str(tmp_path / "rows.npy"), LIMIT)
    assert (found.n, found.outside) == (3, (2,))


def test_only_the_response_to_the_upload_has_the_counts(server: Server, owner: Caller) -> None:
    made = owner.upload(table_as(ROWS, "csv"), SCHEMA_OF_ROWS, "rows.csv").json()
    assert made["outside_bounds"] == COUNTS
    dataset, analyst = made["id"], server.analyst()
    assert owner.grant(dataset, analyst).is_success
    for caller in (owner, analyst):
        assert caller.get(f"/v1/datasets/{dataset}").json()["outside_bounds"] is None
        assert caller.get("/v1/datasets").json()["datasets"][0]["outside_bounds"] is None
    assert "outside" not in owner.get("/v1/acts").text
    assert "outside" not in server.log.read_text()


def test_an_upload_within_its_bounds_has_no_counts(owner: Caller) -> None:
    whole = {"kind": "table", "columns": SCHEMA_OF_ROWS["columns"][3:]}
    assert owner.upload(table_as(ROWS, "csv"), whole, "rows.csv").json()["outside_bounds"] == {}
    vectors = owner.upload(npy(np.ones((9, 2))), {"kind": "vectors", "dim": 2, "norm_bound": 1})
    assert vectors.json()["outside_bounds"] is None  # rows of no table

"""Labelled datasets over HTTP: columns by name, labels by their string form, faults by record and field."""

import numpy as np
import pytest

from testing.server import Caller, Server, npy, problem


@pytest.fixture
def backend() -> str:
    """One database will do, as it plays no part here."""
    return "sqlite"


SCHEMA = {"kind": "labelled", "features": ["age", "dose"], "label": "ill", "classes": ["no", "yes"]}
LACKING = "must name every column of the schema; missing: "
UNKNOWN = "must be labelled with one of the classes"
NUMBERED = SCHEMA | {"classes": ["0", "1", "2.5"]}
TABLE = "id,ill,dose,age\na,no,1.5,30\nb,yes,2.5,40\nc,yes,-1,50\n"

only_on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests in which no database plays a part."""


@pytest.fixture
def owner(server: Server) -> Caller:
    return server.owner()


def stored(owner: Caller, dataset: str) -> np.ndarray:
    return np.load(owner.server.data_dir / "rows" / owner.id / f"{dataset}.npy")


def test_named_columns_are_found_wherever_they_are(owner: Caller) -> None:
    answer = owner.upload(TABLE.encode(), SCHEMA, "rows.csv")
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert (body["kind"], body["n"], body["shape"]) == ("labelled", 3, [3, 3])
    assert body["schema"]["classes"] == ["no", "yes"]
    np.testing.assert_array_equal(stored(owner, body["id"]), [[30, 1.5, 0], [40, 2.5, 1], [50, -1, 1]])


@only_on_sqlite
def test_of_an_array_the_label_is_last_and_matches_by_its_string_form(owner: Caller) -> None:
    rows = np.array([[30, 1.5, 0], [40, 2.5, 2.5], [50, -1, 1]])
    answer = owner.upload(npy(rows), NUMBERED)
    assert answer.status_code == 201, answer.text
    np.testing.assert_array_equal(stored(owner, answer.json()["id"])[:, -1], [0, 2, 1])
    table = "age,dose,ill\n1,2,1.0\n1,2, 2.50 \n1,2,0\n"
    answer = owner.upload(table.encode(), NUMBERED, "rows.csv")
    assert answer.status_code == 201, answer.text
    np.testing.assert_array_equal(stored(owner, answer.json()["id"])[:, -1], [1, 2, 0])


@only_on_sqlite
@pytest.mark.parametrize(
    ("table", "fault"),
    [
        (
            "age,dose,ill\n1,2,no\n1,2,maybe\n",
            {"record": 1, "field": "ill", "rule": UNKNOWN},
        ),
        ("age,dose,ill\n1,2,no\n1,x,no\n", {"record": 1, "field": "dose", "rule": "must be a number"}),
        ("age,dose,ill\nnan,2,no\n1,2,no\n", {"record": 0, "field": "age", "rule": "must be finite"}),
        ("age,dose,ill\n1,2,no\n1,2\n", {"record": 1, "rule": "must have 3 columns"}),
        (
            "age,ill\n1,no\n1,no\n",
            {"rule": LACKING + "dose"},
        ),
        (
            "age,age,dose,ill\n1,1,2,no\n",
            {"rule": "must name every column once"},
        ),
        (
            "1,2,no\n1,2,no\n",
            {"rule": LACKING + "age, dose, ill"},
        ),
        ("age,dose,ill\n1,2,no\n", {"rule": "must have at least 2 records"}),
    ],
)
def test_what_a_table_lacks_is_named_by_record_and_field(owner: Caller, table: str, fault: dict) -> None:
    refused = problem(owner.upload(table.encode(), SCHEMA, "rows.csv"), 422, "dataset-invalid")
    assert {name: value for name, value in refused["faults"][0].items() if value is not None} == fault
    assert "maybe" not in str(refused)


@only_on_sqlite
def test_labels_unknown_to_the_schema_are_refused_in_arrays_too(owner: Caller) -> None:
    rows = np.array([[1.0, 2.0, 0.0], [1.0, 2.0, 7.0], [1.0, 2.0, np.nan]])
    faults = problem(owner.upload(npy(rows), NUMBERED), 422, "dataset-invalid")["faults"]
    assert [(f["record"], f["rule"]) for f in faults] == [
        (1, UNKNOWN),
        (2, "must be finite"),
    ]


@only_on_sqlite
@pytest.mark.parametrize(
    "wrong",
    [
        {"features": []},
        {"features": ["age", "age"]},
        {"features": ["age", "ill"]},
        {"classes": ["no"]},
        {"classes": ["no", "no"]},
        {"mean": [1.0]},
        {"scale": [1.0, 0.0]},
        {"norm_bound": 0.0},
        {"unknown": 1},
    ],
    ids=str,
)
def test_schemas_that_describe_nothing_are_refused(owner: Caller, wrong: dict) -> None:
    problem(owner.upload(TABLE.encode(), SCHEMA | wrong, "rows.csv"), 422, "invalid")


@only_on_sqlite
def test_dummy_rows_have_every_class(owner: Caller) -> None:
    facts = {"mean": [40.0, 1.0], "scale": [10.0, 0.5]}
    dataset = owner.upload(TABLE.encode(), SCHEMA | facts, "rows.csv").json()["id"]
    rows = np.array(owner.get(f"/v1/datasets/{dataset}/dummy").json()["rows"])
    assert set(rows[:, -1]) == {0.0, 1.0}
    assert abs(rows[:, 0].mean() - 40.0) < 5 * 10.0 / np.sqrt(len(rows))

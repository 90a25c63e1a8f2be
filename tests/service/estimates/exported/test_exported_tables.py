"""Exported models of a table take its columns as they are: texts, numbers and gaps, with the same chances."""

import io
import json
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest

from privest.data.metadata import LabelledMetadata
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.data.tables import day_of
from privest_service.datasets.schemas import SCHEMA
from testing import penguin_files
from testing.server import Caller, Server, body_of
from testing.uploads import taken

PMML = "{http://www.dmg.org/PMML-4_4}"
BIRDS = pd.read_csv(io.BytesIO(penguin_files.CSV))

DAYS = pd.date_range("2019-12-01", periods=240, freq="2D")
TURNS = np.arange(240)
ODD = pd.DataFrame(
    {
        "label": np.where(TURNS % 3 == 0, None, np.where(TURNS % 2 == 0, "yes", "no")),
        "probabilities": np.where(TURNS % 7 == 0, np.nan, (TURNS % 11) * 1.5),
        "constant": pd.array([None if at % 9 == 0 else at % 4 == 1 for at in TURNS], dtype=object),
        "seen": [f"{day:%Y-%m-%d}" if at % 8 else None for at, day in enumerate(DAYS)],
        "seen missing": [f"{at % 3 + 1}" for at in TURNS],
        "sure": TURNS % 5 > 2,
        "of <b>": TURNS % 6,
        "told": np.where(TURNS % 10 < 4, "a", "b"),
    }
)
ODD_SCHEMA: dict[str, Any] = {
    "kind": "table",
    "columns": [
        {"name": "label", "type": "category", "categories": ["yes", "no"], "missing": "filled", "fill": "no"},
        {"name": "probabilities", "type": "number", "low": 1, "high": 12, "missing": "filled", "fill": 12},
        {"name": "constant", "type": "boolean", "missing": "category"},
        {"name": "seen", "type": "date", "low": "2020-01-01", "high": "2021-01-01", "missing": "filled",
         "fill": "2020-05-05"},
        {"name": "seen missing", "type": "category", "categories": [1, 2, 3]},
        {"name": "sure", "type": "boolean"},
        {"name": "of <b>", "type": "integer", "low": 1},
        {"name": "told", "type": "category", "categories": ["a", "b"]},
    ],
}  # fmt: skip
"""Names that a graph or a document has for parts of its own, values beyond bounds, no bounds, all gaps."""


@pytest.fixture
def backend() -> str:
    """One database: models are made of what was read."""
    return "sqlite"


@pytest.fixture(params=["penguins", "odd names"])
def case(request: pytest.FixtureRequest) -> tuple[pd.DataFrame, dict[str, Any], str]:
    """A frame, its schema and a label."""
    if request.param == "penguins":
        return BIRDS, penguin_files.SCHEMA, "species"
    return ODD, ODD_SCHEMA, "told"


def fitted(
    owner: Caller, frame: pd.DataFrame, schema: dict[str, Any], label: str, **chosen: list[str]
) -> dict[str, Any]:
    """A job that fits a classifier by all other columns, or by chosen features."""
    made = owner.upload(frame.to_csv(index=False, na_rep="NA").encode(), schema, "rows.csv")
    assert made.status_code == 201, made.text
    job = owner.estimate(
        made.json()["id"], kind="logistic-regression", epsilon=20.0, label=label, **chosen
    ).json()
    assert job["state"] == "committed", job
    return job


def exported(owner: Caller, job: dict[str, Any], form: str) -> bytes:
    answer = owner.get(f"/v1/jobs/{job['id']}/model?format={form}")
    assert answer.status_code == 200, answer.text
    return answer.content


def chances(
    tmp_path: Path,
    frame: pd.DataFrame,
    schema: dict[str, Any],
    label: str,
    found: dict[str, Any],
    features: list[str] | None = None,
) -> np.ndarray:
    """The chances by the rows as they are stored, the recipe of the plan, and the answer's own numbers."""
    _, rows = taken(tmp_path, frame.to_csv(index=False, na_rep="NA").encode(), "csv", schema)
    shape = SCHEMA.validate_python(schema).shape(len(rows))
    assert isinstance(shape, TableMetadata)
    made = metadata_for(
        LabelledMetadata, shape, TableChoice(label=label, features=tuple(features) if features else None)
    )
    assert made.recipe is not None
    scores = made.recipe(rows)[:, :-1] @ np.atleast_2d(found["coefficients"]).T + found["intercept"]
    if scores.shape[1] == 1:
        scores = np.hstack([0 * scores, scores])
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def inputs(frame: pd.DataFrame, schema: dict[str, Any], label: str) -> dict[str, np.ndarray]:
    """The columns of a frame as an exported graph takes them."""
    found = dict[str, np.ndarray]()
    for column in schema["columns"]:
        values = frame[column["name"]]
        if column["name"] == label:
            continue
        if column["type"] in ("category", "boolean"):
            found[column["name"]] = values.astype(str).to_numpy(dtype=object)
        elif column["type"] == "date":
            days = [np.nan if pd.isna(day) else day_of(date.fromisoformat(day)) for day in values]
            found[column["name"]] = np.array(days, dtype=np.float64)
        else:
            found[column["name"]] = values.to_numpy(dtype=np.float64)
    return found


FUNCTIONS: dict[str, Any] = {
    "min": min,
    "max": max,
    "dateDaysSinceYear": lambda day, year: float((date.fromisoformat(day) - date(int(year), 1, 1)).days),
}


def value(element: Xml.Element, row: dict[str, Any]) -> Any:
    """What a transformation of PMML makes of a row, None for what is missing."""
    about = element.attrib
    match element.tag.removeprefix(PMML), [value(part, row) for part in element]:
        case "FieldRef", []:
            found = row[about["field"]]
        case "Constant", []:
            found = float(element.text or "")
        case "NormDiscrete", []:
            given, gap = row[about["field"]], about.get("mapMissingTo", "nan")
            found = float(gap) if given is None else float(given == about["value"])
        case "Apply", [when, then, other]:
            assert about["function"] == "if"
            found = then if when else other
        case "Apply", [only]:
            assert about["function"] == "isMissing"
            found = only is None
        case "Apply", parts:
            found = None if None in parts else FUNCTIONS[about["function"]](*parts)
        case other:
            raise AssertionError(other)
    return found


def by_pmml(content: bytes, frame: pd.DataFrame) -> np.ndarray:
    """The chances of each row, as a reader of PMML computes them."""
    (model,) = Xml.fromstring(content).iter(f"{PMML}RegressionModel")  # noqa: S314 - of our own server
    known = [each.get("name", "") for each in model.iter(f"{PMML}MiningField")]
    derived = {each.get("name", ""): each[0] for each in model.iter(f"{PMML}DerivedField")}
    assert len({*known, *derived}) == len(known) + len(derived)
    scores = list[list[float]]()
    for row in frame.to_dict("records"):
        fields = {name: None if pd.isna(row[name]) else row[name] for name in known}
        told = {n: str(v).lower() if isinstance(v, bool | np.bool_) else v for n, v in fields.items()}
        features = {name: value(element, told) for name, element in derived.items()}
        scores.append(
            [
                float(table.get("intercept", "nan"))
                + sum(
                    float(each.get("coefficient", "nan")) * features[each.get("name", "")]
                    for each in table.iter(f"{PMML}NumericPredictor")
                )
                for table in model.iter(f"{PMML}RegressionTable")
            ]
        )
    shares = np.exp(np.array(scores) - np.max(scores, axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def test_columns_go_in_as_they_are_and_chances_are_the_same(
    server: Server, tmp_path: Path, case: tuple[pd.DataFrame, dict[str, Any], str]
) -> None:
    frame, schema, label = case
    owner = server.owner(50.0)
    job = fitted(owner, frame, schema, label)
    expected = chances(tmp_path, frame, schema, label, job["estimate"])
    assert np.ptp(expected, axis=0).min() > 0.2  # else any model would do
    content = exported(owner, job, "onnx")
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    session = onnxruntime.InferenceSession(content)
    labels, probabilities = session.run(None, inputs(frame, schema, label))
    np.testing.assert_allclose(probabilities, expected, atol=1e-6, rtol=0)
    assert [*labels] == [job["estimate"]["classes"][place] for place in expected.argmax(axis=1)]
    types = json.loads(session.get_modelmeta().custom_metadata_map["columns"])
    assert types == {
        column["name"]: column["type"] for column in schema["columns"] if column["name"] != label
    }
    np.testing.assert_allclose(by_pmml(exported(owner, job, "pmml"), frame), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "features",
    [
        ["island=Dream|Torgersen", "bill_depth_mm", "sex=female|missing"],
        ["sex missing", "island=Biscoe", "island=Dream", "island=Torgersen"],
    ],
    ids=["merged", "all"],
)
def test_chosen_and_merged_categories_go_into_models(
    server: Server, tmp_path: Path, features: list[str]
) -> None:
    owner = server.owner(50.0)
    job = fitted(owner, BIRDS, penguin_files.SCHEMA, "species", features=features)
    expected = chances(tmp_path, BIRDS, penguin_files.SCHEMA, "species", job["estimate"], features)
    session = onnxruntime.InferenceSession(exported(owner, job, "onnx"))
    taken = {each.name for each in session.get_inputs()}
    given = {
        name: values
        for name, values in inputs(BIRDS, penguin_files.SCHEMA, "species").items()
        if name in taken
    }
    np.testing.assert_allclose(session.run(None, given)[1], expected, atol=1e-6, rtol=0)
    np.testing.assert_allclose(by_pmml(exported(owner, job, "pmml"), BIRDS), expected, atol=1e-9, rtol=0)


def test_what_the_schema_refuses_has_no_chances(server: Server) -> None:
    owner = server.owner(50.0)
    job = fitted(owner, BIRDS, penguin_files.SCHEMA, "species")
    session = onnxruntime.InferenceSession(exported(owner, job, "onnx"))
    given = inputs(BIRDS[:5], penguin_files.SCHEMA, "species")
    given["island"][1], given["year"][2], given["sex"][4] = "Atlantis", np.nan, "none"
    labels, probabilities = session.run(None, given)
    assert np.isnan(probabilities).all(axis=1).tolist() == [False, True, True, False, False]
    assert [bool(label) for label in labels] == [True, False, False, True, True]
    # "none" is a gap like the one before it, so that only the numbers beside it differ.
    given["sex"][4] = ""
    np.testing.assert_array_equal(session.run(None, given)[1][4], probabilities[4])


def test_a_model_of_several_tables_takes_their_columns_too(server: Server, tmp_path: Path) -> None:
    owner = server.owner(50.0)
    ids = [
        owner.upload(half.to_csv(index=False, na_rep="NA").encode(), penguin_files.SCHEMA, "h.csv").json()[
            "id"
        ]
        for half in (BIRDS[::2], BIRDS[1::2])
    ]
    about = [{"id": each} for each in ids]
    body = body_of("", 20.0, label="species", features=["island", "body_mass_g"]) | {"dataset": about}
    headers = {"Idempotency-Key": "several", "Prefer": "wait=200"}
    job = owner.post("/v1/estimates/logistic-regression", json=body, headers=headers).json()
    assert job["state"] == "committed", job
    schema = {"kind": "table", "columns": [penguin_files.SCHEMA["columns"][at] for at in (0, 1, 5)]}
    frame = BIRDS[["species", "island", "body_mass_g"]]
    session = onnxruntime.InferenceSession(exported(owner, job, "onnx"))
    expected = chances(tmp_path, frame, schema, "species", job["estimate"])
    probabilities = session.run(None, inputs(frame, schema, "species"))[1]
    np.testing.assert_allclose(probabilities, expected, atol=1e-6, rtol=0)


def test_texts_are_read_as_uploads_are(server: Server) -> None:
    owner = server.owner(50.0)
    job = fitted(owner, ODD, ODD_SCHEMA, "told")
    session = onnxruntime.InferenceSession(exported(owner, job, "onnx"))

    def chance(**changed: str) -> list[float]:
        given = {name: values[1:2].copy() for name, values in inputs(ODD, ODD_SCHEMA, "told").items()}
        for name, text in changed.items():
            given[name.replace("_", " ")][0] = text
        return session.run(None, given)[1][0].tolist()

    assert chance(sure="1") == chance(sure="True") == chance(sure="TRUE") == chance(sure="1.0")
    assert chance(sure="0") == chance(sure="false") != chance(sure="1")
    assert chance(seen_missing="2.0") == chance(seen_missing="2") != chance(seen_missing="3")
    assert chance(constant="NULL") == chance(constant="n/A") != chance(constant="true")
    assert chance(label="nan") == chance(label="") != chance(label="no")  # by the indicator of a gap alone

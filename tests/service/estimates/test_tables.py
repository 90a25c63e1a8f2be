"""One upload of a table serves every estimator over HTTP, with answers in the columns' own units."""

import json
import pickle
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import select, text, update

from privest.data.metadata import PointsMetadata
from privest.data.records import Records
from privest.data.table_metadata import TableChoice, TableMetadata, metadata_for
from privest.estimators.frechet_mean.losses import SquaredDistance
from privest.manifolds.euclidean import Euclidean
from privest.privacy.gate import ChunkSum
from privest_service.database import Database
from privest_service.datasets.models import Dataset
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.cluster import part_of_sum
from privest_service.jobs.models import Job
from testing import penguin_files
from testing.server import Caller, Server, body_of, problem
from testing.uploads import table_as

MEASURES = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
RECORDS = [line.split(",") for line in penguin_files.CSV.decode().splitlines()]
FRAME = {name: values for name, *values in zip(*RECORDS, strict=True)}


@pytest.fixture
def backend() -> str:
    """One database will do, as it plays no part here."""
    return "sqlite"


@pytest.fixture
def owner(server: Server) -> Caller:
    return server.owner(epsilon=100.0, delta=1e-4)


def uploaded(owner: Caller, content: bytes = penguin_files.CSV, **schema: Any) -> str:
    answer = owner.upload(content, penguin_files.SCHEMA | schema, "penguins.csv")
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def estimate(owner: Caller, dataset: str, kind: str, **body: Any) -> dict[str, Any]:
    job = owner.estimate(dataset, kind=kind, epsilon=5.0, **body).json()
    assert job.get("state") == "committed", job
    return job["estimate"]


def filled(name: str, fill: float) -> float:
    """The mean of a column of the file with gaps filled."""
    return float(np.mean([fill if value == "NA" else float(value) for value in FRAME[name]]))


def with_gaps(name: str, fill: float) -> dict[str, float]:
    """The mean of known values, the filled mean and the share of gaps of a column of the file."""
    known = [float(value) for value in FRAME[name] if value != "NA"]
    return {name: float(np.mean(known)), f"{name} filled": filled(name, fill), f"{name} missing": 2 / 344}


def shares(name: str, *categories: str) -> dict[str, float]:
    """The shares of categories in the file."""
    return {f"{name}={each}": FRAME[name].count(each) / 344 for each in categories}


def test_one_upload_serves_means_directions_classifiers_scores_and_completion(owner: Caller) -> None:
    """Fewer than 13 of 22 intervals of 95 % hold in two runs of a million."""
    dataset = uploaded(owner)
    shown = owner.get(f"/v1/datasets/{dataset}").json()
    assert (shown["kind"], shown["shape"]) == ("table", [344, 8])
    assert shown["schema"]["columns"][6]["missing"] == "category"

    columns = estimate(owner, dataset, "frechet-mean")["columns"]
    exact = {
        **shares("species", "Adelie", "Chinstrap", "Gentoo"),
        **shares("island", "Biscoe", "Dream", "Torgersen"),
        **with_gaps("bill_length_mm", 44),
        **with_gaps("bill_depth_mm", 17),
        **with_gaps("flipper_length_mm", 200),
        **with_gaps("body_mass_g", 4200),
        **shares("sex", "female", "male"),
        "sex missing": 11 / 344,
        "year": filled("year", 0),
    }  # fmt: skip
    assert [each["name"] for each in columns] == list(exact)
    assert [each["kind"] for each in columns if each["name"].endswith("missing")] == ["share"] * 5
    assert [each["kind"] for each in columns if "=" in each["name"]] == ["share"] * 8
    assert sum(each["low"] <= exact[each["name"]] <= each["high"] for each in columns) >= 13
    (length,) = estimate(owner, dataset, "frechet-mean", columns=["year"])["columns"]
    assert 2007 <= length["low"] < length["high"] <= 2009

    directions = estimate(owner, dataset, "robust-pca", rank=2, columns=MEASURES, center=True)
    assert directions["columns"][::2] == MEASURES
    assert [each["name"] for each in directions["loadings"]] == directions["columns"]
    assert directions["loadings"][3]["loadings"] == directions["basis"][3]

    chosen = {"label": "species", "features": ["bill_length_mm", "bill_depth_mm"]}
    found = estimate(owner, dataset, "logistic-regression", **chosen)
    assert found["classes"] == ["Adelie", "Chinstrap", "Gentoo"]
    assert found["features"] == [
        "bill_length_mm", "bill_length_mm missing", "bill_depth_mm", "bill_depth_mm missing",
    ]  # fmt: skip
    classifier = {name: found[name] for name in ("coefficients", "intercept")}
    score = estimate(owner, dataset, "classifier-score", **chosen, **classifier)
    scores = (
        np.array(classifier["coefficients"]) @ classify_rows().T + np.array(classifier["intercept"])[:, None]
    )
    right = np.array(found["classes"])[np.argmax(scores, axis=0)] == np.array(FRAME["species"])
    assert abs(score["value"] - right.mean()) < 6 * score["standard_error"]
    assert right.mean() > 0.6  # of 20 runs none had less than .89

    completed = estimate(owner, dataset, "matrix-completion", rank=1)
    assert completed["columns"] == [*MEASURES, "year"]


def classify_rows() -> np.ndarray:
    """Features of the classifier above in their own units, as a reader of the file makes them."""
    columns = []
    for name, fill in (("bill_length_mm", 44.0), ("bill_depth_mm", 17.0)):
        missing = np.array([value == "NA" for value in FRAME[name]])
        values = [fill if value == "NA" else float(value) for value in FRAME[name]]
        columns += [np.array(values), missing.astype(np.float64)]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("frechet-mean", {"columns": ["beak"]}, "the table has no column beak: it has species, island"),
        ("frechet-mean", {"columns": ["note"], "clip": 1}, "these options need low and high of every column"),
        (
            "logistic-regression",
            {"label": "sex", "features": ["note"], "standardisation": "public"},
            "no scale is known of note: declare low and high",
        ),
        ("logistic-regression", {}, "name a label: a column of categories or a boolean one"),
        ("classifier-score", {"label": "year", "coefficients": [1], "intercept": 0}, "year is no label"),
        ("matrix-completion", {"rank": 1, "columns": ["year", "sex"]}, "leave out sex"),
    ],
)
def test_questions_that_do_not_fit_are_refused_in_words(
    owner: Caller, kind: str, body: dict[str, Any], words: str
) -> None:
    columns = [*penguin_files.SCHEMA["columns"], {"name": "note", "type": "number"}]
    lines = penguin_files.CSV.decode().splitlines()
    content = "\n".join([f"{lines[0]},note", *(f"{line},7" for line in lines[1:])]).encode()
    dataset = uploaded(owner, content, columns=columns)
    assert words in problem(owner.plan(dataset, kind=kind, **body), 422, "invalid")["detail"]
    assert words in problem(owner.estimate(dataset, kind=kind, **body), 422, "invalid")["detail"]
    assert owner.budget()["spent"]["epsilon"] == 0


def with_reference(name: str) -> list[dict[str, Any]]:
    """The columns of penguins, with a reference of their islands."""
    return [
        {**each, "reference": name} if each["name"] == "island" else each
        for each in penguin_files.SCHEMA["columns"]
    ]


def test_a_classifier_names_the_reference_that_coefficients_are_relative_to(owner: Caller) -> None:
    dataset = uploaded(owner, columns=with_reference("Dream"))
    shown = owner.get(f"/v1/datasets/{dataset}").json()["schema"]["columns"]
    assert [each.get("reference") for each in shown] == [None, "Dream", *[None] * 6]
    chosen = {"label": "species", "features": ["island", "sex", "year"]}
    found = estimate(owner, dataset, "logistic-regression", **chosen)
    assert found["features"] == ["island=Biscoe", "island=Torgersen", "sex=male", "sex missing", "year"]
    assert found["references"] == [
        {"column": "island", "categories": ["Dream"]},
        {"column": "sex", "categories": ["female"]},
    ]
    means = estimate(owner, dataset, "frechet-mean", columns=["island"])["columns"]
    assert [each["name"] for each in means] == ["island=Biscoe", "island=Dream", "island=Torgersen"]
    # What an answer lists as its features asks for the same ones.
    classifier = {name: found[name] for name in ("coefficients", "intercept")}
    again = {"label": "species", "features": found["features"]}
    score = estimate(owner, dataset, "classifier-score", **again, **classifier)
    assert 0 <= score["value"] <= 1
    for wrong in ("Atlantis", ""):
        answer = owner.upload(
            penguin_files.CSV, penguin_files.SCHEMA | {"columns": with_reference(wrong)}, "p.csv"
        )
        assert answer.status_code == 422
    numbers = [{"name": "year", "type": "integer", "reference": "2007"}]
    answer = owner.upload(penguin_files.CSV, penguin_files.SCHEMA | {"columns": numbers}, "p.csv")
    assert "reference must be one of the categories" in answer.text


def test_single_and_merged_categories_are_another_question_than_the_whole_column(owner: Caller) -> None:
    dataset = uploaded(owner)
    ask = {"kind": "logistic-regression", "epsilon": 5.0, "label": "species"}
    usual = owner.estimate(dataset, **ask, features=["island"]).json()
    spelled = owner.estimate(dataset, **ask, features=["island=Dream", "island=Torgersen"]).json()
    assert (spelled["reused"], spelled["estimate"]) == (True, usual["estimate"])
    one = owner.estimate(dataset, **ask, features=["island=Dream"]).json()
    assert not one["reused"]
    assert one["estimate"]["references"] == [{"column": "island", "categories": ["Biscoe", "Torgersen"]}]
    merged = owner.estimate(dataset, **ask, features=["island=Dream|Biscoe"]).json()
    assert not merged["reused"]
    assert merged["estimate"]["features"] == ["island=Biscoe|Dream"]
    for features, words in (
        (["island=Atlantis"], "island has no such category: it has Biscoe, Dream, Torgersen"),
        (["island", "year", "island=Dream"], "each column once, and its categories one after another"),
    ):
        refused = problem(owner.estimate(dataset, **ask, features=features), 422, "invalid")
        assert words in refused["detail"]


def test_documents_of_before_there_were_references_serve_as_they_did(owner: Caller) -> None:
    """A schema, and the plan and answer of a fit by all categories, as a former version has stored them."""
    dataset = uploaded(owner)
    every = [f"island={name}" for name in ("Biscoe", "Dream", "Torgersen")]
    ask = {"kind": "logistic-regression", "epsilon": 5.0, "label": "species", "features": ["year", *every]}
    job = owner.estimate(dataset, **ask).json()

    def model() -> bytes:
        """Return what follows the digest of the plan."""
        made = owner.get(f"/v1/jobs/{job['id']}/model", params={"format": "pmml"}).content
        return made[made.index(b"<DataDictionary") :]

    expected, database = model(), Database(owner.server.database_url)
    with database.write() as session:
        schema = session.execute(select(Dataset.dataset_schema).where(Dataset.id == dataset)).scalar_one()
        assert "reference" not in schema  # where nobody names one, schemas are stored as before
        plan, answer = session.execute(select(Job.plan, Job.result).where(Job.id == job["id"])).one()
        older, told = json.loads(plan), json.loads(answer or "")
        del older["shape"]["recipe"]["indicators"], told["references"]
        for column in older["shape"]["recipe"]["columns"]:
            del column["reference"]
        triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'jobs'"
        for trigger in session.scalars(text(triggers)).all():  # stored jobs are never changed
            session.execute(text(f"DROP TRIGGER {trigger}"))
        stored = {"plan": json.dumps(older), "result": json.dumps(told)}
        session.execute(update(Job).where(Job.id == job["id"]).values(**stored))
    again = owner.get(f"/v1/jobs/{job['id']}").json()
    assert again["estimate"] == job["estimate"] | {"references": None}
    assert again["estimate"]["features"] == ["year", *every]
    assert model() == expected
    with database.write() as session:  # for the check of signatures at the end
        session.execute(update(Job).where(Job.id == job["id"]).values(plan=plan, result=answer))
    database.close()


def test_a_selection_chooses_among_indicators(owner: Caller) -> None:
    dataset = uploaded(owner)
    candidates = [{"features": ["island"]}, {"features": ["island=Dream", "sex"]}]
    body = {"label": "species", "features": ["island", "sex"], "candidates": candidates}
    found = estimate(owner, dataset, "classifier-selection", **body)
    names = [["island=Dream", "island=Torgersen"], ["island=Dream", "sex=male", "sex missing"]]
    assert found["features"] == names[found["winner"]]
    assert found["references"][0]["column"] == "island"


def test_a_text_column_of_two_values_has_the_interval_of_a_boolean(owner: Caller) -> None:
    rng = np.random.default_rng(4)
    ill = rng.random(4000) < 0.4
    told = rng.random(4000) < np.where(ill, 0.7, 0.3)
    lines = [
        f"{'yes' if a else 'no'},{'true' if a else 'false'},{'true' if b else 'false'}"
        for a, b in zip(ill, told, strict=True)
    ]
    schema = {
        "kind": "table",
        "columns": [
            {"name": "ill", "type": "category", "categories": ["no", "yes"]},
            {"name": "sick", "type": "boolean"},
            {"name": "told", "type": "boolean"},
        ],
    }
    answer = owner.upload("\n".join(["ill,sick,told", *lines]).encode(), schema, "ill.csv")
    dataset = answer.json()["id"]
    errors, plans = [], []
    for feature in ("ill", "sick"):
        ask = {"kind": "logistic-regression", "label": "told", "features": [feature]}
        plans.append(owner.plan(dataset, epsilon=5.0, **ask).json()["expected_error"])
        found = estimate(owner, dataset, "logistic-regression", label="told", features=[feature])
        errors.append(hypot(*(found[part]["standard_errors"][0] for part in ("noise", "sampling"))))
    assert plans[0] == plans[1]
    # What a run finds of its own noise varies by a factor of 2, and is small beside the sampling of rows.
    assert errors[0] == pytest.approx(errors[1], rel=0.15)
    assert errors[0] < 0.1
    means = [
        owner.plan(dataset, kind="frechet-mean", epsilon=1.0, columns=[each]).json()
        for each in ("ill", "sick")
    ]
    widths = [[each["radius_95"] for each in mean["columns"]] for mean in means]
    assert widths[0] == [widths[1][0]] * 2


def test_columns_belong_to_tables(owner: Caller) -> None:
    answer = owner.plan(owner.dataset(), columns=["x"])
    assert "columns choose of a table" in problem(answer, 422, "invalid")["detail"]


def test_the_same_question_is_answered_once_and_another_choice_of_columns_is_another(owner: Caller) -> None:
    dataset = uploaded(owner)
    first = owner.estimate(dataset, columns=["year"], key="k").json()
    again = owner.estimate(dataset, columns=["year"]).json()
    assert (again["id"], again["reused"]) == (first["id"], True)
    other = owner.estimate(dataset, columns=["body_mass_g"]).json()
    assert other["id"] != first["id"]
    problem(owner.estimate(dataset, columns=["body_mass_g"], key="k"), 422, "idempotency-key-reused")
    names = [column["name"] for column in penguin_files.SCHEMA["columns"]]
    whole = owner.estimate(dataset).json()
    assert owner.estimate(dataset, columns=names).json()["id"] == whole["id"]


def test_several_tables_are_one_question_if_their_columns_agree(owner: Caller) -> None:
    lines = penguin_files.CSV.decode().splitlines()
    halves = ["\n".join([lines[0], *lines[1 + at :: 2]]).encode() for at in range(2)]
    ids = [uploaded(owner, half) for half in halves]
    body = body_of("", 4.0, columns=MEASURES) | {"dataset": [{"id": each} for each in ids]}
    headers = {"Idempotency-Key": "together", "Prefer": "wait=200"}
    job = owner.post("/v1/estimates/frechet-mean", json=body, headers=headers).json()
    assert job["state"] == "committed", job
    assert [each["name"] for each in job["estimate"]["columns"]][::3] == MEASURES
    other = [dict(column) for column in penguin_files.SCHEMA["columns"]]
    other[3]["high"] = 23
    body["dataset"][1]["id"] = uploaded(owner, halves[1], columns=other)
    refused = owner.post("/v1/estimates/frechet-mean/plan", json=body)
    assert "These differ in column bill_depth_mm." in problem(refused, 422, "invalid")["detail"]


def test_rows_may_come_with_the_question_and_dummies_are_of_the_columns_types(owner: Caller) -> None:
    rows = [dict(zip(RECORDS[0], record, strict=True)) for record in RECORDS[1:61]]
    inline = {"inline": {"schema": penguin_files.SCHEMA, "rows": rows}}
    body = body_of("", 4.0, columns=["sex"]) | {"dataset": inline}
    headers = {"Idempotency-Key": "inline", "Prefer": "wait=200"}
    job = owner.post("/v1/estimates/frechet-mean", json=body, headers=headers).json()
    assert [each["name"] for each in job["estimate"]["columns"]] == ["sex=female", "sex=male", "sex missing"]
    dataset = uploaded(owner)
    dummies = owner.get(f"/v1/datasets/{dataset}/dummy", params={"n": 100}).json()["rows"]
    assert len(dummies) == 100
    assert list(dummies[0]) == RECORDS[0]
    assert {type(row["year"]) for row in dummies} == {int}
    assert {row["sex"] for row in dummies} == {"female", "male", None}
    again = owner.upload(json.dumps(dummies).encode(), penguin_files.SCHEMA, "rows.json")
    assert again.status_code == 201, again.text
    dry = owner.post(
        "/v1/estimates/frechet-mean",
        json=body_of("", 50.0) | {"dataset": {"id": dataset, "dummy": True}},
        headers=headers | {"Idempotency-Key": "dry"},
    ).json()
    sex = {each["name"]: each["value"] for each in dry["estimate"]["columns"]}["sex missing"]
    assert abs(sex - 0.1) < 0.05  # as declared for dummies, where 11 of 344 birds lack it
    assert dry["dummy"]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("text/csv", "text/csv"),
        ("application/json;q=0.5, Text/CSV", "text/csv"),
        ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
        ("text/html, application/vnd.apache.arrow.file;q=.9, */*;q=.1", "application/vnd.apache.arrow.file"),
        ("application/json, text/csv", "application/json"),
        ("text/csv;q=0", "application/json"),
        ("text/csv;q=much", "application/json"),
        ("*/*", "application/json"),
        ("", "application/json"),
    ],
)
def test_dummies_come_as_files_that_can_be_uploaded(owner: Caller, accept: str, media: str) -> None:
    columns = [
        *penguin_files.SCHEMA["columns"],
        {"name": "tagged, <b>", "type": "boolean", "missing": "category"},
        {"name": "seen", "type": "date", "low": "2007-01-01", "missing": "filled", "fill": "2007-01-01"},
        {"name": "far", "type": "integer", "low": 1e20, "high": 1e21},
    ]
    content = ",".join(RECORDS[0]) + ',"tagged, <b>",seen,far\n'
    content += "".join(f"{','.join(record)},true,2008-02-03,{10**20}\n" for record in RECORDS[1:9])
    dataset = uploaded(owner, content.encode(), columns=columns)
    path, of_40 = f"/v1/datasets/{dataset}/dummy", {"n": 40}
    told = owner.get(path, params=of_40).json()["rows"]
    answer = owner.get(path, params=of_40, headers={"Accept": accept})
    assert answer.headers["content-type"].partition(";")[0] == media
    if media == "application/json":
        assert answer.json()["rows"] == told
        return
    again = owner.upload(answer.content, {"kind": "table", "columns": columns}, "rows", media=media)
    assert again.status_code == 201, again.text
    as_json = owner.upload(json.dumps(told).encode(), {"kind": "table", "columns": columns}, "rows.json")
    assert again.json()["fingerprint"] == as_json.json()["fingerprint"]


def test_dummies_of_other_kinds_are_json(owner: Caller) -> None:
    answer = owner.get(f"/v1/datasets/{owner.dataset()}/dummy", headers={"Accept": "text/csv"})
    assert len(answer.json()["rows"]) == 20


def test_directions_of_a_table_are_about_a_centre_unless_that_is_refused(owner: Caller) -> None:
    """All penguins weigh near 4.2 kg of 0 to 100: without a centre that is the first direction."""
    columns = [dict(column) for column in penguin_files.SCHEMA["columns"]]
    columns[5] |= {"low": 0, "high": 100_000}
    dataset = uploaded(owner, columns=columns)
    chosen: dict[str, Any] = {"rank": 1, "columns": ["body_mass_g", "year"]}
    usual = owner.estimate(dataset, kind="robust-pca", epsilon=50.0, **chosen).json()
    said = owner.estimate(dataset, kind="robust-pca", epsilon=50.0, center=True, **chosen).json()
    assert (said["id"], said["reused"]) == (usual["id"], True)
    without = owner.estimate(dataset, kind="robust-pca", epsilon=50.0, center=False, **chosen).json()
    assert without["id"] != usual["id"]
    assert without["estimate"]["center"] is None
    names = usual["estimate"]["columns"]
    mass, year = (names.index(name) for name in ("body_mass_g", "year"))
    assert abs(usual["estimate"]["basis"][year][0]) > 0.9
    assert abs(without["estimate"]["basis"][mass][0]) > 0.6
    assert usual["estimate"]["center"][mass] == pytest.approx(-0.916, abs=0.05)


def test_vectors_have_a_centre_only_where_it_is_asked_for(owner: Caller) -> None:
    schema = {"kind": "vectors", "dim": 3}
    dataset = owner.dataset(np.random.default_rng(0).normal(size=(200, 3)), schema)
    first = owner.estimate(dataset, kind="robust-pca", rank=1).json()
    assert first["estimate"]["center"] is None
    again = owner.estimate(dataset, kind="robust-pca", rank=1, center=False).json()
    assert again["id"] == first["id"]


def test_workers_of_a_cluster_sum_the_same_records_through_the_recipe(tmp_path: Path) -> None:
    shape = SCHEMA.validate_python(penguin_files.SCHEMA).shape(9000)
    assert isinstance(shape, TableMetadata)
    made = metadata_for(PointsMetadata, shape, TableChoice(tuple(MEASURES)))
    assert made.recipe is not None
    rows, path = shape.dummy(9000, np.random.default_rng(3)), tmp_path / "rows.npy"
    np.save(path, rows)
    loss = SquaredDistance(Euclidean(made.recipe.width))
    summed = ChunkSum(loss, np.zeros(made.recipe.width), 3.0, 2.0**-30, grouped=False)
    sent = pickle.dumps((summed, made.recipe))
    parts = [part_of_sum(str(path), start, stop, sent) for start, stop in ((0, 1), (1, 3))]
    assert all(part is not None for part in parts)
    np.testing.assert_array_equal(sum(parts), Records(made.recipe(rows), 1).sum(summed))


def test_forty_columns_of_all_types_are_asked_about_together(owner: Caller) -> None:
    n, rng = 300, np.random.default_rng(4)
    frame: dict[str, Any] = {}
    columns: list[dict[str, Any]] = []
    for at in range(8):
        frame |= {
            f"n{at}": rng.normal(size=n),
            f"i{at}": rng.integers(0, 10_000, n),
            f"b{at}": rng.random(n) < 0.3,
            f"c{at}": [["x", "y", "z", None][k] for k in rng.integers(0, 4, n)],
            f"d{at}": pa.array(rng.integers(10_000, 11_000, n).astype(np.int32), pa.date32()),
        }
        columns += [
            {"name": f"n{at}", "type": "number", "low": -3, "high": 3},
            {"name": f"i{at}", "type": "integer", "low": 0, "high": 10_000},
            {"name": f"b{at}", "type": "boolean"},
            {"name": f"c{at}", "type": "category", "categories": ["x", "y", "z"], "missing": "category"},
            {"name": f"d{at}", "type": "date", "low": "1997-01-01", "high": "2001-01-01"},
        ]
    content = table_as(pa.table(frame), "parquet")
    answer = owner.upload(content, {"kind": "table", "columns": columns}, "wide.parquet")
    assert answer.status_code == 201, answer.text
    told = estimate(owner, answer.json()["id"], "frechet-mean")["columns"]
    assert len(told) == 64
    days = [each for each in told if each["name"].startswith("d")]
    assert all("1997-01-01" <= each["low"] <= each["value"] <= each["high"] <= "2001-01-01" for each in days)

"""What an answer tells of its error over HTTP: however it is asked for, and beside what the plan told."""

import json
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from privest_client import Client
from privest_service.database.tables import new_id
from privest_service.jobs.models import Job
from testing.scenes import Desk, books
from testing.server import Caller, Server, told_apart

PLANE = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 2)))[0]
LABELLED = {
    "kind": "labelled",
    "features": ["a", "b"],
    "label": "y",
    "classes": ["0", "1"],
    "mean": [10, 0],
    "scale": [2, 0.1],
}
QUESTIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "frechet-mean": (
        "frechet-mean",
        {"kind": "points", "manifold": {"name": "euclidean", "dim": 2}, "radius": 40.0},
        {},
    ),
    "a mean with a clip": (
        "frechet-mean",
        {"kind": "points", "manifold": {"name": "euclidean", "dim": 2}, "radius": 40.0},
        {"clip": 0.1},
    ),
    "robust-pca": ("robust-pca", {"kind": "vectors", "dim": 5}, {"rank": 2}),
    "matrix-completion": (
        "matrix-completion",
        {"kind": "partial-vectors", "dim": 5, "known": 0.75},
        {"rank": 2},
    ),
    "logistic-regression": ("logistic-regression", LABELLED, {}),
    "classifier-score": ("classifier-score", LABELLED, {"coefficients": [1.0, 0.0], "intercept": -10.0}),
}


def rows_of(schema: dict[str, Any]) -> np.ndarray:
    rng = np.random.default_rng(2)
    if schema["kind"] == "labelled":
        return told_apart(1000, apart=2.0)
    if schema["kind"] == "points":
        return np.exp(rng.standard_normal((1000, 2)))
    rows = rng.standard_normal((1000, 2)) @ PLANE.T + 0.05 * rng.standard_normal((1000, 5))
    if schema["kind"] == "partial-vectors":
        rows[rng.random(rows.shape) < 0.25] = np.nan
    return rows


@pytest.fixture
def backend() -> str:
    """One database: what is told does not depend on which."""
    return "sqlite"


@pytest.fixture
def owner(server: Server) -> Caller:
    """An owner with a budget."""
    return server.owner(epsilon=50.0, delta=1e-2)


TOLD = ("estimate", "uncertainty", "forecast", "warnings")


def check(job: dict[str, Any], plan: dict[str, Any]) -> None:
    """Fail where an answer does not tell of its error, or not what its plan told."""
    found, foretold = job["uncertainty"], plan["expected_error"]
    assert found["of"]
    assert job["forecast"] == foretold
    assert foretold["assumes"]
    told = [*plan["warnings"], *found["warnings"]]
    surprising = found["radius_95"] > 2 * foretold["radius_95"]
    assert job["warnings"][: len(told)] == told
    assert len(job["warnings"]) == len(told) + surprising
    assert not surprising or "times what the plan foretold" in job["warnings"][-1]


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_tells_the_same_however_it_is_asked_for(owner: Caller, question: str) -> None:
    kind, schema, options = QUESTIONS[question]
    dataset = owner.dataset(rows_of(schema), schema)
    asked = {"kind": kind, "epsilon": 1.0, "delta": 1e-6, **options}
    plan = owner.plan(dataset, **asked).json()
    handle = owner.estimate(dataset, key=f"{question} once", wait=0, **asked)
    assert handle.status_code in (200, 202)
    job = owner.ended(handle.json()["id"])
    check(job, plan)
    replayed = owner.estimate(dataset, key=f"{question} once", **asked).json()
    reused = owner.estimate(dataset, **asked).json()
    assert reused["reused"]
    for again in (replayed, reused):
        assert [again[name] for name in TOLD] == [job[name] for name in TOLD]
    with Client(owner.server.url, owner.key, progress=False) as client:
        found = client.wait(job["id"])
        assert found.warnings == job["warnings"]
        assert found.forecast.model_dump(exclude_none=True).items() <= job["forecast"].items()
        said = " ".join(repr(found).split())
        for words in ("off by at most", "by the noise alone", "error foretold", "which assumes"):
            assert words in said
        assert ("not foretold" in said) == ("untold" in job["forecast"]) == (kind == "logistic-regression")
    page = Desk(owner.server, owner.key).get(f"/answers/{job['id']}").text
    for words in (job["uncertainty"]["of"], "Foretold by the plan", *job["uncertainty"]["unknown"]):
        assert words in page
    assert page.count("<li>") == len(job["uncertainty"]["unknown"]) + len(job["warnings"])


def test_the_page_of_a_plan_says_what_is_not_foretold(owner: Caller) -> None:
    asked, schema, _ = next(each for each in QUESTIONS.values() if each[0] == "logistic-regression")
    dataset = owner.dataset(rows_of(schema), schema)
    page = Desk(owner.server, owner.key).get(f"/what-if?dataset={dataset}&kind={asked}&epsilon=1").text
    assert "Not foretold is the share of right answers" in page


@pytest.mark.few(2)
@pytest.mark.parametrize("question", QUESTIONS)
def test_so_it_does_where_several_datasets_are_asked_about(owner: Caller, question: str) -> None:
    kind, schema, options = QUESTIONS[question]
    rows = rows_of(schema)
    datasets = [owner.dataset(half, schema) for half in (rows[:700], rows[700:])]
    body = {"dataset": [{"id": each} for each in datasets], "privacy": {"epsilon": 1.0, "delta": 1e-6}}
    plan = owner.post(f"/v1/estimates/{kind}/plan", json=body | options).json()
    headers = {"Idempotency-Key": question, "Prefer": "wait=240"}
    answer = owner.post(f"/v1/estimates/{kind}", headers=headers, json=body | options)
    assert answer.status_code == 200, answer.text
    check(answer.json(), plan)
    assert any("every one of these datasets" in words for words in answer.json()["warnings"])


def test_a_clip_that_cuts_off_most_records_is_a_surprise(owner: Caller) -> None:
    kind, schema, options = QUESTIONS["a mean with a clip"]
    dataset = owner.dataset(rows_of(schema), schema)
    job = owner.estimate(dataset, kind=kind, epsilon=1.0, **options).json()
    assert "times what the plan foretold" in job["warnings"][-1]
    assert job["uncertainty"]["radius_95"] > 2 * job["forecast"]["radius_95"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_of_before_are_shown_with_their_forecast(owner: Caller, question: str) -> None:
    """As they were stored when neither plans nor answers had more to tell than a forecast."""
    kind, schema, options = QUESTIONS[question]
    dataset = owner.dataset(rows_of(schema), schema)
    job = owner.estimate(dataset, kind=kind, epsilon=1.0, **options).json()
    with books(owner.server) as database, database.write() as session:
        stored = session.scalars(select(Job).where(Job.id == job["id"])).one()
        content = {column.name: getattr(stored, column.name) for column in Job.__table__.columns}
        result, plan = json.loads(content["result"]), json.loads(content["plan"])
        del result["uncertainty"]
        for name in ("assumes", "unfavourable", *(["radius_95"] if kind == "logistic-regression" else [])):
            del plan["expected_error"][name]
        before = {"id": new_id("job"), "result": json.dumps(result), "plan": json.dumps(plan)}
        session.add(Job(**content | before | {"receipt": None, "dummy": True}))  # no debit is its own
    again = owner.get(f"/v1/jobs/{before['id']}")
    assert again.status_code == 200, again.text
    told = again.json()
    assert told["estimate"] == job["estimate"]
    assert told["uncertainty"]["of"] is None
    deviation = told["uncertainty"]["standard_deviation"]
    assert deviation == told["forecast"]["standard_deviation"] == job["forecast"]["standard_deviation"]
    page = Desk(owner.server, owner.key).get(f"/answers/{before['id']}")
    assert "did not look at its own error" in page.text
    with Client(owner.server.url, owner.key, progress=False) as client:
        assert "error foretold" in repr(client.wait(before["id"]))

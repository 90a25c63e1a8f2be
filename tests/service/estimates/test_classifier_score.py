"""Scores of classifiers over HTTP: what a logistic regression answered goes in, a noisy score comes out."""

import json
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from testing import server
from testing.server import LABELLED, SPD3, Caller, Server, npy, problem


@pytest.fixture
def backend() -> str:
    """One database will do, as it plays no part here."""
    return "sqlite"


PRIVACY = {"epsilon": 2.0, "delta": 1e-6}
ASK = PRIVACY | {"kind": "classifier-score", "coefficients": [0.7, 4.0], "intercept": -7.5}
MARK = 98765.4321

only_on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests in which no database plays a part."""

metrics = pytest.mark.parametrize("metric", ["accuracy", "auc"])


told_apart = partial(server.told_apart, apart=2.0)

_datasets: dict[str, tuple[Caller, str]] = {}


@pytest.fixture
def asked(server: Server) -> tuple[Caller, str]:
    """An owner with budget for all that is asked here, and its labelled rows."""
    if server.url not in _datasets:
        owner = server.owner(epsilon=100.0, delta=1e-3)
        _datasets[server.url] = owner, owner.dataset(told_apart(), LABELLED)
    return _datasets[server.url]


@metrics
def test_a_fitted_classifier_is_scored_for_what_the_plan_said(asked: tuple[Caller, str], metric: str) -> None:
    owner, dataset = asked
    fitted = owner.estimate(dataset, **PRIVACY, kind="logistic-regression").json()["estimate"]
    pasted = {name: fitted[name] for name in ("coefficients", "intercept")}
    ask = PRIVACY | pasted | {"kind": "classifier-score", "metric": metric, "reuse": False}
    planned = owner.plan(dataset, **ask).json()
    assert planned["metric"] == metric
    assert (planned["bins"] is None) == (metric == "accuracy")
    assert planned["steps"] == 1
    before = owner.budget()["queries"]
    answer = owner.estimate(dataset, **ask)
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert job["state"] == "committed"
    assert owner.budget()["queries"] == before + 1
    assert job["charges"][0]["mu_squared"] == pytest.approx(planned["privacy"]["mu"] ** 2, abs=3e-12)
    assert "on these records" in job["uncertainty"]["of"]
    assert job["uncertainty"]["radius_95"] <= planned["expected_error"]["unfavourable"]
    found, rows = job["estimate"], told_apart()
    assert found["metric"] == metric
    scores = rows[:, :2] @ np.array(fitted["coefficients"]) + fitted["intercept"]
    right = float(np.mean((scores > 0) == rows[:, 2]))
    true = right if metric == "accuracy" else float(roc_auc_score(rows[:, 2], scores))
    # Six standard errors, and for an area what the bins leave: a false alarm once in 10⁸ runs.
    off = 1.2 / planned["bins"] ** 2 if metric == "auc" else 0.0
    assert found["value"] == pytest.approx(true, abs=6 * found["standard_error"] + off)
    assert 0 < found["standard_error"] < 0.05
    assert 0 < found["sampling_error"] < 0.02
    inside, outside = found["these_records"], found["population"]
    assert outside["low"] < inside["low"] <= found["value"] <= inside["high"] < outside["high"]
    if metric == "accuracy":
        assert found["standard_error"] == planned["expected_error"]["standard_deviation"]
        assert found["accuracy"] is None
    else:
        other = found["accuracy"]
        assert other["value"] == pytest.approx(right, abs=6 * other["standard_error"])


@only_on_sqlite
def test_the_same_question_again_is_free_and_another_classifier_is_not(asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    first = owner.estimate(dataset, **ASK).json()
    spent = owner.budget()["spent"]
    again = owner.estimate(dataset, **ASK | {"intercept": -7.5, "metric": "accuracy"}).json()
    assert again["reused"]
    assert again["estimate"] == first["estimate"]
    assert owner.budget()["spent"] == spent
    other = owner.estimate(dataset, **ASK | {"intercept": -7}).json()
    assert not other["reused"]
    assert owner.budget()["spent"]["mu"] > spent["mu"]


@only_on_sqlite
def test_more_than_two_classes_have_a_row_each(server: Server) -> None:
    owner = server.owner(epsilon=20.0)
    rows = told_apart(3000, 3)
    dataset = owner.dataset(rows, LABELLED | {"classes": ["0", "1", "2"]})
    ask = ASK | {"coefficients": [[-1, 0], [0, 0], [1, 0.5]], "intercept": [8, 0, -12]}
    found = owner.estimate(dataset, **ask).json()["estimate"]
    said = np.argmax(rows[:, :2] @ np.array(ask["coefficients"]).T + ask["intercept"], axis=1)
    true = np.mean(said == rows[:, 2])
    assert 0.5 < true < 0.95
    assert found["value"] == pytest.approx(true, abs=6 * found["standard_error"])
    for wrong in (
        {"metric": "auc"},
        {"intercept": 0.0},
        {"intercept": [0.0, 0.0]},
        {"coefficients": [1.0, 2.0]},
        {"coefficients": [[1.0, 2.0]] * 2},
    ):
        problem(owner.estimate(dataset, **ask | wrong), 422, "invalid")


@only_on_sqlite
@metrics
def test_a_pure_budget_is_served_with_laplace_noise(server: Server, metric: str) -> None:
    owner = server.owner(epsilon=4.0, delta=0.0, composition="basic")
    dataset = owner.dataset(told_apart(), LABELLED)
    ask = {name: part for name, part in ASK.items() if name != "delta"} | {"epsilon": 1.0, "metric": metric}
    planned = owner.plan(dataset, **ask).json()
    assert planned["privacy"]["delta"] == 0.0
    assert {release["noise"] for release in planned["releases"]} == {
        "laplace" if metric == "accuracy" else "independent-laplace"
    }
    job = owner.estimate(dataset, **ask).json()
    assert job["state"] == "committed"
    assert owner.budget()["spent"]["epsilon"] == pytest.approx(1.0)


@only_on_sqlite
@metrics
def test_a_basic_budget_with_delta_is_charged_no_delta_for_laplace_noise(server: Server, metric: str) -> None:
    owner = server.owner(epsilon=4.0, delta=1e-3, composition="basic")
    dataset = owner.dataset(told_apart(), LABELLED)
    planned = owner.plan(dataset, **ASK, metric=metric).json()
    assert "laplace" in planned["releases"][0]["noise"]
    job = owner.estimate(dataset, **ASK, metric=metric).json()
    assert job["state"] == "committed"
    spent = owner.budget()["spent"]
    assert (spent["epsilon"], spent["delta"]) == (ASK["epsilon"], 0.0)
    if metric == "accuracy":
        rows = len(told_apart())
        assert job["estimate"]["standard_error"] == pytest.approx(2**0.5 / (ASK["epsilon"] * rows), rel=1e-6)


@pytest.mark.few(3)
@only_on_sqlite
@metrics
@pytest.mark.parametrize(
    "hard",
    [
        told_apart(60) * [1, 1, 0],
        told_apart(60) * [0, 0, 1],
        np.repeat(told_apart(1), 60, axis=0),
        told_apart(60) * [1e307, 1e308, 1],
    ],
    ids=["one class", "zero features", "one record", "huge"],
)
def test_what_rows_hold_changes_nothing_but_the_numbers(
    server: Server, hard: np.ndarray, metric: str
) -> None:
    owner = server.owner(epsilon=20.0)
    usual, odd = (owner.dataset(rows, LABELLED) for rows in (told_apart(60), hard))
    ask = ASK | {"metric": metric}
    plans = [owner.plan(dataset, **ask).json() for dataset in (usual, odd)]
    assert plans[0] == plans[1]
    jobs = [owner.estimate(dataset, **ask).json() for dataset in (usual, odd)]
    assert [job["state"] for job in jobs] == ["committed"] * 2
    assert jobs[0]["uncertainty"].keys() == jobs[1]["uncertainty"].keys()
    for job in jobs:
        assert 0 < job["uncertainty"]["radius_95"] <= 1
        assert 0 <= job["estimate"]["value"] <= 1
        assert job["estimate"]["standard_error"] > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"coefficients": [MARK]},
        {"coefficients": [MARK, 1.0, 1.0]},
        {"coefficients": [[MARK, 1.0]]},
        {"coefficients": [[MARK], 1.0]},
        {"coefficients": []},
        {"coefficients": [str(MARK), 1.0]},
        {"coefficients": [MARK, None]},
        {"coefficients": [MARK, True]},
        {"coefficients": MARK},
        {"coefficients": {"a": MARK}},
        {"intercept": [MARK]},
        {"intercept": str(MARK)},
        {"intercept": None},
        {"intercept": False},
        {"metric": "f1"},
        {"metric": None},
        {"rank": 2},
        {"coefficients": [1e308, 1e308], "intercept": 1e308, "metric": "auc"},
    ],
    ids=str,
)
def test_bad_questions_are_refused_before_anything_is_charged(asked: tuple[Caller, str], wrong: dict) -> None:
    owner, dataset = asked
    before = owner.budget()
    for answer in (owner.plan(dataset, **ASK | wrong), owner.estimate(dataset, **ASK | wrong)):
        problem(answer, 422, "invalid")
        assert "98765" not in answer.text
    assert owner.budget() == before


@only_on_sqlite
@pytest.mark.parametrize("spelt", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400])
@pytest.mark.parametrize("field", ["coefficients", "intercept"])
def test_what_is_no_finite_number_is_refused(asked: tuple[Caller, str], field: str, spelt: str) -> None:
    owner, dataset = asked
    body = {"dataset": {"id": dataset}, "privacy": PRIVACY, "coefficients": [0.5, 1.0], "intercept": 0.25}
    sent = json.dumps(body).replace("0.5" if field == "coefficients" else "0.25", spelt)
    assert spelt in sent
    before = owner.budget()
    for path in ("/v1/estimates/classifier-score", "/v1/estimates/classifier-score/plan"):
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"{field} {spelt[:9]}"}
        problem(owner.post(path, content=sent, headers=headers), 422, "invalid")
    assert owner.budget() == before


@only_on_sqlite
def test_the_classifier_is_needed_and_the_data_must_be_labelled(asked: tuple[Caller, str]) -> None:
    owner, dataset = asked
    for name in ("coefficients", "intercept"):
        document = problem(
            owner.plan(dataset, **{field: part for field, part in ASK.items() if field != name}),
            422,
            "invalid",
        )
        assert document["faults"][0]["location"] == name
    told = problem(owner.plan(dataset, **ASK | {"coefficients": [1.0]}), 422, "invalid")
    assert told["detail"] == "coefficients must be a list of 2 numbers"
    points = owner.upload(npy(np.stack([np.eye(3)] * 5)), SPD3).json()["id"]
    problem(owner.plan(points, **ASK), 422, "invalid")


@only_on_sqlite
def test_an_analyst_pays_from_its_cap_and_is_refused_beyond(server: Server) -> None:
    owner, analyst = server.owner(epsilon=10.0), server.analyst()
    dataset = owner.dataset(told_apart(), LABELLED)
    problem(analyst.estimate(dataset, **ASK), 404, "not-found")
    owner.grant(dataset, analyst, epsilon=2.5, delta=2e-6)
    job = analyst.estimate(dataset, **ASK).json()
    assert job["state"] == "committed"
    problem(analyst.estimate(dataset, **ASK | {"metric": "auc"}), 409, "budget-exceeded")
    assert owner.budget()["queries"] == 1

"""A choice among classifiers over HTTP: one question, one charge, one winner."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

from privest_client import Client
from privest_client.answers import SelectedClassifier
from testing import server
from testing.server import LABELLED, Server, problem


@pytest.fixture
def backend() -> str:
    """One database will do, as it plays no part here."""
    return "sqlite"


told_apart = partial(server.told_apart, apart=2.0)
CANDIDATES: list[dict[str, Any]] = [
    {"features": ["b"]},
    {"solver": "clipped", "features": ["a"]},
    {"solver": "newton", "penalty": 0.5, "features": ["b"]},
]
ASK: dict[str, Any] = {
    "kind": "classifier-selection",
    "epsilon": 8.0,
    "delta": 1e-6,
    "candidates": CANDIDATES,
}


def test_one_question_has_one_winner_for_what_the_plan_said(server: Server) -> None:
    """The classes are told apart by `a` alone: the second candidate leads by some forty standard errors."""
    owner = server.owner(epsilon=100.0, delta=1e-3)
    dataset = owner.dataset(told_apart(4000), LABELLED)
    planned = owner.plan(dataset, **ASK).json()
    assert planned["chooses"]
    assert planned["solvers"] == ["newton", "clipped", "newton"]
    assert planned["each_alone"] > ASK["epsilon"]
    assert {release.get("run") for release in planned["releases"]} == {None, 0, 1, 2}
    before = owner.budget()["queries"]
    job = owner.estimate(dataset, **ASK).json()
    assert job["state"] == "committed"
    assert owner.budget()["queries"] == before + 1
    assert job["charges"][0]["mu_squared"] == pytest.approx(planned["privacy"]["mu"] ** 2, abs=3e-12)
    found = job["estimate"]
    assert found["winner"] == 1
    assert found["features"] == ["a"]
    assert len(found["coefficients"]) == 1
    assert found["score_error"] == planned["score_error"]
    # Six standard errors: a false alarm once in 10⁸ runs.
    assert found["scores"][0] == pytest.approx(0.5, abs=0.05 + 6 * found["score_error"])
    assert owner.estimate(dataset, **ASK).json()["reused"]
    exported = owner.get(f"/v1/jobs/{job['id']}/model", params={"format": "pmml"})
    assert exported.status_code == 200, exported.text


def test_a_client_chooses_and_predicts(server: Server) -> None:
    owner = server.owner(epsilon=100.0, delta=1e-3)
    rows = told_apart(4000)
    dataset = owner.dataset(rows, LABELLED)
    with Client(server.url, owner.key) as client:
        found = client.classifier_selection(dataset, candidates=CANDIDATES, epsilon=8.0)
    assert isinstance(found, SelectedClassifier)
    assert found.winner == 1
    assert found.candidate_scores.shape == (3,)
    assert found.feature_names == ["a"]
    assert np.mean(np.array(found.predict(rows[:, :1])) == rows[:, 2].astype(int).astype(str)) > 0.8


def test_where_noise_would_choose_the_first_has_the_whole_budget(server: Server) -> None:
    owner = server.owner(epsilon=10.0)
    dataset = owner.dataset(told_apart(200), LABELLED)
    little: dict[str, Any] = ASK | {"epsilon": 0.5}
    planned = owner.plan(dataset, **little).json()
    assert not planned["chooses"]
    assert planned["warnings"][0].startswith("there is no choice")
    job = owner.estimate(dataset, **little).json()
    assert job["estimate"]["winner"] == 0
    assert job["estimate"]["scores"] == []
    assert job["warnings"][0].startswith("there is no choice")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([], "candidates"),
        ([{}], "candidates"),
        ([{}] * 21, "candidates"),
        ([{}, {}], "candidates must differ"),
        ([{}, {"solver": "best"}], "candidates.1.solver"),
        ([{}, {"colour": "red"}], "candidates.1.colour"),
        ([{}, {"penalty": -1}], "candidates.1.penalty"),
        ([{}, {"features": []}], "candidates.1.features"),
        ([{}, {"features": ["c"]}], "candidates[1]: the question has no feature c"),
        ([{}, {"solver": "gd", "batch_size": 5}], "candidates[1]: the solver spider and batch_size"),
        ({"solver": "newton"}, "candidates"),
        ([1, 2], "candidates.0"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(server: Server, wrong: Any, said: str) -> None:
    owner = server.owner(epsilon=10.0)
    dataset = owner.dataset(told_apart(60), LABELLED)
    for answer in (
        owner.plan(dataset, **ASK | {"candidates": wrong}),
        owner.estimate(dataset, **ASK | {"candidates": wrong}),
    ):
        assert said in json.dumps(problem(answer, 422, "invalid"), ensure_ascii=False)
    assert owner.budget()["queries"] == 0


def test_several_datasets_are_refused_where_there_is_a_choice(server: Server) -> None:
    owner = server.owner(epsilon=100.0, delta=1e-3)
    both = [{"id": owner.dataset(told_apart(4000), LABELLED)} for _ in range(2)]
    body = {"dataset": both, "privacy": {"epsilon": 8.0, "delta": 1e-6}, "candidates": CANDIDATES}
    refused = problem(owner.post("/v1/estimates/classifier-selection/plan", json=body), 422, "invalid")
    assert "one dataset only" in json.dumps(refused)

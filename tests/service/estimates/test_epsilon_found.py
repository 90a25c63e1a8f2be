"""Plans that find their ε, for an accuracy or a share of what is left: free, and of public facts alone."""

from typing import Any

import numpy as np
import pytest

from testing.server import Caller, Server, problem

COLUMNS = [
    {"name": "age", "type": "number", "low": 0, "high": 100},
    {"name": "income", "type": "number"},
    {"name": "kind", "type": "category", "categories": ["a", "b"]},
]
TABLE = {"kind": "table", "columns": COLUMNS}


@pytest.fixture
def backend() -> str:
    """One database: plans read what both hold alike."""
    return "sqlite"


@pytest.fixture
def owner(server: Server) -> Caller:
    """An owner with a budget."""
    return server.owner(epsilon=3.0, delta=1e-5)


@pytest.fixture
def people(owner: Caller) -> str:
    """A table of three thousand people, one column without bounds."""
    rng = np.random.default_rng(5)
    rows = [
        f"{age:.1f},{1000 * rng.random():.2f},{rng.choice(['a', 'b'])}" for age in rng.uniform(20, 70, 3000)
    ]
    content = "age,income,kind\n" + "\n".join(rows)
    return owner.upload(content.encode(), TABLE, "people.csv", "text/csv").json()["id"]


def plan(owner: Caller, dataset: Any, kind: str = "frechet-mean", **body: Any) -> dict[str, Any]:
    about = {"id": dataset} if isinstance(dataset, str) else dataset
    answer = owner.post(f"/v1/estimates/{kind}/plan", json={"dataset": about} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_least_epsilon_for_an_accuracy_is_what_to_ask_with(owner: Caller, people: str) -> None:
    chosen = {"columns": ["age", "kind"]}
    wanted = {"target": {"columns": {"age": 2.0, "kind": 0.05}}}
    found = plan(owner, people, privacy=wanted, **chosen)
    told = {column["name"]: column["radius_95"] for column in found["columns"]}
    assert max(told["age"] / 2.0, told["kind=a"] / 0.05, told["kind=b"] / 0.05) <= 1
    epsilon = found["privacy"]["epsilon"]
    assert plan(owner, people, privacy={"epsilon": epsilon}, **chosen) == found
    less = plan(owner, people, privacy={"epsilon": epsilon / 1.06}, **chosen)
    told = {column["name"]: column["radius_95"] for column in less["columns"]}
    assert max(told["age"] / 2.0, told["kind=a"] / 0.05) > 1
    answer = owner.estimate(people, epsilon=epsilon, **chosen).json()
    assert answer["charges"][0]["epsilon"] == epsilon


@pytest.mark.few(4)
@pytest.mark.parametrize("figure", ["radius_95", "standard_deviation", "unfavourable"])
@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        ("frechet-mean", {"columns": ["age", "income"]}),
        ("robust-pca", {"columns": ["age", "income"], "rank": 1}),
        ("logistic-regression", {"label": "kind", "features": ["age"]}),
        ("bounds", {"columns": ["age"]}),
    ],
)
def test_every_figure_of_every_kind(
    owner: Caller, people: str, kind: str, chosen: dict[str, Any], figure: str
) -> None:
    foretold = plan(owner, people, kind, privacy={"epsilon": 20}, **chosen)["expected_error"][figure]
    body = {"dataset": {"id": people}, "privacy": {"target": {figure: foretold or 1.0}}, **chosen}
    answer = owner.post(f"/v1/estimates/{kind}/plan", json=body)
    if foretold is None:
        assert f"Nothing foretells {figure}" in problem(answer, 422, "invalid")["detail"]
        return
    found = answer.json()
    assert found["expected_error"][figure] <= foretold
    assert found["privacy"]["epsilon"] <= 20 * 1.05


@pytest.mark.parametrize(
    ("kind", "chosen", "figure"),
    [
        ("frechet-mean", {"columns": ["age", "income"]}, "radius_95"),
        ("robust-pca", {"columns": ["age", "income"], "rank": 1, "loss": "squared"}, "unfavourable"),
        ("bounds", {"columns": ["age"]}, "radius_95"),
    ],
)
def test_within_is_the_figure_that_holds_for_all_rows(
    owner: Caller, people: str, kind: str, chosen: dict[str, Any], figure: str
) -> None:
    foretold = plan(owner, people, kind, privacy={"epsilon": 20}, **chosen)["expected_error"][figure]
    wanted = {"target": {"within": foretold}}
    found = plan(owner, people, kind, privacy=wanted, **chosen)
    assert found["expected_error"][figure] <= foretold
    assert found["privacy"]["epsilon"] == pytest.approx(20, rel=0.05)


def test_no_epsilon_holds_for_all_rows_of_coefficients(owner: Caller, people: str) -> None:
    chosen = {"label": "kind", "features": ["age"], "privacy": {"target": {"within": 0.1}}}
    answer = owner.post("/v1/estimates/logistic-regression/plan", json={"dataset": {"id": people}, **chosen})
    assert "No ε reaches this" in problem(answer, 422, "invalid")["detail"]


def test_a_share_of_what_is_left_leaves_the_rest(owner: Caller, people: str) -> None:
    chosen = {"columns": ["age", "kind"]}
    for share in (0.5, 0.9, 1.0):
        room = plan(owner, people, privacy={"epsilon": 0.1}, **chosen)["room"]
        found = plan(owner, people, privacy={"share": share}, **chosen)
        taken, left = found["room"]["share"], room["left"]
        assert taken <= share * left
        assert taken >= 0.99 * share * left
        answer = owner.estimate(people, epsilon=found["privacy"]["epsilon"], **chosen)
        assert answer.json()["state"] == "committed", answer.text
    again = owner.post(
        "/v1/estimates/frechet-mean/plan",
        json={"dataset": {"id": people}, "privacy": {"share": 0.5, "delta": 1e-12}, **chosen},
    )
    assert again.status_code == 422 or again.json()["room"]["share"] <= 0.5 * again.json()["room"]["left"]


def test_of_several_datasets_of_one_budget_each_takes_its_part(owner: Caller, people: str) -> None:
    other = owner.upload(b"age,income,kind\n1,2,a\n" + b"3,4,b\n" * 500, TABLE, "other.csv", "text/csv")
    both = [{"id": people}, {"id": other.json()["id"]}]
    found = plan(owner, both, columns=["age", "kind"], privacy={"share": 0.5})
    assert 0.2 < found["room"]["share"] <= 0.5
    precise = plan(owner, both, columns=["age", "kind"], privacy={"target": {"columns": {"age": 3}}})
    assert precise["columns"][0]["radius_95"] <= 3


def test_an_analyst_finds_shares_of_its_own_cap_and_learns_of_no_other(
    server: Server, owner: Caller, people: str
) -> None:
    capped, free = server.analyst(), server.analyst()
    owner.grant(people, capped, epsilon=0.5, delta=1e-6)
    owner.grant(people, free)
    body = {"dataset": {"id": people}, "columns": ["age"], "privacy": {"share": 1.0, "delta": 5e-7}}
    found = capped.post("/v1/estimates/frechet-mean/plan", json=body).json()
    assert found["room"]["scope"] == "analyst"
    assert 0.4 < found["privacy"]["epsilon"] < 0.55  # of another δ
    assert 0.99 < found["room"]["share"] <= found["room"]["left"] == 1
    refused = problem(free.post("/v1/estimates/frechet-mean/plan", json=body), 422, "invalid")
    assert "no cap" in refused["detail"]


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({}, "exactly one of epsilon, target, share"),
        ({"epsilon": 1, "share": 0.5}, "exactly one of epsilon, target, share"),
        ({"target": {}}, "exactly one of"),
        ({"target": {"radius_95": 1, "columns": {"age": 1}}}, "exactly one of"),
        ({"target": {"columns": {}}}, "columns"),
        ({"target": {"columns": {"age": 0}}}, "above 0"),
        ({"target": {"radius_95": -1}}, "above 0"),
        ({"target": {"accuracy": 1}}, "accuracy"),
        ({"share": 1.5}, "at most 1"),
        ({"share": 0}, "above 0"),
        ({"target": {"columns": {"height": 1}}}, "no column height. Its columns are: age, kind"),
        ({"target": {"columns": {"age": 1e-9}}}, "No ε reaches this"),
        ({"target": {"columns": {"age": 1e9}}}, "by public facts alone"),
        ({"target": {"columns": {"age": 1}}, "delta": 2}, "below 1"),
        ({"share": 0.5, "delta": 0}, "With δ = 0 no ε follows"),
    ],
)
def test_what_cannot_be_found_is_refused_in_words(
    owner: Caller, people: str, privacy: dict[str, Any], said: str
) -> None:
    body = {"dataset": {"id": people}, "columns": ["age", "kind"], "privacy": privacy}
    refused = problem(owner.post("/v1/estimates/frechet-mean/plan", json=body), 422, "invalid")
    assert said in str(refused)


def test_columns_whose_scales_are_found_are_not_foretold(owner: Caller, people: str) -> None:
    body = {"dataset": {"id": people}, "privacy": {"target": {"columns": {"age": 1}}}}
    refused = problem(owner.post("/v1/estimates/frechet-mean/plan", json=body), 422, "invalid")
    assert "low and high" in refused["detail"]
    assert plan(owner, people, privacy={"epsilon": 1})["columns"] is None


def test_only_plans_find_an_epsilon(owner: Caller, people: str) -> None:
    body = {"dataset": {"id": people}, "privacy": {"share": 0.5}}
    headers = {"Idempotency-Key": "a share"}
    problem(owner.post("/v1/estimates/frechet-mean", json=body, headers=headers), 422, "invalid")

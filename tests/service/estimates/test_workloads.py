"""Many questions in one call: their price together, and all of them charged or none."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from privest.privacy.accounting import epsilon_for, mu_for
from testing.server import Caller, Server, problem, spd

PRIVACY = {"epsilon": 0.1, "delta": 1e-7}


@pytest.fixture
def owner(server: Server) -> Caller:
    """An owner with a budget of ε = 1."""
    return server.owner(epsilon=1.0, delta=1e-5)


def mean(dataset: Any, epsilon: float = 0.1, **body: Any) -> dict[str, Any]:
    """A mean of a dataset's, as one question of several."""
    about = dataset if isinstance(dataset, list) else {"id": dataset}
    privacy = {"epsilon": epsilon, "delta": 1e-7}
    return {"kind": "frechet-mean", "body": {"dataset": about, "privacy": privacy} | body}


def price(caller: Caller, *questions: dict[str, Any]) -> dict[str, Any]:
    answer = caller.post("/v1/plans", json={"questions": list(questions)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def ask(caller: Caller, *questions: dict[str, Any], key: str = "k") -> httpx.Response:
    return caller.post("/v1/estimates", json={"questions": list(questions)}, headers={"Idempotency-Key": key})


def test_the_price_is_what_is_charged(owner: Caller) -> None:
    dataset = owner.dataset()
    questions = [mean(dataset, 0.1), mean(dataset, 0.2), mean(dataset, 0.2, steps=3)]
    told = price(owner, *questions)
    assert [plan["privacy"]["epsilon"] for plan in told["plans"]] == [0.1, 0.2, 0.2]
    (total,) = told["datasets"]
    assert (total["dataset"], total["questions"], total["delta"]) == (dataset, 3, 1e-7)
    mu_squared = sum(plan["privacy"]["mu"] ** 2 for plan in told["plans"])
    assert total["sequence"]["mu"] ** 2 == pytest.approx(mu_squared)
    assert total["together"] == total["sequence"]  # Gaussian sums have nothing to gain
    assert total["sequence"]["epsilon"] == pytest.approx(epsilon_for(mu_squared**0.5, 1e-7))
    assert total["sequence"]["epsilon"] < 0.5
    (limit,) = told["limits"]
    assert (limit["scope"], limit["left"], limit["covered"], told["covered"]) == ("owner", 1.0, True, True)
    jobs = ask(owner, *questions)
    assert jobs.status_code == 202, jobs.text
    assert len({job["id"] for job in jobs.json()["jobs"]}) == 3
    assert owner.budget()["share"] == pytest.approx(limit["share"], rel=1e-9)
    assert [owner.ended(job["id"])["state"] for job in jobs.json()["jobs"]] == ["committed"] * 3


def test_batches_cost_no_more_by_one_certificate(owner: Caller) -> None:
    dataset = owner.dataset(spd(3000))
    asked = [{"epsilon": epsilon, "delta": 1e-4} for epsilon in (0.5, 0.6, 0.7, 0.8)]
    (total,) = price(owner, *(mean(dataset, privacy=each, solver="rsgd") for each in asked))["datasets"]
    assert total["together"]["mu"] < total["sequence"]["mu"]
    assert total["together"]["slack"] <= total["sequence"]["slack"]


def test_all_are_charged_or_none(owner: Caller, server: Server) -> None:
    dataset = owner.dataset()
    questions = [mean(dataset, 0.3 + place / 100) for place in range(20)]
    told = price(owner, *questions)
    assert not told["covered"]
    assert told["limits"][0]["share"] > 1
    refused = problem(ask(owner, *questions), 409, "budget-exceeded")
    assert refused["detail"].startswith("Question ")
    assert refused["scope"] == "owner"
    assert owner.budget()["queries"] == 0
    assert ask(owner, *questions[:3]).status_code == 202  # a refusal leaves the key free
    assert owner.budget()["queries"] == 3


def test_a_key_is_bound_to_all_questions_in_their_order(owner: Caller) -> None:
    dataset = owner.dataset()
    first, second = mean(dataset, 0.1), mean(dataset, 0.2)
    asked = ask(owner, first, second).json()["jobs"]
    again = ask(owner, first, second).json()["jobs"]
    assert [job["id"] for job in again] == [job["id"] for job in asked]
    for other in ([second, first], [first], [first, second, mean(dataset, 0.3)]):
        problem(ask(owner, *other), 422, "idempotency-key-reused")
    reused = ask(owner, first, mean(dataset, 0.4), key="another").json()["jobs"]
    assert [job["reused"] for job in reused] == [True, False]
    twice = ask(owner, mean(dataset, 0.5), mean(dataset, 0.5), key="twice").json()["jobs"]
    assert twice[0]["id"] == twice[1]["id"]
    assert owner.budget()["queries"] == 4


@pytest.mark.both
def test_a_key_and_its_race_are_charged_once(owner: Caller, server: Server) -> None:
    dataset = owner.dataset()
    questions = [mean(dataset, 0.1 + place / 1000) for place in range(5)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask(owner, *questions), range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({tuple(job["id"] for job in answer.json()["jobs"]) for answer in answers}) == 1
    assert owner.budget()["queries"] == 5


def test_of_several_owners_one_refuses_and_nobody_is_charged(server: Server) -> None:
    owners = [server.owner(epsilon=1.0, delta=1e-5), server.owner(epsilon=0.05, delta=1e-5)]
    rich, poor = (owner.dataset() for owner in owners)
    analyst = server.analyst()
    for owner, dataset in zip(owners, (rich, poor), strict=True):
        owner.grant(dataset, analyst)
    told = price(analyst, mean(rich), mean(poor))
    assert told["limits"] == []  # an analyst without a cap knows of none
    assert {total["dataset"] for total in told["datasets"]} == {rich, poor}
    refusals = [ask(analyst, mean(rich), mean(poor), key="a"), ask(analyst, mean(poor), mean(rich), key="b")]
    assert problem(refusals[0], 409, "budget-exceeded") == problem(refusals[1], 409, "budget-exceeded")
    assert "Question" not in refusals[0].text
    assert [owner.budget()["queries"] for owner in owners] == [0, 0]
    acts = owners[1].get("/v1/acts", params={"kind": "question.refused"}).json()["acts"]
    assert {act["subject"] for act in acts} == {poor}


@pytest.mark.both
def test_crossing_workloads_do_not_wait_for_each_other(server: Server) -> None:
    owners = [server.owner(epsilon=5.0, delta=1e-5) for _ in range(2)]
    analyst = server.analyst()
    datasets = [owner.dataset() for owner in owners]
    for owner, dataset in zip(owners, datasets, strict=True):
        owner.grant(dataset, analyst, epsilon=2.0, delta=1e-5)

    def one(place: int) -> httpx.Response:
        order = datasets if place % 2 else datasets[::-1]
        return ask(analyst, *(mean(each, 0.01 + place / 1e4) for each in order), key=f"k{place}")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(24)))
    assert {answer.status_code for answer in answers} == {202}, {answer.text for answer in answers}
    assert [owner.budget()["queries"] for owner in owners] == [24, 24]


def test_what_cannot_be_one_of_several_is_refused(owner: Caller, server: Server) -> None:
    dataset, analyst = owner.dataset(), server.analyst()
    owner.grant(dataset, analyst, approval="required")
    refused = problem(ask(analyst, mean(dataset)), 422, "invalid")
    assert "Question 1: It waits for an owner's approval" in refused["detail"]
    dummy = mean([{"id": dataset, "dummy": True}])
    assert (
        "Question 2: It is about synthetic rows"
        in problem(ask(owner, mean(dataset), dummy), 422, "invalid")["detail"]
    )
    assert len(price(owner, mean(dataset), dummy)["datasets"]) == 1  # which is free
    rows = {"inline": {"schema": {"kind": "vectors", "dim": 1}, "rows": [[0.0], [1.0]]}}
    brought = {"kind": "frechet-mean", "body": {"dataset": rows, "privacy": PRIVACY}}
    for answer in (ask(owner, brought), owner.post("/v1/plans", json={"questions": [brought]})):
        assert "Upload the rows" in problem(answer, 422, "invalid")["detail"]
    refused = problem(ask(owner, mean(dataset), mean(dataset, columns=["a"])), 422, "invalid")
    assert refused["detail"].startswith("Question 2: columns choose of a table")
    problem(ask(owner, mean(dataset), mean("ds_of_nobody")), 404, "not-found")
    problem(ask(owner, *(mean(dataset) for _ in range(51))), 422, "invalid")
    problem(ask(owner), 422, "invalid")
    problem(ask(owner, mean(dataset), key="k" * 191), 422, "invalid")
    share = {"kind": "frechet-mean", "body": {"dataset": {"id": dataset}, "privacy": {"share": 0.5}}}
    problem(ask(owner, share), 422, "invalid")
    assert price(owner, share)["limits"][0]["share"] <= 0.5
    assert owner.budget()["queries"] == 0


def test_a_cap_is_held_to_all_questions_together(owner: Caller, server: Server) -> None:
    dataset, analyst = owner.dataset(), server.analyst()
    owner.grant(dataset, analyst, epsilon=0.3, delta=1e-6)
    questions = [mean(dataset, 0.1 + place / 1000) for place in range(12)]
    told = price(analyst, *questions)
    assert [limit["scope"] for limit in told["limits"]] == ["analyst"]
    assert not told["covered"]
    refused = problem(ask(analyst, *questions), 409, "budget-exceeded")
    assert refused["scope"] == "analyst"
    assert mu_for(0.3, 1e-6) ** 2 < told["datasets"][0]["sequence"]["mu"] ** 2
    assert ask(analyst, *questions[:4]).status_code == 202
    assert owner.budget()["queries"] == 4

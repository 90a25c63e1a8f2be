"""What a plan takes of budgets and caps that its caller may know, and how often they cover it."""

from typing import Any

import pytest

from testing.server import Caller, Server, books_balance, problem


def room(caller: Caller, dataset: str, **asked: float) -> dict[str, Any]:
    """What a plan says of the room that there is for it."""
    return caller.plan(dataset, **asked).json()["room"]


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(("composition", "limit"), [("basic", 0.35), ("gdp", 0.25)])
def test_a_plan_says_how_often_such_a_question_fits_for_whoever_may_know(
    server: Server, composition: str, limit: float
) -> None:
    """Asking until it is refused shows that the number is exact, and so is the largest ε that still fits."""
    owner, analyst, other = server.owner(5.0, composition=composition), server.analyst(), server.analyst()
    dataset = owner.dataset()
    assert owner.grant(dataset, analyst, epsilon=limit, delta=1e-5).status_code == 200
    assert owner.grant(dataset, other).status_code == 200
    asked = {"epsilon": 0.1, "delta": 1e-6}

    first = room(analyst, dataset, **asked)
    assert (first["covered"], first["times"] > 1) == (True, True)
    for left in range(first["times"], 0, -1):
        now = room(analyst, dataset, **asked)
        assert (now["times"], now["covered"]) == (left, True)
        assert analyst.estimate(dataset, **asked, reuse=False).status_code == 200
    now = room(analyst, dataset, **asked)
    assert (now["times"], now["covered"]) == (0, False)
    refused = problem(analyst.estimate(dataset, **asked, reuse=False), 409, "budget-exceeded")
    assert refused["room"] == now
    assert "room" not in problem(analyst.estimate("ds_none", **asked), 404, "not-found")
    assert now["epsilon"] > 0
    assert room(analyst, dataset, epsilon=now["epsilon"], delta=1e-6)["covered"] is True
    assert room(analyst, dataset, epsilon=now["epsilon"] * 1.01, delta=1e-6)["covered"] is False
    assert room(owner, dataset, **asked)["covered"] is True
    # Whoever has no cap learns nothing of the owner's budget.
    assert room(other, dataset, epsilon=80.0, delta=1e-6) is None


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_price_is_told_at_the_delta_of_the_budget_and_one_of_a_larger_delta_is_warned_of(
    server: Server,
) -> None:
    owner, analyst, other = server.owner(2.0, delta=1e-5), server.analyst(), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst, epsilon=1.0, delta=1e-6)
    owner.grant(dataset, other)
    small = owner.plan(dataset, epsilon=0.5, delta=1e-7).json()
    assert small["room"]["limit"] == {"epsilon": 2.0, "delta": 1e-5}
    assert small["room"]["cost"]["delta"] == pytest.approx(0.9e-5)
    assert small["room"]["cost"]["epsilon"] < 0.5  # at a larger δ the same noise is a smaller ε
    assert not [said for said in small["warnings"] if "above that of" in said]
    large = owner.plan(dataset, epsilon=0.1, delta=1e-3).json()
    assert large["room"]["cost"]["epsilon"] > 0.1
    assert [said for said in large["warnings"] if "0.001, is above that of your budget, 1e-05" in said]
    capped = analyst.plan(dataset, epsilon=0.1, delta=1e-5).json()
    assert [said for said in capped["warnings"] if "above that of your cap, 1e-06" in said]
    unknown = other.plan(dataset, epsilon=0.1, delta=1e-3).json()  # who knows of no limit is told of none
    assert not [said for said in unknown["warnings"] if "above that of" in said]
    assert owner.estimate(dataset, epsilon=0.5, delta=1e-7).status_code == 200
    spent = owner.budget()["spent"]["epsilon"]
    assert spent == pytest.approx(small["room"]["cost"]["epsilon"], rel=1e-6)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_grant_that_allows_less_for_one_question_does_not_cover_more(server: Server) -> None:
    owner, analyst = server.owner(4.0, delta=1e-5), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst, epsilon=2.0, delta=1e-5, max_epsilon=0.5)
    most = room(analyst, dataset, epsilon=0.8)["epsilon"]
    assert most < 0.55
    assert not room(analyst, dataset, epsilon=0.8)["covered"]
    assert room(analyst, dataset, epsilon=0.99 * most)["covered"]
    assert analyst.estimate(dataset, epsilon=0.8).json()["title"] == "Your grant does not allow this"
    assert analyst.estimate(dataset, epsilon=0.99 * most).status_code == 200


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_pure_question_on_a_gdp_budget_is_planned_without_a_largest_epsilon(server: Server) -> None:
    """What it costs there depends on its releases, so that no ε follows from what is left."""
    owner, analyst = server.owner(1.0, delta=1e-5), server.analyst()
    dataset = owner.dataset()
    assert owner.grant(dataset, analyst, epsilon=0.5, delta=1e-6, max_epsilon=0.2).status_code == 200
    for caller in (owner, analyst):
        told = room(caller, dataset, epsilon=0.01, delta=0)
        assert (told["epsilon"], told["covered"], told["times"] > 1) == (None, True, True)
    assert room(analyst, dataset, epsilon=0.4, delta=0)["covered"] is False


@pytest.mark.both
def test_three_thirds_of_a_budget_are_admitted_and_a_fourth_is_not(server: Server) -> None:
    """Through an owner's budget, a dataset's cap, a grant's cap and its terms."""
    owner, analyst = server.owner(1.0, delta=1e-5, composition="basic"), server.analyst()
    dataset, third = owner.dataset(), {"epsilon": 1 / 3, "delta": 1e-5 / 3}
    assert owner.put(f"/v1/datasets/{dataset}/cap", json={"epsilon": 1, "delta": 1e-5}).status_code == 200
    assert owner.grant(dataset, analyst, **third, max_epsilon=1 / 3).status_code == 200
    for caller in (analyst, owner, owner):
        assert room(caller, dataset, **third)["covered"]
        asked = caller.estimate(dataset, **third, reuse=False)
        assert asked.status_code == 200, asked.text
        assert asked.json()["privacy"]["epsilon"] == 0.333333333
        assert asked.json()["charges"][0]["epsilon"] == 0.333333333
    budget = owner.budget()
    assert budget["spent"]["epsilon"] == 0.999999999
    assert budget["spent"]["delta"] <= 1e-5
    assert budget["largest_query"]["epsilon"] == 1e-9
    refused = problem(owner.estimate(dataset, **third, reuse=False), 409, "budget-exceeded")
    assert refused["room"]["epsilon"] == 0.0, "no δ is left for it"
    assert "no ε fits at this δ" in refused["detail"]
    assert problem(analyst.estimate(dataset, **third, reuse=False), 409, "budget-exceeded")["room"]
    again = analyst.estimate(dataset, **third)  # an earlier answer to the same question is free
    assert (again.status_code, again.json()["reused"]) == (200, True)
    assert books_balance(server)


@pytest.mark.few(2)
@pytest.mark.both
@pytest.mark.parametrize("composition", ["basic", "gdp"])
def test_one_query_takes_all_of_a_budget_or_is_told_the_largest_that_does(
    server: Server, composition: str
) -> None:
    """A basic budget of (1, 1e-5) admits one query of (1, 1e-5). A gdp one says what it admits."""
    owner = server.owner(1.0, delta=1e-5, composition=composition)
    dataset, asked = owner.dataset(), {"epsilon": 1.0, "delta": 1e-5}
    largest = owner.budget()["largest_query"]
    assert largest["delta"] == 1e-5
    if composition == "gdp":
        assert largest["epsilon"] == 0.993093398
        planned = owner.plan(dataset, **asked).json()
        assert planned["room"]["covered"] is False
        assert planned["room"]["epsilon"] == largest["epsilon"]
        assert "this would be refused: room for ε = 0.993093398 at this δ" in planned["warnings"]
        refused = problem(owner.estimate(dataset, **asked), 409, "budget-exceeded")
        assert refused["room"] == planned["room"]
        assert "room for ε = 0.993093398 at this δ" in refused["detail"]
        assert "A tenth of δ is kept for queries with random batches." in refused["detail"]
    all_of_it = {"dataset": {"id": dataset}, "privacy": {"share": 1.0, "delta": 1e-5}}
    offered = owner.post("/v1/estimates/frechet-mean/plan", json=all_of_it).json()
    assert offered["privacy"]["epsilon"] == largest["epsilon"]
    assert (offered["room"]["covered"], offered["room"]["times"]) == (True, 1)
    assert not [said for said in offered["warnings"] if "refused" in said]
    assert owner.estimate(dataset, epsilon=largest["epsilon"], delta=1e-5).status_code == 200
    problem(owner.estimate(dataset, epsilon=0.01, delta=1e-5, reuse=False), 409, "budget-exceeded")
    assert books_balance(server)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_largest_query_of_random_batches_counts_what_is_left_of_their_slack(server: Server) -> None:
    """Queries at a large δ use more of the slack than of μ², so that less fits than μ² alone would say."""
    owner = server.owner(3.0, delta=1e-5)
    dataset, batches = owner.dataset(), {"solver": "rsgd", "steps": 5}
    for _ in range(2):
        assert owner.estimate(dataset, epsilon=0.1, delta=5e-5, **batches, reuse=False).status_code == 200
    for delta in (1e-6, 2e-5, 5e-5):
        told = room(owner, dataset, epsilon=5.0, delta=delta, **batches)
        assert told["covered"] is False
        most = told["epsilon"]
        assert 0 < most < room(owner, dataset, epsilon=5.0, delta=delta)["epsilon"]
        assert room(owner, dataset, epsilon=most, delta=delta, **batches)["covered"]
    share = {"dataset": {"id": dataset}, "privacy": {"share": 1.0, "delta": 5e-5}, **batches}
    offered = owner.post("/v1/estimates/frechet-mean/plan", json=share).json()
    assert (offered["privacy"]["epsilon"], offered["room"]["covered"]) == (most, True)
    told = room(owner, dataset, epsilon=0.01, delta=1e-3, **batches)
    assert (told["epsilon"], told["covered"]) == (0.0, False), "its least slack is more than is left"


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_largest_query_is_within_every_account_and_term_that_its_caller_may_know(server: Server) -> None:
    owner, analyst = server.owner(10.0, delta=1e-5), server.analyst()
    dataset, asked = owner.dataset(), {"epsilon": 20.0, "delta": 1e-6}
    assert owner.put(f"/v1/datasets/{dataset}/cap", json={"epsilon": 0.5, "delta": 1e-5}).status_code == 200
    assert owner.grant(dataset, analyst, epsilon=2, delta=1e-5, max_epsilon=0.8).status_code == 200
    most = room(owner, dataset, **asked)["epsilon"]
    assert room(owner, dataset, epsilon=most, delta=1e-6)["covered"]
    assert not room(owner, dataset, epsilon=most * 1.0001, delta=1e-6)["covered"]
    own = room(analyst, dataset, **asked)["epsilon"]
    assert own > most, "an analyst learns nothing of the cap on the dataset"
    told = problem(analyst.estimate(dataset, epsilon=own + 1e-6, delta=1e-6), 403, "grant-refuses")
    assert f"allows questions up to ε = {own:.15g} at δ = 1e-06" in told["detail"]
    left = analyst.get(f"/v1/datasets/{dataset}/grants/{analyst.id}").json()["left"]
    assert left["largest_query"] == {"epsilon": 1.987434995, "delta": 1e-5}
    refused = [
        problem(analyst.estimate(dataset, epsilon=epsilon, delta=1e-6), 409, "budget-exceeded")
        for epsilon in (own, own / 1.01)
    ]
    assert refused[0] == refused[1], "whatever refuses beyond its own cap and grant is the same bytes"
    assert "room" not in refused[0]
    at_budget = problem(analyst.estimate(dataset, epsilon=0.8, delta=1e-5), 403, "grant-refuses")["detail"]
    allowed = float(at_budget.partition("ε = ")[2].partition(" ")[0])
    assert 0.79 < allowed < 0.8
    assert room(analyst, dataset, epsilon=allowed, delta=1e-5)["covered"]

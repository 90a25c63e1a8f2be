"""What a plan takes of budgets and caps that its caller may know, and how often they cover it."""

from typing import Any

import pytest

from testing.server import Caller, Server, problem


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

"""Questions that their owners approve: requested, decided upon, charged then, or ended uncharged."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import select

from privest_service.database import Database, now
from privest_service.estimates import requests
from privest_service.exports.export import lines
from privest_service.exports.verify import verify
from privest_service.jobs import service as jobs
from privest_service.ledger.units import Limits
from privest_service.notices import service as notices
from privest_service.notices.models import Delivery
from privest_service.notices.schemas import NEW_CHANNEL, Notice
from privest_service.problems import BudgetExceeded, NotRequested, Problem
from testing.server import HANG_GUARD, SIGNER, Caller, Server, problem, until
from testing.world import COST, World, claimed

pytestmark = pytest.mark.either

TERMS = {"approval": "required", "purpose": "the yearly report"}


@pytest.fixture
def parties(server: Server) -> tuple[Caller, Caller, str]:
    """An owner, an analyst, and a dataset of which each question is approved."""
    owner, analyst = server.owner(epsilon=1.0), server.analyst()
    dataset = owner.dataset()
    assert owner.grant(dataset, analyst, **TERMS).status_code == 200
    return owner, analyst, dataset


def ask(analyst: Caller, dataset: Any, epsilon: float = 0.1, **more: Any) -> dict[str, Any]:
    """Ask, which is answered at once with a request."""
    answer = analyst.estimate(dataset, epsilon=epsilon, delta=1e-6, **more)
    assert answer.status_code == 202, answer.text
    assert answer.json()["state"] == "requested"
    return answer.json()


def decide(owner: Caller, job: str, decision: str = "approve", **more: Any) -> httpx.Response:
    """Decide on a question."""
    return owner.post(f"/v1/jobs/{job}/decision", json={"decision": decision} | more)


def test_a_question_waits_for_its_owner_and_costs_nothing_until_it_is_approved(
    server: Server, parties: tuple[Caller, Caller, str]
) -> None:
    owner, analyst, dataset = parties
    grant = analyst.get(f"/v1/datasets/{dataset}/grants/{analyst.id}").json()
    assert grant == owner.get(f"/v1/datasets/{dataset}/grants/{analyst.id}").json()
    assert (grant["approval"], grant["purpose"]) == ("required", "the yearly report")
    assert analyst.plan(dataset).json()["approval"] == "required"
    job = ask(analyst, dataset, key="first")
    assert job["charges"] == []
    assert job["privacy"]["epsilon"] == 0.1
    assert ask(analyst, dataset, key="first")["id"] == job["id"]
    again = ask(analyst, dataset)  # under another key: one question waits once
    assert (again["id"], again["reused"]) == (job["id"], True)
    assert owner.budget()["queries"] == 0
    problem(decide(analyst, job["id"]), 403, "forbidden")
    problem(decide(server.owner(), job["id"]), 404, "not-found")
    free = analyst.post(
        "/v1/estimates/frechet-mean",
        headers={"Idempotency-Key": "free", "Prefer": "wait=60"},
        json={"dataset": {"id": dataset, "dummy": True}, "privacy": {"epsilon": 0.1}},
    )
    assert (free.json()["state"], free.json()["dummy"]) == ("committed", True)
    decided = decide(owner, job["id"], reason="as agreed")
    assert decided.json()["approval"]["decision"] == "approve"
    assert [charge["scope"] for charge in decided.json()["charges"]] == ["owner"]
    assert decide(owner, job["id"]).status_code == 200
    assert owner.budget()["queries"] == 1
    problem(decide(owner, job["id"], "deny"), 409, "not-requested")
    done = analyst.ended(job["id"])
    assert (done["state"], done["approval"]["decision"]) == ("committed", None)
    receipts = [each.get(f"/v1/jobs/{job['id']}/receipt").json()["statement"] for each in (owner, analyst)]
    assert receipts[0]["approvals"] == receipts[1]["approvals"] != []


def test_a_denied_an_expired_and_a_withdrawn_question_cost_nothing(
    server: Server, parties: tuple[Caller, Caller, str]
) -> None:
    owner, analyst, dataset = parties
    job = ask(analyst, dataset)["id"]
    assert decide(owner, job, "deny", reason="not for this report").json()["state"] == "denied"
    assert decide(owner, job, "deny").status_code == 200
    problem(decide(owner, job), 409, "not-requested")
    told = analyst.get(f"/v1/jobs/{job}").json()
    assert (told["state"], told["approval"]["reason"]) == ("denied", "not for this report")
    withdrawn = ask(analyst, dataset)["id"]
    assert withdrawn != job
    problem(owner.post(f"/v1/jobs/{withdrawn}/withdrawal"), 403, "forbidden")
    for _ in range(2):
        assert analyst.post(f"/v1/jobs/{withdrawn}/withdrawal").json()["state"] == "withdrawn"
    assert "withdrawn" in problem(decide(owner, withdrawn), 409, "not-requested")["detail"]
    gone = ask(analyst, dataset)["id"]
    assert owner.delete(f"/v1/datasets/{dataset}/grants/{analyst.id}").status_code == 204
    assert analyst.get(f"/v1/jobs/{gone}").json()["state"] == "withdrawn"
    assert "a grant" in problem(decide(owner, gone), 409, "not-requested")["detail"]
    assert (
        owner.grant(dataset, analyst, **TERMS, expires=str(now() + timedelta(seconds=3))).status_code == 200
    )
    late = ask(analyst, dataset)["id"]
    until(lambda: analyst.get(f"/v1/jobs/{late}").json()["state"] == "expired")
    assert "in time" in problem(decide(owner, late), 409, "not-requested")["detail"]
    assert "has ended" in problem(analyst.estimate(dataset), 403, "grant-refuses")["detail"]
    assert analyst.get("/v1/datasets").json()["datasets"] == []
    assert owner.budget()["queries"] == 0


def test_questions_are_held_to_the_terms_of_their_grant(
    server: Server, parties: tuple[Caller, Caller, str]
) -> None:
    owner, analyst, dataset = parties
    terms = {"kinds": ["frechet-mean"], "max_epsilon": 0.2}
    assert owner.grant(dataset, analyst, **terms).json()["max_epsilon"] == 0.2
    problem(analyst.plan(dataset, kind="robust-pca", rank=1), 403, "grant-refuses")
    assert analyst.plan(dataset).json()["approval"] is None
    over = problem(analyst.estimate(dataset, epsilon=0.3, delta=1e-6), 403, "grant-refuses")
    # At a smaller δ the same cost is a larger ε. What is said to be allowed is, and no more than that.
    (allowed,) = re.findall(r"allows questions up to ε = ([\d.]+) at δ = 1e-06\.", over["detail"])
    assert float(allowed) > 0.2
    problem(analyst.estimate(dataset, epsilon=float(allowed) + 1e-9, delta=1e-6), 403, "grant-refuses")
    assert analyst.estimate(dataset, epsilon=float(allowed), delta=1e-6).json()["state"] == "committed"
    # A larger δ buys no more: what counts is the question's ε at the δ of the budget.
    problem(analyst.estimate(dataset, epsilon=0.2, delta=1e-3), 403, "grant-refuses")
    assert analyst.estimate(dataset, epsilon=0.2, delta=1e-6).json()["state"] == "committed"
    for bad in (
        {"kinds": ["mean"]},
        {"kinds": []},
        {"max_epsilon": 0},
        {"approval": "yes"},
        {"purpose": "a\nb"},
    ):
        problem(owner.grant(dataset, analyst, **bad), 422, "invalid")
    assert owner.grant(dataset, analyst).json()["kinds"] is None


def test_what_the_budget_does_not_cover_goes_on_waiting(
    server: Server, parties: tuple[Caller, Caller, str]
) -> None:
    owner, analyst, dataset = parties
    job = ask(analyst, dataset, epsilon=1.0)["id"]
    assert owner.estimate(dataset, epsilon=0.7, delta=1e-6).json()["state"] == "committed"
    refused = problem(decide(owner, job), 409, "budget-exceeded")
    assert refused["scope"] == "owner"
    assert "goes on waiting" in refused["detail"]
    path = f"/v1/owners/{owner.id}/budget"
    assert owner.patch(path, json={"frozen": True, "epsilon": 3}).status_code == 200
    assert "frozen" in problem(decide(owner, job), 409, "account-frozen")["detail"]
    assert owner.patch(path, json={"frozen": False, "pace": 0.01}).status_code == 200
    paced = problem(decide(owner, job), 409, "pace-exceeded")["detail"]
    assert paced.startswith("Seven days may take 1 % of a window's budget. The question goes on waiting")
    assert owner.patch(path, json={"pace": 1}).status_code == 200
    assert owner.grant(dataset, analyst, **TERMS, max_epsilon=0.5).status_code == 200
    assert "was changed" in problem(decide(owner, job), 409, "approval-refused")["detail"]
    assert owner.grant(dataset, analyst, **TERMS).status_code == 200
    assert decide(owner, job).status_code == 200
    assert analyst.ended(job)["state"] == "committed"
    capped = problem(owner.grant(dataset, analyst, **TERMS, epsilon=0.1, delta=1e-5), 422, "invalid")
    assert "spent already" in capped["detail"]


# Several owners


def test_every_owner_who_asks_for_it_approves_its_own_part(server: Server) -> None:
    schema = {"kind": "vectors", "dim": 2}
    owners, analyst = [server.owner(epsilon=3.0, delta=1e-4) for _ in range(3)], server.analyst()
    rows = np.random.default_rng(0).standard_normal((60, 2))
    datasets = [owner.dataset(rows, schema) for owner in owners]
    for owner, dataset, terms in zip(owners, datasets, (TERMS, TERMS, {}), strict=True):
        assert owner.grant(dataset, analyst, **terms).status_code == 200

    def asked(**more: Any) -> dict[str, Any]:
        about = [{"id": dataset} for dataset in datasets]
        body = {"dataset": about, "privacy": {"epsilon": 0.5, "delta": 1e-6}, "rank": 1} | more
        return analyst.post(
            "/v1/estimates/robust-pca", headers={"Idempotency-Key": f"k{len(more)}"}, json=body
        ).json()

    def waiting(owner: Caller) -> list[dict[str, Any]]:
        return owner.get("/v1/requests").json()["requests"]

    job = asked()
    assert job["state"] == "requested"
    (first,), (second,), none = map(waiting, owners)
    assert none == []
    assert (first["several"], first["dataset"], first["purpose"]) == (True, datasets[0], TERMS["purpose"])
    assert not any(
        each in str(first) for each in (*datasets[1:], *(owner.id for owner in owners[1:]), job["id"])
    )
    assert 0.5 < first["guess"] < 0.6
    for owner in owners:
        problem(decide(owner, job["id"]), 404, "not-found")
    assert decide(owners[0], first["job"]).json()["state"] == "requested"
    assert waiting(owners[0]) == []
    told = []
    for other in (owners[0], owners[2]):  # whoever of them it is, and whatever it asked for
        path = f"/v1/owners/{other.id}/budget"
        assert other.patch(path, json={"frozen": True}).status_code == 200
        told.append(problem(decide(owners[1], second["job"]), 409, "approval-refused"))
        assert other.patch(path, json={"frozen": False}).status_code == 200
    soon = {"expires": str(now() + timedelta(seconds=1))}
    assert owners[2].grant(datasets[2], analyst, **soon).status_code == 200
    until(lambda: analyst.plan(datasets[2], kind="robust-pca", rank=1).status_code == 403)
    told.append(problem(decide(owners[1], second["job"]), 409, "approval-refused"))
    assert owners[2].grant(datasets[2], analyst).status_code == 200
    assert told[0] == told[1] == told[2]
    assert [owner.budget()["queries"] for owner in owners] == [0, 0, 0]
    assert decide(owners[1], second["job"]).json()["state"] == "reserved"
    assert analyst.ended(job["id"])["state"] == "committed"
    assert [owner.budget()["queries"] for owner in owners] == [1, 1, 1]
    receipt = analyst.get(f"/v1/jobs/{job['id']}/receipt").json()["statement"]
    own = owners[0].get(f"/v1/jobs/{first['job']}/receipt").json()["statement"]
    assert len(receipt["approvals"]) == 2
    assert set(own["approvals"]) < set(receipt["approvals"])
    job = asked(reuse=False)
    (first,), (second,) = map(waiting, owners[:2])
    assert decide(owners[0], first["job"]).status_code == 200
    assert decide(owners[1], second["job"], "deny", reason="once a year").json()["state"] == "denied"
    told = analyst.get(f"/v1/jobs/{job['id']}").json()
    assert (told["state"], told["approval"]["reason"]) == ("denied", "once a year")
    mine = owners[0].get(f"/v1/jobs/{first['job']}").json()
    assert (mine["state"], mine["approval"]["reason"]) == ("denied", None)
    assert [owner.budget()["queries"] for owner in owners] == [1, 1, 1]


def test_nobody_is_charged_unasked_who_asks_for_approvals_meanwhile(server: Server) -> None:
    """An owner was charged who let questions through when one was asked, and no more when it was approved."""
    owners, analyst = [server.owner() for _ in range(2)], server.analyst()
    datasets = [owner.dataset() for owner in owners]
    for owner, dataset, terms in zip(owners, datasets, (TERMS, {}), strict=True):
        assert owner.grant(dataset, analyst, **terms).status_code == 200
    body = {"dataset": [{"id": dataset} for dataset in datasets], "privacy": {"epsilon": 0.1, "delta": 1e-6}}
    asked = analyst.post("/v1/estimates/frechet-mean", headers={"Idempotency-Key": "both"}, json=body)
    job = asked.json()["id"]
    (waiting,) = owners[0].get("/v1/requests").json()["requests"]
    assert owners[1].grant(datasets[1], analyst, **TERMS).status_code == 200
    told = problem(decide(owners[0], waiting["job"]), 409, "approval-refused")["detail"]
    assert told.startswith("Your grant and your budget allow this question.")
    assert [owner.budget()["queries"] for owner in owners] == [0, 0]
    assert analyst.post(f"/v1/jobs/{job}/withdrawal").json()["state"] == "withdrawn"


# At the same time, by two replicas


@pytest.fixture
def replicas(database: Database) -> Iterator[list[Database]]:
    """One database, opened twice."""
    other = Database(database.engine.url.render_as_string(hide_password=False), signer=SIGNER)
    yield [database, other]
    other.close()


def _at_once(*acts: Callable[[], object]) -> list[object]:
    """What came of acts that begin together: what they return, or the class of the problem."""
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> object:
        start.wait(HANG_GUARD)
        try:
            return act()
        except Problem as refused:
            return type(refused)

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


@pytest.mark.parametrize("others", ["deny", "withdraw", "revoke", "expire"])
def test_a_question_comes_to_one_end_whoever_is_first(replicas: list[Database], others: str) -> None:
    here, there = replicas
    ends = {"deny": "denied", "withdraw": "withdrawn", "revoke": "withdrawn", "expire": "expired"}
    for _ in range(6):
        world = World.make(here, approval=True)
        job = world.submit(here, "one")

        def other(world: World = world, job: str = job) -> object:
            if others == "expire":
                return there.run(lambda session: jobs.expire_requests(session, now() + timedelta(days=9)))
            if others == "revoke":
                return world.revoke(there)
            return world.withdraw(there, job) if others == "withdraw" else world.decide(there, job, "deny")

        def approve(world: World = world, job: str = job) -> object:
            return world.decide(here, job, "approve")

        came = _at_once(approve, approve, other)
        state = world.check(here)
        approved = state in ("reserved", "voided")
        assert state == ends[others] or approved
        assert (
            came[:2] == ["reserved"] * 2
            if approved and others not in ("revoke", "withdraw")
            else came[0] in ("reserved", "voided", NotRequested)
        )
        if state == "reserved":
            assert came[2] in (NotRequested, [], None)
            world.end(here, until(lambda: claimed(here)), "{}")


def test_owners_are_told_of_requests_and_of_a_flood_by_its_beginning(database: Database) -> None:
    """Channels took `question.requested`, and nobody was ever told: requests ended unseen."""
    world, other = (World.make(database, approval=True) for _ in range(2))
    with database.write() as session:
        for owner in (world.owner, other.owner):
            notices.add(session, owner, NEW_CHANNEL.validate_python({"kind": "file", "name": "n"}), b"s" * 32)
    asked = [world.submit(database, f"key {number}") for number in range(12)]
    world.withdraw(database, asked[0])
    asked.append(world.submit(database, "once more"))
    with database.read() as session:
        told = [Notice.model_validate_json(each) for each in session.scalars(select(Delivery.body))]
    assert {each.owner for each in told} == {world.owner}
    assert sorted(str(each.facts["question"]) for each in told) == sorted(asked[:10])
    assert {each.facts["analyst"] for each in told} == {world.analyst}


def test_a_restored_ledger_decides_on_no_request_of_before(database: Database) -> None:
    world = World.make(database, approval=True)
    job = world.submit(database, "one")
    with database.write() as session:
        jobs.abandon(session)
    assert world.check(database) == "expired"
    with pytest.raises(NotRequested):
        world.decide(database, job, "approve")


def test_of_requests_that_the_budget_covers_once_one_is_charged(replicas: list[Database]) -> None:
    world = World.make(replicas[0], Limits("gdp", 1, 1, COST.mu_squared, COST.slack), approval=True)
    asked = [world.submit(replicas[0], f"key {number}") for number in range(6)]
    came = _at_once(
        *(
            lambda job=job, replica=replicas[number % 2]: world.decide(replica, job, "approve")
            for number, job in enumerate(asked)
        )
    )
    assert Counter(came) == {"reserved": 1, BudgetExceeded: 5}
    with replicas[0].read() as session:
        assert Counter(job.state for job in world.jobs(session)) == {"reserved": 1, "requested": 5}
        assert len(jobs.decisions_on(session, *asked)) == 1
        assert requests.number_waiting_for(session, world.owner) == 5
    world.revoke(replicas[1])
    with replicas[0].read(snapshot=True) as session:
        assert Counter(job.state for job in world.jobs(session)) == {"voided": 1, "withdrawn": 5}
        assert verify(lines(session, world.owner), [SIGNER.public_key]).faults == []

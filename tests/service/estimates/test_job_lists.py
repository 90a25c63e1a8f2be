"""Questions in lists, and questions that end before they begin."""

import json
from datetime import timedelta
from typing import Any

import pytest

from privest_service.database import Database, now
from privest_service.estimates import requests
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.problems import Forbidden, NotFound, NotRequested, TooManyRequests
from privest_service.security.principals import Principal
from testing.server import Caller, Server, problem
from testing.world import World


def ask(caller: Caller, about: Any) -> str:
    body = {"dataset": about, "privacy": {"epsilon": 0.1}}
    headers = {"Idempotency-Key": "k", "Prefer": "wait=240"}
    return caller.post("/v1/estimates/frechet-mean", json=body, headers=headers).json()["id"]


def listed(caller: Caller, **params: Any) -> list[str]:
    answer = caller.get("/v1/jobs", params=params)
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


def test_questions_are_listed_newest_first_for_whoever_asked_them(server: Server) -> None:
    owner, analyst, other = server.owner(3.0), server.analyst(), server.analyst()
    first, second = owner.dataset(), owner.dataset()
    owner.grant(first, analyst)
    began = now()
    asked = [analyst.estimate(first, epsilon=0.1 + place / 100).json()["id"] for place in range(3)]
    dummy = ask(analyst, {"id": first, "dummy": True})
    both = ask(owner, [{"id": first}, {"id": second}])
    assert listed(analyst) == [dummy, *asked[::-1]]
    assert listed(owner) == [both]
    assert listed(other) == []
    assert listed(owner, dataset=second) == [both] == listed(owner, dataset=first)
    assert listed(analyst, dataset=second) == []
    assert listed(analyst, state=["committed", "failed"]) == [dummy, *asked[::-1]]
    assert listed(analyst, state="voided") == []
    assert listed(analyst, since=began.isoformat()) == [dummy, *asked[::-1]]
    assert listed(analyst, until=began.isoformat()) == []
    line = analyst.get("/v1/jobs").json()["jobs"][1]
    assert line["datasets"] == [first]
    assert (line["kind"], line["state"], line["dummy"]) == ("frechet-mean", "committed", False)
    assert line["privacy"]["epsilon"] == pytest.approx(0.12)
    pages, cursor = list[str](), ""
    while cursor is not None:
        page = analyst.get("/v1/jobs", params={"limit": 2, "cursor": cursor}).json()
        pages += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
    assert pages == [dummy, *asked[::-1]]
    for wrong in (
        {"state": "lost"},
        {"cursor": "x"},
        {"limit": 0},
        {"since": "2026-01-01T00:00"},
        {"until": "1"},
    ):
        problem(analyst.get("/v1/jobs", params=wrong), 422, "invalid")
    # Nobody goes on in somebody else's list: a cursor says where, and never whose.
    beyond = analyst.get("/v1/jobs", params={"limit": 1}).json()["next"]
    assert listed(other, cursor=beyond) == []


def test_a_tag_finds_a_question_again_and_changes_nothing_else(server: Server) -> None:
    owner, analyst, other = server.owner(3.0), server.analyst(), server.analyst()
    dataset, decided = owner.dataset(), owner.dataset()
    for caller in (analyst, other):
        assert owner.grant(dataset, caller).status_code == 200
    assert owner.grant(decided, analyst, approval="required").status_code == 200
    tag, plain = "<b>beaks</b> & 'Ø', second try", {"dataset": {"id": dataset}, "privacy": {"epsilon": 0.2}}
    planned, tagged = (analyst.plan(dataset, epsilon=0.2, **more).json() for more in ({}, {"tag": tag}))
    assert planned == tagged
    first = analyst.estimate(dataset, epsilon=0.2, tag=f"  {tag} ", key="k").json()
    assert first["tag"] == tag
    assert owner.get(f"/v1/jobs/{first['id']}").json()["tag"] == tag
    # The same question by another name is the same question: free, and found as it was first asked.
    again = analyst.estimate(dataset, epsilon=0.2, tag="other words").json()
    assert (again["id"], again["reused"], again["tag"]) == (first["id"], True, tag)
    assert analyst.estimate(dataset, epsilon=0.2).json()["id"] == first["id"]
    problem(analyst.estimate(dataset, epsilon=0.2, tag="x", key="k"), 422, "idempotency-key-reused")
    # Whoever has the same words has other questions.
    theirs = other.estimate(dataset, epsilon=0.2, tag=tag).json()["id"]
    second = analyst.estimate(decided, epsilon=0.1, tag="for the owner").json()["id"]
    (request,) = owner.get("/v1/requests").json()["requests"]
    assert (request["job"], request["tag"]) == (second, "for the owner")
    workload = {"questions": [{"kind": "frechet-mean", "body": plain | {"reuse": False, "tag": tag}}]}
    several = analyst.post("/v1/estimates", json=workload, headers={"Idempotency-Key": "w"}).json()
    third = several["jobs"][0]["id"]
    assert listed(analyst, tag=tag) == [third, first["id"]]
    assert listed(analyst, tag="for the owner") == [second]
    assert listed(other, tag=tag) == [theirs]
    assert listed(analyst, tag="beaks") == []
    assert [job["tag"] for job in analyst.get("/v1/jobs").json()["jobs"]] == [tag, "for the owner", tag]
    for wrong in ("", "   ", "x" * 101, "a\nb", "a\x00b", "a\u202eb", "a\u200bb", "\ud800", 7, ["x"]):
        body = plain | {"tag": wrong}
        headers = {"Content-Type": "application/json", "Idempotency-Key": "wrong"}
        for path in ("frechet-mean", "frechet-mean/plan"):
            answer = analyst.post(f"/v1/estimates/{path}", content=json.dumps(body), headers=headers)
            problem(answer, 422, "invalid")
    problem(analyst.get("/v1/jobs", params={"tag": "a\nb"}), 422, "invalid")


def test_what_is_asked_of_several_owners_has_its_tag_for_each(server: Server) -> None:
    first, second, analyst = server.owner(), server.owner(), server.analyst()
    parts = [owner.dataset() for owner in (first, second)]
    for owner, dataset in zip((first, second), parts, strict=True):
        assert owner.grant(dataset, analyst, approval="required").status_code == 200
    about = [{"id": dataset} for dataset in parts]
    body = {"dataset": about, "privacy": {"epsilon": 0.1}, "tag": "both"}
    job = analyst.post("/v1/estimates/frechet-mean", json=body, headers={"Idempotency-Key": "k"}).json()
    assert job["tag"] == "both"
    for owner in (first, second):
        (request,) = owner.get("/v1/requests").json()["requests"]
        assert (request["tag"], request["several"]) == ("both", True)
    assert listed(analyst, tag="both") == [job["id"]]


def test_a_question_that_has_not_begun_is_given_back_to_whoever_asked(database: Database) -> None:
    world = World.make(database)
    asker = Principal("analyst", world.analyst)

    def withdraw(job: str, caller: Principal = asker) -> str:
        with database.write() as session:
            return requests.withdraw(session, caller, job).state

    job = world.submit(database, "k")
    with pytest.raises(NotFound):
        withdraw(job, Principal("analyst", "anl_other"))
    with pytest.raises(Forbidden):
        withdraw(job, Principal("owner", world.owner))
    assert withdraw(job) == withdraw(job) == "voided"
    assert world.check(database) == "voided"
    with database.read() as session:
        assert {account.mu_squared_spent for account in world.accounts(session)} == {0}
    begun = world.submit(database, "another key")
    assert begun != job  # what was given back answers nothing
    with database.write() as session:
        jobs.claim(session, session.get_one(Job, begun), timedelta(hours=1))
    with pytest.raises(NotRequested) as refused:
        withdraw(begun)
    assert refused.value.detail == "It has begun, and what was charged is final."
    with database.read() as session:
        assert all(account.mu_squared_spent > 0 for account in world.accounts(session))


def test_nobody_fills_a_ledger_with_what_is_given_back(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_GIVEN_BACK_AN_HOUR", 2)
    world = World.make(database)
    for place in range(3):
        job = world.submit(database, f"key {place}")
        with database.write() as session:
            if place < 2:
                requests.withdraw(session, Principal("analyst", world.analyst), job)
            else:
                with pytest.raises(TooManyRequests):
                    requests.withdraw(session, Principal("analyst", world.analyst), job)

"""Questions in lists, and questions that end before they begin."""

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
    for wrong in ({"state": "lost"}, {"cursor": "x"}, {"limit": 0}, {"since": "2026-01-01"}):
        problem(analyst.get("/v1/jobs", params=wrong), 422, "invalid")
    # Nobody goes on in somebody else's list: a cursor says where, and never whose.
    beyond = analyst.get("/v1/jobs", params={"limit": 1}).json()["next"]
    assert listed(other, cursor=beyond) == []


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

"""What owners and analysts see of each other, and of changes; who may call what is in `audit.access`."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.estimates import service as estimates
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.service import Query
from privest_service.jobs.models import Job
from privest_service.ledger import charges, entries
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.service import create_owner
from privest_service.ledger.units import INFORMATIVE_CAP, PROBABILITY, Limits
from privest_service.problems import NotFound
from privest_service.security.principals import Principal
from privest_service.security.service import create_analyst
from testing.claims import claim_next
from testing.server import (
    HANG_GUARD,
    SPD3,
    Caller,
    Server,
    problem,
    slow_rows,
    until,
    worker_on,
)
from testing.world import submissions_on, submit


@pytest.fixture
def everyone(server: Server) -> dict[str, Any]:
    """An owner of a dataset, a granted analyst, and a job of the latter."""
    owner, granted = server.owner(), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, granted)
    return {
        "owner": owner,
        "granted": granted,
        "names": {"DATASET": dataset, "JOB": granted.estimate(dataset).json()["id"]},
    }


def test_fingerprints_are_for_the_owner_alone(everyone: dict[str, Any]) -> None:
    dataset = everyone["names"]["DATASET"]
    mine = everyone["owner"].get(f"/v1/datasets/{dataset}").json()
    theirs = everyone["granted"].get(f"/v1/datasets/{dataset}").json()
    assert mine["fingerprint"]
    assert theirs == mine | {"fingerprint": None, "same_rows": None}
    listed = everyone["granted"].get("/v1/datasets").json()["datasets"]
    assert listed == [theirs]
    assert theirs["same_rows"] is None
    assert everyone["owner"].get("/v1/datasets").json()["datasets"] == [mine | {"same_rows": None}]


def test_an_owner_sees_the_charge_and_not_the_answer(everyone: dict[str, Any]) -> None:
    job = everyone["names"]["JOB"]
    asked = everyone["granted"].get(f"/v1/jobs/{job}").json()
    charged = everyone["owner"].get(f"/v1/jobs/{job}")
    assert asked["estimate"]["point"]
    own = charged.json()
    assert own == asked | {
        "estimate": None,
        "uncertainty": None,
        "forecast": None,
        "warnings": [],
        "receipt": own["receipt"],
    }
    number = repr(asked["estimate"]["point"][0][0])
    for path in (f"/v1/jobs/{job}", f"/v1/jobs/{job}/receipt", f"/v1/owners/{everyone['owner'].id}/ledger"):
        assert number not in everyone["owner"].get(path).text


@pytest.mark.parametrize("role", ["owner", "analyst"])
def test_keys_rotate_and_are_revoked_at_once(server: Server, role: str) -> None:
    first = server.owner() if role == "owner" else server.analyst()
    keys = f"/v1/{role}s/{first.id}/keys"
    made = [first.post(keys).json() for _ in range(2)]
    callers = [Caller(server, first.id, key["key"]) for key in made]
    assert len({first.key, *(key["key"] for key in made)}) == 3
    assert all(caller.get("/v1/datasets").status_code == 200 for caller in (first, *callers))
    # One key revokes the other, and itself.
    assert callers[1].delete(f"{keys}/{made[0]['id']}").status_code == 204
    problem(callers[0].get("/v1/datasets"), 401, "unauthenticated")
    assert callers[1].delete(f"{keys}/{made[1]['id']}").status_code == 204
    problem(callers[1].get("/v1/datasets"), 401, "unauthenticated")
    assert first.get("/v1/datasets").status_code == 200


def test_a_key_is_revoked_by_its_own_principal_alone(server: Server) -> None:
    one, two = server.owner(), server.owner()
    key = one.post(f"/v1/owners/{one.id}/keys").json()
    problem(two.delete(f"/v1/owners/{two.id}/keys/{key['id']}"), 404, "not-found")
    problem(two.delete(f"/v1/owners/{one.id}/keys/{key['id']}"), 404, "not-found")
    assert Caller(server, one.id, key["key"]).get("/v1/datasets").status_code == 200


def test_keys_are_stored_as_digests(server: Server) -> None:
    owner = server.owner()
    database = Database(server.database_url)
    with database.read() as session:
        for table in ("api_keys", "owners", "idempotency_keys"):
            rows = session.connection().exec_driver_sql(f"SELECT * FROM {table}").all()  # noqa: S608
            assert owner.key not in str(rows)
    database.close()
    assert owner.key not in server.log.read_text()


# Grants and caps


def test_a_cap_is_charged_with_the_budget_and_refuses_for_both(server: Server) -> None:
    owner, analyst = server.owner(epsilon=5.0, delta=1e-4), server.analyst()
    dataset = owner.dataset()
    granted = owner.grant(dataset, analyst, epsilon=0.5, delta=1e-5)
    assert granted.json()["cap"] == {"epsilon": 0.5, "delta": 1e-5}
    job = analyst.estimate(dataset, epsilon=0.3, delta=1e-6).json()
    assert [charge["scope"] for charge in job["charges"]] == ["owner", "analyst"]
    assert job["charges"][0]["mu_squared"] == job["charges"][1]["mu_squared"] > 0
    before = owner.budget(), owner.ledger()
    problem(analyst.estimate(dataset, epsilon=0.6, delta=1e-6), 409, "budget-exceeded")
    assert (owner.budget(), owner.ledger()) == before
    # The owner itself is not held to the analyst's cap.
    assert owner.estimate(dataset, epsilon=0.6, delta=1e-6).status_code == 200
    # A raised cap admits it; what was spent under the lower one stays spent.
    assert owner.grant(dataset, analyst, epsilon=1.0, delta=1e-5).status_code == 200
    assert analyst.estimate(dataset, epsilon=0.6, delta=1e-6).status_code == 200
    problem(analyst.estimate(dataset, epsilon=0.95, delta=1e-6), 409, "budget-exceeded")
    problem(owner.grant(dataset, analyst, epsilon=0.5, delta=1e-5), 422, "invalid")


def test_a_cap_does_not_outlive_a_budget(server: Server) -> None:
    owner, analyst = server.owner(epsilon=0.3, delta=1e-5), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst, epsilon=5.0, delta=1e-5)
    problem(analyst.estimate(dataset, epsilon=0.4, delta=1e-6), 409, "budget-exceeded")
    assert owner.budget()["queries"] == 0


def test_caps_are_for_one_analyst_and_one_dataset(server: Server) -> None:
    owner, one, two = server.owner(epsilon=5.0, delta=1e-4), server.analyst(), server.analyst()
    first, second = owner.dataset(), owner.dataset()
    for dataset in (first, second):
        for analyst in (one, two):
            owner.grant(dataset, analyst, epsilon=0.3, delta=1e-5)
    answers = [
        analyst.estimate(dataset, epsilon=0.3, delta=1e-6)
        for dataset in (first, second)
        for analyst in (one, two)
    ]
    assert {answer.status_code for answer in answers} == {200}
    problem(one.estimate(first, epsilon=0.3, delta=1e-6, reuse=False), 409, "budget-exceeded")


def test_a_cap_takes_the_composition_of_the_budget(server: Server) -> None:
    owner, analyst = server.owner(epsilon=5.0, delta=0.0, composition="basic"), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst, epsilon=0.2, delta=0.0)
    for _ in range(2):
        assert analyst.estimate(dataset, epsilon=0.1, reuse=False).status_code == 200
    problem(analyst.estimate(dataset, epsilon=0.1, reuse=False), 409, "budget-exceeded")
    assert owner.budget()["spent"]["epsilon"] == 0.2


# The budget


def test_a_budget_is_raised_and_not_lowered(server: Server) -> None:
    owner = server.owner(epsilon=0.5, delta=1e-5)
    path, dataset = f"/v1/owners/{owner.id}/budget", owner.dataset()
    problem(owner.estimate(dataset, epsilon=0.8, delta=1e-6), 409, "budget-exceeded")
    raised = server.admin.patch(path, json={"epsilon": 2.0})
    assert raised.json()["limit"] == {"epsilon": 2.0, "delta": 1e-5}
    assert owner.estimate(dataset, epsilon=0.8, delta=1e-6).status_code == 200
    before = owner.budget()
    for lower in ({"epsilon": 1.9}, {"delta": 1e-6}, {"epsilon": 3.0, "delta": 1e-6}):
        problem(owner.patch(path, json=lower), 422, "invalid")
    assert owner.budget() == before
    assert owner.patch(path, json={"delta": 2e-5}).json()["limit"] == {"epsilon": 2.0, "delta": 2e-5}
    assert [entry["kind"] for entry in owner.ledger()] == ["limit", "debit", "limit", "limit"]


def test_a_frozen_budget_is_not_charged_and_can_be_thawed(server: Server) -> None:
    owner, analyst = server.owner(), server.analyst()
    path, dataset = f"/v1/owners/{owner.id}/budget", owner.dataset()
    owner.grant(dataset, analyst)
    earlier = analyst.estimate(dataset).json()
    assert owner.patch(path, json={"frozen": True}).json()["frozen"]
    before = owner.ledger()
    for caller, slug in ((owner, "account-frozen"), (analyst, "budget-exceeded")):
        problem(caller.estimate(dataset, reuse=False, key="k"), 409, slug)
        assert caller.plan(dataset).status_code == 200
    assert owner.ledger() == before
    assert analyst.estimate(dataset).json() == earlier | {"reused": True}
    assert not server.admin.patch(path, json={"frozen": False}).json()["frozen"]
    assert analyst.estimate(dataset, reuse=False, key="k").status_code == 200


def test_plans_are_remembered_for_who_asked_alone() -> None:
    """Otherwise a plan that comes at once would tell that somebody else has asked for it."""
    mine = estimates.ResolvedQuery("anl_1", KINDS["frechet-mean"], (), {})
    theirs = replace(mine, caller_id="anl_2")
    assert mine.digest == theirs.digest
    assert mine.name != theirs.name


# Revocation


def test_a_revocation_voids_what_waits_and_gives_it_back(server: Server) -> None:
    owner, analyst, other = server.owner(epsilon=9.0), server.analyst(), server.analyst()
    slow, dataset = owner.dataset(*slow_rows()), owner.dataset()
    for one in (analyst, other):
        owner.grant(dataset, one, epsilon=5.0, delta=1e-5)
    running = owner.estimate(slow, steps=1000, wait=0).json()["id"]
    worker = worker_on(server, owner, slow)
    worker.suspend()  # others wait for it all the same
    waiting = [analyst.estimate(dataset, epsilon=0.1 * i, wait=0).json()["id"] for i in (1, 2)]
    kept = other.estimate(dataset, wait=0).json()["id"]
    assert [analyst.get(f"/v1/jobs/{job}").json()["state"] for job in waiting] == ["reserved"] * 2
    assert owner.budget()["queries"] == 4
    assert owner.delete(f"/v1/datasets/{dataset}/grants/{analyst.id}").status_code == 204
    assert [analyst.get(f"/v1/jobs/{job}").json()["state"] for job in waiting] == ["voided"] * 2
    assert other.get(f"/v1/jobs/{kept}").json()["state"] == "reserved"
    assert owner.budget()["queries"] == 2
    voids = owner.ledger()[:2]
    assert [entry["kind"] for entry in voids] == ["void", "void"]
    assert sum(entry["mu_squared"] for entry in owner.ledger() if entry["kind"] != "limit") == pytest.approx(
        sum(
            entry["mu_squared"]
            for entry in owner.ledger()
            if entry["kind"] == "debit" and entry["job"] in (running, kept)
        ),
        rel=1e-9,
    )
    # The end of the dataset voids the rest.
    assert owner.delete(f"/v1/datasets/{dataset}").status_code == 204
    assert other.get(f"/v1/jobs/{kept}").json()["state"] == "voided"
    assert owner.budget()["queries"] == 1
    worker.kill()
    assert owner.ended(running)["state"] == "failed"


def test_a_withdrawal_voids_what_adds_up_to_more_than_is_counted(server: Server) -> None:
    """Twelve times δ = ½ are more than 2⁶² units of the sum that a gdp budget has no limit of."""
    owner, analyst = server.owner(epsilon=300.0), server.analyst()
    slow, dataset = owner.dataset(*slow_rows()), owner.dataset()
    running = owner.estimate(slow, steps=1000, wait=0).json()["id"]
    worker = worker_on(server, owner, slow)
    worker.suspend()  # others wait for it all the same

    def ask() -> list[str]:
        owner.grant(dataset, analyst)
        asked = [analyst.estimate(dataset, epsilon=0.01, delta=0.5, wait=0, reuse=False) for _ in range(12)]
        assert [answer.status_code for answer in asked] == [202] * 12
        return [answer.json()["id"] for answer in asked]

    for withdrawn in (f"/v1/datasets/{dataset}/grants/{analyst.id}", f"/v1/datasets/{dataset}"):
        waiting = ask()
        assert owner.budget()["queries"] == 13
        assert owner.delete(withdrawn).status_code == 204
        assert {analyst.get(f"/v1/jobs/{job}").json()["state"] for job in waiting} == {"voided"}
        assert owner.budget()["queries"] == 1
        # What counts is given back whole; the plain sum of δ is not known any more, and told as no less.
        assert owner.budget()["spent"]["mu"] < 1
        assert owner.budget()["basic"]["delta"] == INFORMATIVE_CAP / PROBABILITY
    worker.kill()
    assert owner.ended(running)["state"] == "failed"


# What happens between the planning of a query and its charge


@pytest.fixture
def within(database: Database) -> SimpleNamespace:
    """The service without HTTP or engine: an owner, a dataset and a granted analyst."""
    with database.write() as session:
        owner, _ = create_owner(session, "x", Limits.of(1.0, 1e-5, "gdp"))
        analyst, _ = create_analyst(session, "x")
        session.flush()
        dataset = datasets.Dataset(
            id="ds_x", owner_id=owner.id, kind="points", dataset_schema=json.dumps(SPD3), n=50, fingerprint=""
        )
        session.add(dataset)
        session.flush()
        datasets.put_grant(session, dataset, analyst.id, Limits.none("gdp"))
        account = ledger.owner_account(session, owner.id).id
    kind = KINDS["frechet-mean"]
    submissions = submissions_on(database, 10)
    request = kind.request.model_validate(
        {"dataset": {"id": "ds_x"}, "privacy": {"epsilon": 0.1, "delta": 1e-6}, "reuse": True}
    )
    return SimpleNamespace(
        database=database,
        analyst=analyst.id,
        account=account,
        submit=lambda key: submit(submissions, Principal("analyst", analyst.id), Query(kind, request), key),
    )


def _meanwhile(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Let something happen right after a query was planned."""
    resolved = estimates.resolve_query

    def resolve_query(*given: Any) -> Any:
        query = resolved(*given)
        action()
        return query

    monkeypatch.setattr(estimates, "resolve_query", resolve_query)


def test_a_cap_set_meanwhile_is_charged(within: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def cap() -> None:
        with within.database.write() as session:
            dataset = session.get_one(Dataset, "ds_x")
            datasets.put_grant(session, dataset, within.analyst, Limits.of(0.5, 1e-5, "gdp"))

    _meanwhile(monkeypatch, cap)
    job = within.submit("k").job_id
    with within.database.read() as session:
        debits = entries.debits_of(session, job)
        caps = [ledger.limits_of(session.get_one(Account, debit.account_id)).capped for debit in debits]
        assert caps == [True, True]  # the rows of this dataset were not registered and have no account


def test_a_grant_withdrawn_meanwhile_refuses(within: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def revoke() -> None:
        with within.database.write() as session:
            datasets.revoke_grant(session, "ds_x", within.analyst)

    _meanwhile(monkeypatch, revoke)
    with pytest.raises(NotFound):
        within.submit("k")
    with within.database.read() as session:
        assert session.get_one(Account, within.account).mu_squared_spent == 0


def test_an_answer_from_before_a_revocation_meanwhile_is_not_reused(
    within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = within.submit("k1")

    def revoke_and_grant() -> None:
        with within.database.write() as session:
            claim_next(session, datasets.now() - datasets.now())
            charges.commit(session, earlier.job_id, "{}")
            datasets.revoke_grant(session, "ds_x", within.analyst)
            session.flush()
            dataset = session.get_one(Dataset, "ds_x")
            datasets.put_grant(session, dataset, within.analyst, Limits.none("gdp"))

    _meanwhile(monkeypatch, revoke_and_grant)
    assert within.submit("k2").job_id != earlier.job_id


def test_a_revocation_waits_for_a_charge_under_way_and_voids_it(
    within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a job could be reserved by a grant that was revoked before, and never be voided."""
    write, begun = charges.write, threading.Event()

    def revoke() -> None:
        with within.database.write() as session:
            begun.set()
            datasets.revoke_grant(session, "ds_x", within.analyst)

    with ThreadPoolExecutor(1) as pool:

        def slow_write(*given: Any) -> None:
            revocation = pool.submit(revoke)
            if not within.database.is_sqlite:  # there the lock of this transaction keeps it from beginning
                begun.wait(HANG_GUARD)
            with pytest.raises(TimeoutError):
                revocation.result(0.5)
            write(*given)

        monkeypatch.setattr(charges, "write", slow_write)
        job = within.submit("k").job_id
    with within.database.read() as session:
        assert session.get_one(Job, job).state == "voided"
        assert session.get_one(Account, within.account).mu_squared_spent == 0


def test_nobody_needs_a_key_for_the_probes(server: Server) -> None:
    assert httpx.get(f"{server.url}/healthz").json() == {"status": "ok"}
    until(lambda: httpx.get(f"{server.url}/readyz").json() == {"status": "ok"})

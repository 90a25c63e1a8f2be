"""The whole way of one query over HTTP: planned, charged, run, answered; refused where the budget ends."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from fractions import Fraction
from math import ceil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privest import manifolds
from privest.privacy.accounting import Cost, PrivacyTarget, gaussian_delta
from privest_service.estimates import endpoints
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.endpoints import watch_job
from privest_service.estimates.questions import QueryTarget, ResolvedQuery
from privest_service.estimates.service import Query
from privest_service.security.principals import Credential, Principal
from testing.server import HANG_GUARD, SPD3, Server, body_of, csv_of, npy, problem, spd
from testing.world import submissions_on

pytestmark = pytest.mark.either

MU_SQUARED = 10**12


def units(value: float, per_one: int) -> int:
    """A number of the ledger as it is shown, in the units in which it is stored."""
    exact = Decimal(repr(value)) * per_one
    assert abs(exact - round(exact)) < Decimal("1e-3")
    return round(exact)


def planned_units(plan: dict) -> int:
    """The cost of a plan, with the costliest alternative, rounded up to units of μ²."""
    runs = {release.get("run") for release in plan["releases"]} - {None} or {None}
    costs = [
        sum((Cost(each["mu_squared"]) for each in plan["releases"] if each.get("run") in (None, run)), Cost())
        for run in runs
    ]
    cost = max(costs, key=lambda each: each.mu_squared)
    return ceil(Fraction(cost.mu_squared) * MU_SQUARED)


@pytest.mark.parametrize("form", ["npy", "csv"])
def test_a_query_from_upload_to_bill(server: Server, form: str) -> None:
    owner, analyst = server.owner(epsilon=1.0, delta=1e-5), server.analyst()
    rows = spd(500)
    content = npy(rows) if form == "npy" else csv_of(rows)
    uploaded = owner.upload(content, SPD3, name=f"rows.{form}")
    assert uploaded.status_code == 201, uploaded.text
    dataset = uploaded.json()
    assert (dataset["n"], dataset["shape"], dataset["kind"]) == (500, [500, 3, 3], "points")
    assert owner.grant(dataset["id"], analyst).status_code == 200

    before = owner.budget(), owner.ledger()
    assert before[0]["spent"] == {"epsilon": 0.0, "delta": 0.0, "mu": 0.0, "slack": 0.0}
    plan = analyst.plan(dataset["id"], epsilon=0.5, delta=1e-6)
    assert plan.status_code == 200, plan.text
    assert (owner.budget(), owner.ledger()) == before

    answer = analyst.estimate(dataset["id"], epsilon=0.5, delta=1e-6)
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert job["state"] == "committed"
    assert not job["reused"]
    assert job["privacy"] == plan.json()["privacy"]
    assert job["uncertainty"]["of"] == "the Fréchet mean of the records"
    point = np.array(job["estimate"]["point"])
    space = manifolds.get("spd", dim=3)
    assert space.belongs(point)
    assert space.dist(point, np.eye(3)) < 1.0

    charged = planned_units(plan.json())
    budget, (entry, *_) = owner.budget(), owner.ledger()
    assert units(entry["mu_squared"], MU_SQUARED) == charged
    assert (entry["epsilon"], entry["delta"], entry["slack"]) == (0.5, 1e-6, 0.0)
    assert (entry["kind"], entry["job"], entry["submitter"]) == ("debit", job["id"], analyst.id)
    assert (entry["dataset"], entry["state"]) == (dataset["id"], "committed")
    assert [charge["mu_squared"] for charge in job["charges"]] == [entry["mu_squared"]]
    exact = Fraction(charged, MU_SQUARED)
    assert exact <= Fraction(budget["spent"]["mu"]) ** 2 <= exact * (1 + Fraction(1, 10**14))
    assert budget["spent"]["mu"] == pytest.approx(plan.json()["privacy"]["mu"], rel=1e-9)
    assert budget["queries"] == 1
    assert budget["basic"] == {"epsilon": 0.5, "delta": 1e-6}
    # (ε, δ) as spent is what μ and the slack limit of Δ/10 say, and it is below what was asked for.
    assert gaussian_delta(budget["spent"]["epsilon"], budget["spent"]["mu"]) <= 0.9e-5
    assert budget["spent"]["epsilon"] < 0.5

    refused = analyst.estimate(dataset["id"], epsilon=1.2, delta=1e-6)
    problem(refused, 409, "budget-exceeded")
    assert owner.budget() == budget
    assert owner.ledger()[0] == entry


def test_a_dataset_may_have_a_name(server: Server) -> None:
    owner, analyst = server.owner(), server.analyst()
    files = {"file": ("rows.npy", npy(spd(5)))}
    for given, name in (({"name": "  Ward 7, 2025 "}, "Ward 7, 2025"), ({}, None)):
        made = owner.post("/v1/datasets", files=files, data={"schema": json.dumps(SPD3)} | given).json()
        owner.grant(made["id"], analyst)
        assert made["name"] == name
        assert analyst.get(f"/v1/datasets/{made['id']}").json()["name"] == name
    refused = owner.post("/v1/datasets", files=files, data={"schema": json.dumps(SPD3), "name": "a\nb"})
    assert problem(refused, 422, "invalid")["faults"][0]["location"] == "name"


def test_both_formats_are_the_same_rows(server: Server) -> None:
    owner, rows = server.owner(), spd(50)
    marks = [
        owner.upload(content, SPD3, name=name).json()["fingerprint"]
        for content, name in ((npy(rows), "a.npy"), (csv_of(rows), "b.csv"))
    ]
    other = owner.upload(npy(spd(50, seed=1)), SPD3).json()["fingerprint"]
    assert marks[0] == marks[1] != other
    assert server.owner().upload(npy(rows), SPD3).json()["fingerprint"] != marks[0]


def test_the_content_type_names_the_format(server: Server) -> None:
    owner, rows = server.owner(), spd(10)
    assert owner.upload(csv_of(rows), SPD3, name="rows", media="text/csv; charset=utf-8").status_code == 201
    assert owner.upload(npy(rows), SPD3, name="rows", media="application/x-npy").status_code == 201


def test_a_line_of_names_in_csv_is_passed_over(server: Server) -> None:
    owner = server.owner()
    content = b"a,b\n1,2\n3,4\n5,6\n"
    schema = {"kind": "points", "manifold": {"name": "euclidean", "dim": 2}}
    assert owner.upload(content, schema, name="rows.csv").json()["n"] == 3


def test_without_wait_the_job_is_polled_and_watched(server: Server) -> None:
    owner = server.owner()
    accepted = owner.estimate(owner.dataset(), wait=0)
    assert accepted.status_code == 202, accepted.text
    job = accepted.json()
    assert job["state"] in ("reserved", "claimed")
    assert job["estimate"] is None
    assert accepted.headers["location"] == f"/v1/jobs/{job['id']}"

    with server.admin._http.stream("GET", f"/v1/jobs/{job['id']}/events", headers=owner.headers) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in events.iter_lines() if line]
    states = [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]
    order = ["reserved", "claimed", "committed"]
    assert states[-1] == "committed"
    assert states == [state for state in order if state in states]
    assert "point" not in "".join(lines)

    done = owner.get(accepted.headers["location"])
    assert done.json()["state"] == "committed"
    assert done.json()["estimate"]["point"]
    again = owner.get(accepted.headers["location"], headers={"If-None-Match": done.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == done.headers["etag"]
    changed = owner.get(accepted.headers["location"], headers={"If-None-Match": '"reserved"'})
    assert changed.status_code == 200


@pytest.mark.parametrize("ends", ["the service", "the time"])
def test_a_stream_of_states_ends_with(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def now(look: Callable[[], str]) -> str:
        return "claimed"

    engine: Any = SimpleNamespace(draining=False)
    monkeypatch.setattr(endpoints, "in_thread", now)
    nobody: Any = None
    if ends == "the time":
        monkeypatch.setattr(endpoints, "_LONGEST_WAIT", 0.3)

    async def watched() -> AsyncIterator[str | None]:
        async for event in watch_job(
            "job_1", Credential(Principal("owner", "own_1")), nobody, engine, nobody
        ):
            yield event.data
            engine.draining = ends == "the service"

    async def states() -> list[str | None]:
        return [state async for state in watched()]

    assert asyncio.run(asyncio.wait_for(states(), HANG_GUARD)) == ["claimed"]


def test_the_events_of_a_foreign_job_are_not_found(server: Server) -> None:
    owner, other = server.owner(), server.owner()
    job = owner.estimate(owner.dataset()).json()["id"]
    problem(other.get(f"/v1/jobs/{job}/events"), 404, "not-found")
    problem(other.get(f"/v1/jobs/{job}"), 404, "not-found")


# Idempotency


def test_the_same_key_gives_the_same_bytes_and_one_charge(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    answers = [owner.estimate(dataset, key="k", reuse=False) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert owner.budget()["queries"] == 1
    # The order of members and the spelling of numbers are not part of a body.
    spelled = '{"reuse": false, "privacy": {"epsilon": 1e-1}, "dataset": {"id": "DATASET"}}'
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    again = owner.post(
        "/v1/estimates/frechet-mean", headers=headers, content=spelled.replace("DATASET", dataset)
    )
    assert again.content == answers[0].content


def test_the_same_key_with_another_body_is_refused(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    first = owner.estimate(dataset, key="k")
    problem(owner.estimate(dataset, key="k", epsilon=0.2), 422, "idempotency-key-reused")
    assert owner.estimate(dataset, key="k").content == first.content
    assert owner.budget()["queries"] == 1


def test_a_refused_request_leaves_its_key_free(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    problem(owner.estimate(dataset, key="k", epsilon=5.0), 409, "budget-exceeded")
    problem(owner.estimate("ds_unknown", key="k"), 404, "not-found")
    problem(owner.estimate(dataset, key="k", epsilon=-1), 422, "invalid")
    assert owner.estimate(dataset, key="k").status_code == 200
    assert owner.budget()["queries"] == 1


def test_keys_belong_to_their_principal(server: Server) -> None:
    owner, analyst = server.owner(), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst)
    mine, theirs = (caller.estimate(dataset, key="k").json() for caller in (owner, analyst))
    assert mine["id"] != theirs["id"]
    assert mine["estimate"] != theirs["estimate"]
    assert owner.budget()["queries"] == 2


# Reuse


def test_the_same_question_is_answered_from_the_store(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    first, again = owner.estimate(dataset).json(), owner.estimate(dataset).json()
    assert again == first | {"reused": True}
    fresh = owner.estimate(dataset, reuse=False).json()
    assert fresh["id"] != first["id"]
    assert fresh["estimate"] != first["estimate"]
    assert not fresh["reused"]
    assert owner.budget()["queries"] == 2


def test_a_reused_answer_replays_as_reused(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    owner.estimate(dataset)
    answers = [owner.estimate(dataset, key="k") for _ in range(2)]
    assert answers[0].content == answers[1].content
    assert answers[1].json()["reused"]


@pytest.mark.parametrize("change", [{"epsilon": 0.11}, {"delta": 1e-7}, {"steps": 2}, {"clip": 0.5}])
def test_another_question_is_another_answer(server: Server, change: dict) -> None:
    owner = server.owner(epsilon=2.0)
    dataset = owner.dataset()
    first, other = owner.estimate(dataset).json(), owner.estimate(dataset, **change).json()
    assert other["id"] != first["id"]
    assert owner.budget()["queries"] == 2


def test_nothing_is_reused_across_submitters_or_handles(server: Server) -> None:
    owner, one, two = server.owner(epsilon=2.0), server.analyst(), server.analyst()
    dataset, copy = owner.dataset(), owner.dataset()
    for analyst in (one, two):
        owner.grant(dataset, analyst)
    jobs = [caller.estimate(dataset).json() for caller in (owner, one, two)] + [owner.estimate(copy).json()]
    assert len({job["id"] for job in jobs}) == 4
    assert len({json.dumps(job["estimate"]) for job in jobs}) == 4
    assert owner.budget()["queries"] == 4


def test_nothing_is_reused_across_a_revocation(server: Server) -> None:
    owner, analyst = server.owner(), server.analyst()
    dataset = owner.dataset()
    owner.grant(dataset, analyst)
    first = analyst.estimate(dataset).json()
    assert owner.delete(f"/v1/datasets/{dataset}/grants/{analyst.id}").status_code == 204
    problem(analyst.estimate(dataset), 404, "not-found")
    owner.grant(dataset, analyst)
    second = analyst.estimate(dataset).json()
    assert second["id"] != first["id"]
    assert not second["reused"]
    assert owner.budget()["queries"] == 2


# Budgets


def test_delta_left_out_is_n_to_minus_three_halves(server: Server) -> None:
    owner = server.owner(delta=1e-3)
    job = owner.estimate(owner.dataset(spd(400))).json()
    assert job["privacy"]["delta"] == pytest.approx(400**-1.5, rel=1e-15)
    assert not [w for w in owner.plan(owner.dataset(spd(400))).json()["warnings"] if "1/n" in w]
    weak = owner.plan(owner.dataset(), delta=0.5)
    assert [warning for warning in weak.json()["warnings"] if "1/n" in warning]


def test_a_basic_budget_admits_exactly_ten_tenths(server: Server) -> None:
    owner = server.owner(epsilon=1.0, delta=0.0, composition="basic")
    dataset = owner.dataset()
    jobs = [owner.estimate(dataset, reuse=False) for _ in range(10)]
    assert {job.status_code for job in jobs} == {200}
    problem(owner.estimate(dataset, reuse=False), 409, "budget-exceeded")
    problem(owner.estimate(dataset, reuse=False, epsilon=1e-6), 409, "budget-exceeded")
    budget = owner.budget()
    assert budget["spent"]["epsilon"] == 1.0
    assert budget["remaining"] == {"epsilon": 0.0, "delta": 0.0}
    assert budget["queries"] == 10
    job = jobs[0].json()
    assert job["privacy"]["delta"] == 0.0
    assert job["privacy"]["mechanism"].startswith(("Laplace", "independent Laplace"))


def test_pure_privacy_on_a_basic_budget_with_delta_is_asked_for(server: Server) -> None:
    owner = server.owner(epsilon=1.0, delta=1e-2, composition="basic")
    dataset = owner.dataset()
    assert (
        owner.plan(dataset, delta=0)
        .json()["privacy"]["mechanism"]
        .startswith(("Laplace", "independent Laplace"))
    )
    assert owner.plan(dataset).json()["privacy"]["mechanism"].startswith("Gaussian")


def test_a_gdp_budget_needs_delta(server: Server) -> None:
    for budget in ({"epsilon": 1.0, "delta": 0.0}, {"epsilon": 1.0, "delta": 0, "composition": "gdp"}):
        problem(server.admin.post("/v1/owners", json={"name": "x", "budget": budget}), 422, "invalid")


def test_a_pure_query_is_charged_to_a_gdp_budget_at_its_mu(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    plan = owner.plan(dataset, epsilon=0.05, delta=0).json()
    job = owner.estimate(dataset, epsilon=0.05, delta=0).json()
    assert job["state"] == "committed"
    assert units(owner.ledger()[0]["mu_squared"], MU_SQUARED) == planned_units(plan)


def test_an_untouched_gdp_budget_has_spent_exactly_nothing(server: Server) -> None:
    budget = server.owner(epsilon=1.0, delta=1e-5).budget()
    assert budget["spent"]["epsilon"] == 0.0
    assert budget["remaining"]["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert budget["remaining"]["epsilon"] <= 1.0
    assert budget["limit"] == {"epsilon": 1.0, "delta": 1e-5}


@pytest.mark.parametrize("composition", ["gdp", "basic"])
@pytest.mark.parametrize("before", [[], [0.1], [0.37, 0.123]])
def test_what_remains_is_admitted_and_no_more(server: Server, composition: str, before: list) -> None:
    owner = server.owner(epsilon=1.0, delta=1e-5, composition=composition)
    dataset = owner.dataset()
    for epsilon in before:
        assert owner.estimate(dataset, epsilon=epsilon, delta=1e-7).status_code == 200
    left = owner.budget()["remaining"]
    more = left | {"epsilon": left["epsilon"] * 1.01}
    problem(owner.estimate(dataset, **more, reuse=False), 409, "budget-exceeded")
    assert owner.estimate(dataset, **left, reuse=False).status_code == 200
    after = owner.budget()
    assert after["remaining"]["epsilon"] <= 1e-3
    assert after["spent"]["epsilon"] <= 1.0


def test_a_deleted_dataset_is_gone_and_its_charges_stay(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    owner.estimate(dataset)
    before = owner.budget()
    file = server.data_dir / "rows" / owner.id / f"{dataset}.npy"
    assert file.exists()
    assert owner.delete(f"/v1/datasets/{dataset}").status_code == 204
    assert not file.exists()
    problem(owner.estimate(dataset), 404, "not-found")
    problem(owner.get(f"/v1/datasets/{dataset}"), 404, "not-found")
    assert owner.get("/v1/datasets").json() == {"datasets": [], "next": None}
    assert owner.budget() == before


def test_dummy_rows_come_from_the_schema_alone(server: Server) -> None:
    owner = server.owner()
    first, second = owner.dataset(spd(10)), owner.dataset(spd(99, seed=5))
    rows = [owner.get(f"/v1/datasets/{dataset}/dummy").json() for dataset in (first, second)]
    assert rows[0] == rows[1]
    assert manifolds.get("spd", dim=3).belongs(np.array(rows[0]["rows"])).all()


def test_the_ledger_is_read_in_pages(server: Server) -> None:
    owner = server.owner(epsilon=1.0, delta=0.0, composition="basic")
    dataset = owner.dataset()
    for _ in range(4):
        owner.estimate(dataset, reuse=False)
    seen, cursor = [], {}
    while True:
        page = owner.get(f"/v1/owners/{owner.id}/ledger", params={"limit": 2} | cursor).json()
        seen += page["entries"]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert [entry["seq"] for entry in seen] == [5, 4, 3, 2, 1]
    assert [entry["kind"] for entry in seen] == ["debit"] * 4 + ["limit"]
    assert [entry["prev"] for entry in seen[:-1]] == [entry["hash"] for entry in seen[1:]]


def test_a_body_without_delta_is_the_body_that_names_none(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset()
    headers = {"Idempotency-Key": "k", "Prefer": "wait=240"}
    bodies = [body_of(dataset, 0.1), body_of(dataset, 0.1, delta=None)]
    answers = [owner.post("/v1/estimates/frechet-mean", headers=headers, json=body) for body in bodies]
    assert answers[0].content == answers[1].content


@pytest.mark.parametrize(
    ("kind", "more", "dummy", "body", "question"),
    [
        ("frechet-mean", {}, False, "b984c2ffbc4c6181", "4bbc6c42861997fe"),
        ("frechet-mean", {}, True, "95d5f19abdfbbdd8", "6188415a20c2f899"),
        # Shares of variance are the default now: a stored answer without them answers only those who say that
        # they want none. Without a choice the key is the one of those who asked for the shares before.
        ("robust-pca", {"rank": 2}, False, "1db6d8cde8bdc33b", "48ae7da82fe75f8d"),
        ("robust-pca", {"rank": 2, "explained": False}, False, "1db6d8cde8bdc33b", "3c9d290810fd2beb"),
        ("logistic-regression", {}, False, "506fe743dff4ee07", "5d2219ab106a527a"),
    ],
)
def test_keys_and_answers_of_former_versions_are_found_again(
    kind: str, more: dict, dummy: bool, body: str, question: str
) -> None:
    """Digests are as they were before requests had the choices that they have now."""
    found = KINDS[kind]
    about = {"id": "ds_x"} | ({"dummy": True} if dummy else {})
    request = found.request.model_validate({"dataset": about, "privacy": {"epsilon": 0.5}} | more)
    nothing: Any = SimpleNamespace(recipe=None)
    (command,) = submissions_on(nothing).commands(Principal("analyst", "an_x"), Query(found, request), "k")
    assert command.digest.startswith(body)
    subject = QueryTarget("ds_x", "own_x", nothing, PrivacyTarget(0.5, 1e-6))
    asked = ResolvedQuery("an_x", found, (subject,), found.resolved(request, nothing), dummy)
    assert asked.digest.startswith(question)

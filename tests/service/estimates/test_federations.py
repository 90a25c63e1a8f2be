"""Questions on datasets of several owners: one answer, each owner charged its own, or nobody."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from itertools import permutations
from typing import Any

import httpx
import numpy as np
import pytest
from alembic import command
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from privest import manifolds
from privest.privacy.accounting import mu_for
from privest_service.database import Database, now
from privest_service.database.migrate import config
from privest_service.database.tables import new_id
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job, Transition
from privest_service.ledger import charges, entries
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Entry, Mechanism
from privest_service.ledger.receipts import Receipt, signed_by
from privest_service.ledger.units import Charge, Limits
from privest_service.problems import BudgetExceeded
from testing.books import Books, held
from testing.claims import claim_next
from testing.server import HANG_GUARD, Caller, Server, books_balance, problem, slow_rows, until

pytestmark = pytest.mark.either

PRIVACY = {"epsilon": 1.0, "delta": 1e-6}
VECTORS = {"kind": "vectors", "dim": 5}
TRUTH = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 2)))[0]


def rows_near(n: int, seed: int) -> np.ndarray:
    """Rows about one plane, most of each owner's along a direction of its own."""
    rng = np.random.default_rng(seed)
    own = np.array([1.0, 0.3]) if seed % 2 else np.array([0.3, 1.0])
    return (rng.standard_normal((n, 2)) * own) @ TRUTH.T + 0.02 * rng.standard_normal((n, 5))


@dataclass
class Three:
    """Three owners, a dataset of each, and an analyst who may ask about all of them."""

    owners: list[Caller]
    datasets: list[str]
    analyst: Caller

    def ask(self, datasets: Any = None, kind: str = "robust-pca", **body: Any) -> httpx.Response:
        key = body.pop("key", new_id("key"))
        wait = {"Prefer": f"wait={body.pop('wait', 50)}"}
        return self.analyst.post(
            f"/v1/estimates/{kind}",
            headers={"Idempotency-Key": key} | wait,
            json=self.body(datasets, **body),
        )

    def plan(self, datasets: Any = None, kind: str = "robust-pca", **body: Any) -> httpx.Response:
        return self.analyst.post(f"/v1/estimates/{kind}/plan", json=self.body(datasets, **body))

    def body(self, datasets: Any = None, epsilon: float = 0.5, **more: Any) -> dict[str, Any]:
        about = [{"id": each} for each in self.datasets] if datasets is None else datasets
        rank = {} if "rank" in more or more.pop("ranked", True) is False else {"rank": 2}
        return {"dataset": about, "privacy": {"epsilon": epsilon}} | rank | more

    def spent(self) -> list[float]:
        return [owner.budget()["spent"]["epsilon"] for owner in self.owners]

    def books(self) -> Any:
        return [(owner.budget(), owner.ledger()) for owner in self.owners]


COUNTS = (2000, 3000, 2500)


def three(server: Server, schema: dict[str, Any] | None = None, rows: Any = None, **budget: Any) -> Three:
    owners = [server.owner(**{"epsilon": 3.0, "delta": 1e-4} | budget) for _ in COUNTS]
    analyst = server.analyst()
    datasets = [
        owner.dataset(rows_near(n, i) if rows is None else rows, schema or VECTORS)
        for i, (owner, n) in enumerate(zip(owners, COUNTS, strict=True))
    ]
    for owner, dataset in zip(owners, datasets, strict=True):
        assert owner.grant(dataset, analyst).status_code == 200
    return Three(owners, datasets, analyst)


def test_one_estimate_three_ledgers_charged_and_a_refused_run_that_charges_nobody(server: Server) -> None:
    them = three(server)
    epsilons = [0.3, 1.0, 2.0]
    about = [
        {"id": dataset, "privacy": {"epsilon": epsilon, "delta": 1e-6}}
        for dataset, epsilon in zip(them.datasets, epsilons, strict=True)
    ]
    before = them.books()
    plan = them.plan(about)
    assert plan.status_code == 200, plan.text
    assert them.books() == before
    told = plan.json()
    assert [part["dataset"] for part in told["parts"]] == them.datasets
    assert [part["privacy"]["epsilon"] for part in told["parts"]] == epsilons
    weights = [part["weight"] for part in told["parts"]]
    assert sum(weights) == pytest.approx(1.0)
    by_record = [weight / n for weight, n in zip(weights, COUNTS, strict=True)]
    assert by_record == sorted(by_record)
    assert (told["privacy"]["epsilon"], told["privacy"]["delta"]) == (2.0, 1e-6)
    assert any("every one of these datasets" in warning for warning in told["warnings"])
    assert told["second_opinion"]["epsilon"] < 4.0

    answer = them.ask(about)
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert job["state"] == "committed"
    basis = np.array(job["estimate"]["basis"])
    space = manifolds.get("grassmann", dim=5, rank=2)
    assert space.dist(basis, TRUTH) < 0.1
    charged = [charge for charge in job["charges"] if charge["scope"] == "owner"]
    assert {charge["dataset"]: charge["epsilon"] for charge in charged} == dict(
        zip(them.datasets, epsilons, strict=True)
    )
    for owner, dataset, epsilon, part in zip(
        them.owners, them.datasets, epsilons, told["parts"], strict=True
    ):
        (entry, _) = owner.ledger()
        assert (entry["kind"], entry["dataset"], entry["state"]) == ("debit", dataset, "committed")
        assert (entry["submitter"], entry["epsilon"], entry["delta"]) == (them.analyst.id, epsilon, 1e-6)
        budget = owner.budget()
        assert budget["queries"] == 1
        assert budget["spent"]["mu"] == pytest.approx(part["privacy"]["mu"], rel=1e-9)

    # One of three budgets does not cover another such run: all three stay as they are.
    after = them.books()
    refused = problem(
        them.ask([about[0], {"id": them.datasets[1]}, about[2]], epsilon=4.0), 409, "budget-exceeded"
    )
    assert them.datasets[1] not in refused["detail"]  # which of the owners refused is not told
    assert them.books() == after
    assert them.ask(epsilon=0.2).status_code == 200


def test_each_owner_sees_its_own_charge_and_receipt_alone(server: Server) -> None:
    them = three(server)
    job = them.ask().json()
    (key,) = server.admin.get("/v1/ledger/keys").json()["keys"]
    whole = Receipt.model_validate(job["receipt"])
    assert signed_by(whole, key["public_key"])
    assert whole.statement.dataset == them.datasets
    seen = set[tuple[int, int, str]]()
    parts = list[str]()
    for owner, dataset in zip(them.owners, them.datasets, strict=True):
        part = owner.ledger()[0]["job"]
        assert part != job["id"]
        parts.append(part)
        told = owner.get(f"/v1/jobs/{part}").json()
        assert told["state"] == "committed"
        assert told["estimate"] is None
        assert {charge["dataset"] for charge in told["charges"]} == {dataset}
        receipt = Receipt.model_validate(owner.get(f"/v1/jobs/{part}/receipt").json())
        assert signed_by(receipt, key["public_key"])
        assert (receipt.statement.job, receipt.statement.dataset) == (part, dataset)
        assert receipt.statement.answer == sha256(whole.model_dump_json().encode()).hexdigest()
        seen |= {str(it.commitment) for it in receipt.statement.entries}
        everything = owner.get(f"/v1/jobs/{part}").text + owner.get(f"/v1/owners/{owner.id}/ledger").text
        export = owner.get(f"/v1/owners/{owner.id}/ledger/export").text
        others = [each for each in (*them.owners, *them.datasets) if each not in (owner, dataset)]
        for other in (*(getattr(each, "id", each) for each in others), job["id"]):
            assert other not in everything + export
        problem(owner.get(f"/v1/jobs/{job['id']}"), 404, "not-found")
        problem(owner.get(f"/v1/jobs/{job['id']}/receipt"), 404, "not-found")
    assert whole.statement.entries == []
    assert sorted(seen) == whole.statement.commitments
    for owner in them.owners:
        theirs = [owner.get(f"/v1/jobs/{part}").status_code for part in parts]
        assert sorted(theirs) == [200, 404, 404]


def test_the_same_question_is_answered_once(server: Server) -> None:
    them = three(server)
    first = them.ask(key="one").json()
    assert them.ask(key="one").json()["id"] == first["id"]
    again = them.ask(key="two").json()
    assert (again["id"], again["reused"]) == (first["id"], True)
    other_order = them.ask([{"id": each} for each in reversed(them.datasets)]).json()
    assert (other_order["id"], other_order["reused"]) == (first["id"], True)
    problem(them.ask(key="one", epsilon=0.4), 422, "idempotency-key-reused")
    fewer = them.ask([{"id": each} for each in them.datasets[:2]]).json()
    assert fewer["id"] != first["id"]
    alone = them.ask([{"id": them.datasets[0]}]).json()
    assert not alone["reused"]
    assert them.ask({"id": them.datasets[0]}).json()["id"] == alone["id"]  # a list of one is that one
    assert [owner.budget()["queries"] for owner in them.owners] == [3, 2, 1]
    # Access that began anew makes earlier answers others'.
    them.owners[2].delete(f"/v1/datasets/{them.datasets[2]}/grants/{them.analyst.id}")
    problem(them.ask(), 404, "not-found")
    them.owners[2].grant(them.datasets[2], them.analyst)
    assert them.ask().json()["id"] != first["id"]


def test_bad_lists_are_refused_before_anything_is_charged(server: Server) -> None:
    them = three(server)
    stranger = server.owner()
    foreign = stranger.dataset(rows_near(50, 1), VECTORS)
    poor = server.owner(epsilon=0.01, delta=1e-6)
    broke = poor.dataset(rows_near(50, 1), VECTORS)
    wide = them.owners[0].dataset(np.ones((50, 7)), {"kind": "vectors", "dim": 7})
    long = them.owners[0].dataset(rows_near(50, 1), VECTORS | {"norm_bound": 2.0})
    points = them.owners[0].dataset()
    frozen = server.owner()
    cold = frozen.dataset(rows_near(50, 1), VECTORS)
    frozen.patch(f"/v1/owners/{frozen.id}/budget", json={"frozen": True})
    for owner, dataset in (
        (poor, broke),
        (frozen, cold),
        *((them.owners[0], it) for it in (wide, long, points)),
    ):
        owner.grant(dataset, them.analyst)
    a, b = them.datasets[:2]
    before = them.books(), poor.ledger(), frozen.ledger()
    refusals: list[tuple[Any, int, str, str]] = [
        ([], 422, "invalid", ""),
        ([{"id": a}, {"id": a}], 422, "invalid", "must name each dataset once"),
        ([{"id": a}, {"id": foreign}], 404, "not-found", ""),
        ([{"id": a}, {"id": "ds_nothing"}], 404, "not-found", ""),
        ([{"id": a}, {"id": broke}], 409, "budget-exceeded", "Ask the owner"),
        ([{"id": a}, {"id": cold}], 409, "budget-exceeded", "Ask the owner"),
        ([{"id": a}, {"id": wide}], 422, "invalid", "differ in dim"),
        ([{"id": b}, {"id": long}], 422, "invalid", "differ in norm_bound"),
        ([{"id": a}, {"id": points}], 422, "invalid", "kind vectors"),
        ([{"id": a}, {"id": b, "dummy": True}], 422, "invalid", "for all datasets"),
        ([{"id": a}, {"inline": {"schema": VECTORS, "rows": [[1.0] * 5] * 3}}], 422, "invalid", ""),
        ([{"id": a}, {"id": b, "privacy": {"epsilon": 0.0}}], 422, "invalid", ""),
        (
            [{"id": a}, {"id": b, "privacy": {"epsilon": 0.5, "delta": 0.0}}],
            422,
            "invalid",
            "delta must be 0",
        ),
        ([{"id": a}] * 101, 422, "invalid", ""),
        ([a, b], 422, "invalid", ""),
    ]
    for about, status, slug, says in refusals:
        told = them.ask(about)
        assert says in told.text, (about, told.text)
        problem(told, status, slug)
        if slug not in ("budget-exceeded", "account-frozen"):  # a plan asks no budget
            problem(them.plan(about), status, slug)
    assert (them.books(), poor.ledger(), frozen.ledger()) == before
    spd = {"kind": "points", "manifold": {"name": "spd", "dim": 3}, "radius": 1.0}
    ours = three(server, spd, np.tile(np.eye(3), (40, 1, 1)))
    problem(ours.ask(kind="frechet-mean", ranked=False, local_steps=5), 422, "invalid")
    assert ours.spent() == [0.0, 0.0, 0.0]


def test_owners_who_take_steps_by_themselves(server: Server) -> None:
    """Algorithm 1 of Zhang et al. 2024 over HTTP, on a subspace and a sphere; a plan tells every answer."""
    them = three(server)
    how = {"loss": "squared", "local_steps": 5, "steps": 4}
    plan = them.plan(epsilon=1.0, **how).json()
    (gradient,) = [it for it in plan["releases"] if it["statistic"] == "gradient"]
    assert gradient["count"] == 20
    found = them.ask(epsilon=1.0, **how).json()
    space = manifolds.get("grassmann", dim=5, rank=2)
    assert space.dist(np.array(found["estimate"]["basis"]), TRUTH) < 0.3
    circle = {"kind": "points", "manifold": {"name": "sphere", "dim": 3}, "radius": 0.5}
    sphere = manifolds.get("sphere", dim=3)
    rng = np.random.default_rng(1)
    rows = sphere.exp_coordinates(sphere.reference, 0.1 * rng.standard_normal((500, 3)))
    ours = three(server, circle, rows)
    mean = ours.ask(kind="frechet-mean", ranked=False, local_steps=3, steps=4, epsilon=1.0).json()
    assert sphere.dist(np.array(mean["estimate"]["point"]), sphere.reference) < 0.1


def test_owners_who_take_turns(server: Server) -> None:
    """Each is asked in its own rounds alone, which the plan tells, and is charged what all are."""
    them = three(server)
    how = {"loss": "squared", "steps": 13, "turns": 3, "local_steps": 2, "server_step": 2.0}
    plan = them.plan(epsilon=1.0, **how).json()
    assert (plan["turns"], plan["local_steps"], plan["server_step"]) == (3, 2, 2.0)
    once = sum(r["count"] for r in plan["releases"] if r["statistic"] != "gradient")
    assert [part["answers"] - once for part in plan["parts"]] == [2 * 5] * 3
    found = them.ask(epsilon=1.0, **how).json()
    space = manifolds.get("grassmann", dim=5, rank=2)
    assert space.dist(np.array(found["estimate"]["basis"]), TRUTH) < 0.3
    all_in_all = them.plan(epsilon=1.0, loss="squared").json()
    prices = [[part["privacy"]["mu"] for part in each["parts"]] for each in (plan, all_in_all)]
    assert prices[0] == pytest.approx(prices[1], rel=1e-4)
    for wrong, says in (
        ({"turns": 4}, "ask for fewer turns"),
        ({"turns": 0}, "turns"),
        ({"turns": 2, "solver": "md-reaper"}, "turns belong to"),
        ({"server_step": 2.0}, "local_steps above 1"),
        ({"server_step": 0.0, "local_steps": 2}, "server_step"),
    ):
        refused = them.plan(**wrong)
        assert says in refused.text
        problem(refused, 422, "invalid")
    alone = them.plan([{"id": them.datasets[0]}], turns=2)
    assert "here are 1" in problem(alone, 422, "invalid")["detail"]


def test_all_other_estimates_take_several_datasets_too(server: Server) -> None:
    labelled = {"kind": "labelled", "features": ["a"], "label": "y", "classes": ["0", "1"], "scale": [1.0]}
    labels = np.arange(3000) % 2
    x = np.random.default_rng(5).standard_normal(3000) + 2 * labels
    them = three(server, labelled, np.column_stack([x, labels]))
    fitted = them.ask(kind="logistic-regression", ranked=False, epsilon=1.0).json()["estimate"]
    assert fitted["coefficients"][0] > 0.5
    told = {"coefficients": fitted["coefficients"], "intercept": fitted["intercept"]}
    partial = {"kind": "partial-vectors", "dim": 5, "known": 0.7}
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((3000, 2)) @ TRUTH.T
    rows[rng.uniform(size=rows.shape) > 0.7] = np.nan
    ours = three(server, partial, rows)
    space = manifolds.get("grassmann", dim=5, rank=2)
    for how in ({}, {"local_steps": 3, "steps": 5}):
        completed = ours.ask(kind="matrix-completion", epsilon=1.0, **how).json()["estimate"]
        assert space.dist(np.array(completed["basis"]), TRUTH) < 0.2
    scored = them.ask(kind="classifier-score", ranked=False, metric="accuracy", **told).json()["estimate"]
    assert scored["value"] == pytest.approx(0.84, abs=0.05)


def test_synthetic_rows_of_several_owners_are_free(server: Server) -> None:
    them = three(server)
    job = them.ask([{"id": each, "dummy": True} for each in them.datasets]).json()
    assert (job["state"], job["dummy"], job["charges"]) == ("committed", True, [])
    assert np.array(job["estimate"]["basis"]).shape == (5, 2)
    assert [owner.budget()["queries"] for owner in them.owners] == [0, 0, 0]


def test_two_datasets_of_one_owner_are_charged_both(server: Server) -> None:
    owner = server.owner(epsilon=3.0)
    datasets = [owner.dataset(rows_near(2000, i), VECTORS) for i in range(2)]
    body = {
        "dataset": [{"id": each} for each in datasets],
        "privacy": {"epsilon": 1.0, "delta": 1e-6},
        "rank": 2,
    }
    headers = {"Idempotency-Key": new_id("key"), "Prefer": "wait=240"}
    job = owner.post("/v1/estimates/robust-pca", headers=headers, json=body).json()
    assert job["estimate"] is not None
    first, second, _ = owner.ledger()
    assert {first["dataset"], second["dataset"]} == set(datasets)
    assert first["mu_squared"] == second["mu_squared"] > 0
    assert owner.budget()["queries"] == 2


def test_rows_that_two_owners_hold_alike_tell_nothing_by_it(server: Server) -> None:
    """A refusal would tell that they are alike, so a guess of all rows but one could be tested."""
    owners, analyst = [server.owner(), server.owner()], server.analyst()
    rows = rows_near(500, 1)
    other = rows.copy()
    other[7] = 0.5
    pairs = []
    for mine, theirs in ((rows, rows), (rows, other)):
        pair = [owner.dataset(own, VECTORS) for owner, own in zip(owners, (mine, theirs), strict=True)]
        for owner, dataset in zip(owners, pair, strict=True):
            owner.grant(dataset, analyst)
        pairs.append(pair)
    told = []
    for pair in pairs:
        asked = Three(owners, pair, analyst)
        # With a loss that released numbers would choose, the words would follow from its noise.
        plan, answer = asked.plan(adaptive=False).json(), asked.ask(epsilon=0.2, adaptive=False)
        # An estimate's own error, and what it warns of, follow from its noise; the words about it do not.
        noisy = {"id", "estimate", "uncertainty", "warnings", "receipt"}
        job = {k: v for k, v in answer.json().items() if k not in noisy}
        error = answer.json()["uncertainty"]
        words = [error["of"], error["unknown"], sorted(error)]
        foretold = [each for each in answer.json()["warnings"] if each in plan["warnings"]]
        seen = json.dumps([plan, answer.status_code, job, sorted(answer.json()), words, foretold])
        told.append(seen.replace(pair[0], "A").replace(pair[1], "B"))
    assert told[0] == told[1]


def test_a_dataset_that_is_withdrawn_voids_the_run_for_all(
    start_server: Callable[..., Server],
) -> None:
    """A joint run that waits behind another is voided, and every owner is given back its charge."""
    server = start_server()
    rows, schema = slow_rows()
    busy = server.owner(epsilon=5.0)
    behind = busy.estimate(busy.dataset(rows, schema), steps=1000, wait=0)
    until(lambda: busy.get(f"/v1/jobs/{behind.json()['id']}").json()["state"] == "claimed")
    for withdraw in ("delete", "revoke"):
        them = three(server)
        job = them.ask(wait=0).json()
        assert job["state"] == "reserved"
        assert min(them.spent()) > 0
        path = f"/v1/datasets/{them.datasets[1]}"
        if withdraw == "revoke":
            path += f"/grants/{them.analyst.id}"
        assert them.owners[1].delete(path).status_code == 204
        assert them.analyst.get(f"/v1/jobs/{job['id']}").json()["state"] == "voided"
        assert them.spent() == [0.0, 0.0, 0.0]
        assert [owner.ledger()[0]["kind"] for owner in them.owners] == ["void"] * 3
    assert books_balance(server)
    server.kill()  # which would wait for the slow one


def test_lists_in_every_order_are_charged_at_once_and_exactly(server: Server) -> None:
    """Sixteen questions on the same accounts, asked together: as many are charged as the budgets cover."""
    them = three(server)
    lists = [[{"id": each} for each in order] for order in permutations(them.datasets)]
    limit = them.owners[0].budget()["limit"]
    room = mu_for(limit["epsilon"], 0.9 * limit["delta"]) ** 2
    plan = them.plan(epsilon=1.0, privacy=PRIVACY).json()
    covered = int(room / plan["parts"][0]["privacy"]["mu"] ** 2)
    assert 3 < covered < 16

    def ask(number: int) -> int:
        return them.ask(lists[number % 6], privacy=PRIVACY, reuse=False, wait=0).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = Counter(pool.map(ask, range(16)))
    assert statuses == {202: covered, 409: 16 - covered}
    assert [owner.budget()["queries"] for owner in them.owners] == [covered] * 3
    parts = [entry["job"] for owner in them.owners for entry in owner.ledger() if entry["job"]]
    assert len(set(parts)) == 3 * covered
    for owner in them.owners:
        for part in {entry["job"] for entry in owner.ledger() if entry["job"]}:
            assert owner.ended(part)["state"] == "committed"


# The ledger alone


def reserve_on_both(books: list[Books], accounts: list[int]) -> tuple[str, list[str]]:
    """A job with a part for each of these, each charged on its account."""
    job = Job(id=new_id("job"), kind="robust-pca", submitter_id="x", spec_digest="", plan="{}")
    mechanism = Mechanism(digest="0" * 64, content="{}")
    with books[0].database.write() as session:
        debits = list[charges.Debits]()
        by_id = {account.id: account for account in held(session, accounts)}
        for place, (each, account) in enumerate(zip(books, map(by_id.get, accounts), strict=True)):
            assert account is not None
            part = each.job("x")
            part.part_of, part.place = job.id, place
            debits.append(charges.Debits(part, [account], [Charge(1, 1, 10, 1)], mechanism))
        key = IdempotencyKey(principal_id="x", key=new_id("key"), body_digest="", job_id=job.id)
        charges.require_covered(session, debits)
        charges.write(session, job, debits, key)
    return job.id, [each.job.id for each in debits]


def states(database: Database, jobs: list[str]) -> set[str]:
    with database.read() as session:
        return set(session.scalars(select(Job.state).where(Job.id.in_(jobs))))


def test_parts_go_where_their_job_goes_and_nowhere_else(database: Database) -> None:
    books = [Books(database), Books(database)]
    accounts = [each.open(Limits("gdp", 1, 1, 35, 10)) for each in books]

    def spent() -> list[tuple[int, int]]:
        found = [each.account(account) for each, account in zip(books, accounts, strict=True)]
        return [(account.mu_squared_spent, account.queries) for account in found]

    job, parts = reserve_on_both(books, accounts)
    assert states(database, [job, *parts]) == {"reserved"}
    with database.write() as session:
        assert jobs.queue(session)[0] == 1
        assert not any(charges.void(session, part) for part in parts)
        assert charges.void(session, job)
    assert states(database, [job, *parts]) == {"voided"}
    assert spent() == [(0, 0), (0, 0)]

    lost, parts = reserve_on_both(books, accounts)
    with database.write() as session:
        claimed = claim_next(session, timedelta(seconds=-1))
        assert claimed is not None
        assert claimed.id == lost
        assert claim_next(session, timedelta(hours=1)) is None
        assert [part.id for part in jobs.parts_of(session, claimed)] == parts
    assert states(database, [lost, *parts]) == {"claimed"}
    with database.write() as session:
        assert jobs.fail_overdue(session, now()) == [lost]
        assert not charges.void(session, lost)
    assert states(database, [lost, *parts]) == {"failed"}

    done, parts = reserve_on_both(books, accounts)
    with database.write() as session:
        claim_next(session, timedelta(hours=1))
        assert charges.commit(session, done, "[1]")
    with database.read() as session:
        whole, *others = session.scalars(
            select(Job).where(Job.id.in_([done, *parts])).order_by(Job.place.is_not(None), Job.place)
        )
        assert (whole.result, [part.result for part in others]) == ("[1]", [None, None])
        assert all(part.receipt for part in others)
        assert (whole.receipt, bool(whole.analyst_receipt)) == (None, True)
    assert spent() == [(20, 2), (20, 2)]
    assert books[0].faults() == []


@pytest.mark.parametrize("poor", [0, 1])
def test_nothing_is_written_before_all_parts_are_known_to_be_covered(
    database: Database, monkeypatch: pytest.MonkeyPatch, poor: int
) -> None:
    """Otherwise the time that a refusal takes would tell which of the owners refused."""
    books = [Books(database), Books(database)]
    limits = [Limits("gdp", 1, 1, 9 if place == poor else 100, 10) for place in range(2)]
    with database.write() as session:
        opened = [
            ledger.open_account(session, each.owner, "dataset", limit, subject="rows").id
            for each, limit in zip(books, limits, strict=True)
        ]
    written = list[str]()
    for module, name in ((entries, "append"), (charges, "insert_if_new"), (jobs, "add")):
        monkeypatch.setattr(module, name, lambda *_, name=name: written.append(name))
    with pytest.raises(BudgetExceeded):
        reserve_on_both(books, opened)
    assert written == []


def test_a_charge_that_one_of_two_does_not_cover_leaves_no_trace(database: Database) -> None:
    books = [Books(database), Books(database)]
    accounts = [books[0].open(Limits("gdp", 1, 1, 100, 10)), books[1].open(Limits("gdp", 1, 1, 9, 10))]
    with pytest.raises(BudgetExceeded) as refused:
        reserve_on_both(books, accounts)
    assert books[1].dataset in str(refused.value.detail)
    with database.read() as session:
        assert session.scalars(select(Job)).all() == session.scalars(select(Transition)).all() == []
        assert set(session.scalars(select(Entry.kind))) == {"limit"}
    assert [books[i].account(account).seq for i, account in enumerate(accounts)] == [1, 1]


def test_one_account_that_pays_for_two_parts_is_held_to_their_sum(database: Database) -> None:
    books = Books(database)
    account = books.open(Limits("gdp", 1, 1, 19, 10))
    job = books.job()
    job.owner_id = job.dataset_id = None
    mechanism = Mechanism(digest="0" * 64, content="{}")
    key = IdempotencyKey(principal_id="x", key="k", body_digest="", job_id=job.id)
    parts = [books.job(), books.job()]
    for place, part in enumerate(parts):
        part.part_of, part.place = job.id, place

    def reserve(session: Session) -> None:
        own = held(session, [account])
        debits = [charges.Debits(part, own, [Charge(1, 1, 10, 1)], mechanism) for part in parts]
        charges.require_covered(session, debits)
        charges.write(session, job, debits, key)

    with pytest.raises(BudgetExceeded):
        database.run(reserve)
    assert books.account(account).mu_squared_spent == 0


def test_parts_are_not_forgotten_by_a_downgrade(database: Database) -> None:
    books = [Books(database), Books(database)]
    reserve_on_both(books, [each.open(Limits("gdp", 1, 1, 35, 10)) for each in books])
    with pytest.raises(RuntimeError, match="several datasets"):
        command.downgrade(config(database), "0005")


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_withdrawal_that_voids_several_jobs_holds_all_their_accounts_first(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs on {A, C} and {A, B} are voided while a charge waits for B and C: neither waits for the other."""
    books = [Books(database) for _ in range(3)]
    accounts = [each.open(Limits("gdp", 1, 1, 10**6, 10**6)) for each in books]
    a, b, c = zip(books, accounts, strict=True)
    jobs = [reserve_on_both(*map(list, zip(a, other, strict=True)))[0] for other in (c, b)]
    void, begun = charges.void, threading.Event()

    def waits() -> bool:
        with database.read() as session:
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            return bool(session.scalar(text(blocked)))

    def slow(session: Session, job_id: str) -> bool:
        done = void(session, job_id)
        if not begun.is_set():
            begun.set()
            until(waits)
        return done

    monkeypatch.setattr(charges, "void", slow)

    def withdraw() -> None:
        with database.write() as session:
            charges.void_waiting(session, dataset_id=books[0].dataset)

    def charge() -> None:
        begun.wait(HANG_GUARD)
        with database.write() as session:
            held(session, accounts[1:])

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(withdraw), pool.submit(charge)]:
            done.result(HANG_GUARD)
    assert states(database, jobs) == {"voided"}
    assert [each.account(account).mu_squared_spent for each, account in (a, b, c)] == [0, 0, 0]


def test_a_job_belongs_to_a_dataset_or_has_parts(database: Database) -> None:
    books = [Books(database), Books(database)]
    reserve_on_both(books, [each.open(Limits("gdp", 1, 1, 35, 10)) for each in books])
    for wrong in (
        "owner_id = NULL",
        "dataset_id = NULL",
        "place = NULL",
        "owner_id = NULL, dataset_id = NULL",
    ):
        with pytest.raises(IntegrityError), database.write() as session:
            session.execute(text(f"UPDATE jobs SET {wrong} WHERE part_of IS NOT NULL"))  # noqa: S608


def test_datasets_whose_records_are_made_otherwise_are_refused(server: Server) -> None:
    """What was made of raw rows, and what a record is, do not show in a shape."""
    owner = server.owner()

    def windows(scale: float) -> str:
        raw = {"transform": "window-covariance", "length": 8, "channels": 2, "scale": scale}
        schema = {"kind": "points", "manifold": {"name": "spd", "dim": 2}, "raw": raw}
        return owner.dataset(np.random.default_rng(0).standard_normal((40, 8, 2)), schema)

    body = {"dataset": [{"id": windows(1.0)}, {"id": windows(100.0)}], "privacy": {"epsilon": 0.5}}
    told = problem(owner.post("/v1/estimates/frechet-mean/plan", json=body), 422, "invalid")
    assert "differ in raw" in told["detail"]

"""Charging: queries become jobs with their keys and charges in one transaction, or nothing is written."""

import asyncio
import json
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from privest_service.database import Database
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.datasets.terms import Terms
from privest_service.estimates import charging, requests
from privest_service.estimates.charging import Answer, PlannedQuery, Rules, charge
from privest_service.estimates.service import Planner, Query, Submissions, resolve_query
from privest_service.exports.export import lines
from privest_service.exports.verify import verify
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job, Transition
from privest_service.ledger import charges
from privest_service.ledger.models import Entry
from privest_service.ledger.units import Limits
from privest_service.problems import (
    BudgetExceeded,
    DatabaseUnavailable,
    GrantRefuses,
    IdempotencyKeyReused,
    Invalid,
    Unavailable,
)
from privest_service.security.principals import Principal
from testing.server import HANG_GUARD, SIGNER
from testing.world import COST, KIND, SCHEMA_TEXT, TARGET, World, submissions_on, submit

pytestmark = pytest.mark.either

RULES = Rules(10_000)


def query_of(world: World, *about: str, epsilon: float = 0.1, **more: Any) -> Query:
    """A query about a world's dataset, or others."""
    named: Any = [{"id": each} for each in about] or {"id": world.dataset}
    if more.pop("dummy", False):
        named["dummy"] = True
    body = {"dataset": named, "privacy": TARGET | {"epsilon": epsilon}, "reuse": False, **more}
    return Query(KIND, KIND.request.model_validate(body))


def planned_of(database: Database, world: World, key: str, *queries: Query, caller: str = "analyst") -> Any:
    """Queries that were planned, ready to be charged: one by itself, or a list."""
    submissions, who = submissions_on(database), Principal(caller, getattr(world, caller))  # pyright: ignore[reportArgumentType]
    found = list[PlannedQuery]()
    with database.read() as session:
        for each in submissions.commands(who, queries[0] if len(queries) == 1 else queries, key):
            query = resolve_query(session, who, each.kind, each.request)
            found.append(PlannedQuery.of(each, query, submissions.planner.make_plan(query)))
    return found


def charged(database: Database, planned: list[PlannedQuery]) -> list[Answer]:
    """Charge planned queries in a transaction."""
    return database.run(lambda session: charge(session, planned, RULES))


def covering(places: int) -> Limits:
    """A budget that covers so many of the usual queries."""
    return Limits("gdp", 1, 1, places * COST.mu_squared, places * COST.slack)


def faults(database: Database) -> list[str]:
    """Return what a verifier finds wrong with the whole ledger."""
    with database.read(snapshot=True) as session:
        return verify(lines(session), [SIGNER.public_key]).faults


async def all_of(*asked: Any) -> list[Any]:
    """Return the answers of all, or what they raised."""
    return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), HANG_GUARD)


# A list


def test_a_list_is_charged_in_its_order(database: Database) -> None:
    world = World.make(database, covering(3))
    answers = charged(database, planned_of(database, world, "k", *[query_of(world)] * 3))
    with database.read() as session:
        assert sorted(session.scalars(select(IdempotencyKey.key))) == ["k 0", "k 1", "k 2"]
        for account in world.accounts(session):
            assert account.mu_squared_spent == 3 * COST.mu_squared
            entries = select(Entry.job_id).where(Entry.account_id == account.id, Entry.kind == "debit")
            assert session.scalars(entries.order_by(Entry.seq)).all() == [each.job_id for each in answers]
    assert faults(database) == []


@pytest.mark.parametrize("place", [0, 1, 3])
def test_of_a_list_that_is_refused_nothing_is_written(database: Database, place: int) -> None:
    world = World.make(database, covering(3))
    queries = [query_of(world)] * 3
    queries.insert(place, query_of(world, epsilon=0.9))
    with pytest.raises(BudgetExceeded) as refused:
        charged(database, planned_of(database, world, "k", *queries))
    assert refused.value.place == place
    with database.read() as session:
        for table in (IdempotencyKey, Job, Transition):
            assert session.scalars(select(table)).all() == []
        assert {each.mu_squared_spent for each in world.accounts(session)} == {0}
    assert faults(database) == []


def test_a_list_whose_sum_is_not_covered_is_refused(database: Database) -> None:
    world = World.make(database, covering(2))
    with pytest.raises(BudgetExceeded) as refused:
        charged(database, planned_of(database, world, "k", *[query_of(world)] * 3))
    assert refused.value.place == 2


def test_a_query_is_answered_by_an_earlier_one_of_its_list(database: Database) -> None:
    world = World.make(database)
    queries = [query_of(world, reuse=True), query_of(world, reuse=True), query_of(world)]
    first, same, anew = charged(database, planned_of(database, world, "k", *queries))
    assert same == Answer(first.job_id, reused=True)
    assert anew.job_id != first.job_id
    with database.read() as session:
        assert world.accounts(session)[0].mu_squared_spent == 2 * COST.mu_squared


def test_a_key_is_bound_once(database: Database) -> None:
    """A query that was planned while another was charged under its key finds that in its transaction."""
    world = World.make(database)
    once, again = (planned_of(database, world, "k", query_of(world)) for _ in range(2))
    other = planned_of(database, world, "k", query_of(world, epsilon=0.2))
    (answer,) = charged(database, once)
    assert charged(database, again) == [Answer(answer.job_id, reused=False)]
    with pytest.raises(IdempotencyKeyReused):
        charged(database, other)
    with database.read() as session:
        assert world.accounts(session)[0].mu_squared_spent == COST.mu_squared


# What was changed since a query was planned


def test_terms_that_were_changed_meanwhile_refuse(database: Database) -> None:
    world = World.make(database)
    planned = planned_of(database, world, "a", query_of(world))
    owners = planned_of(database, world, "b", query_of(world), caller="owner")
    with database.write() as session:
        dataset = session.get_one(Dataset, world.dataset)
        datasets.put_grant(session, dataset, world.analyst, Limits.none("gdp"), Terms(kinds=("bounds",)))
    with pytest.raises(GrantRefuses):
        charged(database, planned)
    assert charged(database, owners)[0].fresh is not None


def test_a_list_that_must_be_approved_meanwhile_is_refused_and_a_query_becomes_a_request(
    database: Database,
) -> None:
    world = World.make(database)
    several = planned_of(database, world, "a", *[query_of(world)] * 2)
    one = planned_of(database, world, "b", query_of(world))
    with database.write() as session:
        dataset = session.get_one(Dataset, world.dataset)
        datasets.put_grant(session, dataset, world.analyst, Limits.none("gdp"), Terms(approval=True))
    with pytest.raises(Invalid) as refused:
        charged(database, several)
    assert refused.value.detail == "Question 1 waits for an owner's approval. Ask it by itself."
    (answer,) = charged(database, one)
    with database.read() as session:
        assert session.get_one(Job, answer.job_id).state == "requested"
        assert world.accounts(session)[0].mu_squared_spent == 0


def test_a_list_that_was_charged_meanwhile_is_answered_whatever_its_grant_says_now(
    database: Database,
) -> None:
    world = World.make(database)
    once, again = (planned_of(database, world, "k", *[query_of(world)] * 2) for _ in range(2))
    answers = charged(database, once)
    with database.write() as session:
        dataset = session.get_one(Dataset, world.dataset)
        datasets.put_grant(session, dataset, world.analyst, Limits.none("gdp"), Terms(approval=True))
    assert [each.job_id for each in charged(database, again)] == [each.job_id for each in answers]


def test_a_heavy_plan_is_cached_by_all_that_it_follows_from(database: Database) -> None:
    world = World.make(database)
    (planned,) = planned_of(database, world, "k", query_of(world))
    (about,) = planned.query.about
    others = (
        replace(about, shape=replace(about.shape, n=about.shape.n + 1)),  # of another part, at a hub
        replace(about, target=replace(about.target, slack_per_mu_squared=1e-9)),  # after a budget was raised
        replace(about, dataset_id="ds_other"),
    )
    names = {replace(planned.query, about=(other,)).name for other in others}
    assert len({planned.query.name, *names}) == 4


# Statements and locks


@pytest.mark.parametrize("backend", ["postgresql"])  # SQLite has one writer, and locks no rows
def test_locks_are_taken_once_in_one_order(database: Database) -> None:
    worlds = [World.make(database) for _ in range(2)]
    with database.write() as session:  # one analyst may query both
        dataset = session.get_one(Dataset, worlds[1].dataset)
        datasets.put_grant(session, dataset, worlds[0].analyst, Limits.none("gdp"))
    queries = [query_of(worlds[0], *(each.dataset for each in worlds)), query_of(worlds[0])]
    planned, locked = planned_of(database, worlds[0], "k", *queries), list[str]()

    def keep(_: Any, __: Any, statement: str, *___: Any) -> None:
        if re.search(r" FOR (SHARE|UPDATE|NO KEY UPDATE)", statement):
            locked.extend(re.findall(r"\nFROM (\w+) \nWHERE", statement)[-1:])

    event.listen(database.engine, "before_cursor_execute", keep)
    try:
        charged(database, planned)
    finally:
        event.remove(database.engine, "before_cursor_execute", keep)
    assert locked == ["datasets", "grants", "owners", "accounts"]


def test_a_charge_takes_few_statements(database: Database) -> None:
    """Every statement of a charge lengthens the time for which its owner's account is locked."""
    world, said = World.make(database), list[str]()
    submit(submissions_on(database), Principal("analyst", world.analyst), query_of(world), "before")
    planned = planned_of(database, world, "k", query_of(world))

    def keep(_: Any, __: Any, statement: str, *___: Any) -> None:
        said.append(statement)

    event.listen(database.engine, "before_cursor_execute", keep)
    try:
        charged(database, planned)
    finally:
        event.remove(database.engine, "before_cursor_execute", keep)
    assert len(said) <= 16, "\n".join(said)


@pytest.mark.parametrize("backend", ["postgresql"])
def test_an_owner_that_another_process_holds_keeps_no_other_waiting(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that was stopped in the middle of a charge, say."""
    held, free, submissions = World.make(database), World.make(database), submissions_on(database)
    charge_now, under_way, most, lock = Submissions.charge, list[str](), list[int](), threading.Lock()

    def counted(of: Submissions, planned: Any) -> list[Answer]:
        who = planned[0].command.caller.id
        with lock:
            under_way.append(who)
            most.append(under_way.count(held.analyst))
        try:
            return charge_now(of, planned)
        finally:
            with lock:
                under_way.remove(who)

    async def ask(world: World, key: str) -> list[Answer]:
        return await submissions.submit(Principal("analyst", world.analyst), query_of(world), key)

    async def main() -> None:
        monkeypatch.setattr(Submissions, "charge", counted)
        with database.engine.connect() as other, other.begin():
            other.execute(text("SELECT 1 FROM owners WHERE id = :id FOR UPDATE"), {"id": held.owner})
            waiting = [asyncio.create_task(ask(held, f"held {at}")) for at in range(4)]
            ((answer,),) = await all_of(ask(free, "free"))
            assert isinstance(answer, Answer)
            assert not any(each.done() for each in waiting)
        found = await all_of(*waiting)
        assert all(isinstance(answer, Answer) for (answer,) in found)

    asyncio.run(main())
    assert max(most) == 1, "one at a time has a connection; else few owners could take all that there are"


def test_callers_of_one_owner_take_turns(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that floods an owner with queries keeps others waiting for one of them, not for all."""
    world, submissions, order = World.make(database), submissions_on(database), list[str]()
    charge_now = Submissions.charge

    def noted(of: Submissions, planned: Any) -> list[Answer]:
        order.append(planned[0].command.caller.role)
        return charge_now(of, planned)

    monkeypatch.setattr(Submissions, "charge", noted)

    async def main() -> list[Any]:
        owner, analyst = Principal("owner", world.owner), Principal("analyst", world.analyst)
        flood = [asyncio.create_task(submissions.submit(owner, query_of(world), f"{at}")) for at in range(8)]
        while not order:
            await asyncio.sleep(0)
        return await all_of(submissions.submit(analyst, query_of(world), "one"), *flood)

    assert all(isinstance(answer, Answer) for (answer,) in asyncio.run(main()))
    assert order.index("analyst") <= 6
    assert order[-1] == "owner"


@pytest.mark.parametrize("backend", ["postgresql"])
def test_queries_of_several_owners_wait_in_one_line(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that another process holds keeps one connection busy, whichever other owners a query has."""
    held, others = World.make(database), [World.make(database) for _ in range(3)]
    with database.write() as session:
        for other in others:
            dataset = session.get_one(Dataset, other.dataset)
            datasets.put_grant(session, dataset, held.analyst, Limits.none("gdp"))
    submissions = submissions_on(database)
    charge_now, under_way, most, lock = Submissions.charge, list[str](), list[int](), threading.Lock()

    def counted(of: Submissions, planned: Any) -> list[Answer]:
        with lock:
            under_way.append("")
            most.append(len(under_way))
        try:
            return charge_now(of, planned)
        finally:
            with lock:
                under_way.pop()

    monkeypatch.setattr(Submissions, "charge", counted)

    async def main() -> None:
        queries = [query_of(held, held.dataset, other.dataset) for other in others]
        callers = [Principal("owner", held.owner), Principal("analyst", held.analyst)]
        with database.engine.connect() as other, other.begin():
            other.execute(text("SELECT 1 FROM owners WHERE id = :id FOR UPDATE"), {"id": held.owner})
            waiting = [
                asyncio.create_task(submissions.submit(caller, query, f"{at}"))
                for caller, asked in zip(callers, ([query_of(held)], queries), strict=True)
                for at, query in enumerate(asked)
            ]
            while not most:
                await asyncio.sleep(0)
        found = await all_of(*waiting)
        assert all(isinstance(answer, Answer) for (answer,) in found)

    asyncio.run(main())
    assert max(most) == 1


@pytest.mark.parametrize("backend", ["postgresql"])
@pytest.mark.parametrize("other", ["claim", "withdrawal"])
def test_a_key_that_is_bound_to_a_job_keeps_nobody_waiting_who_takes_the_job(
    database: Database, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """The key refers to the job, and so locks it after the accounts; others lock the job first."""
    world, tries = World.make(database), list[str]()
    (first,) = charged(database, planned_of(database, world, "a", query_of(world, reuse=True)))
    again = planned_of(database, world, "b", query_of(world, reuse=True))
    lock, frozen, held_job = charging.lock, jobs.frozen_meanwhile, requests._held_job
    accounts_locked, job_locked = threading.Event(), threading.Event()

    def slow_lock(*given: Any) -> Any:
        tries.append("charge")
        locked = lock(*given)
        accounts_locked.set()
        assert job_locked.wait(HANG_GUARD)
        return locked

    def slow_claim(session: Any, job: Job) -> bool:
        job_locked.set()
        return frozen(session, job)

    def slow_hold(session: Any, job_id: str) -> Job:
        job = held_job(session, job_id)
        job_locked.set()
        return job

    def take(session: Session) -> object:
        tries.append(other)
        if other == "claim":
            job = jobs.next_waiting(session)
            return job and jobs.claim(session, job, timedelta(minutes=1))
        return requests.withdraw(session, Principal("analyst", world.analyst), first.job_id)

    monkeypatch.setattr(charging, "lock", slow_lock)
    monkeypatch.setattr(jobs, "frozen_meanwhile", slow_claim)
    monkeypatch.setattr(requests, "_held_job", slow_hold)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(charged, database, again)
        assert accounts_locked.wait(HANG_GUARD)
        assert database.run(take) is not None
        assert [each.job_id for each in asked.result(HANG_GUARD)] == [first.job_id]
    assert len(tries) == 2, "one of them was the victim of a deadlock"


# Faults and bursts


def test_a_fault_of_ours_stops_its_own_query_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, write, submissions = World.make(database), charges.write, submissions_on(database)

    def faulty(session: Any, job: Job, debits: Any, key: IdempotencyKey) -> None:
        write(session, job, debits, key)
        if key.key == "fault":
            raise RuntimeError("planted")
        if key.key == "busy":
            raise StaleDataError("planted: another replica was first, each time")

    monkeypatch.setattr(charging.charges, "write", faulty)
    keys = ("a", "b", "fault", "busy", "c")

    async def main() -> list[Any]:
        analyst = Principal("analyst", world.analyst)
        return await all_of(*(submissions.submit(analyst, query_of(world), key) for key in keys))

    outcomes = [type(each) for each in asyncio.run(main())]
    assert outcomes == [list, list, RuntimeError, DatabaseUnavailable, list]
    with database.read() as session:
        assert sorted(session.scalars(select(IdempotencyKey.key))) == ["a", "b", "c"]
        assert world.accounts(session)[0].mu_squared_spent == 3 * COST.mu_squared
    assert faults(database) == []


@pytest.mark.parametrize("dummy", [False, True])
def test_a_burst_takes_no_more_of_the_queue_than_one_after_another(database: Database, dummy: bool) -> None:
    """A caller's own two may wait here, and one of synthetic rows."""
    world, submissions = World.make(database, Limits.of(9.0, 1e-4, "gdp")), submissions_on(database, 8)

    async def main() -> list[Any]:
        analyst, query = Principal("analyst", world.analyst), query_of(world, dummy=dummy)
        return await all_of(*(submissions.submit(analyst, query, f"k{at}") for at in range(12)))

    places = 1 if dummy else 2
    assert Counter(type(each) for each in asyncio.run(main())) == {list: places, Unavailable: 12 - places}


@pytest.mark.parametrize("kind", ["a list", "rows"])
def test_a_full_queue_refuses_before_much_is_done(
    database: Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    world, submissions, plans = World.make(database), submissions_on(database, 8), list[object]()
    owner, make_plan = Principal("owner", world.owner), Planner.make_plan

    def noted(planner: Planner, query: Any, **how: Any) -> Any:
        plans.append(query)
        return make_plan(planner, query, **how)

    for key in ("a", "b"):
        submit(submissions, owner, query_of(world), key)
    monkeypatch.setattr(Planner, "make_plan", noted)
    rows = {"schema": json.loads(SCHEMA_TEXT), "rows": [[0.1, 0.1]] * 60}
    inline = {"dataset": {"inline": rows}, "privacy": TARGET, "reuse": False}
    asked: Any = [query_of(world)] * 2
    if kind == "rows":
        asked = Query(KIND, KIND.request.model_validate(inline))
    nothing: Any = None  # registers no rows
    with pytest.raises(Unavailable):
        asyncio.run(submissions.submit(owner, asked, "c", nothing))
    assert plans == []


def test_of_a_query_that_was_often_asked_the_first_answer_since_is_read(database: Database) -> None:
    world = World.make(database)
    asked = [world.submit(database, str(at)) for at in range(6)]
    with database.read() as session:
        found = [session.get_one(Job, each) for each in asked]
        assert all(one.created_at < next_one.created_at for one, next_one in pairwise(found))
        digest, since = found[0].spec_digest, found[2].created_at
        assert jobs.answer_to(session, world.analyst, digest, since) == asked[2]
        assert jobs.answer_to(session, world.analyst, "no query", since) is None
        assert jobs.answer_to(session, world.owner, digest, since) is None


def test_synthetic_rows_are_charged_to_nobody(database: Database) -> None:
    world = World.make(database)
    answer = submit(
        submissions_on(database), Principal("analyst", world.analyst), query_of(world, dummy=True), "k"
    )
    with database.read() as session:
        assert session.get_one(Job, answer.job_id).dummy
        assert session.scalars(select(Entry).where(Entry.kind == "debit")).all() == []
    assert faults(database) == []

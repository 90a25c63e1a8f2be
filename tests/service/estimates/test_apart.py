"""What would hold up others is done apart from them: long looks, held rows, faults that nobody foresaw."""

import asyncio
import threading
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from privest_service import groups
from privest_service.database import Database
from privest_service.datasets.models import Dataset
from privest_service.estimates import charging, service
from privest_service.estimates.charging import Rules
from privest_service.estimates.planning import Planner
from privest_service.estimates.questions import resolve
from privest_service.estimates.reservation import Answer, EstimateCommand
from privest_service.estimates.service import Submissions
from privest_service.exports.export import lines
from privest_service.exports.verify import verify
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import charges
from privest_service.ledger.units import Limits
from privest_service.limits import LONG
from privest_service.problems import DatabaseUnavailable, Unavailable
from privest_service.security.principals import Principal
from testing.server import HANG_GUARD, SIGNER, until
from testing.world import COST, KIND, TARGET, World, never

ROOM = 10_000


def submissions_on(database: Database, room: int = ROOM) -> Submissions:
    """What takes requests, with a queue of so much room."""
    return Submissions(database, Planner(never), lambda: None, b"", Rules(room))


async def ask(submissions: Submissions, world: World, key: str, *about: str, **more: Any) -> Answer:
    """Ask for an answer about a world's dataset, or others, as its analyst."""
    named: Any = [{"id": each} for each in about] or {"id": world.dataset}
    if more.pop("dummy", False):
        named["dummy"] = True
    body = {"dataset": named, "privacy": TARGET, "reuse": False, **more}
    caller = Principal("analyst", world.analyst)
    return await submissions.submit_together(caller, KIND, KIND.request.model_validate(body), key)


async def all_of(*asked: Any) -> list[Any]:
    """What came of each, an answer or what was raised."""
    return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), HANG_GUARD)


# Looks


@pytest.mark.parametrize("long", ["a schema", "a list"])
def test_nobody_waits_while_much_is_looked_at(
    database: Database, monkeypatch: pytest.MonkeyPatch, long: str
) -> None:
    world, others, slow = World.make(database), [World.make(database) for _ in range(5)], threading.Event()
    if long == "a schema":
        with database.write() as session:
            dataset = session.get_one(Dataset, others[0].dataset)
            dataset.dataset_schema += " " * LONG
        about = [others[0].dataset]
    else:
        about = [each.dataset for each in others]
    begun = threading.Event()

    def resolved(facts: Any, caller: Any, kind: Any, request: Any) -> Any:
        if caller.id == others[0].analyst:
            begun.set()
            assert slow.wait(HANG_GUARD)
        return resolve(facts, caller, kind, request)

    monkeypatch.setattr(service, "resolve", resolved)
    submissions = submissions_on(database)

    async def main() -> None:
        first = asyncio.create_task(ask(submissions, others[0], "much", *about))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        (answer,) = await all_of(ask(submissions, world, "little"))
        slow.set()
        assert isinstance(answer, Answer)
        await asyncio.wait([first])

    asyncio.run(main())


def test_a_look_that_nobody_foresaw_stops_its_own_request(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, submissions = World.make(database), submissions_on(database)

    def faulty(facts: Any, caller: Any, kind: Any, request: Any) -> Any:
        assert request.tag != "a fault of ours", "planted"
        return resolve(facts, caller, kind, request)

    monkeypatch.setattr(service, "resolve", faulty)

    async def main() -> list[Any]:
        tags = (None, "a fault of ours", None)
        return await all_of(*(ask(submissions, world, f"k{at}", tag=tag) for at, tag in enumerate(tags)))

    assert [type(each) for each in asyncio.run(main())] == [Answer, AssertionError, Answer]


# Charges


@pytest.mark.either
def test_what_nobody_foresaw_stops_its_own_charge_and_all_hear_what_became_of_theirs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, reserve, submissions = World.make(database), charges.reserve, submissions_on(database)

    def faulty(session: Any, job: Job, debits: Any, key: IdempotencyKey) -> None:
        reserve(session, job, debits, key)
        if key.key == "fault":
            raise RuntimeError("planted")
        if key.key == "busy":
            raise StaleDataError("planted: another replica was first, each time")

    monkeypatch.setattr(charging.charges, "reserve", faulty)
    keys = ("a", "b", "fault", "busy", "c")

    async def main() -> list[Any]:
        return await all_of(*(ask(submissions, world, key) for key in keys))

    outcomes = asyncio.run(main())
    assert [type(each) for each in outcomes] == [Answer, Answer, RuntimeError, DatabaseUnavailable, Answer]
    with database.read() as session:
        assert sorted(session.scalars(select(IdempotencyKey.key))) == ["a", "b", "c"]
        assert world.accounts(session)[0].mu_squared_spent == 3 * COST.mu_squared
    with database.read(snapshot=True) as session:
        assert verify(lines(session), [SIGNER.public_key]).faults == []


@pytest.mark.parametrize("backend", ["postgresql"])
def test_an_owner_that_another_process_holds_keeps_no_other_waiting(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that was stopped in the middle of a charge, say."""
    monkeypatch.setattr(groups, "_LINES", 1)  # so that both are in one group
    held, free, submissions = World.make(database), World.make(database), submissions_on(database)
    charge, now, most, lock = Submissions.charge, set[str](), list[int](), threading.Lock()

    def counted(of: Submissions, command: EstimateCommand, *planned: Any) -> Answer:
        if command.caller.id == held.analyst:
            with lock:
                now.add(command.key)
                most.append(len(now))
        answer = charge(of, command, *planned)
        now.discard(command.key)
        return answer

    async def main() -> None:
        # So that all plans are remembered, and what is asked next is one group.
        await all_of(ask(submissions, held, "before"), ask(submissions, free, "before"))
        monkeypatch.setattr(Submissions, "charge", counted)
        with database.engine.connect() as other, other.begin():
            other.execute(text("SELECT 1 FROM owners WHERE id = :id FOR UPDATE"), {"id": held.owner})
            waiting = [asyncio.create_task(ask(submissions, held, f"held {at}")) for at in range(4)]
            (answer,) = await all_of(ask(submissions, free, "free"))
            assert isinstance(answer, Answer)
            assert not any(each.done() for each in waiting)
        assert all(isinstance(each, Answer) for each in await all_of(*waiting))

    asyncio.run(main())
    # One of them at a time had a connection; else few owners could take all that there are.
    assert most == [1] * 4


@pytest.mark.parametrize("backend", ["postgresql"])
def test_the_database_ends_a_services_transactions_if_it_is_gone_but_no_long_reads(database_url: str) -> None:
    shown = text("SHOW idle_in_transaction_session_timeout")
    service, command = Database(database_url, patience=10.0), Database(database_url)
    with service.write() as session:
        assert session.scalar(shown) == "1min"
    with service.read(snapshot=True) as session:
        assert session.scalar(shown) == "0"
    with service.write() as session:
        assert session.scalar(shown) == "1min"
    with command.write() as session:  # which may copy files for hours
        assert session.scalar(shown) == "0"
    service.close()
    command.close()


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_transaction_that_the_database_ended_is_begun_anew(database: Database) -> None:
    def gone(pid: object) -> bool:
        with database.read() as session:
            there = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
            return session.scalar(there, {"pid": pid}) == 0

    attempts = list[object]()

    def work(session: Session) -> int | None:
        attempts.append(session.scalar(text("SELECT pg_backend_pid()")))
        if len(attempts) == 1:
            session.execute(text("SET LOCAL idle_in_transaction_session_timeout = '1ms'"))
            until(lambda: gone(attempts[0]))
        return session.scalar(text("SELECT 7"))

    for _ in range(5):
        attempts.clear()
        # Sometimes the connection is closed before PostgreSQL's reason is read: that is an outage.
        with suppress(DatabaseUnavailable):
            assert database.run(work) == 7
            assert len(attempts) == 2
            return
    pytest.fail("no transaction was begun anew")


# What one may take of the queue, and of a transaction


def burst(database: Database, *, dummy: bool) -> Counter[type]:
    """What comes of twelve questions at once where a caller's own two may wait, and one dummy."""
    world, submissions = World.make(database, Limits.of(9.0, 1e-4, "gdp")), submissions_on(database, 8)

    async def main() -> list[Any]:
        return await all_of(*(ask(submissions, world, f"k{at}", dummy=dummy) for at in range(12)))

    return Counter(type(each) for each in asyncio.run(main()))


def test_a_burst_takes_no_more_of_the_queue_than_one_after_another(database: Database) -> None:
    assert burst(database, dummy=False) == {Answer: 2, Unavailable: 10}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_nor_does_a_burst_of_dummies(database: Database) -> None:
    """Where transactions have turns. On PostgreSQL there may be one for each of a caller's threads."""
    assert burst(database, dummy=True) == {Answer: 1, Unavailable: 11}


def test_of_a_question_that_was_often_asked_the_first_answer_since_is_read(database: Database) -> None:
    world = World.make(database)
    asked = [world.submit(database, str(at)) for at in range(6)]
    with database.read() as session:
        of = {each: session.get_one(Job, each) for each in asked}
        pair, since = (world.analyst, of[asked[0]].spec_digest), of[asked[2]].created_at
        assert [each.id for each in jobs.answers_to(session, {pair: since})] == [asked[2]]
        unlike = (world.analyst, "no question")
        assert jobs.answers_to(session, {unlike: since}) == []
        assert [each.id for each in jobs.answers_to(session, {unlike: since, pair: since})] == [asked[2]]

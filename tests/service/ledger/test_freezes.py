"""Freezes: of an owner and all that is its, in force from their answer on, and ended by those who may."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from privest_service.database import Database
from privest_service.database.tables import new_id
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.units import Charge, Limits
from privest_service.problems import AccountFrozen, Unavailable
from privest_service.security.models import Owner
from testing.books import Books
from testing.claims import claim_next
from testing.server import Server, problem, slow_rows, until, worker_on

HOUR = timedelta(hours=1)
FREE = Limits("basic", 10**9, 10**9, 0, 0)


def claim(database: Database) -> str | None:
    """The job that is claimed next."""
    with database.write() as session:
        job = claim_next(session, HOUR)
        return job.id if job else None


def freeze(books: Books, frozen: bool = True, by: Any = "owner") -> None:
    """Set or end a freeze in a transaction of its own."""
    with books.database.write() as session:
        ledger.set_frozen(session, books.owner, frozen, by=by)


# Over HTTP


def test_a_freeze_holds_what_waits_and_nothing_else(server: Server) -> None:
    frozen, other = server.owner(epsilon=5.0), server.owner()
    slow, dataset, deleted = frozen.dataset(*slow_rows()), frozen.dataset(), frozen.dataset()
    running = frozen.estimate(slow, steps=1000, wait=0).json()["id"]
    worker = worker_on(server, frozen, slow)
    worker.suspend()  # others wait for it all the same
    held = frozen.estimate(dataset, wait=0).json()["id"]
    given_back = frozen.estimate(deleted, wait=0).json()["id"]
    path = f"/v1/owners/{frozen.id}/budget"
    budget = frozen.patch(path, json={"frozen": True}).json()
    assert (budget["frozen"], budget["frozen_by"]) == (True, "owner")
    worker.kill()  # what is under way goes on to its end
    assert frozen.ended(running)["state"] == "failed"
    theirs = other.estimate(other.dataset(), reuse=False)  # asked after the job that is held
    assert theirs.json()["state"] == "committed"
    assert frozen.get(f"/v1/jobs/{held}").json()["state"] == "reserved"
    assert frozen.delete(f"/v1/datasets/{deleted}").status_code == 204
    assert frozen.get(f"/v1/jobs/{given_back}").json()["state"] == "voided"
    assert frozen.budget()["queries"] == 2
    assert frozen.patch(path, json={"frozen": False}).json()["frozen_by"] is None
    assert frozen.ended(held)["state"] == "committed"


def test_what_an_administrator_froze_only_an_administrator_lets_go_on(server: Server) -> None:
    owner = server.owner()
    dataset, path = owner.dataset(), f"/v1/owners/{owner.id}/budget"
    assert owner.patch(path, json={"frozen": True}).json()["frozen_by"] == "owner"
    assert server.admin.patch(path, json={"frozen": True}).json()["frozen_by"] == "both"
    assert server.admin.patch(path, json={"frozen": False}).json()["frozen_by"] == "owner"  # whose own stays
    assert server.admin.patch(path, json={"frozen": True}).json()["frozen_by"] == "both"
    assert owner.patch(path, json={"frozen": False}).json()["frozen_by"] == "admin"
    refused = problem(owner.patch(path, json={"frozen": False, "window": "new"}), 409, "account-frozen")
    assert "Only an administrator can unfreeze it" in refused["detail"]
    assert owner.budget()["window"] == 1  # all of a change or none of it
    assert owner.patch(path, json={"window": "new"}).json()["frozen_by"] == "admin"
    problem(owner.estimate(dataset), 409, "account-frozen")
    assert server.admin.patch(path, json={"frozen": False}).json()["frozen_by"] is None
    assert owner.estimate(dataset).json()["state"] == "committed"


@pytest.mark.both
def test_a_freeze_is_answered_however_much_is_charged_and_charged_is_nothing_since(server: Server) -> None:
    owner = server.owner(epsilon=50.0)
    dataset, path = owner.dataset(), f"/v1/owners/{owner.id}/budget"

    def charge(_thread: int) -> int:
        for _ in range(40):
            if (status := owner.estimate(dataset, epsilon=0.01, reuse=False, wait=0).status_code) != 202:
                return status
        return 202

    with ThreadPoolExecutor(6) as pool:
        charging = [pool.submit(charge, i) for i in range(6)]
        until(lambda: owner.budget()["queries"] > 5)
        assert owner.patch(path, json={"frozen": True}).status_code == 200
        queries = owner.budget()["queries"]
    assert {each.result() for each in charging} == {409}
    assert owner.budget()["queries"] == queries
    assert owner.delete(f"/v1/datasets/{dataset}").status_code == 204


# What is held


def test_a_job_that_is_held_keeps_no_other_from_being_claimed(database: Database) -> None:
    frozen, other = Books(database), Books(database)
    reserved = [
        books.reserve({books.open(FREE): Charge(1, 1, 1, 1)}) for books in (frozen, other, frozen, other)
    ]
    freeze(frozen)
    with database.read() as session:
        assert jobs.queue(session)[0] == 2
        jobs.require_room(session, "else", 3, dummy=True)  # two wait, and none of them is free
        with pytest.raises(Unavailable):
            jobs.require_room(session, "else", 2, dummy=False)
        with pytest.raises(Unavailable):
            jobs.require_room(session, "somebody", 8, dummy=False)
        assert jobs.queue(session)[0] == 2
    assert [claim(database) for _ in range(3)] == [reserved[1], reserved[3], None]
    freeze(frozen, False)
    assert [claim(database) for _ in range(3)] == [reserved[0], reserved[2], None]


def _of_several(session: Session, *owners: Books, dummy: bool = False) -> str:
    """A job on the datasets of several owners, or on what is made up in their place."""
    named = {"kind": "frechet-mean", "submitter_id": "x", "spec_digest": "", "plan": "{}", "dummy": dummy}
    whole = Job(id=new_id("job"), **named)
    parts = [
        Job(
            id=new_id("job"),
            part_of=whole.id,
            place=place,
            owner_id=each.owner,
            dataset_id=each.dataset,
            **named,
        )
        for place, each in enumerate(owners)
    ]
    key = IdempotencyKey(principal_id="x", key=new_id("key"), body_digest="", job_id=whole.id)
    jobs.add(session, whole, key, parts)
    return whole.id


@pytest.mark.parametrize("place", [0, 1, 2])
def test_any_frozen_owner_holds_a_job_on_several_datasets(database: Database, place: int) -> None:
    owners = [Books(database) for _ in range(3)]
    with database.write() as session:
        whole, other = _of_several(session, *owners), _of_several(session, owners[place - 1])
        dummy = _of_several(session, *owners, dummy=True)
    freeze(owners[place])
    assert [claim(database) for _ in range(3)] == [other, dummy, None]
    freeze(owners[place], False)
    assert claim(database) == whole


# At the same time


@pytest.fixture
def rows_are_locked(database: Database) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite has one writer: nothing is at the same time")


@pytest.mark.usefixtures("rows_are_locked")
def test_no_freeze_is_answered_before_a_claim_that_did_not_see_it(database: Database) -> None:
    owners = Books(database), Books(database)
    with database.write() as session:
        _of_several(session, *owners)
    with database.write() as session:
        assert claim_next(session, HOUR)
        for each in owners:
            _is_held(each)
    for each in owners:
        freeze(each)


def _is_held(books: Books) -> None:
    with books.database.write() as other:
        other.execute(text("SET LOCAL lock_timeout = '100ms'"))
        with pytest.raises(OperationalError, match="lock"):
            ledger.set_frozen(other, books.owner, True, by="owner")


@pytest.mark.usefixtures("rows_are_locked")
def test_no_job_is_claimed_that_was_found_before_a_freeze(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    books, other = Books(database), Books(database)
    books.reserve({books.open(FREE): Charge(1, 1, 1, 1)})
    job = other.reserve({other.open(FREE): Charge(1, 1, 1, 1)})
    _after_the_look(monkeypatch, lambda: freeze(books))
    assert claim(database) == job
    assert claim(database) is None


def _after_the_look(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do something once between the look for a job and the hold of its owners."""
    acts, look = [act], jobs.parts_of

    def parts_of(session: Session, job: Job) -> list[Job]:
        if acts:
            acts.pop()()
        return look(session, job)

    monkeypatch.setattr(jobs, "parts_of", parts_of)


@pytest.mark.usefixtures("rows_are_locked")
def test_a_freeze_is_not_lost_where_a_window_opens(database: Database) -> None:
    books = Books(database)
    account = books.open(FREE)

    def renew(session: Session) -> None:
        looked = [session.get_one(Account, account), ledger.owner_account(session, books.owner)]
        assert not looked[1].frozen  # as a change of a budget looks first
        freeze(books)
        with database.write() as other:
            ledger.raise_limits(other, account, Limits("basic", 2 * 10**9, 10**9, 0, 0))
        ledger.open_window(session, books.owner)

    database.run(renew)
    with database.read() as session:
        owner = session.get_one(Owner, books.owner)
        present = ledger.owner_account(session, books.owner)
        assert (owner.window, owner.frozen_by, present.window, present.frozen_by) == (2, "owner", 2, "owner")
        of_grant = {"analyst": _subject(session, account)}
        found = {each.scope: each for each in ledger.accounts_in_force(session, owner, of_grant)}
        renewed = found["analyst"]
        assert renewed.epsilon_limit == 2 * 10**9  # what else changed meanwhile is not lost either
    with pytest.raises(AccountFrozen):
        books.reserve({present.id: Charge(0, 0, 0, 0)})


def _subject(session: Session, account: int) -> str:
    return session.scalars(select(Account.subject).where(Account.id == account)).one()

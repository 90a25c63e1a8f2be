"""Tallies: whatever becomes of questions, they say what the entries say, and a migration finds the same."""

from itertools import product
from typing import Any

from alembic import command
from sqlalchemy import select

from privest_service.database import Database
from privest_service.database.migrate import config
from privest_service.database.tables import new_id
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.entries import AMOUNTS
from privest_service.ledger.models import Account, Entry, Mechanism, Tally
from privest_service.ledger.units import Charge, Limits
from testing.books import Books, held
from testing.world import World

KEY = ("account_id", "submitter_id", "lineage", "kind")
TOLD = (*KEY, "queries", *AMOUNTS, "first_at", "last_at")


def tallies(database: Database) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """All tallies, by their keys."""
    with database.read() as session:
        rows = [tuple(getattr(each, name) for name in TOLD) for each in session.scalars(select(Tally))]
    return {row[: len(KEY)]: row[len(KEY) :] for row in rows}


def from_entries(database: Database) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Tallies by another route: every entry of every owner's account, added up here."""
    found = dict[tuple[Any, ...], list[Any]]()
    with database.read() as session:
        accounts = {each.id: each for each in session.scalars(select(Account))}
        moved = session.scalars(select(Entry).where(Entry.job_id.is_not(None)).order_by(Entry.seq)).all()
        of = {each: accounts[each.account_id] for each in moved}
        on = {each.job_id: of[each].subject for each in moved if of[each].scope == "dataset"}
        for entry in moved:
            if of[entry].scope == "owner":
                job = session.get_one(Job, entry.job_id)
                key = (entry.account_id, job.submitter_id, on.get(job.id, ""), job.kind)
                sums = found.setdefault(key, [0] * (1 + len(AMOUNTS)) + [entry.at, entry.at])
                sums[0] += {"debit": 1, "void": -1}[entry.kind]
                for place, name in enumerate(AMOUNTS, 1):
                    sums[place] += getattr(entry, name)
                if entry.kind == "debit":
                    sums[-1] = entry.at
    return {key: tuple(sums) for key, sums in found.items()}


def ask(books: Books, number: int, who: str, kind: str, *, own_rows: bool = False) -> str:
    """Reserve a question on the budget and, unless rows came with it, on the rows of the dataset."""
    with books.database.write() as session:
        concerned = [ledger.owner_account(session, books.owner).id]
        if not own_rows:
            concerned.append(ledger.ensure_account(session, books.owner, "dataset", books.dataset).id)
        job = books.job(who)
        job.kind = kind
        key = IdempotencyKey(principal_id=who, key=new_id("key"), body_digest="", job_id=job.id)
        accounts, cost = held(session, concerned), Charge(number, 2 * number, 3 * number, 4 * number)
        why = Mechanism(digest="0" * 64, content="{}")
        charges.write(session, job, [charges.Debits(job, accounts, [cost] * len(accounts), why)], key)
        return job.id


def lived(database: Database) -> Books:
    """An owner of two windows whom two people asked two kinds of question, some of which were given back."""
    books = Books(database)
    with database.write() as session:
        owner = ledger.owner_account(session, books.owner)
        ledger.raise_limits(session, owner.id, Limits("basic", 10**9, 10**9, 0, 0))
    for window in (1, 2):
        asked = [
            ask(books, 100 * window + place, who, kind, own_rows=own_rows)
            for place, (_, who, kind, own_rows) in enumerate(
                product(range(2), ("anna", books.owner), ("bounds", "frechet-mean"), (False, True))
            )
        ]
        with database.write() as session:
            assert all(charges.void(session, job) for job in (*asked[:3], asked[8]))
            if window == 1:
                ledger.open_window(session, books.owner)
    return books


def test_tallies_say_what_the_entries_say(database: Database) -> None:
    books = lived(database)
    told = tallies(database)
    assert told == from_entries(database)
    assert len(told) == 2 * 2 * 2 * 2  # windows, people, kinds, and with or without rows of their own
    assert sum(row[0] for row in told.values()) == 2 * (16 - 4)
    nothing = [key[1:] for key, row in told.items() if row[0] == 0]
    assert nothing == [("anna", books.dataset, "bounds")] * 2  # both of hers were given back
    assert {row[1:5] for row in told.values() if row[0] == 0} == {(0, 0, 0, 0)}


def test_a_migration_finds_them_in_entries_of_before(database: Database) -> None:
    lived(database)
    told = tallies(database)
    command.downgrade(config(database), "0013")
    command.upgrade(config(database), "head")
    assert tallies(database) == told


def test_what_a_revoked_grant_gives_back_is_told_no_more(database: Database) -> None:
    world = World.make(database)
    world.submit(database, "one")
    assert [(*key[1:], row[0]) for key, row in tallies(database).items()] == [
        (world.analyst, world.dataset, "frechet-mean", 1)
    ]
    world.revoke(database)
    assert [row[0] for row in tallies(database).values()] == [0]
    assert tallies(database) == from_entries(database)

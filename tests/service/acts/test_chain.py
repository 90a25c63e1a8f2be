"""The chain of acts: one place for each, whoever acts at once; nothing of what is rolled back."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.acts import service
from privest_service.acts.chain import act_hash, to_sign
from privest_service.acts.models import SERVICE, Act, ActChain, Refusals
from privest_service.database import Database, now
from privest_service.ledger import service as ledger
from privest_service.problems import BudgetExceeded
from privest_service.signing import is_signature
from testing.server import SIGNER
from testing.world import World


def told(database: Database, chain: str) -> list[Act]:
    with database.read() as session:
        return list(session.scalars(select(Act).where(Act.chain == chain).order_by(Act.seq)))


def holds(database: Database, chain: str) -> None:
    """Assert that a chain is without a gap, signed, and ends where its row says."""
    links = told(database, chain)
    assert [act.seq for act in links] == list(range(1, len(links) + 1))
    for before, act in pairwise([None, *links]):
        assert act is not None
        assert act.prev == (before.hash if before else "")
        assert act.hash == act_hash(act)
        assert is_signature(act.signature, to_sign(act.hash), SIGNER.public_key)
    with database.read() as session:
        end = session.get_one(ActChain, chain)
    assert (end.seq, end.head) == (links[-1].seq, links[-1].hash)


def test_acts_at_once_on_several_chains_and_accounts_wait_for_each_other_and_never_for_ever(
    database: Database,
) -> None:
    """Each transaction freezes owners and tells of it, in an order of its own, while budgets are charged."""
    worlds = [World.make(database) for _ in range(3)]
    owners = [world.owner for world in worlds]
    rounds, threads = 8, 6
    start = threading.Barrier(threads)

    def both(order: list[str], session: Session) -> None:
        for owner in (*order, None):
            acts.record(session, owner, "budget.set")

    def freeze(owner: str, frozen: bool, session: Session) -> None:
        ledger.set_frozen(session, owner, frozen, by="owner")

    def work(number: int) -> None:
        start.wait()
        for turn in range(rounds):
            order = owners[number % 3 :] + owners[: number % 3]
            database.run(partial(both, order[:: 1 if turn % 2 else -1]))
            for frozen in (True, False):
                database.run(partial(freeze, order[0], frozen))
            with suppress(BudgetExceeded):  # or frozen: which is told, too
                worlds[number % 3].submit(database, f"{number} {turn}")

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, number) for number in range(threads)]:
            done.result()
    for chain in (*owners, SERVICE):
        holds(database, chain)
        assert sum(act.kind == "budget.set" for act in told(database, chain)) == threads * rounds + (
            chain != SERVICE  # the owner's own
        )
    if not database.is_sqlite:  # which would be tried again, and so be seen here alone
        with database.read() as session:
            deadlocks = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
            assert session.scalar(deadlocks) == 0


def test_what_is_rolled_back_is_not_told(database: Database) -> None:
    world = World.make(database)
    before = len(told(database, world.owner))

    def in_vain(session: Session) -> None:
        ledger.open_window(session, world.owner)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.run(in_vain)
    assert len(told(database, world.owner)) == before


def test_a_flood_is_told_by_its_number(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.make(database)
    clock = [now()]
    monkeypatch.setattr(service, "now", lambda: clock[0])
    before = len(told(database, world.owner))

    def refuse(times: int) -> None:
        for _ in range(times):
            database.run(
                lambda session: acts.record_few(
                    session, world.owner, "question.refused", actor=acts.Actor("analyst", world.analyst)
                )
            )

    refuse(205)
    assert len(told(database, world.owner)) == before + 5
    clock[0] += timedelta(seconds=61)
    service.tell_what_was_left_out(database)
    last = told(database, world.owner)[-1]
    assert (last.details, last.principal) == ('{"further":200}', world.analyst)
    with database.read() as session:
        assert session.scalars(select(Refusals)).all() == []
    refuse(7)
    clock[0] -= timedelta(days=400)  # somebody sets the clock
    refuse(1)
    assert [act.details for act in told(database, world.owner)[before + 6 :]] == ["{}"] * 5 + [
        '{"further":2}',
        "{}",
    ]
    holds(database, world.owner)

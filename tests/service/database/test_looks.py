"""Looks: each begins after it was asked for, and what is in trouble in the event loop a thread does."""

import asyncio
import sqlite3
import threading
from datetime import timedelta

import pytest
from sqlalchemy import bindparam, func, literal, select

from privest_service.database import Database, First, Looks, engine, now
from privest_service.security.models import Owner


@pytest.mark.either
def test_a_look_sees_what_was_committed_before_it_was_asked_for(database: Database) -> None:
    """A kept connection must not go on with an old moment."""
    counted = select(func.count(), literal("x")).select_from(Owner)

    def count(first: First, _: str) -> int:
        found = first(counted)
        assert found
        return found[0]

    async def main() -> None:
        looks = Looks(database, count)
        for n in range(3):
            assert await looks.look("owners") == n
            with database.write() as session:
                session.add(Owner(id=f"own_{n}", name="o"))

    asyncio.run(main())


def test_a_look_takes_and_gives_what_a_session_does(database: Database) -> None:
    """Moments above all, which SQLite has as texts."""
    born = now()
    with database.write() as session:
        session.add(Owner(id="own_1", name="n", created_at=born))
    statement = select(Owner.created_at, Owner.frozen_by, Owner.window + 1).where(
        Owner.name == "n", Owner.created_at > bindparam("after"), Owner.id == bindparam("id")
    )

    async def main() -> list[object]:
        looks = Looks(database, lambda first, after: first(statement, id="own_1", after=after))
        return [await looks.look(born - timedelta(microseconds=1)), await looks.look(born)]

    found, none = asyncio.run(main())
    assert found == (born, None, 2)
    assert none is None


@pytest.mark.parametrize("backend", ["sqlite"])
def test_what_fails_in_the_event_loop_is_done_by_a_thread_and_then_again_there(database: Database) -> None:
    here, failing, where = threading.get_ident(), [True], list[bool]()

    def act(first: First, asked: int) -> int:
        where.append(threading.get_ident() == here)
        assert first(select(literal(1))) == (1,)
        if where[-1] and failing:
            raise sqlite3.OperationalError("database is locked")
        return 10 * asked

    async def main() -> list[int]:
        looks = Looks(database, act)
        first = await looks.look(1)
        failing.clear()
        return [first, await looks.look(2)]

    assert asyncio.run(main()) == [10, 20]
    assert where == [True, False, True]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_thread_looks_where_the_event_loop_finds_no_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(engine, "Straight", refuse)
    looks = Looks(database, lambda first, _: first(select(literal(7))))
    assert asyncio.run(looks.look("anything")) == (7,)

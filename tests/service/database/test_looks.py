"""Looks: each begins after it was asked for, and what is in trouble in the event loop a thread does."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from privest_service.database import Database, Looks
from privest_service.security.models import Owner


@pytest.mark.either
def test_a_look_sees_what_was_committed_before_it_was_asked_for(database: Database) -> None:
    """A kept connection must not go on with an old moment."""

    def count(connection: Connection, asked: Sequence[str]) -> list[int]:
        found = connection.execute(text("SELECT count(*) FROM owners")).scalar_one()
        return [found for _ in asked]

    async def main() -> None:
        looks = Looks(database, count)
        for n in range(3):
            assert await looks.look("a line", "owners") == n
            with database.write() as session:
                session.add(Owner(id=f"own_{n}", name="o"))

    asyncio.run(main())


@pytest.mark.parametrize("backend", ["sqlite"])
def test_what_fails_in_the_event_loop_is_done_by_a_thread_and_then_again_there(database: Database) -> None:
    here, failing, where = threading.get_ident(), [True], list[bool]()

    def act(connection: Connection, asked: Sequence[int]) -> list[int]:
        where.append(threading.get_ident() == here)
        connection.execute(text("SELECT 1")).all()
        if where[-1] and failing:
            raise OperationalError("SELECT", None, Exception("database is locked"))
        return [10 * each for each in asked]

    async def main() -> list[int]:
        looks = Looks(database, act)
        first = await looks.look("a", 1)
        failing.clear()
        return [first, await looks.look("a", 2)]

    assert asyncio.run(main()) == [10, 20]
    assert where == [True, False, True]

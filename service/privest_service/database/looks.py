"""Looks: a row that every request reads, because what is remembered may not hold any more."""

import sqlite3
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from privest_service.database.engine import Database
from privest_service.groups import Groups

T = TypeVar("T", bound=Hashable)
R = TypeVar("R")


class First(Protocol):
    """Looks for a row."""

    def __call__(self, statement: Any, /, **values: object) -> Sequence[Any] | None:
        """The first row of a statement that was made once; None where there is none."""
        ...


class Looks(Generic[T, R]):
    """Looks of one kind, each of which begins after it was asked for.

    On SQLite the event loop takes it itself: it is one of the file's pages, in a tenth of the time that it
    takes to hand it to a thread, and there readers wait for no writer. Should it be in trouble or have to
    wait all the same, a thread does that. On PostgreSQL a thread looks for all that wait.

    Args:
        database: is looked at.
        act: looks for one, by single statements.
    """

    def __init__(self, database: Database, act: Callable[[First, T], R]) -> None:
        self._database, self._act = database, act
        self._groups = Groups[T, R]()

    async def look(self, what: T) -> R:
        """Look for something.

        Raises:
            DatabaseUnavailable: there is none.
        """
        try:
            if own := self._database.event_loops_own:
                return self._act(own.first, what)
        except sqlite3.Error:
            pass
        return await self._groups.do(None, what, self.now)

    def now(self, asked: Sequence[T]) -> Sequence[R]:
        """Look for several in this thread.

        Raises:
            DatabaseUnavailable: there is none.
        """
        with self._database.looking() as connection:

            def first(statement: Any, /, **values: object) -> Sequence[Any] | None:
                return connection.execute(statement, values).first()

            seen = {each: self._act(first, each) for each in set(asked)}
        return [seen[each] for each in asked]

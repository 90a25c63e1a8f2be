"""Looks: a row or two that every request reads, because what is remembered may not hold any more."""

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from privest_service.database.engine import Database
from privest_service.groups import Groups

T = TypeVar("T")
R = TypeVar("R")


class Looks(Generic[T, R]):
    """Looks of one kind, each of which begins after it was asked for.

    On SQLite the event loop takes it itself: it is one of the file's pages, in a third of the time that it
    takes to hand it to a thread, and there readers wait for no writer. Should it be in trouble or have to
    wait all the same, a thread does that. On PostgreSQL a thread looks for all that wait.

    Args:
        database: is looked at.
        act: looks for several, by single statements.
    """

    def __init__(self, database: Database, act: Callable[[Connection, Sequence[T]], Sequence[R]]) -> None:
        self._database, self._act = database, act
        self._groups = Groups[T, R]()

    async def look(self, about: Hashable, what: T) -> R:
        """Look for something; what is about the same waits in one line.

        Raises:
            DatabaseUnavailable: there is none.
        """
        if own := self._database.event_loops_own:
            try:
                (found,) = self._act(own, [what])
                return found
            except DBAPIError:
                own.rollback()
        return await self._groups.do(about, what, self.now)

    def now(self, asked: Sequence[T]) -> Sequence[R]:
        """Look for several in this thread.

        Raises:
            DatabaseUnavailable: there is none.
        """
        with self._database.looking() as connection:
            return self._act(connection, asked)

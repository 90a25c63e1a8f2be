"""Rows that a transaction inserts together: of each table in one statement, when the session is flushed."""

from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy import Table, inspect
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from privest_service.database.tables import Base

_QUEUED = "queued"
_INSERT = {"sqlite": sqlite_insert, "postgresql": postgresql_insert}


class QueueingSession(Session):
    """A session whose `flush`, and so every query of it and its end, first inserts what was queued."""

    def flush(self, objects: Any = None) -> None:
        """Insert what was queued, and then write all that was changed."""
        if queued := self.info.pop(_QUEUED, None):
            _insert(self, queued)
        super().flush(objects)


def queue(session: Session, *objects: Base, unless_there: bool = False) -> None:
    """Insert objects at the next flush: those of one table at once, tables that others refer to before them.

    The session does not keep the objects. Their columns have their defaults from now on. With `unless_there`
    rows of the same key are left as they are.
    """
    queued: dict[tuple[Table, bool], list[dict[str, Any]]] = session.info.setdefault(_QUEUED, {})
    for each in objects:
        table, read = _reader(type(each))
        queued.setdefault((table, unless_there), []).append(read(each))


@cache
def _reader(kind: type[Base]) -> tuple[Table, Callable[[Base], dict[str, Any]]]:
    """The table of a kind of objects, and what makes a row of one."""
    mapper = inspect(kind)
    table = mapper.local_table
    assert isinstance(table, Table)  # noqa: S101 - of all models
    columns = [(column.key, mapper.get_property_by_column(column).key, column) for column in table.columns]

    def read(given: Base) -> dict[str, Any]:
        known = given.__dict__
        for _, name, column in columns:
            if name not in known and column.default is not None:
                made: Any = column.default.arg  # pyright: ignore[reportAttributeAccessIssue]
                setattr(given, name, made({}) if callable(made) else made)
        return {key: known.get(name) for key, name, _ in columns}

    return table, read


def _insert(session: Session, queued: dict[tuple[Table, bool], list[dict[str, Any]]]) -> None:
    connection = session.connection()
    for (table, unless_there), rows in sorted(queued.items(), key=lambda each: _places()[each[0][0]]):
        connection.execute(_statement(table, connection.dialect.name, unless_there), rows)


@cache
def _places() -> dict[Table, int]:
    return {table: place for place, table in enumerate(Base.metadata.sorted_tables)}


@cache
def _statement(table: Table, dialect: str, unless_there: bool) -> Any:
    statement = _INSERT[dialect](table)
    return statement.on_conflict_do_nothing() if unless_there else statement

"""The base of all tables, and the types that they share."""

import secrets
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any

from sqlalchemy import ColumnElement, DateTime, Dialect, MetaData, and_, inspect, or_
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.types import TypeDecorator

_INSERT = {"sqlite": sqlite_insert, "postgresql": postgresql_insert}


class Base(DeclarativeBase):
    """Every table."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Moment(TypeDecorator[datetime]):
    """A moment in UTC, to the microsecond, also on SQLite, which keeps no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """Convert a moment to UTC."""
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Read a moment as UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def now() -> datetime:
    """This moment."""
    return datetime.now(UTC)


def insert_if_new(session: Session, table: type[Base], **values: object) -> None:
    """Insert a row unless there is one with the same key, perhaps of another transaction."""
    session.execute(_insert(table, session.get_bind().dialect.name), [values])


@cache
def _insert(table: type[Base], dialect: str) -> Any:
    return _INSERT[dialect](inspect(table).local_table).on_conflict_do_nothing()


def new_id(prefix: str) -> str:
    """An identifier that says what it names and cannot be guessed."""
    return f"{prefix}_{secrets.token_hex(12)}"


def import_all() -> None:
    """Make every table known to `Base.metadata`."""
    for domain in ("acts", "security", "datasets", "connections", "jobs", "notices", "ledger", "published"):
        import_module(f"privest_service.{domain}.models")


# Cursors of lists by time, newest first

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CURSOR = r"[0-9]{1,17}-[!-~]{1,40}"
"""Pattern of a cursor."""


def cursor_at(at: datetime, last: str) -> str:
    """The cursor of a page that ended with this id, of something made at this time."""
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{last}"


def behind(cursor: str, made: Any, named: Any) -> ColumnElement[bool]:
    """The condition on what comes behind a cursor, by the columns of when it was made and of its id."""
    microseconds, _, last = cursor.partition("-")
    then = _EPOCH + timedelta(microseconds=int(microseconds))
    return or_(made < then, and_(made == then, named > last))

"""Cursors of lists by time, newest first: where a page ended, so that the next one begins behind it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, or_

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CURSOR = r"[0-9]{1,17}-[!-~]{1,40}"
"""What a cursor looks like."""


def cursor_at(at: datetime, last: str) -> str:
    """The cursor of a page that ended with this id, of something made at this time."""
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{last}"


def behind(cursor: str, made: Any, named: Any) -> ColumnElement[bool]:
    """The condition on what comes behind a cursor, by the columns of when it was made and of its id."""
    microseconds, _, last = cursor.partition("-")
    then = _EPOCH + timedelta(microseconds=int(microseconds))
    return or_(made < then, and_(made == then, named > last))

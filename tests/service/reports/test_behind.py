"""The acts and limits behind an entry are found by an index, however long the record is."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from privest_service.dashboard.entries import detail
from privest_service.database import Database
from privest_service.ledger import service as ledger
from privest_service.ledger.models import Account
from privest_service.ledger.units import Limits
from privest_service.reports import behind
from testing.books import Books
from testing.server import SIGNER


@pytest.fixture
def backend() -> str:
    """SQLite, which tells how it will look, and knows nothing of how long its tables are."""
    return "sqlite"


@pytest.mark.parametrize(
    ("look", "index"),
    [
        (lambda session, account: [*behind.limits_set(session, account)], "ix_acts_subject"),
        (lambda session, account: behind.last_verified(session, account.owner_id), "ix_acts_subject"),
        (lambda session, account: detail(session, account, account.seq, SIGNER), "ix_entries_limits"),
    ],
)
def test_what_is_behind_a_ledger_is_found_without_reading_all_of_it(
    database: Database, look: Callable[[Session, Account], object], index: str
) -> None:
    """The overview and a limit's page read all acts of an owner, which of a hundred thousand took 200 ms."""
    books, asked = Books(database), list[tuple[str, Any]]()
    with database.write() as session:
        account = ledger.owner_account(session, books.owner)
        ledger.raise_limits(session, account.id, Limits("basic", 2, 1, 0, 0))

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        asked.append((statement, parameters))

    with database.read() as session:
        account = ledger.owner_account(session, books.owner)
        event.listen(session.get_bind(), "before_cursor_execute", note)
        look(session, account)
        event.remove(session.get_bind(), "before_cursor_execute", note)
        steps = [
            step
            for statement, parameters in asked
            for *_, step in session.connection().exec_driver_sql(
                f"EXPLAIN QUERY PLAN {statement}", parameters
            )
        ]
    assert any(index in step for step in steps), steps
    assert not any("acts" in step and "ix_acts_subject" not in step for step in steps), steps


def test_what_a_verification_finds_is_noted_however_often_one_was_made_before(database: Database) -> None:
    """Only so many of a kind are told in a minute: a fault after these would be hidden, or its mend."""
    books, seen = Books(database), list[int]()
    for faults in (*[0] * 8, 3, 3, 0):
        database.run(lambda session, faults=faults: behind.note_verified(session, books.owner, 1, faults))
        with database.read() as session:
            found = behind.last_verified(session, books.owner)
        assert found is not None
        seen.append(found[1])
    assert seen == [0] * 8 + [3, 3, 0]

"""Transactions of a service: how long the database lets them wait, and what is begun anew."""

from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from privest_service.database import Database
from privest_service.problems import DatabaseUnavailable
from testing.server import until


@pytest.mark.parametrize("backend", ["postgresql"])
def test_the_database_ends_a_services_transactions_if_it_is_gone_but_no_long_reads(database_url: str) -> None:
    shown = text("SHOW idle_in_transaction_session_timeout")
    service, command = Database(database_url, patience=10.0), Database(database_url)
    with service.write() as session:
        assert session.scalar(shown) == "1min"
    with service.read(snapshot=True) as session:
        assert session.scalar(shown) == "0"
    with service.write() as session:
        assert session.scalar(shown) == "1min"
    with command.write() as session:  # which may copy files for hours
        assert session.scalar(shown) == "0"
    service.close()
    command.close()


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_transaction_that_the_database_ended_is_begun_anew(database: Database) -> None:
    def gone(pid: object) -> bool:
        with database.read() as session:
            there = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
            return session.scalar(there, {"pid": pid}) == 0

    attempts = list[object]()

    def work(session: Session) -> int | None:
        attempts.append(session.scalar(text("SELECT pg_backend_pid()")))
        if len(attempts) == 1:
            session.execute(text("SET LOCAL idle_in_transaction_session_timeout = '1ms'"))
            until(lambda: gone(attempts[0]))
        return session.scalar(text("SELECT 7"))

    for _ in range(5):
        attempts.clear()
        # Sometimes the connection is closed before PostgreSQL's reason is read: that is an outage.
        with suppress(DatabaseUnavailable):
            assert database.run(work) == 7
            assert len(attempts) == 2
            return
    pytest.fail("no transaction was begun anew")

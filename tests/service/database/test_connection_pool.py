"""Connections of the pool: one whose server closed it meanwhile is replaced before it is used."""

import psycopg
import pytest
from sqlalchemy import text

from privest_service.database import Database


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_connection_that_was_closed_is_replaced(database: Database) -> None:
    def backend_of() -> int:
        with database.write() as session:
            return session.execute(text("SELECT pg_backend_pid()")).scalar_one()

    before = backend_of()
    assert backend_of() == before  # the pool keeps it
    url = database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as other:
        # True once the backend is gone: it says so within a minute, or not at all.
        assert other.execute("SELECT pg_terminate_backend(%s, 60000)", (before,)).fetchone() == (True,)
    assert backend_of() != before
    with database.read() as session:
        assert session.execute(text("SELECT 1")).scalar_one() == 1

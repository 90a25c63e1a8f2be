"""Connections and transactions; what SQLite and PostgreSQL do differently is here and nowhere else."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.orm import Session


class Database:
    """Sessions on one database.

    SQLite has one writer: `BEGIN IMMEDIATE` takes its lock before anything is read, and a lock in the
    process keeps its own threads from polling for it. PostgreSQL runs under READ COMMITTED, and the
    ledger's guarded updates take the row locks.

    Args:
        url: SQLAlchemy URL of SQLite or PostgreSQL.
        pool_size: connections kept for threads of this process.
    """

    def __init__(self, url: str, *, pool_size: int = 10) -> None:
        parsed = make_url(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if self.is_sqlite:
            if not parsed.database or parsed.database == ":memory:":
                raise ValueError("SQLite must be a file: jobs and requests use several connections")
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            self._writer = _sqlite(url, "BEGIN IMMEDIATE", 1)
            self._reader = _sqlite(url, "BEGIN", pool_size)
            self._turn: Any = threading.Lock()
        elif parsed.get_backend_name() == "postgresql":
            self._writer = self._reader = create_engine(
                parsed.set(drivername="postgresql+psycopg"),
                pool_size=pool_size,
                max_overflow=0,
                pool_pre_ping=True,
                hide_parameters=True,  # errors are logged
                isolation_level="READ COMMITTED",
                connect_args={"options": "-c timezone=UTC -c lock_timeout=30s"},
            )
            self._turn = nullcontext()
        else:
            raise ValueError("the database must be SQLite or PostgreSQL")

    @property
    def engine(self) -> Engine:
        """For migrations."""
        return self._writer

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction that may write: committed at the end, rolled back by any exception."""
        with self._turn, Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One transaction that only reads."""
        with Session(self._reader, expire_on_commit=False) as session, session.begin():
            yield session

    def ping(self) -> None:
        """Ask the database anything at all."""
        with self.read() as session:
            session.execute(text("SELECT 1"))

    def close(self) -> None:
        """Close all connections."""
        self._writer.dispose()
        self._reader.dispose()


def _sqlite(url: str, begin: str, pool_size: int) -> Engine:
    engine = create_engine(
        url,
        connect_args={"isolation_level": None, "timeout": 60.0},
        pool_size=pool_size,
        max_overflow=0,
        hide_parameters=True,  # errors are logged
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=60000"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def start(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine

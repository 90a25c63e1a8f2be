"""Connections and transactions; what SQLite and PostgreSQL do differently is here and nowhere else."""

import random
import select
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import structlog
from sqlalchemy import Connection, Engine, Row, Select, create_engine, event, make_url, text
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from privest_service.problems import WHEN_FULL, DatabaseUnavailable

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CONNECT_SECONDS = 5
"""Longest time in seconds to wait for PostgreSQL to accept a connection."""

_POOL_SECONDS = 10
"""Longest time in seconds that a thread waits for a connection while others hold all of them."""

_FILE_SECONDS = 60.0
"""Seconds to wait for a turn to write to SQLite, and again for the locks of other processes.

A caller that gives its own patience waits for less.
"""

_ENDED = "25P03"
"""PostgreSQL's error code of a transaction with which nobody went on for long."""

_IN_THE_WAY = (
    *("40001", "40P01", "55P03", _ENDED),
    *("23503", "23505", "SQLITE_CONSTRAINT_FOREIGNKEY"),
    *("SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE"),
)
"""Errors of a transaction that met another one.

They are serialization failures, deadlocks and lock timeouts, transactions that the server ended because this
process did not go on with them, and rows that others were first to write or to delete. What CHECKs and
triggers refuse is a fault of ours.
"""

_BEFORE_COMMIT, _ONCE_COMMITTED = "before commit", "once committed"

_SINGLE = "single"
"""Marks a connection that runs a single statement, which needs no transaction to see one moment."""

_REVISION = {
    # A file on a disk that is full, or became read-only: nothing less than a change would show it.
    "sqlite": "UPDATE alembic_version SET version_num = version_num RETURNING version_num",
    # A server's standby, or one that was told to be read only.
    "postgresql": "SELECT version_num FROM alembic_version"
    " WHERE current_setting('transaction_read_only') = 'off'",
}

_IDLE = "idle_in_transaction_session_timeout"
"""Ends the transactions of a process that was stopped, or whose machine is gone, with the locks they hold."""

_STAY = text(f"SET LOCAL {_IDLE} = 0")

_FULL, _READ_ONLY = "53100", "25006"
"""PostgreSQL's error codes of a full disk, and of a server that takes no writes (a standby that waits)."""

log = structlog.get_logger()


class Database:
    """Sessions on one database.

    SQLite has one writer: `BEGIN IMMEDIATE` takes its lock before anything is read, and as there is one
    connection for it, threads of this process wait for that and do not poll for the lock. PostgreSQL
    runs under READ COMMITTED, and the ledger's guarded updates take the row locks.

    Args:
        url: SQLAlchemy URL of SQLite or PostgreSQL.
        signer: of what is written to the ledger; needed by no other table.
        pool_size: connections kept for threads of this process.
        patience: seconds that PostgreSQL may take over a statement, and SQLite until one may write, half of
            them for each of the two waits; None, for what may be long, is for ever, and on SQLite a minute.
    """

    def __init__(
        self, url: str, *, signer: object = None, pool_size: int = 10, patience: float | None = None
    ) -> None:
        self._info = {"signer": signer}
        parsed = make_url(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if self.is_sqlite:
            if not parsed.database or parsed.database == ":memory:":
                raise ValueError(
                    "SQLite needs a file, because several connections use it. Name one in the URL."
                )
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            wait = _FILE_SECONDS if patience is None else patience / 2
            self._writer = _sqlite(url, "BEGIN IMMEDIATE", 1, wait, wait)
            self._reader = _sqlite(url, "BEGIN", pool_size, _POOL_SECONDS, wait)
        elif parsed.get_backend_name() == "postgresql":
            from privest_service.database.postgresql import connect, verified  # noqa: PLC0415 - brings psycopg

            self._writer = create_engine(
                verified(parsed).set(drivername="postgresql+psycopg"),
                pool_size=pool_size,
                max_overflow=0,
                pool_timeout=_POOL_SECONDS,
                hide_parameters=True,  # errors are logged
                isolation_level="READ COMMITTED",
                connect_args={
                    "options": "-c timezone=UTC -c lock_timeout=5s"
                    + (f" -c {_IDLE}=60s" if patience is not None else ""),
                    # Of a server that went without a word one would else hear after hours.
                    "connect_timeout": _CONNECT_SECONDS,
                    "tcp_user_timeout": 30_000,
                    "keepalives_idle": 30,
                    "keepalives_interval": 5,
                    "keepalives_count": 3,
                },
            )
            event.listen(self._writer, "do_connect", partial(connect, patience))
            event.listen(self._writer, "checkout", _refuse_the_dead)
            # Each statement sees what is committed then, in a transaction or not: no round trips for those.
            self._reader = self._writer.execution_options(isolation_level="AUTOCOMMIT")
        else:
            raise ValueError("The database must be SQLite or PostgreSQL. Change PRIVEST_DATABASE_URL.")
        self._single = self._reader.execution_options(**{_SINGLE: True})

    @property
    def engine(self) -> Engine:
        """The engine that migrations use."""
        return self._writer

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction that may write: committed at the end, rolled back by any exception.

        For what nobody else writes at the same time, and never for accounts, which are moved in `run`.

        Raises:
            DatabaseUnavailable: there is no database, no room in it, or another transaction was in the way.
        """
        with _told(), self._transaction() as session:
            yield session

    @contextmanager
    def _transaction(self) -> Iterator[Session]:
        with self._session(self._writer) as session:
            with session.begin():
                yield session
                session.flush()
                for work in session.info.get(_BEFORE_COMMIT, ()):
                    work(session)
            for act in session.info.get(_ONCE_COMMITTED, ()):
                act()

    def run(self, work: Callable[[Session], T]) -> T:
        """Call `work` in a transaction that may write. It is begun anew where others were in its way.

        Deadlocks, lock timeouts and rows that others were first to write are no faults of a request: the
        transaction is rolled back whole, so that nothing is done twice.

        Raises:
            DatabaseUnavailable: there is none, no room in it, or others were in the way of five attempts.
        """
        with _told():
            for pause in (0.01, 0.05, 0.2, 0.5):
                try:
                    with self._transaction() as session:
                        return work(session)
                except (DBAPIError, StaleDataError) as error:
                    if not _in_the_way(error):
                        raise
                time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - lets contenders part
            with self._transaction() as session:
                return work(session)

    @contextmanager
    def read(self, *, snapshot: bool = False) -> Iterator[Session]:
        """Open a transaction that only reads. As a snapshot, all that it reads is of one moment.

        On SQLite it always is.

        Raises:
            DatabaseUnavailable: there is none.
        """
        snapshot = snapshot and not self.is_sqlite
        engine = self._writer if snapshot else self._reader
        with _told(), self._session(engine) as session, session.begin():
            if snapshot:
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
                session.execute(_STAY)  # for as long as whoever reads it takes
            yield session

    def first(self, statement: Select[*Ts], **values: object) -> Row[*Ts] | None:
        """The first row of a statement that was made once: a quarter of what it takes in a session.

        Raises:
            DatabaseUnavailable: there is none.
        """
        with self.looking() as connection:
            return connection.execute(statement, values).first()

    @contextmanager
    def looking(self) -> Iterator[Connection]:
        """A connection for single statements, each of which sees what is committed when it begins.

        Raises:
            DatabaseUnavailable: there is none.
        """
        with _told(), self._single.connect() as connection:
            yield connection

    def _session(self, engine: Engine) -> Session:
        return Session(engine, expire_on_commit=False, info=self._info)

    def revision(self) -> str:
        """Return the revision of the tables by a statement that fails on a database that takes no writes.

        Raises:
            SQLAlchemyError: it does not.
        """
        with self.write() as session:
            return session.scalars(text(_REVISION[self._writer.dialect.name])).one()

    def close(self) -> None:
        """Close all connections."""
        self._writer.dispose()
        self._reader.dispose()


def before_commit(session: Session, work: Callable[[Session], None]) -> None:
    """Have something done as the last thing in a transaction: the locks that it takes are the last ones."""
    session.info.setdefault(_BEFORE_COMMIT, []).append(work)


def once_committed(session: Session, act: Callable[[], None]) -> None:
    """Have something done when a transaction is committed, if it is."""
    session.info.setdefault(_ONCE_COMMITTED, []).append(act)


@contextmanager
def _told() -> Iterator[None]:
    """Tell callers in words that the database is gone, hangs or is full, and the log by names alone."""
    try:
        yield
    except PoolTimeoutError:
        raise DatabaseUnavailable(
            "All connections to the database are in use. Try again in a few seconds.", retry_after=5
        ) from None
    except (IntegrityError, StaleDataError) as error:
        if not _in_the_way(error):
            raise
        log.warning("others were in the way", error=type(error).__name__)
        raise DatabaseUnavailable(
            "Other requests are changing the same data. Nothing was written. Try again.", retry_after=1
        ) from error
    except (OperationalError, InterfaceError, InternalError) as error:
        code = getattr(error.orig, "sqlite_errorcode", None)
        state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", None)
        if code == sqlite3.SQLITE_ERROR:  # a fault in a statement
            raise
        if isinstance(error, InternalError) and state not in (_READ_ONLY, _ENDED):
            raise
        log.warning("database unavailable", error=type(error.orig).__name__, state=state)
        if code == sqlite3.SQLITE_FULL or state == _FULL:
            raise DatabaseUnavailable(
                "The disk of the database is full. Nothing was written. Ask the operator.",
                retry_after=WHEN_FULL,
            ) from error
        raise DatabaseUnavailable(
            "The database does not answer. Try again; use the same Idempotency-Key if the request has one.",
            retry_after=5,
        ) from error


def _in_the_way(error: DBAPIError | StaleDataError) -> bool:
    """Whether the transaction only met another one."""
    if isinstance(error, StaleDataError):
        return True
    told = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", None)
    return told in _IN_THE_WAY


def _refuse_the_dead(connection: Any, _: Any, __: Any) -> None:
    """Let the pool replace a connection that its server has closed: it has something to read, its end."""
    ready = select.poll()
    ready.register(connection.fileno(), select.POLLIN)
    if ready.poll(0):
        raise DisconnectionError


def _sqlite(url: str, begin: str, pool_size: int, pool_seconds: float, lock_seconds: float) -> Engine:
    engine = create_engine(
        url,
        connect_args={"isolation_level": None, "timeout": lock_seconds},
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=pool_seconds,
        hide_parameters=True,  # errors are logged
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            "recursive_triggers=ON",  # so that INSERT OR REPLACE is a DELETE too
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        if not connection.get_execution_options().get(_SINGLE):
            connection.exec_driver_sql(begin)

    return engine

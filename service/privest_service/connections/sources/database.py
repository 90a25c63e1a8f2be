"""Tables and views of a database, streamed in a transaction that the database itself keeps from writing."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Boolean,
    Engine,
    Float,
    Integer,
    Numeric,
    create_engine,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy import column as column_of
from sqlalchemy import table as table_of
from sqlalchemy.engine import Connection, Result
from sqlalchemy.exc import DBAPIError, NoSuchTableError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from privest_service.connections.schemas import NewDatabase
from privest_service.connections.sources.copying import refused, too_large
from privest_service.formats import Format

_NAME = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_$]{0,127})\.)?([A-Za-z_][A-Za-z0-9_$]{0,127})", re.ASCII)

_POSTGRES = (
    "-c default_transaction_read_only=on -c statement_timeout=60s -c lock_timeout=5s "
    "-c synchronize_seqscans=off"  # the same rows in the same order
)
_READ_ONLY = {
    "postgresql": "SET TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
    "oracle": "SET TRANSACTION READ ONLY",
}
"""The statement that makes a transaction read-only, by database.

For a database that is not listed, only the rights of its role keep the service from writing.
"""

_REASONS = {
    "25006": "could not be read: reading it would write to the database",
    "42501": "could not be read: the connection's role may not read it",
    "57014": "could not be read: the database took too long",
}
"""SQL states of PostgreSQL that an owner may know."""

_BATCH = 200_000
"""Most numbers of fetched rows that are held in Python at a time."""


def check(connection: NewDatabase) -> None:
    """Refuse a database for which there is no driver. Raises RefusedUploadError: there is none."""
    _engine(connection)


def fetch(connection: NewDatabase, path: str, target: str, limit: int) -> Format:
    """Write a table or view as an Arrow stream; see `sources.fetch`."""
    name = _NAME.fullmatch(path)
    if name is None:
        raise refused("must name a table or view, as table or schema.table")
    try:
        with _engine(connection).connect() as opened:
            if statement := _READ_ONLY.get(opened.dialect.name):
                opened.execute(text(statement))
            _stream(opened, name[1], name[2], target, limit)
            opened.rollback()
    except DBAPIError as error:
        state = str(getattr(error.orig, "sqlstate", ""))
        raise refused(_REASONS.get(state, "could not be read: the database did not give its rows")) from None
    except SQLAlchemyError:
        raise refused("could not be read: the database did not give its rows") from None
    return "arrow"


def _engine(connection: NewDatabase) -> Engine:
    url = make_url(connection.url.get_secret_value())
    try:
        if url.get_backend_name() == "postgresql":
            return _postgres(url)
        return create_engine(url, poolclass=NullPool, hide_parameters=True)
    except Exception:  # whatever an import or a dialect meets
        raise refused("must be a kind of database for which a driver is installed here") from None


def _postgres(url: URL) -> Engine:
    from privest_service.database.postgresql import verified  # noqa: PLC0415 - in workers alone

    given = url.query.get("options", "")
    options = " ".join([*([given] if isinstance(given, str) else given), _POSTGRES])  # the last one counts
    return create_engine(
        verified(url).set(drivername="postgresql+psycopg").difference_update_query(["options"]),
        poolclass=NullPool,
        hide_parameters=True,
        connect_args={"options": options, "connect_timeout": 10},
    )


def _stream(opened: Connection, schema: str | None, name: str, target: str, limit: int) -> None:
    inspector = inspect(opened)
    try:
        columns = inspector.get_columns(name, schema)
        key = inspector.get_pk_constraint(name, schema)["constrained_columns"]
    except NoSuchTableError:
        columns, key = [], []
    if not columns:
        raise refused("must name a table or view that exists")
    # Ordered where there is a key, so that the same rows have the same fingerprint.
    table = table_of(name, *(column_of(each["name"]) for each in columns), schema=schema)
    query = select(table).order_by(*(table.c[each] for each in key))
    batch = max(1, _BATCH // len(columns))
    rows = opened.execution_options(stream_results=True, yield_per=batch).execute(query)
    types = {each["name"]: each["type"] for each in columns}
    _write(rows, types, batch, target, limit)


def _write(rows: Result[Any], types: dict[str, Any], batch: int, target: str, limit: int) -> None:
    """Write batches of rows as an Arrow stream, everything that is no number as text."""
    import pyarrow as pa  # noqa: PLC0415 - in workers alone

    def form(kind: Any) -> tuple[pa.DataType, Callable[[Any], Any]]:
        if isinstance(kind, Integer):  # exact, as it may tell whose row it is
            return pa.int64(), int
        if isinstance(kind, Boolean):
            return pa.bool_(), bool
        return (pa.float64(), float) if isinstance(kind, Numeric | Float) else (pa.string(), str)

    forms = [form(kind) for kind in types.values()]
    schema = pa.schema(list(zip(types, [kind for kind, _ in forms], strict=True)))
    with Path(target).open("r+b") as file, pa.ipc.new_stream(file, schema) as stream:
        for found in rows.partitions(batch):
            columns = [
                pa.array([None if value is None else made(value) for value in values], kind)
                for values, (kind, made) in zip(zip(*found, strict=True), forms, strict=True)
            ]
            stream.write_batch(pa.record_batch(columns, schema=schema))
            if file.tell() > limit:
                raise too_large(limit)

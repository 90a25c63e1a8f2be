"""Connections to PostgreSQL that give up on a server which no longer answers."""

from collections.abc import Sequence
from typing import Any, TypeVar

from psycopg import Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

T = TypeVar("T")


class PatientConnection(Connection[Any]):
    """A connection whose server may take so long over one statement and no longer.

    The server's own `statement_timeout` is kept by the server: one that is stopped, or behind a network that
    is gone, keeps none.

    Attributes:
        patience: in seconds; None is for ever.
    """

    patience: float | None = None

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """As psycopg has it, within the patience.

        Raises:
            OperationalError: there was no answer; the connection is closed, as one might still come.
        """
        try:
            return super().wait(gen, interval, self.patience if timeout is None else timeout)
        except OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.close()
            raise


def connect(
    patience: float | None, _dialect: object, _record: object, args: Sequence[Any], named: dict[str, Any]
) -> PatientConnection:
    """A connection, made as SQLAlchemy has it made in `do_connect`."""
    made = PatientConnection.connect(*args, **named)
    made.patience = patience
    return made

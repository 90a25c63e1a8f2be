"""Connections to PostgreSQL: to servers that prove who they are, and given up where one no longer answers."""

import os
import ssl
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

from psycopg import Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy import URL

T = TypeVar("T")

_ROOTS = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Files in which systems keep the certificates that they trust."""


def verified(url: URL) -> URL:
    """The URL with `sslmode=verify-full`, unless it names a mode itself or its server is on this machine.

    libpq's own default lets whoever is on the way be the server. Certificates are looked for where libpq
    does (`sslrootcert`, PGSSLROOTCERT, ~/.postgresql/root.crt), else in what this system trusts.
    """
    if "sslmode" in url.query or all(map(_is_local, _hosts(url))):
        return url
    found = {"sslmode": "verify-full"}
    own = "PGSSLROOTCERT" in os.environ or Path("~/.postgresql/root.crt").expanduser().exists()
    if "sslrootcert" not in url.query and not own:
        found["sslrootcert"] = _system_roots()
    return url.update_query_dict(found)


def _hosts(url: URL) -> list[str]:
    """All that a URL may lead to; an empty one is libpq's own default."""
    named = [url.host or ""]
    for name in ("host", "hostaddr", "service"):
        given = url.query.get(name, ())
        named += [given] if isinstance(given, str) else given
    hosts = [host for each in named for host in each.split(",") if host]
    return hosts or [os.environ.get("PGHOST") or os.environ.get("PGHOSTADDR", "")]


def _is_local(host: str) -> bool:
    """Whether a host is a socket's directory, or a name or address of this machine alone."""
    if not host or host[0] in "/@":
        return True
    name = host.rpartition(":")[0] if host.count(":") == 1 else host
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name == "localhost"


def _system_roots() -> str:
    # The wheel of psycopg has an OpenSSL of its own, whose `system` is nowhere.
    found = (ssl.get_default_verify_paths().cafile, *_ROOTS)
    return next((each for each in found if each and Path(each).exists()), "system")


class PatientConnection(Connection[Any]):
    """A connection whose server may take so long over one statement and no longer.

    The server's own `statement_timeout` is kept by the server: one that is stopped, or behind a network that
    is gone, keeps none.

    Attributes:
        patience: in seconds; None is for ever.
    """

    patience: float | None = None

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for the database as psycopg does, but no longer than the patience.

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

"""What is looked at elsewhere: the database and its clock, the platform's keys, the hub, and certificates."""

import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit

from cryptography import x509
from sqlalchemy import make_url, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session

from privest_service.acts.models import Act
from privest_service.database import Database
from privest_service.database.migrate import head
from privest_service.doctor.finding import Finding
from privest_service.problems import DatabaseUnavailable
from privest_service.security.models import Owner
from privest_service.security.tokens import fetch_key_set
from privest_service.settings import Settings

_OLDEST = 14
"""Oldest major version of PostgreSQL that its makers still mend when this was written."""

_SECONDS = 5.0
"""Seconds that anybody elsewhere may take to answer."""

_APART, _FAR = timedelta(seconds=2), timedelta(seconds=30)
"""From which difference of two clocks on it is told of, and from which on tokens and leases go wrong."""

_SOON = timedelta(days=30)
"""How long before its end a certificate is told of."""


# The database


def database(read: Settings) -> Iterator[Finding]:
    """Look whether it answers, has our tables and takes writes; then at its clock and its ledger's key."""
    url = make_url(read.url)
    kind = "SQLite" if url.get_backend_name() == "sqlite" else "PostgreSQL"
    if kind == "SQLite" and not Path(url.database or "").exists():
        yield Finding("database", "ok", "SQLite: privest serve makes it at the first start")
        return
    opened = Database(read.url, pool_size=1, patience=_SECONDS)
    try:
        with opened.read() as session:
            yield from _version(session, kind)
            tables = _tables(session)
            yield tables
            if tables.state != "ok":
                return
            yield from _clock(session, kind)
            yield from _signer(session, read)
            yield from _groups(session, read)
            if kind == "PostgreSQL":
                yield from _rights(session)
        opened.revision()
    except (SQLAlchemyError, DatabaseUnavailable, OSError) as error:
        do = (
            "Start it, correct PRIVEST_DATABASE_URL, or let the service reach it. SQLite needs room to write."
        )
        yield Finding("database", "fix", f"{kind} does not answer, or takes no writes{_reason(error)}", do)
    finally:
        opened.close()


def _reason(error: Exception) -> str:
    """What the driver says of a connection that was not made: that has no row in it, and no password."""
    cause = error if isinstance(error, DBAPIError) else error.__cause__ or error.__context__
    if isinstance(cause, DBAPIError) and cause.orig is not None and not getattr(cause.orig, "sqlstate", None):
        return f": {str(cause.orig).splitlines()[0][:200]}" if str(cause.orig) else ""
    state = getattr(getattr(cause, "orig", None), "sqlstate", None)
    return f" ({state})" if state else ""


def _version(session: Session, kind: str) -> Iterator[Finding]:
    if kind == "SQLite":
        yield Finding("database", "ok", f"SQLite {session.scalar(text('SELECT sqlite_version()'))}")
        return
    number = int(session.scalar(text("SELECT current_setting('server_version_num')")) or 0)
    major = number // 10000
    if major < _OLDEST:
        yield Finding("database", "look", f"PostgreSQL {major} is old", f"Move to {_OLDEST} or newer.")
    else:
        yield Finding("database", "ok", f"PostgreSQL {major}.{number % 10000} answers")


def _tables(session: Session) -> Finding:
    """Whether the tables are of this version."""
    try:
        found = session.scalar(text("SELECT version_num FROM alembic_version"))
    except DBAPIError:
        found = None
    if found is None:
        return Finding("database", "fix", "it has no tables yet", "Run privest migrate.")
    if found != head():
        do = "Run privest migrate, or the version that made them."
        return Finding("database", "fix", "its tables are of another version", do)
    return Finding("database", "ok", "its tables are of this version")


def _rights(session: Session) -> Iterator[Finding]:
    """Whether the role that serves could change entries."""
    asked = (
        "SELECT rolsuper, EXISTS (SELECT FROM pg_tables WHERE tableowner = current_user"
        " AND schemaname = 'public') FROM pg_roles WHERE rolname = current_user"
    )
    superuser, owns = session.execute(text(asked)).one()
    if superuser or owns:
        why = "is a superuser" if superuser else "owns the tables"
        what = f"the service's role {why}, and could change entries"
        do = "Have two roles: docs/databases.md, Roles of the database."
        yield Finding("database", "look", what, do)


# Clocks


def _clock(session: Session, kind: str) -> Iterator[Finding]:
    """This machine's clock beside the database's, and beside the newest act's."""
    now = datetime.now(UTC)
    if kind == "PostgreSQL":
        told = session.scalar(text("SELECT clock_timestamp()"))
        if isinstance(told, datetime):
            yield _beside(told - now, "the database's")
    newest = session.scalar(select(Act.at).order_by(Act.at.desc()).limit(1))
    if newest and newest - now > _APART:
        do = "Set it right: grants and keys would end late, and the ledger would run backwards."
        yield Finding("clock", "fix", "is behind the newest act in the ledger", do)


def _beside(difference: timedelta, whose: str) -> Finding:
    if (apart := abs(difference)) <= _APART:
        return Finding("clock", "ok", f"agrees with {whose}")
    what = f"is {apart.total_seconds():.0f} s {'behind' if difference > timedelta() else 'ahead of'} {whose}"
    return Finding("clock", "fix" if apart > _FAR else "look", what, "Let both follow a time server (NTP).")


def _signer(session: Session, read: Settings) -> Iterator[Finding]:
    """Whether the signing key is the one that the ledger was last signed with."""
    newest = session.scalar(select(Act.signer).order_by(Act.at.desc()).limit(1))
    try:
        own = read.signer.id if newest else None
    except (ValueError, OSError):  # it is told of by whoever looks at the files
        return
    if newest and newest != own:
        what = "the ledger's newest act was signed by another key than PRIVEST_SIGNING_KEY_FILE"
        do = "If it was not rotated on purpose (docs/ledger.md), put the former file back."
        yield Finding("secrets", "fix", what, do)


# The platform and the hub


def _groups(session: Session, read: Settings) -> Iterator[Finding]:
    """Whether groups of people stand for somebody whom there is, and whether tokens are taken at all."""
    if not read.token_groups:
        return
    if not read.token_issuer:
        what = "PRIVEST_TOKEN_GROUPS is set, and nobody's tokens are taken"
        yield Finding("platform", "look", what, "Set PRIVEST_TOKEN_ISSUER and PRIVEST_TOKEN_KEYS, too.")
        return
    known = set(session.scalars(select(Owner.id).where(Owner.id.in_(read.token_groups.values()))))
    for group, held in read.token_groups.items():
        if held not in known | {"analyst", "admin"}:
            what = f"the group {group!r} stands for {held}, which is no owner here"
            do = "Correct PRIVEST_TOKEN_GROUPS: as it is, the group opens nothing."
            yield Finding("platform", "fix", what, do)
    count = len(read.token_groups)
    told = f"{count} {'group' if count == 1 else 'groups'} in the claim {read.token_groups_claim!r}"
    admins = [repr(group) for group, held in read.token_groups.items() if held == "admin"]
    whose = f"; of administrators: {', '.join(admins)}" if admins else ""
    yield Finding("platform", "ok", f"PRIVEST_TOKEN_GROUPS knows {told}{whose}")


def platform(read: Settings) -> Iterator[Finding]:
    """Look whether the platform's keys can be had, and whether its clock is ours."""
    if not read.token_issuer:
        return
    try:
        if "://" in read.token_keys:
            content, date = fetch_key_set(read.token_keys)
        else:
            content, date = Path(read.token_keys).read_bytes(), None
        count = len(json.loads(content)["keys"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
        do = "Correct it, or let the service reach it. Tokens are answered with 503 until then."
        yield Finding("platform", "fix", f"PRIVEST_TOKEN_KEYS has no key set{_told(error)}", do)
        return
    if not count:
        yield Finding(
            "platform", "fix", "PRIVEST_TOKEN_KEYS has an empty key set", "Have the platform make a key."
        )
        return
    yield Finding("platform", "ok", f"PRIVEST_TOKEN_KEYS has {count} {'key' if count == 1 else 'keys'}")
    with suppress(TypeError, ValueError):  # it states no date, or one without a zone
        apart = parsedate_to_datetime(date or "") - datetime.now(UTC)
        yield _beside(apart, "the platform's")


def _told(error: Exception) -> str:
    """Why a connection was not made, in the system's words; of anything else nothing."""
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f": {cause.verify_message}"
    return f": {cause.strerror}" if isinstance(cause, OSError) and cause.strerror else ""


# Certificates


def certificates(read: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the ends of all certificates that settings name, and of those that servers show."""
    root = str(make_url(read.url).query.get("sslrootcert", environment.get("PGSSLROOTCERT", "")))
    named = {
        "PRIVEST_HUB_CA_FILE": read.hub_ca_file,
        "PRIVEST_HUB_CERTIFICATE_FILE": read.hub_certificate_file,
        "sslrootcert": Path(root) if root and root != "system" else None,
    }
    for name, path in named.items():
        if path is None:
            continue
        try:
            found = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError):
            do = "Name a file of certificates in PEM that the service may read."
            yield Finding("certificates", "fix", f"{name} holds no certificate", do)
        else:
            yield _ends(f"what {name} holds", min(each.not_valid_after_utc for each in found))
    served = {"PRIVEST_TOKEN_KEYS": read.token_keys, "PRIVEST_HUB_URL": read.hub_url}
    for name, url in served.items():
        if url.startswith("https://"):
            yield _shown(name, url, read.hub_ca_file if name == "PRIVEST_HUB_URL" else None)


def _shown(name: str, url: str, authorities: Path | None) -> Finding:
    """The certificate that a server shows."""
    parts = urlsplit(url)
    try:
        context = ssl.create_default_context(cafile=os.fspath(authorities) if authorities else None)
        with (
            socket.create_connection((parts.hostname or "", parts.port or 443), _SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
    except (OSError, ValueError) as error:
        what = f"the server of {name} shows none that is good{_told(error)}"
        do = "Let the service reach it, and let it have one that is trusted. A proxy is not asked here."
        return Finding("certificates", "fix", what, do)
    end = x509.load_der_x509_certificate(shown or b"").not_valid_after_utc
    return _ends(f"that of the server of {name}", end)


def _ends(what: str, end: datetime) -> Finding:
    left = end - datetime.now(UTC)
    day = f"{end:%Y-%m-%d}"
    if left < timedelta():
        return Finding("certificates", "fix", f"{what} ended on {day}", "Renew it.")
    if left < _SOON:
        return Finding("certificates", "look", f"{what} ends on {day}", "Renew it soon.")
    return Finding("certificates", "ok", f"{what} is good until {day}")

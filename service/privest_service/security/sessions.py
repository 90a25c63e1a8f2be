"""Sessions of browsers: an opaque id, kept as a hash, new at each sign-in, with an end that is fixed.

A session ends with the key or token that it came in with, when that is revoked, changed or over, and is for
what that is for.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import and_, bindparam, delete, or_, select
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.database import now
from privest_service.security.authentication import IS_GOOD, Authenticator
from privest_service.security.keys import as_text, digest, well_formed
from privest_service.security.models import ApiKey, Person, SignIn
from privest_service.security.principals import Credential, Principal

LASTS = timedelta(hours=12)
"""Longest session, however much it is used."""

_TOKEN = "token"  # noqa: S105 - a word, in place of a key's id
"""Stands in place of a key's id for a session opened by the platform's token. It ends with the token."""

_KNOWN = select(ApiKey.role, ApiKey.principal_id, ApiKey.id).where(ApiKey.digest == bindparam("digest"))


@dataclass(frozen=True)
class OpenSession:
    """A session that is good at present; its id is known to its browser alone."""

    id: str
    credential: Credential

    @property
    def principal(self) -> Principal:
        """The principal that is signed in."""
        return self.credential.principal

    @property
    def token(self) -> str:
        """The token that forms carry, to show that they come from a page of this session."""
        return hmac.new(self.id.encode(), b"privest form", hashlib.sha256).hexdigest()

    def accepts(self, token: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(self.token.encode(), token.encode())


def sign_in(
    authenticator: Authenticator, key: str, address: str, *, instead_of: str = ""
) -> OpenSession | None:
    """A fresh session for whoever holds the key or token; None where it opens nothing.

    Those that have ended are forgotten on the way.

    The session that the browser held, `instead_of`, ends.

    Raises:
        TooManyRequests: not so often, or too many from this address opened nothing.
        Unavailable: it is a token, and the platform's keys are not to be had.
    """
    credential = authenticator.identify(key, address)
    if credential is None:
        _tell_owner(authenticator, key)
        return None
    authenticator.rates.count(credential.principal)  # before anything is written
    opened = OpenSession(secrets.token_urlsafe(32), credential)

    def note(session: Session) -> None:
        session.execute(
            delete(SignIn).where(or_(SignIn.expires_at < now(), SignIn.digest == _digest(instead_of)))
        )
        session.add(
            SignIn(
                digest=_digest(opened.id),
                role=opened.principal.role,
                principal_id=opened.principal.id,
                key=credential.key_id or (_TOKEN if credential.until else authenticator.admin_mark),
                scopes=as_text(credential.scopes),
                person=credential.person,
                expires_at=min(now() + LASTS, credential.until or datetime.max.replace(tzinfo=UTC)),
            )
        )

        owner_id = opened.principal.id if opened.principal.role == "owner" else None
        acts.record_few(session, owner_id, "signed-in", actor=credential.actor)

    authenticator.database.run(note)
    return opened


def _tell_owner(authenticator: Authenticator, key: str) -> None:
    """Record that somebody came with a key of an owner's that is revoked or over."""
    found = authenticator.database.first(_KNOWN, digest=digest(key)) if well_formed(key) else None
    if found is not None and found.role == "owner":
        actor = acts.Actor("owner", found.principal_id, found.id)
        authenticator.database.run(
            lambda session: acts.record_few(session, found.principal_id, "sign-in.refused", actor=actor)
        )


def find(authenticator: Authenticator, session_id: str) -> OpenSession | None:
    """The session of this id; None once it has ended."""
    with authenticator.database.read() as session:
        found = session.execute(
            select(SignIn, ApiKey.id, ApiKey.expires_at, ApiKey.through)
            .outerjoin(ApiKey, and_(ApiKey.id == SignIn.key, IS_GOOD))
            .outerjoin(Person, Person.subject == SignIn.person)
            .where(
                SignIn.digest == _digest(session_id),
                SignIn.expires_at > bindparam("now"),
                Person.left_at.is_(None),
            ),
            {"now": now()},
        ).one_or_none()
    if found is None:
        return None
    signed_in, key_id, key_ends, through = found
    principal = Principal(signed_in.role, signed_in.principal_id)  # pyright: ignore[reportArgumentType]
    if signed_in.key == _TOKEN:
        good, until = authenticator.tokens is not None, signed_in.expires_at
    else:
        good = signed_in.key == (authenticator.admin_mark if principal.role == "admin" else key_id)
        until = key_ends
    # With the key, so that a key which is issued on a page ends with the one that opened the session.
    scopes = frozenset(signed_in.scopes.split())
    credential = Credential(principal, scopes, key_id, until, signed_in.person, through)
    return OpenSession(session_id, credential) if good else None


def sign_out(session: Session, session_id: str) -> None:
    """End a session at once."""
    session.execute(delete(SignIn).where(SignIn.digest == _digest(session_id)))


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()

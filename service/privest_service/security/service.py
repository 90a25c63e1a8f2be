"""Analysts and keys: made, rotated, revoked, recognised."""

import secrets
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from privest_service.database import now
from privest_service.database.tables import new_id
from privest_service.owners.models import Owner
from privest_service.problems import NotFound
from privest_service.security.keys import Role, digest, new_key, well_formed
from privest_service.security.models import Analyst, ApiKey
from privest_service.security.principals import Principal
from privest_service.security.tokens import Told
from privest_service.services import Services


def create_analyst(session: Session, name: str) -> tuple[Analyst, str]:
    """A new analyst and its first key."""
    analyst = Analyst(id=new_id("anl"), name=name)
    session.add(analyst)
    return analyst, issue_key(session, "analyst", analyst.id)[1]


def issue_key(session: Session, role: Role, principal_id: str) -> tuple[ApiKey, str]:
    """One more key of a principal: its record, and the key itself for the only time."""
    key = new_key(role)
    record = ApiKey(id=new_id("key"), role=role, principal_id=principal_id, digest=digest(key))
    session.add(record)
    return record, key


def revoke_key(session: Session, principal_id: str, key_id: str) -> None:
    """Make a key useless from the next request on.

    Raises:
        NotFound: the principal has no such key.
    """
    revoked = session.scalar(
        update(ApiKey)
        .where(ApiKey.id == key_id, ApiKey.principal_id == principal_id)
        .values(revoked_at=now())
        .returning(ApiKey.id)
    )
    if revoked is None:
        raise NotFound


def revoke_all(session: Session) -> None:
    """Make every key useless."""
    session.execute(update(ApiKey).where(ApiKey.revoked_at.is_(None)).values(revoked_at=now()))


def require_analyst(session: Session, analyst_id: str) -> Analyst:
    """The analyst.

    Raises:
        NotFound: there is none with this id.
    """
    if analyst := session.get(Analyst, analyst_id):
        return analyst
    raise NotFound


@dataclass(frozen=True)
class Credential:
    """Who holds a key or a token.

    Attributes:
        principal: whose it is.
        key_id: of a key; the administrator's has none, and a token neither.
        until: when a token ends.
    """

    principal: Principal
    key_id: str | None = None
    until: datetime | None = None


def identify(services: Services, given: str) -> Credential | None:
    """Whose key or token this is; None where it opens nothing.

    Raises:
        Unavailable: it is a token, and the platform's keys are not to be had.
    """
    admin_key = services.settings.admin_key.get_secret_value()
    if secrets.compare_digest(given.encode(), admin_key.encode()):
        return Credential(Principal("admin", "admin"))
    if services.settings.tokens and given.count(".") == 2:  # of keys there is one
        told = services.settings.tokens.read(given)
        return _of_token(services, told) if told else None
    if not well_formed(given):
        return None
    with services.database.read() as session:
        found = session.execute(
            select(ApiKey.role, ApiKey.principal_id, ApiKey.id).where(
                ApiKey.digest == digest(given), ApiKey.revoked_at.is_(None)
            )
        ).one_or_none()
    return Credential(Principal(found.role, found.principal_id), found.id) if found else None


def _of_token(services: Services, told: Told) -> Credential | None:
    """The owner or analyst of whom a token tells, if there is one."""
    roles: tuple[tuple[Role, type[Owner | Analyst]], ...] = (("owner", Owner), ("analyst", Analyst))
    with services.database.read() as session:
        for role, table in roles:
            if session.get(table, told.principal_id):
                return Credential(Principal(role, told.principal_id), until=told.until)
    return None

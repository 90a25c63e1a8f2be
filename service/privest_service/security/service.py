"""Analysts and keys: made, rotated, revoked, found."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from pydantic import JsonValue
from sqlalchemy import and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.database import Moment, now
from privest_service.database.tables import behind, cursor_at, new_id
from privest_service.problems import Fault, Invalid, NotFound, Unauthenticated
from privest_service.security.authentication import IS_GOOD
from privest_service.security.keys import SCOPES, Role, as_text, digest, new_key
from privest_service.security.models import Analyst, ApiKey, Owner
from privest_service.security.people import is_here
from privest_service.security.principals import AsksFor, Credential

_REVOKE = (
    update(ApiKey)
    .values(revoked_at=func.coalesce(ApiKey.revoked_at, bindparam("now", type_=Moment)))
    .returning(ApiKey.id, ApiKey.role, ApiKey.principal_id, ApiKey.revoked_at)
    .execution_options(synchronize_session=False)
)
"""Revokes keys. Keys that were revoked before keep their moment of revocation."""

_AT_ONCE = 500
"""Keys whose own are looked for in one statement."""


def create_analyst(session: Session, name: str, subject: str | None = None) -> tuple[Analyst, str]:
    """A new analyst and its first key; with a subject it is that person's, before the first token comes.

    Raises:
        Invalid: this person has an analyst, or has left.
    """
    analyst = Analyst(id=new_id("anl"), name=name, subject=subject)
    if subject is not None:
        if session.scalar(select(Analyst.id).where(Analyst.subject == subject)):
            raise Invalid(faults=[Fault(location="subject", rule="is that of another analyst")])
        if not is_here(session, subject):
            raise Invalid(faults=[Fault(location="subject", rule="is that of a person who has left")])
    session.add(analyst)
    session.flush()
    told = {"name": name} if subject is None else {"name": name, "person": subject}
    acts.record(session, None, "analyst.created", subject=analyst.id, details=told)
    return analyst, issue_key(session, "analyst", analyst.id)[1]


def issue_key(
    session: Session,
    role: Role,
    principal_id: str,
    scopes: Iterable[str] = SCOPES,
    expires_at: datetime | None = None,
    issuer: Credential | None = None,
    asks_for: AsksFor | None = None,
) -> tuple[ApiKey, str]:
    """Issue a key to a principal. Return its record, and the key itself for the only time.

    Raises:
        Unauthenticated: the key that issues it was revoked, or has ended, since the request came; or the
            person who issues it has left.
        Invalid: it would be of a person who has left.
    """
    issued_by = issuer and issuer.key_id
    if issuer is not None and not is_here(session, issuer.person):
        raise Unauthenticated(headers={"WWW-Authenticate": "Bearer"})
    # A key that an administrator issues to somebody else is not the administrator's own.
    own = issuer if issuer is not None and issuer.principal.id == principal_id else None
    holder = session.get(Analyst, principal_id) if role == "analyst" else None
    if holder is not None and not is_here(session, holder.subject):
        raise Invalid("This analyst is of a person who has left.")
    if issued_by is not None:
        # Held until the end of the transaction: whoever revokes the issuer meanwhile finds the new key.
        good = select(ApiKey.id).where(ApiKey.id == issued_by, IS_GOOD).with_for_update()
        if session.scalar(good, {"now": now()}) is None:
            raise Unauthenticated(headers={"WWW-Authenticate": "Bearer"})
    key = new_key(role)
    record = ApiKey(
        id=new_id("key"),
        role=role,
        principal_id=principal_id,
        digest=digest(key),
        scopes=as_text(scopes),
        expires_at=expires_at,
        issued_by=issued_by,
        person=own and own.person,
        through=own and own.through,
        client=asks_for and asks_for.client,
        client_seconds=asks_for and asks_for.seconds,
    )
    session.add(record)
    session.flush()
    details: dict[str, JsonValue] = {
        "key": record.id,
        "scopes": record.scopes,
        "expires_at": expires_at and expires_at.isoformat(timespec="seconds"),
        "issued_by": issued_by,
    }
    if asks_for is not None:
        details |= {"asks_for": asks_for.client, "asks_for_seconds": asks_for.seconds}
    acts.record(session, _chain(role, principal_id), "key.issued", subject=principal_id, details=details)
    return record, key


def _chain(role: str, principal_id: str) -> str | None:
    """The owner in whose chain an act on a key stands; None for the service's."""
    return principal_id if role == "owner" else None


def rotate(session: Session, new: ApiKey) -> None:
    """End the key that issued this one; the other keys that it issued go on under the new one."""
    former = new.issued_by
    session.execute(
        update(ApiKey).where(ApiKey.issued_by == former, ApiKey.id != new.id).values(issued_by=new.id)
    )
    session.execute(update(ApiKey).where(ApiKey.id == former).values(revoked_at=now()))
    holder, details = new.principal_id, {"key": former, "replaced_by": new.id}
    acts.record(session, _chain(new.role, holder), "key.revoked", subject=holder, details=details)


def named(
    session: Session, role: Role, *, limit: int, cursor: str = ""
) -> tuple[Sequence[Owner | Analyst], str | None]:
    """A page of all owners or analysts, newest first, and the cursor of those that follow."""
    table: type[Owner | Analyst] = Owner if role == "owner" else Analyst
    theirs = select(table)
    if cursor:
        theirs = theirs.where(behind(cursor, table.created_at, table.id))
    found = session.scalars(theirs.order_by(table.created_at.desc(), table.id).limit(limit + 1)).all()
    listed = found[:limit]
    return listed, cursor_at(listed[-1].created_at, listed[-1].id) if found[limit:] else None


def keys_of(
    session: Session, principal_id: str, *, limit: int, before: str | None = None
) -> tuple[Sequence[ApiKey], str | None]:
    """A page of the keys of a principal, newest first, and the cursor of the next page if there is one.

    The cursor is the id of the last key of the page before.

    Raises:
        Invalid: the cursor is no key of this principal.
    """
    keys = select(ApiKey).where(ApiKey.principal_id == principal_id)
    if before is not None:
        last = session.scalar(keys.where(ApiKey.id == before))
        if last is None:
            raise Invalid("The cursor must be `next` of an earlier page of these keys.")
        keys = keys.where(
            or_(
                ApiKey.created_at < last.created_at,
                and_(ApiKey.created_at == last.created_at, ApiKey.id < last.id),
            )
        )
    found = session.scalars(keys.order_by(ApiKey.created_at.desc(), ApiKey.id.desc()).limit(limit + 1)).all()
    return found[:limit], found[limit - 1].id if len(found) > limit else None


def revoke_key(session: Session, principal_id: str, key_id: str) -> None:
    """Make a key useless from the next request on, and every key that it issued, and so on.

    Raises:
        NotFound: the principal has no such key.
    """
    moment = {"now": now()}
    own = _REVOKE.where(ApiKey.id == key_id, ApiKey.principal_id == principal_id)
    found = list(session.execute(own, moment))
    if not found:
        raise NotFound
    # Issuing holds the issuer's row: all that a key ever issued are there to be seen once it is revoked.
    while found:
        some, found = found[:_AT_ONCE], found[_AT_ONCE:]
        for key, role, holder, revoked_at in some:
            if revoked_at == moment["now"]:  # others were revoked before
                details = {"key": key} if key == key_id else {"key": key, "with": key_id}
                acts.record(session, _chain(role, holder), "key.revoked", subject=holder, details=details)
        found += session.execute(_REVOKE.where(ApiKey.issued_by.in_([key for key, *_ in some])), moment)


def revoke_all(session: Session) -> None:
    """Make every key useless."""
    session.execute(update(ApiKey).where(ApiKey.revoked_at.is_(None)).values(revoked_at=now()))
    acts.record(session, None, "ledger.restored", details={"keys": "all revoked"})


def require_owner(session: Session, owner_id: str) -> Owner:
    """The owner. Raises NotFound: there is none with this id."""
    if owner := session.get(Owner, owner_id):
        return owner
    raise NotFound


def require_analyst(session: Session, analyst_id: str) -> Analyst:
    """The analyst. Raises NotFound: there is none with this id."""
    if analyst := session.get(Analyst, analyst_id):
        return analyst
    raise NotFound

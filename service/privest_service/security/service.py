"""Analysts and keys: made, rotated, revoked, recognised."""

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from privest_service.database import Moment, now
from privest_service.database.tables import new_id
from privest_service.problems import Invalid, NotFound, Unauthenticated
from privest_service.security.keys import SCOPES, Role, as_text, digest, new_key, well_formed
from privest_service.security.models import Analyst, ApiKey, Owner
from privest_service.security.principals import Credential, Principal
from privest_service.security.tokens import Told
from privest_service.services import Services

IS_GOOD = ApiKey.revoked_at.is_(None) & or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > bindparam("now"))
"""Of a key: that it was not revoked and has not ended, `now`."""

_BY_DIGEST = select(ApiKey.role, ApiKey.principal_id, ApiKey.scopes, ApiKey.id, ApiKey.expires_at).where(
    ApiKey.digest == bindparam("digest"), IS_GOOD
)

_REVOKE = (
    update(ApiKey)
    .values(revoked_at=func.coalesce(ApiKey.revoked_at, bindparam("now", type_=Moment)))
    .returning(ApiKey.id)
    .execution_options(synchronize_session=False)
)
"""Revokes keys; those that were revoked keep the moment."""

_AT_ONCE = 500
"""Keys whose own are looked for in one statement."""

_IS_GOOD_YET = select(ApiKey.id).where(ApiKey.id == bindparam("key"), IS_GOOD)


def create_analyst(session: Session, name: str) -> tuple[Analyst, str]:
    """A new analyst and its first key."""
    analyst = Analyst(id=new_id("anl"), name=name)
    session.add(analyst)
    return analyst, issue_key(session, "analyst", analyst.id)[1]


def issue_key(
    session: Session,
    role: Role,
    principal_id: str,
    scopes: Iterable[str] = SCOPES,
    expires_at: datetime | None = None,
    issued_by: str | None = None,
) -> tuple[ApiKey, str]:
    """One more key of a principal: its record, and the key itself for the only time.

    Raises:
        Unauthenticated: the key that issues it was revoked, or has ended, since the request came.
    """
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
    )
    session.add(record)
    session.flush()
    return record, key


def rotate(session: Session, new: ApiKey) -> None:
    """End the key that issued this one; the other keys that it issued go on under the new one."""
    former = new.issued_by
    session.execute(
        update(ApiKey).where(ApiKey.issued_by == former, ApiKey.id != new.id).values(issued_by=new.id)
    )
    session.execute(update(ApiKey).where(ApiKey.id == former).values(revoked_at=now()))


def keys_of(
    session: Session, principal_id: str, *, limit: int, before: str | None = None
) -> tuple[Sequence[ApiKey], str | None]:
    """A page of the keys of a principal, newest first, and the cursor of the next page if there is one.

    Args:
        session: of the caller's transaction.
        principal_id: whose keys.
        limit: of the page.
        before: the cursor, which is the id of the last key of the page before.

    Raises:
        Invalid: the cursor is no key of this principal.
    """
    keys = select(ApiKey).where(ApiKey.principal_id == principal_id)
    if before is not None:
        last = session.scalar(keys.where(ApiKey.id == before))
        if last is None:
            raise Invalid("the cursor is not `next` of a page of these keys")
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
    found = list(session.scalars(own, moment))
    if not found:
        raise NotFound
    # Issuing holds the issuer's row: all that a key ever issued are there to be seen once it is revoked.
    while found:
        some, found = found[:_AT_ONCE], found[_AT_ONCE:]
        found += session.scalars(_REVOKE.where(ApiKey.issued_by.in_(some)), moment)


def revoke_all(session: Session) -> None:
    """Make every key useless."""
    session.execute(update(ApiKey).where(ApiKey.revoked_at.is_(None)).values(revoked_at=now()))


def require_owner(session: Session, owner_id: str) -> Owner:
    """The owner.

    Raises:
        NotFound: there is none with this id.
    """
    if owner := session.get(Owner, owner_id):
        return owner
    raise NotFound


def require_analyst(session: Session, analyst_id: str) -> Analyst:
    """The analyst.

    Raises:
        NotFound: there is none with this id.
    """
    if analyst := session.get(Analyst, analyst_id):
        return analyst
    raise NotFound


def identify(services: Services, given: str, address: str) -> Credential | None:
    """Whose key or token this is; None where it opens nothing.

    Raises:
        TooManyRequests: too many from this address opened nothing.
        Unavailable: it is a token, and the platform's keys are not to be had.
    """
    # Nobody guesses a key of ours or a signature, so none is refused for what others do at its address.
    guess = not well_formed(given) and not _is_token(services, given)
    if guess:
        services.rates.check_failures(address)
    found = _holder(services, given)
    if guess and found is None:
        services.rates.guessed_wrong(address)
    return found


def is_good_yet(services: Services, credential: Credential) -> bool:
    """Whether what was good when a request came is so still: some are answered long after."""
    if credential.key_id is not None:
        return services.database.first(_IS_GOOD_YET, key=credential.key_id, now=now()) is not None
    return credential.until is None or credential.until > now()


def _is_token(services: Services, given: str) -> bool:
    return services.settings.tokens is not None and given.count(".") == 2  # in keys there is one


def _holder(services: Services, given: str) -> Credential | None:
    admin_key = services.settings.admin_key.get_secret_value()
    if secrets.compare_digest(given.encode(), admin_key.encode()):
        return Credential(Principal("admin", "admin"))
    if services.settings.tokens and _is_token(services, given):
        told = services.settings.tokens.read(given)
        return _of_token(services, told) if told else None
    if not well_formed(given):
        return None
    found = services.database.first(_BY_DIGEST, digest=digest(given), now=now())
    if found is None:
        return None
    principal = Principal(found.role, found.principal_id)  # pyright: ignore[reportArgumentType]
    return Credential(principal, frozenset(found.scopes.split()), found.id, found.expires_at)


def _of_token(services: Services, told: Told) -> Credential | None:
    """The owner or analyst of whom a token tells, if there is one."""
    roles: tuple[tuple[Role, type[Owner | Analyst]], ...] = (("owner", Owner), ("analyst", Analyst))
    with services.database.read() as session:
        for role, table in roles:
            if session.get(table, told.principal_id):
                principal = Principal(role, told.principal_id)
                return Credential(principal, told.scopes, until=told.until)
    return None

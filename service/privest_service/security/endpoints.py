"""Analysts and API keys."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy.orm import Session

from privest_service.inputs import Id
from privest_service.problems import Invalid, NotFound, documented
from privest_service.security import service
from privest_service.security.admission import Revoking, Route
from privest_service.security.dependencies import DatabaseDep, IssueDep, ManageDep, ReadDep
from privest_service.security.keys import Role
from privest_service.security.models import ApiKey
from privest_service.security.principals import Credential, Principal
from privest_service.security.schemas import (
    CreatedAnalyst,
    IssuedKey,
    KeyList,
    KeyView,
    NewAnalyst,
    NewKey,
    PrincipalView,
)
from privest_service.security.service import require_owner

router = APIRouter(prefix="/v1", tags=["principals"], route_class=Route)
revoking = APIRouter(route_class=Revoking)


@router.get("/me", responses=documented())
def me(caller: ReadDep) -> PrincipalView:
    """The role and the id of the caller."""
    return PrincipalView(role=caller.role, id=caller.id)


@router.post("/analysts", status_code=201, responses=documented())
def create_analyst(body: NewAnalyst, caller: ManageDep, database: DatabaseDep) -> CreatedAnalyst:
    """Make an analyst."""
    caller.must_be("admin")
    with database.write() as session:
        analyst, key = service.create_analyst(session, body.name)
        return CreatedAnalyst(id=analyst.id, name=analyst.name, key=key)


@router.post("/owners/{owner_id}/keys", status_code=201, responses=documented(NotFound))
def issue_owner_key(
    owner_id: str, issuer: IssueDep, database: DatabaseDep, body: NewKey | None = None
) -> IssuedKey:
    """One more key for an owner, for a part of its work, or in place of the one that issues it.

    It can be for no more, and for no longer, than the key or token that issues it, and is revoked with it.
    """
    issuer.principal.must_be_owner(owner_id)

    def issue(session: Session) -> IssuedKey:
        require_owner(session, owner_id)
        return _issued(session, "owner", owner_id, issuer, body)

    return database.run(issue)


@router.post("/analysts/{analyst_id}/keys", status_code=201, responses=documented(NotFound))
def issue_analyst_key(
    analyst_id: str, issuer: IssueDep, database: DatabaseDep, body: NewKey | None = None
) -> IssuedKey:
    """One more key for an analyst, likewise."""
    _must_be_analyst(issuer.principal, analyst_id)

    def issue(session: Session) -> IssuedKey:
        service.require_analyst(session, analyst_id)
        return _issued(session, "analyst", analyst_id, issuer, body)

    return database.run(issue)


def _issued(
    session: Session, role: Role, principal_id: str, issuer: Credential, body: NewKey | None
) -> IssuedKey:
    asked = body or NewKey()
    if asked.rotate and issuer.key_id is None:
        raise Invalid("only an issued key can be rotated, by itself")
    scopes, end = issuer.pass_on(asked.scopes, asked.lifetime)
    record, key = service.issue_key(session, role, principal_id, scopes, end, issuer.key_id)
    if asked.rotate:
        service.rotate(session, record)
    return IssuedKey(key=key, **_told(record))


_Limit = Annotated[int, Query(ge=1, le=1000)]
_Cursor = Annotated[Id | None, Query(description="`next` of the page before")]


@router.get("/owners/{owner_id}/keys", responses=documented(NotFound))
def list_owner_keys(
    owner_id: str, caller: ReadDep, database: DatabaseDep, limit: _Limit = 1000, cursor: _Cursor = None
) -> KeyList:
    """The keys of an owner: what they are for and until when, never the keys themselves."""
    caller.must_be_owner(owner_id)
    with database.read() as session:
        require_owner(session, owner_id)
        return _listed(session, owner_id, limit, cursor)


@router.get("/analysts/{analyst_id}/keys", responses=documented(NotFound))
def list_analyst_keys(
    analyst_id: str, caller: ReadDep, database: DatabaseDep, limit: _Limit = 1000, cursor: _Cursor = None
) -> KeyList:
    """The keys of an analyst."""
    _must_be_analyst(caller, analyst_id)
    with database.read() as session:
        service.require_analyst(session, analyst_id)
        return _listed(session, analyst_id, limit, cursor)


def _listed(session: Session, principal_id: str, limit: int, cursor: str | None) -> KeyList:
    found, following = service.keys_of(session, principal_id, limit=limit, before=cursor)
    return KeyList(
        keys=[KeyView(created_at=key.created_at, revoked_at=key.revoked_at, **_told(key)) for key in found],
        next=following,
    )


def _told(key: ApiKey) -> dict[str, Any]:
    return {"id": key.id, "scopes": key.scopes.split(), "expires_at": key.expires_at}


@revoking.delete("/owners/{owner_id}/keys/{key_id}", status_code=204, responses=documented(NotFound))
def revoke_owner_key(owner_id: str, key_id: str, caller: ManageDep, database: DatabaseDep) -> Response:
    """Revoke a key of an owner at once, with every key that it issued. Any key may revoke itself."""
    caller.must_be_owner(owner_id)
    database.run(lambda session: service.revoke_key(session, owner_id, key_id))
    return Response(status_code=204)


@revoking.delete("/analysts/{analyst_id}/keys/{key_id}", status_code=204, responses=documented(NotFound))
def revoke_analyst_key(analyst_id: str, key_id: str, caller: ManageDep, database: DatabaseDep) -> Response:
    """Revoke a key of an analyst at once, with every key that it issued. Any key may revoke itself."""
    _must_be_analyst(caller, analyst_id)
    database.run(lambda session: service.revoke_key(session, analyst_id, key_id))
    return Response(status_code=204)


router.include_router(revoking)


def _must_be_analyst(caller: Principal, analyst_id: str) -> None:
    """Refuse everyone but this analyst and the administrator."""
    caller.must_be("admin", "analyst")
    if caller.role == "analyst" and caller.id != analyst_id:
        raise NotFound

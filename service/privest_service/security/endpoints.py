"""Analysts and API keys."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from sqlalchemy.orm import Session

from privest_service.database.tables import CURSOR
from privest_service.inputs import Id
from privest_service.problems import Forbidden, Invalid, NotFound, documented
from privest_service.security import service
from privest_service.security.admission import Revoking, Route
from privest_service.security.dependencies import DatabaseDep, IssueDep, ManageDep, ReadDep
from privest_service.security.keys import Role
from privest_service.security.models import Analyst, ApiKey, Owner
from privest_service.security.principals import AsksFor, Credential
from privest_service.security.schemas import (
    AnalystList,
    AnalystView,
    CreatedAnalyst,
    IssuedKey,
    KeyList,
    KeyView,
    NamedView,
    NewAnalyst,
    NewKey,
    OnBehalfOfView,
    OwnerList,
    PrincipalView,
)

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
        analyst, key = service.create_analyst(session, body.name, body.subject)
        return CreatedAnalyst(id=analyst.id, name=analyst.name, key=key)


def issued_key(
    session: Session, role: Role, principal_id: str, issuer: Credential, body: NewKey | None
) -> IssuedKey:
    """Issue a key as far as the issuer may.

    Raises:
        Forbidden: it would be for more, or end later, than the key that issues it.
        Invalid: it would take the place of a key that was not issued.
        Unauthenticated: the issuer has ended meanwhile.
    """
    asked = body or NewKey()
    if asked.rotate and (issuer.key_id is None or issuer.lent):
        raise Invalid(
            "Only an issued key can be rotated. Send this request with the key that is to be replaced."
        )
    if asked.on_behalf_of and (issuer.principal.role, role) != ("admin", "analyst"):
        raise Forbidden("Only the administrator issues a key that asks for others, and to an analyst.")
    scopes, end = issuer.pass_on(asked.scopes, asked.lifetime)
    people = asked.on_behalf_of
    asks_for = (
        AsksFor(people.client, people.key_seconds) if people else issuer.asks_for if asked.rotate else None
    )
    record, key = service.issue_key(session, role, principal_id, scopes, end, issuer, asks_for)
    if asked.rotate:
        service.rotate(session, record)
    return IssuedKey(key=key, **_told(record))


def _listed(session: Session, principal_id: str, limit: int, cursor: str | None) -> KeyList:
    found, following = service.keys_of(session, principal_id, limit=limit, before=cursor)
    return KeyList(
        keys=[
            KeyView(
                created_at=key.created_at,
                revoked_at=key.revoked_at,
                person=key.person,
                through=key.through,
                on_behalf_of=asked_for(key),
                **_told(key),
            )
            for key in found
        ],
        next=following,
    )


def asked_for(key: ApiKey) -> OnBehalfOfView | None:
    """The people for whom a key may ask."""
    if key.client is None:
        return None
    return OnBehalfOfView(client=key.client, key_seconds=key.client_seconds or 0)


def _told(key: ApiKey) -> dict[str, Any]:
    return {"id": key.id, "scopes": key.scopes.split(), "expires_at": key.expires_at}


def _key_routes(role: Role) -> None:
    """Add the calls that issue and list the keys of an owner or an analyst."""
    path = f"/{role}s/{{{role}_id}}/keys"
    require: Any = service.require_owner if role == "owner" else service.require_analyst
    holder: Any = Annotated[str, Path(alias=f"{role}_id")]

    @router.post(
        path,
        status_code=201,
        name=f"issue_{role}_key",
        description=f"Issue one more key of this {role}. It can have no more scopes, and end no later, than "
        "the key or token that issues it, and is revoked with it.",
        responses=documented(NotFound),
    )
    def issue_key(
        holder_id: holder,  # pyright: ignore[reportInvalidTypeForm]
        issuer: IssueDep,
        database: DatabaseDep,
        body: NewKey | None = None,
    ) -> IssuedKey:
        issuer.principal.must_be_holder(role, holder_id)

        def issue(session: Session) -> IssuedKey:
            require(session, holder_id)
            return issued_key(session, role, holder_id, issuer, body)

        return database.run(issue)

    @router.get(
        path,
        name=f"list_{role}_keys",
        description=f"What the keys of this {role} are for and when they end, never the keys themselves.",
        responses=documented(NotFound),
    )
    def list_keys(
        holder_id: holder,  # pyright: ignore[reportInvalidTypeForm]
        caller: ReadDep,
        database: DatabaseDep,
        limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
        cursor: Annotated[Id | None, Query(description="`next` of the page before")] = None,
    ) -> KeyList:
        caller.must_be_holder(role, holder_id)
        with database.read() as session:
            require(session, holder_id)
            return _listed(session, holder_id, limit, cursor)


def _view(found: Owner | Analyst) -> NamedView:
    told = {"id": found.id, "name": found.name, "created_at": found.created_at}
    return AnalystView(**told, subject=found.subject) if isinstance(found, Analyst) else NamedView(**told)


def _list_route(role: Role) -> None:
    """Add the call that lists all owners or analysts."""
    page: Any = OwnerList if role == "owner" else AnalystList

    @router.get(
        f"/{role}s",
        response_model=page,
        name=f"list_{role}s",
        description=f"All {role}s, newest first, in pages, for the administrator.",
        responses=documented(),
    )
    def list_all(
        caller: ReadDep,
        database: DatabaseDep,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Annotated[str, Query(pattern=f"^({CURSOR})?$", description="`next` of the page before")] = "",
    ) -> Any:
        caller.must_be("admin")
        with database.read() as session:
            found, further = service.named(session, role, limit=limit, cursor=cursor)
            views = [_view(each) for each in found]
            return page(**{f"{role}s": views, "next": further})


def _revoking_route(role: Role) -> None:
    """Add the call that revokes a key of an owner or an analyst."""
    holder: Any = Annotated[str, Path(alias=f"{role}_id")]

    @revoking.delete(
        f"/{role}s/{{{role}_id}}/keys/{{key_id}}",
        status_code=204,
        name=f"revoke_{role}_key",
        description=f"Revoke a key of this {role} at once, with every key that it issued. Any key may revoke "
        "itself.",
        responses=documented(NotFound),
    )
    def revoke_key(
        holder_id: holder,  # pyright: ignore[reportInvalidTypeForm]
        key_id: str,
        caller: ManageDep,
        database: DatabaseDep,
    ) -> Response:
        caller.must_be_holder(role, holder_id)
        database.run(lambda session: service.revoke_key(session, holder_id, key_id))
        return Response(status_code=204)


for _role in ("owner", "analyst"):
    _list_route(_role)
    _key_routes(_role)
    _revoking_route(_role)
router.include_router(revoking)

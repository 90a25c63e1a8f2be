"""Analysts and API keys."""

from fastapi import APIRouter, Response

from privest_service.owners.service import require_owner
from privest_service.problems import Forbidden, NotFound, documented
from privest_service.security import service
from privest_service.security.dependencies import CallerDep, ServicesDep
from privest_service.security.schemas import CreatedAnalyst, IssuedKey, NewAnalyst, PrincipalView

router = APIRouter(prefix="/v1", tags=["principals"])


@router.get("/me", responses=documented())
def me(caller: CallerDep) -> PrincipalView:
    """Whose key this is."""
    return PrincipalView(role=caller.role, id=caller.id)


@router.post("/analysts", status_code=201, responses=documented(Forbidden))
def create_analyst(body: NewAnalyst, caller: CallerDep, services: ServicesDep) -> CreatedAnalyst:
    """Make an analyst."""
    caller.must_be("admin")
    with services.database.write() as session:
        analyst, key = service.create_analyst(session, body.name)
        return CreatedAnalyst(id=analyst.id, name=analyst.name, key=key)


@router.post("/owners/{owner_id}/keys", status_code=201, responses=documented(Forbidden, NotFound))
def issue_owner_key(owner_id: str, caller: CallerDep, services: ServicesDep) -> IssuedKey:
    """One more key for an owner, for rotation: issue, change over, revoke the old one."""
    caller.must_be_owner(owner_id)
    with services.database.write() as session:
        require_owner(session, owner_id)
        record, key = service.issue_key(session, "owner", owner_id)
        return IssuedKey(id=record.id, key=key)


@router.post("/analysts/{analyst_id}/keys", status_code=201, responses=documented(Forbidden, NotFound))
def issue_analyst_key(analyst_id: str, caller: CallerDep, services: ServicesDep) -> IssuedKey:
    """One more key for an analyst."""
    _must_be_analyst(caller, analyst_id)
    with services.database.write() as session:
        service.require_analyst(session, analyst_id)
        record, key = service.issue_key(session, "analyst", analyst_id)
        return IssuedKey(id=record.id, key=key)


@router.delete("/owners/{owner_id}/keys/{key_id}", status_code=204, responses=documented(Forbidden, NotFound))
def revoke_owner_key(owner_id: str, key_id: str, caller: CallerDep, services: ServicesDep) -> Response:
    """Revoke a key of an owner, at once."""
    caller.must_be_owner(owner_id)
    with services.database.write() as session:
        service.revoke_key(session, owner_id, key_id)
    return Response(status_code=204)


@router.delete(
    "/analysts/{analyst_id}/keys/{key_id}", status_code=204, responses=documented(Forbidden, NotFound)
)
def revoke_analyst_key(analyst_id: str, key_id: str, caller: CallerDep, services: ServicesDep) -> Response:
    """Revoke a key of an analyst, at once."""
    _must_be_analyst(caller, analyst_id)
    with services.database.write() as session:
        service.revoke_key(session, analyst_id, key_id)
    return Response(status_code=204)


def _must_be_analyst(caller: CallerDep, analyst_id: str) -> None:
    """Refuse everyone but this analyst and the administrator."""
    caller.must_be("admin", "analyst")
    if caller.role == "analyst" and caller.id != analyst_id:
        raise NotFound

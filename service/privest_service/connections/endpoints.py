"""Connections."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from privest_service.connections import service, sources
from privest_service.connections.schemas import ConnectionList, ConnectionView, NewConnection
from privest_service.inputs import Id
from privest_service.limits import in_thread
from privest_service.problems import Invalid, NotFound, Unavailable, documented
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, ManageDep, ReadDep, SettingsDep, WorkersDep
from privest_service.upload_errors import RefusedUploadError

router = APIRouter(prefix="/v1/connections", tags=["connections"], route_class=Route)


@router.post("", status_code=201, responses=documented(Unavailable))
async def create_connection(
    body: NewConnection, caller: ManageDep, workers: WorkersDep, settings: SettingsDep, database: DatabaseDep
) -> ConnectionView:
    """Name a place from which owners may register datasets, once it is assigned to them.

    What opens it is kept encrypted and shown to nobody.
    """
    caller.must_be("admin")
    try:
        await workers.in_worker("fetch", sources.check, body, str(settings.data_dir.resolve()))
    except RefusedUploadError as refused:
        raise Invalid(faults=refused.faults) from None
    return await in_thread(database.run, lambda session: service.register(session, body, settings.secret))


@router.get("", responses=documented(), response_model_exclude_none=True)
def list_connections(
    caller: ReadDep,
    database: DatabaseDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    cursor: Annotated[Id, Query(description="`next` of the page before")] = "",
) -> ConnectionList:
    """All connections, or those that were assigned to the calling owner, by name, in pages."""
    caller.must_be("admin", "owner")
    with database.read() as session:
        found, further = service.visible(session, caller, limit=limit, after=cursor)
        return ConnectionList(connections=found, next=further)


@router.delete("/{name}", status_code=204, responses=documented(NotFound))
def delete_connection(name: str, caller: ManageDep, database: DatabaseDep) -> Response:
    """Forget a connection; datasets that came through it stay."""
    caller.must_be("admin")
    database.run(lambda session: service.remove(session, name))
    return Response(status_code=204)


@router.put("/{name}/owners/{owner_id}", status_code=204, responses=documented(NotFound))
def assign_connection(name: str, owner_id: str, caller: ManageDep, database: DatabaseDep) -> Response:
    """Let an owner register datasets from a connection."""
    caller.must_be("admin")
    database.run(lambda session: service.assign(session, name, owner_id))
    return Response(status_code=204)


@router.delete("/{name}/owners/{owner_id}", status_code=204, responses=documented(NotFound))
def withdraw_connection(name: str, owner_id: str, caller: ManageDep, database: DatabaseDep) -> Response:
    """Take a connection from an owner, from its next registration on."""
    caller.must_be("admin")
    database.run(lambda session: service.withdraw(session, name, owner_id))
    return Response(status_code=204)

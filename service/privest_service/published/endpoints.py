"""Published answers: read as tables, published, and withdrawn."""

from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from sqlalchemy.orm import Session

from privest_service.problems import GrantRefuses, NameTaken, NotFound, Unavailable, documented
from privest_service.published import service
from privest_service.published.binary import Ending, binary_file
from privest_service.published.files import MEDIA, as_csv, as_floats, records
from privest_service.published.schemas import (
    NAME,
    NewPublication,
    PublicationList,
    PublicationView,
    PublishedTable,
    number_view,
    told,
)
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, ManageDep, ReadDep, WorkersDep

router = APIRouter(prefix="/v1/published", tags=["published"], route_class=Route)

PublishedName = Annotated[
    str,
    Path(pattern=f"^{NAME}$", description="small letters, digits and `_`, a letter first; 63 at most"),
]


@router.get("", responses=documented())
def list_published(
    caller: ReadDep,
    database: DatabaseDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str, Query(pattern=f"^({NAME})?$", description="`next` of the page before")] = "",
) -> PublicationList:
    """What the caller published or may read, and what is published of its data, by name, in pages."""
    with database.read() as session:
        found = service.listed(session, caller, limit=limit + 1, after=cursor)
    shown = found[:limit]
    return PublicationList(
        published=[PublicationView.model_validate(told(each)) for each in shown],
        next=shown[-1].publication.name if found[limit:] else None,
    )


@router.get(
    "/{name}.{ending}",
    response_class=Response,
    responses=documented(NotFound, Unavailable)
    | {
        200: {"content": {media: {} for media in MEDIA.values()}},
        304: {"description": "not published anew"},
    },
)
def read_published_file(
    name: PublishedName,
    ending: Ending,
    request: Request,
    caller: ReadDep,
    database: DatabaseDep,
    workers: WorkersDep,
) -> Response:
    """A published answer as a file: a row for each number. Nothing is charged, however often it is read."""
    with database.read() as session:
        found = service.require(session, caller, name)
        values = service.values(session, found)
    at = f"{name} {found.publication.published_at.isoformat()} {ending}"
    headers = {"ETag": f'"{sha256(at.encode()).hexdigest()[:32]}"'}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    rows = records(found, values)
    if ending == "csv":
        content = as_csv(rows)
    else:
        content = workers.call_worker(caller.id, binary_file, as_floats(rows), ending)
    headers["Content-Disposition"] = f'attachment; filename="{name}.{ending}"'
    return Response(content, media_type=MEDIA[ending], headers=headers)


@router.get("/{name}", responses=documented(NotFound))
def read_published(name: PublishedName, caller: ReadDep, database: DatabaseDep) -> PublishedTable:
    """A published answer. Nothing is charged, however often it is read."""
    with database.read() as session:
        found = service.require(session, caller, name)
        values = [number_view(each) for each in service.values(session, found)]
    return PublishedTable.model_validate({**told(found), "values": values})


@router.put("/{name}", responses=documented(NotFound, GrantRefuses, NameTaken))
def publish_answer(
    name: PublishedName, body: NewPublication, caller: ManageDep, database: DatabaseDep
) -> PublicationView:
    """Publish the answer of the caller's own question under a name, in place of what it stood for before.

    It asks nothing and charges nothing. To refresh it, ask the question again, with `reuse` false for fresh
    noise, which is charged, and publish the job that answers it.
    """
    caller.must_be("owner", "analyst")

    def publish(session: Session) -> PublicationView:
        found = service.publish(session, caller, name, body.job, body.readers, in_sql=body.sql)
        return PublicationView.model_validate(told(found))

    return database.run(publish)


@router.delete("/{name}", status_code=204, responses=documented(NotFound))
def withdraw_published(name: PublishedName, caller: ManageDep, database: DatabaseDep) -> Response:
    """Withdraw a published answer at once.

    Withdrawn by an owner of its data, it is not published again.
    """
    caller.must_be("owner", "analyst")
    database.run(lambda session: service.withdraw(session, caller, name))
    return Response(status_code=204)

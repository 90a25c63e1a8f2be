"""A ledger to keep: all of it as a file, and where its chains end."""

from collections.abc import AsyncIterator
from functools import partial
from tempfile import TemporaryFile
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse
from starlette.background import BackgroundTask

from privest_service.database import Database
from privest_service.exports.export import Form, heads_of, write_out
from privest_service.exports.lines import Heads
from privest_service.limits import EXPORTS
from privest_service.problems import NotFound, documented
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, LimiterDep, ReadDep
from privest_service.security.service import require_owner

router = APIRouter(prefix="/v1/owners/{owner_id}", tags=["ledger"], route_class=Route)


@router.get("/ledger/heads", responses=documented(NotFound))
def read_heads(owner_id: str, caller: ReadDep, database: DatabaseDep) -> Heads:
    """The signed ends of this owner's chains. Keep them, to see later that nothing was cut."""
    caller.must_be_owner(owner_id)
    with database.read() as session:
        return heads_of(session, owner_id)


async def _with_room(caller: ReadDep, limiter: LimiterDep) -> AsyncIterator[None]:
    """A place among exports, until all of one is sent: it is a file until then."""
    with limiter.hold(EXPORTS, caller.id):
        yield


@router.get(
    "/ledger/export",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/jsonl": {"schema": {"type": "string"}}, "text/csv": {}}},
        **documented(NotFound),
    },
)
def export_ledger(
    owner_id: str,
    caller: ReadDep,
    database: DatabaseDep,
    _: Annotated[None, Depends(_with_room)],
    form: Annotated[
        Form,
        Query(alias="format", description="`jsonl` for `privest verify-ledger`, `csv` for entries alone"),
    ] = "jsonl",
) -> StreamingResponse:
    """All accounts, entries, acts and receipts of this owner."""
    caller.must_be_owner(owner_id)
    return exported(database, owner_id, form)


def exported(database: Database, owner_id: str, form: Form) -> StreamingResponse:
    """A ledger as a file."""
    # Written out first: a caller that reads slowly must not hold a connection of the database.
    with database.read(snapshot=True) as session:
        require_owner(session, owner_id)
        file = TemporaryFile()  # noqa: SIM115 - closed once it is sent
        write_out(session, owner_id, file, form)
    file.seek(0)
    kind = "text/csv" if form == "csv" else "application/jsonl"
    disposition = f'attachment; filename="ledger-{owner_id}.{form}"'
    return StreamingResponse(
        iter(partial(file.read, 2**16), b""),
        media_type=kind,
        headers={"Content-Disposition": disposition},
        background=BackgroundTask(file.close),
    )

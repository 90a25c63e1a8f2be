"""The record for those whom it concerns: acts, and a report for an auditor."""

from asyncio import Task, wait
from collections.abc import AsyncIterator
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from privest_service.acts.search import Wanted, find, find_own
from privest_service.database import now
from privest_service.limits import REPORTS, in_thread
from privest_service.problems import NotFound, TooLarge, Unavailable, documented
from privest_service.reports import page, record, sheet
from privest_service.reports.schemas import ActPage, ActQuery, ActView
from privest_service.reports.verifying import Verdict, Verifier
from privest_service.reports.words import named
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, LimiterDep, ReadDep, SettingsDep, WorkersDep
from privest_service.security.models import Owner
from privest_service.security.service import require_owner

router = APIRouter(tags=["acts"], route_class=Route)


@router.get("/v1/acts", responses=documented())
def read_acts(caller: ReadDep, database: DatabaseDep, asked: Annotated[ActQuery, Query()]) -> ActPage:
    """What was done, by whom and why, newest first: an owner reads of its own keys, data and budgets.

    Administrators read what concerns no single owner, analysts what concerns their own keys.
    """
    owner_id = caller.id if caller.role == "owner" else None
    with database.read() as session:
        wanted = Wanted(
            owner_id,
            kind=asked.kind,
            who=asked.actor,
            subject=caller.id if caller.role == "analyst" else "",
            text=asked.text,
            named=[] if caller.role == "analyst" else named(session, owner_id, asked.text),
            since=asked.since,
            until=asked.until,
        )
        look = find_own if caller.role == "analyst" else find
        found = look(session, wanted, limit=asked.limit, before=asked.cursor)
        acts = [ActView.of(act) for act in found.acts]
    if caller.role == "analyst":  # places and hashes are of a chain that is of others, too
        acts = [act.model_copy(update={"seq": 0, "prev": "", "hash": ""}) for act in acts]
    return ActPage(acts=acts, next=None if found.further is None else str(found.further))


Form = Literal["html", "csv"]
"""The form of a report."""

_SILENCE = 10.0
"""Seconds after which a report that is still being made says that it is."""

FORMS = {"html": page, "csv": sheet}

Keys = Annotated[
    list[str],
    Query(
        max_length=20,
        description="earlier signing keys of the service, each with its end: `BASE64=2026-01-31T12:00Z`",
    ),
]


async def _verifier(
    caller: ReadDep, database: DatabaseDep, limiter: LimiterDep, workers: WorkersDep, settings: SettingsDep
) -> AsyncIterator[Verifier]:
    """A verifier, with a place among reports until all of one is sent: it is a file until then."""
    with limiter.hold(REPORTS, caller.id):
        yield Verifier(database, limiter, workers, settings.signer, caller.id)


@router.get(
    "/v1/owners/{owner_id}/report",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/html": {"schema": {"type": "string"}}, "text/csv": {}}},
        **documented(NotFound),
    },
)
async def read_report(
    owner_id: str,
    caller: ReadDep,
    verifying: Annotated[Verifier, Depends(_verifier)],
    form: Annotated[
        Form, Query(alias="format", description="`html` to read and print, `csv` for spreadsheets")
    ] = "html",
    keys: Keys = [],  # noqa: B006 - FastAPI copies it
) -> StreamingResponse:
    """A report for an auditor: all that happened to this owner's budget, and whether the record is intact."""
    caller.must_be_owner(owner_id)
    return await reported(verifying, owner_id, form, keys)


async def reported(verifying: Verifier, owner_id: str, form: Form, keys: list[str]) -> StreamingResponse:
    """A report as a file, which stands alone. It is sent while it is made: a long record takes minutes.

    Raises:
        NotFound: there is no such owner.
        Invalid, TooManyRequests, Unavailable: see `Verifier.begin`.
    """
    made, rest, at = FORMS[form], TemporaryFile(), now()  # noqa: SIM115 - closed once it is sent

    def find(owner_id: str) -> Owner:
        with verifying.database.read() as session:
            return require_owner(session, owner_id)

    def read(session: Session) -> record.Summary:
        found = record.summary(session, owner_id)
        for piece in made.body(found, record.record(session, owner_id)):
            rest.write(piece.encode())
        rest.seek(0)
        return found

    owner = await in_thread(find, owner_id)
    reading, verdict = verifying.begin(owner_id, keys, read)

    async def pieces() -> AsyncIterator[str | bytes]:
        try:
            yield made.beginning(owner, at)
            async for pause in _until(reading, made.PAUSE):
                yield pause
            found = reading.result()
            while piece := rest.read(2**16):
                yield piece
            async for pause in _until(verdict, made.PAUSE):
                yield pause
            for piece in made.end(found, _or_none(verdict)):
                yield piece
        finally:
            verdict.cancel()
            rest.close()

    how = "inline" if form == "html" else "attachment"
    return StreamingResponse(
        pieces(),
        media_type=made.MEDIA_TYPE,
        headers={
            "Content-Disposition": f'{how}; filename="report-{owner_id}-{at.date()}.{form}"',
            "Content-Security-Policy": page.POLICY,
            "X-Content-Type-Options": "nosniff",
        },
    )


async def _until(task: Task[Any], pause: str) -> AsyncIterator[str]:
    """A pause now and then until a task is over: proxies take silence for an end, often after a minute."""
    while not (await wait([task], timeout=_SILENCE))[0]:
        yield pause


def _or_none(verdict: Task[Verdict]) -> Verdict | None:
    """The verdict; None where the worker that verifies came to no end."""
    try:
        return verdict.result()
    except (TooLarge, Unavailable):
        return None

"""A report for an auditor, to print or as a table: for owners of their own budget, else of any."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from privest_service.dashboard.page import Page
from privest_service.dashboard.session_auth import AdminDep, OwnerDep, VisitorDep
from privest_service.limits import REPORTS
from privest_service.reports.endpoints import Form, reported
from privest_service.reports.verifying import Verifier
from privest_service.security.dependencies import DatabaseDep, LimiterDep, SettingsDep, WorkersDep

router = APIRouter(prefix="/dashboard", route_class=Page)


async def _verifier(
    visitor: VisitorDep,
    database: DatabaseDep,
    limiter: LimiterDep,
    workers: WorkersDep,
    settings: SettingsDep,
) -> Verifier:
    """What verifies a ledger for the visitor."""
    return Verifier(database, limiter, workers, settings.signer, visitor.id)


VerifierDep = Annotated[Verifier, Depends(_verifier)]


async def _with_room(verifying: VerifierDep) -> AsyncIterator[Verifier]:
    """A verifier, with a place among reports until all of one is sent: it is a file until then."""
    with verifying.limiter.hold(REPORTS, verifying.who):
        yield verifying


ReportingDep = Annotated[Verifier, Depends(_with_room)]
FormOfIt = Annotated[Form, Query(alias="format")]


@router.get("/report")
async def report(
    visitor: OwnerDep, verifying: ReportingDep, form: FormOfIt = "html", keys: str = ""
) -> StreamingResponse:
    """All that happened to the visitor's budget, and whether the record is intact.

    Earlier keys are parted by blanks.
    """
    return await reported(verifying, visitor.id, form, keys.split())


@router.get("/admin/owners/{owner_id}/report")
async def report_on(owner_id: str, _: AdminDep, verifying: ReportingDep) -> StreamingResponse:
    """All that happened to any owner's budget, for administrators."""
    return await reported(verifying, owner_id, "html", [])

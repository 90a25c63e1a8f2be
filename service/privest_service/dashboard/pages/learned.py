"""Who learned what, and when: one table for everybody who was answered from an owner's budget."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from privest_service.dashboard.page import Page, render
from privest_service.dashboard.page_version import page_version
from privest_service.dashboard.session_auth import OwnerDep
from privest_service.dashboard.what_is_learned import everybody
from privest_service.ledger import service as ledger
from privest_service.reports.shares import analysts_of
from privest_service.reports.who_learned import LATEST, asked, who_learned
from privest_service.security.dependencies import DatabaseDep

router = APIRouter(prefix="/dashboard/learned", route_class=Page)

_PAGE = 100
"""Rows of one page."""


@router.get("")
def read(
    request: Request,
    visitor: OwnerDep,
    database: DatabaseDep,
    page: Annotated[int, Query(ge=0, lt=10**6)] = 0,
) -> Response:
    """A row for each person, data and kind of estimate, those first who asked last."""
    with database.read() as session:
        account = ledger.owner_account(session, visitor.id)
        people = analysts_of(session, visitor.id) | {visitor.id: "you"}
        rows = who_learned(session, account, people, most=_PAGE + 1, offset=page * _PAGE)
        told = asked(session, rows[:_PAGE])
        together, seen = everybody(session, account), page_version(session, visitor.id)
    return render(
        request,
        "who_learned.html",
        seen=seen,
        account=account,
        rows=list(zip(rows[:_PAGE], told, strict=True)),
        latest=LATEST,
        further=page + 1 if len(rows) > _PAGE else None,
        together=together,
    )

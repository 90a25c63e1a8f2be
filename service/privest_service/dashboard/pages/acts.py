"""The record of acts: who did what, when and why, to be searched."""

from datetime import UTC, datetime, time, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field, NaiveDatetime

from privest_service.acts.kinds import KINDS
from privest_service.acts.search import Wanted, find
from privest_service.dashboard.entries import Choice, or_none
from privest_service.dashboard.page import Page, render
from privest_service.dashboard.session_auth import VisitorDep
from privest_service.inputs import checked
from privest_service.reports.words import in_words, named
from privest_service.security.dependencies import DatabaseDep

router = APIRouter(prefix="/dashboard/acts", route_class=Page)

_PAGE = 50
"""Acts on a page."""

Day = Annotated[NaiveDatetime | None, BeforeValidator(or_none)]
"""A day as a form sends it; nothing filled in is none."""


class Search(BaseModel):
    """What acts are looked for; all of it must fit."""

    text: Annotated[str, Field(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    who: Choice = None
    kind: Choice = None
    first: Day = None
    last: Day = None
    before: Annotated[Annotated[int, Field(ge=1, lt=2**63)] | None, BeforeValidator(or_none)] = None

    @property
    def chosen(self) -> dict[str, str]:
        """The chosen filters as query parameters of an address."""
        chosen = self.model_dump(exclude={"before"}, mode="json").items()
        return {
            name: str(value)[:10] if name in ("first", "last") else value for name, value in chosen if value
        }


async def _search(request: Request) -> Search:
    """What is looked for, of the address."""
    return checked(Search.model_validate, dict(request.query_params))


def _utc(day: datetime | None, later: timedelta = timedelta(0)) -> datetime | None:
    """The beginning of a day in UTC, or some time after it."""
    return day and datetime.combine(day.date(), time.min, UTC) + later


@router.get("")
def read(
    request: Request, visitor: VisitorDep, database: DatabaseDep, wanted: Annotated[Search, Depends(_search)]
) -> Response:
    """Acts, newest first: an owner's own, and the service's for administrators."""
    visitor.principal.must_be("owner", "admin")
    owner_id, text = None if visitor.is_admin else visitor.id, wanted.text.strip()
    with database.read() as session:
        asked = Wanted(
            owner_id,
            kind=wanted.kind or "",
            who=wanted.who or "",
            text=text,
            named=named(session, owner_id, text),
            since=_utc(wanted.first),
            until=_utc(wanted.last, timedelta(days=1)),
        )
        found = find(session, asked, limit=_PAGE, before=wanted.before)
        acts = in_words(session, found.acts)
    return render(
        request,
        "acts.html",
        acts=acts,
        wanted=wanted,
        kinds=KINDS,
        further=None if found.further is None else wanted.chosen | {"before": found.further},
    )

"""Keys: listed, issued and shown once, revoked: one's own and, for the administrator, everybody's."""

from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from privest_service.dashboard.forms import identifier, number, texts
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.session_auth import AdminDep, AskerDep, FormDep, KeyHolderDep, Visitor
from privest_service.database import Database, now
from privest_service.inputs import Id, checked
from privest_service.ledger import service as ledger
from privest_service.ledger import views
from privest_service.problems import Fault, Invalid
from privest_service.reports.shares import platforms_of
from privest_service.security import service
from privest_service.security.dependencies import DatabaseDep
from privest_service.security.endpoints import issued_key
from privest_service.security.keys import SCOPES
from privest_service.security.models import Analyst, Owner
from privest_service.security.schemas import IssuedKey, NewKey

router = APIRouter(prefix="/dashboard", route_class=Page)

Holders = Literal["owners", "analysts"]
"""The administrator looks at the keys of one of these, as addresses have it."""

_PAGE = 50

_DAY, _HOUR = 86_400, 3600
"""Seconds."""

_HOURS = 168
"""Most hours that keys for people may last beyond their tokens, as at the interface."""

_LEAST, _MOST = 0.01, 3660
"""Fewest and most days of a key that is issued here; the most is that of the interface."""

_FOR = {
    "read": "look at pages, and plan questions",
    "data": "bring and delete datasets",
    "estimate": "ask questions, which spends budget",
    "manage": "change budgets and grants, issue and revoke keys",
}
"""What keys may do, in words, by scope."""


@dataclass(frozen=True)
class _Of:
    """The holder of the keys that a page is about, and the page's address."""

    holder: Owner | Analyst
    path: str

    @property
    def role(self) -> Literal["owner", "analyst"]:
        """The holder's role."""
        return "owner" if isinstance(self.holder, Owner) else "analyst"


def _own(session: Session, visitor: Visitor) -> _Of:
    table = Analyst if visitor.is_analyst else Owner
    return _Of(session.get_one(table, visitor.id), "/keys")


def _of(session: Session, holders: Holders, holder_id: str) -> _Of:
    """The holder of an address. Raises NotFound: there is none with this id."""
    require = service.require_owner if holders == "owners" else service.require_analyst
    return _Of(require(session, holder_id), f"/admin/{holders}/{holder_id}")


def _page(
    request: Request,
    session: Session,
    visitor: Visitor,
    of: _Of,
    before: str = "",
    issued: IssuedKey | None = None,
    problem: Invalid | None = None,
) -> Response:
    keys, further = service.keys_of(session, of.holder.id, limit=_PAGE, before=before or None)
    platforms = platforms_of(session, (key.through for key in keys))
    budget = None
    if visitor.is_admin and of.role == "owner":
        budget = views.budget(ledger.owner_account(session, of.holder.id))
    return render(
        request,
        "keys.html",
        status=problem.status if problem else 200,
        of=of,
        budget=budget,
        keys=keys,
        platforms=platforms,
        longest=_HOURS,
        moment=now(),
        further=further,
        issued=issued,
        problem=problem,
        scopes=[(each, _FOR[each]) for each in SCOPES if visitor.may(each)],
        present=visitor.session.credential.key_id,
        link=f"{str(request.base_url).rstrip('/')}/dashboard/analysts?analyst={of.holder.id}",
    )


def _asked(form: FormData) -> NewKey:
    """The key that a form asks for.

    Raises:
        Invalid: it is for nothing, or for a number of days that is none.
    """
    asked: dict[str, Any] = {"scopes": [each for each in form.getlist("scopes") if isinstance(each, str)]}
    if not asked["scopes"]:
        raise Invalid(faults=[Fault(location="scopes", rule="choose at least one")])
    if text := texts(form).get("days"):
        days = number(text, "days")
        if not _LEAST <= days <= _MOST:
            raise Invalid(faults=[Fault(location="days", rule=f"must be from {_LEAST} to {_MOST}")])
        asked["expires_in"] = round(days * _DAY)
    if client := texts(form).get("client"):
        hours = number(texts(form).get("hours") or "0", "hours")
        if not 0 <= hours <= _HOURS:
            raise Invalid(faults=[Fault(location="hours", rule=f"must be from 0 to {_HOURS}")])
        asked["on_behalf_of"] = {"client": client, "key_seconds": round(hours * _HOUR)}
    return checked(NewKey.model_validate, asked)


def _issue(request: Request, database: Database, visitor: Visitor, form: FormData, find: Any) -> Response:
    """Issue a key, and show it this once."""
    try:
        body = _asked(form)
    except Invalid as problem:
        with database.read() as session:
            return _page(request, session, visitor, find(session), problem=problem)

    def issue(session: Session) -> IssuedKey:
        of = find(session)
        return issued_key(session, of.role, of.holder.id, visitor.session.credential, body)

    issued = database.run(issue)
    with database.read() as session:
        return _page(request, session, visitor, find(session), issued=issued)


def _revoke(request: Request, database: Database, form: FormData, find: Any) -> Response:
    """Revoke a key, and all that it issued."""
    key_id = identifier(texts(form), "key")

    def revoke(session: Session) -> str:
        of = find(session)
        service.revoke_key(session, of.holder.id, key_id)
        return of.path

    return redirect(request, database.run(revoke))


@router.get("/keys")
def read(request: Request, visitor: AskerDep, database: DatabaseDep, before: Id = "") -> Response:
    """The visitor's own keys."""
    with database.read() as session:
        return _page(request, session, visitor, _own(session, visitor), before)


@router.post("/keys")
def issue(request: Request, visitor: KeyHolderDep, database: DatabaseDep, form: FormDep) -> Response:
    """Issue one more key to the visitor."""
    return _issue(request, database, visitor, form, lambda session: _own(session, visitor))


@router.post("/keys/revoke")
def revoke(request: Request, visitor: KeyHolderDep, database: DatabaseDep, form: FormDep) -> Response:
    """Revoke a key of the visitor's."""
    return _revoke(request, database, form, lambda session: _own(session, visitor))


@router.get("/admin/{holders}/{holder_id}")
def read_theirs(
    request: Request,
    holders: Holders,
    holder_id: str,
    visitor: AdminDep,
    database: DatabaseDep,
    before: Id = "",
) -> Response:
    """An owner or an analyst, and its keys, as the administrator sees them."""
    with database.read() as session:
        return _page(request, session, visitor, _of(session, holders, holder_id), before)


@router.post("/admin/{holders}/{holder_id}/keys")
def issue_theirs(
    request: Request,
    holders: Holders,
    holder_id: str,
    visitor: AdminDep,
    database: DatabaseDep,
    form: FormDep,
) -> Response:
    """Issue a key to an owner or an analyst, who may have lost the last one."""
    return _issue(request, database, visitor, form, lambda session: _of(session, holders, holder_id))


@router.post("/admin/{holders}/{holder_id}/keys/revoke")
def revoke_theirs(
    request: Request, holders: Holders, holder_id: str, _: AdminDep, database: DatabaseDep, form: FormDep
) -> Response:
    """Revoke a key of an owner or an analyst."""
    return _revoke(request, database, form, lambda session: _of(session, holders, holder_id))

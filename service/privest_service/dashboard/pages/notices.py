"""Where alerts go, and an owner's signed heads: channels added, tried and removed."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from privest_service.connections import service as connections
from privest_service.dashboard.forms import identifier, texts
from privest_service.dashboard.page import Page, redirect, render
from privest_service.dashboard.session_auth import AskerDep, FormDep, KeyHolderDep, Visitor
from privest_service.database import Database
from privest_service.inputs import checked
from privest_service.notices import service
from privest_service.notices.schemas import NEW_CHANNEL, CreatedChannel
from privest_service.notices.sending import ways_out
from privest_service.problems import Fault, Invalid
from privest_service.security.dependencies import DatabaseDep, SettingsDep
from privest_service.settings import Settings

router = APIRouter(prefix="/dashboard/notices", route_class=Page)

_FIELDS = {"webhook": "url", "mail": "to", "file": "name", "object-store": "connection"}
"""The field that says where a channel leads, by the channel's kind."""

_RULES = {
    "url": "must be an address that begins with https:// and has no name or password in it",
    "to": "must be an e-mail address",
    "name": "must be a name of small letters, digits and hyphens",
    "connection": "choose a connection",
}
"""What these fields must be, in words."""

EVENTS = {
    "budget.spent": "80 % or 95 % of a window is spent",
    "question.requested": "a question waits for my approval",
    "question.ended": "a question of mine ends",
    "budget.frozen": "the budget is frozen, or a freeze ends",
    "budget.renewed": "a new window opens",
}
"""What channels tell, in words, by the kind of notice."""

HEADS = {"hour": "every hour", "day": "every day", "week": "every week"}
"""How often signed heads are sent, in words."""


@router.get("")
def read(request: Request, visitor: AskerDep, database: DatabaseDep, settings: SettingsDep) -> Response:
    """The channels, how they fare, and the forms that add one."""
    return _page(request, visitor, database, settings)


def _page(
    request: Request, visitor: Visitor, database: Database, settings: Settings, **told: Any
) -> Response:
    with database.read() as session:
        found = service.channels(session, visitor.id)
        stores = [] if visitor.is_analyst else connections.visible(session, visitor.principal)[0]
    content: dict[str, Any] = {"problem": None, "made": None, "given": {}, "chosen": list(EVENTS)} | told
    kinds = ["webhook"] if visitor.is_analyst else ways_out(settings)
    return render(
        request,
        "notices.html",
        status=content["problem"].status if content["problem"] else 200,
        channels=found,
        kinds=[kind for kind in kinds if kind != "object-store" or stores],
        stores=[each.name for each in stores],
        events=EVENTS,
        heads=HEADS,
        **content,
    )


@router.post("")
def add(
    request: Request, visitor: KeyHolderDep, database: DatabaseDep, settings: SettingsDep, form: FormDep
) -> Response:
    """Add a channel; the secret of a webhook is shown once."""
    given, chosen = texts(form), [each for each in form.getlist("events") if isinstance(each, str)]
    try:
        made = _added(visitor, database, settings, given, chosen)
    except Invalid as problem:
        return _page(request, visitor, database, settings, problem=problem, given=given, chosen=chosen)
    return _page(request, visitor, database, settings, made=made)


def _added(
    visitor: Visitor, database: Database, settings: Settings, given: dict[str, str], events: list[str]
) -> CreatedChannel:
    """The new channel of a form; an analyst's is a webhook, and told of the ends of its questions alone.

    Raises:
        Invalid: it leads nowhere, or tells nothing, or there are as many as there may be.
    """
    kind, heads = given.get("kind", ""), given.get("heads") or None
    if visitor.is_analyst:
        kind, events, heads = "webhook", ["question.ended"], None
    if kind not in ways_out(settings):
        raise Invalid("This service has no way out of this kind.")
    if not events and heads is None:
        raise Invalid(faults=[Fault(location="events", rule="choose something to be sent")])
    field = _FIELDS[kind]
    body = {"kind": kind, field: given.get(field, ""), "events": events, "heads": heads}
    try:
        channel = checked(NEW_CHANNEL.validate_python, body)
    except Invalid as problem:
        faults = [
            Fault(location=each.location, rule=_RULES.get(each.location or "", each.rule))
            for each in problem.faults or ()
        ]
        raise Invalid(faults=faults) from None
    role = visitor.principal.role
    return database.run(lambda session: service.add(session, visitor.id, channel, settings.secret, role))


def _channel(form: FormData) -> str:
    return identifier(texts(form), "channel")


@router.post("/test")
def test(request: Request, visitor: KeyHolderDep, database: DatabaseDep, form: FormDep) -> Response:
    """Have a notice sent that tells nothing."""
    database.run(lambda session: service.test(session, visitor.id, _channel(form)))
    return redirect(request, "/notices")


@router.post("/remove")
def remove(request: Request, visitor: KeyHolderDep, database: DatabaseDep, form: FormDep) -> Response:
    """Remove a channel, with all that waits on it."""
    database.run(lambda session: service.remove(session, visitor.id, _channel(form)))
    return redirect(request, "/notices")

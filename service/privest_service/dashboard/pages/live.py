"""A stream that tells the pages of an owner or an analyst when what they show has changed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse, ServerSentEvent

from privest_service.dashboard.page import Page
from privest_service.dashboard.page_version import version_for
from privest_service.dashboard.session_auth import AskerDep, Visitor
from privest_service.estimates.dependencies import EngineDep
from privest_service.limits import PAGE_STREAMS, in_thread
from privest_service.security import sessions
from privest_service.security.dependencies import AuthenticatorDep, DatabaseDep, LimiterDep

router = APIRouter(prefix="/dashboard", route_class=Page)

_EVERY = 1.0
"""Seconds between two looks for changes. Other processes may have answered queries meanwhile."""

_LOOKS = 600
"""Looks for changes that one stream makes; after them the browser connects again."""


async def _with_room(visitor: AskerDep, limiter: LimiterDep) -> AsyncIterator[Visitor]:
    """Refuse before the stream begins: then nothing else can be said."""
    with limiter.hold(PAGE_STREAMS, visitor.id):
        yield visitor


@router.get("/events", response_class=EventSourceResponse)
async def changes(
    visitor: Annotated[Visitor, Depends(_with_room)],
    database: DatabaseDep,
    engine: EngineDep,
    authenticator: AuthenticatorDep,
) -> AsyncIterator[ServerSentEvent]:
    """A word at each change, until the session ends or the service does."""

    def look() -> str | None:
        if sessions.find(authenticator, visitor.session.id) is None:
            return None
        with database.read() as session:
            return version_for(session, visitor)

    seen = ""
    for _ in range(_LOOKS):
        found = None if engine.draining else await in_thread(look)
        if found is None:
            return
        if found != seen:
            seen = found
            yield ServerSentEvent(event="changed", data=seen)
        await asyncio.sleep(_EVERY)

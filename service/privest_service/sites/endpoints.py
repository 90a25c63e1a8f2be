"""Calls of sites to their hub: they offer datasets, take questions, and exchange noisy answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response
from sqlalchemy.orm import Session

from privest_service.database import Database
from privest_service.datasets.answers import DatasetView
from privest_service.datasets.endpoints import dataset_view
from privest_service.estimates.dependencies import EngineDep
from privest_service.estimates.questions import MOST_NUMBERS
from privest_service.inputs import Id
from privest_service.limits import in_thread
from privest_service.parts import running
from privest_service.problems import NotFound, SessionOver, documented
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, DataDep
from privest_service.sites import hub, pooling
from privest_service.sites.bells import Bells, Told
from privest_service.sites.schemas import (
    Mark,
    OfferedDataset,
    SiteDecided,
    SiteDecision,
    SiteEnd,
    SiteQuestions,
)

router = APIRouter(prefix="/v1/sites", tags=["sites"], route_class=Route)

answers = APIRouter(prefix="/v1/sites", tags=["sites"], route_class=Route)
"""Calls that bring answers: their bodies are longer than those of other calls."""

LARGEST_ANSWER = 32 * MOST_NUMBERS
"""Most bytes of such a body, which has these numbers as bytes, or as text."""

BellsDep = Annotated[Bells, running(Bells)]

_LONGEST_WAIT = 20.0
"""Longest wait for questions or answers in seconds, after which a site asks again."""

_LOOK, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two looks for what another process may have been told: no longer than one has waited."""

_STAYS_AWAY = 60.0
"""Seconds after which a site that has not given an answer, which others have, is one that stays away."""

_NUMBERS = "application/octet-stream"

Heard = Callable[[float], Awaitable[Told]]
"""Waits until a bell rings, or for so many seconds."""


@router.put("/datasets/{dataset_id}", responses=documented(NotFound))
def offer_dataset(
    dataset_id: Annotated[Id, Path(description="at the site")],
    body: OfferedDataset,
    caller: DataDep,
    database: DatabaseDep,
) -> DatasetView:
    """Offer a dataset whose rows stay at the caller's site: from here on it can be asked about and granted.

    The same offer again changes nothing. Delete the dataset to withdraw it.
    """
    caller.must_be("owner")
    offered = database.run(lambda session: hub.offer(session, caller, dataset_id, body))
    return dataset_view(offered, caller.id)


@router.get("/questions", responses=documented())
async def list_site_questions(
    caller: DataDep,
    database: DatabaseDep,
    wait: Annotated[float, Query(ge=0, le=_LONGEST_WAIT, description="seconds to wait for a change")] = 0.0,
    mark: Annotated[Mark, Query(description="of the list that the caller knows")] = "",
) -> SiteQuestions:
    """Questions that wait for the caller's site, or are run there."""
    caller.must_be("owner")

    def listed() -> SiteQuestions:
        with database.read() as session:
            return hub.questions(session, caller.id)

    latest = time.monotonic() + wait
    while (found := await in_thread(listed)).mark == mark and (left := latest - time.monotonic()) > 0:
        await asyncio.sleep(min(4 * _LOOK, left))
    return found


@router.post("/questions/{job_id}/decision", responses=documented(NotFound, SessionOver))
async def decide_at_site(
    job_id: Annotated[Id, Path()],
    body: SiteDecision,
    caller: DataDep,
    database: DatabaseDep,
    bells: BellsDep,
    engine: EngineDep,
) -> SiteDecided:
    """Accept a question, once the site's own ledger is charged for it, or refuse it.

    With the last acceptance the charges here are final. A refusal before that gives them back, and one after
    it ends the run.
    """
    caller.must_be("owner")

    def decide(session: Session) -> SiteDecided:
        if body.decision == "refuse":
            parts.extend(hub.refuse(session, caller, job_id, body.reason))
            return SiteDecided(state="over")
        return SiteDecided(state=hub.accept(session, caller, job_id, engine.lease))

    parts = list[str]()
    decided = await in_thread(database.run, decide)
    for each in parts:  # the others may go on without it
        bells.ring(each)
    if parts:
        engine.notify()
    return decided


@answers.post(
    "/questions/{job_id}/answers/{number}",
    response_class=Response,
    responses=documented(NotFound, SessionOver)
    | {
        200: {"content": {_NUMBERS: {"schema": {"type": "string", "format": "binary"}}}},
        202: {"description": "others have not answered yet: send it again"},
    },
)
async def exchange_answer(
    job_id: Annotated[Id, Path()],
    number: Annotated[int, Path(ge=0, le=2**31 - 1, description="of the answer in the run, from 0")],
    body: Annotated[bytes, Body(media_type=_NUMBERS, description="float64, the lowest byte first")],
    label: Annotated[str, Query(min_length=1, max_length=40, pattern=r"^[!-~]*$")],
    caller: DataDep,
    database: DatabaseDep,
    bells: BellsDep,
) -> Response:
    """Give a noisy answer, for the weighted sum of all sites' answers of this number.

    The same answer again changes nothing, so that connections may break. Another one ends the run.
    """
    caller.must_be("owner")
    with bells.listening(job_id) as heard:
        taken = await in_thread(
            database.run, lambda session: hub.take_answer(session, caller, job_id, number, label, body)
        )
        answer = await _pooled(taken, number, database, bells, heard)
    if answer is None:
        return Response(status_code=202)
    return Response(answer, media_type=_NUMBERS)


async def _pooled(
    taken: hub.Taken, number: int, database: Database, bells: Bells, heard: Heard
) -> bytes | None:
    """The weighted sum of all sites' answers, once all are there: the last one tells the others.

    Raises:
        SessionOver: the run is over.
    """
    if taken.over or taken.pooled is not None:
        for each in taken.parts:
            bells.ring(each, None if taken.pooled is None else (number, taken.pooled))
        bells.forget(taken.whole, number)
        if taken.over:
            raise SessionOver
        return taken.pooled

    def found() -> bytes | None:
        with database.read() as session:
            return pooling.pooled(session, taken.whole, number)

    latest, pause = time.monotonic() + _LONGEST_WAIT, _LOOK
    bells.waited(taken.whole, number)
    while (left := latest - time.monotonic()) > 0:
        told = await heard(min(pause, left))
        if told is not None and told[0] == number:
            return told[1]
        if (answer := await in_thread(found)) is not None:
            bells.forget(taken.whole, number)
            return answer
        pause = min(2 * pause, _LONGEST_PAUSE)
    if bells.waited(taken.whole, number) > _STAYS_AWAY:
        await in_thread(database.run, lambda session: hub.leave_behind(session, taken.whole, number))
        for each in taken.parts:
            bells.ring(each)
    return None


@answers.post("/questions/{job_id}/end", status_code=204, responses=documented(NotFound, SessionOver))
async def end_at_site(
    job_id: Annotated[Id, Path()], body: SiteEnd, caller: DataDep, database: DatabaseDep, engine: EngineDep
) -> None:
    """Tell that the site's run is over, with the receipt of what it was charged there.

    Once all sites have, the answer is computed of what they exchanged.
    """
    caller.must_be("owner")
    await in_thread(database.run, lambda session: hub.end(session, caller, job_id, body))
    engine.notify()

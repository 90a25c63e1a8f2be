"""Estimates, their plans, and jobs. The routes of each kind come from its entry in the `catalogue`."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from privest_service.database.tables import CURSOR
from privest_service.datasets.dependencies import RegistrarDep
from privest_service.estimates import exported, requests, room, service, views, workloads
from privest_service.estimates.catalogue import KINDS, Job, Kind
from privest_service.estimates.dependencies import EngineDep, PlannerDep, SubmissionsDep
from privest_service.estimates.epsilon_found import to_plan
from privest_service.estimates.plans import stored_plan
from privest_service.estimates.schemas import FINAL, InlineRef, JobView, Privacy, State
from privest_service.estimates.views import RequestList, Verdict, privacy_of, request_view
from privest_service.inputs import Id, Moment, QuestionTag
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job as StoredJob
from privest_service.ledger import charges
from privest_service.ledger.receipts import Receipt
from privest_service.limits import JOB_STREAMS, UPLOADS, WAITS, in_thread
from privest_service.problems import (
    AccountFrozen,
    ApprovalRefused,
    BudgetExceeded,
    DatasetInvalid,
    GrantRefuses,
    IdempotencyKeyMissing,
    IdempotencyKeyReused,
    Invalid,
    NotFound,
    NotRequested,
    PaceExceeded,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    documented,
)
from privest_service.security.admission import Route
from privest_service.security.dependencies import (
    AuthenticatorDep,
    DatabaseDep,
    EstimateDep,
    LimiterDep,
    ManageDep,
    ReadDep,
    WatchDep,
)
from privest_service.telemetry import traces
from privest_service.telemetry.requests import stop_clock

router = APIRouter(prefix="/v1", tags=["estimates"], route_class=Route)

_LONGEST_WAIT = 600.0
"""Longest wait for an answer, and longest stream of states, in seconds. Then callers ask again."""


IDEMPOTENCY_KEY = {
    "name": "idempotency-key",
    "in": "header",
    "required": True,
    "description": "a fresh random string of at most 200 characters; the same one again repeats the answer",
    "schema": {"type": "string", "title": "Idempotency-Key"},
}
"""Documents the header in openapi.yaml. A request without it gets a problem of its own."""


def _wait_of(prefer: str | None) -> float:
    """Seconds in `Prefer: wait=N` (RFC 7240); 0 without it, and unknown preferences are ignored."""
    for preference in (prefer or "").split(","):
        name, _, value = preference.strip().partition("=")
        if name.lower() == "wait" and value.strip('"').isdecimal():
            return min(float(value.strip('"')), _LONGEST_WAIT)
    return 0.0


def require_idempotency_key(key: str | None, longest: int = 200) -> str:
    """The key under which a question is asked once.

    Raises:
        IdempotencyKeyMissing: there is none.
        Invalid: it is too long, or cannot be printed.
    """
    if not key:
        raise IdempotencyKeyMissing("Send a fresh random string. The same one again repeats the answer.")
    if len(key) > longest or not key.isprintable():
        raise Invalid(
            f"An Idempotency-Key has at most {longest} printable characters. Send a shorter random string."
        )
    return key


REFUSALS = documented(
    NotFound,
    IdempotencyKeyMissing,
    IdempotencyKeyReused,
    BudgetExceeded,
    PaceExceeded,
    AccountFrozen,
    GrantRefuses,
    DatasetInvalid,
    Unavailable,
)
"""Problems that a question may meet."""


def _add_estimate_route(kind: Kind) -> None:
    """Add the call that asks for an estimate of one kind."""
    request_type: Any = kind.request

    @router.post(
        f"/estimates/{kind.name}",
        name=f"estimate_{kind.name.replace('-', '_')}",
        description=f"{kind.estimator.summary}, charged to the owner's budget. Waits as long as "
        "`Prefer: wait=N` says.",
        response_model=kind.job,
        responses=REFUSALS | {202: {"model": kind.job, "description": "not finished yet; poll `Location`"}},
        openapi_extra={"parameters": [IDEMPOTENCY_KEY]},
    )
    async def create_estimate(
        body: request_type,  # pyright: ignore[reportInvalidTypeForm]
        request: Request,
        asker: EstimateDep,
        submissions: SubmissionsDep,
        registrar: RegistrarDep,
        limiter: LimiterDep,
        engine: EngineDep,
        authenticator: AuthenticatorDep,
        idempotency_key: Annotated[str | None, Header(include_in_schema=False)] = None,
        prefer: Annotated[str | None, Header(description="`wait=N`, in seconds")] = None,
    ) -> Response:
        key, seconds, caller = require_idempotency_key(idempotency_key), _wait_of(prefer), asker.principal
        inline = isinstance(body.dataset, InlineRef)
        with limiter.hold(UPLOADS, caller.id) if inline else nullcontext():
            (answer,) = await submissions.submit(caller, service.Query(kind, body), key, registrar)
        if not inline:
            stop_clock()
        database = submissions.database

        def is_over() -> bool:
            return service.is_over(database, answer.job_id) or not authenticator.is_good_yet(asker)

        def look() -> JobView:
            if seconds and not authenticator.is_good_yet(asker):
                raise Unauthenticated(
                    "The key or token has ended. Ask again with another, under the same Idempotency-Key.",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            with database.read() as session:
                job = service.require_job(session, caller, answer.job_id)
                return views.job_view(session, caller, job, reused=answer.reused)

        if seconds:
            with limiter.hold_if_free(WAITS, caller.id) as free:
                if free:
                    await engine.wait(answer.job_id, seconds, is_over)
        if answer.fresh and not seconds:
            job = views.fresh_job_view(caller, answer.fresh)
        else:
            job = await in_thread(look)
        return job_response(job, request.scope.get("root_path", ""))


def _plan_route(kind: Kind) -> None:
    """Add the call that plans an estimate of one kind."""
    request_type: Any = kind.plan_request

    @router.post(
        f"/estimates/{kind.name}/plan",
        name=f"plan_{kind.name.replace('-', '_')}",
        description="The exact cost of the same request, and the error to expect. Charges nothing. Finds "
        "the ε for an error, or for a share of what is left, where that is asked for instead.",
        response_model=kind.plan_view,
        responses=documented(NotFound, GrantRefuses, Unavailable),
    )
    def plan(
        body: request_type,  # pyright: ignore[reportInvalidTypeForm]
        caller: ReadDep,
        database: DatabaseDep,
        planner: PlannerDep,
    ) -> Response:
        question = to_plan(database, planner, caller, kind, body)
        with traces.step("plan"):
            planned = planner.make_plan(question)
        opinion = planner.second_opinion(question, planned)
        with database.read() as session:
            found = room.room_of(session, caller, question, room.charges_of(planned))
        view = views.plan_view(question, planned, opinion, found)
        if not isinstance(body.dataset, InlineRef):
            stop_clock()
        return Response(view.model_dump_json(), media_type="application/json")


def _written(job: JobView, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(job.model_dump_json(), status, headers, "application/json")


def job_response(job: JobView, root: str) -> Response:
    """A job as it stands: 200 once it has ended, and before that 202 with the address to poll."""
    done = job.state in FINAL
    # Written out: to look a route up by its name takes longer than all else here.
    again = "30" if job.state == "requested" else "1"
    headers = {} if done else {"Location": f"{root}/v1/jobs/{job.id}", "Retry-After": again}
    return _written(job, 200 if done else 202, headers)


for _kind in KINDS.values():
    _add_estimate_route(_kind)
    _plan_route(_kind)


@router.get(
    "/jobs/{job_id}",
    response_model=Job,
    responses=documented(NotFound) | {304: {"description": "not changed"}},
)
def read_job(job_id: str, request: Request, caller: ReadDep, database: DatabaseDep) -> Response:
    """A job's state and, when it is committed, its answer. Send the ETag back to learn of changes alone."""
    with database.read() as session:
        job = service.require_job(session, caller, job_id)
        decided = job.state == "requested" and jobs.decisions_on(session, job.id)
        tag = f'"{job.state}{" and decided" if decided else ""}"'
        if request.headers.get("If-None-Match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        body = views.job_view(session, caller, job)
    return _written(body, headers={"ETag": tag})


@router.get("/requests", responses=documented())
def list_requests(caller: ReadDep, database: DatabaseDep) -> RequestList:
    """Questions that wait for the caller's approval, with their price and what they tell; the oldest 100."""
    caller.must_be("owner")
    with database.read() as session:
        found = (request_view(session, job) for job in requests.waiting_for(session, caller.id, 100))
        return RequestList(requests=[request for request in found if request is not None])


@router.post(
    "/jobs/{job_id}/decision",
    response_model=Job,
    responses=documented(
        NotFound, NotRequested, ApprovalRefused, BudgetExceeded, PaceExceeded, AccountFrozen
    ),
)
def decide_on_job(
    job_id: str, body: Verdict, caller: ManageDep, database: DatabaseDep, engine: EngineDep
) -> Response:
    """Approve or deny a question about the caller's dataset; the last approval that it needs charges it.

    What does not cover it leaves it waiting. The same decision once more changes nothing.
    """

    def decide(session: Session) -> JobView:
        job = requests.decide(session, caller, job_id, body.decision, body.reason)
        return views.job_view(session, caller, job)

    decided = database.run(decide)
    engine.notify()
    return _written(decided)


@router.post(
    "/jobs/{job_id}/withdrawal",
    response_model=Job,
    responses=documented(NotFound, NotRequested, TooManyRequests),
)
def withdraw_job(job_id: str, asker: EstimateDep, database: DatabaseDep) -> Response:
    """End a question of the caller's that waits for approval or for a worker; a charge is given back.

    Once it has begun, its charge is final.
    """

    def withdraw(session: Session) -> JobView:
        job = requests.withdraw(session, asker.principal, job_id)
        return views.job_view(session, asker.principal, job)

    return _written(database.run(withdraw))


@router.get("/jobs/{job_id}/receipt", responses=documented(NotFound))
def read_receipt(job_id: str, caller: ReadDep, database: DatabaseDep) -> Receipt:
    """The signed receipt of a committed job, for its submitter and for the owner it was charged to.

    The owner's names the entries of its ledger; an analyst's only commits to them.
    """
    with database.read() as session:
        job = service.require_job(session, caller, job_id)
        receipt = charges.receipt_for(session, job, caller.id)
        if receipt is None:
            raise NotFound("The receipt exists once the job is committed. Ask again then.")
        return receipt


@router.get(
    "/jobs/{job_id}/model",
    response_model=exported.SignedModel,
    responses=documented(NotFound)
    | {200: {"content": {"application/octet-stream": {}, "application/xml": {}}}},
)
def read_model(
    job_id: str,
    caller: ReadDep,
    database: DatabaseDep,
    form: Annotated[
        exported.Format, Query(alias="format", description="onnx and pmml of classifiers")
    ] = "json",
) -> Response:
    """The answer of a committed job as a model for other programs, with a signed card, for its submitter."""
    with database.read() as session:
        job = service.require_job(session, caller, job_id)
        model = exported.signed_model(session, caller, job)
    content, media = exported.written(job, model, form)
    return Response(content, media_type=media)


async def _with_room(
    job_id: str, caller: ReadDep, database: DatabaseDep, limiter: LimiterDep
) -> AsyncIterator[str]:
    """The id of a job of a caller with room for one more stream; once that begins nothing can be refused."""

    def known() -> str:
        with database.read() as session:
            return service.require_job(session, caller, job_id).id

    known_id = await in_thread(known)
    with limiter.hold(JOB_STREAMS, caller.id):
        yield known_id


@router.get("/jobs/{job_id}/events", response_class=EventSourceResponse, responses=documented(NotFound))
async def watch_job(
    job_id: Annotated[str, Depends(_with_room)],
    watcher: WatchDep,
    database: DatabaseDep,
    engine: EngineDep,
    authenticator: AuthenticatorDep,
) -> AsyncIterator[ServerSentEvent]:
    """The states of a job as they come, until its end, ten minutes at most: then ask again.

    It ends before that with the service, and with the key or token that it was asked for with.
    """

    def state() -> str | None:
        if not authenticator.is_good_yet(watcher):
            return None
        with database.read() as session:
            return service.require_job(session, watcher.principal, job_id).state

    seen, end = "", time.monotonic() + _LONGEST_WAIT
    while seen not in FINAL and time.monotonic() < end:
        now = None if engine.draining else await in_thread(state)
        if now is None:
            return
        if now != seen:
            seen = now
            yield ServerSentEvent(event="state", data=seen)
        else:
            await asyncio.sleep(0.2)


# Workloads


_LONGEST_KEY = 190
"""Longest key under which several questions are asked, each under that key and its place."""


@router.post("/plans", responses=documented(NotFound, GrantRefuses, Unavailable))
def plan_workload(
    body: workloads.PlannedWorkload,  # pyright: ignore[reportInvalidTypeForm]
    caller: ReadDep,
    database: DatabaseDep,
    planner: PlannerDep,
) -> workloads.WorkloadView:
    """The price of up to 50 questions, each and together, and whether limits cover them. Charges nothing."""
    return workloads.price(database, planner, caller, body)


@router.post(
    "/estimates",
    status_code=202,
    responses=REFUSALS,
    openapi_extra={"parameters": [IDEMPOTENCY_KEY]},
)
async def estimate_workload(
    body: workloads.Workload,  # pyright: ignore[reportInvalidTypeForm]
    asker: EstimateDep,
    submissions: SubmissionsDep,
    idempotency_key: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> workloads.JobList:
    """Ask up to 50 questions together, in their order: all of them are charged, or none. Poll their jobs.

    They are about registered datasets, and none of them waits for an approval.
    """
    key, caller = require_idempotency_key(idempotency_key, _LONGEST_KEY), asker.principal
    asked = [service.Query(KINDS[each.kind], each.body) for each in workloads.registered(body)]
    answers = await submissions.submit(caller, asked, key)

    def read() -> workloads.JobList:
        with submissions.database.read() as session:
            jobs_of = [
                views.job_view(
                    session, caller, service.require_job(session, caller, each.job_id), reused=each.reused
                )
                for each in answers
            ]
        return workloads.JobList(jobs=jobs_of)

    return await in_thread(read)


# Lists


class JobLine(BaseModel):
    """A question in a list; the job itself has its answer."""

    id: str
    kind: str
    state: State
    asked_at: datetime
    datasets: list[str]
    privacy: Annotated[Privacy | None, Field(description="null where its estimator is not there any more")]
    dummy: bool
    tag: Annotated[str | None, Field(description="words of whoever asked")] = None


class JobPage(BaseModel):
    """Questions of a caller, newest first, and the cursor of the next page."""

    jobs: list[JobLine]
    next: Annotated[str | None, Field(description="`cursor` of the next page; null where none follows")]


@router.get("/jobs", responses=documented())
def list_jobs(
    caller: ReadDep,
    database: DatabaseDep,
    state: Annotated[list[State] | None, Query(description="one of these states")] = None,
    dataset: Annotated[Id | None, Query(description="about this dataset, alone or with others")] = None,
    tag: Annotated[QuestionTag | None, Query(description="asked with this tag")] = None,
    since: Annotated[Moment | None, Query(description="asked then or later")] = None,
    until: Annotated[Moment | None, Query(description="asked before then")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str, Query(pattern=f"^({CURSOR})?$", description="`next` of the page before")] = "",
) -> JobPage:
    """The questions that the caller asked, newest first, in pages."""
    caller.must_be("owner", "analyst")
    conditions = [
        *([StoredJob.state.in_(state)] if state else []),
        *([StoredJob.tag == tag] if tag else []),
        *([StoredJob.created_at >= since] if since else []),
        *([StoredJob.created_at < until] if until else []),
    ]
    with database.read() as session:
        found, further = jobs.submitted(
            session, caller.id, *conditions, dataset_id=dataset, limit=limit, cursor=cursor
        )
        lines = [_line(job, jobs.parts_of(session, job) or [job]) for job in found]
    return JobPage(jobs=lines, next=further)


def _line(job: StoredJob, parts: Sequence[StoredJob]) -> JobLine:
    plan = stored_plan(job.kind, job.plan) if job.kind in KINDS else None
    return JobLine(
        id=job.id,
        kind=job.kind,
        state=job.state,  # pyright: ignore[reportArgumentType]
        asked_at=job.created_at,
        datasets=[str(part.dataset_id) for part in parts],
        privacy=privacy_of(plan) if plan else None,
        dummy=job.dummy,
        tag=job.tag,
    )

"""From a request to a charged job, and from a job to its answer."""

import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, TypeVar

import structlog
from cachetools import FIFOCache
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service.database import Database
from privest_service.datasets import registration
from privest_service.datasets.registration import Registrar
from privest_service.estimates import refusals
from privest_service.estimates.catalogue import Kind
from privest_service.estimates.charging import reserve_all, reserve_each, reserve_free
from privest_service.estimates.planning import Planner
from privest_service.estimates.questions import (
    Facts,
    ResolvedQuery,
    digest_of,
    inline_rows,
    resolve,
    resolve_inline,
)
from privest_service.estimates.reservation import (
    Answer,
    Asked,
    Bound,
    Draft,
    EstimateCommand,
)
from privest_service.estimates.room import charges_of
from privest_service.estimates.schemas import (
    FINAL,
    EstimateRequest,
    InlineRef,
)
from privest_service.groups import Groups
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import entries
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Charge
from privest_service.limits import in_thread, in_thread_if_long
from privest_service.problems import (
    AccountFrozen,
    BudgetExceeded,
    DatabaseUnavailable,
    GrantRefuses,
    Invalid,
    NotFound,
    Problem,
    Unavailable,
)
from privest_service.security.principals import Principal
from privest_service.telemetry import traces

_ROOM = 2**25
"""Most characters of all drafts that are remembered."""

T = TypeVar("T")

_Seen = Answer | tuple[ResolvedQuery, Draft | None]
"""The job that answers a request already, or else what it asks, with its draft if that is kept."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Submissions:
    """Charges requests and puts their jobs in the queue.

    Attributes:
        database: of keys, jobs and budgets.
        planner: of questions.
        notify: called when a job was reserved.
        secret: of the service, which keys the digests of rows.
        max_waiting: jobs that may wait before further ones are refused.
        decide_within: hours in which owners decide on questions, where their grants say nothing else.
    """

    database: Database
    planner: Planner
    notify: Callable[[], None]
    secret: bytes = field(repr=False)
    max_waiting: int
    decide_within: int = 168
    _looks: Groups[EstimateCommand, _Seen] = field(
        default_factory=Groups[EstimateCommand, _Seen], init=False, repr=False
    )
    _charges: Groups[Asked, Answer] = field(default_factory=Groups[Asked, Answer], init=False, repr=False)
    _drafts: FIFOCache[str, Draft] = field(
        default_factory=lambda: FIFOCache[str, Draft](_ROOM, getsizeof=lambda draft: draft.length), repr=False
    )
    _lock: Lock = field(default_factory=Lock, repr=False)

    def command(self, caller: Principal, kind: Kind, request: EstimateRequest, key: str) -> EstimateCommand:
        """A request with what its key is bound to."""
        body = request.model_dump(mode="json")
        body |= {name: value for name, value in kind.estimator.unset.items() if body[name] is None}
        if isinstance(request.dataset, InlineRef):
            # Not everything in rows has a canonical form; and their digest outlives them, so it has a key.
            rows = json.dumps(request.dataset.inline.rows).encode()
            body["dataset"]["inline"]["rows"] = hmac.new(self.secret, rows, hashlib.sha256).hexdigest()
        return EstimateCommand(caller, kind, request, key, digest_of({"kind": kind.name, "body": body}))

    def submit(self, ask: EstimateCommand, rows: str | None = None) -> Answer:
        """Charge a request and put its job in the queue, or find the job that answers it already.

        If the request brought rows, `rows` is the dataset that was made of them.

        Raises:
            Problem: whatever refuses the request; nothing is then charged and the key stays free.
        """
        (found,) = self._look_each([ask], rows)
        if isinstance(found, GrantRefuses):
            refusals.record(self.database, found, ask)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, Answer):
            return found
        question, draft = found
        return self.charge(ask, question, draft or self._draft(question))  # which takes a while, and no lock

    async def submit_together(
        self, caller: Principal, kind: Kind, request: EstimateRequest, key: str
    ) -> Answer:
        """Do what `submit` does, looked at and charged together with others that wait.

        Raises:
            Problem: whatever refuses the request; nothing is then charged and the key stays free.
        """
        ask = await in_thread_if_long(self.command, caller, kind, request, key)
        try:
            found = await self._looks.do(None, ask, self._look_each)
        except GrantRefuses as refused:
            await in_thread(refusals.record, self.database, refused, ask)
            raise
        if isinstance(found, Answer):
            return found
        question, draft = found
        draft = draft or await in_thread(self._draft, question)
        if question.dummy:
            return await in_thread(self.charge, ask, question, draft)
        owners = tuple(sorted({subject.owner_id for subject in question.about}))
        try:
            with traces.step("charge"):
                answer = await self._charges.do(owners, (ask, question, draft), self._charge_each)
        except (GrantRefuses, BudgetExceeded, AccountFrozen) as refused:
            raise await in_thread(refusals.as_known, self.database, refused, ask, question, draft) from None
        return self._charged(answer)

    def _look_each(
        self, asks: Sequence[EstimateCommand], rows: str | None = None
    ) -> Sequence[_Seen | Exception]:
        """For each request the job that answers it already, or what it asks and its draft if it is kept.

        What none of them expected stops the one whose fault it is alone: each is looked at by itself then.
        """
        try:
            with self.database.read() as session:
                bound = Bound(session, asks)
                facts = Facts(session, [(ask.caller, ask.request) for ask in asks], rows)
                waiting = jobs.waiting_for(session, {ask.caller.id for ask in asks})
                return [self._look(bound, facts, waiting[ask.caller.id], ask) for ask in asks]
        except Problem:
            raise
        except Exception as error:
            if len(asks) == 1:
                return [error]
            return [outcome for each in asks for outcome in self._look_each([each], rows)]

    def _look(
        self, bound: Bound, facts: Facts, waiting: jobs.Waiting, ask: EstimateCommand
    ) -> _Seen | Problem:
        """What `_look_each` tells of one request, or what refuses it."""
        try:
            if known := bound.replay(ask):
                return known
            question = resolve(facts, ask.caller, ask.kind, ask.request)
            self._refuse_if_full(waiting, question)
        except Problem as refused:
            return refused
        with self._lock:
            return question, self._drafts.get(_name(question))

    def _draft(self, question: ResolvedQuery) -> Draft:
        """What will be written about a question: planned once, as long as it is remembered."""
        name = _name(question)
        with self._lock:
            draft = self._drafts.get(name)
        if draft is None:
            with traces.step("plan"):
                planned = self.planner.plan(question, free=False)
            draft = Draft.of(question, planned)
            if draft.length <= _ROOM:
                with self._lock:
                    self._drafts[name] = draft
        return draft

    def charge(self, ask: EstimateCommand, question: ResolvedQuery, draft: Draft) -> Answer:
        """Charge a planned question and put its job in the queue.

        Raises:
            Problem: whatever refuses it, as the caller may know it.
        """
        try:
            with traces.step("charge"):
                if question.dummy:
                    answer = self.database.run(lambda session: reserve_free(session, ask, question, draft))
                else:
                    (outcome,) = self._charge_each([(ask, question, draft)])
                    if isinstance(outcome, Exception):
                        raise outcome
                    answer = outcome
        except (GrantRefuses, BudgetExceeded, AccountFrozen) as refused:
            raise refusals.as_known(self.database, refused, ask, question, draft) from None
        return self._charged(answer)

    def _charge_each(self, asked: Sequence[Asked]) -> Sequence[Answer | Exception]:
        """Charge planned questions in their order, in one transaction, but for those that are refused.

        What none of them expected stops the one whose fault it is, and no other: each is charged alone then.
        """
        try:
            return self.database.run(lambda session: reserve_each(session, asked, self.decide_within))
        except Problem:
            raise
        except Exception as error:
            if len(asked) == 1:
                return [error]
            return [outcome for each in asked for outcome in self._charge_each([each])]

    def _charged(self, answer: Answer) -> Answer:
        """Tell the engine and the log what became of a request."""
        self.notify()
        log.info(f"job {answer.fresh.job.state}" if answer.fresh else "job known", job=answer.job_id)
        return answer

    def submit_all(
        self, caller: Principal, asked: Sequence[tuple[Kind, EstimateRequest]], key: str
    ) -> list[Answer]:
        """Charge several requests and put their jobs in the queue: all of them or none.

        Raises:
            Problem: whatever refuses one of them; nothing is then charged and the key stays free.
        """
        asks = [
            self.command(caller, kind, body, f"{key} {place}") for place, (kind, body) in enumerate(asked)
        ]
        together = digest_of([ask.digest for ask in asks])  # the key is bound to all of them
        asks = [replace(ask, digest=digest_of({"of": together, "place": at})) for at, ask in enumerate(asks)]
        try:
            with self.database.read() as session:
                bound = Bound(session, asks)
                if known := [answer for ask in asks if (answer := bound.replay(ask))]:
                    return known
                facts = Facts(session, [(caller, ask.request) for ask in asks])
                questions = [
                    in_place(place, resolve, facts, caller, ask.kind, ask.request)
                    for place, ask in enumerate(asks)
                ]
                waiting = jobs.waiting_for(session, {caller.id})[caller.id]
                self._refuse_if_full(waiting, questions[0], len(asks))
        except GrantRefuses as refused:
            refusals.record(self.database, refused, asks[refused.place or 0])
            raise
        drafts = [in_place(place, self._drafted, question) for place, question in enumerate(questions)]
        drafted = list(zip(asks, questions, drafts, strict=True))
        try:
            answers = self.database.run(lambda session: reserve_all(session, drafted, self.decide_within))
        except (GrantRefuses, BudgetExceeded, AccountFrozen) as refused:
            if refused.place is None:  # a grant that ended since they were resolved, before any was charged
                refusals.record(self.database, refused, asks[0])
                raise
            told = refusals.as_known(self.database, refused, *drafted[refused.place])
            if told is refused:
                told.detail = f"Question {refused.place + 1}: {told.detail or told.title}"
            raise told from None
        self.notify()
        log.info("jobs reserved", jobs=[answer.job_id for answer in answers])
        return answers

    def _drafted(self, question: ResolvedQuery) -> Draft:
        """Draft a question that can be one of several."""
        if question.dummy:
            raise Invalid("It is about synthetic rows, and free. Ask it by itself.")
        if question.approval:
            raise Invalid("It waits for an owner's approval. Ask it by itself.")
        return self._draft(question)

    async def submit_inline(self, ask: EstimateCommand, registrar: Registrar) -> Answer:
        """Charge a request on rows that came with it: a dataset of the caller's until it is answered.

        Raises:
            Problem: whatever refuses the request or its rows; nothing is then charged or kept.
        """
        if known := await in_thread(self._known, ask):
            return known
        given = inline_rows(ask.request)
        source = registration.inline(given.rows)
        dataset = await registrar.register(
            ask.caller.id, source, given.declared, rows_of=given.rows_of, ephemeral=True
        )
        asked_about = False
        try:
            answer = await in_thread(self.submit, ask, dataset.id)
            asked_about = answer.fresh is not None
            return answer
        except DatabaseUnavailable:  # perhaps it was charged: if not, `sweep` drops the rows
            asked_about = True
            raise
        finally:
            if not asked_about:
                await in_thread(registrar.forget, dataset)

    def _known(self, ask: EstimateCommand) -> Answer | None:
        """Return the job that already answers a request on its own rows; None if there is none.

        Raises:
            Problem: all that can refuse the request before its rows are looked at.
        """
        with self.database.read() as session:
            if known := Bound(session, [ask]).replay(ask):
                return known
            question = resolve_inline(session, ask.caller, ask.kind, ask.request)
            waiting = jobs.waiting_for(session, {ask.caller.id})[ask.caller.id]
            self._refuse_if_full(waiting, question)
        planned = self.planner.plan(question, free=False)
        with self.database.read() as session:
            account = ledger.owner_account(session, ask.caller.id)
            try:
                entries.require_room([account], [Charge.of(planned.target, planned.cost)])
            except BudgetExceeded as refused:
                raise refusals.told(self.database, refused, ask, question, charges_of(planned)) from None
        return None

    def _refuse_if_full(self, waiting: jobs.Waiting, question: ResolvedQuery, more: int = 1) -> None:
        """Keep the queue short, and room in it for others whatever one caller asks.

        Raises:
            Unavailable: too many jobs wait, or too many of this caller, or of its dummies, which are free.
        """
        most, (everybodys, own, dummies) = self.max_waiting, waiting
        if everybodys + more > most:
            raise Unavailable("Too many jobs are waiting. Try again later.", retry_after=5)
        if own + more > max(2, most // 4) or (question.dummy and dummies >= max(1, most // 100)):
            raise Unavailable(
                "Too many of your jobs are waiting. Try again when some of them have ended.", retry_after=5
            )


def _name(question: ResolvedQuery) -> str:
    """All that a draft follows from, and whose it is: time would tell what others asked."""
    return f"{question.name} {[subject.target for subject in question.about]}"


def in_place(place: int, act: Callable[..., T], *given: Any) -> T:
    """Do something about one of several questions; a refusal says which one, counted from 1.

    Raises:
        Problem: whatever refuses it.
    """
    try:
        return act(*given)
    except Problem as refused:
        refused.place = place
        refused.detail = f"Question {place + 1}: {refused.detail or refused.title}"
        raise


def is_over(database: Database, job_id: str) -> bool:
    """Whether nothing is worth a wait any more: a job has reached its end, or waits for an owner."""
    with database.read() as session:
        state = session.scalar(select(Job.state).where(Job.id == job_id))
    return state == "requested" or state in FINAL


def require_job(session: Session, caller: Principal, job_id: str) -> Job:
    """A job that the caller submitted, or that was charged to it.

    Raises:
        NotFound: there is none for this caller.
    """
    job = session.get(Job, job_id)
    if job is None or caller.id not in (job.submitter_id, job.owner_id):
        raise NotFound
    return job

"""From a request to a charged job, and from a job to its answer."""

import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock

import structlog
from cachetools import FIFOCache
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service.database import Database
from privest_service.datasets import registration
from privest_service.datasets.registration import Registrar
from privest_service.estimates import refusals
from privest_service.estimates.catalogue import Kind
from privest_service.estimates.charging import Rules, reserve_all, reserve_each, reserve_free
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
from privest_service.groups import ApartError, Groups, Turns
from privest_service.jobs.models import Job
from privest_service.jobs.waiting import Waiting
from privest_service.ledger import entries
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Charge
from privest_service.limits import LONG, in_thread, in_thread_if_long
from privest_service.problems import (
    AccountFrozen,
    BudgetExceeded,
    DatabaseUnavailable,
    GrantRefuses,
    Invalid,
    NotFound,
    Problem,
    in_place,
)
from privest_service.security.principals import Principal
from privest_service.telemetry import traces

_ROOM = 2**25
"""Most characters of all drafts that are remembered."""

_FEW = 4
"""Datasets of one request that are looked at together with what others ask."""

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
        rules: of the operator.
    """

    database: Database
    planner: Planner
    notify: Callable[[], None]
    secret: bytes = field(repr=False)
    rules: Rules
    _looks: Groups[EstimateCommand, _Seen] = field(
        default_factory=Groups[EstimateCommand, _Seen], init=False, repr=False
    )
    _charges: Groups[Asked, Answer] = field(default_factory=Groups[Asked, Answer], init=False, repr=False)
    _apart: Turns = field(default_factory=Turns, init=False, repr=False)
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
        try:
            found = self._look_apart(ask, rows)
        except GrantRefuses as refused:
            refusals.record(self.database, refused, ask)
            raise
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
            found = await self._looked(ask)
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
                asked = (ask, question, draft)
                answer = await self._charges.do(owners, asked, self._charge_each, len(question.about))
        except ApartError:
            # It may wait for a lock, with a connection: one of a caller's at a time.
            async with self._apart.turn((caller.id, owners)):
                return await in_thread(self.charge, ask, question, draft)
        except (GrantRefuses, BudgetExceeded, AccountFrozen) as refused:
            raise await in_thread(refusals.as_known, self.database, refused, ask, question, draft) from None
        return self._charged(answer)

    async def _looked(self, ask: EstimateCommand) -> _Seen:
        """Look at a request together with others, unless that takes long: that is the caller's own time."""
        about = ask.request.dataset
        if not isinstance(about, list) or len(about) <= _FEW:
            with suppress(ApartError):
                return await self._looks.do(None, ask, self._look_each)
        return await in_thread(self._look_apart, ask)

    def _look_each(self, asks: Sequence[EstimateCommand]) -> Sequence[_Seen | Exception]:
        """What each of several requests comes to, as `_look_apart` tells it, or what refuses it.

        One on long schemas is to be looked at apart. Where something happens that nobody foresaw all are, so
        that it stops the one whose fault it is.
        """
        try:
            with self.database.read() as session:
                bound = Bound(session, asks)
                facts = Facts(session, [(ask.caller, ask.request) for ask in asks])
                waiting = Waiting(session, {ask.caller.id for ask in asks})
                return [
                    ApartError()
                    if facts.length(ask.request) > LONG
                    else self._look(bound, facts, waiting, ask)
                    for ask in asks
                ]
        except Problem:
            raise
        except Exception as error:
            log.warning("requests are looked at apart", error=type(error).__name__)
            return [ApartError() for _ in asks]

    def _look_apart(self, ask: EstimateCommand, rows: str | None = None) -> _Seen:
        """The job that answers a request already, or what it asks and its draft if it is kept.

        If the request brought rows, `rows` is the dataset that was made of them.

        Raises:
            Problem: whatever refuses it.
        """
        with self.database.read() as session:
            facts = Facts(session, [(ask.caller, ask.request)], rows)
            found = self._look(Bound(session, [ask]), facts, Waiting(session, {ask.caller.id}), ask)
        if isinstance(found, Problem):
            raise found
        return found

    def _look(self, bound: Bound, facts: Facts, waiting: Waiting, ask: EstimateCommand) -> _Seen | Problem:
        try:
            if known := bound.replay(ask):
                return known
            question = resolve(facts, ask.caller, ask.kind, ask.request)
            waiting.require_room(ask.caller.id, self.rules.max_waiting, dummy=question.dummy)
        except Problem as refused:
            return refused
        with self._lock:
            return question, self._drafts.get(question.name)

    def _draft(self, question: ResolvedQuery) -> Draft:
        """What will be written about a question: planned once, as long as it is remembered."""
        name = question.name
        with self._lock:
            draft = self._drafts.get(name)
        if draft is None:
            with traces.step("plan"):
                planned = self.planner.plan(question, free=question.dummy)
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
        asked = (ask, question, draft)

        def reserve(session: Session) -> Answer:
            if question.dummy:
                return reserve_free(session, asked, self.rules)
            (outcome,) = reserve_each(session, [asked], self.rules)
            if isinstance(outcome, Problem):
                raise outcome
            return outcome

        try:
            with traces.step("charge"):
                answer = self.database.run(reserve)
        except (GrantRefuses, BudgetExceeded, AccountFrozen) as refused:
            raise refusals.as_known(self.database, refused, ask, question, draft) from None
        return self._charged(answer)

    def _charge_each(self, asked: Sequence[Asked]) -> Sequence[Answer | Exception]:
        """Charge planned questions in their order, in one transaction, but for those that are refused.

        Where others hold what one of them needs, or something happens that nobody foresaw, none is charged,
        and each is to be charged apart: it stops, or keeps waiting, whom it concerns.
        """
        try:
            return self.database.attempt(lambda session: reserve_each(session, asked, self.rules))
        except Problem:
            raise
        except Exception as error:
            log.warning("questions are charged apart", error=type(error).__name__)
            return [ApartError() for _ in asked]

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
                Waiting(session, {caller.id}).require_room(
                    caller.id, self.rules.max_waiting, dummy=questions[0].dummy, more=len(asks)
                )
        except GrantRefuses as refused:
            refusals.record(self.database, refused, asks[refused.place or 0])
            raise
        drafts = [in_place(place, self._drafted, question) for place, question in enumerate(questions)]
        drafted = list(zip(asks, questions, drafts, strict=True))
        try:
            answers = self.database.run(lambda session: reserve_all(session, drafted, self.rules))
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
        made = await registrar.register(
            ask.caller.id, source, given.declared, rows_of=given.rows_of, ephemeral=True
        )
        dataset = made.dataset
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
            waiting = Waiting(session, {ask.caller.id})
            waiting.require_room(ask.caller.id, self.rules.max_waiting, dummy=question.dummy)
        planned = self.planner.plan(question, free=False)
        with self.database.read() as session:
            account = ledger.owner_account(session, ask.caller.id)
            try:
                entries.require_room([account], [Charge.of(planned.target, planned.cost)])
            except BudgetExceeded as refused:
                raise refusals.told(self.database, refused, ask, question, charges_of(planned)) from None
        return None


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

"""From a request to a charged job, and from a job to its answer."""

import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import rfc8785
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest.privacy.cost import PrivacyTarget
from privest.shapes import Shape
from privest_service.database.tables import new_id
from privest_service.datasets import service as datasets
from privest_service.datasets.ingest import LEAST_RECORDS
from privest_service.datasets.readers.layout import unit_of
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.kinds import Kind, Plan, opinion_job, plan_job
from privest_service.estimates.schemas import (
    FINAL,
    DatasetRef,
    EstimateRequest,
    InlineRef,
    InlineRows,
    SecondOpinion,
)
from privest_service.ledger import service as ledger
from privest_service.ledger.mechanisms import mechanism
from privest_service.ledger.models import Account, IdempotencyKey, Job
from privest_service.ledger.units import Charge
from privest_service.owners.models import Owner
from privest_service.problems import BudgetExceeded, IdempotencyKeyReused, Invalid, NotFound, Unavailable
from privest_service.security.principals import Principal
from privest_service.services import Services


def _digest(content: Any) -> str:
    """SHA-256 of a JSON document in canonical form (RFC 8785)."""
    return hashlib.sha256(rfc8785.dumps(content)).hexdigest()


@dataclass(frozen=True)
class Question:
    """A request, resolved against the public facts of its dataset."""

    kind: Kind
    dataset_id: str
    owner_id: str
    options: dict[str, Any]
    shape: Shape
    target: PrivacyTarget
    dummy: bool = False

    @property
    def digest(self) -> str:
        """The same for the same dataset and resolved choices."""
        return _digest(
            {
                "kind": self.kind.name,
                "dataset": self.dataset_id,
                "epsilon": self.target.epsilon,
                "delta": self.target.delta,
                "options": self.options,
            }
            | ({"dummy": True} if self.dummy else {})
        )


def resolve(
    session: Session, caller: Principal, kind: Kind, request: EstimateRequest, dataset_id: str
) -> Question:
    """What a request asks of a registered dataset, with the defaults that follow from public facts.

    Raises:
        Invalid: the dataset is of another kind.
        NotFound: the caller has no such dataset.
    """
    caller.must_be("owner", "analyst")
    dataset = datasets.require(session, caller, dataset_id)
    shape = SCHEMA.validate_json(dataset.dataset_schema).shape(dataset.n)
    dummy = isinstance(request.dataset, DatasetRef) and request.dataset.dummy
    return _question(session, kind, request, dataset.kind, dataset.id, dataset.owner_id, shape, dummy=dummy)


def resolve_inline(session: Session, caller: Principal, kind: Kind, request: EstimateRequest) -> Question:
    """What a request asks of rows that came with it. Of them nothing is looked at but how many they are.

    Raises:
        Invalid: the rows are of another kind, or too few.
        Forbidden: the caller is no owner, who alone may bring rows.
    """
    caller.must_be("owner")
    given = _inline(request)
    unit = given.declared.unit
    whose = [row.get(unit.column) if isinstance(row, dict) else None for row in given.rows] if unit else []
    n = len(set(map(unit_of, whose))) if unit else len(given.rows)
    if n < LEAST_RECORDS:
        raise Invalid(f"a dataset has at least {LEAST_RECORDS} records")
    shape = given.declared.shape(n)
    facts = {"schema": given.declared.model_dump(mode="json"), "n": shape.n}
    return _question(
        session, kind, request, given.declared.kind, f"inline {_digest(facts)}", caller.id, shape
    )


def _inline(request: EstimateRequest) -> InlineRows:
    assert isinstance(request.dataset, InlineRef)  # noqa: S101 - of those alone
    return request.dataset.inline


def _question(
    session: Session,
    kind: Kind,
    request: EstimateRequest,
    dataset_kind: str,
    dataset_id: str,
    owner_id: str,
    shape: Shape,
    *,
    dummy: bool = False,
) -> Question:
    if dataset_kind != kind.dataset_kind:
        raise Invalid(f"{kind.name} needs a dataset of kind {kind.dataset_kind}")
    delta = request.privacy.delta
    if delta is None:
        account = ledger.owner_account(session, owner_id)
        pure = account.composition == "basic" and account.delta_limit == 0
        delta = 0.0 if pure else shape.n**-1.5
    target = PrivacyTarget(request.privacy.epsilon, delta)
    return Question(kind, dataset_id, owner_id, kind.options(request), shape, target, dummy)


def plan(services: Services, question: Question) -> Plan:
    """The plan of a question; one that takes long is made by a worker, and remembered.

    Raises:
        Invalid: a choice is out of range.
        Unavailable: the worker did not come to an end.
    """
    kind, options, shape, target = question.kind, question.options, question.shape, question.target
    try:
        if not kind.is_heavy(options):
            return kind.plan(options, shape, target)
        made = services.engine.remembered(
            question.digest, lambda: services.engine.call_worker(plan_job, kind.name, options, shape, target)
        )
    except ValueError as error:
        raise Invalid(str(error)) from None
    return kind.plans.validate_json(made)


def second_opinion(services: Services, question: Question, planned: Plan) -> SecondOpinion | None:
    """Another accountant's view of a plan, by a worker, and remembered; None if the worker is lost.

    Only looks at plans ask for it. What is charged and stored knows nothing of it.
    """
    try:
        told = services.engine.remembered(
            f"second opinion on {question.digest}",
            lambda: services.engine.call_worker(opinion_job, planned.releases, planned.target.delta),
        )
    except Unavailable:
        return None
    return SecondOpinion.model_validate_json(told)


@dataclass(frozen=True)
class Reservation:
    """A job as it was just charged."""

    job: Job
    plan: Plan
    charged: list[tuple[Account, Charge]]


@dataclass(frozen=True)
class Answer:
    """The job that answers a request, and whether it was there before."""

    job_id: str
    reused: bool
    fresh: Reservation | None = None


@dataclass(frozen=True)
class Asked:
    """A request of a caller, under a key; its digest binds the key to it."""

    caller: Principal
    kind: Kind
    request: EstimateRequest
    key: str
    digest: str


def asked(services: Services, caller: Principal, kind: Kind, request: EstimateRequest, key: str) -> Asked:
    """A request with what its key is bound to."""
    body = request.model_dump(mode="json")
    if isinstance(request.dataset, InlineRef):
        # Not everything in rows has a canonical form; and their digest outlives them, so it has a key.
        rows = json.dumps(request.dataset.inline.rows).encode()
        secret = services.settings.secret
        body["dataset"]["inline"]["rows"] = hmac.new(secret, rows, hashlib.sha256).hexdigest()
    elif not request.dataset.dummy:
        del body["dataset"]["dummy"]  # as bodies were before there were dummies: keys are bound for ever
    return Asked(caller, kind, request, key, _digest({"kind": kind.name, "body": body}))


def replay(session: Session, ask: Asked) -> Answer | None:
    """What this caller got under this key before; None if the key is new.

    Raises:
        IdempotencyKeyReused: the key came with another request.
    """
    bound = ledger.find_by_key(session, ask.caller.id, ask.key)
    if bound is None:
        return None
    if bound.body_digest != ask.digest:
        raise IdempotencyKeyReused
    return Answer(bound.job_id, bound.reused)


def submit(services: Services, ask: Asked, dataset_id: str) -> Answer:
    """Charge a request and put its job in the queue, or find the job that answers it already.

    Raises:
        Problem: whatever refuses the request; nothing is then charged and the key stays free.
    """
    with services.database.read() as session:
        if known := replay(session, ask):
            return known
        question = resolve(session, ask.caller, ask.kind, ask.request, dataset_id)
        _refuse_if_full(session, services, question, ask.caller)
    planned = plan(services, question)
    try:
        answer = services.database.run(
            lambda session: (_reserve_free if question.dummy else _reserve)(session, ask, question, planned)
        )
    except BudgetExceeded as refused:
        # Of an owner's budgets an analyst knows its own cap alone.
        known = refused.scope == "analyst" or ask.caller.id == question.owner_id
        raise (refused if known else BudgetExceeded()) from None
    services.engine.notify()
    return answer


def _refuse_if_full(session: Session, services: Services, question: Question, caller: Principal) -> None:
    """Keep the queue short.

    Raises:
        Unavailable: too many jobs wait, or too many dummies of this caller, who pays for none of them.
    """
    most = services.settings.max_waiting_jobs
    if ledger.waiting(session) >= most or (
        question.dummy and ledger.waiting(session, dummies_of=caller.id) >= max(1, most // 100)
    ):
        raise Unavailable("too many jobs wait; try again later")


async def submit_inline(services: Services, ask: Asked) -> Answer:
    """The same of rows that come with the request: a dataset of the caller's until it is answered.

    Raises:
        Problem: whatever refuses the request or its rows; nothing is then charged or kept.
    """
    engine, given = services.engine, _inline(ask.request)

    def before() -> Answer | None:
        """All that can refuse the request before its rows are looked at."""
        with services.database.read() as session:
            if known := replay(session, ask):
                return known
            question = resolve_inline(session, ask.caller, ask.kind, ask.request)
            _refuse_if_full(session, services, question, ask.caller)
        planned = plan(services, question)
        with services.database.read() as session:
            account = ledger.owner_account(session, question.owner_id)
            ledger.require_room([account], [Charge.of(planned.target, planned.cost)])
        return None

    if known := await engine.in_thread(before):
        return known
    source = datasets.inline(services, given.rows)
    dataset = await datasets.register(services, ask.caller.id, source, given.declared, ephemeral=True)
    fresh = False
    try:
        answer = await engine.in_thread(submit, services, ask, dataset.id)
        fresh = answer.fresh is not None
        return answer
    finally:
        if not fresh:
            await engine.in_thread(datasets.forget, services, dataset)


def _reserve_free(session: Session, ask: Asked, question: Question, planned: Plan) -> Answer:
    """Put a question on synthetic rows in the queue: nobody's budget moves, and no row is read."""
    dataset, grant = datasets.require_access(session, ask.caller, question.dataset_id, hold=True)
    bound, known = _bound(session, ask, question, (grant or dataset).created_at)
    if known:
        return known
    job = _job(ask.caller, question, planned)
    bound.job_id = job.id
    ledger.reserve_free(session, job, bound)
    return Answer(job.id, reused=False, fresh=Reservation(job, planned, []))


def _bound(
    session: Session, ask: Asked, question: Question, since: datetime
) -> tuple[IdempotencyKey, Answer | None]:
    """The key to be bound to a job, and what it was bound to before or can be without a new one."""
    bound = IdempotencyKey(principal_id=ask.caller.id, key=ask.key, body_digest=ask.digest)
    if known := replay(session, ask):
        return bound, known
    if ask.request.reuse and (earlier := _answered(session, ask.caller, question, since)):
        bound.job_id, bound.reused = earlier, True
        session.add(bound)
        return bound, Answer(earlier, reused=True)
    return bound, None


def _job(caller: Principal, question: Question, planned: Plan) -> Job:
    return Job(
        id=new_id("job"),
        kind=question.kind.name,
        submitter_id=caller.id,
        owner_id=question.owner_id,
        dataset_id=question.dataset_id,
        spec_digest=question.digest,
        plan=question.kind.plans.dump_json(planned).decode(),
        dummy=question.dummy,
    )


def _reserve(session: Session, ask: Asked, question: Question, planned: Plan) -> Answer:
    """Charge a planned question, in one transaction with its job and its key.

    Raises:
        Problem: whatever refuses the request.
    """
    # Between planning and now the grant or the dataset may be gone or changed, or the key be taken: by a
    # charge of the same accounts, which is either over when they are held, or yet to come.
    dataset, grant = datasets.require_access(session, ask.caller, question.dataset_id, hold=True)
    subjects: dict[ledger.Scope, str] = {"dataset": dataset.fingerprint}
    if grant is not None:
        subjects["analyst"] = datasets.grant_subject(dataset.id, ask.caller.id)
    if dataset.ephemeral:
        ledger.ensure_account(session, dataset.owner_id, "dataset", dataset.fingerprint)
    owner = session.get_one(Owner, dataset.owner_id, with_for_update={"read": True}, populate_existing=True)
    accounts = ledger.accounts_in_force(session, owner, subjects, lock=True)
    bound, known = _bound(session, ask, question, (grant or dataset).created_at)
    if known:
        return known
    job = _job(ask.caller, question, planned)
    bound.job_id = job.id
    why = mechanism(job.kind, dataset.id, planned.target, planned.releases)
    charges = [Charge.of(planned.target, planned.cost)] * len(accounts)
    ledger.reserve(session, job, accounts, charges, why, bound)
    charged = list(zip(accounts, charges, strict=True))
    return Answer(job.id, reused=False, fresh=Reservation(job, planned, charged))


def _answered(session: Session, caller: Principal, question: Question, since: datetime) -> str | None:
    """A job of this caller that answers the same question or is about to, no older than its access."""
    return session.scalar(
        select(Job.id)
        .where(
            Job.submitter_id == caller.id,
            Job.spec_digest == question.digest,
            Job.state.in_(("reserved", "claimed", "committed")),
            Job.created_at >= since,
        )
        .order_by(Job.created_at, Job.id)
        .limit(1)
    )


def is_over(services: Services, job_id: str) -> bool:
    """Whether a job has reached its end."""
    with services.database.read() as session:
        return session.scalar(select(Job.state).where(Job.id == job_id)) in FINAL


def require_job(session: Session, caller: Principal, job_id: str) -> Job:
    """A job that the caller submitted, or that was charged to it.

    Raises:
        NotFound: there is none for this caller.
    """
    job = session.get(Job, job_id)
    if job is None or caller.id not in (job.submitter_id, job.owner_id):
        raise NotFound
    return job

"""From a request to a charged job, and from a job to its answer."""

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

import rfc8785
import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest.estimators.base import Plan
from privest.estimators.federation import Federated, Part
from privest.metadata import DatasetMetadata
from privest.privacy.cost import PrivacyTarget
from privest_service.database.tables import new_id
from privest_service.datasets import service as datasets
from privest_service.datasets.ingest import LEAST_RECORDS
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.readers.layout import unit_of
from privest_service.datasets.schemas import SCHEMA, DatasetSchema
from privest_service.estimates.catalogue import Kind
from privest_service.estimates.schemas import (
    FINAL,
    DatasetPart,
    DatasetRef,
    EstimateRequest,
    InlineRef,
    InlineRows,
    RequestedPrivacy,
    SecondOpinion,
)
from privest_service.estimates.tasks import opinion_job, plan_job
from privest_service.jobs import idempotency
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import charges, entries
from privest_service.ledger import service as ledger
from privest_service.ledger.mechanisms import mechanism
from privest_service.ledger.models import Account, Mechanism
from privest_service.ledger.units import Charge
from privest_service.limits import UPLOADS
from privest_service.problems import (
    AccountFrozen,
    BudgetExceeded,
    DatabaseUnavailable,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from privest_service.security.models import Owner
from privest_service.security.principals import Principal
from privest_service.services import Services
from privest_service.telemetry import traces

_SOMEBODY_ELSES = "your own caps allow it; an owner's budget, another cap or a freeze does not: ask the owner"
"""What an analyst is told of every refusal that its own caps did not make."""

log = structlog.get_logger()


def _digest(content: Any) -> str:
    """SHA-256 of a JSON document in canonical form (RFC 8785)."""
    return hashlib.sha256(rfc8785.dumps(content)).hexdigest()


@dataclass(frozen=True)
class QueryTarget:
    """A dataset that is asked about, and the privacy of its records."""

    dataset_id: str
    owner_id: str
    shape: DatasetMetadata
    target: PrivacyTarget

    @property
    def facts(self) -> dict[str, Any]:
        """What tells it from others."""
        return {"dataset": self.dataset_id, "epsilon": self.target.epsilon, "delta": self.target.delta}


@dataclass(frozen=True)
class ResolvedQuery:
    """A request, resolved against the public facts of its datasets."""

    caller_id: str
    kind: Kind
    about: tuple[QueryTarget, ...]
    options: dict[str, Any]
    dummy: bool = False

    @property
    def digest(self) -> str:
        """The same for the same datasets and resolved choices, whoever asks."""
        facts = sorted((subject.facts for subject in self.about), key=lambda each: each["dataset"])
        about = facts[0] if len(facts) == 1 else {"datasets": facts}
        dummy = {"dummy": True} if self.dummy else {}
        return _digest({"kind": self.kind.name, "options": self.options} | about | dummy)

    @property
    def name(self) -> str:
        """The name of its remembered plan: the caller's own, or time would tell what others asked.

        It tells the order of the datasets, too, of which the digest knows nothing.
        """
        return " ".join([self.caller_id, self.digest, *(subject.dataset_id for subject in self.about)])


def resolve(
    session: Session, caller: Principal, kind: Kind, request: EstimateRequest, rows: str | None = None
) -> ResolvedQuery:
    """What a request asks of registered datasets, with the defaults that follow from public facts.

    Args:
        session: of the caller's transaction.
        caller: who asks.
        kind: of estimate.
        request: as it came.
        rows: the dataset that was made of the rows in it.

    Raises:
        Invalid: a dataset is of another kind.
        NotFound: the caller has no such dataset.
    """
    caller.must_be("owner", "analyst")
    named = _named(request) if rows is None else [DatasetPart(id=rows)]
    about, schemas = list[QueryTarget](), list[DatasetSchema]()
    for part in named:
        dataset = datasets.require(session, caller, part.id)
        schemas.append(SCHEMA.validate_json(dataset.dataset_schema))
        privacy, shape = part.privacy or request.privacy, schemas[-1].shape(dataset.n)
        about.append(_subject(session, kind, privacy, dataset.kind, dataset.id, dataset.owner_id, shape))
    _refuse_unlike(schemas)
    return ResolvedQuery(caller.id, kind, tuple(about), kind.options(request), named[0].dummy)


def _refuse_unlike(schemas: Sequence[DatasetSchema]) -> None:
    """Refuse datasets whose records are not of one kind: what was made of raw rows, and what a record is.

    Raises:
        Invalid: these are not.
    """
    first, *others = (schema.model_dump() for schema in schemas)
    unlike = {name for other in others for name in first if other.get(name) != first[name]}
    if unlike:
        told = ", ".join(sorted(unlike))
        raise Invalid(f"datasets of one question must have the same schema; these differ in {told}")


def _named(request: EstimateRequest) -> list[DatasetPart]:
    """The registered datasets of a request; a list of one is that one."""
    about = request.dataset
    if isinstance(about, list):
        return about
    assert isinstance(about, DatasetRef)  # noqa: S101 - rows are registered first
    return [DatasetPart(id=about.id, dummy=about.dummy)]


def resolve_inline(
    session: Session, caller: Principal, kind: Kind, request: EstimateRequest
) -> ResolvedQuery:
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
    name = f"inline {_digest(facts)}"
    subject = _subject(session, kind, request.privacy, given.declared.kind, name, caller.id, shape)
    return ResolvedQuery(caller.id, kind, (subject,), kind.options(request))


def _inline(request: EstimateRequest) -> InlineRows:
    assert isinstance(request.dataset, InlineRef)  # noqa: S101 - of those alone
    return request.dataset.inline


def _subject(
    session: Session,
    kind: Kind,
    privacy: RequestedPrivacy,
    dataset_kind: str,
    dataset_id: str,
    owner_id: str,
    shape: DatasetMetadata,
) -> QueryTarget:
    if dataset_kind != kind.dataset_kind:
        raise Invalid(
            f"{kind.name} needs a dataset of kind {kind.dataset_kind}, and this one is of kind {dataset_kind}"
        )
    delta = privacy.delta
    if delta is None:
        account = ledger.owner_account(session, owner_id)
        pure = account.composition == "basic" and account.delta_limit == 0
        delta = 0.0 if pure else shape.n**-1.5
    return QueryTarget(dataset_id, owner_id, shape, PrivacyTarget(privacy.epsilon, delta))


def plan(services: Services, question: ResolvedQuery, *, free: bool = True) -> Plan:
    """The plan of a question; one that takes long is made by a worker, and remembered.

    Args:
        services: of this process.
        question: to be planned.
        free: whether it is only looked at; what is to be charged finds a place where such plans find none.

    Raises:
        Invalid: a choice is out of range.
        TooManyRequests: too many plans of the caller's are being made.
        Unavailable: the worker did not come to an end, or too many plans are being made.
    """
    kind, options = question.kind, question.options
    about = [(subject.shape, subject.target) for subject in question.about]
    try:
        if not kind.is_heavy(options):
            return kind.plan_for(options, about)
        name = f"plan {question.name}"
        made = services.plans.get(name) or services.plans.keep(
            name,
            services.engine.call_worker(question.caller_id, plan_job, kind.name, options, about, free=free),
        )
    except ValueError as error:
        raise Invalid(str(error)) from None
    return kind.plans.validate_json(made)


def second_opinion(services: Services, question: ResolvedQuery, planned: Plan) -> SecondOpinion | None:
    """Another accountant's view of a plan, by a worker; None if that is lost, or too many wait for one.

    Only looks at plans ask for it. What is charged and stored knows nothing of it. Of several datasets it
    is on the one that gives most.
    """
    asked = planned.most if isinstance(planned, Federated) else planned
    try:
        told = services.engine.call_worker(
            question.caller_id, opinion_job, asked.releases, asked.target.delta
        )
    except (TooManyRequests, Unavailable):
        return None
    return SecondOpinion.model_validate_json(told)


@dataclass(frozen=True)
class Reservation:
    """A job as it was just charged."""

    job: Job
    plan: Plan
    charged: list[tuple[Account, str | None, Charge]]
    """Accounts, for which dataset, and how much."""


@dataclass(frozen=True)
class Answer:
    """The job that answers a request, and whether it was there before."""

    job_id: str
    reused: bool
    fresh: Reservation | None = None


@dataclass(frozen=True)
class EstimateCommand:
    """A request of a caller, under a key; its digest binds the key to it."""

    caller: Principal
    kind: Kind
    request: EstimateRequest
    key: str
    digest: str


def asked(
    services: Services, caller: Principal, kind: Kind, request: EstimateRequest, key: str
) -> EstimateCommand:
    """A request with what its key is bound to."""
    body = request.model_dump(mode="json")
    if isinstance(request.dataset, InlineRef):
        # Not everything in rows has a canonical form; and their digest outlives them, so it has a key.
        rows = json.dumps(request.dataset.inline.rows).encode()
        secret = services.settings.secret
        body["dataset"]["inline"]["rows"] = hmac.new(secret, rows, hashlib.sha256).hexdigest()
    return EstimateCommand(caller, kind, request, key, _digest({"kind": kind.name, "body": body}))


def replay(session: Session, ask: EstimateCommand) -> Answer | None:
    """What this caller got under this key before; None if the key is new.

    Raises:
        IdempotencyKeyReused: the key came with another request.
    """
    bound = idempotency.find(session, ask.caller.id, ask.key, ask.digest)
    return bound and Answer(bound.job_id, bound.reused)


def submit(services: Services, ask: EstimateCommand, rows: str | None = None) -> Answer:
    """Charge a request and put its job in the queue, or find the job that answers it already.

    Args:
        services: of this process.
        ask: the request.
        rows: the dataset that was made of the rows in it.

    Raises:
        Problem: whatever refuses the request; nothing is then charged and the key stays free.
    """
    with services.database.read() as session:
        if known := replay(session, ask):
            return known
        question = resolve(session, ask.caller, ask.kind, ask.request, rows)
        _refuse_if_full(session, services, question, ask.caller)
    with traces.step("plan"):
        planned = plan(services, question, free=False)
    draft = _Draft.of(question, planned)  # which takes a while on many datasets, and no lock
    try:
        with traces.step("charge"):
            answer = services.database.run(
                lambda session: (_reserve_free if question.dummy else _reserve)(session, ask, question, draft)
            )
    except (BudgetExceeded, AccountFrozen) as refused:
        # An analyst knows its own cap alone: all else is one answer, whoever and whatever refused.
        known = refused.scope == "analyst" or ask.caller.role == "owner"
        raise (refused if known else BudgetExceeded(_SOMEBODY_ELSES)) from None
    services.engine.notify()
    log.info("job reserved" if answer.fresh else "job known", job=answer.job_id)
    return answer


def _refuse_if_full(session: Session, services: Services, question: ResolvedQuery, caller: Principal) -> None:
    """Keep the queue short, and room in it for others whatever one caller asks.

    Raises:
        Unavailable: too many jobs wait, or too many of this caller, or of its dummies, which cost it nothing.
    """
    most = services.settings.max_waiting_jobs
    everybody, own, dummies = jobs.waiting_for(session, caller.id)
    if everybody >= most:
        raise Unavailable("too many jobs wait; try again later", retry_after=5)
    if own >= max(2, most // 4) or (question.dummy and dummies >= max(1, most // 100)):
        raise Unavailable("too many jobs of yours wait; try again when some of them are over", retry_after=5)


async def submit_inline(
    services: Services, caller: Principal, kind: Kind, request: EstimateRequest, key: str
) -> Answer:
    """The same of rows that come with the request: a dataset of the caller's until it is answered.

    Raises:
        Problem: whatever refuses the request or its rows; nothing is then charged or kept.
    """
    with services.limiter.hold(UPLOADS, caller.id):
        return await _submit_inline(services, caller, kind, request, key)


async def _submit_inline(
    services: Services, caller: Principal, kind: Kind, request: EstimateRequest, key: str
) -> Answer:
    engine, given = services.engine, _inline(request)
    ask = await engine.in_thread(asked, services, caller, kind, request, key)

    def before() -> Answer | None:
        """All that can refuse the request before its rows are looked at."""
        with services.database.read() as session:
            if known := replay(session, ask):
                return known
            question = resolve_inline(session, ask.caller, ask.kind, ask.request)
            _refuse_if_full(session, services, question, ask.caller)
        planned = plan(services, question, free=False)
        with services.database.read() as session:
            account = ledger.owner_account(session, ask.caller.id)
            entries.require_room([account], [Charge.of(planned.target, planned.cost)])
        return None

    if known := await engine.in_thread(before):
        return known
    source = datasets.inline(services, given.rows)
    dataset = await datasets.register(
        services, ask.caller.id, source, given.declared, rows_of=given.rows_of, ephemeral=True
    )
    asked_about = False
    try:
        answer = await engine.in_thread(submit, services, ask, dataset.id)
        asked_about = answer.fresh is not None
        return answer
    except DatabaseUnavailable:  # perhaps it was charged: if not, `sweep` drops the rows
        asked_about = True
        raise
    finally:
        if not asked_about:
            await engine.in_thread(datasets.forget, services, dataset)


@dataclass(frozen=True)
class _Access:
    """A dataset that a caller may ask about, held until the transaction ends."""

    dataset: Dataset
    grant: Grant | None

    @property
    def since(self) -> datetime:
        """When it began; earlier answers were given on another access."""
        return (self.grant or self.dataset).created_at


@dataclass(frozen=True)
class _Draft:
    """What is written of a planned question, made before any lock is held.

    Attributes:
        planned: the plan.
        digest: of the question.
        plan: as it is stored.
        parts: of it, likewise, where it is on several datasets.
        charges: what each dataset is charged, and for what.
    """

    planned: Plan
    digest: str
    plan: str
    parts: list[str]
    charges: list[tuple[Charge, Mechanism]]

    @classmethod
    def of(cls, question: ResolvedQuery, planned: Plan) -> "_Draft":
        """All of it."""
        kind = question.kind
        parts = planned.parts if isinstance(planned, Federated) else ()
        charges = [
            (
                Charge.of(each.target, each.cost),
                mechanism(kind.name, subject.dataset_id, each.target, each.releases),
            )
            for subject, each in zip(question.about, parts or [planned], strict=True)
        ]

        def written(plan: Plan | Part) -> str:
            return kind.plans.dump_json(plan).decode()

        return cls(planned, question.digest, written(planned), [written(part) for part in parts], charges)


def _held(session: Session, ask: EstimateCommand, question: ResolvedQuery) -> list[_Access]:
    """The datasets of a question, which none of its parties can withdraw now.

    Raises:
        NotFound: one of them was withdrawn meanwhile.
    """
    found = {
        dataset_id: _Access(*datasets.require_access(session, ask.caller, dataset_id, hold=True))
        for dataset_id in sorted(subject.dataset_id for subject in question.about)
    }
    return [found[subject.dataset_id] for subject in question.about]


def _reserve_free(session: Session, ask: EstimateCommand, question: ResolvedQuery, draft: _Draft) -> Answer:
    """Put a question on synthetic rows in the queue: nobody's budget moves, and no row is read."""
    accesses = _held(session, ask, question)
    bound, known = _bound(session, ask, question, accesses)
    if known:
        return known
    job, parts = _jobs(ask.caller, question, draft)
    bound.job_id = job.id
    jobs.add(session, job, bound, parts)
    return Answer(job.id, reused=False, fresh=Reservation(job, draft.planned, []))


def _bound(
    session: Session, ask: EstimateCommand, question: ResolvedQuery, accesses: Sequence[_Access]
) -> tuple[IdempotencyKey, Answer | None]:
    """The key to be bound to a job, and what it was bound to before or can be without a new one."""
    bound = IdempotencyKey(principal_id=ask.caller.id, key=ask.key, body_digest=ask.digest)
    if known := replay(session, ask):
        return bound, known
    since = max(access.since for access in accesses)
    if ask.request.reuse and (earlier := _answered(session, ask.caller, question, since)):
        bound.job_id, bound.reused = earlier, True
        session.add(bound)
        return bound, Answer(earlier, reused=True)
    return bound, None


def _jobs(caller: Principal, question: ResolvedQuery, draft: _Draft) -> tuple[Job, list[Job]]:
    """The job of a question and, on several datasets, a part of it for each."""

    def job(plan: str, digest: str, **of: Any) -> Job:
        return Job(
            id=new_id("job"),
            kind=question.kind.name,
            submitter_id=caller.id,
            spec_digest=digest,
            plan=plan,
            dummy=question.dummy,
            **of,
        )

    if not draft.parts:
        (subject,) = question.about
        return job(draft.plan, draft.digest, owner_id=subject.owner_id, dataset_id=subject.dataset_id), []
    whole = job(draft.plan, draft.digest)
    parts = [
        job(
            plan,
            _digest({"part of": draft.digest, "place": place}),  # that no question has
            part_of=whole.id,
            place=place,
            owner_id=subject.owner_id,
            dataset_id=subject.dataset_id,
        )
        for place, (subject, plan) in enumerate(zip(question.about, draft.parts, strict=True))
    ]
    return whole, parts


def _reserve(session: Session, ask: EstimateCommand, question: ResolvedQuery, draft: _Draft) -> Answer:
    """Charge a planned question, in one transaction with its job and its key: every owner or none.

    Raises:
        Problem: whatever refuses the request.
    """
    # Between planning and now a grant or a dataset may be gone or changed, or the key be taken: by a charge
    # of the same accounts, which is either over when they are held, or yet to come.
    accesses = _held(session, ask, question)
    concerned = _concerned(session, ask.caller, accesses)
    accounts = ledger.accounts_of(session, concerned, lock=True)
    bound, known = _bound(session, ask, question, accesses)
    if known:
        return known
    job, parts = _jobs(ask.caller, question, draft)
    bound.job_id = job.id
    debits = list[charges.Debits]()
    for each, (charge, why), (owner, subjects) in zip(parts or [job], draft.charges, concerned, strict=True):
        own = {"owner": "", **subjects}
        by_scope = {a.scope: a for a in accounts if a.owner_id == owner.id and own.get(a.scope) == a.subject}
        theirs = [by_scope[scope] for scope in get_args(ledger.Scope) if scope in by_scope]
        debits.append(charges.Debits(each, theirs, [charge] * len(theirs), why))
    charges.reserve(session, job, debits, bound)
    charged = [
        (account, each.job.dataset_id, charge)
        for each in debits
        for account, charge in zip(each.accounts, each.charges, strict=True)
    ]
    return Answer(job.id, reused=False, fresh=Reservation(job, draft.planned, charged))


def _concerned(
    session: Session, caller: Principal, accesses: Sequence[_Access]
) -> list[tuple[Owner, dict[ledger.Scope, str]]]:
    """Whose budgets are concerned, dataset by dataset, and what of them besides the owner's own.

    Owners are held, so that none opens a new window or is frozen meanwhile, in a fixed order.
    """
    owners = {
        owner_id: ledger.held_owner(session, owner_id)
        for owner_id in sorted({access.dataset.owner_id for access in accesses})
    }
    found = list[tuple[Owner, dict[ledger.Scope, str]]]()
    for access in accesses:
        # Rows that came with a question have an account to be counted in only where one was declared.
        subjects: dict[ledger.Scope, str] = {"dataset": access.dataset.lineage}
        if access.grant is not None:
            subjects["analyst"] = datasets.grant_subject(access.dataset.id, caller.id)
        found.append((owners[access.dataset.owner_id], subjects))
    return found


def _answered(session: Session, caller: Principal, question: ResolvedQuery, since: datetime) -> str | None:
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

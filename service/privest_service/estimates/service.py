"""From a request to a charged job, and from a job to its answer."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from math import sqrt
from typing import Any

import rfc8785
from sqlalchemy import select
from sqlalchemy.orm import Session

from privest.privacy.certificates import Release, SampledSums
from privest.privacy.cost import PrivacyTarget
from privest.shapes import Shape
from privest_service.database.tables import new_id
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.kinds import KINDS, Kind, Plan, opinion_job, plan_job
from privest_service.estimates.schemas import (
    FINAL,
    ChargeView,
    EstimateRequest,
    JobView,
    PlanView,
    Privacy,
    ReleaseView,
    SecondOpinion,
)
from privest_service.ledger import service as ledger
from privest_service.ledger.mechanisms import mechanism
from privest_service.ledger.models import Account, Entry, IdempotencyKey, Job
from privest_service.ledger.receipts import Receipt
from privest_service.ledger.units import EPSILON, MU_SQUARED, PROBABILITY, Charge, as_number
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
    dataset: Dataset
    options: dict[str, Any]
    shape: Shape
    target: PrivacyTarget

    @property
    def digest(self) -> str:
        """The same for the same dataset and resolved choices."""
        return _digest(
            {
                "kind": self.kind.name,
                "dataset": self.dataset.id,
                "epsilon": self.target.epsilon,
                "delta": self.target.delta,
                "options": self.options,
            }
        )


def resolve(session: Session, caller: Principal, kind: Kind, request: EstimateRequest) -> Question:
    """What a request asks, with the defaults that follow from public facts.

    Raises:
        Invalid: the dataset is of another kind.
        NotFound: the caller has no such dataset.
    """
    caller.must_be("owner", "analyst")
    dataset = datasets.require(session, caller, request.dataset.id)
    if dataset.kind != kind.dataset_kind:
        raise Invalid(f"{kind.name} needs a dataset of kind {kind.dataset_kind}")
    delta = request.privacy.delta
    if delta is None:
        account = ledger.owner_account(session, dataset.owner_id)
        pure = account.composition == "basic" and account.delta_limit == 0
        delta = 0.0 if pure else dataset.n**-1.5
    shape = SCHEMA.validate_json(dataset.dataset_schema).shape(dataset.n)
    return Question(
        kind, dataset, kind.options(request), shape, PrivacyTarget(request.privacy.epsilon, delta)
    )


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


def replay(
    session: Session, caller: Principal, kind: Kind, request: EstimateRequest, key: str
) -> Answer | None:
    """What this caller got under this key before; None if the key is new.

    Raises:
        IdempotencyKeyReused: the key came with another request.
    """
    bound = ledger.find_by_key(session, caller.id, key)
    if bound is None:
        return None
    if bound.body_digest != _body_digest(kind, request):
        raise IdempotencyKeyReused
    return Answer(bound.job_id, bound.reused)


def _body_digest(kind: Kind, request: EstimateRequest) -> str:
    return _digest({"kind": kind.name, "body": request.model_dump(mode="json")})


def submit(services: Services, caller: Principal, kind: Kind, request: EstimateRequest, key: str) -> Answer:
    """Charge a request and put its job in the queue, or find the job that answers it already.

    Raises:
        Problem: whatever refuses the request; nothing is then charged and the key stays free.
    """
    with services.database.read() as session:
        if known := replay(session, caller, kind, request, key):
            return known
        question = resolve(session, caller, kind, request)
        if ledger.waiting(session) >= services.settings.max_waiting_jobs:
            raise Unavailable("too many jobs wait; try again later")
    planned = plan(services, question)
    try:
        answer = services.database.run(
            lambda session: _reserve(session, caller, request, question, planned, key)
        )
    except BudgetExceeded as refused:
        # Of an owner's budgets an analyst knows its own cap alone.
        known = refused.scope == "analyst" or caller.id == question.dataset.owner_id
        raise (refused if known else BudgetExceeded()) from None
    services.engine.notify()
    return answer


def _reserve(
    session: Session, caller: Principal, request: EstimateRequest, question: Question, planned: Plan, key: str
) -> Answer:
    """Charge a planned question, in one transaction with its job and its key.

    Raises:
        Problem: whatever refuses the request.
    """
    # Between planning and now the grant or the dataset may be gone or changed, or the key be taken: by a
    # charge of the same accounts, which is either over when they are held, or yet to come.
    kind = question.kind
    dataset, grant = datasets.require_access(session, caller, question.dataset.id, hold=True)
    subjects: dict[ledger.Scope, str] = {"dataset": dataset.fingerprint}
    if grant is not None:
        subjects["analyst"] = datasets.grant_subject(dataset.id, caller.id)
    owner = session.get_one(Owner, dataset.owner_id, with_for_update={"read": True}, populate_existing=True)
    accounts = ledger.accounts_in_force(session, owner, subjects, lock=True)
    if known := replay(session, caller, kind, request, key):
        return known
    bound = IdempotencyKey(principal_id=caller.id, key=key, body_digest=_body_digest(kind, request))
    since = grant.created_at if grant else dataset.created_at
    if request.reuse and (earlier := _answered(session, caller, question, since)):
        bound.job_id, bound.reused = earlier, True
        session.add(bound)
        return Answer(earlier, reused=True)
    job = Job(
        id=new_id("job"),
        kind=kind.name,
        submitter_id=caller.id,
        owner_id=dataset.owner_id,
        dataset_id=dataset.id,
        spec_digest=question.digest,
        plan=kind.plans.dump_json(planned).decode(),
    )
    bound.job_id = job.id
    why = mechanism(kind.name, dataset.id, planned.target, planned.releases)
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


def view(session: Session, caller: Principal, job: Job, *, reused: bool = False) -> JobView:
    """A job as its submitter reads it; its owner reads what was charged, not the answer."""
    charged = session.execute(
        select(Account, Entry)
        .join(Entry, Account.id == Entry.account_id)
        .where(Entry.job_id == job.id, Entry.kind == "debit")
        .order_by(Entry.account_id)
    ).tuples()
    return _view(caller, job, KINDS[job.kind].plans.validate_json(job.plan), charged, reused)


def view_of_fresh(caller: Principal, reserved: Reservation) -> JobView:
    """The same of a job that was just charged, without asking the database again."""
    return _view(caller, reserved.job, reserved.plan, reserved.charged, reused=False)


def _view(
    caller: Principal, job: Job, plan: Plan, charged: Iterable[tuple[Account, Entry | Charge]], reused: bool
) -> JobView:
    kind = KINDS[job.kind]
    answered = caller.id == job.submitter_id and job.result is not None
    return kind.job(
        id=job.id,
        kind=job.kind,
        state=job.state,  # pyright: ignore[reportArgumentType]
        estimate=json.loads(job.result) if answered and job.result else None,
        uncertainty=asdict(plan.expected_error) if answered else None,
        privacy=privacy(plan),
        charges=[
            ChargeView(
                scope=account.scope,
                epsilon=as_number(amount.epsilon, EPSILON),
                delta=as_number(amount.delta, PROBABILITY),
                mu_squared=as_number(amount.mu_squared, MU_SQUARED),
                slack=as_number(amount.slack, PROBABILITY),
            )
            for account, amount in charged
            if account.scope == "owner" or ledger.limits_of(account).capped
        ],
        receipt=Receipt.model_validate_json(job.receipt) if job.receipt else None,
        reused=reused,
    )


def privacy(plan: Plan) -> Privacy:
    """What a plan guarantees."""
    return Privacy(
        epsilon=plan.target.epsilon,
        delta=plan.target.delta,
        mu=sqrt(plan.cost.mu_squared),
        slack=plan.cost.slack,
        mechanism=plan.mechanism,
    )


def plan_view(kind: Kind, plan: Plan, opinion: SecondOpinion | None) -> PlanView:
    """A plan as an analyst reads it."""
    own = {name: getattr(plan, name) for name in kind.own_plan_fields}
    return kind.plan_view(
        **own,
        kind=kind.name,
        privacy=privacy(plan),
        steps=plan.steps,
        releases=[_release_view(release) for release in plan.releases],
        warnings=list(plan.warnings),
        expected_error=asdict(plan.expected_error),
        second_opinion=opinion,
    )


def _release_view(release: Release) -> ReleaseView:
    sampled = isinstance(release, SampledSums)
    return ReleaseView(
        statistic=release.statistic,
        count=release.count,
        noise=release.noise,
        scale=release.scale / release.divisor,
        clip=release.clip,
        mu_squared=None if sampled else release.cost.mu_squared,
        batch=release.divisor if sampled else None,
        sampling=release.scheme if sampled else None,
    )

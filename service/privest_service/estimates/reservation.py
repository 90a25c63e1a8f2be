"""A planned question becomes a charged job, with its key and all debits in one transaction, or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from sqlalchemy import select
from sqlalchemy.orm import Session

from privest.estimators.federation import Federated, Part, Plan
from privest_service.database.tables import new_id
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset, Grant
from privest_service.estimates.catalogue import Kind
from privest_service.estimates.questions import ResolvedQuery, digest_of
from privest_service.estimates.schemas import EstimateRequest
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.mechanisms import mechanism
from privest_service.ledger.models import Account, Mechanism
from privest_service.ledger.units import Charge
from privest_service.security.models import Owner
from privest_service.security.principals import Principal


@dataclass(frozen=True)
class Reservation:
    """A job as it was just charged."""

    job: Job
    plan: Plan
    charged: list[tuple[Account, str | None, Charge]]
    """Accounts with the dataset and the amount of each charge."""


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


def replay(session: Session, ask: EstimateCommand) -> Answer | None:
    """Return what this caller got under this key before; None if the key is new.

    Raises:
        IdempotencyKeyReused: the key came with another request.
    """
    bound = jobs.bound_to(session, ask.caller.id, ask.key, ask.digest)
    return bound and Answer(bound.job_id, bound.reused)


@dataclass(frozen=True)
class _Access:
    """A dataset that a caller may ask about, held until the transaction ends."""

    dataset: Dataset
    grant: Grant | None

    @property
    def since(self) -> datetime:
        """When the present access began; earlier answers were given on another one."""
        return (self.grant or self.dataset).created_at


@dataclass(frozen=True)
class Draft:
    """All that will be written about a planned question, made before any lock is held.

    Attributes:
        planned: the plan.
        digest: of the question.
        plan: the plan as JSON, as it is stored.
        parts: the part of each dataset as JSON, where the plan is on several datasets; else none.
        charges: what each dataset is charged, and for what.
    """

    planned: Plan
    digest: str
    plan: str
    parts: list[str]
    charges: list[tuple[Charge, Mechanism]]

    @classmethod
    def of(cls, question: ResolvedQuery, planned: Plan) -> "Draft":
        """Draft a job of all that was asked."""
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


def reserve_free(session: Session, ask: EstimateCommand, question: ResolvedQuery, draft: Draft) -> Answer:
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


def _jobs(caller: Principal, question: ResolvedQuery, draft: Draft) -> tuple[Job, list[Job]]:
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
            digest_of({"part of": draft.digest, "place": place}),  # that no question has
            part_of=whole.id,
            place=place,
            owner_id=subject.owner_id,
            dataset_id=subject.dataset_id,
        )
        for place, (subject, plan) in enumerate(zip(question.about, draft.parts, strict=True))
    ]
    return whole, parts


def reserve(session: Session, ask: EstimateCommand, question: ResolvedQuery, draft: Draft) -> Answer:
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
    """Return every owner with the budgets that a query concerns besides the owner's own, by dataset.

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

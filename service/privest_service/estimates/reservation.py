"""A planned question becomes a charged job, with its key and all debits in one transaction, or nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, get_args

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from privest.estimators.federation import Federated, Part, Plan
from privest_service.database import now
from privest_service.database.tables import new_id
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.terms import decide_by, require_terms
from privest_service.estimates.catalogue import Kind
from privest_service.estimates.joint import Joint, joint_at_hub
from privest_service.estimates.questions import ResolvedQuery, digest_of
from privest_service.estimates.schemas import EstimateRequest
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.mechanisms import mechanism
from privest_service.ledger.models import Account, Mechanism
from privest_service.ledger.units import Charge
from privest_service.notices import service as notices
from privest_service.problems import Invalid, Problem, TooManyRequests
from privest_service.security.models import Owner
from privest_service.security.principals import Principal

_MOST_REQUESTS = 100
"""Questions of one analyst that may wait for approval: no owner should have to read more."""

_TOLD_AN_HOUR = 10
"""Requests of one analyst in an hour of which an owner is told: who looks at one sees those that follow."""


@dataclass(frozen=True)
class Reservation:
    """A job as it was just charged, or requested."""

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
class Access:
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
        joint: what is noted where a hub and sites run it together.
    """

    planned: Plan
    digest: str
    plan: str
    parts: list[str]
    charges: list[tuple[Charge, Mechanism]]
    joint: Joint | None = None

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

        own = [written(part) for part in parts]
        joint = joint_at_hub(question, planned) if question.at_sites else None
        return cls(planned, question.digest, written(planned), own, charges, joint)


def held(session: Session, caller: Principal, dataset_ids: Sequence[str]) -> list[Access]:
    """The datasets of a question, which none of its parties can withdraw now.

    Raises:
        GrantRefuses: the caller's grant on one of them has ended.
        NotFound: one of them was withdrawn meanwhile.
    """
    found = {
        dataset_id: Access(*datasets.require_access(session, caller, dataset_id, hold=True))
        for dataset_id in sorted(dataset_ids)
    }
    return [found[dataset_id] for dataset_id in dataset_ids]


def _held(session: Session, ask: EstimateCommand, question: ResolvedQuery) -> list[Access]:
    return held(session, ask.caller, [subject.dataset_id for subject in question.about])


def reserve_free(session: Session, ask: EstimateCommand, question: ResolvedQuery, draft: Draft) -> Answer:
    """Put a question on synthetic rows in the queue: nobody's budget moves, and no row is read."""
    accesses = _held(session, ask, question)
    bound, known = _bound(session, ask, question, accesses)
    if known:
        return known
    job, parts = _jobs(ask, question, draft)
    bound.job_id = job.id
    jobs.add(session, job, bound, parts)
    return Answer(job.id, reused=False, fresh=Reservation(job, draft.planned, []))


def _bound(
    session: Session, ask: EstimateCommand, question: ResolvedQuery, accesses: Sequence[Access]
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


def _jobs(
    ask: EstimateCommand, question: ResolvedQuery, draft: Draft, due: Mapping[str, datetime] | None = None
) -> tuple[Job, list[Job]]:
    """The job of a question, and its parts by dataset; `due` tells until when owners have to approve it."""
    due = due or {}

    def job(plan: str, digest: str, **of: Any) -> Job:
        return Job(
            id=new_id("job"),
            kind=question.kind.name,
            submitter_id=ask.caller.id,
            spec_digest=digest,
            plan=plan,
            dummy=question.dummy,
            tag=ask.request.tag,
            state="requested" if due else "reserved",
            **of,
        )

    first = min(due.values(), default=None)
    if not draft.parts:
        (subject,) = question.about
        of = {"owner_id": subject.owner_id, "dataset_id": subject.dataset_id, "decide_by": first}
        return job(draft.plan, draft.digest, **of), []
    whole = job(draft.plan, draft.digest, decide_by=first)
    parts = [
        job(
            plan,
            digest_of({"part of": draft.digest, "place": place}),  # that no question has
            part_of=whole.id,
            place=place,
            owner_id=subject.owner_id,
            dataset_id=subject.dataset_id,
            decide_by=due.get(subject.dataset_id),
        )
        for place, (subject, plan) in enumerate(zip(question.about, draft.parts, strict=True))
    ]
    return whole, parts


def reserve(
    session: Session, ask: EstimateCommand, question: ResolvedQuery, draft: Draft, hours: int
) -> Answer:
    """Charge a planned question, in one transaction with its job and its key: every owner or none.

    Where an owner has to approve it, it becomes a request, and nobody is charged. Owners decide in so many
    hours where their grants do not say another number.

    Raises:
        Problem: whatever refuses the request.
    """
    # Between planning and now a grant or a dataset may be gone or changed, or the key be taken: by a charge
    # of the same accounts, which is either over when they are held, or yet to come.
    accesses = _held(session, ask, question)
    granted = [access.grant for access in accesses if access.grant is not None]
    if due := decide_by(granted, hours):
        return _request(session, ask, question, draft, accesses, due)
    concerned = concerned_by(session, ask.caller, accesses)
    accounts = ledger.accounts_of(session, concerned, lock=True)
    bound, known = _bound(session, ask, question, accesses)
    if known:
        return known
    _require_terms(session, ask, draft, accesses)
    job, parts = _jobs(ask, question, draft)
    bound.job_id = job.id
    debits = debits_of(parts or [job], draft.charges, concerned, accounts)
    charges.reserve(session, job, debits, bound)
    if draft.joint:
        draft.joint.noted(session, job)
    charged = [
        (account, each.job.dataset_id, charge)
        for each in debits
        for account, charge in zip(each.accounts, each.charges, strict=True)
    ]
    return Answer(job.id, reused=False, fresh=Reservation(job, draft.planned, charged))


def reserve_all(
    session: Session, asked: Sequence[tuple[EstimateCommand, ResolvedQuery, Draft]], hours: int
) -> list[Answer]:
    """Charge planned questions of one caller in their order, in one transaction: all of them or none.

    All that any of them holds is held first, in the order in which each of them alone would hold it.

    Raises:
        Problem: whatever refuses one of them, whose place it says.
    """
    caller = asked[0][0].caller
    about = {subject.dataset_id for _, question, _ in asked for subject in question.about}
    ledger.accounts_of(
        session, concerned_by(session, caller, held(session, caller, sorted(about))), lock=True
    )
    answers = list[Answer]()
    for place, (ask, question, draft) in enumerate(asked):
        try:
            answer = reserve(session, ask, question, draft, hours)
        except Problem as refused:
            refused.place = place
            raise
        if answer.fresh is not None and answer.fresh.job.state == "requested":
            raise Invalid(f"Question {place + 1} waits for an owner's approval. Ask it by itself.")
        answers.append(answer)
    return answers


def _request(
    session: Session,
    ask: EstimateCommand,
    question: ResolvedQuery,
    draft: Draft,
    accesses: Sequence[Access],
    due: Mapping[str, datetime],
) -> Answer:
    """Have a planned question wait for its owners, with its price as it is planned now.

    The caller's own caps have to cover it. What else would refuse it is for the owners to see.

    Raises:
        Problem: whatever refuses the request.
    """
    bound, known = _bound(session, ask, question, accesses)
    if known:
        return known
    _require_terms(session, ask, draft, accesses)
    if jobs.requests_of(session, ask.caller.id) >= _MOST_REQUESTS:
        raise TooManyRequests(
            f"{_MOST_REQUESTS} of your questions wait for approval. Withdraw one, or wait for decisions.",
        )
    job, parts = _jobs(ask, question, draft, due)
    bound.job_id = job.id
    concerned = _concerned(session, ask.caller, accesses)
    accounts = ledger.accounts_of(session, concerned)
    charges.require_caps(debits_of(parts or [job], draft.charges, concerned, accounts))
    jobs.add(session, job, bound, parts)
    if draft.joint:
        draft.joint.noted(session, job)
    for each in parts or [job]:
        if each.decide_by is not None:
            _tell_owner(session, each, each.decide_by)
    return Answer(job.id, reused=False, fresh=Reservation(job, draft.planned, []))


def _tell_owner(session: Session, asked: Job, due: datetime) -> None:
    """Tell an owner that a question waits for it, but not of each one of a flood."""
    theirs = (Job.submitter_id == asked.submitter_id, Job.owner_id == asked.owner_id)
    lately = (*theirs, Job.decide_by.is_not(None), Job.created_at > now() - timedelta(hours=1))
    if (session.scalar(select(func.count()).where(*lately)) or 0) <= _TOLD_AN_HOUR:
        told = {"question": asked.id, "estimate": asked.kind, "dataset": asked.dataset_id}
        facts = {**told, "analyst": asked.submitter_id, "decide_by": due.isoformat(timespec="seconds")}
        tagged = {"tag": asked.tag} if asked.tag else {}
        notices.notify(session, str(asked.owner_id), "question.requested", facts | tagged)


def _require_terms(session: Session, ask: EstimateCommand, draft: Draft, accesses: Sequence[Access]) -> None:
    """Hold a question to the terms of all grants under which it is asked."""
    for access, (charge, _) in zip(accesses, draft.charges, strict=True):
        if access.grant is not None:
            require_terms(session, access.dataset, access.grant, ask.kind.name, charge)


Concerned = list[tuple[Owner, dict[ledger.Scope, str]]]
"""Owners, each with the subjects of the accounts that a question concerns, by dataset."""


def debits_of(
    asked: Sequence[Job],
    priced: Sequence[tuple[Charge, Mechanism]],
    concerned: Concerned,
    accounts: Sequence[Account],
) -> list[charges.Debits]:
    """What a question costs each owner, by dataset, from each of the accounts that it concerns.

    Args:
        asked: the job, or its parts.
        priced: what each dataset is charged, and for what.
        concerned: owners, by dataset.
        accounts: of all of them.
    """
    debits = list[charges.Debits]()
    for each, (charge, why), (owner, subjects) in zip(asked, priced, concerned, strict=True):
        own = {"owner": "", **subjects}
        by_scope = {a.scope: a for a in accounts if a.owner_id == owner.id and own.get(a.scope) == a.subject}
        theirs = [by_scope[scope] for scope in get_args(ledger.Scope) if scope in by_scope]
        debits.append(charges.Debits(each, theirs, [charge] * len(theirs), why))
    return debits


def concerned_by(session: Session, caller: Principal, accesses: Sequence[Access]) -> Concerned:
    """Return every owner with the budgets that a query concerns besides the owner's own, by dataset.

    Owners are held, so that none opens a new window or is frozen meanwhile, in a fixed order.
    """
    for owner_id in sorted({access.dataset.owner_id for access in accesses}):
        ledger.held_owner(session, owner_id)
    return _concerned(session, caller, accesses)


def _concerned(session: Session, caller: Principal, accesses: Sequence[Access]) -> Concerned:
    found = list[tuple[Owner, dict[ledger.Scope, str]]]()
    for access in accesses:
        # Rows that came with a question have an account to be counted in only where one was declared.
        subjects: dict[ledger.Scope, str] = {"dataset": access.dataset.lineage}
        if access.grant is not None:
            subjects["analyst"] = datasets.grant_subject(access.dataset.id, caller.id)
        found.append((session.get_one(Owner, access.dataset.owner_id), subjects))
    return found


def _answered(session: Session, caller: Principal, question: ResolvedQuery, since: datetime) -> str | None:
    """A job of this caller that answers the same question or is about to, no older than its access."""
    return session.scalar(
        select(Job.id)
        .where(
            Job.submitter_id == caller.id,
            Job.spec_digest == question.digest,
            Job.state.in_(("requested", "reserved", "claimed", "committed")),
            Job.created_at >= since,
        )
        .order_by(Job.created_at, Job.id)
        .limit(1)
    )

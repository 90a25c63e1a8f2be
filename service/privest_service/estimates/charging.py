"""Charging: planned queries become jobs with their keys and charges, all in one transaction.

Locks are taken in one order: datasets, grants, owners, accounts. `lock_access` takes the first two and
`lock_accounts` the others; a decision on a request locks its job between them. So no two of these
transactions wait for each other, and what allowed a query cannot change before its charge is committed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, get_args

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from privest.estimators.federation import Federated, Plan
from privest_service import acts
from privest_service.acts import Actor
from privest_service.database import now
from privest_service.database.tables import new_id
from privest_service.datasets import service as datasets
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.terms import decide_by, require_terms
from privest_service.estimates.catalogue import Kind
from privest_service.estimates.questions import Joint, ResolvedQuery, digest_of, joint_at_hub
from privest_service.estimates.schemas import EstimateRequest
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.ledger.mechanisms import asked_for, mechanism
from privest_service.ledger.models import Account, Mechanism
from privest_service.ledger.units import Charge
from privest_service.notices import service as notices
from privest_service.problems import GrantRefuses, IdempotencyKeyReused, Invalid, Problem, TooManyRequests
from privest_service.security.models import Owner
from privest_service.security.principals import Principal

_MOST_REQUESTS = 100
"""Queries of one analyst that may wait for approval: no owner should have to read more."""

_NOTICES_AN_HOUR = 10
"""Requests of one analyst in an hour that an owner is notified of: who looks at one sees the next."""


@dataclass(frozen=True)
class Rules:
    """The operator's limits on the queue and on requests.

    Attributes:
        max_waiting: jobs that may wait before further ones are refused.
        decide_within: hours in which owners decide on requests, where their grants say nothing else.
    """

    max_waiting: int
    decide_within: int = 168


@dataclass(frozen=True)
class EstimateCommand:
    """A request of a caller, under an idempotency key that its digest binds to it."""

    caller: Principal
    kind: Kind
    request: EstimateRequest
    key: str
    digest: str
    place: int | None = None
    """Its place in a list of queries that are charged together; None for one by itself."""
    actor: Actor = field(default_factory=lambda: acts.present().actor)
    """The person or service account that sends it, which its job and its charges name."""


@dataclass(frozen=True)
class PlannedQuery:
    """A query with its plan and all that will be written about it, made before any lock is held.

    Attributes:
        command: the request.
        query: the request, resolved.
        plan: of the query.
        digest: of the query, by which an earlier answer is found again.
        stored: the plan as JSON.
        parts: the part of each dataset as JSON, where the plan is on several datasets; else none.
        charges: what each dataset is charged, and the mechanism that this pays for.
        joint: what is noted where a hub and sites run the plan together.
    """

    command: EstimateCommand
    query: ResolvedQuery
    plan: Plan
    digest: str
    stored: str
    parts: list[str]
    charges: list[tuple[Charge, Mechanism]]
    joint: Joint | None = None

    @classmethod
    def of(cls, command: EstimateCommand, query: ResolvedQuery, plan: Plan) -> "PlannedQuery":
        """Write down what a plan costs and what will be stored of it."""
        kind = query.kind
        parts = plan.parts if isinstance(plan, Federated) else ()
        costs = [
            (
                Charge.of(each.target, each.cost),
                mechanism(kind.name, target.dataset_id, each.target, each.releases),
            )
            for target, each in zip(query.about, parts or [plan], strict=True)
        ]

        stored, *parts_stored = (kind.plans.dump_json(each).decode() for each in (plan, *parts))
        joint = joint_at_hub(query, plan) if query.at_sites else None
        return cls(command, query, plan, query.digest, stored, parts_stored, costs, joint)


@dataclass(frozen=True)
class Reservation:
    """A job as it was just charged, or requested.

    Attributes:
        job: the job.
        plan: of its query.
        charged: accounts, each with the dataset and the amount of its charge.
    """

    job: Job
    plan: Plan
    charged: list[tuple[Account, str | None, Charge]]


@dataclass(frozen=True)
class Answer:
    """The job that answers a request; `reused` where it was asked before, `fresh` where it is new."""

    job_id: str
    reused: bool
    fresh: Reservation | None = None


# Locks


@dataclass(frozen=True)
class Access:
    """A dataset that a caller may query, with the caller's grant; of an owner there is none."""

    dataset: Dataset
    grant: Grant | None

    @property
    def since(self) -> datetime:
        """When the present access began; earlier answers were given on another one."""
        return (self.grant or self.dataset).created_at


OwnerSubjects = list[tuple[Owner, dict[ledger.Scope, str]]]
"""The owner of each dataset, with the subjects of the accounts that a query of it is charged to."""


def lock_access(session: Session, caller: Principal, dataset_ids: Sequence[str]) -> list[Access]:
    """Lock datasets and a caller's grants on them, so that none is withdrawn before the transaction ends.

    Raises:
        GrantRefuses: the grant on one of them has ended.
        NotFound: the caller has no access to one of them.
    """
    return [Access(*found) for found in datasets.access(session, caller, dataset_ids, lock=True)]


def lock_accounts(
    session: Session, caller: Principal, accesses: Sequence[Access]
) -> tuple[OwnerSubjects, list[Account]]:
    """Lock the owners of datasets, and then the accounts that a caller's query of these is charged to.

    No owner is frozen, and no budget renewed or charged by others, before the transaction ends.
    """
    owners = ledger.held_owners(session, {access.dataset.owner_id for access in accesses})
    subjects = owner_subjects(caller, accesses, {owner.id: owner for owner in owners})
    return subjects, ledger.accounts_of(session, subjects, lock=True)


def owner_subjects(
    caller: Principal, accesses: Sequence[Access], owners: Mapping[str, Owner]
) -> OwnerSubjects:
    """Return the owner of each dataset, with the subjects of the accounts that are charged for it."""
    found = OwnerSubjects()
    for access in accesses:
        # Rows that came with a query have an account to be counted in only where one was declared.
        subjects: dict[ledger.Scope, str] = {"dataset": access.dataset.lineage}
        if access.grant is not None:
            subjects["analyst"] = datasets.grant_subject(access.dataset.id, caller.id)
        found.append((owners[access.dataset.owner_id], subjects))
    return found


@dataclass(frozen=True)
class Locked:
    """The rows that a transaction holds for one query.

    Attributes:
        accesses: to its datasets.
        due: until when their owners approve it, by dataset, where they have to.
        subjects: the owners of its datasets, with the subjects of the accounts that it is charged to.
        accounts: these accounts, and those of other queries; not locked where it has to be approved.
    """

    accesses: list[Access]
    due: Mapping[str, datetime]
    subjects: OwnerSubjects
    accounts: list[Account]


def lock(session: Session, planned: Sequence[PlannedQuery], rules: Rules) -> list[Locked]:
    """Lock all that planned queries of one caller concern: datasets, grants, owners, accounts.

    Owners and accounts are locked of those queries alone that are charged now. Since they were planned, a
    grant or a dataset may have been changed or withdrawn.

    Raises:
        GrantRefuses, NotFound: see `lock_access`.
    """
    caller = planned[0].command.caller
    named = [[target.dataset_id for target in each.query.about] for each in planned]
    try:
        found = lock_access(session, caller, list(dict.fromkeys(chain.from_iterable(named))))
    except GrantRefuses as refused:
        refused.place = next(place for place, ids in enumerate(named) if refused.dataset in ids)
        raise
    by_id = {access.dataset.id: access for access in found}
    accesses = [[by_id[dataset_id] for dataset_id in ids] for ids in named]
    due = [
        {}
        if each.query.dummy
        else decide_by([access.grant for access in own if access.grant is not None], rules.decide_within)
        for each, own in zip(planned, accesses, strict=True)
    ]
    free = [bool(ends) or each.query.dummy for each, ends in zip(planned, due, strict=True)]
    charged = [access for own, is_free in zip(accesses, free, strict=True) if not is_free for access in own]
    subjects, accounts = lock_accounts(session, caller, charged) if charged else (OwnerSubjects(), [])
    owners = {owner.id: owner for owner, _ in subjects}
    return [
        Locked(own, ends, [], [])
        if each.query.dummy
        else _of_request(session, caller, own, ends)
        if ends
        else Locked(own, ends, owner_subjects(caller, own, owners), accounts)
        for each, own, ends in zip(planned, accesses, due, strict=True)
    ]


def _of_request(
    session: Session, caller: Principal, accesses: list[Access], due: Mapping[str, datetime]
) -> Locked:
    """The rows of a query that its owners have to approve; only its datasets and grants are locked."""
    owners = {access.dataset.owner_id for access in accesses}
    subjects = owner_subjects(caller, accesses, {each: session.get_one(Owner, each) for each in owners})
    return Locked(accesses, due, subjects, ledger.accounts_of(session, subjects))


# Charges


def charge(session: Session, planned: Sequence[PlannedQuery], rules: Rules) -> list[Answer]:
    """Charge planned queries of one caller and put their jobs in the queue: all of them or none.

    A query that an owner has to approve becomes a request, and nobody is charged; one of synthetic rows is
    free. One whose key was used before, or which an earlier job answers, gets that job.

    Raises:
        Problem: whatever refuses one of them, with its place. The transaction is to be rolled back.
    """
    locked = lock(session, planned, rules)
    answers = list[Answer]()
    for place, (each, held) in enumerate(zip(planned, locked, strict=True)):
        try:
            answers.append(_charge_one(session, each, held, rules))
        except Problem as refused:
            refused.place = place
            raise
    return answers


def _charge_one(session: Session, planned: PlannedQuery, locked: Locked, rules: Rules) -> Answer:
    command, dummy = planned.command, planned.query.dummy
    if (earlier := _earlier_answer(session, planned, locked.accesses)) is not None:
        return earlier
    if locked.due and command.place is not None:
        raise Invalid(f"Question {command.place + 1} waits for an owner's approval. Ask it by itself.")
    jobs.require_room(session, command.caller.id, rules.max_waiting, dummy=dummy)
    job, parts = jobs_of(planned, locked.due)
    key = _key_of(command, job.id)
    debits = list[charges.Debits]()
    if not dummy:
        debits = debits_of(parts or [job], planned.charges, locked.subjects, locked.accounts)
        require_allowed(session, planned, locked, debits)
    if locked.due or dummy:
        jobs.add(session, job, key, parts)
        _notify_owners(session, parts or [job])
        debits.clear()
    else:
        charges.write(session, job, debits, key)
    if planned.joint:
        planned.joint.noted(session, job)
    charged = [
        (account, each.job.dataset_id, amount)
        for each in debits
        for account, amount in zip(each.accounts, each.charges, strict=True)
    ]
    return Answer(job.id, reused=False, fresh=Reservation(job, planned.plan, charged))


def _earlier_answer(session: Session, planned: PlannedQuery, accesses: Sequence[Access]) -> Answer | None:
    """Return the job that a query's key is bound to, or an earlier job that answers it; None if it is new.

    To be called once the accounts are locked: earlier charges of them are committed then.

    Raises:
        IdempotencyKeyReused: the key came with another request.
    """
    command = planned.command
    if answers := replayed(session, [command]):
        return answers[0]
    if not command.request.reuse:
        return None
    since = max(access.since for access in accesses)
    job_id = jobs.answer_to(session, command.caller.id, planned.digest, since)
    if job_id is None:
        return None
    session.add(_key_of(command, job_id, reused=True))
    return Answer(job_id, reused=True)


def _key_of(command: EstimateCommand, job_id: str, *, reused: bool = False) -> IdempotencyKey:
    return IdempotencyKey(
        principal_id=command.caller.id,
        key=command.key,
        body_digest=command.digest,
        job_id=job_id,
        reused=reused,
    )


def replayed(session: Session, commands: Sequence[EstimateCommand]) -> list[Answer]:
    """Return the answers that a caller got under the keys of these requests before; none for new keys.

    Raises:
        IdempotencyKeyReused: a key came with another request.
    """
    caller = commands[0].caller
    bound = jobs.bound_to(session, caller.id, {each.key for each in commands})
    known = [(each, bound[each.key]) for each in commands if each.key in bound]
    if any(each.digest != key.body_digest for each, key in known):
        raise IdempotencyKeyReused
    return [Answer(key.job_id, key.reused) for _, key in known]


def require_allowed(
    session: Session, planned: PlannedQuery, locked: Locked, debits: Sequence[charges.Debits]
) -> None:
    """Hold a query to the terms of its grants, to caps, freezes, budgets and the most that a week may take.

    Of a request the caller's own caps have to cover it; what else would refuse it is for the owners to see.

    Raises:
        AccountFrozen, BudgetExceeded, GrantRefuses, PaceExceeded: one of them refuses it.
        TooManyRequests: too many of the caller's queries wait for approval.
    """
    command = planned.command
    for access, (amount, _) in zip(locked.accesses, planned.charges, strict=True):
        if access.grant is not None:
            require_terms(session, access.dataset, access.grant, command.kind.name, amount)
    if not locked.due:
        charges.require_covered(session, debits)
        return
    if jobs.requests_of(session, command.caller.id) >= _MOST_REQUESTS:
        raise TooManyRequests(
            f"{_MOST_REQUESTS} of your questions wait for approval. Withdraw one, or wait for decisions.",
        )
    charges.require_caps(debits)


def jobs_of(planned: PlannedQuery, due: Mapping[str, datetime] | None = None) -> tuple[Job, list[Job]]:
    """Make the job of a query, and its parts by dataset; `due` tells until when owners have to approve it."""
    command, query, due = planned.command, planned.query, due or {}

    def job(plan: str, digest: str, **of: Any) -> Job:
        return Job(
            id=new_id("job"),
            kind=query.kind.name,
            submitter_id=command.caller.id,
            person=command.actor.person,
            through=command.actor.through,
            spec_digest=digest,
            plan=plan,
            dummy=query.dummy,
            tag=command.request.tag,
            state="requested" if due else "reserved",
            **of,
        )

    first = min(due.values(), default=None)
    if not planned.parts:
        (target,) = query.about
        of = {"owner_id": target.owner_id, "dataset_id": target.dataset_id, "decide_by": first}
        return job(planned.stored, planned.digest, **of), []
    whole = job(planned.stored, planned.digest, decide_by=first)
    parts = [
        job(
            plan,
            digest_of({"part of": planned.digest, "place": place}),  # that no query has
            part_of=whole.id,
            place=place,
            owner_id=target.owner_id,
            dataset_id=target.dataset_id,
            decide_by=due.get(target.dataset_id),
        )
        for place, (target, plan) in enumerate(zip(query.about, planned.parts, strict=True))
    ]
    return whole, parts


def debits_of(
    asked: Sequence[Job],
    priced: Sequence[tuple[Charge, Mechanism]],
    subjects: OwnerSubjects,
    accounts: Sequence[Account],
) -> list[charges.Debits]:
    """Return the debits of a query: for each dataset, a charge to each of its owner's accounts concerned.

    Args:
        asked: the job, or its parts.
        priced: what each dataset is charged, and for what.
        subjects: owners and subjects of their accounts, by dataset.
        accounts: of all of them.
    """
    debits, by_subject = list[charges.Debits](), {(a.owner_id, a.scope, a.subject): a for a in accounts}
    for each, (amount, why), (owner, named) in zip(asked, priced, subjects, strict=True):
        own = {"owner": "", **named}
        found = ((owner.id, scope, own[scope]) for scope in get_args(ledger.Scope) if scope in own)
        theirs = [by_subject[account] for account in found if account in by_subject]
        paid_for = asked_for(why, each.person, each.through)
        debits.append(charges.Debits(each, theirs, [amount] * len(theirs), paid_for))
    return debits


def _notify_owners(session: Session, asked: Sequence[Job]) -> None:
    """Notify owners of queries that wait for their approval, but not of each one of a flood."""
    for each in asked:
        if each.decide_by is None:
            continue
        theirs = (Job.submitter_id == each.submitter_id, Job.owner_id == each.owner_id)
        lately = (*theirs, Job.decide_by.is_not(None), Job.created_at > now() - timedelta(hours=1))
        if (session.scalar(select(func.count()).where(*lately)) or 0) <= _NOTICES_AN_HOUR:
            facts = {"question": each.id, "estimate": each.kind, "dataset": each.dataset_id}
            facts |= {
                "analyst": each.submitter_id,
                "decide_by": each.decide_by.isoformat(timespec="seconds"),
            }
            tagged = {"tag": each.tag} if each.tag else {}
            notices.notify(session, str(each.owner_id), "question.requested", facts | tagged)

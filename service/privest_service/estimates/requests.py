"""Requests: questions that wait for their owners' approval; decided upon, and charged then or ended.

Every function works inside the caller's transaction, which locks datasets and grants first, then the job,
then owners and accounts: see `charging`.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, get_args

from sqlalchemy import bindparam, exists, func, select
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.database import Database, now
from privest_service.database.tables import new_id
from privest_service.datasets.models import Dataset, Grant
from privest_service.datasets.terms import has_ended, require_terms
from privest_service.estimates.charging import Access, debits_of, lock_access, lock_accounts
from privest_service.estimates.plans import can_run, stored_plan
from privest_service.estimates.room import account_room
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Decision, Job, Transition
from privest_service.ledger import charges
from privest_service.ledger.mechanisms import mechanism
from privest_service.ledger.models import Mechanism
from privest_service.ledger.units import Charge
from privest_service.problems import (
    AccountFrozen,
    ApprovalRefused,
    BudgetExceeded,
    Forbidden,
    GrantRefuses,
    NotFound,
    NotRequested,
    PaceExceeded,
    TooManyRequests,
)
from privest_service.security.principals import Principal

Verdict = Literal["approve", "deny"]

_STAYS = "The question goes on waiting: approve it later, or deny it."

_OTHERS = (
    "Your grant and your budget allow this question. Another one of the owners whom it concerns does not at "
    f"present. {_STAYS}"
)
"""Told to an owner whatever of other owners refuses: it learns neither who nor why."""

_GIVEN_BACK_AN_HOUR = 20
"""Questions of one caller that may be given back within an hour: each takes two entries of a ledger."""

_ENDED = {
    "denied": "It was denied.",
    "expired": "It was not decided in time.",
    "withdrawn": "It was withdrawn, or a grant or a dataset that it needs is gone.",
}


def decide(session: Session, caller: Principal, job_id: str, verdict: Verdict, reason: str | None) -> Job:
    """Approve or deny a request, or the part of it that is on one's own dataset.

    The last approval that it needs charges it, as a new question is charged: every owner or none. One denial
    ends it. The same decision once more changes nothing.

    Raises:
        AccountFrozen, BudgetExceeded, PaceExceeded: the caller's own budget does not cover it now; it goes
            on waiting.
        ApprovalRefused: something else does not allow it now; it goes on waiting.
        Forbidden: the caller asked itself.
        NotFound: nothing of the caller's was asked about under this id.
        NotRequested: another decision was taken, or the request has ended, or never waited for the caller.
    """
    own = session.get(Job, job_id)
    if own is None or caller.id not in (own.owner_id, own.submitter_id):
        raise NotFound
    if own.owner_id != caller.id:
        raise Forbidden("Only the owner of a dataset decides on a question about it.")
    accesses = _accesses(session, own) if verdict == "approve" else None
    whole = _held_job(session, own.part_of or own.id)
    if (known := session.get(Decision, own.id)) is not None:
        if known.approved == (verdict == "approve"):
            return own
        raise NotRequested(f"You {'approved' if known.approved else 'denied'} it before.")
    if own.decide_by is None:
        raise NotRequested("Your grant did not ask for your approval when the question was asked.")
    if whole.state != "requested" or (whole.decide_by or now()) <= now():
        raise NotRequested(_ENDED.get(whole.state, _ENDED["expired"]))
    decision = Decision(job_id=own.id, id=new_id("dec"), approved=verdict == "approve", reason=reason)
    session.add(decision)
    session.flush()
    if reason is not None:
        acts.because(reason)
    kind = "question.approved" if decision.approved else "question.denied"
    asked = {"analyst": own.submitter_id, "dataset": own.dataset_id, "estimate": own.kind}
    # An act may have a reason of its own, which is for the record alone.
    told = {"decision": decision.id, "reasoned": reason is not None, **asked}
    acts.record(session, own.owner_id, kind, subject=own.id, details=told)
    if verdict == "deny":
        jobs.move(session, Job.id == whole.id, "requested", "denied")
    else:
        _approve(session, own, whole, accesses)
    session.refresh(own)
    return own


def withdraw(session: Session, caller: Principal, job_id: str) -> Job:
    """End a question of one's own before it begins; what was charged is given back.

    One that waits for an owner is withdrawn, one that waits for a worker voided. Once it has ended so, this
    changes nothing.

    Raises:
        Forbidden: somebody else asked.
        NotFound: the caller has no such job.
        NotRequested: it began, or ended otherwise.
        TooManyRequests: too many of the caller's were given back lately, each in two entries of a ledger.
    """
    own = session.get(Job, job_id)
    if own is None or caller.id not in (own.owner_id, own.submitter_id):
        raise NotFound
    if own.submitter_id != caller.id or own.part_of is not None:
        raise Forbidden("Only who asked a question withdraws it.")
    whole = _held_job(session, job_id)
    if whole.state == "requested":
        jobs.move(session, Job.id == job_id, "requested", "withdrawn")
    elif whole.state == "reserved":
        if jobs.voided_lately(session, caller.id, now() - timedelta(hours=1)) >= _GIVEN_BACK_AN_HOUR:
            raise TooManyRequests(f"{_GIVEN_BACK_AN_HOUR} of your questions were given back within an hour.")
        charges.void(session, job_id)
    elif whole.state not in ("withdrawn", "voided"):
        raise NotRequested(_ENDED.get(whole.state, "It has begun, and what was charged is final."))
    return whole


_LATE = select(Job.id).where(Job.state == "requested", Job.decide_by <= bindparam("now"))


def expire(database: Database) -> None:
    """End the requests on which not every owner decided in time."""
    if database.first(_LATE, now=now()) is not None:
        database.run(lambda session: jobs.expire_requests(session, now()))


_OPEN = (
    Job.state == "requested",
    Job.decide_by.is_not(None),
    Job.owner_id.is_not(None),
    ~exists().where(Decision.job_id == Job.id),
)
"""Conditions on jobs and parts: they wait for the decision of their owner."""


def waiting_for(session: Session, owner_id: str, most: int) -> Sequence[Job]:
    """The requests, or parts of them, that wait for a decision of an owner, oldest first."""
    theirs = select(Job).where(*_OPEN, Job.owner_id == owner_id).order_by(Job.created_at, Job.id)
    return session.scalars(theirs.limit(most)).all()


def is_open(session: Session, job: Job) -> bool:
    """Whether a job or a part waits for a decision of its owner."""
    return session.scalar(select(Job.id).where(*_OPEN, Job.id == job.id)) is not None


def number_waiting_for(session: Session, owner_id: str) -> int:
    """How many wait for a decision of an owner."""
    return session.scalar(select(func.count()).where(*_OPEN, Job.owner_id == owner_id)) or 0


Outcome = Literal["approved", "denied", "expired", "withdrawn"]
"""What becomes of a request: approved by its owner, or ended uncharged."""

_ENDS = tuple(outcome for outcome in get_args(Outcome) if outcome != "approved")


def decided_by(
    session: Session, owner_id: str, outcome: Outcome | None, *, most: int, before: str = ""
) -> Sequence[tuple[Job, Decision | None]]:
    """The requests, or parts of them, that wait for an owner no more, with its decisions, newest first.

    What other owners of the same question decided shows in a job's state alone.

    Args:
        session: of the caller's transaction.
        owner_id: whose datasets were asked about.
        outcome: of those that are meant; None for all.
        most: how many.
        before: the id of the last one of the list that this one continues.
    """
    approved = select(Decision.job_id).where(Decision.approved)
    ended = select(Job.id).where(Job.state.in_(_ENDS if outcome is None else (outcome,)))
    # By ids, which indexes find: an owner's jobs are many more than those that it approves.
    which = approved if outcome == "approved" else ended if outcome else approved.union(ended)
    theirs = (
        select(Job, Decision)
        .outerjoin(Decision, Decision.job_id == Job.id)
        .where(Job.id.in_(which), Job.owner_id == owner_id, Job.decide_by.is_not(None))
    )
    last = session.get(Job, before) if before else None
    if last is not None and last.owner_id == owner_id:
        theirs = theirs.where(jobs.before(last))
    rows = session.execute(theirs.order_by(Job.created_at.desc(), Job.id.desc()).limit(most)).all()
    return [(job, decision) for job, decision in rows]


def ended_with(session: Session, job: Job) -> Literal["grant", "dataset"] | None:
    """What was withdrawn from an analyst, so that a question of its ended with it; None for nothing known.

    A grant that was given anew since is none, and a part of a question may have ended with another owner's.
    """
    ended = session.get(Transition, (job.part_of or job.id, job.state))
    if ended is None or job.dataset_id is None or job.state not in ("withdrawn", "voided"):
        return None
    dataset = session.get(Dataset, job.dataset_id)
    grant = session.get(Grant, (job.dataset_id, job.submitter_id))
    if dataset and dataset.deleted_at and dataset.deleted_at <= ended.at:
        return "dataset"
    return "grant" if grant and grant.revoked_at and grant.revoked_at <= ended.at else None


def _held_job(session: Session, job_id: str) -> Job:
    # Not against keys that refer to it (FOR NO KEY UPDATE): charges insert these after they lock accounts.
    held = select(Job).where(Job.id == job_id).with_for_update(key_share=True)
    return session.scalars(held.execution_options(populate_existing=True)).one()


def _accesses(session: Session, own: Job) -> list[Access] | None:
    """The datasets of a request with their grants, held; None where one of them is not to be had any more."""
    whole = session.get_one(Job, own.part_of or own.id)
    asked = [str(each.dataset_id) for each in jobs.parts_of(session, whole) or [whole]]
    try:
        return lock_access(session, Principal("analyst", own.submitter_id), asked)
    except (NotFound, GrantRefuses):
        return None


def _approve(session: Session, own: Job, whole: Job, accesses: Sequence[Access] | None) -> None:
    """Charge a request that its last owner has approved; see that the caller's own part could be charged."""
    if accesses is None:
        grant = session.get(Grant, (own.dataset_id, own.submitter_id))
        ended = grant is None or grant.revoked_at is not None or has_ended(grant)
        raise ApprovalRefused(f"Your grant has ended. {_STAYS}" if ended else _OTHERS)
    parts = jobs.parts_of(session, whole) or [whole]
    if not can_run(whole.kind, whole.plan):
        raise ApprovalRefused("This version of the service cannot run what was planned. Deny the question.")
    priced = [_price(part) for part in parts]
    _require_terms(session, own, parts, accesses, priced)
    analyst = Principal("analyst", whole.submitter_id)
    debits = debits_of(parts, priced, *lock_accounts(session, analyst, accesses))
    _require_room(session, [each for each in debits if each.job.owner_id == own.owner_id])
    needed = {part.id for part in parts if part.decide_by is not None}
    if needed == {each.job_id for each in jobs.decisions_on(session, *needed)}:
        try:
            charges.require_covered(session, debits)
            charges.write_approved(session, whole, debits)
        except (AccountFrozen, BudgetExceeded):
            raise ApprovalRefused(_OTHERS) from None


def _price(part: Job) -> tuple[Charge, Mechanism]:
    """What a job or a part was planned to cost when it was asked, and for what."""
    plan = stored_plan(part.kind, part.plan)
    assert plan is not None  # noqa: S101 - the whole can be run
    why = mechanism(part.kind, str(part.dataset_id), plan.target, plan.releases)
    return Charge.of(plan.target, plan.cost), why


def _require_terms(
    session: Session,
    own: Job,
    parts: Sequence[Job],
    accesses: Sequence[Access],
    priced: Sequence[tuple[Charge, Mechanism]],
) -> None:
    """Hold a request to the grants as they are now; the caller's own first.

    An owner who asks for approvals only since then has nothing to approve: the question is to be asked anew.
    """
    for part, access, (charge, _) in sorted(
        zip(parts, accesses, priced, strict=True), key=lambda each: each[0].id != own.id
    ):
        assert access.grant is not None  # noqa: S101 - owners ask nobody
        try:
            require_terms(session, access.dataset, access.grant, part.kind, charge)
        except GrantRefuses:
            changed = "The grant was changed and does not allow this question any more. Change it again, or"
            raise ApprovalRefused(f"{changed} deny the question." if part.id == own.id else _OTHERS) from None
        if access.grant.approval and part.decide_by is None:
            raise ApprovalRefused(_OTHERS)


def _require_room(session: Session, own: Sequence[charges.Debits]) -> None:
    """See that the caller's own accounts cover its parts now, and tell it if they do not."""
    try:
        charges.require_room(session, own)
    except AccountFrozen:
        raise AccountFrozen(f"Your budget is frozen. {_STAYS}") from None
    except BudgetExceeded as refused:
        if len(own) == 1 and not isinstance(refused, PaceExceeded):
            account = next(each for each in own[0].accounts if each.scope == refused.scope)
            refused.detail = account_room(account, own[0].charges[0])
        refused.detail = f"{refused.detail} {_STAYS}"
        raise

"""Planned questions are charged: several in one transaction, in their order, each with its key and job."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from privest_service.database import now, queue
from privest_service.datasets import service as datasets
from privest_service.datasets.terms import decide_by, require_terms
from privest_service.estimates.questions import ResolvedQuery
from privest_service.estimates.reservation import (
    Access,
    Answer,
    Asked,
    Bound,
    Draft,
    EstimateCommand,
    Reservation,
    concerned_with,
    debits_of,
    held,
    jobs_of,
)
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.jobs.waiting import Waiting
from privest_service.ledger import charges
from privest_service.ledger import service as ledger
from privest_service.notices import service as notices
from privest_service.problems import Invalid, Problem, TooManyRequests
from privest_service.security.principals import Principal

_MOST_REQUESTS = 100
"""Questions of one analyst that may wait for approval: no owner should have to read more."""

_TOLD_AN_HOUR = 10
"""Requests of one analyst in an hour of which an owner is told: who looks at one sees those that follow."""


class Known:
    """What the keys and the questions of one transaction were answered with, before it and in it.

    It is looked up for all at once, after the accounts are held: whoever charged these before is over.
    """

    def __init__(
        self,
        session: Session,
        bound: Bound,
        answered: Sequence[jobs.Answering],
    ) -> None:
        self._session, self._bound = session, bound
        self._answered = defaultdict[tuple[str, str], list[jobs.Answering]](list)
        for job in answered:
            self._answered[job.submitter_id, job.spec_digest].append(job)

    @classmethod
    def of(cls, session: Session, asked: Sequence[tuple[Asked, Sequence[Access]]]) -> "Known":
        """Look up what these, each with the access to its datasets, were answered with."""
        reusing = {
            (ask.caller.id, question.digest): _since(accesses)  # equal digests are about the same datasets
            for (ask, question, _), accesses in asked
            if ask.request.reuse
        }
        bound = Bound(session, (ask for (ask, _, _), _ in asked))
        return cls(session, bound, jobs.answers_to(session, reusing))

    def look(
        self, ask: EstimateCommand, question: ResolvedQuery, accesses: Sequence[Access]
    ) -> tuple[IdempotencyKey, Answer | None]:
        """The key to be bound to a job, and what it was bound to before or can be without a new one.

        Raises:
            IdempotencyKeyReused: the key came with another request.
        """
        if found := self._bound.to(ask):
            return found, Answer(found.job_id, found.reused)
        bound = IdempotencyKey(principal_id=ask.caller.id, key=ask.key, body_digest=ask.digest, reused=False)
        if ask.request.reuse:
            earlier = self._answered.get((ask.caller.id, question.digest), ())
            if job := next((each for each in earlier if each.created_at >= _since(accesses)), None):
                bound.job_id, bound.reused = job.id, True
                queue(self._session, bound)
                self._bound.note(bound)
                return bound, Answer(job.id, reused=True)
        return bound, None

    def note(self, bound: IdempotencyKey, job: Job) -> None:
        """Note that a key was bound to a new job, which answers further questions of this transaction."""
        self._bound.note(bound)
        answering = jobs.Answering(job.id, job.submitter_id, job.spec_digest, job.created_at)
        self._answered[job.submitter_id, job.spec_digest].append(answering)


@dataclass(frozen=True)
class _Held:
    """What is held of a question: its datasets with the access to them, and until when owners approve it."""

    accesses: list[Access]
    due: Mapping[str, datetime]


@dataclass(frozen=True)
class Rules:
    """What the operator has set.

    Attributes:
        max_waiting: jobs that may wait before further ones are refused.
        decide_within: hours in which owners decide on questions, where their grants say nothing else.
    """

    max_waiting: int
    decide_within: int = 168


class Charging:
    """One transaction that charges planned questions, and holds all that any of them concerns.

    It is held first, and in one order: datasets with their grants, owners, accounts. So no two of these
    transactions wait for each other, and nothing is looked up twice. What is refused has written nothing.

    Args:
        session: of the transaction.
        asked: the questions.
        rules: of the operator.
    """

    def __init__(self, session: Session, asked: Sequence[Asked], rules: Rules) -> None:
        self._session, self._asked, self._rules = session, asked, rules
        # Between planning and now a grant or a dataset may be gone or changed, or the key be taken: by a
        # charge of the same accounts, which is either over when they are held, or yet to come.
        about = {(subject.dataset_id, ask.caller) for ask, question, _ in asked for subject in question.about}
        held = datasets.Held(session, {(dataset_id, caller.id) for dataset_id, caller in about})
        found = {each: _access(held, *each) for each in about}
        self._held = [
            _of([found[subject.dataset_id, ask.caller] for subject in question.about], rules.decide_within)
            for ask, question, _ in asked
        ]
        charged = [
            (ask.caller, access)
            for (ask, _, _), held in zip(asked, self._held, strict=True)
            if isinstance(held, _Held) and not held.due
            for access in held.accesses
        ]
        owners = sorted({access.dataset.owner_id for _, access in charged})
        self._owners = ledger.held_owners(session, owners)
        concerned = {
            (access.dataset.id, caller.id): concerned_with(session, caller, [access])[0]
            for caller, access in charged
        }
        self._accounts = ledger.accounts_of(session, list(concerned.values()), lock=True) if concerned else []
        pairs = zip(asked, self._held, strict=True)
        open_to = [(each, held.accesses) for each, held in pairs if isinstance(held, _Held)]
        self._known = Known.of(session, open_to)
        self._waiting = Waiting(session, {ask.caller.id for ask, _, _ in asked})

    def charge(self, place: int) -> Answer:
        """Charge one of the questions, with its job and its key: every owner or none.

        Where an owner has to approve it, it becomes a request, and nobody is charged.

        Raises:
            Problem: whatever refuses it.
        """
        (ask, question, draft), held = self._asked[place], self._held[place]
        if isinstance(held, Problem):
            raise held
        bound, known = self._known.look(ask, question, held.accesses)
        if known:
            return known
        self._waiting.require_room(ask.caller.id, self._rules.max_waiting, dummy=False)
        _require_terms(self._session, ask, draft, held.accesses)
        job, parts = jobs_of(ask, question, draft, held.due)
        bound.job_id = job.id
        concerned = concerned_with(self._session, ask.caller, held.accesses)
        if held.due:
            accounts = ledger.accounts_of(self._session, concerned)
            would = debits_of(parts or [job], draft.charges, concerned, accounts)
            _request(self._session, job, parts, would, bound)
            debits = list[charges.Debits]()
        else:
            debits = debits_of(parts or [job], draft.charges, concerned, self._accounts)
            charges.reserve(self._session, job, debits, bound)
            self._waiting.note(ask.caller.id, dummy=False)
        self._known.note(bound, job)
        if draft.joint:
            draft.joint.noted(self._session, job)
        charged = [
            (account, each.job.dataset_id, charge)
            for each in debits
            for account, charge in zip(each.accounts, each.charges, strict=True)
        ]
        return Answer(job.id, reused=False, fresh=Reservation(job, draft.planned, charged))


def _since(accesses: Sequence[Access]) -> datetime:
    """When the access to all of these began: earlier answers were given on another one."""
    return max(access.since for access in accesses)


def _access(held: datasets.Held, dataset_id: str, caller: Principal) -> Access | Problem:
    """A dataset that the caller may ask about; else what refuses it."""
    try:
        return Access(*held.require_access(caller, dataset_id))
    except Problem as refused:
        return refused


def _of(found: Sequence[Access | Problem], hours: int) -> _Held | Problem:
    """What is held of a question; else what refuses it."""
    accesses = [access for access in found if isinstance(access, Access)]
    if refused := next((access for access in found if isinstance(access, Problem)), None):
        return refused
    granted = [access.grant for access in accesses if access.grant is not None]
    return _Held(accesses, decide_by(granted, hours))


def reserve_each(session: Session, asked: Sequence[Asked], rules: Rules) -> list[Answer | Problem]:
    """Charge planned questions in their order, in one transaction, but for those that something refuses."""
    charging, outcomes = Charging(session, asked, rules), list[Answer | Problem]()
    for place in range(len(asked)):
        try:
            outcomes.append(charging.charge(place))
        except Problem as refused:
            outcomes.append(refused)
    return outcomes


def reserve_all(session: Session, asked: Sequence[Asked], rules: Rules) -> list[Answer]:
    """Charge planned questions of one caller in their order, in one transaction: all of them or none.

    Raises:
        Problem: whatever refuses one of them, whose place it says.
    """
    charging, answers = Charging(session, asked, rules), list[Answer]()
    for place in range(len(asked)):
        try:
            answer = charging.charge(place)
        except Problem as refused:
            refused.place = place
            raise
        if answer.fresh is not None and answer.fresh.job.state == "requested":
            raise Invalid(f"Question {place + 1} waits for an owner's approval. Ask it by itself.")
        answers.append(answer)
    return answers


def _request(
    session: Session, job: Job, parts: Sequence[Job], debits: Sequence[charges.Debits], bound: IdempotencyKey
) -> None:
    """Have a planned question wait for its owners, with its price as it is planned now.

    The caller's own caps have to cover it. What else would refuse it is for the owners to see.

    Raises:
        Problem: whatever refuses the request.
    """
    if jobs.requests_of(session, job.submitter_id) >= _MOST_REQUESTS:
        raise TooManyRequests(
            f"{_MOST_REQUESTS} of your questions wait for approval. Withdraw one, or wait for decisions.",
        )
    charges.require_caps(debits)
    jobs.add(session, job, bound, parts)
    for each in parts or [job]:
        if each.decide_by is not None:
            _tell_owner(session, each, each.decide_by)


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


def reserve_free(session: Session, asked: Asked, rules: Rules) -> Answer:
    """Put a question on synthetic rows in the queue: nobody's budget moves, and no row is read.

    Raises:
        Problem: whatever refuses it.
    """
    ask, question, draft = asked
    accesses = held(session, ask.caller, [subject.dataset_id for subject in question.about])
    known = Known.of(session, [(asked, accesses)])
    bound, answer = known.look(ask, question, accesses)
    if answer:
        return answer
    Waiting(session, {ask.caller.id}).require_room(ask.caller.id, rules.max_waiting, dummy=True)
    job, parts = jobs_of(ask, question, draft)
    bound.job_id = job.id
    jobs.add(session, job, bound, parts)
    return Answer(job.id, reused=False, fresh=Reservation(job, draft.planned, []))

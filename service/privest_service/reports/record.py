"""What an auditor's report tells of an owner, read in the names and units of people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, select
from sqlalchemy.orm import Session, defer

from privest_service.acts.models import Act
from privest_service.database import now
from privest_service.datasets.models import Dataset, Grant
from privest_service.estimates.plans import stored_plan
from privest_service.exports.lines import Heads
from privest_service.jobs.models import Decision, Job
from privest_service.ledger import promises, views
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.schemas import Budget, Windows
from privest_service.ledger.service import limits_of, owner_account
from privest_service.ledger.units import EPSILON, PROBABILITY, Charge, as_number
from privest_service.ledger.views import Price
from privest_service.reports import behind
from privest_service.reports.formatting import job_state, told_apart
from privest_service.reports.in_force import End, InForce, ends_of, in_force
from privest_service.reports.shares import Part, analysts_of, by_analyst, by_dataset, platforms_of
from privest_service.reports.who_learned import Learning, who_learned
from privest_service.reports.words import Told, asker, in_words, of_columns, title
from privest_service.security.models import Analyst
from privest_service.security.service import require_owner

_AT_ONCE = 500
"""Entries, or acts, that are read in one go."""

_LEARNINGS = 10_000
"""Most rows of who learned what: a report lists every question, too."""

_PLANS_AT_ONCE = 20
"""Requests that are read in one go: each with its plan, which may be long."""


@dataclass(frozen=True)
class Window:
    """One window of a budget.

    Attributes:
        opened: when.
        budget: as it stands.
        guess: how often, at most, an attacker who saw all answers guesses right about one record.
        most: likewise, once all of the window is spent.
        analysts: who took what share of it.
        datasets: on what.
    """

    opened: datetime
    budget: Budget
    guess: float
    most: float
    analysts: list[Part]
    datasets: list[Part]


@dataclass(frozen=True)
class Summary:
    """What an auditor reads first.

    Attributes:
        owner: the name.
        owner_id: the id.
        at: the moment of all that is told.
        windows: of the budget, first to last.
        rules: for windows, and what they promise together.
        learned: who learned what, and when, over all windows.
        datasets: of the owner, deleted ones too, by their names.
        in_force: grants, caps and all else at that moment.
        ends: of all chains, in words.
        heads: likewise, signed.
    """

    owner: str
    owner_id: str
    at: datetime
    windows: list[Window]
    rules: Windows
    learned: list[Learning]
    datasets: list[tuple[str, Dataset]]
    in_force: InForce
    ends: list[End]
    heads: Heads


@dataclass(frozen=True)
class Request:
    """A question that needed the owner's approval.

    Attributes:
        at: when it was asked.
        who: asked.
        what: was asked for.
        dataset: on which.
        purpose: of the grant, as it is now; empty where it names none.
        price: by the present window; None where nobody can read the plan any more.
        charged: whether it ever was, or may still be.
        state: what became of it.
        decided: when the owner decided; None where it did not.
        approved: whether the owner approved.
        reason: that was given.
    """

    at: datetime
    who: str
    what: str
    dataset: str
    purpose: str
    price: Price | None
    charged: bool
    state: str
    decided: datetime | None
    approved: bool
    reason: str


@dataclass(frozen=True)
class Movement:
    """An entry of the budget's account: a question that was charged, or given back, or a limit.

    Attributes:
        at: its moment.
        window: of the budget.
        seq: its place in the chain of the window's account.
        who: asked, or set the limit; empty where nobody knows.
        what: was asked for, or happened.
        dataset: on which.
        epsilon: ε as it was asked for, or the limit; below 0 where it was given back.
        delta: δ, likewise.
        price: of the window's limit as it is now, so that shares add up; None of a limit.
        given_back: whether that was given back.
        left: the share that was left after it, of the same limit.
        state: what became of it.
        approved: when the owner approved it; None where that was not needed.
    """

    at: datetime
    window: int
    seq: int
    who: str
    what: str
    dataset: str
    epsilon: float
    delta: float
    price: Price | None
    given_back: bool
    left: float
    state: str
    approved: datetime | None


@dataclass(frozen=True)
class Record:
    """All that happened, oldest first; each is read from the database as it is asked for."""

    requests: Iterator[Request]
    movements: Iterator[Movement]
    acts: Iterator[Told]


def summary(session: Session, owner_id: str) -> Summary:
    """The summary. Raises NotFound: there is no such owner."""
    owner, present = require_owner(session, owner_id), owner_account(session, owner_id)
    analysts = analysts_of(session, owner_id)
    own = select(Dataset).where(Dataset.owner_id == owner_id, ~Dataset.ephemeral)
    datasets = session.scalars(own.order_by(Dataset.created_at, Dataset.id)).all()
    names = told_apart(datasets)
    accounts = _accounts(session, owner_id)
    windows = [
        Window(
            opened=_opened(session, each),
            budget=views.budget(each),
            guess=views.chance_of_guessing(limits_of(each), each),
            most=views.chance_of_guessing(limits_of(each), limits_of(each), ""),
            analysts=by_analyst(session, each, analysts, "The owner"),
            datasets=by_dataset(session, each, datasets),
        )
        for each in accounts
    ]
    ends, heads = ends_of(session, owner_id, analysts, names)
    return Summary(
        owner=owner.name,
        owner_id=owner_id,
        at=now(),
        windows=windows,
        rules=promises.windows_of(session, present),
        learned=who_learned(session, present, analysts | {owner_id: "The owner"}, most=_LEARNINGS),
        datasets=[(names[each.id], each) for each in datasets],
        in_force=in_force(session, present, analysts, names),
        ends=ends,
        heads=heads,
    )


def _accounts(session: Session, owner_id: str) -> Sequence[Account]:
    """The accounts of an owner's budget, window by window."""
    theirs = select(Account).where(Account.owner_id == owner_id, Account.scope == "owner")
    return session.scalars(theirs.order_by(Account.window)).all()


def _opened(session: Session, account: Account) -> datetime:
    return session.scalars(select(Entry.at).where(Entry.account_id == account.id, Entry.seq == 1)).one()


def record(session: Session, owner_id: str) -> Record:
    """All that happened to an owner's budget, and all that was done."""
    own = select(Dataset.id, Dataset.name).where(Dataset.owner_id == owner_id, ~Dataset.ephemeral)
    names = _Names(analysts_of(session, owner_id) | {owner_id: "the owner"}, told_apart(session.execute(own)))
    return Record(
        requests=_requests(session, owner_id, names),
        movements=_movements(session, owner_id, names),
        acts=_acts(session, owner_id),
    )


@dataclass(frozen=True)
class _Names:
    """The names of those who ask, and of datasets, by their ids."""

    people: Mapping[str, str]
    datasets: Mapping[str, str]

    def asked(self, who: str, kind: str, dataset: str | None, plan: str) -> tuple[str, str, str]:
        """Who asked for what, on which dataset."""
        on = self.datasets.get(dataset or "", "sent with the question")
        return self.people.get(who, who), title(kind) + of_columns(plan), on


def _requests(session: Session, owner_id: str, names: _Names) -> Iterator[Request]:
    limits = limits_of(owner_account(session, owner_id))
    asked = (
        select(Job, Decision, Grant.purpose)
        .options(defer(Job.result), defer(Job.receipt), defer(Job.analyst_receipt))
        .outerjoin(Grant, and_(Grant.dataset_id == Job.dataset_id, Grant.analyst_id == Job.submitter_id))
        .outerjoin(Decision, Decision.job_id == Job.id)
        .where(Job.owner_id == owner_id, Job.decide_by.is_not(None))
        .order_by(Job.created_at, Job.id)
    )
    for job, decision, purpose in session.execute(asked.execution_options(yield_per=_PLANS_AT_ONCE)):
        plan = stored_plan(job.kind, job.plan)
        who, what, dataset = names.asked(job.submitter_id, job.kind, job.dataset_id, job.plan)
        who = asker(who, job.person, job.through, platforms_of(session, [job.through]))
        yield Request(
            at=job.created_at,
            who=who,
            what=what,
            dataset=dataset,
            purpose=purpose or "",
            price=None if plan is None else views.price(limits, Charge.of(plan.target, plan.cost)),
            charged=job.state not in _UNCHARGED,
            state=job_state(job.state),
            decided=decision and decision.at,
            approved=decision is not None and decision.approved,
            reason=(decision and decision.reason) or "",
        )


_UNCHARGED = ("denied", "expired", "withdrawn")
"""States of requests that ended before anything was charged."""

_WITHOUT_A_JOB = {"limit": "Budget set", "loss": "Charged at a restore: what was forgotten"}
"""What entries that belong to no question are called."""


def _movements(session: Session, owner_id: str, names: _Names) -> Iterator[Movement]:
    for account in _accounts(session, owner_id):
        setters = behind.limits_set(session, account)
        moved = (
            select(
                *(Entry, Job.kind, Job.submitter_id, Job.dataset_id, Job.plan, Job.state, Decision.at),
                *(Job.person, Job.through, Analyst.name),
            )
            .outerjoin(Job, Job.id == Entry.job_id)
            .outerjoin(Analyst, Analyst.id == Job.through)
            .outerjoin(Decision, and_(Decision.job_id == Entry.job_id, Decision.approved))
            .where(Entry.account_id == account.id)
            .order_by(Entry.seq)
        )
        limits = limits_of(account)
        for entry, kind, submitter, on, plan, state, approved, person, through, platform in session.execute(
            moved.execution_options(yield_per=_PLANS_AT_ONCE)
        ):
            who, what, dataset = ("", _WITHOUT_A_JOB.get(entry.kind, ""), "")
            if entry.kind == "limit":
                who = setter.who if (setter := next(setters, None)) else ""
            elif entry.job_id is not None:
                who, what, dataset = names.asked(submitter, kind, on, plan)
                who = asker(who, person, through, {through: platform} if through else {})
            yield Movement(
                at=entry.at,
                window=account.window,
                seq=entry.seq,
                who=who,
                what=what,
                dataset=dataset,
                epsilon=as_number(entry.epsilon, EPSILON),
                delta=as_number(entry.delta, PROBABILITY),
                price=views.price_of(limits, entry),
                given_back=entry.kind == "void",
                left=max(0.0, 1 - views.share(limits, entry)),
                state="given back" if entry.kind == "void" else job_state(state or ""),
                approved=approved,
            )


def _acts(session: Session, owner_id: str) -> Iterator[Told]:
    found = select(Act).where(Act.chain == owner_id).order_by(Act.seq)
    for some in session.scalars(found.execution_options(yield_per=_AT_ONCE)).partitions():
        yield from in_words(session, some)

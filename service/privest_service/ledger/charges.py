"""Charges of jobs: reserved with a job, signed for when it is answered, given back when it is voided.

Every function works inside the caller's transaction, so that a job and its charges are there together or not
at all.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from privest_service.database import once_committed, queue
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import alerts, entries, receipts, tallies
from privest_service.ledger.models import Account, Entry, Mechanism
from privest_service.ledger.pace import require_pace
from privest_service.ledger.receipts import Receipt, ReceiptEntry
from privest_service.ledger.units import Charge
from privest_service.problems import AccountFrozen, BudgetExceeded
from privest_service.signing import signer_of
from privest_service.telemetry import metrics


@dataclass(frozen=True)
class Debits:
    """The debits of one owner for a job or its part.

    Attributes:
        job: the job, or the part of it that is on this owner's dataset.
        accounts: of the owner, held, by id.
        charges: of each account its own.
        mechanism: what they are for.
    """

    job: Job
    accounts: Sequence[Account]
    charges: Sequence[Charge]
    mechanism: Mechanism

    @property
    def of_grants(self) -> tuple[list[Account], list[Charge]]:
        """The submitter's own caps, with their charges."""
        places = [place for place, account in enumerate(self.accounts) if account.scope == "analyst"]
        return [self.accounts[place] for place in places], [self.charges[place] for place in places]


def reserve(session: Session, job: Job, debits: Sequence[Debits], key: IdempotencyKey) -> None:
    """Write a job with its parts, its idempotency key and all debits: all of it or nothing.

    Caps of grants are looked at first, for all parts: a submitter whose own cap refuses hears of that alone,
    and not of freezes either. All else is looked at before anything is written: else the time would tell
    which part is refused.

    The caller's transaction holds all accounts. There are debits for the job, or for each of its parts.

    Raises:
        AccountFrozen: one account is frozen.
        BudgetExceeded: one account does not cover its charge.
        PaceExceeded: one covers it, but not within these seven days.
    """
    require_caps(debits)
    require_room(session, debits)
    jobs.add(session, job, key, [each.job for each in debits if each.job is not job])
    _charge(session, job, debits)


def reserve_requested(session: Session, job: Job, debits: Sequence[Debits]) -> None:
    """Charge a request that was approved, as `reserve` charges a new job: all of it or nothing.

    The caller's transaction holds the job and all accounts.

    Raises:
        AccountFrozen, BudgetExceeded, PaceExceeded: as for `reserve`.
    """
    require_caps(debits)
    require_room(session, debits)
    if jobs.move(session, Job.id == job.id, "requested", "reserved") is None:
        raise AssertionError("only a request can be approved")
    _charge(session, job, debits)


def require_room(session: Session, debits: Sequence[Debits]) -> None:
    """See all that can refuse, before anything is written; the caller holds all accounts.

    An account of an owner of several of the datasets is held to all that they take of it together.

    Raises:
        AccountFrozen, BudgetExceeded, PaceExceeded: as for `reserve`.
    """
    together = dict[int, Charge]()
    for each in debits:
        for account, charge in zip(each.accounts, each.charges, strict=True):
            together[account.id] = together[account.id] + charge if account.id in together else charge
        taken = [together[account.id] for account in each.accounts]
        with _named(each, debits):
            entries.require_room(each.accounts, taken)
            require_pace(session, each.accounts, taken)


def require_caps(debits: Sequence[Debits]) -> None:
    """See whether the submitter's own caps cover a question, as far as is known without holding them.

    Raises:
        BudgetExceeded: one does not.
    """
    for each in debits:
        with _named(each, debits):
            entries.require_sums(*each.of_grants)


def _charge(session: Session, job: Job, debits: Sequence[Debits]) -> None:
    """Write all debits of a job that is there."""
    for each in debits:
        _keep(session, each.mechanism)
    for each in debits:
        with _named(each, debits):
            written = entries.debit(session, each.accounts, each.job.id, each.mechanism.digest, each.charges)
        tallies.count(session, each.job, each.accounts, written)
        alerts.tell(session, each.accounts, each.charges)
    once_committed(session, metrics.CHARGES.labels(job.kind).inc)


@contextmanager
def _named(which: Debits, among: Sequence[Debits]) -> Iterator[None]:
    """Note the dataset whose charge is refused, and name it where there are several."""
    try:
        yield
    except (AccountFrozen, BudgetExceeded) as refused:
        refused.dataset = which.job.dataset_id
        if len(among) > 1:
            refused.detail = f"The budget of dataset {which.job.dataset_id} refuses this."
        raise


def _keep(session: Session, mechanism: Mechanism) -> None:
    """Store a mechanism unless it is there, which it is whenever the same was asked before."""
    queue(session, mechanism, unless_there=True)


def commit(session: Session, job_id: str, result: str) -> bool:
    """Store the answer of a claimed job, with receipts if it was charged; false if its lease ran out.

    Each owner's receipt is for its own part; that of the whole job is for all debits of all owners. An
    analyst's receipt commits to the debits and does not name them.
    """
    job = jobs.move(session, Job.id == job_id, "claimed", "committed", result=result)
    if job is None:
        return False
    if job.dummy:
        return True
    parts, signer = jobs.parts_of(session, job), signer_of(session)
    charged = parts or [job]
    approvals = {each.job_id: each.id for each in jobs.decisions_on(session, *(each.id for each in charged))}
    debited = {each.id: list[ReceiptEntry]() for each in charged}
    for debit in entries.debits_of(session, *debited):
        debited[str(debit.job_id)].append(ReceiptEntry.of(debit))
    about, debits = [str(each.dataset_id) for each in charged], list(chain.from_iterable(debited.values()))
    joint = jobs.joint_run(session, job.id)
    hub_job = None if joint is None else joint.hub_job
    whole = receipts.receipt_of(signer, job, about, debits, result, sorted(approvals.values()), hub_job)
    asked_by_owner = all(each.owner_id == job.submitter_id for each in charged)
    submitted = whole if asked_by_owner else receipts.for_analyst(signer, whole)
    for part in parts:
        approved = [approvals[part.id]] if part.id in approvals else []
        own = receipts.receipt_of(
            signer,
            part,
            [str(part.dataset_id)],
            debited[part.id],
            submitted.model_dump_json(),
            approved,
            hub_job,
        )
        part.receipt = own.model_dump_json()
    if asked_by_owner or not parts:
        job.receipt = whole.model_dump_json()
    if not asked_by_owner:
        job.analyst_receipt = submitted.model_dump_json()
    return True


def receipt_for(session: Session, job: Job, caller_id: str) -> Receipt | None:
    """The receipt of a job as its submitter or its owner may read it; None if there is none (yet).

    Jobs that were committed before there were commitments have one receipt, whose entries are not for
    analysts. They get it without the entries, signed anew.
    """
    whole = None if job.receipt is None else Receipt.model_validate_json(job.receipt)
    owners = {each.owner_id for each in jobs.parts_of(session, job) or [job]}
    if owners == {caller_id}:
        return whole
    if job.analyst_receipt is not None:
        return Receipt.model_validate_json(job.analyst_receipt)
    return whole and receipts.for_analyst(signer_of(session), whole)


def void(session: Session, job_id: str) -> bool:
    """Give back the whole charge of a job that was not claimed, of every owner; false if it was."""
    job = jobs.move(session, Job.id == job_id, "reserved", "voided")
    if job is None:
        return False
    charged = {each.id: each for each in jobs.parts_of(session, job) or [job]}
    debits = entries.debits_of(session, *charged)
    numbers = sorted({entry.account_id for entry in debits})
    held = {number: entries.locked(session, number) for number in numbers}
    for own, part in charged.items():
        theirs = [entry for entry in debits if entry.job_id == own]
        accounts = [held[entry.account_id] for entry in theirs]
        back = [-Charge(each.epsilon, each.delta, each.mu_squared, each.slack) for each in theirs]
        for account, amount in zip(accounts, back, strict=True):
            entries.move_by(account, amount)
        written = entries.append(session, accounts, "void", own, None, back)
        tallies.count(session, part, accounts, written)
    return True


def void_waiting(session: Session, *, dataset_id: str, submitter_id: str | None = None) -> None:
    """Void the jobs on a dataset, alone or with others, of one submitter or of all, that no worker has.

    Requests among them end, too.
    """
    # All jobs first and then all accounts, in order of id, as jobs may concern other owners' accounts too.
    waiting = jobs.held_waiting(session, dataset_id=dataset_id, submitter_id=submitter_id)
    theirs = select(Job.id).where(or_(Job.id.in_(waiting), Job.part_of.in_(waiting)))
    charged = select(Entry.account_id).where(Entry.job_id.in_(theirs))
    held = select(Account.id).where(Account.id.in_(charged)).order_by(Account.id)
    session.scalars(held.with_for_update()).all()
    for job_id in waiting:
        void(session, job_id)

"""Charges of jobs: reserved with a job, signed for when it is answered, given back when it is voided.

Every function works inside the caller's transaction, so that a job and its charges are there together or not
at all.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from sqlalchemy import and_, bindparam, func, or_, select, tuple_
from sqlalchemy.orm import Session, aliased

from privest_service.database import before_commit, insert_if_new, now, once_committed
from privest_service.jobs import service as jobs
from privest_service.jobs.models import IdempotencyKey, Job
from privest_service.ledger import entries, receipts
from privest_service.ledger.entries import AMOUNTS, QUERIES, limits_of
from privest_service.ledger.models import WHOLE, Account, Entry, Mechanism, Tally
from privest_service.ledger.receipts import Receipt, ReceiptEntry
from privest_service.ledger.units import Charge, moved
from privest_service.ledger.views import share
from privest_service.notices import service as notices
from privest_service.problems import AccountFrozen, BudgetExceeded, PaceExceeded
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


def write(session: Session, job: Job, debits: Sequence[Debits], key: IdempotencyKey) -> None:
    """Write a new job with its parts, its idempotency key and all debits: all of it or nothing.

    `require_covered` allowed the debits, in the same transaction, which holds all accounts. There are debits
    for the job, or for each of its parts.
    """
    jobs.add(session, job, key, [each.job for each in debits if each.job is not job])
    _debit(session, job, debits)


def write_approved(session: Session, job: Job, debits: Sequence[Debits]) -> None:
    """Charge a request that was approved, as `write` charges a new job: all of it or nothing.

    The caller's transaction holds the job and all accounts.
    """
    if jobs.move(session, Job.id == job.id, "requested", "reserved") is None:
        raise AssertionError("only a request can be approved")
    _debit(session, job, debits)


def require_covered(session: Session, debits: Sequence[Debits]) -> None:
    """See all that can refuse, before anything is written; the caller holds all accounts.

    Caps of grants are looked at first, for all parts: a submitter whose own cap refuses hears of that alone,
    and not of freezes either. All else is looked at before anything is written: else the time would tell
    which part is refused.

    Raises:
        AccountFrozen: one account is frozen.
        BudgetExceeded: one account does not cover its charge.
        PaceExceeded: one covers it, but not within these seven days.
    """
    require_caps(debits)
    require_room(session, debits)


def require_room(session: Session, debits: Sequence[Debits]) -> None:
    """See all that can refuse, before anything is written; the caller holds all accounts.

    An account of an owner of several of the datasets is held to all that they take of it together.

    Raises:
        AccountFrozen, BudgetExceeded, PaceExceeded: as for `require_covered`.
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


def _debit(session: Session, job: Job, debits: Sequence[Debits]) -> None:
    """Write all debits of a job that is there."""
    for each in debits:  # a mechanism is there already where the same was asked before
        insert_if_new(session, Mechanism, digest=each.mechanism.digest, content=each.mechanism.content)
    for each in debits:
        with _named(each, debits):
            written = entries.debit(session, each.accounts, each.job.id, each.mechanism.digest, each.charges)
        _count(session, each.job, each.accounts, written)
        _notify(session, each.accounts, each.charges)
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
        _count(session, part, accounts, written)
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


# Tallies


_COUNTED = "tallies"
"""Name of the list of entries that a session is to count."""

_KEY = ("account_id", "submitter_id", "lineage", "kind")
"""Key of a tally."""

_TALLIES = (
    select(Tally)
    .where(tuple_(*(getattr(Tally, name) for name in _KEY)).in_(bindparam("keys", expanding=True)))
    .where(Tally.account_id.in_(bindparam("accounts", expanding=True)))  # of which SQLite's index is
    .execution_options(populate_existing=True)
)

_Key = tuple[int, str, str, str]


def _count(session: Session, job: Job, accounts: Sequence[Account], written: Sequence[Entry]) -> None:
    """Count a charge or refund of a job in its submitter's tally, before the commit.

    Args:
        session: of the caller's transaction.
        job: the job, or the part of it that is on this owner's dataset.
        accounts: of the owner.
        written: their entries.
    """
    lineage = next((each.subject for each in accounts if each.scope == "dataset"), "")
    whole = {each.id for each in accounts if each.scope == "owner"}
    if _COUNTED not in session.info:
        session.info[_COUNTED] = list[tuple[_Key, Entry]]()
        before_commit(session, _write_tallies)
    session.info[_COUNTED] += [
        ((entry.account_id, job.submitter_id, lineage, job.kind), entry)
        for entry in written
        if entry.account_id in whole
    ]


def _write_tallies(session: Session) -> None:
    """Move the tallies in which a transaction's entries count: read at once, whose accounts it holds."""
    counted: list[tuple[_Key, Entry]] = session.info.pop(_COUNTED)
    keys = {key for key, _ in counted}
    found = session.scalars(_TALLIES, {"keys": list(keys), "accounts": [key[0] for key in keys]})
    tallies = {(each.account_id, each.submitter_id, each.lineage, each.kind): each for each in found}
    for key, entry in counted:
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = _first_tally(key, entry)
            session.add(tally)
        tally.queries += QUERIES[entry.kind]
        for name in AMOUNTS:
            setattr(tally, name, moved(getattr(tally, name), getattr(entry, name)))
        if entry.kind == "debit":
            tally.last_at = entry.at


def _first_tally(key: _Key, entry: Entry) -> Tally:
    nothing = dict.fromkeys(("queries", *AMOUNTS), 0)
    return Tally(**dict(zip(_KEY, key, strict=True)), first_at=entry.at, last_at=entry.at, **nothing)


# What seven days may take


SPAN = timedelta(days=7)
"""A week that ends now, and not one of the calendar, in two of which the same two days could spend twice."""


def require_pace(session: Session, accounts: Sequence[Account], charges: Sequence[Charge]) -> None:
    """Require that owners' accounts may be charged this much within seven days; the caller holds their rows.

    Raises:
        PaceExceeded: one may not.
    """
    for account, charge in zip(accounts, charges, strict=True):
        if account.scope != "owner" or account.pace is None or account.pace == WHOLE:
            continue
        limits, taken = limits_of(account), spent_lately(session, account)
        for name in limits.counted:
            allowed = getattr(limits, name) * account.pace // WHOLE
            if taken[name] + getattr(charge, name) > allowed:
                most = f"{100 * account.pace / WHOLE:g} %"
                raise PaceExceeded(f"Seven days may take {most} of a window's budget.", scope="owner")


def spent_lately(session: Session, account: Account) -> dict[str, int]:
    """Sum the last seven days' charges of an owner's budget, less refunds of these, over all windows.

    Every entry bears the sums after it, so this is the difference to those of the last entry before. What was
    given back of earlier days is not part of it: it makes room in the budget, and none in these seven days.
    """
    since = now() - SPAN
    taken: dict[str, int] = dict.fromkeys(AMOUNTS, 0)
    latest = and_(Entry.account_id == Account.id, Entry.seq == Account.seq, Entry.at > since)
    theirs = (Account.owner_id == account.owner_id, Account.scope == "owner")
    for each in session.scalars(select(Account).join(Entry, latest).where(*theirs)):
        before = session.scalars(
            select(Entry)
            .where(Entry.account_id == each.id, Entry.at <= since)
            .order_by(Entry.seq.desc())
            .limit(1)
        ).first()
        for name in AMOUNTS:
            taken[name] += getattr(each, f"{name}_spent")
        if before:
            earlier = _given_back(session, each, before)
            for name in AMOUNTS:
                taken[name] += earlier[name] - getattr(before, f"{name}_spent")
    return taken


def _given_back(session: Session, account: Account, before: Entry) -> dict[str, int]:
    """Sum the refunds after an entry of charges until then."""
    if account.queries - before.queries == account.seq - before.seq:  # all of them are debits
        return dict.fromkeys(AMOUNTS, 0)
    charged = aliased(Entry)
    theirs = (charged.account_id == Entry.account_id, charged.job_id == Entry.job_id)
    found = session.execute(
        select(*(-func.coalesce(func.sum(getattr(Entry, name)), 0) for name in AMOUNTS))
        .join(charged, and_(*theirs, charged.kind == "debit", charged.seq <= before.seq))
        .where(Entry.account_id == account.id, Entry.seq > before.seq, Entry.kind == "void")
    ).one()
    return dict(zip(AMOUNTS, map(int, found), strict=True))


# Alerts


_MARKS = (95, 80)
"""Percent of a window's budget; of those that one charge passes, the highest is reported."""


def _notify(session: Session, accounts: Sequence[Account], charges: Sequence[Charge]) -> None:
    """Tell owners whose accounts were just charged that most of a window's budget is spent."""
    for account, charge in zip(accounts, charges, strict=True):
        if account.scope == "owner" and (mark := _passed(account, charge)) is not None:
            spent = share(limits_of(account), account)
            facts = {"percent": mark, "window": account.window, "spent": round(spent, 4)}
            notices.notify(session, account.owner_id, "budget.spent", facts)


def _passed(account: Account, charge: Charge) -> int | None:
    limits = limits_of(account)
    for mark in _MARKS:
        for name in limits.counted:
            after, limit = 100 * getattr(account, f"{name}_spent"), mark * getattr(limits, name)
            if after >= limit > after - 100 * getattr(charge, name):
                return mark
    return None

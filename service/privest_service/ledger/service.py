"""Movements of budget and the states of jobs. Every function works inside the caller's transaction.

reserved → claimed → committed | failed, and reserved → voided, which alone gives budget back. The claim
is the point of no return: from there on the charge is final, whatever happens to the job.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, case, func, select, true, update
from sqlalchemy.orm import Session

from privest_service.database import now
from privest_service.ledger.chain import entry_hash
from privest_service.ledger.models import Account, Entry, IdempotencyKey, Job, Transition
from privest_service.ledger.receipts import Signer
from privest_service.ledger.units import Charge, Limits
from privest_service.problems import AccountFrozen, BudgetExceeded, Invalid

INFORMATIVE_CAP = 2**62
"""Sums in the currency that an account does not limit stop here instead of overflowing."""


# Accounts


def open_account(session: Session, scope: str, limits: Limits) -> Account:
    """A new account; its limits are the first entry of its chain."""
    account = Account(
        scope=scope,
        composition=limits.composition,
        epsilon_limit=limits.epsilon,
        delta_limit=limits.delta,
        mu_squared_limit=limits.mu_squared,
        slack_limit=limits.slack,
    )
    session.add(account)
    session.flush()
    session.refresh(account)
    account.seq = 1
    _append(session, account.id, 1, "", "limit", None, _as_charge(limits))
    return account


def limits_of(account: Account) -> Limits:
    """The account's limits."""
    return Limits(
        "gdp" if account.composition == "gdp" else "basic",
        account.epsilon_limit,
        account.delta_limit,
        account.mu_squared_limit,
        account.slack_limit,
    )


def raise_limits(session: Session, account_id: int, limits: Limits) -> None:
    """Replace an account's limits by higher ones.

    Raises:
        Invalid: a limit would fall.
    """
    found = session.execute(
        update(Account)
        .where(
            Account.id == account_id,
            Account.epsilon_limit <= limits.epsilon,
            Account.delta_limit <= limits.delta,
            Account.mu_squared_limit <= limits.mu_squared,
            Account.slack_limit <= limits.slack,
        )
        .values(
            epsilon_limit=limits.epsilon,
            delta_limit=limits.delta,
            mu_squared_limit=limits.mu_squared,
            slack_limit=limits.slack,
            seq=Account.seq + 1,
        )
        .returning(Account.seq, Account.head)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if found is None:
        raise Invalid("a budget can be raised, not lowered; freeze it to stop further queries")
    _append(session, account_id, found.seq, found.head, "limit", None, _as_charge(limits))


def set_frozen(session: Session, account_id: int, frozen: bool) -> None:
    """Stop an account from being debited, or let it be debited again."""
    session.execute(update(Account).where(Account.id == account_id).values(frozen=frozen))


def _as_charge(limits: Limits) -> Charge:
    return Charge(limits.epsilon, limits.delta, limits.mu_squared, limits.slack)


# Movements


def _append(
    session: Session, account_id: int, seq: int, head: str, kind: str, job_id: str | None, amounts: Charge
) -> Entry:
    """Write the next entry of a chain whose position the caller has locked."""
    entry = Entry(
        account_id=account_id,
        seq=seq,
        kind=kind,
        job_id=job_id,
        epsilon=amounts.epsilon,
        delta=amounts.delta,
        mu_squared=amounts.mu_squared,
        slack=amounts.slack,
        at=now(),
        prev=head,
    )
    entry.hash = entry_hash(entry)
    session.add(entry)
    session.flush()
    session.execute(
        update(Account)
        .where(Account.id == account_id)
        .values(head=entry.hash)
        .execution_options(synchronize_session=False)
    )
    return entry


def _moved(charge: Charge) -> dict[str, ColumnElement[int]]:
    """The sums after a charge or, with negative amounts, after a void.

    No limit guards the currency that the account does not count in, so its sums are capped.
    """
    return {
        f"{name}_spent": case((spent > INFORMATIVE_CAP - amount, INFORMATIVE_CAP), else_=spent + amount)
        for name, spent, amount in (
            ("epsilon", Account.epsilon_spent, charge.epsilon),
            ("delta", Account.delta_spent, charge.delta),
            ("mu_squared", Account.mu_squared_spent, charge.mu_squared),
            ("slack", Account.slack_spent, charge.slack),
        )
    }


def debit(session: Session, account_id: int, job_id: str, charge: Charge) -> Entry:
    """Charge one account, or refuse: one statement is guard, row lock and place in the chain.

    Raises:
        AccountFrozen: nothing may be charged at present.
        BudgetExceeded: the account does not cover the charge.
    """
    covered = case(
        (
            Account.composition == "gdp",
            and_(
                Account.mu_squared_spent + charge.mu_squared <= Account.mu_squared_limit,
                Account.slack_spent + charge.slack <= Account.slack_limit,
            ),
        ),
        else_=and_(
            Account.epsilon_spent + charge.epsilon <= Account.epsilon_limit,
            Account.delta_spent + charge.delta <= Account.delta_limit,
        ),
    )
    found = session.execute(
        update(Account)
        .where(Account.id == account_id, Account.frozen.is_(False), covered.is_(true()))
        .values(seq=Account.seq + 1, **_moved(charge))
        .returning(Account.seq, Account.head)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if found is None:
        frozen = session.scalar(select(Account.frozen).where(Account.id == account_id))
        raise AccountFrozen if frozen else BudgetExceeded
    return _append(session, account_id, found.seq, found.head, "debit", job_id, charge)


# Jobs


def find_by_key(session: Session, principal_id: str, key: str) -> IdempotencyKey | None:
    """What a principal's idempotency key is bound to."""
    return session.get(IdempotencyKey, (principal_id, key))


def reserve(session: Session, job: Job, charges: Mapping[int, Charge], key: IdempotencyKey) -> None:
    """Write a job, its idempotency key and the debits of all its accounts: all of it or nothing.

    Accounts are debited in ascending order, so that two reservations never wait for each other.

    Raises:
        AccountFrozen: one account is frozen.
        BudgetExceeded: one account does not cover its charge.
    """
    session.add(job)
    session.flush()
    session.add_all([key, Transition(job_id=job.id, state="reserved")])
    session.flush()
    for account_id in sorted(charges):
        debit(session, account_id, job.id, charges[account_id])


def waiting(session: Session) -> int:
    """How many jobs wait for a worker."""
    return session.scalar(select(func.count()).select_from(Job).where(Job.state == "reserved")) or 0


def claim_next(session: Session, lease: timedelta) -> Job | None:
    """Claim the job that has waited longest: from here on its charge is final."""
    chosen = (
        select(Job.id)
        .where(Job.state == "reserved")
        .order_by(Job.created_at, Job.id)
        .limit(1)
        .with_for_update(skip_locked=True)  # SQLite has one writer and leaves this out
        .scalar_subquery()
    )
    return _move(session, Job.id == chosen, "reserved", "claimed", lease_until=now() + lease)


def commit(session: Session, job_id: str, result: str, signer: Signer) -> bool:
    """Store the answer of a claimed job with its receipt; false if its lease ran out before."""
    job = _move(session, Job.id == job_id, "claimed", "committed", result=result)
    if job is None:
        return False
    job.receipt = signer.receipt(job, debits_of(session, job_id), result).model_dump_json()
    return True


def debits_of(session: Session, job_id: str) -> list[Entry]:
    """The debits of a job, by account."""
    return list(
        session.scalars(
            select(Entry).where(Entry.job_id == job_id, Entry.kind == "debit").order_by(Entry.account_id)
        )
    )


def fail(session: Session, job_id: str) -> bool:
    """End a claimed job without an answer; it stays charged."""
    return _move(session, Job.id == job_id, "claimed", "failed") is not None


def overdue(session: Session, moment: datetime) -> list[str]:
    """The claimed jobs whose lease ran out: their worker is gone."""
    return list(session.scalars(select(Job.id).where(Job.state == "claimed", Job.lease_until < moment)))


def fail_overdue(session: Session, moment: datetime) -> list[str]:
    """End the claimed jobs whose worker is gone."""
    return [job_id for job_id in overdue(session, moment) if fail(session, job_id)]


def void(session: Session, job_id: str) -> bool:
    """Give back the whole charge of a job that was not claimed; false if it was."""
    if _move(session, Job.id == job_id, "reserved", "voided") is None:
        return False
    for entry in debits_of(session, job_id):
        back = -Charge(entry.epsilon, entry.delta, entry.mu_squared, entry.slack)
        found = session.execute(
            update(Account)
            .where(Account.id == entry.account_id)
            .values(seq=Account.seq + 1, **_moved(back))
            .returning(Account.seq, Account.head)
            .execution_options(synchronize_session=False)
        ).one()
        _append(session, entry.account_id, found.seq, found.head, "void", job_id, back)
    return True


def void_waiting(session: Session, *, dataset_id: str, submitter_id: str | None = None) -> None:
    """Void the jobs on a dataset, of one submitter or of all, that no worker has claimed."""
    found = select(Job.id).where(Job.state == "reserved", Job.dataset_id == dataset_id)
    if submitter_id is not None:
        found = found.where(Job.submitter_id == submitter_id)
    for job_id in session.scalars(found).all():
        void(session, job_id)


def _move(
    session: Session, which: ColumnElement[bool], before: str, after: str, **values: object
) -> Job | None:
    """Move one job from a state to the next; None if it was not in that state."""
    job = session.scalar(
        update(Job)
        .where(which, Job.state == before)
        .values(state=after, **values)
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    if job is not None:
        session.add(Transition(job_id=job.id, state=after))
        session.flush()
    return job

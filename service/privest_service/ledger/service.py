"""Movements of budget and the states of jobs. Every function works inside the caller's transaction.

reserved → claimed → committed | failed, and reserved → voided, which alone gives budget back. The claim
is the point of no return: from there on the charge is final, whatever happens to the job.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import ColumnElement, Integer, and_, bindparam, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from privest_service.database import now, once_committed
from privest_service.ledger.chain import entry_hash, to_sign
from privest_service.ledger.models import Account, Entry, IdempotencyKey, Job, Mechanism, Transition
from privest_service.ledger.receipts import signer_of
from privest_service.ledger.units import Charge, Limits, moved
from privest_service.owners.models import Owner
from privest_service.problems import AccountFrozen, BudgetExceeded, Invalid, NotFound
from privest_service.telemetry import metrics

Scope = Literal["owner", "dataset", "analyst"]
"""Whose budget: the owner's, that of the same rows (by fingerprint), that of one analyst's grant."""

_KEEP = {
    "sqlite": sqlite_insert(Mechanism).on_conflict_do_nothing(),
    "postgresql": postgresql_insert(Mechanism).on_conflict_do_nothing(),
}
"""Stores a mechanism unless it is there, on either database."""

_SUMS = ("epsilon", "delta", "mu_squared", "slack")

_WHOLE = Job.part_of.is_(None)
"""Of jobs: not their parts, which follow them."""

QUERIES = {"limit": 0, "debit": 1, "void": -1, "loss": 0}
"""That an entry of this kind adds to those that were charged and not voided."""

_OWNER_ACCOUNT = (
    select(Account)
    .join(Owner, Owner.id == Account.owner_id)
    .where(
        Account.owner_id == bindparam("owner"),
        Account.scope == "owner",
        Account.window == func.coalesce(bindparam("window", type_=Integer), Owner.window),
    )
)

SUMS_AFTER = (*(f"{name}_spent" for name in _SUMS), "queries")
"""Of an account, and as they are after an entry in that."""


# Accounts


def open_account(
    session: Session, owner_id: str, scope: Scope, limits: Limits, *, subject: str = "", window: int = 1
) -> Account:
    """A new account; its limits are the first entry of its chain."""
    account = Account(
        owner_id=owner_id,
        scope=scope,
        subject=subject,
        window=window,
        composition=limits.composition,
        **dict.fromkeys((*SUMS_AFTER, "seq"), 0),
    )
    _set(account, "limit", _as_charge(limits))
    session.add(account)
    session.flush()
    _append(session, [account], "limit", None, None, [_as_charge(limits)])
    return account


def ensure_account(session: Session, owner_id: str, scope: Scope, subject: str) -> Account:
    """The account of an owner's rows or grant in the present window; if it is new, without a cap."""
    owner = session.get_one(Owner, owner_id, with_for_update={"read": True})
    found = accounts_in_force(session, owner, {scope: subject})
    if len(found) > 1:
        return found[-1]
    limits = Limits.none(limits_of(found[0]).composition)
    return open_account(session, owner_id, scope, limits, subject=subject, window=owner.window)


def accounts_in_force(
    session: Session, owner: Owner, subjects: Mapping[Scope, str] | None = None, *, lock: bool = False
) -> list[Account]:
    """The owner's account in the present window, and those of these subjects, by id.

    Args:
        session: of the caller's transaction.
        owner: whose they are.
        subjects: what else a charge concerns, by scope.
        lock: hold their rows until the transaction ends. SQLite has one writer anyway.
    """
    return accounts_of(session, [(owner, subjects or {})], lock=lock)


def accounts_of(
    session: Session, concerned: Sequence[tuple[Owner, Mapping[Scope, str]]], *, lock: bool = False
) -> list[Account]:
    """The same of several owners: all of them together by id, so that no two reservations lock crosswise."""
    found = list[ColumnElement[bool]]()
    for owner, subjects in concerned:
        theirs = [and_(Account.scope == "owner", Account.subject == "")]
        for scope, subject in subjects.items():
            theirs.append(and_(Account.scope == scope, Account.subject == subject))
        found.append(and_(Account.owner_id == owner.id, Account.window == owner.window, or_(*theirs)))
    statement = (
        select(Account).where(or_(*found)).order_by(Account.id).execution_options(populate_existing=True)
    )
    return list(session.scalars(statement.with_for_update() if lock else statement))


def owner_account(session: Session, owner_id: str, *, window: int | None = None) -> Account:
    """The account of an owner's budget, in the present window or another.

    Raises:
        NotFound: there was no such window.
    """
    account = session.scalar(_OWNER_ACCOUNT, {"owner": owner_id, "window": window})
    if account is None:
        raise NotFound
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
    account = _locked(session, account_id)
    old, new = _as_charge(limits_of(account)), _as_charge(limits)
    if any(getattr(new, name) < getattr(old, name) for name in _SUMS):
        raise Invalid("a budget can be raised, not lowered; freeze it to stop further queries")
    _set(account, "limit", new)
    _append(session, [account], "limit", None, None, [new])


def set_cap(session: Session, account_id: int, limits: Limits) -> None:
    """Replace a cap's limits, by higher or lower ones: what was spent before counts.

    Raises:
        Invalid: more is spent already.
    """
    account = _locked(session, account_id)
    if limits_of(account) == limits:
        return
    new = _as_charge(limits)
    if any(getattr(account, f"{name}_spent") > getattr(new, name) for name in limits.counted):
        raise Invalid("more than this cap is spent already")
    _set(account, "limit", new)
    _append(session, [account], "limit", None, None, [new])


def set_frozen(session: Session, account_id: int, frozen: bool) -> None:
    """Stop an account from being debited, or let it be debited again."""
    session.execute(update(Account).where(Account.id == account_id).values(frozen=frozen))


def open_window(session: Session, owner_id: str) -> Account:
    """Renew a budget: accounts like those of the present window, with nothing spent, take their place.

    What was spent stays where it was. The promise (E, Δ) is one of each window; of k together (kE, kΔ).
    """
    owner = session.get_one(Owner, owner_id, with_for_update=True, populate_existing=True)
    former = session.scalars(
        select(Account)
        .where(Account.owner_id == owner_id, Account.window == owner.window)
        .order_by(Account.id)
        .with_for_update()
    ).all()
    owner.window += 1
    opened = list[Account]()
    for account in former:
        renewed = open_account(
            session,
            owner_id,
            account.scope,  # pyright: ignore[reportArgumentType]
            limits_of(account),
            subject=account.subject,
            window=owner.window,
        )
        renewed.frozen = account.frozen
        opened.append(renewed)
    return opened[0]


def lose(session: Session, owner: Owner) -> None:
    """Charge what may have been spent and is forgotten: all that the present window had left; and freeze it.

    For a ledger that begins anew from a copy. Whatever was charged since the copy was made moved an account
    of this owner's by no more than the owner's own, and none beyond its limit. What was raised or renewed
    since, the owner alone knows, who has to end the freeze.
    """
    accounts = session.scalars(
        select(Account)
        .where(Account.owner_id == owner.id, Account.window == owner.window)
        .order_by(Account.id)
        .with_for_update()
    ).all()
    left, losses = [_left(account) for account in accounts], list[Charge]()
    owners = next(each for each, account in zip(left, accounts, strict=True) if account.scope == "owner")
    for account, own in zip(accounts, left, strict=True):
        losses.append(Charge(*map(min, own, owners)))
        account.frozen |= account.scope == "owner"
        _move_by(account, losses[-1])
    _append(session, accounts, "loss", None, None, losses)


def _left(account: Account) -> list[int]:
    return [max(0, getattr(account, f"{name}_limit") - getattr(account, f"{name}_spent")) for name in _SUMS]


def _locked(session: Session, account_id: int) -> Account:
    return session.get_one(Account, account_id, with_for_update=True, populate_existing=True)


def _as_charge(limits: Limits) -> Charge:
    return Charge(limits.epsilon, limits.delta, limits.mu_squared, limits.slack)


def _set(account: Account, what: str, amounts: Charge) -> None:
    for name in _SUMS:
        setattr(account, f"{name}_{what}", getattr(amounts, name))


# Movements


def _append(
    session: Session,
    accounts: Sequence[Account],
    kind: str,
    job_id: str | None,
    mechanism: str | None,
    amounts: Sequence[Charge],
) -> list[Entry]:
    """Write the next entry of every chain; the caller holds the accounts' rows."""
    signer, at, entries = signer_of(session), now(), list[Entry]()
    for account, amount in zip(accounts, amounts, strict=True):
        account.seq += 1
        account.queries += QUERIES[kind]
        entry = Entry(
            account_id=account.id,
            seq=account.seq,
            kind=kind,
            job_id=job_id,
            mechanism=mechanism,
            epsilon=amount.epsilon,
            delta=amount.delta,
            mu_squared=amount.mu_squared,
            slack=amount.slack,
            **{name: getattr(account, name) for name in SUMS_AFTER},
            at=at,
            prev=account.head,
            signer=signer.id,
        )
        entry.hash = account.head = entry_hash(entry)
        entry.signature = signer.sign(to_sign(entry.hash))
        entries.append(entry)
    session.add_all(entries)
    session.flush()
    return entries


def _move_by(account: Account, amount: Charge) -> None:
    """Add to the sums; no limit guards the currency that the account does not count in, so it is capped."""
    for name in _SUMS:
        setattr(account, f"{name}_spent", moved(getattr(account, f"{name}_spent"), getattr(amount, name)))


def require_room(accounts: Sequence[Account], charges: Sequence[Charge]) -> None:
    """Whether accounts cover their charges, as far as is known without holding them.

    Raises:
        AccountFrozen: nothing may be charged at present.
        BudgetExceeded: an account does not cover its charge; the first that does not is named.
    """
    for account, charge in zip(accounts, charges, strict=True):
        if account.frozen:
            raise AccountFrozen
        for name in limits_of(account).counted:
            spent = getattr(account, f"{name}_spent") + getattr(charge, name)
            if spent > getattr(account, f"{name}_limit"):
                raise BudgetExceeded(scope=account.scope)


def debit(
    session: Session, accounts: Sequence[Account], job_id: str, mechanism: str, charges: Sequence[Charge]
) -> None:
    """Charge accounts whose rows are held, each its own, or none of them.

    Raises:
        AccountFrozen: nothing may be charged at present.
        BudgetExceeded: an account does not cover its charge; the first that does not is named.
    """
    require_room(accounts, charges)
    for account, charge in zip(accounts, charges, strict=True):
        _move_by(account, charge)
    _append(session, accounts, "debit", job_id, mechanism, charges)


# Jobs


def find_by_key(session: Session, principal_id: str, key: str) -> IdempotencyKey | None:
    """What a principal's idempotency key is bound to."""
    return session.get(IdempotencyKey, (principal_id, key))


@dataclass(frozen=True)
class Debits:
    """What one owner is charged for a job or its part.

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


def reserve_free(session: Session, job: Job, key: IdempotencyKey, parts: Sequence[Job] = ()) -> None:
    """Write a job that reads no rows, and its idempotency key; nobody is charged."""
    session.add(job)
    session.flush()
    session.add_all(parts)
    session.flush()
    session.add_all([key, *(Transition(job_id=each.id, state="reserved") for each in (job, *parts))])
    session.flush()


def reserve(session: Session, job: Job, debits: Sequence[Debits], key: IdempotencyKey) -> None:
    """Write a job with its parts, its idempotency key and all debits: all of it or nothing.

    Args:
        session: of the caller's transaction, which holds all accounts.
        job: to be run.
        debits: of the job, or of each of its parts.
        key: under which the job was asked for.

    Raises:
        AccountFrozen: one account is frozen.
        BudgetExceeded: one account does not cover its charge.
    """
    for each in debits:
        _keep(session, each.mechanism)
    reserve_free(session, job, key, [each.job for each in debits if each.job is not job])
    for each in debits:
        try:
            debit(session, each.accounts, each.job.id, each.mechanism.digest, each.charges)
        except (AccountFrozen, BudgetExceeded) as refused:
            if len(debits) > 1:
                refused.detail = f"that of dataset {each.job.dataset_id}"
            raise
    once_committed(session, metrics.CHARGES.labels(job.kind).inc)


def _keep(session: Session, mechanism: Mechanism) -> None:
    """Store a mechanism unless it is there, which it is whenever the same was asked before."""
    values = {"digest": mechanism.digest, "content": mechanism.content}
    session.connection().execute(_KEEP[session.get_bind().dialect.name], values)


def waiting(session: Session) -> int:
    """How many jobs wait for a worker."""
    return session.scalar(select(func.count()).select_from(Job).where(Job.state == "reserved", _WHOLE)) or 0


def waiting_for(session: Session, submitter_id: str) -> tuple[int, int, int]:
    """How many jobs wait for a worker, how many of them are this submitter's, and of these dummies."""
    theirs = Job.submitter_id == submitter_id
    counts = func.count(), func.count().filter(theirs), func.count().filter(theirs, Job.dummy)
    found = session.execute(select(*counts).select_from(Job).where(Job.state == "reserved", _WHOLE))
    return found.one()


def queue(session: Session) -> tuple[int, float]:
    """How many jobs wait for a worker, and for how many seconds the oldest of them has."""
    found = select(func.count(), func.min(Job.created_at)).where(Job.state == "reserved", _WHOLE)
    count, since = session.execute(found).one()
    return count, max(0.0, (now() - since).total_seconds()) if since else 0.0


def in_states(session: Session, *states: str) -> dict[str, int]:
    """How many jobs are in these states, which no job stays in."""
    counted = select(Job.state, func.count()).where(Job.state.in_(states), _WHOLE).group_by(Job.state)
    return dict.fromkeys(states, 0) | dict(session.execute(counted).all())


def claim_next(session: Session, lease: timedelta, not_of: Collection[str] = ()) -> Job | None:
    """Claim a job of whoever has fewest claimed, the one that has waited longest, dummies last.

    From here on its charge is final.

    Args:
        session: of the caller's transaction.
        lease: after which it is lost.
        not_of: submitters who have their share of the workers already.
    """
    under_way = (
        select(Job.submitter_id, func.count().label("jobs"))
        .where(Job.state == "claimed", _WHOLE)
        .group_by(Job.submitter_id)
        .subquery()
    )
    chosen = (
        select(Job.id)
        .outerjoin(under_way, under_way.c.submitter_id == Job.submitter_id)
        .where(Job.state == "reserved", _WHOLE, Job.submitter_id.not_in(not_of))
        .order_by(Job.dummy, func.coalesce(under_way.c.jobs, 0), Job.created_at, Job.id)
        .limit(1)
        .with_for_update(skip_locked=True, of=Job)  # SQLite has one writer and leaves this out
        .scalar_subquery()
    )
    return _move(session, Job.id == chosen, "reserved", "claimed", lease_until=now() + lease)


def commit(session: Session, job_id: str, result: str) -> bool:
    """Store the answer of a claimed job, with receipts if it was charged; false if its lease ran out.

    Each owner's receipt is for its own part; that of the whole job is for all debits of all owners.
    """
    job = _move(session, Job.id == job_id, "claimed", "committed", result=result)
    if job is None:
        return False
    if job.dummy:
        return True
    parts, signer = parts_of(session, job), signer_of(session)
    debits = debits_of(session, job.id, *(part.id for part in parts))
    about = [str(each.dataset_id) for each in parts or [job]]
    job.receipt = whole = signer.receipt(job, about, debits, result).model_dump_json()
    for part in parts:
        own = [entry for entry in debits if entry.job_id == part.id]
        part.receipt = signer.receipt(part, [str(part.dataset_id)], own, whole).model_dump_json()
    return True


def parts_of(session: Session, job: Job) -> list[Job]:
    """The parts of a job on several datasets, in the order in which these were named; of another none."""
    if job.dataset_id is not None:
        return []
    return list(session.scalars(select(Job).where(Job.part_of == job.id).order_by(Job.place)))


def debits_of(session: Session, *jobs: str) -> list[Entry]:
    """The debits of jobs, by account."""
    theirs = (Entry.job_id.in_(jobs), Entry.kind == "debit")
    return list(session.scalars(select(Entry).where(*theirs).order_by(Entry.account_id, Entry.seq)))


def fail(session: Session, job_id: str) -> bool:
    """End a claimed job without an answer; it stays charged."""
    return _move(session, Job.id == job_id, "claimed", "failed") is not None


def overdue(session: Session, moment: datetime) -> list[str]:
    """The claimed jobs whose lease ran out: their worker is gone."""
    return list(session.scalars(select(Job.id).where(Job.state == "claimed", Job.lease_until < moment)))


def fail_overdue(session: Session, moment: datetime) -> list[str]:
    """End the claimed jobs whose worker is gone."""
    return [job_id for job_id in overdue(session, moment) if fail(session, job_id)]


def abandon(session: Session) -> None:
    """End all jobs that are under way, unanswered and charged: they may have been answered elsewhere."""
    for job_id in session.scalars(select(Job.id).where(Job.state == "reserved", _WHOLE)).all():
        _move(session, Job.id == job_id, "reserved", "claimed")
    for job_id in session.scalars(select(Job.id).where(Job.state == "claimed", _WHOLE)).all():
        fail(session, job_id)


def void(session: Session, job_id: str) -> bool:
    """Give back the whole charge of a job that was not claimed, of every owner; false if it was."""
    job = _move(session, Job.id == job_id, "reserved", "voided")
    if job is None:
        return False
    debits = debits_of(session, job.id, *(part.id for part in parts_of(session, job)))
    held = {number: _locked(session, number) for number in sorted({entry.account_id for entry in debits})}
    for entry in debits:
        account = held[entry.account_id]
        back = -Charge(entry.epsilon, entry.delta, entry.mu_squared, entry.slack)
        _move_by(account, back)
        _append(session, [account], "void", entry.job_id, None, [back])
    return True


def void_waiting(session: Session, *, dataset_id: str, submitter_id: str | None = None) -> None:
    """Void the jobs on a dataset, alone or with others, of one submitter or of all, that no worker has."""
    whole = func.coalesce(Job.part_of, Job.id)
    found = select(whole).where(Job.state == "reserved", Job.dataset_id == dataset_id)
    if submitter_id is not None:
        found = found.where(Job.submitter_id == submitter_id)
    # All jobs first and then all accounts, in order of id, as jobs may concern other owners' accounts too.
    waiting = select(Job.id).where(Job.id.in_(found), Job.state == "reserved").order_by(Job.id)
    jobs = session.scalars(waiting.with_for_update()).all()
    theirs = select(Job.id).where(or_(Job.id.in_(jobs), Job.part_of.in_(jobs)))
    charged = select(Entry.account_id).where(Entry.job_id.in_(theirs))
    held = select(Account.id).where(Account.id.in_(charged)).order_by(Account.id)
    session.scalars(held.with_for_update()).all()
    for job_id in jobs:
        void(session, job_id)


def _move(
    session: Session, which: ColumnElement[bool], before: str, after: str, **values: object
) -> Job | None:
    """Move one job from a state to the next, with its parts; None if it was not in that state."""
    job = session.scalar(
        update(Job)
        .where(which, Job.state == before, _WHOLE)
        .values(state=after, **values)
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    if job is not None:
        parts = parts_of(session, job)
        for part in parts:
            part.state = after
        session.add_all(Transition(job_id=each.id, state=after) for each in (job, *parts))
        session.flush()
        if after != "claimed":
            once_committed(session, metrics.JOBS.labels(job.kind, after).inc)
    return job

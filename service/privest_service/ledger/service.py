"""Movements of budget and the states of jobs. Every function works inside the caller's transaction.

reserved → claimed → committed | failed, and reserved → voided, which alone gives budget back. The claim
is the point of no return: from there on the charge is final, whatever happens to the job.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Literal

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session, aliased

from privest_service.database import now, once_committed
from privest_service.ledger.chain import entry_hash, to_sign
from privest_service.ledger.models import Account, Entry, IdempotencyKey, Job, Mechanism, Transition
from privest_service.ledger.receipts import Receipt, ReceiptEntry, signer_of
from privest_service.ledger.units import Charge, Limits, moved
from privest_service.owners.models import Owner
from privest_service.problems import AccountFrozen, BudgetExceeded, Invalid, NotFound, WindowReplaced
from privest_service.telemetry import metrics

Scope = Literal["owner", "dataset", "analyst"]
"""Whose budget: the owner's, that of the datasets which it declared to be of the same rows, a grant's.

In this order accounts are shown. Their numbers are random.
"""

Freezer = Literal["owner", "admin"]
"""The role of whoever freezes."""

_OTHER: dict[Freezer, Freezer] = {"owner": "admin", "admin": "owner"}

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

_PART = aliased(Job)

_HELD = and_(
    ~Job.dummy,
    or_(
        exists().where(Owner.id == Job.owner_id, Owner.frozen_by.is_not(None)),
        exists().where(_PART.part_of == Job.id, Owner.id == _PART.owner_id, Owner.frozen_by.is_not(None)),
    ),
)
"""Condition on jobs: an owner whose rows they read is frozen."""

_WAITING = and_(Job.state == "reserved", _WHOLE, ~_HELD)
"""Condition on jobs: they wait for nothing but a worker."""

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
    owner = held_owner(session, owner_id)
    found = {account.scope: account for account in accounts_in_force(session, owner, {scope: subject})}
    if scope in found:
        return found[scope]
    limits = Limits.none(limits_of(found["owner"]).composition)
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


def set_frozen(session: Session, owner_id: str, frozen: bool, *, by: Freezer) -> None:
    """Stop all of an owner's budgets from being charged and its jobs from being run, or let that go on.

    A freeze is in force from the moment that this is committed: reservations and claims hold the owner, and
    are over then, or see it.

    An administrator may end an owner's freeze too, but where both froze, each ends its own.

    Raises:
        AccountFrozen: an administrator alone froze it, and this is the owner who would end that.
    """
    owner = held_owner(session, owner_id)
    former, other = owner.frozen_by, _OTHER[by]
    if frozen:
        owner.frozen_by = by if former in (None, by) else "both"
    elif former == "admin" and by == "owner":
        raise AccountFrozen("an administrator froze this budget, and only an administrator can end that")
    else:
        owner.frozen_by = other if former == "both" else None
    session.flush()


def held_owner(session: Session, owner_id: str) -> Owner:
    """An owner, held: before the transaction ends nobody else freezes it or opens a window.

    It is held against all who hold it: of locks that are shared there may always be one that is in the way.
    """
    # Not against what merely refers to it (FOR NO KEY UPDATE).
    return session.get_one(Owner, owner_id, with_for_update={"key_share": True}, populate_existing=True)


def open_window(session: Session, owner_id: str, replaces: int | None = None) -> Account:
    """Renew a budget: accounts like those of the present window, with nothing spent, take their place.

    What was spent stays where it was. The promise (E, Δ) is one of each window; of k together (kE, kΔ).

    Args:
        session: of the caller's transaction.
        owner_id: whose budget.
        replaces: the window that shall be the present one until now; None for whichever is.

    Raises:
        WindowReplaced: another is the present one.
    """
    owner = held_owner(session, owner_id)
    if replaces is not None and replaces != owner.window:
        raise WindowReplaced(f"the present window is {owner.window}")
    former = _present(session, owner)
    owner.window += 1
    opened = [
        open_account(
            session,
            owner_id,
            account.scope,  # pyright: ignore[reportArgumentType]
            limits_of(account),
            subject=account.subject,
            window=owner.window,
        )
        for account in former
    ]
    return next(account for account in opened if account.scope == "owner")


def _present(session: Session, owner: Owner) -> Sequence[Account]:
    """All accounts of an owner's present window, held."""
    return session.scalars(
        select(Account)
        .where(Account.owner_id == owner.id, Account.window == owner.window)
        .order_by(Account.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).all()


def lose(session: Session, owner_id: str) -> None:
    """Charge what may have been spent and is forgotten: all that the present window had left; and freeze it.

    For a ledger that begins anew from a copy. Whatever was charged since the copy was made moved an account
    of this owner's by no more than the owner's own, and none beyond its limit. What was raised or renewed
    since, the owner alone knows, who has to end the freeze.
    """
    owner = held_owner(session, owner_id)
    accounts = _present(session, owner)
    left, losses = [_left(account) for account in accounts], list[Charge]()
    owners = next(each for each, account in zip(left, accounts, strict=True) if account.scope == "owner")
    for account, own in zip(accounts, left, strict=True):
        losses.append(Charge(*map(min, own, owners)))
        _move_by(account, losses[-1])
    _append(session, accounts, "loss", None, None, losses)
    set_frozen(session, owner_id, True, by="owner")


def _left(account: Account) -> list[int]:
    return [max(0, getattr(account, f"{name}_limit") - getattr(account, f"{name}_spent")) for name in _SUMS]


def _locked(session: Session, account_id: int) -> Account:
    # Not by `get`, which takes offence at what moved since the session first read it, as busy accounts do.
    found = select(Account).where(Account.id == account_id).with_for_update()
    return session.scalars(found.execution_options(populate_existing=True)).one()


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
    if any(account.frozen for account in accounts):
        raise AccountFrozen
    _require_sums(accounts, charges)


def _require_sums(accounts: Sequence[Account], charges: Sequence[Charge]) -> None:
    """Whether the sums of accounts leave room for their charges, frozen or not.

    Raises:
        BudgetExceeded: those of an account do not; the first is named.
    """
    for account, charge in zip(accounts, charges, strict=True):
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

    @property
    def of_grants(self) -> tuple[list[Account], list[Charge]]:
        """The submitter's own caps, with their charges."""
        places = [place for place, account in enumerate(self.accounts) if account.scope == "analyst"]
        return [self.accounts[place] for place in places], [self.charges[place] for place in places]


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

    Caps of grants are looked at first, for all parts: a submitter whose own cap refuses hears of that alone,
    and not of freezes either. All else is looked at before anything is written: else the time would tell
    which part is refused.

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
        with _named(each, debits):
            _require_sums(*each.of_grants)
    for each in debits:
        with _named(each, debits):
            require_room(each.accounts, each.charges)
    for each in debits:
        _keep(session, each.mechanism)
    reserve_free(session, job, key, [each.job for each in debits if each.job is not job])
    for each in debits:
        with _named(each, debits):
            debit(session, each.accounts, each.job.id, each.mechanism.digest, each.charges)
    once_committed(session, metrics.CHARGES.labels(job.kind).inc)


@contextmanager
def _named(which: Debits, among: Sequence[Debits]) -> Iterator[None]:
    """Name the dataset whose charge is refused, where there are several."""
    try:
        yield
    except (AccountFrozen, BudgetExceeded) as refused:
        if len(among) > 1:
            refused.detail = f"that of dataset {which.job.dataset_id}"
        raise


def _keep(session: Session, mechanism: Mechanism) -> None:
    """Store a mechanism unless it is there, which it is whenever the same was asked before."""
    values = {"digest": mechanism.digest, "content": mechanism.content}
    session.connection().execute(_KEEP[session.get_bind().dialect.name], values)


def waiting(session: Session) -> int:
    """How many jobs wait for a worker, those of frozen owners left out: they wait for the freeze to end."""
    return session.scalar(select(func.count()).select_from(Job).where(_WAITING)) or 0


def waiting_for(session: Session, submitter_id: str) -> tuple[int, int, int]:
    """How many jobs wait for a worker, how many of them are this submitter's, and of these dummies."""
    theirs = Job.submitter_id == submitter_id
    counts = func.count(), func.count().filter(theirs), func.count().filter(theirs, Job.dummy)
    return session.execute(select(*counts).select_from(Job).where(_WAITING)).one()


def queue(session: Session) -> tuple[int, float]:
    """How many jobs wait for a worker, and for how many seconds the oldest of them has."""
    found = select(func.count(), func.min(Job.created_at)).where(_WAITING)
    count, since = session.execute(found).one()
    return count, max(0.0, (now() - since).total_seconds()) if since else 0.0


def in_states(session: Session, *states: str) -> dict[str, int]:
    """How many jobs are in these states, which no job stays in."""
    counted = select(Job.state, func.count()).where(Job.state.in_(states), _WHOLE).group_by(Job.state)
    return dict.fromkeys(states, 0) | dict(session.execute(counted).all())


def claim_next(session: Session, lease: timedelta, not_of: Collection[str] = ()) -> Job | None:
    """Claim a job of whoever has fewest claimed, the one that has waited longest, dummies last.

    From here on its charge is final. Jobs of frozen owners, of whose parts one is enough, are passed over.

    Args:
        session: of the caller's transaction.
        lease: after which it is lost.
        not_of: submitters who have their share of the workers already.
    """
    while (job := session.scalar(_next(not_of))) is not None:
        if job.dummy or not _frozen_meanwhile(session, job):
            return _move(session, Job.id == job.id, "reserved", "claimed", lease_until=now() + lease)
    return None


def _frozen_meanwhile(session: Session, job: Job) -> bool:
    """Whether an owner was frozen since the look that found a job: the next look will not find it.

    Owners are held from here on, so that no freeze is answered before the claim is committed.
    """
    owners = [part.owner_id for part in parts_of(session, job)] or [job.owner_id]
    held = select(Owner).where(Owner.id.in_(owners)).order_by(Owner.id).with_for_update(read=True)
    found = session.scalars(held.execution_options(populate_existing=True)).all()
    return any(owner.frozen_by is not None for owner in found)


def _next(not_of: Collection[str]) -> Select[Job]:
    """The job that is to be claimed next, held."""
    under_way = (
        select(Job.submitter_id, func.count().label("jobs"))
        .where(Job.state == "claimed", _WHOLE)
        .group_by(Job.submitter_id)
        .subquery()
    )
    return (
        select(Job)
        .outerjoin(under_way, under_way.c.submitter_id == Job.submitter_id)
        .where(_WAITING, Job.submitter_id.not_in(not_of))
        .order_by(Job.dummy, func.coalesce(under_way.c.jobs, 0), Job.created_at, Job.id)
        .limit(1)
        .with_for_update(skip_locked=True, of=Job)  # SQLite has one writer and leaves this out
        .execution_options(populate_existing=True)
    )


def commit(session: Session, job_id: str, result: str) -> bool:
    """Store the answer of a claimed job, with receipts if it was charged; false if its lease ran out.

    Each owner's receipt is for its own part; that of the whole job is for all debits of all owners. An
    analyst's receipt commits to the debits and does not name them.
    """
    job = _move(session, Job.id == job_id, "claimed", "committed", result=result)
    if job is None:
        return False
    if job.dummy:
        return True
    parts, signer = parts_of(session, job), signer_of(session)
    charged = parts or [job]
    entries = {each.id: list[ReceiptEntry]() for each in charged}
    for debit in debits_of(session, *entries):
        entries[str(debit.job_id)].append(ReceiptEntry.of(debit))
    about, debits = [str(each.dataset_id) for each in charged], list(chain.from_iterable(entries.values()))
    whole = signer.receipt(job, about, debits, result)
    asked_by_owner = all(each.owner_id == job.submitter_id for each in charged)
    submitted = whole if asked_by_owner else signer.for_analyst(whole)
    for part in parts:
        own = signer.receipt(part, [str(part.dataset_id)], entries[part.id], submitted.model_dump_json())
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
    owners = {each.owner_id for each in parts_of(session, job) or [job]}
    if owners == {caller_id}:
        return whole
    if job.analyst_receipt is not None:
        return Receipt.model_validate_json(job.analyst_receipt)
    return whole and signer_of(session).for_analyst(whole)


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

"""Accounts: opened, capped, frozen, renewed. Every function works inside the caller's transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from sqlalchemy import Integer, bindparam, func, select
from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.database import now
from privest_service.database.tables import new_id
from privest_service.ledger import entries, windows
from privest_service.ledger.entries import AMOUNTS, SUMS_AFTER, limits_of
from privest_service.ledger.models import Account, WindowRules
from privest_service.ledger.units import Charge, Limits
from privest_service.notices import service as notices
from privest_service.problems import AccountFrozen, Fault, Invalid, NotFound, WindowReplaced
from privest_service.security.models import Owner
from privest_service.security.service import issue_key

Scope = Literal["owner", "dataset", "analyst"]
"""What an account limits: the owner, one lineage of the owner's datasets, or one analyst's grant.

A lineage is all datasets that the owner declared to be of the same rows. Accounts are shown in this order,
because their numbers are random.
"""

Freezer = Literal["owner", "admin"]
"""The role of whoever freezes."""

_OTHER: dict[Freezer, Freezer] = {"owner": "admin", "admin": "owner"}

_OWNERS_ACCOUNTS = (
    select(Account)
    .join(Owner, Owner.id == Account.owner_id)
    .where(
        Account.owner_id.in_(bindparam("owners", expanding=True)),
        Account.scope == "owner",
        Account.window == func.coalesce(bindparam("window", type_=Integer), Owner.window),
    )
)


_NAMED = (Account.owner_id, Account.scope, Account.subject, Account.window)
_ACCOUNTS = (
    select(Account)
    .where(*(column.in_(bindparam(column.key, expanding=True)) for column in _NAMED))
    .order_by(Account.id)
    .execution_options(populate_existing=True)
)
_ACCOUNTS_HELD = _ACCOUNTS.with_for_update()
_OWNERS_HELD = (
    select(Owner)
    .where(Owner.id.in_(bindparam("owners", expanding=True)))
    .order_by(Owner.id)
    .with_for_update(key_share=True)  # not against what merely refers to them (FOR NO KEY UPDATE)
    .execution_options(populate_existing=True)
)


def create_owner(session: Session, name: str, limits: Limits) -> tuple[Owner, str]:
    """A new owner with its budget, and its first key."""
    owner = Owner(id=new_id("own"), name=name, window=1)
    session.add(owner)
    session.flush()
    acts.record(session, owner.id, "owner.created", subject=owner.id, details={"name": name})
    details = {**limits.told(), "composition": limits.composition}
    acts.record(session, owner.id, "budget.set", subject=owner.id, details=details)
    open_account(session, owner.id, "owner", limits)
    return owner, issue_key(session, "owner", owner.id)[1]


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
    entries.append(session, [account], "limit", None, None, [_as_charge(limits)])
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

    Subjects name what else a charge concerns, by scope. With `lock`, the rows are held until the transaction
    ends.
    """
    return accounts_of(session, [(owner, subjects or {})], lock=lock)


def accounts_of(
    session: Session, concerned: Sequence[tuple[Owner, Mapping[Scope, str]]], *, lock: bool = False
) -> list[Account]:
    """Return the accounts of several owners in their present windows.

    All of them are locked together by id, so that no two reservations wait for each other.
    """
    named = {
        (owner.id, scope, subject, owner.window)
        for owner, subjects in concerned
        for scope, subject in {"owner": "", **subjects}.items()
    }
    # By its columns apart, of which SQLite has an index: of owners in different windows there are more.
    apart = zip(*named, strict=True) if named else [()] * len(_NAMED)
    given = {column.key: list(set(values)) for column, values in zip(_NAMED, apart, strict=True)}
    found = session.scalars(_ACCOUNTS_HELD if lock else _ACCOUNTS, given)
    return [each for each in found if (each.owner_id, each.scope, each.subject, each.window) in named]


def owner_account(session: Session, owner_id: str, *, window: int | None = None) -> Account:
    """The account of an owner's budget, in the present window or another.

    Raises:
        NotFound: there was no such window.
    """
    account = session.scalar(_OWNERS_ACCOUNTS, {"owners": [owner_id], "window": window})
    if account is None:
        raise NotFound
    return account


def owners_accounts(session: Session, owner_ids: Collection[str]) -> dict[str, Account]:
    """The accounts of owners' budgets in their present windows, by owner."""
    found = session.scalars(_OWNERS_ACCOUNTS, {"owners": list(owner_ids), "window": None})
    return {account.owner_id: account for account in found}


def raise_limits(session: Session, account_id: int, limits: Limits) -> None:
    """Replace an account's limits by higher ones.

    Raises:
        Invalid: a limit would fall, or the budget is promised for all of its windows together.
    """
    account = entries.locked(session, account_id)
    rules = session.get(WindowRules, account.owner_id)
    if rules is not None and rules.total_epsilon is not None:
        raise Invalid("This budget is promised for all of its windows together. It can not be raised.")
    old, new = _as_charge(limits_of(account)), _as_charge(limits)
    if any(getattr(new, name) < getattr(old, name) for name in AMOUNTS):
        rule = "can be raised but not lowered: freeze the budget to stop further queries"
        lower = [name for name in ("epsilon", "delta") if getattr(new, name) < getattr(old, name)]
        raise Invalid(
            "A budget can be raised but not lowered. Freeze it to stop further queries.",
            faults=[Fault(location=name, rule=rule) for name in lower],
        )
    _set(account, "limit", new)
    entries.append(session, [account], "limit", None, None, [new])
    details = {**limits.told(), "window": account.window}
    acts.record(session, account.owner_id, "budget.raised", subject=account.owner_id, details=details)


def set_cap(session: Session, account_id: int, limits: Limits) -> Limits | None:
    """Replace a cap's limits, by higher or lower ones: what was spent before counts.

    Returns the former ones; None where these are the same.

    Raises:
        Invalid: more is spent already.
    """
    account = entries.locked(session, account_id)
    if (former := limits_of(account)) == limits:
        return None
    new = _as_charge(limits)
    if any(getattr(account, f"{name}_spent") > getattr(new, name) for name in limits.counted):
        raise Invalid("More than this cap is spent already. Choose a higher cap.")
    _set(account, "limit", new)
    entries.append(session, [account], "limit", None, None, [new])
    return former


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
        raise AccountFrozen("An administrator froze this budget. Only an administrator can unfreeze it.")
    else:
        owner.frozen_by = other if former == "both" else None
    session.flush()
    if owner.frozen_by != former:
        acts.record(session, owner_id, "budget.frozen" if frozen else "budget.unfrozen", subject=owner_id)
        notices.notify(session, owner_id, "budget.frozen", {"frozen_by": owner.frozen_by})


def held_owner(session: Session, owner_id: str) -> Owner:
    """An owner, held as `held_owners` does it."""
    (owner,) = held_owners(session, [owner_id])
    return owner


def held_owners(session: Session, owner_ids: Collection[str]) -> Sequence[Owner]:
    """Owners, held in one order: before the transaction ends nobody else freezes one or opens a window.

    They are held against all who hold them: of shared locks there may always be one that is in the way.
    """
    return session.scalars(_OWNERS_HELD, {"owners": list(owner_ids)}).all()


def open_window(session: Session, owner_id: str, replaces: int | None = None) -> Account:
    """Renew a budget: accounts like those of the present window, with nothing spent, take their place.

    What was spent stays where it was. The promise (E, Δ) is one of each window; of k together (kE, kΔ).

    If `replaces` names a window, that must be the present one.

    Raises:
        WindowReplaced: another is the present one.
        WindowNotAllowed: the budget's own rules do not allow a new window now.
    """
    owner, rules = held_owner(session, owner_id), session.get(WindowRules, owner_id, populate_existing=True)
    if replaces is not None and replaces != owner.window:
        raise WindowReplaced(
            f"The present window is {owner.window}. Send that number as replaces to open the next one."
        )
    moment = now()
    windows.require_allowed(rules, owner.window, moment)
    former = _present(session, owner)
    owner.window += 1
    if rules is not None:
        windows.begin(rules, owner.window, moment)
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
    renewed = next(account for account in opened if account.scope == "owner")
    details = {**limits_of(renewed).told(), "window": owner.window}
    acts.record(session, owner_id, "budget.renewed", subject=owner_id, details=details)
    notices.notify(session, owner_id, "budget.renewed", {"window": owner.window})
    return renewed


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
    since, the owner alone knows, who has to end the freeze. Where the number of windows has a limit, those
    that were opened since may have used it up: then none follows.
    """
    owner = held_owner(session, owner_id)
    accounts = _present(session, owner)
    left, losses = [_left(account) for account in accounts], list[Charge]()
    owners = next(each for each, account in zip(left, accounts, strict=True) if account.scope == "owner")
    for account, own in zip(accounts, left, strict=True):
        losses.append(Charge(*map(min, own, owners)))
        entries.move_by(account, losses[-1])
    entries.append(session, accounts, "loss", None, None, losses)
    rules = session.get(WindowRules, owner_id)
    if rules is not None and rules.most is not None:
        rules.most, rules.due_at = owner.window, None
    acts.record(session, owner_id, "ledger.restored", subject=owner_id, details={"window": owner.window})
    set_frozen(session, owner_id, True, by="owner")


def _left(account: Account) -> list[int]:
    return [max(0, getattr(account, f"{name}_limit") - getattr(account, f"{name}_spent")) for name in AMOUNTS]


def _as_charge(limits: Limits) -> Charge:
    return Charge(limits.epsilon, limits.delta, limits.mu_squared, limits.slack)


def _set(account: Account, what: str, amounts: Charge) -> None:
    for name in AMOUNTS:
        setattr(account, f"{name}_{what}", getattr(amounts, name))

"""Entries: every movement of budget is one more link of an account's chain.

Every function works inside the caller's transaction, which holds the accounts' rows.
"""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service.database import now
from privest_service.ledger.chain import entry_hash, to_sign
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.units import Charge, Limits, moved
from privest_service.problems import AccountFrozen, BudgetExceeded
from privest_service.signing import signer_of

AMOUNTS = ("epsilon", "delta", "mu_squared", "slack")
"""The four amounts of a charge, a limit and a sum."""

QUERIES = {"limit": 0, "debit": 1, "void": -1, "loss": 0}
"""What an entry of each kind adds to the number of charged queries."""

SUMS_AFTER = (*(f"{name}_spent" for name in AMOUNTS), "queries")
"""Columns that an account and its entries share: the sums as they are after the entry."""


def limits_of(account: Account) -> Limits:
    """The account's limits."""
    return Limits(
        "gdp" if account.composition == "gdp" else "basic",
        account.epsilon_limit,
        account.delta_limit,
        account.mu_squared_limit,
        account.slack_limit,
    )


def locked(session: Session, account_id: int) -> Account:
    """An account with its row held, as it stands now."""
    # Not by `get`, which takes offence at what moved since the session first read it, as busy accounts do.
    found = select(Account).where(Account.id == account_id).with_for_update()
    return session.scalars(found.execution_options(populate_existing=True)).one()


def append(
    session: Session,
    accounts: Sequence[Account],
    kind: str,
    job_id: str | None,
    mechanism: str | None,
    amounts: Sequence[Charge],
) -> list[Entry]:
    """Write the next entry of every chain; the caller holds the accounts' rows."""
    signer, at, written = signer_of(session), now(), list[Entry]()
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
        written.append(entry)
    session.add_all(written)
    return written


def move_by(account: Account, amount: Charge) -> None:
    """Add to the sums; no limit guards the currency that the account does not count in, so it is capped."""
    for name in AMOUNTS:
        setattr(account, f"{name}_spent", moved(getattr(account, f"{name}_spent"), getattr(amount, name)))


def require_room(accounts: Sequence[Account], charges: Sequence[Charge]) -> None:
    """Whether accounts cover their charges, as far as is known without holding them.

    Raises:
        AccountFrozen: nothing may be charged at present.
        BudgetExceeded: an account does not cover its charge; the first that does not is named.
    """
    if any(account.frozen for account in accounts):
        raise AccountFrozen
    require_sums(accounts, charges)


def require_sums(accounts: Sequence[Account], charges: Sequence[Charge]) -> None:
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
) -> list[Entry]:
    """Charge accounts whose rows are held, each its own, or none of them; return the entry of each.

    Raises:
        AccountFrozen: nothing may be charged at present.
        BudgetExceeded: an account does not cover its charge; the first that does not is named.
    """
    require_room(accounts, charges)
    for account, charge in zip(accounts, charges, strict=True):
        move_by(account, charge)
    return append(session, accounts, "debit", job_id, mechanism, charges)


def debits_of(session: Session, *jobs: str) -> list[Entry]:
    """The debits of jobs, by account."""
    theirs = (Entry.job_id.in_(jobs), Entry.kind == "debit")
    return list(session.scalars(select(Entry).where(*theirs).order_by(Entry.account_id, Entry.seq)))

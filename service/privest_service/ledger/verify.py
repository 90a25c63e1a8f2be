"""Checks every account against its entries: the chain of hashes, the sums, and the limits."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service.ledger.chain import entry_hash
from privest_service.ledger.models import Account, Entry
from privest_service.ledger.service import INFORMATIVE_CAP

_AMOUNTS = ("epsilon", "delta", "mu_squared", "slack")


@dataclass(frozen=True)
class Report:
    """What was read, and what is wrong with it, in words."""

    accounts: int
    entries: int
    faults: list[str]


def verify(session: Session) -> Report:
    """Read the whole ledger once, entry by entry."""
    accounts = session.scalars(select(Account).order_by(Account.id)).all()
    faults: list[str] = []
    count = 0
    for account in accounts:
        entries = list(
            session.scalars(select(Entry).where(Entry.account_id == account.id).order_by(Entry.seq))
        )
        count += len(entries)
        faults.extend(f"account {account.id}: {fault}" for fault in _faults(account, entries))
    return Report(len(accounts), count, faults)


def _faults(account: Account, entries: list[Entry]) -> Iterator[str]:
    sums = dict.fromkeys(_AMOUNTS, 0)
    limits = dict.fromkeys(_AMOUNTS, 0)
    prev = ""
    for place, entry in enumerate(entries, start=1):
        if entry.seq != place or entry.prev != prev:
            yield f"entry {entry.seq} does not follow its predecessor"
        if entry_hash(entry) != entry.hash:
            yield f"entry {entry.seq} was changed"
        prev = entry.hash
        for name in _AMOUNTS:
            if entry.kind == "limit":
                limits[name] = getattr(entry, name)
            else:
                sums[name] = min(sums[name] + getattr(entry, name), INFORMATIVE_CAP)
    if (account.seq, account.head) != (len(entries), prev):
        yield "the chain does not end where the account says"
    for name in _AMOUNTS:
        if getattr(account, f"{name}_spent") != sums[name]:
            yield f"spent {name} is not the sum of the entries"
        if getattr(account, f"{name}_limit") != limits[name]:
            yield f"the limit of {name} is not the one last entered"

"""Tallies: what each submitter asked about each of an owner's data, kept by the ledger's own writes.

A ledger of any length tells from them who learned what, and when. Every function works inside the caller's
transaction, which holds the accounts' rows.
"""

from collections.abc import Sequence

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from privest_service.database import before_commit
from privest_service.jobs.models import Job
from privest_service.ledger.entries import AMOUNTS, QUERIES
from privest_service.ledger.models import Account, Entry, Tally
from privest_service.ledger.units import moved

_COUNTED = "tallies"

_KEY = ("account_id", "submitter_id", "lineage", "kind")
"""What tells one tally from another."""

_Key = tuple[int, str, str, str]


def count(session: Session, job: Job, accounts: Sequence[Account], written: Sequence[Entry]) -> None:
    """Count a charge of a job, or what is given back, in the tally of whoever asked, before the commit.

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
        before_commit(session, _write)
    session.info[_COUNTED] += [
        ((entry.account_id, job.submitter_id, lineage, job.kind), entry)
        for entry in written
        if entry.account_id in whole
    ]


def _write(session: Session) -> None:
    """Move the tallies in which a transaction's entries count: read at once, whose accounts it holds."""
    counted: list[tuple[_Key, Entry]] = session.info.pop(_COUNTED)
    named = tuple_(*(getattr(Tally, name) for name in _KEY))
    found = session.scalars(
        select(Tally).where(named.in_({key for key, _ in counted})).execution_options(populate_existing=True)
    )
    tallies = {(each.account_id, each.submitter_id, each.lineage, each.kind): each for each in found}
    for key, entry in counted:
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = _first(key, entry)
            session.add(tally)
        tally.queries += QUERIES[entry.kind]
        for name in AMOUNTS:
            setattr(tally, name, moved(getattr(tally, name), getattr(entry, name)))
        if entry.kind == "debit":
            tally.last_at = entry.at


def _first(key: _Key, entry: Entry) -> Tally:
    nothing = dict.fromkeys(("queries", *AMOUNTS), 0)
    return Tally(**dict(zip(_KEY, key, strict=True)), first_at=entry.at, last_at=entry.at, **nothing)

"""Tallies: what each submitter asked about each of an owner's data, kept by the ledger's own writes.

A ledger of any length tells from them who learned what, and when. Every function works inside the caller's
transaction, which holds the accounts' rows.
"""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from privest_service.jobs.models import Job
from privest_service.ledger.entries import AMOUNTS, QUERIES
from privest_service.ledger.models import Account, Entry, Tally
from privest_service.ledger.units import moved

_COUNTED = "tallies"


def count(session: Session, job: Job, accounts: Sequence[Account], written: Sequence[Entry]) -> None:
    """Count a charge of a job, or what is given back, in the tally of whoever asked.

    Args:
        session: of the caller's transaction.
        job: the job, or the part of it that is on this owner's dataset.
        accounts: of the owner.
        written: their entries.
    """
    lineage = next((each.subject for each in accounts if each.scope == "dataset"), "")
    whole = {each.id for each in accounts if each.scope == "owner"}
    for entry in written:
        if entry.account_id in whole:
            tally = _of(session, job, lineage, entry)
            tally.queries += QUERIES[entry.kind]
            for name in AMOUNTS:
                setattr(tally, name, moved(getattr(tally, name), getattr(entry, name)))
            if entry.kind == "debit":
                tally.last_at = entry.at


def _of(session: Session, job: Job, lineage: str, entry: Entry) -> Tally:
    """The tally that an entry counts in; one of nothing where it is the first."""
    key = (entry.account_id, job.submitter_id, lineage, job.kind)
    # Read once in a transaction, which holds the account: further entries count in what is not written yet.
    known: dict[tuple[int, str, str, str], Tally] = session.info.setdefault(_COUNTED, {})
    if key not in known:
        with session.no_autoflush:  # what is queued tells nothing of tallies
            found = session.get(Tally, key, populate_existing=True)
        known[key] = found or _first(session, entry, job, lineage)
    return known[key]


def _first(session: Session, entry: Entry, job: Job, lineage: str) -> Tally:
    nothing = dict.fromkeys(("queries", *AMOUNTS), 0)
    tally = Tally(
        account_id=entry.account_id,
        submitter_id=job.submitter_id,
        lineage=lineage,
        kind=job.kind,
        first_at=entry.at,
        last_at=entry.at,
        **nothing,
    )
    session.add(tally)
    return tally

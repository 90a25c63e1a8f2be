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
    key = {"account_id": entry.account_id, "submitter_id": job.submitter_id}
    key |= {"lineage": lineage, "kind": job.kind}
    found = session.get(Tally, key, populate_existing=True)
    if found is None:
        nothing = dict.fromkeys(("queries", *AMOUNTS), 0)
        found = Tally(**key, **nothing, first_at=entry.at, last_at=entry.at)
        session.add(found)
    return found

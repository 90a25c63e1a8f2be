"""The acts behind a ledger: who set a limit, who approved a question, and when all of it was verified."""

import json
from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service.acts.models import Act
from privest_service.acts.service import record, record_few
from privest_service.ledger.models import Account
from privest_service.reports.words import Told, in_words

_AT_ONCE = 500
"""Acts that are read in one go."""


def limits_set(session: Session, account: Account) -> Iterator[Told]:
    """The acts that set the limits of a budget's window: one for each, in order."""
    kinds = ("budget.set", "budget.raised", "budget.renewed", "budget.rules")
    owner = account.owner_id
    acts = select(Act).where(Act.chain == owner, Act.subject == owner, Act.kind.in_(kinds)).order_by(Act.seq)
    read = -1
    while some := session.scalars(acts.where(Act.seq > read).limit(_AT_ONCE)).all():
        read = some[-1].seq
        yield from in_words(session, [act for act in some if _sets(act, account.window)])


def _sets(act: Act, window: int) -> bool:
    """Whether an act set a limit of the budget in this window."""
    details = json.loads(act.details)
    if act.kind == "budget.set":
        return window == 1
    if act.kind == "budget.rules":  # of a promise for all windows together, of which the first gets its part
        return window == 1 and details.get("promise") == "lifetime"
    return details.get("window") == window


def approval(session: Session, owner_id: str, job_id: str) -> Told | None:
    """The act by which an owner approved a question; None where none was needed."""
    act = select(Act).where(Act.chain == owner_id, Act.subject == job_id, Act.kind == "question.approved")
    return next(iter(in_words(session, session.scalars(act))), None)


_LEDGER = "ledger"
"""What acts of verifications are about: by it the last one is found however many acts there are."""


def note_verified(session: Session, owner_id: str, entries: int, faults: int) -> None:
    """Record that a whole ledger was verified: always, where it found what the last did not."""
    last = last_verified(session, owner_id)
    found = {"entries": entries, "faults": faults}
    noted = record_few if last is not None and last[1] == faults else record
    noted(session, owner_id, "ledger.verified", subject=_LEDGER, details=found)


def last_verified(session: Session, owner_id: str) -> tuple[datetime, int] | None:
    """When an owner last had its ledger verified on its page, and how many faults were found."""
    found = select(Act).where(Act.chain == owner_id, Act.subject == _LEDGER, Act.kind == "ledger.verified")
    act = session.scalars(found.order_by(Act.seq.desc()).limit(1)).first()
    return None if act is None else (act.at, int(json.loads(act.details)["faults"]))

"""Whether what an owner's pages show has changed."""

import hashlib

from sqlalchemy.orm import Session

from privest_service.dashboard import entries
from privest_service.ledger import service as ledger


def page_version(session: Session, owner_id: str) -> str:
    """Return a digest of everything that an owner's pages show. It changes whenever one of them does."""
    account = ledger.owner_account(session, owner_id)
    told = [account.window, account.seq, account.frozen_by, *entries.latest_states(session, account)]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]

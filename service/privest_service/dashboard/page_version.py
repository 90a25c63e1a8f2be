"""Whether what the pages of an owner or an analyst show has changed."""

import hashlib

from sqlalchemy import select
from sqlalchemy.orm import Session

from privest_service.dashboard import entries
from privest_service.dashboard.session_auth import Visitor
from privest_service.estimates import requests
from privest_service.jobs.models import Job
from privest_service.ledger import service as ledger


def page_version(session: Session, owner_id: str) -> str:
    """Return a digest of everything that an owner's pages show. It changes whenever one of them does."""
    account = ledger.owner_account(session, owner_id)
    told = [account.window, account.seq, account.frozen_by, *entries.latest_states(session, account)]
    told.append(requests.number_waiting_for(session, owner_id))
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


_LATEST = 50
"""Questions of an analyst that are looked at: of those that are older none is under way."""


def analyst_version(session: Session, analyst_id: str) -> str:
    """Return a digest of where an analyst's latest questions stand."""
    latest = select(Job.id, Job.state).where(Job.submitter_id == analyst_id, Job.part_of.is_(None))
    found = session.execute(latest.order_by(Job.created_at.desc(), Job.id.desc()).limit(_LATEST)).all()
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def version_for(session: Session, visitor: Visitor) -> str:
    """Return the digest of what the pages of a visitor show."""
    return (analyst_version if visitor.is_analyst else page_version)(session, visitor.id)

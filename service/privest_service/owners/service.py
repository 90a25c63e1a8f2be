"""Owners: each is made with its budget and its first key."""

from sqlalchemy.orm import Session

from privest_service import acts
from privest_service.database.tables import new_id
from privest_service.ledger import service as ledger
from privest_service.ledger.units import Limits
from privest_service.security.models import Owner
from privest_service.security.service import issue_key


def create_owner(session: Session, name: str, limits: Limits) -> tuple[Owner, str]:
    """A new owner with its budget, and its first key."""
    owner = Owner(id=new_id("own"), name=name, window=1)
    session.add(owner)
    session.flush()
    acts.record(session, owner.id, "owner.created", subject=owner.id, details={"name": name})
    details = {**limits.told(), "composition": limits.composition}
    acts.record(session, owner.id, "budget.set", subject=owner.id, details=details)
    ledger.open_account(session, owner.id, "owner", limits)
    return owner, issue_key(session, "owner", owner.id)[1]

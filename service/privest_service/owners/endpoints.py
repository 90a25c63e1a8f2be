"""Owners."""

from fastapi import APIRouter
from sqlalchemy.orm import Session

from privest_service.ledger import renewals
from privest_service.owners import service
from privest_service.owners.schemas import CreatedOwner, NewOwner
from privest_service.problems import documented
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, ManageDep
from privest_service.security.models import Owner

router = APIRouter(prefix="/v1/owners", tags=["owners"], route_class=Route)


@router.post("", status_code=201, responses=documented())
def create_owner(body: NewOwner, caller: ManageDep, database: DatabaseDep) -> CreatedOwner:
    """Make an owner with its budget; the key is shown once."""
    caller.must_be("admin")
    limits = body.budget.limits()

    def create(session: Session) -> tuple[Owner, str]:
        owner, key = service.create_owner(session, body.name, limits)
        if body.budget.renewal is not None:
            renewals.set_renewal(session, owner.id, body.budget.renewal.renewal())
        if body.budget.pace is not None:
            renewals.set_pace(session, owner.id, body.budget.pace)
        return owner, key

    owner, key = database.run(create)
    return CreatedOwner(id=owner.id, name=owner.name, budget=body.budget, key=key)

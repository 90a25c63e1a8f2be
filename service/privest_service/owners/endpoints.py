"""Owners."""

from fastapi import APIRouter

from privest_service.owners import service
from privest_service.owners.schemas import CreatedOwner, NewOwner
from privest_service.problems import documented
from privest_service.security.admission import Route
from privest_service.security.dependencies import DatabaseDep, ManageDep

router = APIRouter(prefix="/v1/owners", tags=["owners"], route_class=Route)


@router.post("", status_code=201, responses=documented())
def create_owner(body: NewOwner, caller: ManageDep, database: DatabaseDep) -> CreatedOwner:
    """Make an owner with its budget; the key is shown once."""
    caller.must_be("admin")
    limits = body.budget.limits()
    owner, key = database.run(lambda session: service.create_owner(session, body.name, limits))
    return CreatedOwner(id=owner.id, name=owner.name, budget=body.budget, key=key)

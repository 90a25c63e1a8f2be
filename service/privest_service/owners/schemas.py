"""Requests and answers about owners."""

from pydantic import BaseModel

from privest_service.inputs import Input, Name
from privest_service.ledger.schemas import NewBudget


class NewOwner(Input):
    """An owner to be made."""

    name: Name
    budget: NewBudget


class CreatedOwner(BaseModel):
    """A new owner; the key is shown this once."""

    id: str
    name: str
    budget: NewBudget
    key: str

"""Requests and answers about owners."""

from typing import Annotated

from pydantic import BaseModel

from privest_service.inputs import Input, Name, like
from privest_service.ledger.schemas import NewBudget


class NewOwner(Input):
    """An owner to be made."""

    name: Name
    budget: Annotated[NewBudget, like({"epsilon": 3, "delta": 1e-5})]


class CreatedOwner(BaseModel):
    """A new owner; the key is shown this once."""

    id: str
    name: str
    budget: NewBudget
    key: str

"""Requests and answers about analysts and keys."""

from typing import Annotated

from pydantic import BaseModel, Field

from privest_service.inputs import Input, Name
from privest_service.security.keys import Role


class PrincipalView(BaseModel):
    """Who holds a key."""

    role: Role
    id: str


class NewAnalyst(Input):
    """An analyst to be made."""

    name: Name


class CreatedAnalyst(BaseModel):
    """A new analyst; the key is shown this once."""

    id: str
    name: str
    key: str


class IssuedKey(BaseModel):
    """A further key; shown this once."""

    id: str
    key: Annotated[str, Field(description="shown once")]

"""Requests and answers about analysts and keys."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, model_validator

from privest_service.inputs import Input, Name
from privest_service.security.keys import SCOPES, Role, Scope
from privest_service.security.models import LONGEST_SUBJECT


class PrincipalView(BaseModel):
    """The holder of a key."""

    role: Role
    id: str


Subject = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_SUBJECT, pattern=r"^[ -~]+$")]


class NewAnalyst(Input):
    """An analyst to be made."""

    name: Name
    subject: Annotated[
        Subject | None,
        Field(description="`sub` of the person whose tokens are to be this analyst's; default: nobody's"),
    ] = None


class CreatedAnalyst(BaseModel):
    """A new analyst; the key is shown this once."""

    id: str
    name: str
    key: str


class NamedView(BaseModel):
    """An owner or an analyst."""

    id: str
    name: str
    created_at: datetime


class _Page(BaseModel):
    next: Annotated[str | None, Field(description="`cursor` of the next page; null where none follows")]


class OwnerList(_Page):
    """Owners, newest first, and the cursor of the next page."""

    owners: list[NamedView]


class AnalystView(NamedView):
    """An analyst, and the person whose it is."""

    subject: Annotated[str | None, Field(description="`sub` in this person's tokens")] = None


class AnalystList(_Page):
    """Analysts, newest first, and the cursor of the next page."""

    analysts: list[AnalystView]


class OnBehalfOf(Input):
    """What makes a key that of a service account, which asks for people."""

    client: Annotated[
        Subject,
        Field(description="of the identity provider; people whose tokens were issued to it may be asked for"),
    ]
    key_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=7 * 86_400,
            description="that keys which it issues for people may last, however soon their tokens end",
        ),
    ] = 0


class NewKey(Input):
    """A key to be issued: by default for as much, and for as long, as the key that issues it."""

    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(SCOPES))] | None = None
    expires_in: Annotated[int, Field(ge=1, le=10 * 366 * 86_400, description="seconds")] | None = None
    rotate: Annotated[
        bool,
        Field(
            description="take the place of the key that issues it: that one ends at once, and the keys that "
            "it issued go on under the new one"
        ),
    ] = False

    on_behalf_of: Annotated[
        OnBehalfOf | None,
        Field(description="the people for whom this key may ask; for analysts, by the administrator alone"),
    ] = None

    @model_validator(mode="after")
    def _takes_the_place_whole(self) -> "NewKey":
        if self.rotate and (self.scopes is not None or self.expires_in is not None):
            raise ValueError("must not have scopes or expires_in beside rotate, which keeps both")
        if self.rotate and self.on_behalf_of is not None:
            raise ValueError("must not have on_behalf_of beside rotate, which keeps it")
        return self

    @property
    def lifetime(self) -> timedelta | None:
        """The time for which the key is good; None if the request does not say."""
        return None if self.expires_in is None else timedelta(seconds=self.expires_in)


class OnBehalfOfView(BaseModel):
    """The people for whom a key may ask, and how long keys that it issues for them may last."""

    client: str
    key_seconds: int


class KeyView(BaseModel):
    """The facts about a key; not the key itself."""

    id: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    person: Annotated[str | None, Field(description="whose token issued it")] = None
    through: Annotated[str | None, Field(description="service account that asked for this person")] = None
    on_behalf_of: OnBehalfOfView | None = None


class KeyList(BaseModel):
    """The keys of a principal, newest first, and the cursor of the next page."""

    keys: list[KeyView]
    next: str | None


class IssuedKey(BaseModel):
    """A further key; shown this once."""

    id: str
    key: Annotated[str, Field(description="shown once")]
    scopes: list[Scope]
    expires_at: datetime | None

"""Requests and answers about channels. Where one leads comes in and never goes out."""

from datetime import datetime
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, StringConstraints, TypeAdapter, field_validator

from privest_service.inputs import Input

Event = Literal["budget.spent", "budget.frozen", "budget.renewed", "question.requested", "question.ended"]
"""Kinds of notices that a channel can be asked to take; heads and tests have their own ways."""

HeadsEvery = Literal["hour", "day", "week"]
"""How often signed heads are sent."""

_ALL: list[Event] = [*get_args(Event)]


class _New(Input):
    events: Annotated[
        list[Event], Field(max_length=10, description="kinds of notices that go there; by default all")
    ] = _ALL
    heads: Annotated[
        HeadsEvery | None, Field(description="how often the signed ends of all chains go there, too")
    ] = None


class NewAnalystChannel(Input):
    """An address to which the ends of an analyst's own questions are posted, signed with a secret."""

    kind: Literal["webhook"]
    url: Annotated[
        str, StringConstraints(max_length=2000, pattern=r"^https?://[!-~]+$"), Field(description="https")
    ]

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str) -> str:
        if "@" in url.split("/")[2]:
            raise ValueError("must have no name or password before its host")
        return url


class NewWebhook(NewAnalystChannel, _New):
    """An address to which notices are posted, signed with a secret that the answer shows once."""


class NewMail(_New):
    """An e-mail address."""

    kind: Literal["mail"]
    to: Annotated[str, StringConstraints(max_length=254, pattern=r"^[\w.+-]{1,64}@[A-Za-z0-9.-]{1,189}$")]


class NewFile(_New):
    """A file of this name, below the directory that the operator allows, to which lines are added."""

    kind: Literal["file"]
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,63}$")]


class NewStore(_New):
    """An object store: a connection that is assigned to the owner. Each notice is a new object."""

    kind: Literal["object-store"]
    connection: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,63}$")]


To = NewWebhook | NewMail | NewFile | NewStore
"""Where a channel leads."""

NewChannel = Annotated[To, Field(discriminator="kind")]
"""What an owner registers."""

NEW_CHANNEL: TypeAdapter[To] = TypeAdapter(NewChannel)
"""Reads a new channel from JSON."""


class ChannelView(BaseModel):
    """A channel, and how its deliveries fare."""

    id: str
    kind: str
    events: list[str]
    heads: HeadsEvery | None
    created_at: datetime
    delivered_at: Annotated[datetime | None, Field(description="of the last notice that arrived")]
    waiting: Annotated[int, Field(description="notices that have not arrived yet")]
    given_up: Annotated[int, Field(description="notices that will not arrive")]
    failures: Annotated[int, Field(description="failed attempts since the last that did not fail")]
    last_error: Annotated[str | None, Field(description="what the last attempt met; null if it succeeded")]
    next_attempt: datetime | None


class CreatedChannel(ChannelView):
    """A new channel; the secret of a webhook is shown this once."""

    secret: str | None


class ChannelList(BaseModel):
    """The channels of an owner or an analyst, oldest first."""

    channels: list[ChannelView]


class Notice(BaseModel):
    """What is delivered: the body of a webhook, a line of a file, the attachment of an e-mail.

    It names the owner or the analyst that it is for.
    """

    id: Annotated[str, Field(description="the same at every attempt: one that came before is a repetition")]
    type: str
    owner: Annotated[str | None, Field(exclude_if=lambda owner: owner is None)] = None
    analyst: Annotated[str | None, Field(exclude_if=lambda analyst: analyst is None)] = None
    at: datetime
    facts: dict[str, object]

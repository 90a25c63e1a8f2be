"""Answers about acts."""

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from privest_service.acts.kinds import KINDS
from privest_service.acts.models import Act
from privest_service.inputs import Id, Moment
from privest_service.validation import ONE_LINE


class ActQuery(BaseModel):
    """What acts are looked for; all of it must fit."""

    kind: Annotated[Id, Field(description="such as `grant.made`")] = ""
    actor: Annotated[Id, Field(description="id of whoever acted, or a role")] = ""
    text: Annotated[
        str, Field(max_length=100, pattern=ONE_LINE, description="in ids, names, details or reasons")
    ] = ""
    since: Annotated[Moment | None, Field(description="no earlier than")] = None
    until: Annotated[Moment | None, Field(description="earlier than")] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100
    cursor: Annotated[int | None, Field(ge=1, lt=2**63, description="`next` of the page before")] = None


class ActView(BaseModel):
    """Something that somebody did."""

    seq: Annotated[
        int,
        Field(description="place in the chain, from 1; 0 for analysts, whose `prev` and `hash` are empty"),
    ]
    kind: str
    title: Annotated[str, Field(description="the kind, in words")]
    role: Annotated[str | None, Field(description="of whoever acted; `service` for the service itself")]
    principal: str | None
    key: Annotated[str | None, Field(description="id of the key, where one was used")]
    person: Annotated[str | None, Field(description="who acted by a token, or by a key of one")] = None
    through: Annotated[str | None, Field(description="service account that acted for this person")] = None
    subject: Annotated[str | None, Field(description="id of what it was done to")]
    reason: Annotated[str | None, Field(description="as the caller gave it, with `Privest-Reason`")]
    details: dict[str, Any]
    known_since: Annotated[
        Literal["migrated"] | None,
        Field(description="`migrated`: of before there was a record, which tells not who acted"),
    ]
    at: datetime
    prev: str
    hash: str

    @classmethod
    def of(cls, act: Act) -> "ActView":
        """An act as it is told."""
        own = {name: getattr(act, name) for name in cls.model_fields if hasattr(Act, name)}
        title = KINDS.get(act.kind, act.kind)
        return cls(**{**own, "title": title, "details": json.loads(act.details)})


class ActPage(BaseModel):
    """Acts, newest first, and the cursor of the next page. A page may be empty although another follows."""

    acts: list[ActView]
    next: str | None

"""What is sent to publish an answer, and what is told of it."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, TypeAdapter

from privest_service.inputs import Id, Input
from privest_service.ledger.units import EPSILON, PROBABILITY, number_above
from privest_service.published.models import PublishedValue
from privest_service.published.service import Published

NAME = r"[a-z][a-z0-9_]{0,62}"
"""The names of published answers: those that every database takes for a table without quotes."""

PUBLISHED_NAME = TypeAdapter(Annotated[str, StringConstraints(pattern=f"^{NAME}$")])
"""Checks a name."""

MOST_READERS = 100
"""Most readers who are named."""


class NewPublication(Input):
    """An answer to be published: of the caller's own question, for those whom it names."""

    job: Annotated[Id, Field(description="whose answer is published, in place of the one of before")]
    readers: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=r"^[!-~]+$")]],
        Field(
            max_length=MOST_READERS,
            description="ids of analysts and owners who may read it, besides you and the owners of the data",
        ),
    ] = []  # noqa: RUF012 - pydantic copies it
    sql: Annotated[
        bool, Field(description="whether everybody may read it who has the database's reading role")
    ] = False


class PublicationView(BaseModel):
    """A published answer, without its numbers."""

    name: str
    estimate: str
    datasets: Annotated[list[str], Field(description="that it is about; told to whom the readers are told")]
    publisher: str
    publisher_id: str
    readers: Annotated[
        list[str], Field(description="ids; told to the publisher and the owners of the data alone")
    ]
    sql: bool
    is_open: Annotated[bool, Field(description="false while an owner's grant does not let it be published")]
    epsilon: Annotated[float, Field(description="that the question was charged, once")]
    delta: float
    off_by: Annotated[
        float | None,
        Field(
            description="the whole answer is off by at most this in 95 of 100 runs, as its `uncertainty` says"
        ),
    ]
    receipt: Annotated[str, Field(description="the job, whose receipt tells what was charged")]
    answered_at: datetime
    published_at: datetime


class NumberView(BaseModel):
    """One number of a published answer."""

    item: Annotated[str, Field(description="the column, feature or coordinate that it is of")]
    measure: Annotated[str, Field(description="what of it is told")]
    value: float
    low: Annotated[
        float | None, Field(description="lower end of the interval of 95 %; null where none is known")
    ]
    high: float | None
    unit: Annotated[str | None, Field(description="null for plain numbers")]


class PublishedTable(PublicationView):
    """A published answer."""

    values: list[NumberView]


class PublicationList(BaseModel):
    """Published answers, by name, and the cursor of the next page."""

    published: list[PublicationView]
    next: Annotated[str | None, Field(description="`cursor` of the next page; null where none follows")]


def told(published: Published) -> dict[str, object]:
    """The fields of a view of a publication; the price is never rounded down."""
    each, concerns = published.publication, published.concerns
    return {
        "name": each.name,
        "estimate": published.kind,
        "datasets": list(published.datasets) if concerns else [],
        "publisher": published.publisher,
        "publisher_id": each.publisher_id,
        "readers": list(published.readers) if concerns else [],
        "sql": each.in_sql,
        "is_open": published.is_open,
        "epsilon": number_above(each.epsilon, EPSILON),
        "delta": number_above(each.delta, PROBABILITY),
        "off_by": each.off_by,
        "receipt": each.job_id,
        "answered_at": each.answered_at,
        "published_at": each.published_at,
    }


def number_view(value: PublishedValue) -> NumberView:
    """A number as it is shown."""
    return NumberView.model_validate(value, from_attributes=True)

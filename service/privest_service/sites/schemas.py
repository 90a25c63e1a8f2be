"""Requests and answers between a hub and its sites."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from privest_service.datasets.schemas import DatasetSchema
from privest_service.inputs import Input, Name, Printable
from privest_service.ledger.receipts import Receipt
from privest_service.validation import ONE_LINE

SiteState = Literal["asked", "accepted", "begun"]
"""A site is asked, has accepted and waits for the others, or runs its part."""


class OfferedDataset(Input):
    """The public facts of a dataset that stays at a site: no row, and no mark of rows, is among them."""

    name: Name | None = None
    n: Annotated[int, Field(ge=2, le=2**53, description="number of records, public")]
    declared: Annotated[DatasetSchema, Field(alias="schema")]


class SiteQuestion(BaseModel):
    """A question, or its part of one, as the site of its dataset needs it to plan it by itself."""

    job: Annotated[str, Field(description="of the part here, by which the site calls it")]
    dataset: Annotated[str, Field(description="id at the site")]
    kind: str
    place: Annotated[int, Field(description="of this dataset among those of the question, from 0")]
    state: SiteState
    asked: Annotated[dict[str, Any], Field(description="options, columns, and public facts of all parts")]
    plan: Annotated[str, Field(description="SHA-256 of the whole plan, which the site has to come to, too")]
    seed: Annotated[int, Field(ge=0, description="of choices that all sites make alike; it draws no noise")]
    versions: Annotated[dict[str, str], Field(description="of what plans and runs here")]


class SiteQuestions(BaseModel):
    """Questions that wait for the caller's site, or are run there."""

    questions: list[SiteQuestion]
    mark: Annotated[str, Field(description="changes with what is listed: to be sent with the next call")]


Reason = Annotated[str, StringConstraints(max_length=500, pattern=ONE_LINE), Printable]


class SiteDecision(Input):
    """What a site decides on a question; after it accepted, a refusal ends the run, which stays charged."""

    decision: Literal["accept", "refuse"]
    reason: Annotated[Reason | None, Field(description="why it refuses, for whoever asked")] = None


class SiteDecided(BaseModel):
    """What became of the question by that."""

    state: SiteState | Literal["over"]


class SiteEnd(Input):
    """The end of a site's run."""

    receipt: Annotated[Receipt, Field(description="of the charge at the site, signed there")]
    result: Annotated[Any, Field(description="of a question on one dataset: the answer")] = None

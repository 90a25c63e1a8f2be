"""Requests and answers between a hub and its sites."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from privest_service.datasets.schemas import DatasetSchema
from privest_service.inputs import Id, Input, Name, Printable
from privest_service.ledger.receipts import Receipt
from privest_service.validation import ONE_LINE

MOST_QUESTIONS = 1000
"""Most questions that a hub lists for a site at a time."""

LARGEST_LISTED = 2 * 2**20
"""Most bytes of what was asked in all questions of a list together."""

LARGEST_LIST = 4 * 2**20
"""Most bytes of such a list, and of any other document that a site takes from its hub."""

MOST_OFFERED = 10_000
"""Most datasets that one site offers at a hub."""

LARGEST_RECEIPT = 100_000
"""Most bytes of a receipt as JSON."""

SiteState = Literal["asked", "accepted", "begun"]
"""A site is asked, has accepted and waits for the others, or runs its part."""


class OfferedDataset(Input):
    """The public facts of a dataset that stays at a site: no row, and no mark of rows, is among them."""

    name: Name | None = None
    n: Annotated[int, Field(ge=2, le=2**53, description="number of records, public")]
    declared: Annotated[DatasetSchema, Field(alias="schema")]


_Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

Mark = Annotated[str, StringConstraints(max_length=64, pattern=r"^[!-~]*$")]
"""A mark of a list, which comes back in the query of an address."""

_Short = Annotated[str, StringConstraints(max_length=100)]


class SiteQuestion(BaseModel):
    """A question, or its part of one, as the site of its dataset needs it to plan it by itself."""

    job: Annotated[Id, Field(description="of the part here, by which the site calls it")]
    dataset: Annotated[Id, Field(description="id at the site")]
    kind: _Short
    place: Annotated[
        int, Field(ge=0, lt=100, description="of this dataset among those of the question, from 0")
    ]
    state: SiteState
    asked: Annotated[dict[str, Any], Field(description="options, columns, and public facts of all parts")]
    plan: Annotated[_Digest, Field(description="SHA-256 of the whole plan, which the site must find too")]
    seed: Annotated[
        int, Field(ge=0, lt=2**48, description="of choices that all sites make alike; it draws no noise")
    ]
    versions: Annotated[dict[_Short, _Short], Field(max_length=50, description="of what plans and runs here")]


class SiteQuestions(BaseModel):
    """Questions that wait for the caller's site, or are run there."""

    questions: Annotated[list[SiteQuestion], Field(max_length=MOST_QUESTIONS)]
    mark: Annotated[Mark, Field(description="changes with what is listed: to be sent with the next call")]


class KnownDataset(BaseModel):
    """A dataset that the hub lists, as far as its site reads it."""

    id: Id
    at_site: Id | None = None


class KnownDatasets(BaseModel):
    """A page of datasets that the hub lists, as far as their site reads it."""

    datasets: Annotated[list[KnownDataset], Field(max_length=1000)]
    next: Annotated[str, StringConstraints(max_length=500)] | None


Reason = Annotated[str, StringConstraints(max_length=500, pattern=ONE_LINE), Printable]


class SiteDecision(Input):
    """What a site decides on a question; after it accepted, a refusal ends the run, which stays charged."""

    decision: Literal["accept", "refuse"]
    reason: Annotated[Reason | None, Field(description="why it refuses, for whoever asked")] = None


class SiteDecided(BaseModel):
    """What became of the question by that."""

    state: SiteState | Literal["over"]


def _short_enough(receipt: Receipt) -> Receipt:
    """Return a receipt unless it is longer than any receipt is."""
    if len(receipt.model_dump_json()) > LARGEST_RECEIPT:
        raise ValueError(f"must have at most {LARGEST_RECEIPT:,} bytes")
    return receipt


class SiteEnd(Input):
    """The end of a site's run."""

    receipt: Annotated[
        Receipt,
        AfterValidator(_short_enough),
        Field(description="of the charge at the site for this job, signed there"),
    ]
    result: Annotated[Any, Field(description="of a question on one dataset: the answer")] = None

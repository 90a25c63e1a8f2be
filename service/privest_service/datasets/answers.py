"""Answers about datasets and grants."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from privest_service.datasets.schemas import DatasetSchema
from privest_service.ledger.schemas import Amount


class DatasetView(BaseModel):
    """Public facts; what is said of its rows is for its owner alone."""

    model_config = ConfigDict(validate_by_name=True)

    id: str
    name: str | None
    kind: str
    n: Annotated[int, Field(description="number of records, public")]
    shape: Annotated[list[int], Field(description="shape of all records together")]
    dataset_schema: Annotated[DatasetSchema, Field(alias="schema")]
    created_at: datetime
    fingerprint: str | None = None
    rows_of: Annotated[
        str | None,
        Field(description="the first dataset that you declared to hold these rows; caps hold for both"),
    ] = None
    at_site: Annotated[
        str | None, Field(description="id at your site, where the rows are; null where they are here")
    ] = None
    same_rows: Annotated[
        list[str] | None,
        Field(
            description="your other datasets with the same rows, not told in lists; nothing follows from it"
        ),
    ] = None
    outside_bounds: Annotated[
        dict[str, int] | None,
        Field(
            description="of a table, values outside the declared bounds, by columns that have any. They count"
            " as the nearer bound. Only the answer to your upload says this: it is not stored"
        ),
    ] = None


class DatasetList(BaseModel):
    """Datasets that the caller may see, newest first."""

    datasets: list[DatasetView]
    next: Annotated[str | None, Field(description="`cursor` of the next page; null where none follows")] = (
        None
    )


class DummyRows(BaseModel):
    """Synthetic records with the dataset's schema: they come from the schema alone."""

    rows: list[Any]


class CapView(BaseModel):
    """The cap on a dataset, which all datasets share that were declared to hold its rows."""

    dataset: str
    cap: Amount | None
    largest_query: Annotated[
        Amount | None,
        Field(
            description="the largest query without random batches that the cap admits at its δ, while "
            "nothing of it is spent; null without a cap"
        ),
    ] = None


class Left(Amount):
    """What the cap of a grant has left for one question, in the budget's present window.

    On a gdp budget it is at nine tenths of the cap's δ: a tenth is kept for questions with random batches.
    """

    largest_query: Annotated[
        Amount | None,
        Field(description="the largest query without random batches that the cap admits at its own δ"),
    ] = None
    share: Annotated[float, Field(description="of the cap that is left, as charges add up")]
    queries: Annotated[int, Field(description="questions of the analyst that were charged to it")]


class GrantView(BaseModel):
    """A grant as it stands, for its owner and its analyst."""

    dataset: str
    analyst: str
    cap: Amount | None
    left: Annotated[
        Left | None, Field(description="under the cap; null without one. The owner's budget may have less")
    ] = None
    approval: Annotated[
        Literal["required"] | None, Field(description="whether each question waits for its owner's approval")
    ] = None
    purpose: Annotated[str | None, Field(description="what may be asked for, in the owner's words")] = None
    kinds: Annotated[list[str] | None, Field(description="estimators; null for all")] = None
    max_epsilon: Annotated[
        float | None, Field(description="most that one question may cost, as ε at the δ of the budget")
    ] = None
    expires: Annotated[datetime | None, Field(description="when it ends by itself")] = None
    decide_within: Annotated[int | None, Field(description="hours until a request ends by itself")] = None
    publish: Annotated[
        Literal["allowed"] | None, Field(description="whether its analyst may publish answers")
    ] = None


class GrantList(BaseModel):
    """Grants in force, by dataset and analyst, and the cursor of the next page."""

    grants: list[GrantView]
    next: str | None

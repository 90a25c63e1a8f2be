"""Requests and answers about datasets and grants."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from privest.records import PointsShape
from privest_service.inputs import Input, Point
from privest_service.ledger.schemas import Amount, Delta, Epsilon


class EuclideanSpace(Input):
    """Vectors of `dim` numbers."""

    name: Literal["euclidean"]
    dim: Annotated[int, Field(ge=1, le=10_000)]


class SphereSpace(Input):
    """Unit vectors of `dim` numbers."""

    name: Literal["sphere"]
    dim: Annotated[int, Field(ge=2, le=10_000)]


class SPDSpace(Input):
    """Symmetric positive definite matrices of `dim` rows."""

    name: Literal["spd"]
    dim: Annotated[int, Field(ge=1, le=200)]
    metric: Literal["affine-invariant"] = "affine-invariant"


class PointsSchema(Input):
    """Points of one manifold.

    `center` and `radius` are public knowledge about where the mean lies, never read off the rows; rows
    may lie outside, and the gate clips what one of them can do.
    """

    kind: Literal["points"]
    manifold: Annotated[EuclideanSpace | SphereSpace | SPDSpace, Field(discriminator="name")]
    center: Point | None = Field(default=None, description="a point of the manifold, as nested lists")
    radius: Annotated[float, Field(gt=0, le=1e6)] | None = None

    @model_validator(mode="after")
    def _center_is_a_point(self) -> "PointsSchema":
        if self.center is not None:
            self.shape(2).point(self.center, "center")
        return self

    def shape(self, n: int) -> PointsShape:
        """The public shape of n records under this schema."""
        return PointsShape(n, self.manifold.model_dump(), self.center, self.radius)


DatasetSchema = PointsSchema
"""What an owner declares about records; further kinds join here as a union over `kind`."""


class DatasetView(BaseModel):
    """Public facts; the fingerprint for its owner alone."""

    model_config = ConfigDict(validate_by_name=True)

    id: str
    kind: str
    n: Annotated[int, Field(description="number of records, public")]
    shape: Annotated[list[int], Field(description="shape of all records together")]
    dataset_schema: Annotated[DatasetSchema, Field(alias="schema")]
    created_at: datetime
    fingerprint: str | None = None


class DatasetList(BaseModel):
    """Datasets that the caller may see, newest first."""

    datasets: list[DatasetView]


class DummyRows(BaseModel):
    """Synthetic records with the dataset's schema: they come from the schema alone."""

    rows: list[Any]


class NewGrant(Input):
    """A grant: without a cap, or with (ε, δ) that this analyst may spend on this dataset."""

    epsilon: Epsilon | None = None
    delta: Delta | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> "NewGrant":
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("a cap has both epsilon and delta")
        return self


class GrantView(BaseModel):
    """A grant as it stands."""

    dataset: str
    analyst: str
    cap: Amount | None

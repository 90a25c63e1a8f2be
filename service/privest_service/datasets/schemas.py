"""Requests and answers about datasets and grants."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, model_validator

from privest.shapes import LabelledShape, PointsShape, VectorsShape
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
    metric: Literal["affine-invariant", "log-euclidean", "bures-wasserstein"] = "affine-invariant"


class PoincareBallSpace(Input):
    """Points of the open unit ball of `dim` dimensions, hyperbolic."""

    name: Literal["poincare-ball"]
    dim: Annotated[int, Field(ge=1, le=10_000)]


class LorentzSpace(Input):
    """Rows of `dim` + 1 numbers, time first, on the hyperboloid."""

    name: Literal["lorentz"]
    dim: Annotated[int, Field(ge=1, le=10_000)]


class FramesSpace(Input):
    """dim×rank matrices with orthonormal columns: frames (`stiefel`), or what they span (`grassmann`)."""

    name: Literal["stiefel", "grassmann"]
    dim: Annotated[int, Field(ge=1, le=10_000)]
    rank: Annotated[int, Field(ge=1, le=100)]

    @model_validator(mode="after")
    def _rank_fits(self) -> "FramesSpace":
        if self.rank > self.dim:
            raise ValueError("rank must be at most dim")
        return self


Space = Annotated[
    EuclideanSpace | SphereSpace | SPDSpace | PoincareBallSpace | LorentzSpace | FramesSpace,
    Field(discriminator="name"),
]


class PointsSchema(Input):
    """Points of one manifold.

    `center` and `radius` are public knowledge about where the mean lies, never read off the rows; rows
    may lie outside, and the gate clips what one of them can do.
    """

    kind: Literal["points"]
    manifold: Space
    center: Point | None = Field(default=None, description="a point of the manifold, as nested lists")
    radius: Annotated[float, Field(gt=0, le=1e6)] | None = None

    @model_validator(mode="after")
    def _ball_is_in_the_space(self) -> "PointsSchema":
        shape = self.shape(2)
        if self.center is not None:
            shape.point(self.center, "center")
        if self.radius is not None and self.radius > shape.space.widest_radius:
            raise ValueError(f"radius must be at most {shape.space.widest_radius:g} on this manifold")
        return self

    def shape(self, n: int) -> PointsShape:
        """The public shape of n records under this schema."""
        return PointsShape(n, self.manifold.model_dump(), self.center, self.radius)


class VectorsSchema(Input):
    """Vectors of `dim` numbers; a table's columns in file order.

    `norm_bound` is a clip applied by the gate where lengths count, never a validation.
    """

    kind: Literal["vectors"]
    dim: Annotated[int, Field(ge=1, le=100_000)]
    norm_bound: Annotated[float, Field(gt=0, le=1e6)] = 1.0

    def shape(self, n: int) -> VectorsShape:
        """The public shape of n records under this schema."""
        return VectorsShape(n, self.dim, self.norm_bound)


Label = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""Name of a column, or a class."""


class LabelledSchema(Input):
    """Feature vectors with labels; a table's columns by their names, of an array the label last.

    `mean` and `scale` are public knowledge about the features, never read off the rows. `norm_bound` is a
    clip on a vector once it is standardised, applied by the gate: by default the square root of the number of
    features where their scale is known, else 1.
    """

    kind: Literal["labelled"]
    features: Annotated[list[Label], Field(min_length=1, max_length=10_000)]
    label: Label
    classes: Annotated[list[Label], Field(min_length=2, max_length=100, description="labels as strings")]
    norm_bound: Annotated[float, Field(gt=0, le=1e6)] | None = None
    mean: list[float] | None = None
    scale: list[Annotated[float, Field(gt=0)]] | None = None

    @model_validator(mode="after")
    def _fits(self) -> "LabelledSchema":
        if len({*self.features, self.label}) <= len(self.features):
            raise ValueError("features and label must have different names")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("classes must differ")
        for facts in (self.mean, self.scale):
            if facts is not None and len(facts) != len(self.features):
                raise ValueError("mean and scale must have a number for every feature")
        return self

    def shape(self, n: int) -> LabelledShape:
        """The public shape of n records under this schema."""
        mean = None if self.mean is None else tuple(self.mean)
        scale = None if self.scale is None else tuple(self.scale)
        features, classes = tuple(self.features), tuple(self.classes)
        return LabelledShape(n, features, self.label, classes, self.norm_bound, mean, scale)


DatasetSchema = Annotated[PointsSchema | VectorsSchema | LabelledSchema, Field(discriminator="kind")]
"""What an owner declares about records."""

SCHEMA: TypeAdapter[DatasetSchema] = TypeAdapter(DatasetSchema)
"""Reads it from JSON."""


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


class NewCap(Input):
    """A cap of (ε, δ), of which all counts that was spent before; or none."""

    epsilon: Epsilon | None = None
    delta: Delta | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> "NewCap":
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("a cap has both epsilon and delta")
        return self


class CapView(BaseModel):
    """The cap on the rows of a dataset, which all datasets with these rows share."""

    dataset: str
    cap: Amount | None


class GrantView(BaseModel):
    """A grant as it stands."""

    dataset: str
    analyst: str
    cap: Amount | None

"""Requests in which an owner declares what its records are, and sets caps and grants."""

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    StringConstraints,
    TypeAdapter,
    model_validator,
)

from privest.data.metadata import (
    LabelledMetadata,
    PartialVectorsMetadata,
    PointsMetadata,
    VectorsMetadata,
)
from privest.data.transforms import CovarianceDescriptors, Indicators, WindowCovariances
from privest.estimators.registry import ESTIMATORS
from privest.manifolds.spd import SPD
from privest_service.datasets.declared import Category, Label, Unit, import_spec, unit_column
from privest_service.datasets.import_spec import ImportSpec
from privest_service.datasets.readers import Layout
from privest_service.datasets.spaces import Space
from privest_service.datasets.table_schema import TableSchema
from privest_service.datasets.terms import Terms
from privest_service.inputs import Input, Name, Point, Printable, like, limit_size
from privest_service.ledger.schemas import Delta, Epsilon
from privest_service.ledger.units import Limits
from privest_service.validation import ONE_LINE

_MOST_FEATURES = 10_000
_AS_FEATURES = BeforeValidator(partial(limit_size, most=_MOST_FEATURES))


class ImagesToDescriptors(Input):
    """Raw images, of which each becomes its covariance descriptor: 7 rows, and one for each channel."""

    transform: Literal["covariance-descriptor"]
    height: Annotated[int, Field(ge=2, le=4096)]
    width: Annotated[int, Field(ge=2, le=4096)]
    channels: Annotated[int, Field(ge=1, le=16)] = 1
    largest: Annotated[float, Field(gt=0, le=1e6, description="intensity, from 0")] = 255.0
    regulariser: Annotated[float, Field(ge=1e-9, le=1e6)] = 1e-2
    orientation: Annotated[bool, Field(description="of the gradient, as one more feature")] = False

    def made(self) -> CovarianceDescriptors:
        """The transform."""
        return CovarianceDescriptors(**self.model_dump(exclude={"transform"}))


class WindowsToCovariances(Input):
    """Raw windows of a time series, of which each becomes the covariance of its channels."""

    transform: Literal["window-covariance"]
    length: Annotated[int, Field(ge=2, le=1_000_000)]
    channels: Annotated[int, Field(ge=1, le=200)]
    scale: Annotated[float, Field(gt=0, le=1e12, description="by which channels are divided")] = 1.0
    regulariser: Annotated[float, Field(ge=1e-9, le=1e6)] = 1e-2

    def made(self) -> WindowCovariances:
        """The transform."""
        return WindowCovariances(**self.model_dump(exclude={"transform"}))


class PointsSchema(Input):
    """Points of one manifold, or raw records of which each becomes one by a `raw` transform.

    `center` and `radius` are public knowledge about where the mean lies, never read off the rows; rows
    may lie outside, and the gate clips what one of them can do.
    """

    kind: Literal["points"]
    manifold: Space
    center: Point | None = Field(default=None, description="a point of the manifold, as nested lists")
    radius: Annotated[float, Field(gt=0, le=1e6)] | None = None
    raw: Annotated[
        ImagesToDescriptors | WindowsToCovariances | None,
        Field(discriminator="transform", description="what makes points of the uploaded records"),
    ] = None
    unit: Unit | None = None

    @model_validator(mode="after")
    def _transform_leads_there(self) -> "PointsSchema":
        if self.raw:
            dim, space = self.raw.made().dim, self.shape(2).space
            if not (isinstance(space, SPD) and space.shape == (dim, dim)):
                raise ValueError(
                    f"manifold must be spd with dim {dim}, because raw records become such matrices"
                )
        return self

    @model_validator(mode="after")
    def _ball_is_in_the_space(self) -> "PointsSchema":
        shape = self.shape(2)
        if self.center is not None:
            shape.point(self.center, "center")
        if self.radius is not None and self.radius > shape.space.widest_radius:
            raise ValueError(f"radius must be at most {shape.space.widest_radius:g} on this manifold")
        return self

    def shape(self, n: int) -> PointsMetadata:
        """The public shape of n records under this schema."""
        return PointsMetadata(n, self.manifold.model_dump(), self.center, self.radius)

    def intake(self) -> ImportSpec:
        """Return the import specification of files under this schema."""
        shape, transform = self.shape(0), self.raw.made() if self.raw else None
        raw = transform.raw if transform else shape.record
        return import_spec(Layout(raw, unit=unit_column(self.unit)), shape, self.unit, transform)


class VectorsSchema(Input):
    """Vectors of `dim` numbers; a table's columns in file order.

    `norm_bound` is a clip applied by the gate where lengths count, never a validation.
    """

    kind: Literal["vectors"]
    dim: Annotated[int, Field(ge=1, le=100_000)]
    norm_bound: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    unit: Unit | None = None

    def shape(self, n: int) -> VectorsMetadata:
        """The public shape of n records under this schema."""
        return VectorsMetadata(n, self.dim, self.norm_bound)

    def intake(self) -> ImportSpec:
        """Return the import specification of files under this schema."""
        return import_spec(Layout((self.dim,), unit=unit_column(self.unit)), self.shape(0), self.unit)


class PartialVectorsSchema(Input):
    """Vectors of `dim` numbers of which some are not known; a table's columns in file order.

    An entry that is not known is an empty cell, null, or NaN. `known` is public knowledge: about the share of
    entries that are known. Forecasts rest on it; it is never checked against records, nor read off them.
    """

    kind: Literal["partial-vectors"]
    dim: Annotated[int, Field(ge=2, le=100_000)]
    known: Annotated[float, Field(gt=0, le=1)] = 0.5
    unit: Unit | None = None

    def shape(self, n: int) -> PartialVectorsMetadata:
        """The public shape of n records under this schema."""
        return PartialVectorsMetadata(n, self.dim, self.known)

    def intake(self) -> ImportSpec:
        """Return the import specification of files under this schema."""
        layout = Layout((self.dim,), unit=unit_column(self.unit), partial=True)
        return import_spec(layout, self.shape(0), self.unit)


class LabelledSchema(Input):
    """Feature vectors with labels; a table's columns by their names, of an array the label last.

    `categories` names the features that hold no numbers, and what they may hold: each becomes as many
    indicators, called `feature=category`. `mean` and `scale` are public knowledge about the features, never
    read off the rows; null for features with categories, whose indicators have those of k categories that are
    equally frequent. `norm_bound` is a clip on a vector once it is standardised, applied by the gate: by
    default the square root of the number of features where their scale is known, else 1.
    """

    kind: Literal["labelled"]
    features: Annotated[list[Label], Field(min_length=1, max_length=_MOST_FEATURES)]
    label: Label
    classes: Annotated[
        list[Category],
        Field(
            min_length=2,
            max_length=100,
            description="all labels that there may be; whole numbers and truth values by their string form",
        ),
    ]
    categories: Annotated[
        dict[Label, Annotated[list[Category], Field(min_length=2, max_length=1000)]],
        _AS_FEATURES,
        Field(
            default_factory=dict,
            description="of features that hold no numbers: the public list of what they may hold",
        ),
    ]
    norm_bound: Annotated[float, Field(gt=0, le=1e6)] | None = None
    mean: Annotated[list[float | None] | None, _AS_FEATURES] = None
    scale: Annotated[list[Annotated[float, Field(gt=0)] | None] | None, _AS_FEATURES] = None
    unit: Unit | None = None

    @model_validator(mode="after")
    def _fits(self) -> "LabelledSchema":
        if len({*self.features, self.label}) <= len(self.features):
            raise ValueError("features and label must have different names")
        if self.unit and self.unit.column in (*self.features, self.label):
            raise ValueError("unit must name a column that is neither a feature nor the label")
        if not self.categories.keys() <= set(self.features):
            raise ValueError("categories must name features only")
        for known in (self.classes, *self.categories.values()):
            if len(set(known)) < len(known):
                raise ValueError("classes and categories must not list a value twice")
        if len(set(self._names)) < len(self._names):
            raise ValueError("features must not have the name of an indicator, such as feature=category")
        if len(self._names) > _MOST_FEATURES:
            raise ValueError(f"features and indicators together must be at most {_MOST_FEATURES}")
        numbers = [feature not in self.categories for feature in self.features]
        for facts in (self.mean, self.scale):
            if facts is not None and [fact is not None for fact in facts] != numbers:
                raise ValueError(
                    "mean and scale must have a number for every feature, and null for those with categories"
                )
        return self

    @property
    def _names(self) -> list[str]:
        """Names of the features and of the indicators."""
        return [
            name
            for feature in self.features
            for name in (
                [f"{feature}={category}" for category in self.categories[feature]]
                if feature in self.categories
                else [feature]
            )
        ]

    def _facts(
        self, facts: list[float | None] | None, usual: Callable[[int], float]
    ) -> tuple[float, ...] | None:
        """Public facts of features and indicators, of the latter by their number."""
        if facts is None:
            return None
        found: list[float] = []
        for feature, fact in zip(self.features, facts, strict=True):
            count = len(self.categories.get(feature, ()))
            found += [usual(count)] * count if fact is None else [fact]
        return tuple(found)

    def shape(self, n: int) -> LabelledMetadata:
        """The public shape of n records under this schema."""
        mean = self._facts(self.mean, lambda count: 1 / count)
        scale = self._facts(self.scale, lambda count: sqrt(count - 1) / count)
        return LabelledMetadata(
            n, tuple(self._names), self.label, tuple(self.classes), self.norm_bound, mean, scale
        )

    def intake(self) -> ImportSpec:
        """Return the import specification of files under this schema."""
        names = (*self.features, self.label)
        known = {name: tuple(known) for name, known in {**self.categories, self.label: self.classes}.items()}
        counts = tuple(len(self.categories.get(name, ())) for name in names)
        transform = Indicators(counts) if self.categories else None
        layout = Layout((len(names),), names, known, unit_column(self.unit))
        return import_spec(layout, self.shape(0), self.unit, transform)


DatasetSchema = Annotated[
    PointsSchema | VectorsSchema | PartialVectorsSchema | LabelledSchema | TableSchema,
    Field(discriminator="kind"),
    like({"kind": "vectors", "dim": 5}),
]
"""What an owner declares about records."""

SCHEMA: TypeAdapter[DatasetSchema] = TypeAdapter(DatasetSchema)
"""Reads a schema from JSON."""


class NewCap(Input):
    """A cap of (ε, δ), of which all counts that was spent before; or none."""

    epsilon: Epsilon | None = None
    delta: Delta | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> "NewCap":
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("must have both epsilon and delta, or neither")
        return self


def _known(kinds: list[str]) -> list[str]:
    if unknown := [kind for kind in kinds if kind not in ESTIMATORS]:
        raise ValueError(f"has no estimator {unknown[0]}; there are {', '.join(ESTIMATORS)}")
    return list(dict.fromkeys(kinds))


class NewGrant(NewCap):
    """A grant: its cap and its terms. What is left out is not limited, whatever the grant said before."""

    approval: Annotated[
        Literal["required"] | None,
        Field(description="whether each question waits until its owner approves it"),
    ] = None
    purpose: Annotated[
        str | None,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=500, pattern=ONE_LINE),
        Printable,
        Field(description="what the analyst may ask for, in your words; shown beside each question"),
    ] = None
    kinds: Annotated[
        list[Name] | None,
        Field(min_length=1, max_length=100, description="estimators that may be asked for; by default all"),
        AfterValidator(lambda kinds: kinds and _known(kinds)),
    ] = None
    max_epsilon: Annotated[
        float | None,
        Field(ge=1e-9, le=1e6, description="most that one question may cost, as ε at the δ of your budget"),
    ] = None
    expires: Annotated[
        AwareDatetime | None, Field(strict=False, description="when the grant ends by itself")
    ] = None
    decide_within: Annotated[
        int | None,
        Field(ge=1, le=8760, description="hours in which you decide on a question before its request ends"),
    ] = None
    publish: Annotated[
        Literal["allowed"] | None,
        Field(description="whether the analyst may publish answers for readers that it names"),
    ] = None

    def terms(self) -> Terms:
        """The terms as they are stored."""
        most = None if self.max_epsilon is None else Limits.of(self.max_epsilon, 0.0, "basic").epsilon
        return Terms(
            approval=self.approval is not None,
            purpose=self.purpose,
            kinds=None if self.kinds is None else tuple(self.kinds),
            max_epsilon=most,
            expires_at=self.expires,
            decide_within=self.decide_within,
            publish=self.publish is not None,
        )

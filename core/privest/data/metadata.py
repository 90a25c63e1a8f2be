"""The public facts of a dataset: its number of records, and what its owner declares about them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from privest import manifolds
from privest.arrays import Array, NestedList
from privest.data.float_limits import FINEST, MetadataFault, number_faults, scale_faults, spread_faults
from privest.data.tables import Recipe
from privest.manifolds import Manifold

_LEAST_UNIT = 1e-50
"""Least length of features without scales: fourth powers of it, and of its reciprocal, stay in float64."""

_SHOWN = 5
"""Faults that one error names."""


@dataclass(frozen=True)
class DatasetMetadata(ABC):
    """Public facts about `n` records. They come from the owner's schema, never from the rows.

    Attributes:
        n: number of records.
        recipe: what makes records of the stored rows; None where these are the records.
    """

    n: int
    recipe: Recipe | None = field(default=None, kw_only=True)

    kind: ClassVar[str]
    """The type of such datasets in a schema."""

    @property
    @abstractmethod
    def record(self) -> tuple[int, ...]:
        """Shape of the array that holds one record."""

    @property
    @abstractmethod
    def rules(self) -> Sequence[str]:
        """Conditions that a record must meet, in the order in which `broken_rule` checks them."""

    @abstractmethod
    def broken_rule(self, rows: Array) -> Array:
        """The first rule that each of (..., *record) rows breaks, counted from 1; 0 if none. (...) int64."""

    @property
    @abstractmethod
    def own_faults(self) -> Iterator[MetadataFault]:
        """Declared facts that float64 cannot work with, if these are not a table's."""

    @property
    def faults(self) -> tuple[MetadataFault, ...]:
        """Declared facts that float64 cannot work with; of a table those of the columns that are chosen.

        Uploads and plans are refused for these. So datasets that were stored before a rule was made have no
        new plans, while what was stored of them is read as ever.
        """
        return tuple(self.own_faults if self.recipe is None else self.recipe.faults)

    def require_resolvable(self) -> None:
        """Refuse facts that float64 cannot work with.

        Raises:
            ValueError: there are such facts.
        """
        if faults := self.faults:
            raise ValueError("; ".join(f"{fault.field} {fault.rule}" for fault in faults[:_SHOWN]))

    def canonical(self, rows: Array) -> Array:
        """The exact records nearest to rows that meet every rule up to rounding; by default the rows."""
        return rows

    @abstractmethod
    def dummy(self, count: int, rng: np.random.Generator) -> Array:
        """Synthetic records made from these public facts alone, (count, *record)."""


@dataclass(frozen=True)
class PointsMetadata(DatasetMetadata):
    """Points of a manifold.

    Attributes:
        manifold: name and parameters of the manifold, as `manifolds.get` takes them.
        center: the point near which the owner expects the mean.
        radius: largest distance between `center` and the mean that the owner expects.
    """

    kind = "points"

    manifold: dict[str, Any]
    center: NestedList | None = None
    radius: float | None = None

    @cached_property
    def space(self) -> Manifold:
        """The manifold that `manifold` describes."""
        return manifolds.get(**self.manifold)

    @property
    def record(self) -> tuple[int, ...]:
        return self.space.shape

    @property
    def rules(self) -> Sequence[str]:
        return self.space.rules

    @property
    def own_faults(self) -> Iterator[MetadataFault]:
        center = self.search_center
        far = [*number_faults("center", float(np.abs(center).max()))]
        yield from far
        if self.radius is not None:
            yield from spread_faults("radius", 1.0 if far else self.space.size_of(center), self.radius)

    def broken_rule(self, rows: Array) -> Array:
        return self.space.broken_rule(rows)

    def canonical(self, rows: Array) -> Array:
        return self.space.canonical(rows)

    def dummy(self, count: int, rng: np.random.Generator) -> Array:
        """Synthetic points within about 1 of the public centre."""
        space = self.space
        steps = rng.standard_normal((count, space.coordinate_size))
        steps *= min(self.search_radius, 1.0) / sqrt(space.coordinate_size)
        return space.exp_coordinates(self.search_center, steps)

    @cached_property
    def search_center(self) -> Array:
        """Centre of the search ball: `center` if it is declared, otherwise the manifold's reference."""
        return self.space.reference if self.center is None else self.point(self.center, "center")

    @property
    def search_radius(self) -> float:
        """Radius of the search ball: `radius` if it is declared, otherwise the manifold's natural radius."""
        return self.space.natural_radius if self.radius is None else self.radius

    def point(self, given: Sequence[object], name: str) -> Array:
        """A public point as an array.

        Args:
            given: the point as nested lists.
            name: the field's name, for error messages.

        Raises:
            ValueError: `given` is no point of the manifold.
        """
        try:
            point = np.array(given, dtype=np.float64)
        except (ValueError, TypeError, OverflowError):
            point = np.empty(0)
        if point.shape != self.space.shape:
            raise ValueError(f"{name} must be numbers of shape {list(self.space.shape)}")
        if rule := int(self.space.broken_rule(point)):
            raise ValueError(f"{name} must be {self.space.rules[rule - 1]}")
        return self.space.canonical(point)


@dataclass(frozen=True)
class _Rows(DatasetMetadata):
    """Records of `dim` numbers each."""

    dim: int

    @property
    def record(self) -> tuple[int, ...]:
        return (self.dim,)


@dataclass(frozen=True)
class VectorsMetadata(_Rows):
    """Vectors of `dim` numbers.

    Attributes:
        norm_bound: length to which the gate shortens a longer record, for estimators that need a bound.
    """

    kind = "vectors"

    norm_bound: float = 1.0

    @property
    def rules(self) -> Sequence[str]:
        return ("finite",)

    @property
    def own_faults(self) -> Iterator[MetadataFault]:
        return scale_faults("norm_bound", self.norm_bound)

    def broken_rule(self, rows: Array) -> Array:
        return np.where(np.isfinite(rows).all(axis=-1), 0, 1)

    def dummy(self, count: int, rng: np.random.Generator) -> Array:
        """Synthetic rows of length about `norm_bound`."""
        return rng.standard_normal((count, self.dim)) * (self.norm_bound / sqrt(self.dim))


@dataclass(frozen=True)
class PartialVectorsMetadata(_Rows):
    """Vectors of `dim` numbers, with NaN for unknown entries.

    Attributes:
        known: approximate share of known entries, as declared. Forecasts and step sizes depend on it.
    """

    kind = "partial-vectors"

    known: float = 0.5

    @property
    def rules(self) -> Sequence[str]:
        return ("finite, or not known",)

    @property
    def own_faults(self) -> Iterator[MetadataFault]:
        return scale_faults("known", self.known)

    def broken_rule(self, rows: Array) -> Array:
        return np.where(np.isinf(rows).any(axis=-1), 1, 0)

    def canonical(self, rows: Array) -> Array:
        """Rows in which every NaN has the same bits."""
        return np.where(np.isnan(rows), np.nan, rows)

    def dummy(self, count: int, rng: np.random.Generator) -> Array:
        """Synthetic rows of length about 1, each entry known with the declared probability."""
        rows = rng.standard_normal((count, self.dim)) / sqrt(self.dim)
        return np.where(rng.random(rows.shape) < self.known, rows, np.nan)


@dataclass(frozen=True)
class LabelledMetadata(DatasetMetadata):
    """Feature vectors with a label. The last number of a record is the index of its label in `classes`.

    Attributes:
        features: names of the features.
        label: name of the label.
        classes: all possible labels, as strings.
        norm_bound: length to which the gate shortens a longer feature vector after standardisation.
        mean: public mean of each feature, if declared.
        scale: public scale of each feature, if declared.
    """

    kind = "labelled"

    features: tuple[str, ...]
    label: str
    classes: tuple[str, ...]
    norm_bound: float | None = None
    mean: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    @property
    def dim(self) -> int:
        """Number of features."""
        return len(self.features)

    @property
    def record(self) -> tuple[int, ...]:
        return (self.dim + 1,)

    @property
    def rules(self) -> Sequence[str]:
        return ("finite", "labelled with one of the classes")

    @property
    def own_faults(self) -> Iterator[MetadataFault]:
        if wrong := [*self._bound_faults]:
            yield from wrong
            return
        means = self.mean or (0.0,) * self.dim
        scales = self.scale or (self.norm_bound or 1.0,) * self.dim
        for feature, mean, scale in zip(self.features, means, scales, strict=True):
            yield from spread_faults(feature, mean, scale)

    @property
    def _bound_faults(self) -> Iterator[MetadataFault]:
        """A norm bound that float64 cannot work with."""
        bound = self.norm_bound
        if self.scale is None:
            # Errors of coefficients have the unit 1/bound, and fourth powers of them are computed.
            yield from scale_faults("norm_bound", bound, _LEAST_UNIT)
        elif bound is not None and not FINEST <= bound <= 1 / FINEST:
            yield MetadataFault(
                "norm_bound",
                f"must be from {FINEST:g} to {1 / FINEST:g}, as it is a length of features over their "
                "scales. Declare one near the square root of their number, or none",
            )

    @property
    def usual_length(self) -> float:
        """Typical length of a standardised vector: `norm_bound`, or √dim if scales are declared, or 1."""
        if self.norm_bound is not None:
            return self.norm_bound
        return 1.0 if self.scale is None else sqrt(self.dim)

    def broken_rule(self, rows: Array) -> Array:
        known = np.isin(rows[..., -1], np.arange(len(self.classes)))
        return np.select([~np.isfinite(rows).all(axis=-1), ~known], [1, 2], 0)

    def dummy(self, count: int, rng: np.random.Generator) -> Array:
        """Synthetic rows with normal features about their public means, and with all labels in turn."""
        scale = np.ones(self.dim) if self.scale is None else np.array(self.scale)
        mean = np.zeros(self.dim) if self.mean is None else np.array(self.mean)
        labels = np.arange(count, dtype=np.float64) % len(self.classes)
        return np.column_stack([mean + scale * rng.standard_normal((count, self.dim)), labels])

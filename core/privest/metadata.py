"""What is public of a dataset: how many records it has, and what its owner declares of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from privest import manifolds
from privest.arrays import Array, NestedList
from privest.manifolds import Manifold


@dataclass(frozen=True)
class DatasetMetadata(ABC):
    """Public facts of n records. They come from the owner's schema, never from the rows."""

    n: int

    kind: ClassVar[str]
    """What a schema calls such datasets."""

    @property
    @abstractmethod
    def record(self) -> tuple[int, ...]:
        """Shape of the array that holds one record."""

    @property
    @abstractmethod
    def rules(self) -> Sequence[str]:
        """What a record must be, in the order in which `broken_rule` checks it."""

    @abstractmethod
    def broken_rule(self, rows: Array) -> Array:
        """Which rule each row breaks: 0 for none, otherwise one more than its place in `rules`.

        Args:
            rows: (..., *record) candidates.

        Returns:
            (...) integers as int64.
        """

    @abstractmethod
    def canonical(self, rows: Array) -> Array:
        """The exact representative of rows that keep every rule within rounding."""

    @abstractmethod
    def dummy(self, count: int, rng: np.random.Generator) -> Array:
        """Synthetic records, (count, *record): these public facts are all they know."""


@dataclass(frozen=True)
class PointsMetadata(DatasetMetadata):
    """Points of a manifold.

    Attributes:
        n: number of records.
        manifold: name and parameters, as `manifolds.get` takes them.
        center: where the owner expects the mean, nested lists.
        radius: and how far from there at most.
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
        """Centre of the search ball: the public one, else the manifold's reference."""
        return self.space.reference if self.center is None else self.point(self.center, "center")

    @property
    def search_radius(self) -> float:
        """Radius of the search ball: the public one, else the manifold's natural one."""
        return self.space.natural_radius if self.radius is None else self.radius

    def point(self, given: Sequence[object], name: str) -> Array:
        """A public point, given as nested lists under this name, as an array.

        Raises:
            ValueError: it is no point of the manifold.
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
        norm_bound: length to which the gate shortens a record where its length counts.
    """

    kind = "vectors"

    norm_bound: float = 1.0

    @property
    def rules(self) -> Sequence[str]:
        return ("finite",)

    def broken_rule(self, rows: Array) -> Array:
        return np.where(np.isfinite(rows).all(axis=-1), 0, 1)

    def canonical(self, rows: Array) -> Array:
        return rows

    def dummy(self, count: int, rng: np.random.Generator) -> Array:
        """Synthetic rows of about the length that is allowed."""
        return rng.standard_normal((count, self.dim)) * (self.norm_bound / sqrt(self.dim))


@dataclass(frozen=True)
class PartialVectorsMetadata(_Rows):
    """Vectors of `dim` numbers of which some are not known: NaN stands for those.

    Attributes:
        known: about the share of entries that are known, as declared; forecasts and steps rest on it.
    """

    kind = "partial-vectors"

    known: float = 0.5

    @property
    def rules(self) -> Sequence[str]:
        return ("finite, or not known",)

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
    """Feature vectors, each with one of a few labels; a record's last number is the place of its label.

    Attributes:
        features: their names.
        label: name of the label.
        classes: the labels there may be, as strings.
        norm_bound: length to which the gate shortens a feature vector, once it is standardised, if declared.
        mean: public mean of each feature, if it is known.
        scale: public scale of each feature, if it is known.
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
    def usual_length(self) -> float:
        """Usual length of a standardised vector: its bound, else √d where scales are known, else 1."""
        if self.norm_bound is not None:
            return self.norm_bound
        return 1.0 if self.scale is None else sqrt(self.dim)

    def broken_rule(self, rows: Array) -> Array:
        known = np.isin(rows[..., -1], np.arange(len(self.classes)))
        return np.select([~np.isfinite(rows).all(axis=-1), ~known], [1, 2], 0)

    def canonical(self, rows: Array) -> Array:
        return rows

    def dummy(self, count: int, rng: np.random.Generator) -> Array:
        """Features about their public means, labels in turn."""
        scale = np.ones(self.dim) if self.scale is None else np.array(self.scale)
        mean = np.zeros(self.dim) if self.mean is None else np.array(self.mean)
        labels = np.arange(count, dtype=np.float64) % len(self.classes)
        return np.column_stack([mean + scale * rng.standard_normal((count, self.dim)), labels])

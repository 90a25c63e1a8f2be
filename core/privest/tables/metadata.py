"""`TableMetadata`: the public facts of a table, and what a question on it is to an estimator."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.metadata import (
    DatasetMetadata,
    LabelledMetadata,
    PartialVectorsMetadata,
    PointsMetadata,
    VectorsMetadata,
)
from privest.resolution import MetadataFault
from privest.tables.columns import Column, listed
from privest.tables.recipe import Form, Recipe, dummy_rows

MOST_FEATURES = 10_000
"""Most coordinates of a row's image."""


@dataclass(frozen=True)
class TableMetadata(DatasetMetadata):
    """A table of typed columns.

    Attributes:
        columns: in the order of the stored rows.
    """

    kind = "table"

    columns: tuple[Column, ...]

    @property
    def record(self) -> tuple[int, ...]:
        return (len(self.columns),)

    @property
    def rules(self) -> Sequence[str]:
        return ("finite, or missing where the schema says what a gap is", "one of its column's categories")

    @property
    def own_faults(self) -> Iterator[MetadataFault]:
        for column in self.columns:
            yield from column.faults

    def broken_rule(self, rows: Array) -> Array:
        gaps = np.array([column.missing != "refused" for column in self.columns])
        counts = np.array([np.inf if column.is_ordered else len(column.values) for column in self.columns])
        ordered = np.isinf(counts)
        missing = np.isnan(rows)
        finite = (np.isfinite(rows) | (missing & gaps)).all(axis=-1)
        known = (missing | ordered | ((rows >= 0) & (rows < counts) & (rows == np.floor(rows)))).all(axis=-1)
        return np.select([~finite, ~known], [1, 2], 0)

    def canonical(self, rows: Array) -> Array:
        """Rows in which every NaN has the same bits."""
        return np.where(np.isnan(rows), np.nan, rows)

    def outside_bounds(self, rows: Array) -> NDArray[np.int64]:
        """Return how many values of each column lie outside its bounds, (columns,); gaps do not count.

        Args:
            rows: (n, columns) as they are stored.
        """
        low = np.array([-np.inf if column.low is None else column.low for column in self.columns])
        high = np.array([np.inf if column.high is None else column.high for column in self.columns])
        return ((rows < low) | (rows > high)).sum(axis=0)

    def dummy(self, count: int, rng: np.random.Generator) -> Array:
        """Synthetic rows, spread evenly over what is declared, with some gaps where they may be."""
        return dummy_rows(self.columns, count, rng)

    def places(self, names: Sequence[str]) -> tuple[int, ...]:
        """The places of columns in the table.

        Raises:
            ValueError: the table has no such column, or one is named twice.
        """
        known = {column.name: place for place, column in enumerate(self.columns)}
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"the table has no column {listed(unknown)}: it has {listed(known)}")
        if len(set(names)) < len(names):
            raise ValueError("name each column once")
        return tuple(known[name] for name in names)


@dataclass(frozen=True)
class TableChoice:
    """The columns that a question is about.

    Attributes:
        columns: of a mean or of directions; by default all.
        label: of a classifier.
        features: of a classifier; by default all columns but the label.
    """

    columns: tuple[str, ...] | None = None
    label: str | None = None
    features: tuple[str, ...] | None = None


def metadata_for(kind: type[DatasetMetadata], table: TableMetadata, choice: TableChoice) -> DatasetMetadata:
    """The metadata of a kind that a question on a table is about; its recipe makes such records of the rows.

    Args:
        kind: that an estimator takes.
        table: public facts of the table.
        choice: of columns.

    Raises:
        ValueError: the table has no such columns, or they do not serve this kind; in words for the analyst.
    """
    if kind not in _MADE:
        raise ValueError("this estimator takes no tables")
    return _MADE[kind](table, choice)


def _recipe(table: TableMetadata, names: Sequence[str], form: Form, label: int | None = None) -> Recipe:
    """The recipe of some columns.

    Raises:
        ValueError: there are none, or too many.
    """
    chosen = table.places(names)
    if form != "labelled":  # in whatever order columns are named, it is one question
        chosen = tuple(sorted(chosen))
    if not chosen:
        raise ValueError("name at least one column")
    recipe = Recipe(table.columns, chosen, form, label)
    if len(recipe.features) > MOST_FEATURES:
        raise ValueError(f"columns and indicators together must be at most {MOST_FEATURES}")
    return recipe


def _all(table: TableMetadata) -> list[str]:
    return [column.name for column in table.columns]


def _columns(table: TableMetadata, choice: TableChoice) -> Sequence[str]:
    return _all(table) if choice.columns is None else choice.columns


def _points(table: TableMetadata, choice: TableChoice) -> PointsMetadata:
    """Points of Euclidean space, in the ball that holds the images of all possible rows, if there is one."""
    recipe = _recipe(table, _columns(table, choice), "scaled")
    manifold = {"name": "euclidean", "dim": recipe.width}
    if not recipe.is_bounded:
        return PointsMetadata(table.n, manifold, recipe=recipe)
    return PointsMetadata(table.n, manifold, recipe.center.tolist(), recipe.radius, recipe=recipe)


def _vectors(table: TableMetadata, choice: TableChoice) -> VectorsMetadata:
    recipe = _recipe(table, _columns(table, choice), "scaled")
    return VectorsMetadata(table.n, recipe.width, sqrt(recipe.width), recipe=recipe)


def _labelled(table: TableMetadata, choice: TableChoice) -> LabelledMetadata:
    if choice.label is None:
        raise ValueError("name a label: a column of categories or a boolean one")
    (label,) = table.places([choice.label])
    column = table.columns[label]
    if column.is_ordered:
        raise ValueError(f"{column.name} is no label: it must be a column of categories or a boolean one")
    names = choice.features
    if names is None:
        names = [name for name in _all(table) if name != choice.label]
    elif choice.label in names:
        raise ValueError("features must not name the label")
    recipe = _recipe(table, names, "labelled", label)
    return LabelledMetadata(
        table.n,
        tuple(feature.name for feature in recipe.features),
        column.name,
        column.classes,
        mean=tuple(recipe.middle.tolist()),
        scale=tuple(recipe.half.tolist()),
        recipe=recipe,
    )


def _partial(table: TableMetadata, choice: TableChoice) -> PartialVectorsMetadata:
    names = choice.columns
    if names is None:
        names = [column.name for column in table.columns if column.is_ordered]
    if other := [table.columns[at].name for at in table.places(names) if not table.columns[at].is_ordered]:
        raise ValueError(
            f"only columns of numbers and dates have entries to complete: leave out {listed(other)}"
        )
    recipe = _recipe(table, names, "partial")
    if recipe.width < 2:
        raise ValueError("name at least two columns of numbers")
    return PartialVectorsMetadata(table.n, recipe.width, recipe=recipe)


_MADE: dict[type[DatasetMetadata], Callable[[TableMetadata, TableChoice], DatasetMetadata]] = {
    PointsMetadata: _points,
    VectorsMetadata: _vectors,
    LabelledMetadata: _labelled,
    PartialVectorsMetadata: _partial,
}
"""Metadata by their kind, of a table and what a question chooses of it."""

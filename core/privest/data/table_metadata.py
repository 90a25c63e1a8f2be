"""`TableMetadata`: the public facts of a table, and what a question on it is to an estimator."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from privest.arrays import Array
from privest.data.float_limits import MetadataFault
from privest.data.metadata import (
    DatasetMetadata,
    LabelledMetadata,
    PartialVectorsMetadata,
    PointsMetadata,
    VectorsMetadata,
)
from privest.data.tables import Column, Form, Indicators, Levels, Recipe, dummy_rows, listed

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
        features: of a classifier; by default all columns but the label. A column of categories stands for an
            indicator of every category but its reference. Indicators can be named by themselves, those of one
            column one after another.
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


def _recipe(
    table: TableMetadata,
    chosen: Sequence[int],
    form: Form,
    label: int | None = None,
    indicators: Sequence[Indicators | None] = (),
) -> Recipe:
    """Return the recipe of the columns at some places.

    Raises:
        ValueError: there are none, or too many.
    """
    if not chosen:
        raise ValueError("name at least one column")
    wanted = () if all(each is None for each in indicators) else tuple(indicators)
    recipe = Recipe(table.columns, tuple(chosen), form, label, wanted)
    if len(recipe.features) > MOST_FEATURES:
        raise ValueError(f"columns and indicators together must be at most {MOST_FEATURES}")
    return recipe


def _all(table: TableMetadata) -> list[str]:
    return [column.name for column in table.columns]


def _columns(table: TableMetadata, choice: TableChoice) -> Sequence[str]:
    return _all(table) if choice.columns is None else choice.columns


def _points(table: TableMetadata, choice: TableChoice) -> PointsMetadata:
    """Points of Euclidean space, in the ball that holds the images of all possible rows, if there is one."""
    chosen = sorted(table.places(_columns(table, choice)))
    recipe = _recipe(table, chosen, "scaled", indicators=[_of_two(table.columns[at]) for at in chosen])
    manifold = {"name": "euclidean", "dim": recipe.width}
    if not recipe.is_bounded:
        return PointsMetadata(table.n, manifold, recipe=recipe)
    return PointsMetadata(table.n, manifold, recipe.center.tolist(), recipe.radius, recipe=recipe)


def _of_two(column: Column) -> Indicators | None:
    """Return the one indicator of a column of two categories, as of a boolean: two would double the noise."""
    return column.relative_indicators if len(column.classes) == 2 and column.has_indicators else None


def _vectors(table: TableMetadata, choice: TableChoice) -> VectorsMetadata:
    recipe = _recipe(table, sorted(table.places(_columns(table, choice))), "scaled")
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
    chosen = _features_named(table, names)
    if label in chosen:
        raise ValueError("features must not name the label")
    recipe = _recipe(table, [*chosen], "labelled", label, [*chosen.values()])
    return LabelledMetadata(
        table.n,
        tuple(feature.name for feature in recipe.features),
        column.name,
        column.classes,
        mean=tuple(recipe.middle.tolist()),
        scale=tuple(recipe.half.tolist()),
        recipe=recipe,
    )


def _features_named(table: TableMetadata, names: Sequence[str]) -> dict[int, Indicators | None]:
    """Return the places of the columns of some features, each with the indicators that are wanted of it.

    Raises:
        ValueError: the table has no such feature, or one is named twice or apart from others of its column.
    """
    known = {column.name: place for place, column in enumerate(table.columns)}
    found, last = dict[int, Indicators | None](), None
    for name in names:
        if (place := known.get(name)) is not None:
            column = table.columns[place]
            wanted = column.relative_indicators if column.has_indicators else None
        else:
            place, levels = _indicator_named(table, name)
            if not levels:
                if place != last:
                    raise ValueError(f"{name} comes with its column: name {table.columns[place].name}")
                continue  # as answers list it
            wanted = (levels,)
            if place == last and place in found:
                before = found.pop(place) or ()
                if {each for one in before for each in one} & {*levels}:
                    raise ValueError(f"name each category of {table.columns[place].name} once")
                wanted = (*before, levels)
        if place in found:
            raise ValueError("name each column once, and its categories one after another")
        found[place], last = wanted, place
    return found


def _indicator_named(table: TableMetadata, name: str) -> tuple[int, Levels]:
    """Return the column of an indicator and its levels; none of the gaps of a column that has a value.

    Raises:
        ValueError: the table has no such indicator.
    """
    for place, column in enumerate(table.columns):
        if levels := column.levels_named(name):
            return place, levels
        if column.gap_level is not None and name == f"{column.name} missing":
            return place, ()
    for column in table.columns:
        if column.has_indicators and name.startswith(f"{column.name}="):
            raise ValueError(f"{column.name} has no such category: it has {listed(column.classes)}")
    (place,) = table.places([name])  # raises, in words
    return place, ()


def _partial(table: TableMetadata, choice: TableChoice) -> PartialVectorsMetadata:
    names = choice.columns
    if names is None:
        names = [column.name for column in table.columns if column.is_ordered]
    if other := [table.columns[at].name for at in table.places(names) if not table.columns[at].is_ordered]:
        raise ValueError(
            f"only columns of numbers and dates have entries to complete: leave out {listed(other)}"
        )
    recipe = _recipe(table, sorted(table.places(names)), "partial")
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

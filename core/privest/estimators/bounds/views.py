"""What bounds are told of: the coordinates of a record, or its distance from a point."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from privest.arrays import Array, lengths
from privest.estimators.column_ranges import ColumnCounts
from privest.manifolds import Manifold
from privest.privacy.clipping import any_floats
from privest.tables.columns import Feature
from privest.tables.recipe import Recipe


class View(Protocol):
    """A map of each record to some numbers, with their names and public bounds."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the numbers."""
        ...

    @property
    def low(self) -> Array:
        """(numbers,) lower bounds; −∞ where none is declared."""
        ...

    @property
    def high(self) -> Array:
        """(numbers,) upper bounds."""
        ...

    def __call__(self, rows: Array) -> Array:
        """The (n, numbers) of (n, *shape) rows of any floats; NaN where there is none."""
        ...


@dataclass(frozen=True)
class Coordinates:
    """Some coordinates of a record: of a table's row those that are numbers or dates.

    Attributes:
        names: of them.
        places: of them among all coordinates.
        gaps: of the indicators of their gaps among all coordinates; −1 of those that have none.
        low: (numbers,) public lower bounds.
        high: (numbers,) upper bounds.
    """

    names: tuple[str, ...]
    places: tuple[int, ...]
    gaps: tuple[int, ...]
    low: Array
    high: Array

    @classmethod
    def of(cls, size: int, recipe: Recipe | None) -> "Coordinates":
        """All coordinates or, of a table, those that are no indicators."""
        if recipe is None:
            names = tuple(f"x{place + 1}" for place in range(size))
            return cls(names, tuple(range(size)), (-1,) * size, np.full(size, -inf), np.full(size, inf))
        features = recipe.features
        places = tuple(place for place, feature in enumerate(features) if not feature.is_share)
        missing = {feature.column: place for place, feature in enumerate(features) if feature.gap}
        ends = [_ends(features[place]) for place in places]
        return cls(
            tuple(features[place].name for place in places),
            places,
            tuple(missing.get(features[place].column, -1) for place in places),
            np.array([low for low, _ in ends], dtype=np.float64),
            np.array([high for _, high in ends], dtype=np.float64),
        )

    def __call__(self, rows: Array) -> Array:
        """The coordinates, a gap being NaN although the row has a public value in its place."""
        gaps = np.array(self.gaps)
        # The last of the indicators if there is none of its own, which does not count.
        missing = (rows[:, gaps] > 0) & (gaps >= 0)
        return np.where(missing, np.nan, rows[:, list(self.places)])


def _ends(feature: Feature) -> tuple[float, float]:
    """The bounds of an image: of a value with both bounds −1 and 1, of another its own."""
    if feature.low is not None and feature.high is not None:
        return -1.0, 1.0
    return -inf if feature.low is None else feature.low, inf if feature.high is None else feature.high


@dataclass(frozen=True)
class Distance:
    """The distance of a record from a point.

    Attributes:
        space: where the records are.
        center: (*shape) the point.
    """

    space: Manifold
    center: Array

    names = ("distance",)

    @property
    def low(self) -> Array:
        """No distance is below 0."""
        return np.zeros(1)

    @property
    def high(self) -> Array:
        """Nobody knows how far records are."""
        return np.full(1, inf)

    @any_floats
    def __call__(self, rows: Array) -> Array:
        """The distances, (n, 1)."""
        return lengths(self.space.log_coordinates(self.center, rows))[:, None]


@dataclass(frozen=True)
class Viewed:
    """Counts of what a view tells of a record, in place of the record.

    Attributes:
        counts: what is counted.
        view: what of a record is counted.
    """

    counts: ColumnCounts
    view: View

    @property
    def description(self) -> str:
        """What is released, in words."""
        return self.counts.description

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.counts.size

    def diameter(self, clip: float) -> float:
        """As without the view, which takes each record by itself."""
        return self.counts.diameter(clip)

    def clipped_sum(self, nodes: Array, rows: Array, clip: float) -> Array:
        """Σ of the counts; see `Statistic`."""
        return self.counts.clipped_sum(nodes, self.view(rows), clip)

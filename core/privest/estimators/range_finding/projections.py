"""Numbers of a record that are looked at: some of its coordinates, or its distance from a point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, TypeVar

import numpy as np

from privest.arrays import Array, lengths
from privest.data.tables import Recipe
from privest.manifolds import Manifold
from privest.privacy.clipped_sums import Statistic, any_floats, l1_diameter

Query = TypeVar("Query")


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
        missing = {feature.column: place for place, feature in enumerate(features) if feature.gap}
        places = recipe.numbers
        gaps = tuple(missing.get(features[place].column, -1) for place in places)
        return cls.at(places, recipe, gaps)

    @classmethod
    def at(cls, places: tuple[int, ...], recipe: Recipe, gaps: tuple[int, ...] = ()) -> "Coordinates":
        """The coordinates at these places of a table's records; without `gaps` fills count as values."""
        names = tuple(recipe.features[place].name for place in places)
        low, high = recipe.range[:, list(places)]
        return cls(names, places, gaps or (-1,) * len(places), low, high)

    def __call__(self, rows: Array) -> Array:
        """The coordinates, a gap being NaN although the row has a public value in its place."""
        gaps = np.array(self.gaps)
        # The last of the indicators if there is none of its own, which does not count.
        missing = (rows[:, gaps] > 0) & (gaps >= 0)
        return np.where(missing, np.nan, rows[:, list(self.places)])


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
class Viewed(Generic[Query]):
    """A statistic of what a view tells of a record, in place of the record. The rest costs nothing.

    Attributes:
        statistic: of these numbers.
        view: what of a record is seen.
    """

    statistic: Statistic[Query]
    view: Callable[[Array], Array]

    @property
    def description(self) -> str:
        """The released quantity in words for analysts."""
        return self.statistic.description

    @property
    def size(self) -> int:
        """Length of the summed vector."""
        return self.statistic.size

    def diameter(self, clip: float) -> float:
        """The statistic's own, as a view takes each record by itself."""
        return self.statistic.diameter(clip)

    def l1_diameter(self, clip: float) -> float:
        """The statistic's own, likewise."""
        return l1_diameter(self.statistic, clip)

    def clipped_sum(self, query: Query, rows: Array, clip: float) -> Array:
        """Σ of the statistic's vectors of what is seen of the records; see `Statistic`."""
        return self.statistic.clipped_sum(query, self.view(rows), clip)

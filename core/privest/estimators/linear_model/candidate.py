"""`Candidate`: one of several linear classifiers to choose among, with its features and its gate's names."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, cast

import numpy as np

from privest.arrays import Array
from privest.data.metadata import LabelledMetadata
from privest.data.tables import listed
from privest.estimators.base import require
from privest.estimators.linear_model.logistic_spec import LogisticSpec
from privest.estimators.range_finding.projections import Viewed
from privest.options import Option
from privest.privacy.clipped_sums import AnyStatistic, Statistic
from privest.privacy.oracle import Oracle


@dataclass(frozen=True)
class Candidate(LogisticSpec):
    """A linear classifier among others: what is left out follows from public facts."""

    features: Annotated[
        tuple[str, ...] | None,
        Option(
            "some of the question's: columns of a table or indicators of theirs, or features of labelled "
            "vectors; by default all",
            ge=1,
            le=2_000,
        ),
    ] = None

    @property
    def spec(self) -> LogisticSpec:
        """The classifier as one asks for it by itself, on these features.

        Raises:
            ValueError: it sees random batches.
        """
        require(
            self.solver != "spider" and self.batch_size is None,
            "the solver spider and batch_size see random batches, which candidates do without",
        )
        return LogisticSpec(**{each.name: getattr(self, each.name) for each in fields(LogisticSpec)})

    def places(self, shape: LabelledMetadata) -> tuple[int, ...]:
        """The places of its features among the question's, in their order.

        Raises:
            ValueError: it names none, or one that the question does not have.
        """
        names = _names(shape)
        if self.features is None:
            return tuple(range(len(names)))
        require(len(self.features) > 0, "features must name at least one")
        if unknown := set(self.features).difference(*names):
            raise ValueError(f"the question has no feature {listed(sorted(unknown))}")
        return tuple(place for place, each in enumerate(names) if not each.isdisjoint(self.features))

    def shape(self, whole: LabelledMetadata) -> LabelledMetadata:
        """The public facts of the question with its features alone."""
        places, recipe = self.places(whole), whole.recipe
        if recipe is not None and self.features is not None:
            recipe = recipe.with_features(self.features)
        return replace(
            whole,
            features=tuple(whole.features[place] for place in places),
            mean=_some(whole.mean, places),
            scale=_some(whole.scale, places),
            recipe=recipe,
        )


def _names(shape: LabelledMetadata) -> list[frozenset[str]]:
    """Return what a candidate may call each feature of a query: of a table by its column, too."""
    recipe = shape.recipe
    if recipe is None:
        return [frozenset({name}) for name in shape.features]
    return [
        frozenset({recipe.columns[each.column].name, *([] if recipe.shows_all(each.column) else [each.name])})
        for each in recipe.features
    ]


def _some(given: tuple[float, ...] | None, places: tuple[int, ...]) -> tuple[float, ...] | None:
    return None if given is None else tuple(given[place] for place in places)


@dataclass(frozen=True)
class _SomeFeatures:
    """A labelled record without the features that a candidate does not have."""

    places: tuple[int, ...]

    def __call__(self, rows: Array) -> Array:
        return rows[:, [*self.places, -1]]


def seen(statistic: AnyStatistic, places: tuple[int, ...]) -> AnyStatistic:
    """A candidate's statistic, of the question's records."""
    return Viewed(cast("Statistic[object]", statistic), _SomeFeatures(places))


def on_all(coefficients: Array, places: tuple[int, ...], dim: int) -> Array:
    """A candidate's coefficients (..., features) for all features (..., dim), with 0 for those it lacks."""
    found = np.zeros((*coefficients.shape[:-1], dim))
    found[..., list(places)] = coefficients
    return found


@dataclass(frozen=True)
class Renamed(Oracle):
    """The part of a gate that answers one of several fits, whose statistics have names of their own there.

    Attributes:
        gate: what answers.
        names: of the fit's statistics at the gate.
    """

    gate: Oracle
    names: Mapping[str, str]

    @property
    def share(self) -> float:
        """The gate's own."""
        return self.gate.share

    def mean(self, point: object, statistic: str = "gradient") -> Array:
        """The gate's answer to this fit."""
        return self.gate.mean(point, self.names[statistic])

    def pick(self, count: int) -> int:
        """The gate's own."""
        return self.gate.pick(count)

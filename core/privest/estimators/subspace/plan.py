"""The fields, the limits and the expected error that plans of all subspaces share."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import degrees, sqrt
from typing import Annotated, Self

import numpy as np
from scipy.special import chdtri

from privest.arrays import Array
from privest.data.column_estimates import Loadings, loadings
from privest.data.metadata import PartialVectorsMetadata, VectorsMetadata
from privest.data.tables import Recipe
from privest.estimators.base import BasePlan, require
from privest.estimators.range_finding.column_scales import SHARE, Columns, ColumnScales, StandardisedOracle
from privest.estimators.subspace.schedule import right_angles
from privest.estimators.uncertainty import Answer, ExpectedError
from privest.optim.federated import LocalSteps, Rounds, ServerStep, Turns, takes_part
from privest.options import Doc
from privest.privacy.accounting import PrivacyTarget
from privest.privacy.budget import PrivacyBudget
from privest.privacy.mechanisms import Release
from privest.privacy.oracle import Oracle

_MOST_RANK = 50

_USEFUL = 0.25
"""Share of a square right angle in every direction; more than that is no use as a start, or as an answer."""


@dataclass(frozen=True)
class NamedRows(Answer):
    """A subspace that names the rows of its basis where they are columns of a table."""

    basis: Annotated[
        Array,
        Doc(
            "rows of a matrix with orthonormal columns, the most variance first; in each column the entry of "
            "largest size is positive",
            axes=(2,),
        ),
    ]
    columns: Annotated[
        tuple[str, ...] | None, Doc("of a table: the columns and categories that the rows stand for")
    ] = field(default=None, kw_only=True)
    loadings: Annotated[
        tuple[Loadings, ...] | None, Doc("of a table: the rows of the basis by these names")
    ] = field(default=None, kw_only=True)

    degrees_95: Annotated[
        float | None, Doc("`radius_95` of the uncertainty, which is in radians, in degrees")
    ] = field(default=None, kw_only=True)
    centers: Annotated[
        Array | None,
        Doc(
            "of a table whose columns lack a bound, or of a completion with means: what was taken off each "
            "column",
            axes=(1,),
        ),
    ] = field(default=None, kw_only=True)
    scales: Annotated[
        Array | None, Doc("and what the rest was divided by, in the columns' own units", axes=(1,))
    ] = field(default=None, kw_only=True)

    def in_columns(self, recipe: Recipe, expected: ExpectedError) -> Self:
        """The subspace with the names of its rows, and the units that were found."""
        del expected
        names = tuple(feature.name for feature in recipe.features)
        named = replace(self, columns=names, loadings=loadings(self.basis, recipe))
        if self.centers is None or self.scales is None:
            return named
        centers, scales = recipe.middle + recipe.half * self.centers, recipe.half * self.scales
        return replace(named, centers=centers, scales=scales)

    def in_degrees(self) -> Self:
        """The subspace with its stated angle in degrees as well."""
        told = self.uncertainty
        return self if told is None else replace(self, degrees_95=degrees(told.radius_95))

    def in_units(self, found: "Units | None") -> Self:
        """The subspace of rows in units that the run found, if it looked for any."""
        if found is None or self.uncertainty is None:
            return self
        told = replace(self.uncertainty, warnings=(*self.uncertainty.warnings, *found.warnings))
        if not found.others:
            return replace(self, uncertainty=told)
        told = replace(told, of=f"{told.of}, in units of a scale for each column that the run found")
        columns = found.columns
        return replace(self, centers=columns.center, scales=columns.scale, uncertainty=told)


@dataclass(frozen=True)
class AngleError(ExpectedError):
    """Length of the vector of principal angles between two subspaces, in radians."""

    WITHIN = "unfavourable"

    standard_deviation: Annotated[float, Doc("root mean square")]
    radius_95: Annotated[float, Doc("not exceeded with probability 0.95")]

    @classmethod
    def of(
        cls, square: float, rank: int, dim: int, *, assumes: str = "", unfavourable: float | None = None
    ) -> Self:
        """The error whose expected square is given, evenly spread over all directions of subspaces.

        Args:
            square: expected.
            rank: r.
            dim: D.
            assumes: what that takes for granted of the rows.
            unfavourable: the square for rows that are unlike that.
        """
        free = rank * (dim - rank)
        spread, most = float(chdtri(free, 0.05)) / free, sqrt(right_angles(min(rank, dim - rank)))
        worse = None if unfavourable is None else min(most, sqrt(unfavourable * spread))
        radius = min(most, sqrt(square * spread))
        return cls(sqrt(square), radius, assumes=assumes, unfavourable=worse)


@dataclass(frozen=True, kw_only=True)
class SubspacePlan(BasePlan):
    """A plan of a subspace.

    Attributes:
        rank: r.
        step_sizes: of the descent; none where there is no descent.
        local_steps: that every owner takes in each step of the descent.
        server_step: see `Rounds`.
        turns: in which owners take part in these steps; see `Rounds`.
    """

    shape: VectorsMetadata | PartialVectorsMetadata
    expected_error: AngleError
    rank: int
    step_sizes: tuple[float, ...]
    local_steps: LocalSteps = 1
    server_step: ServerStep = 1.0
    turns: Turns = 1

    @property
    def rounds(self) -> Rounds:
        """The steps of the descent, as rounds of several owners."""
        return Rounds(self.step_sizes, self.local_steps, self.server_step, self.turns)

    @property
    def fewest_owners(self) -> int:
        """As many as there are turns, or nobody would take part in some rounds."""
        return self.turns

    def counts(self, place: int) -> tuple[int, ...]:
        """How often the owner at this place makes each release: gradients in its turns, others as all do."""
        found, begun = list[int](), 0
        for release in self.releases:
            count = release.count
            if release.statistic == "gradient":
                ended = begun + count // self.local_steps
                own = sum(takes_part(place, number, self.turns) for number in range(begun, ended))
                count, begun = own * self.local_steps, ended
            found.append(count)
        return tuple(found)

    @property
    def scales(self) -> ColumnScales | None:
        """The scales of columns that the run is to find first, if it looks for any."""
        return ColumnScales.planned(self.shape.recipe, self.releases)

    @property
    def looks(self) -> tuple[Release, ...]:
        """The histograms by which these are found."""
        return self.scales.looks(self.releases) if self.scales else ()

    def opened(self, gate: Oracle) -> "tuple[Self, Oracle, Units | None]":
        """What is left of the plan once scales of columns are found, and a gate in these units.

        Columns keep the units of their bounds, unless these prove to be a guess.
        """
        scales, recipe = self.scales, self.shape.recipe
        if scales is None or recipe is None:
            return self, gate, None
        looks = self.looks
        found = scales.find(gate, looks)
        typical, (taken, narrow) = found.typical(), scales.guesses(found)
        center, scale = np.where(taken, typical.center, 0.0), np.where(taken, typical.scale, 1.0)
        columns = Columns(scales.among_all(center, 0.0), scales.among_all(scale, 1.0))
        left = replace(self, releases=self.releases[len(looks) :])
        told = *found.hidden(scales.names), *narrow, *found.unsure(scales.names, taken)
        units = Units(columns, bool(taken.any()), told)
        return left, StandardisedOracle(gate, columns), units


def scales_to_find(
    shape: VectorsMetadata | PartialVectorsMetadata, budget: PrivacyBudget
) -> tuple[ColumnScales | None, float]:
    """The scales of columns that a run is to find, and the share of its budget for that.

    Where all columns have bounds these are the scales, and nothing is looked for.
    """
    if shape.recipe is None or shape.recipe.is_bounded:
        return None, 0.0
    return ColumnScales.sought(shape.recipe, budget, SHARE), SHARE


@dataclass(frozen=True)
class Units:
    """Units of columns that a run found.

    Attributes:
        columns: centres and scales.
        others: whether some are others than those of declared bounds.
        warnings: of columns that noise hides, and of bounds that are too wide.
    """

    columns: Columns
    others: bool
    warnings: tuple[str, ...]


def is_useful(error: float, rank: int) -> bool:
    """Whether a subspace whose squared angles add up to this much in expectation tells anything."""
    return error < _USEFUL * right_angles(rank)


def subspace_warnings(error: float, rank: int) -> Iterator[str]:
    """The warning that an answer deserves which is expected to tell nothing, or none."""
    if not is_useful(error, rank):
        yield "the noise may hide the subspace: ask with a larger epsilon, or for a smaller rank"


def require_subspace(
    name: str, rank: int, shape: VectorsMetadata | PartialVectorsMetadata, target: PrivacyTarget
) -> None:
    """Refuse a subspace that cannot be found in such data, whatever the solver.

    Raises:
        ValueError: the rank or δ is out of range for the estimator called `name`.
    """
    require(rank < shape.dim, "rank must be below the number of columns")
    require(rank <= _MOST_RANK, f"rank must be at most {_MOST_RANK}")
    require(rank < shape.n, "a subspace needs more records than it has dimensions")
    require(target.delta > 0, f"{name} adds Gaussian noise: delta must be above 0")

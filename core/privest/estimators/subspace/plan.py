"""The fields, the limits and the expected error that plans of all subspaces share."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Annotated, Self

from scipy.special import chdtri

from privest.arrays import Array
from privest.estimators.base import BasePlan, require
from privest.estimators.subspace.schedule import right_angles
from privest.estimators.uncertainty import Answer, ExpectedError
from privest.metadata import PartialVectorsMetadata, VectorsMetadata
from privest.options import Doc
from privest.privacy.cost import PrivacyTarget
from privest.tables.answers import Loadings, loadings
from privest.tables.recipe import Recipe

_MOST_RANK = 50

_USEFUL = 0.25
"""Share of a square right angle in every direction; more than that is no use as a start, or as an answer."""


@dataclass(frozen=True)
class NamedRows(Answer):
    """A subspace that names the rows of its basis where they are columns of a table."""

    basis: Annotated[Array, Doc("rows of a matrix with orthonormal columns", axes=(2,))]
    columns: Annotated[
        tuple[str, ...] | None, Doc("of a table: the columns and categories that the rows stand for")
    ] = field(default=None, kw_only=True)
    loadings: Annotated[
        tuple[Loadings, ...] | None, Doc("of a table: the rows of the basis by these names")
    ] = field(default=None, kw_only=True)

    def in_columns(self, recipe: Recipe, expected: ExpectedError) -> Self:
        """The subspace with the names of its rows."""
        del expected
        names = tuple(feature.name for feature in recipe.features)
        return replace(self, columns=names, loadings=loadings(self.basis, recipe))


@dataclass(frozen=True)
class AngleError(ExpectedError):
    """Length of the vector of principal angles between two subspaces, in radians."""

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
    """

    expected_error: AngleError
    rank: int
    step_sizes: tuple[float, ...]
    local_steps: int = 1


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

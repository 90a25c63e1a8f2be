"""The error of an answer: a plan's forecast, and a run's estimate from its released numbers."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

from privest.data.tables import Recipe
from privest.options import Doc


@dataclass(frozen=True)
class ExpectedError:
    """How far an answer is expected to be off, from public facts.

    Attributes:
        standard_deviation: the one number that is shown where there is room for one.
        WITHIN: the figure that 95 % of runs do not exceed, whatever the records are that public facts allow.
    """

    WITHIN: ClassVar[Literal["radius_95", "unfavourable"]] = "radius_95"

    standard_deviation: float
    assumes: Annotated[str, Doc("what the forecast takes for granted of the records, in words")] = field(
        default="", kw_only=True
    )
    unfavourable: Annotated[
        float | None, Doc("`radius_95` for records that are unlike that; null where nobody worked it out")
    ] = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Uncertainty:
    """How far an answer may be from what it is taken for, by what its run released.

    A figure covers the noise, and what clipping, shortening, penalties and unfinished steps moved.
    """

    of: Annotated[str, Doc("what the answer is compared with, in words")]
    standard_deviation: Annotated[float, Doc("root mean square distance from it")]
    radius_95: Annotated[float, Doc("distance from it that 95 % of runs do not exceed")]
    noise: Annotated[float, Doc("what `radius_95` would be by the noise alone")]
    moved: Annotated[
        float | None,
        Doc("what clipping, shortening, penalties and unfinished steps may have moved; null where unknown"),
    ] = None
    sampling: Annotated[
        float | None,
        Doc("standard error for having these records and not others like them; null where unknown"),
    ] = None
    unknown: Annotated[tuple[str, ...], Doc("what no figure covers, in words")] = ()
    warnings: Annotated[tuple[str, ...], Doc("what the plan could not know, for the analyst")] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Base of all runs' answers."""

    uncertainty: Annotated[
        Uncertainty | None, Doc("what the run found out; None where the plan's forecast is all there is")
    ] = None

    def in_columns(self, recipe: Recipe, expected: ExpectedError) -> Self:
        """The answer with what it says of a table's columns, by their names and in their units.

        Args:
            recipe: that made the records of the table's rows.
            expected: the plan's forecast, for an answer without an uncertainty of its own.
        """
        del recipe, expected  # most answers name their features anyhow, or have none
        return self

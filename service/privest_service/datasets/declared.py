"""What schemas of several kinds declare alike: names of columns, categories, and whose a row is."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from privest.data.metadata import DatasetMetadata
from privest.data.records import MOST_PLACES
from privest.data.transforms import Transform
from privest_service.datasets.import_spec import ImportSpec
from privest_service.datasets.readers import Layout, string_form
from privest_service.inputs import ColumnName, Input
from privest_service.problems import Fault
from privest_service.upload_errors import RefusedUploadError

_SHOWN = 5
"""Faults that one refusal names."""

Label = ColumnName
"""Name of a column."""


def _category(given: object) -> object:
    if isinstance(given, bool | int):
        return string_form(given)
    if isinstance(given, float) and given.is_integer():  # as JSON has it, 1.0 is a whole number
        return string_form(given)
    if not isinstance(given, str):
        raise ValueError("must be a text, a whole number, true or false")
    return given


Category = Annotated[Label, BeforeValidator(_category, json_schema_input_type=Label | int | bool)]
"""A class, or a category of a feature: a text, or what is taken by its string form."""


class Unit(Input):
    """The person or other unit that a row belongs to.

    All rows of one unit are one record. Their mean is its contribution, and it is clipped as one.

    A record has as many places for rows, over which those of a unit are spread evenly.
    """

    column: Label
    rows: Annotated[int, Field(ge=1, le=MOST_PLACES, description="places for rows of a unit")]


def unit_column(unit: Unit | None) -> str | None:
    """The name of the column that tells whose a row is."""
    return unit.column if unit else None


def import_spec(
    layout: Layout, shape: DatasetMetadata, unit: Unit | None, transform: Transform | None = None
) -> ImportSpec:
    """Return the import specification of files with this layout.

    Raises:
        RefusedUploadError: float64 cannot work with a declared bound or scale.
    """
    if faults := [*shape.faults, *(transform.faults if transform else ())]:
        raise RefusedUploadError([Fault(field=name, rule=rule) for name, rule in faults[:_SHOWN]])
    return ImportSpec(layout, shape, transform, unit.rows if unit else None)

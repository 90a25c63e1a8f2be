"""The schema of a table: typed columns, as an owner declares them."""

from collections import Counter
from datetime import date
from functools import partial
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from privest.data.float_limits import LARGEST
from privest.data.table_metadata import MOST_FEATURES, TableMetadata
from privest.data.tables import MISSING, Column, ColumnType, Missing, day_of
from privest_service.datasets.declared import Category, Label, Unit, import_spec, unit_column
from privest_service.datasets.import_spec import ImportSpec
from privest_service.datasets.readers import Layout
from privest_service.datasets.readers.dates import DateFormat
from privest_service.datasets.readers.numbers import NUMBER_FORMAT, NumberFormat
from privest_service.inputs import Input, limit_size
from privest_service.problems import Fault
from privest_service.upload_errors import RefusedUploadError

_MOST_COLUMNS = 2_000

_SHOWN = 5

_BEYOND = "fill must be from low to high: a value beyond these counts as the nearer of them"
"""Refused at an upload alone, as schemas that were stored before may have it."""

Bound = float | str | None


class ColumnSchema(Input):
    """One column of a table; `low` and `high` are public bounds, to which values beyond them are drawn in.

    Bounds belong to numbers, integers and dates, and bounds and fills that are dates are written as
    2007-11-11. `missing` says what a gap is: a fault, a category of its own, or the public value `fill`, with
    an indicator beside it. Of a date with a time the day counts as it is written, at the place.
    """

    name: Label
    type: ColumnType
    format: Annotated[
        DateFormat | None,
        Field(
            description="how a file writes dates that do not begin with the year, which are always taken",
            exclude_if=lambda given: given is None,  # so that what was declared before keeps its digest
        ),
    ] = None
    number_format: Annotated[
        str | None,
        Field(
            description="how a file writes 1234.5 with thousands separators, % or a currency sign: "
            "1,234.5 or 1.234,5 or $1,234.5 or 1234.5%. The sign is left out: 12.5% is 12.5",
            pattern=NUMBER_FORMAT,
            exclude_if=lambda given: given is None,
        ),
    ] = None
    low: Annotated[Bound, Field(description="public lower bound: a number, or an ISO date")] = None
    high: Annotated[Bound, Field(description="public upper bound")] = None
    categories: Annotated[
        list[Category] | None,
        Field(min_length=2, max_length=1000, description="all that a column of type category may hold"),
    ] = None
    reference: Annotated[
        Category | None,
        Field(
            description="the category that coefficients of the others are relative to; by default the first",
            exclude_if=lambda given: given is None,
        ),
    ] = None
    missing: Annotated[
        Missing, Field(description="what a gap is; `category` is for categories and booleans")
    ] = "refused"
    fill: Annotated[
        float | str | bool | None,
        Field(description="the public value in a gap's place, where `missing` is `filled`"),
    ] = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.missing == "category" and self.type not in ("category", "boolean"):
            raise ValueError(
                "missing must be refused or filled: only categories and booleans have one more category"
            )
        if (self.fill is None) == (self.missing == "filled"):
            raise ValueError("fill must be given where missing is filled, and nowhere else")
        if (self.categories is None) == (self.type == "category"):
            raise ValueError("categories must be given for the type category, and for no other")
        if self.format is not None and self.type != "date":
            raise ValueError("format belongs to dates")
        if self.number_format is not None:
            NumberFormat.of(self.number_format)
            if self.type not in ("number", "integer"):
                raise ValueError("number_format belongs to numbers and integers")
        known = self.categories or []
        if len(set(known)) < len(known):
            raise ValueError("categories must not list a value twice")
        if self.reference is not None and self.reference not in known:
            raise ValueError("reference must be one of the categories")
        if self.missing == "category" and MISSING in known:
            raise ValueError(f"categories must not name {MISSING}, where a gap is a category of its own")
        low, high = (self._bound(name, bound) for name, bound in (("low", self.low), ("high", self.high)))
        if low is not None and high is not None and low >= high:
            raise ValueError("low must be below high: a column of one value says nothing")
        self._filled()
        return self

    def _bound(self, name: str, bound: Bound) -> float | None:
        """A bound as a number.

        Raises:
            ValueError: the type has no bounds, or other ones.
        """
        if bound is None:
            return None
        if self.type == "date":
            return _day(name, bound)
        if self.type not in ("number", "integer"):
            raise ValueError(f"{name} belongs to numbers, integers and dates")
        if isinstance(bound, str) or abs(bound) > LARGEST:
            raise ValueError(f"{name} must be a number of at most {LARGEST:g}")
        return float(bound)

    def _filled(self) -> float | None:
        """The number that stands for what is in a gap's place.

        Raises:
            ValueError: it is no value of the column.
        """
        fill = self.fill
        if fill is None:
            return None
        if self.type == "date":
            return _day("fill", fill)
        if self.type == "category":
            if fill not in (known := self.categories or []):
                raise ValueError("fill must be one of the categories")
            return float(known.index(str(fill)))
        if isinstance(fill, str) or isinstance(fill, bool) != (self.type == "boolean"):
            raise ValueError(f"fill must be {'true or false' if self.type == 'boolean' else 'a number'}")
        if self.type == "integer" and not float(fill).is_integer():
            raise ValueError("fill must be a whole number")
        return self._bound("fill", float(fill)) if self.type != "boolean" else float(fill)

    def column(self) -> Column:
        """The column as core knows it."""
        low, high = self._bound("low", self.low), self._bound("high", self.high)
        known = tuple(self.categories or ())
        reference = 0 if self.reference is None else known.index(self.reference)
        return Column(self.name, self.type, low, high, known, self.missing, self._filled(), reference)


def _day(name: str, given: object) -> float:
    """The number of a date. Raises ValueError: it is none in ISO 8601."""
    try:
        return float(day_of(date.fromisoformat(str(given))))
    except ValueError:
        raise ValueError(f"{name} must be a date such as 2007-11-11") from None


class TableSchema(Input):
    """A table of typed columns, which are found by their names; others of the file are left out.

    One upload serves all estimators: a question names its columns, or a label and features.
    """

    kind: Literal["table"]
    columns: Annotated[
        list[ColumnSchema],
        Field(min_length=1, max_length=_MOST_COLUMNS),
        BeforeValidator(partial(limit_size, most=_MOST_COLUMNS)),
    ]
    unit: Unit | None = None

    @model_validator(mode="after")
    def _once(self) -> Self:
        names = [column.name for column in self.columns]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError("columns must have different names; given twice: " + ", ".join(twice[:_SHOWN]))
        if self.unit and self.unit.column in names:
            raise ValueError("unit must name a column that is not among columns")
        features = [feature.name for column in self.shape(2).columns for feature in column.features(0)]
        if len(features) > MOST_FEATURES:
            raise ValueError(f"columns and their categories together must be at most {MOST_FEATURES}")
        if twice := [name for name, count in Counter(features).items() if count > 1]:
            raise ValueError(
                "columns must not have the name of an indicator, such as column=category or column missing; "
                "these do: " + ", ".join(twice[:_SHOWN])
            )
        return self

    def shape(self, n: int) -> TableMetadata:
        """The public shape of n records under this schema."""
        return TableMetadata(n, tuple(column.column() for column in self.columns))

    def intake(self) -> ImportSpec:
        """Return the import specification of files under this schema.

        Raises:
            RefusedUploadError: a fill is beyond its column's bounds.
        """
        shape = self.shape(0)
        if beyond := [column.name for column in shape.columns if not column.holds(column.fill)]:
            raise RefusedUploadError([Fault(field=name, rule=_BEYOND) for name in beyond[:_SHOWN]])
        names = tuple(column.name for column in shape.columns)
        known = {column.name: column.values for column in shape.columns if not column.is_ordered}
        formats: dict[str, DateFormat] = {each.name: each.format for each in self.columns if each.format}
        layout = Layout(
            (len(names),),
            names,
            known,
            unit_column(self.unit),
            columns=shape.columns,
            formats=formats,
            number_formats={each.name: each.number_format for each in self.columns if each.number_format},
        )
        return import_spec(layout, shape, self.unit)

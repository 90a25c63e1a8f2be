"""Frames become tables by their dtypes alone, and by their values only where these are public."""

import datetime
import io
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest

from privest_client import SchemaMismatch, table
from privest_client.features import design, feature_names

DAYS = [datetime.date(2007, 11, 11), datetime.date(2008, 1, 1), datetime.date(2009, 5, 5)]
FRAME = pd.DataFrame(
    {
        "bill": [39.1, np.nan, 46.5],
        "year": [2007, 2008, 2009],
        "species": ["Adelie", "Gentoo", "Adelie"],
        "sex": pd.Categorical(["male", None, "male"], categories=["female", "male"]),
        "tagged": [True, False, True],
        "seen": pd.to_datetime(DAYS),
    }
)
POLARS = pl.from_pandas(FRAME).with_columns(
    pl.col("sex").cast(pl.Enum(["female", "male"])), pl.col("seen").cast(pl.Date)
)
SPECIES = {"species": {"categories": ["Adelie", "Chinstrap", "Gentoo"]}}
PLAIN = [
    {"name": "bill", "type": "number"},
    {"name": "year", "type": "integer"},
    {"name": "species", "type": "category", "categories": ["Adelie", "Chinstrap", "Gentoo"]},
    {"name": "sex", "type": "category", "categories": ["female", "male"]},
    {"name": "tagged", "type": "boolean"},
    {"name": "seen", "type": "date"},
]
ARROW = POLARS.with_columns(pl.col("sex").cast(pl.String)).to_arrow()
BOTH = {"pandas": FRAME, "polars": POLARS}


@pytest.mark.parametrize("frame", [FRAME, POLARS], ids=list(BOTH))
def test_dtypes_alone_make_the_schema(frame: Any) -> None:
    assert table(frame, columns=SPECIES).schema == {"kind": "table", "columns": PLAIN}
    # Other values of the same dtypes: the schema does not move.
    assert table(frame[1:2], columns=SPECIES).schema["columns"] == PLAIN
    assert "read off" not in repr(table(frame, columns=SPECIES))


def test_pyarrow_tables_are_frames_too() -> None:
    columns = SPECIES | {"sex": {"categories": ["female", "male"]}}
    assert table(ARROW, columns=columns).schema["columns"] == PLAIN


def test_a_text_is_asked_about_and_never_read() -> None:
    frame = FRAME.assign(island="Biscoe", note=[{}, {}, {}])
    with pytest.raises(SchemaMismatch) as asked:
        table(frame)
    said = str(asked.value)
    assert [line.split(":")[0].strip() for line in said.splitlines()[1:]] == ["species", "island", "note"]
    assert "Biscoe" not in said
    assert "Adelie" not in said
    assert [each["name"] for each in table(frame, drop=["species", "island", "note"]).columns] == [
        "bill", "year", "sex", "tagged", "seen",
    ]  # fmt: skip


@pytest.mark.parametrize("frame", [FRAME, POLARS], ids=list(BOTH))
def test_values_are_read_where_they_are_public_and_it_is_said(frame: Any) -> None:
    made = table(frame, values_are_public=True, columns={"year": {"low": 2000}})
    by_name = {each["name"]: each for each in made.columns}
    assert by_name["bill"] == {
        "name": "bill", "type": "number", "low": 39.0, "high": 46.5, "missing": "filled", "fill": 42.75,
    }  # fmt: skip
    assert (by_name["year"]["low"], by_name["year"]["high"]) == (2000, 2009)
    assert by_name["species"]["categories"] == ["Adelie", "Gentoo"]
    assert by_name["sex"] == PLAIN[3] | {"missing": "category"}
    assert (by_name["seen"]["low"], by_name["seen"]["high"]) == ("2007-01-01", "2009-12-31")
    assert list(made.read) == ["bounds of bill, year, seen", "categories of species", "gaps of bill, sex"]


@pytest.mark.parametrize("values", [[0.0313, 0.9], [-7234.5, 12.0], [1e-9, 3e-9], [99.99, 100.01]], ids=str)
def test_bounds_are_rounded_outwards(values: list[float]) -> None:
    (column,) = table(pl.DataFrame({"a": values}), values_are_public=True).columns
    assert column["low"] <= min(values)
    assert column["high"] >= max(values)
    assert column["high"] - column["low"] < 2.2 * (max(values) - min(values))


@pytest.mark.parametrize("frame", [FRAME, POLARS], ids=list(BOTH))
def test_rows_are_sent_with_iso_dates_and_nothing_for_a_gap(frame: Any) -> None:
    made = table(frame, columns=SPECIES)
    read = pd.read_csv(io.StringIO(made.csv()))
    assert list(read["seen"]) == ["2007-11-11", "2008-01-01", "2009-05-05"]
    assert list(read["bill"].isna()) == list(read["sex"].isna()) == [False, True, False]
    first, second = 2007, 2008
    assert [[*row.values()] for row in made.rows()][:2] == [
        [39.1, first, "Adelie", "male", True, "2007-11-11"],
        [None, second, "Gentoo", None, False, "2008-01-01"],
    ]
    assert [*made.rows()[0]] == [each["name"] for each in made.columns]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (FRAME.set_index("species"), "index species holds data: frame.reset_index"),
        (FRAME.set_index(pd.Index(["a", "b", "c"])), "index holds data"),
        (FRAME[["bill", "bill"]], "'bill': 2 columns have this name"),
        (FRAME[["bill"]].rename(columns={"bill": "a\tb"}), "rename it"),
        (FRAME[[]], "no columns"),
        (np.eye(3), "ndarray is no frame"),
    ],
    ids=["an index", "an index without a name", "twice", "control characters", "nothing", "an array"],
)
def test_a_frame_that_is_no_table_yet_is_told_why(frame: Any, said: str) -> None:
    with pytest.raises(SchemaMismatch, match=said):
        table(frame)


def test_places_of_rows_are_no_data() -> None:
    assert len(table(FRAME[["bill"]][FRAME["tagged"]]).frame) == 2


def test_a_unit_is_sent_and_is_no_column() -> None:
    made = table(FRAME[["year", "species"]], unit={"column": "species", "rows": 2})
    assert made.schema["columns"] == [{"name": "year", "type": "integer"}]
    assert made.schema["unit"] == {"column": "species", "rows": 2}
    assert made.rows()[0] == {"year": 2007, "species": "Adelie"}


def test_a_column_of_one_value_says_nothing() -> None:
    with pytest.raises(SchemaMismatch, match="island: one category says nothing"):
        table(pd.DataFrame({"island": ["Biscoe", "Biscoe"]}), values_are_public=True)
    with pytest.raises(SchemaMismatch, match="year: its bounds are one value, 2007"):
        table(pd.DataFrame({"year": [2007, 2007]}), values_are_public=True)


def test_corrections_of_columns_that_are_not_there_are_refused() -> None:
    with pytest.raises(SchemaMismatch, match="no column 'sexx', 'islnd'"):
        table(FRAME, columns={"sexx": {}}, drop=["islnd"])


DECLARED: dict[str, dict[str, Any]] = {
    "bill": {"low": 30, "high": 46, "missing": "filled", "fill": 44},
    "sex": {"missing": "category"},
    "tagged": {"missing": "category"},
    "seen": {"low": "2008-01-01", "high": "2009-12-31"},
}


@pytest.mark.parametrize("frame", [FRAME, POLARS], ids=list(BOTH))
def test_features_are_those_that_the_service_makes(frame: Any) -> None:
    """Worked out by hand: 39.1 as it is, 44 for the gap, and 46.5 drawn in to 46."""
    schema = table(frame, columns=SPECIES | DECLARED).schema
    names = feature_names(schema)
    made = dict(zip(names, design(frame, names, schema).T.tolist(), strict=True))
    assert made == {
        "bill": [39.1, 44, 46],
        "bill missing": [0, 1, 0],
        "year": [2007, 2008, 2009],
        "species=Adelie": [1, 0, 1],
        "species=Chinstrap": [0, 0, 0],
        "species=Gentoo": [0, 1, 0],
        "sex=female": [0, 0, 0],
        "sex=male": [1, 0, 1],
        "sex missing": [0, 1, 0],
        "tagged=false": [0, 1, 0],
        "tagged=true": [1, 0, 1],
        "tagged missing": [0, 0, 0],
        "seen": [13879, 13879, 14369],
    }


def test_texts_that_say_nothing_are_gaps_unless_a_category_is_called_so() -> None:
    frame = pl.DataFrame({"sex": ["male", "NA", " none"], "bill": ["39.5", "n/a", "nan"]})
    columns: dict[str, Any] = {
        "sex": {"categories": ["male", "none"], "missing": "category"},
        "bill": {"type": "number", "missing": "filled", "fill": 40},
    }
    schema = table(frame, columns=columns).schema
    made = dict(
        zip(feature_names(schema), design(frame, feature_names(schema), schema).T.tolist(), strict=True)
    )
    assert made["sex missing"] == [0, 1, 0]
    assert made["sex=none"] == [0, 0, 1]
    assert (made["bill"], made["bill missing"]) == ([39.5, 40, 40], [0, 1, 1])
    refused = {"kind": "table", "columns": [{"name": "bill", "type": "number"}]}
    with pytest.raises(SchemaMismatch, match="bill: 2 missing"):
        design(frame, ["bill"], refused)


def test_what_the_schema_does_not_declare_is_told_column_by_column() -> None:
    schema = table(FRAME, columns=SPECIES).schema
    strange = FRAME.assign(species="Emperor", year="x").drop(columns="tagged")
    with pytest.raises(SchemaMismatch, match="no column 'tagged'"):
        design(strange, feature_names(schema), schema)
    with pytest.raises(SchemaMismatch) as told:
        design(strange.assign(tagged=True), feature_names(schema), schema)
    assert str(told.value).splitlines()[1:] == [
        "  bill: 1 missing, and the schema refuses gaps",
        "  year: no number: x",
        "  species: no declared category: Emperor",
        "  sex: 1 missing, and the schema refuses gaps",
    ]


def test_a_wide_table_is_shown_by_its_beginning() -> None:
    wide = pd.DataFrame({f"c{place}": [1.0] for place in range(40)})
    assert "… and 29 more" in repr(table(wide))
    assert table(wide)._repr_html_().count("<tr>") == 13


def test_the_frame_is_not_changed() -> None:
    before = FRAME.copy()
    table(FRAME, columns=SPECIES, values_are_public=True).csv()
    pd.testing.assert_frame_equal(FRAME, before)
    assert isinstance(table(FRAME, columns=SPECIES).frame, nw.DataFrame)

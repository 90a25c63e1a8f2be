"""Frames become tables by their dtypes alone, and by their values only where these are public."""

import datetime
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from privest_client import SchemaMismatch, frames, table
from privest_client.data import read_file
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
GAPS = {"bill": {"missing": "filled", "fill": 40}, "sex": {"missing": "category"}}
SPECIES = {"species": {"categories": ["Adelie", "Chinstrap", "Gentoo"]}} | GAPS
PLAIN = [
    {"name": "bill", "type": "number"} | GAPS["bill"],
    {"name": "year", "type": "integer"},
    {"name": "species", "type": "category", "categories": ["Adelie", "Chinstrap", "Gentoo"]},
    {"name": "sex", "type": "category", "categories": ["female", "male"]} | GAPS["sex"],
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
    columns = SPECIES | {"sex": {"categories": ["female", "male"], "missing": "category"}}
    assert table(ARROW, columns=columns).schema["columns"] == PLAIN


def test_a_text_is_asked_about_and_never_read() -> None:
    frame = FRAME.assign(island="Biscoe", note=[{}, {}, {}])
    with pytest.raises(SchemaMismatch) as asked:
        table(frame, columns=GAPS)
    said = str(asked.value)
    assert [line.split(":")[0].strip() for line in said.splitlines()[1:]] == ["species", "island", "note"]
    assert "Biscoe" not in said
    assert "Adelie" not in said
    kept = table(frame, columns=GAPS, drop=["species", "island", "note"]).columns
    assert [each["name"] for each in kept] == ["bill", "year", "sex", "tagged", "seen"]


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


MIXED = pd.DataFrame(
    {
        "age": [31, None, 50],
        "sex": ["f", None, "m"],
        "size": [1, "?", 3],
        "born": DAYS,
        "note": [[1], [2], [3]],
        "weeks": [1.5, 2, 3],
        7: [1, 2, 3],
    }
)


def test_all_that_is_to_be_said_is_told_at_once_in_what_to_write() -> None:
    """Names, types, gaps, categories and what was declared in a way that no schema has."""
    frame = MIXED.set_index(pd.Index(["a", "b", "c"], name="who"))
    frame = pd.concat([frame, MIXED[[7]].set_axis(frame.index)], axis=1)
    with pytest.raises(SchemaMismatch) as asked:
        table(frame, columns={"weeks": {"type": "integer"}, "oops": {}})
    lines = [line.strip() for line in str(asked.value).splitlines()[1:]]
    assert lines[:3] == [
        "the index who holds data: frame.reset_index() makes columns of it, frame.reset_index(drop=True) "
        "leaves it out",
        "'7': 2 columns have this name",
        "the frame has no column 'oops'",
    ]
    said = dict.fromkeys(line.split(":")[0] for line in lines[3:])
    assert list(said) == ["age", "sex", "size", "born", "note", "weeks"]
    text = str(asked.value)
    for words in (
        "age: 1 missing: say which public value stands for a gap, as columns={'age': {'missing': 'filled', ",
        "sex: text: list what there may be, as columns={'sex': {'categories': ",
        "sex: 1 missing: say what a gap is, as columns={'sex': {'missing': 'category'}}, or columns={'sex': ",
        "size: values of int and str: say what they are, as columns={'size': {'type': 'number'}}",
        "born: values of date: say what they are, as columns={'born': {'type': 'date'}}",
        "note: values of list: make numbers, texts or dates of them, or drop it",
        "weeks: not whole in 1 row (the first is row 0, counted from 0): say {'type': 'number'}",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((0, 110), "write columns={'x': {'low': 0, 'high': 110}}"),
        ("date", "write columns={'x': {'type': 'date'}}"),
        ({"min": 0}, "write 'low' in place of 'min'"),
        ({"unit": "cm"}, "there is no 'unit': a column has type, low, high"),
        ({"type": "float"}, "type is one of number, integer, category, boolean, date, and not 'float'"),
        ({"missing": "drop"}, "missing is one of refused, category, filled, and not 'drop'"),
        ({"categories": "a, b"}, "categories is a list of all that there may be"),
        ({"fill": 3}, "a fill and {'missing': 'filled'} go together"),
        (7, "write what is known of it by parts, as columns={'x': {'low': 0, 'high': 110}}"),
    ],
    ids=str,
)
def test_what_no_schema_has_is_told_as_what_to_write(said: Any, words: str) -> None:
    with pytest.raises(SchemaMismatch) as told:
        table(pd.DataFrame({"x": [1.0, 2.0]}), columns={"x": said})
    assert f"x: {words}" in str(told.value)
    with pytest.raises(SchemaMismatch, match="columns says by names what dtypes do not tell"):
        table(pd.DataFrame({"x": [1.0, 2.0]}), columns=["x"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(SchemaMismatch, match=r"a dict is no frame.*as pandas.DataFrame\(rows\)"):
        table({"x": [1.0, 2.0]})


def test_a_single_row_and_other_rows_that_are_none_are_told_what_to_pass() -> None:
    schema = {"kind": "table", "columns": [{"name": "a", "type": "number"}, {"name": "b", "type": "number"}]}
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]})
    assert design(frame, ["a", "b"], schema).shape == (1, 2)
    for rows in ([1.0, 2.0], frame.iloc[0], {"a": 1, "b": 2}, [["x", "y"]], [[1.0]]):
        with pytest.raises(
            SchemaMismatch, match=r"as frame.iloc\[\[0\]\]; or an array \(n, d\) of the features a, b"
        ):
            design(rows, ["a", "b"], schema)


def test_whole_numbers_are_names_too() -> None:
    frame = pd.DataFrame(np.eye(3))
    made = table(frame, columns={0: {"low": 0, "high": 1}}, drop=[2], unit={"column": 1, "rows": 2})
    assert made.schema == {
        "kind": "table",
        "columns": [{"name": "0", "type": "number", "low": 0, "high": 1}],
        "unit": {"column": "1", "rows": 2},
    }
    np.testing.assert_array_equal(design(frame, ["0"], made.schema)[:, 0], [1, 0, 0])


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
    with pytest.raises(SchemaMismatch, match=r"no column 'sexx'\n.*no column 'islnd'"):
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
    schema = table(FRAME.dropna(), columns={"species": SPECIES["species"]}).schema
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
    assert "not shown: 29 more rows: .to_frame() has all" in repr(table(wide))
    assert table(wide)._repr_html_().count("<tr>") == 14
    assert [*table(wide).to_frame("polars")["column"]] == [*wide]


DATES = {
    None: ["2007-11-11", "2008-01-31", "2009-05-05 12:00"],
    "dd.mm.yyyy": ["11.11.2007", "31.1.2008", "05.05.2009 12:00"],
    "mm/dd/yyyy": ["11/11/2007", "1/31/2008", "5/5/2009"],
    "dd/mm/yyyy": ["11/11/2007", "31/1/2008", "5/5/2009"],
}


@pytest.mark.parametrize("form", DATES, ids=str)
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_dates_as_people_write_them_are_read_where_values_are_public(make: Any, form: str | None) -> None:
    frame = make({"seen": DATES[form]})
    made = table(frame, values_are_public=True)
    ends = {"low": "2007-01-01", "high": "2009-12-31"}
    assert made.columns == [{"name": "seen", "type": "date"} | ({"format": form} if form else {}) | ends]
    assert f"2007-01-01 to 2009-12-31; days alone{f', written {form}' if form else ''}" in repr(made)
    assert design(frame, ["seen"], made.schema).ravel().tolist() == [13828, 13909, 14369]
    with pytest.raises(SchemaMismatch, match=r"seen: text: list what there may be.*'format': 'dd.mm.yyyy'"):
        table(frame)
    declared = {"seen": {"format": form} if form else {"type": "date"}}
    assert table(frame, columns=declared).columns[0]["type"] == "date"


def test_whether_day_or_month_is_first_is_never_guessed() -> None:
    with pytest.raises(SchemaMismatch, match="seen: text: list what there may be"):
        table(pd.DataFrame({"seen": ["1/2/2007", "3/4/2008"]}), values_are_public=True)
    with pytest.raises(
        SchemaMismatch, match=r"format is one of dd\.mm\.yyyy, mm/dd/yyyy, dd/mm/yyyy, and not"
    ):
        table(pd.DataFrame({"seen": ["1/2/2007"]}), columns={"seen": {"format": "%d/%m/%Y"}})


def test_numbers_that_are_written_have_bounds_too_and_texts_that_are_none_have_not() -> None:
    frame = pl.DataFrame({"size": ["1.5", "2.5"], "place": ["Torgersen", "Dream"]})
    known = {"size": {"type": "number"}, "place": {"type": "number"}}
    size, place = table(frame, columns=known, values_are_public=True).columns
    assert (size["low"], size["high"]) == (1.5, 2.5)
    assert place == {"name": "place", "type": "number"}, "the service counts what is no number"


def test_ten_thousand_columns_are_told_at_once() -> None:
    wide = pd.DataFrame(np.zeros((2, 10_000)), columns=[f"c{place}" for place in range(10_000)])
    with pytest.raises(SchemaMismatch, match="10,000 columns are more than the 2,000 of a table: drop some"):
        table(wide)
    assert len(table(wide, drop=[*wide.columns[1:]]).columns) == 1


def test_a_fill_beyond_bounds_is_told_before_anything_is_sent() -> None:
    frame = pd.DataFrame({"age": [30.0, None], "seen": DAYS[:2]}).astype({"seen": "datetime64[ns]"})
    known: dict[str, Any] = {
        "age": {"low": 0, "high": 110, "missing": "filled", "fill": -1},
        "seen": {"low": "2007-01-01", "missing": "filled", "fill": "2006-12-31"},
    }
    with pytest.raises(SchemaMismatch) as told:
        table(frame, columns=known)
    assert str(told.value).splitlines()[1:] == [
        "  age: its fill must be from low to high",
        "  seen: its fill must be from low to high",
    ]


def test_a_file_that_was_read_as_one_column_is_told_how_to_read_it() -> None:
    with pytest.raises(SchemaMismatch, match=r"its only column has ';' in its name.*sep=';'"):
        table(pd.read_csv(io.StringIO("age;sex\n30;f\n")))


@pytest.mark.parametrize("missing", [(), ("pandas",), ("pandas", "polars")], ids=lambda it: f"without {it}")
def test_a_path_is_read_as_a_frame_by_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    """German letters, semicolons, decimal commas, gaps: read alike by all three libraries."""
    monkeypatch.setattr(frames, "find_spec", lambda name: None if name in missing else name)
    (tmp_path / "a.csv").write_bytes("Größe;n;Ort\n1,5;1;Köln\n2,25;NA;Süd\n".encode("cp1252"))
    known: dict[str, Any] = {"n": {"missing": "filled", "fill": 0}, "Ort": {"categories": ["Köln", "Süd"]}}
    made = table(read_file(tmp_path / "a.csv", known, None), columns=known)
    assert [each["name"] for each in made.columns] == ["Größe", "n", "Ort"]
    assert [row["Größe"] for row in made.rows()] == [1.5, 2.25]
    assert [row["n"] for row in made.rows()] == [1, None]
    pl.DataFrame({"x": [1.0, 2.0]}).write_parquet(tmp_path / "a.parquet")
    assert table(read_file(tmp_path / "a.parquet", None, None)).rows() == [{"x": 1.0}, {"x": 2.0}]
    (tmp_path / "empty.csv").write_text("\n")
    with pytest.raises(SchemaMismatch, match=r"empty\.csv has no lines"):
        read_file(tmp_path / "empty.csv", None, None)


def test_the_frame_is_not_changed() -> None:
    before = FRAME.copy()
    table(FRAME, columns=SPECIES, values_are_public=True).csv()
    pd.testing.assert_frame_equal(FRAME, before)
    assert isinstance(table(FRAME, columns=SPECIES).frame, nw.DataFrame)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_gap_in_a_frame_of_one_column_is_no_empty_line(library: str) -> None:
    """Readers of csv files pass over an empty line, so that a record would be lost."""
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library]
    sent = table(frame({"x": [1.5, None, 3.0]}), columns={"x": {"missing": "filled", "fill": 0}}).csv()
    assert sent == 'x\n1.5\n""\n3.0\n'
    texts = frame({"x": ["a", None, 'b "c"']})
    listed = {"x": {"categories": ["a", 'b "c"'], "missing": "category"}}
    assert table(texts, columns=listed).csv() == 'x\na\n""\n"b ""c"""\n'


def test_decimals_are_numbers_and_no_gaps() -> None:
    frame = pl.DataFrame({"x": [Decimal("1.5"), None], "y": [1, 2]})
    made = table(frame, columns={"x": {"missing": "filled", "fill": 0}})
    assert made.rows() == [{"x": 1.5, "y": 1}, {"x": None, "y": 2}]
    assert made.csv() == "x,y\n1.5,1\n,2\n"

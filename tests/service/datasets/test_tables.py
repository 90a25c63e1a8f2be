"""Tables in the files that people have: dialects, types, gaps, and what is wrong, column by column."""

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from privest_service.datasets.schemas import SCHEMA
from testing import penguin_files
from testing.uploads import refused, rows_as, table_as, taken

NAME, PRICE, DAY = (
    {"name": "Straße", "type": "category", "categories": ["Köln", "Bonn"]},
    {"name": "price", "type": "number", "low": 0, "high": 5000},
    {"name": "day", "type": "date", "low": "2024-01-01", "high": "2024-12-31"},
)
SHOP: dict[str, Any] = {"kind": "table", "columns": [NAME, PRICE, DAY]}
GERMAN = 'Straße;note;price;day\nKöln;x;1,5;2024-02-29\nBonn;"a;b";1,234;2024-03-01\n'
STORED = [[0, 1.5, 19782], [1, 1.234, 19783]]


def one(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": "table", "columns": [{"name": "x", "type": kind, **more}]}


def column(*values: str) -> bytes:
    """A csv file of the column x, beside another that nobody declared."""
    return "\n".join(["x|y", *(f"{value}|0" for value in values), ""]).encode()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"])
@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_csv_is_read_in_the_dialects_that_people_have(tmp_path: Path, encoding: str, delimiter: str) -> None:
    text = GERMAN.replace(";", delimiter).replace("\n", "\r\n")
    _, rows = taken(tmp_path, text.encode(encoding), "csv", SHOP)
    np.testing.assert_array_equal(rows, STORED)


def test_quoted_commas_and_lines_within_cells_that_nobody_asked_for_do_no_harm(tmp_path: Path) -> None:
    text = 'note,x,y\n"two\nlines, and ""quotes""",1,0\n\n,-2.5e1,0\n'
    _, rows = taken(tmp_path, text.encode(), "csv", one("number"))
    np.testing.assert_array_equal(rows, [[1], [-25]])


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "json"])
def test_penguins_are_the_same_rows_in_every_format(tmp_path: Path, form: Any) -> None:
    digest, rows = taken(tmp_path, penguin_files.CSV, "csv", penguin_files.SCHEMA)
    assert (rows.shape, int(np.isnan(rows).sum())) == ((344, 8), 19)
    records = [line.split(",") for line in penguin_files.CSV.decode().splitlines()]
    numbers = {"bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "year"}
    columns = {
        name: [None if v == "NA" else float(v) if name in numbers else v for v in values]
        for name, *values in zip(*records, strict=True)
    }
    again, _ = taken(tmp_path, table_as(pa.table(columns), form), form, penguin_files.SCHEMA)
    assert again == digest


def test_parquet_keeps_its_own_types(tmp_path: Path) -> None:
    day = datetime.date(2024, 2, 29)
    frame = pa.table(
        {
            "Straße": pa.array(["Bonn", "Köln"]).dictionary_encode(),
            "price": pa.array([Decimal("1.50"), Decimal("2.25")]),
            "day": pa.array([day, day]),
            "at": pa.array([datetime.datetime(2024, 2, 29, 23, 59), None], pa.timestamp("ns")),
            "new": pa.array([True, None]),
            "size": pa.array([1, 2], pa.int8()),
        }
    )
    more = [
        {"name": "at", "type": "date", "missing": "filled", "fill": "1970-01-02"},
        {"name": "new", "type": "boolean", "missing": "category"},
        {"name": "size", "type": "integer"},
    ]
    schema = SHOP | {"columns": [*SHOP["columns"], *more]}
    for form in ("parquet", "arrow"):
        _, rows = taken(tmp_path, table_as(frame, form), form, schema)
        np.testing.assert_array_equal(
            rows, [[1, 1.5, 19782, 19782, 1, 1], [0, 2.25, 19782, np.nan, np.nan, 2]]
        )


GAP = 'missing; choose what a gap is: "missing": "filled", with a public "fill"'
GAP_OF_TEXTS = 'missing; choose what a gap is: "missing": "category", or "filled" with a public "fill"'
SIGNS = "thousands separators or signs"
SLIP = "of a column of numbers; write a number there, or nothing for a gap"


def test_what_is_wrong_is_told_of_all_columns_at_once_by_counts_and_lines(tmp_path: Path) -> None:
    names = penguin_files.CSV.decode().partition("\n")[0].split(",")
    types = dict.fromkeys(names, "number") | {"species": "boolean", "year": "date"}
    schema = {"kind": "table", "columns": [{"name": n, "type": types[n]} for n in names]}
    assert refused(tmp_path, penguin_files.CSV, "csv", schema) == [
        (0, "species", "neither true nor false in 344 rows; declare categories (first in line 2)"),
        (0, "island", "text in 344 rows; declare categories (first in line 2)"),
        (3, "bill_length_mm", f"2 {GAP} (first in line 5)"),
        (3, "bill_depth_mm", f"2 {GAP} (first in line 5)"),
        (3, "flipper_length_mm", f"2 {GAP} (first in line 5)"),
        (3, "body_mass_g", f"2 {GAP} (first in line 5)"),
        (3, "sex", f"11 {GAP} (first in line 5)"),
        (0, "sex", "text in 333 rows; declare categories (first in line 2)"),
        (0, "year", "not ISO in 344 rows; 2007-11-11 is (first in line 2)"),
    ]


@pytest.mark.parametrize(
    ("schema", "values", "rule"),
    [
        (one("number"), ["1", "2", "many"], f"text in 1 row {SLIP} (first in line 4)"),
        (one("number"), ["1", "inf"], "not finite in 1 row (first in line 3)"),
        (one("number"), ["1", "1e999"], "not finite in 1 row (first in line 3)"),
        (one("number"), ["1,234", "2,500"],
         "a comma in 2 rows that may be of thousands or of decimals; say which: "
         '"number_format": "1,234.5" or "1234,5" (first in line 2)'),
        (one("number"), ["1", "1.234,5"],
         f'{SIGNS} in 1 row; "number_format": "1.234,5" fits 1 of them (first in line 3)'),
        (one("number"), ["1", "1'234"],
         f"""{SIGNS} in 1 row; "number_format": "1'234.5" fits 1 of them (first in line 3)"""),
        (one("number"), ["12%", "3.5 %"],
         f'{SIGNS} in 2 rows; "number_format": "1234.5%" fits 2 of them (first in line 2)'),
        (one("number", number_format="1,234.5"), ["1,234", "-€5.25"],
         'not written as 1,234.5 in 1 row; "number_format": "€1234.5" fits 1 of them (first in line 3)'),
        (one("number", number_format="1,234.5"), ["1,234", "12,34"],
         'not written as 1,234.5 in 1 row; "number_format": "1.234,5" fits 1 of them (first in line 3)'),
        (one("number", number_format="1,234.5"), ["1,234", "many"],
         "not written as 1,234.5 in 1 row; write 1,234.5, or nothing for a gap (first in line 3)"),
        (one("number"), ["1.5", "2,5"],
         "a decimal point in 1 row of a file with decimal commas; write either (first in line 2)"),
        (one("integer"), ["1", "2.0", "2.5"], "not whole in 1 row; declare a number (first in line 4)"),
        (one("integer"), ["1", "1_000"], f"text in 1 row {SLIP} (first in line 3)"),
        (one("date"), ["2007-02-28", "2007-02-31"], "not ISO in 1 row; 2007-11-11 is (first in line 3)"),
        (one("date"), ["2007-02-28", "11/11/07"], "not ISO in 1 row; 2007-11-11 is (first in line 3)"),
        (one("category", categories=["a", "b"]), ["a", "B", "b"],
         "none of the categories in 1 row; declare them all (first in line 3)"),
        (one("category", categories=["a", "b"]), ["a", " NA "],
         f"1 {GAP_OF_TEXTS} (first in line 3)"),
        (one("boolean"), ["true", "perhaps"],
         "neither true nor false in 1 row; write true or false (first in line 3)"),
    ],
)  # fmt: skip
def test_a_column_that_is_wrong_is_told_in_plain_words(
    tmp_path: Path, schema: Any, values: list[str], rule: str
) -> None:
    found = refused(tmp_path, column(*values), "csv", schema)
    assert [(field, told) for _, field, told in found] == [("x", rule)]


@pytest.mark.parametrize(
    ("form", "days"),
    [
        ("dd.mm.yyyy", ["13.1.2008", "01.02.1969 23:59", "2008-01-13"]),
        ("mm/dd/yyyy", ["1/13/2008", "02/01/1969 23:59", "2008-01-13T10:00"]),
        ("dd/mm/yyyy", ["13/1/2008", "01/02/1969", "2008-01-13"]),
    ],
)
def test_dates_are_read_in_the_form_that_is_declared_and_in_iso(
    tmp_path: Path, form: str, days: list[str]
) -> None:
    """The day alone is stored, whatever time follows it, so that the form is no fact of the records."""
    for kind, content in (("csv", column(*days)), ("json", json.dumps([{"x": each} for each in days]))):
        folder = tmp_path / kind
        folder.mkdir()
        raw = content if isinstance(content, bytes) else content.encode()
        _, rows = taken(folder, raw, kind, one("date", format=form))
        np.testing.assert_array_equal(rows[:, 0], [13891, -334, 13891])


def test_a_schema_of_before_is_read_whatever_it_fills_with_and_keeps_its_digest() -> None:
    """A fill beyond bounds was taken once; and what says no form of dates is written as it was."""
    old = one("number", low=0, high=5, missing="filled", fill=7)
    schema = SCHEMA.validate_json(json.dumps(old))
    assert schema.shape(3).record == (1,)
    assert "format" not in schema.model_dump(mode="json")["columns"][0]


def test_of_mixed_types_each_is_counted(tmp_path: Path) -> None:
    rows = [{"x": 1}, {"x": "two"}, {"x": None}, {"x": [3]}, {"x": True}, {"x": "4"}]
    found = refused(tmp_path, json.dumps(rows).encode(), "json", one("number"))
    assert found == [
        (2, "x", f"1 {GAP}"),
        (1, "x", "text in 3 rows; declare categories"),
    ]


def test_gaps_are_nan_where_the_schema_lets_them_be_and_a_category_may_be_called_na(tmp_path: Path) -> None:
    texts = ("NA", "n/a", "NaN", "null", "", "2")
    _, rows = taken(tmp_path, column(*texts), "csv", one("number", missing="filled", fill=0))
    np.testing.assert_array_equal(rows[:, 0], [np.nan] * 5 + [2])
    _, rows = taken(
        tmp_path, column(*texts), "csv", one("category", categories=["NA", "2"], missing="category")
    )
    np.testing.assert_array_equal(rows[:, 0], [0] + [np.nan] * 4 + [1])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a,b\n1,2\n3,4\n", [(None, "x", "is not in the file")]),
        ("x,x\n1,2\n3,4\n", [(None, "x", "is in the file more than once")]),
        ("x,y\n", [(None, None, "must have at least 2 records")]),
        ("x,y\n1,2\n3\n", [(None, None, "has 1 cells in line 3, and 2 columns in its header")]),
        (
            'x,note\n1,a\n2,"open\n3,b\n4,c\n',
            [(None, None, "has a quote in line 3 that is never closed, so that all after it is one cell")],
        ),
        (
            f'x,note\n1,a\n2,"{"n" * 2**22}"\n3,b\n',
            [
                (
                    None,
                    None,
                    "has a quote in line 3 that is never closed, or a cell of more than 2097152 letters",
                )
            ],
        ),
        ("x\ty\tz\n1\t2\t3\n\t\n", [(None, None, "has 2 cells in line 3, and 3 columns in its header")]),
    ],
)
def test_files_that_are_no_such_table_are_refused(tmp_path: Path, text: str, found: list[Any]) -> None:
    assert refused(tmp_path, text.encode(), "csv", one("number")) == found


def test_lines_are_counted_as_a_spreadsheet_does(tmp_path: Path) -> None:
    """Blank ones too, wherever they are: at the top, in blocks that are read ahead, of spaces alone."""
    text = '\n\nx,note\n1,"two\nlines"\n\n  \r\n2,\nmany,\n\n'
    assert refused(tmp_path, text.encode(), "csv", one("number")) == [
        (2, "x", f"text in 1 row {SLIP} (first in line 8)")
    ]
    assert refused(tmp_path, b"x,y\n\n1,2\n  \n\n3\n", "csv", one("number")) == [
        (None, None, "has 1 cells in line 6, and 2 columns in its header")
    ]
    rng = np.random.default_rng(3)
    lines = ["x,note", *("" if blank else f"1,{'n' * 80}" for blank in rng.random(60_000) < 0.3)]
    for bad in (41_000, 59_000):
        wrong = "\n".join([*lines[:bad], "?,", *lines[bad:], ""])
        ((record, _, rule),) = refused(tmp_path, wrong.encode(), "csv", one("number"))
        assert rule == f"text in 1 row {SLIP} (first in line {bad + 1})"
        assert record == sum(map(bool, lines[1:bad]))


def test_a_quote_within_a_cell_is_a_letter_like_any_other(tmp_path: Path) -> None:
    _, rows = taken(tmp_path, b'x,note\n1,5" pipe\n2,"say ""so"\n3,c\n', "csv", one("number"))
    np.testing.assert_array_equal(rows[:, 0], [1, 2, 3])


def test_a_long_cell_is_no_open_quote(tmp_path: Path) -> None:
    """It has more letters than Python's own reader takes, in a file with an odd number of quotes."""
    long = "n" * 2**18
    _, rows = taken(tmp_path, f'x,note\n1,{long}\n2,5" pipe\n'.encode(), "csv", one("number"))
    np.testing.assert_array_equal(rows[:, 0], [1, 2])
    assert refused(tmp_path, f'x,note\n1,{long}\n\n?,5" pipe\n3,c\n'.encode(), "csv", one("number")) == [
        (1, "x", f"text in 1 row {SLIP} (first in line 4)")
    ]


def test_names_and_cells_are_told_in_one_answer(tmp_path: Path) -> None:
    """Each format whose columns have names does that, with a unit that is not there either."""
    columns = [
        PRICE,
        {"name": "twice", "type": "number"},
        {"name": "gone", "type": "date"},
        {"name": "kind", "type": "boolean"},
    ]
    schema = {"kind": "table", "columns": columns, "unit": {"column": "who", "rows": 2}}
    text = "price,twice,twice,kind\n1,1,1,true\n,1,1,false\nmuch,1,1,\n2,1,1,true\n"
    absent = [
        (None, "gone", "is not in the file"),
        (None, "who", "must be in the file once, as it is the unit"),
    ]
    twice = (None, "twice", "is in the file more than once")
    assert refused(tmp_path, text.encode(), "csv", schema) == [
        (1, "price", f"1 {GAP} (first in line 3)"),
        (2, "price", f"text in 1 row {SLIP} (first in line 4)"),
        twice,
        absent[0],
        (2, "kind", f"1 {GAP_OF_TEXTS} (first in line 4)"),
        absent[1],
    ]
    frame = pa.table([[1.0, None], [1, 1], [1, 1], [True, None]], ["price", "twice", "twice", "kind"])
    for form in ("parquet", "arrow"):
        told = [(1, "price", f"1 {GAP}"), twice, absent[0], (1, "kind", f"1 {GAP_OF_TEXTS}"), absent[1]]
        assert refused(tmp_path, table_as(frame, form), form, schema) == told
    rows = json.dumps([{"price": 1, "twice": 1, "kind": True}, {"price": None, "twice": 1, "kind": None}])
    told = [(1, "price", f"1 {GAP}"), absent[0], (1, "kind", f"1 {GAP_OF_TEXTS}"), absent[1]]
    assert refused(tmp_path, rows.encode(), "json", schema) == told


def test_in_a_file_of_one_column_blank_lines_are_left_out(tmp_path: Path) -> None:
    _, rows = taken(tmp_path, b"x\n1\n\n2\n", "csv", one("number"))
    np.testing.assert_array_equal(rows, [[1], [2]])
    assert refused(tmp_path, b"x\n1\n\ny\n", "csv", one("number")) == [
        (1, "x", f"text in 1 row {SLIP} (first in line 4)")
    ]


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_an_array_serves_a_table_of_numbers_in_the_order_of_its_columns(tmp_path: Path, form: Any) -> None:
    columns = [
        PRICE | {"missing": "filled", "fill": 0},
        {"name": "count", "type": "integer"},
        {"name": "new", "type": "boolean"},
    ]
    schema = {"kind": "table", "columns": columns}
    rows = np.array([[1.5, 3, 1], [np.nan, -2, 0], [2, 0, 1]])
    _, stored = taken(tmp_path, rows_as(rows, form), form, schema)
    np.testing.assert_array_equal(stored, rows)
    table = "price,count,new\n1.5,3,true\n,-2,false\n2,0,true\n"
    assert taken(tmp_path, table.encode(), "csv", schema)[0] == taken(
        tmp_path, rows_as(rows, form), form, schema
    )[0]  # fmt: skip
    wrong = np.array([[1, 2.5, 1], [np.inf, np.nan, 2]])
    assert refused(tmp_path, rows_as(wrong, form), form, schema) == [
        (1, "price", "not finite in 1 row"),
        (1, "count", f"1 {GAP}"),
        (0, "count", "not whole in 1 row; declare a number"),
        (1, "new", "neither true nor false in 1 row; write true or false"),
    ]
    assert refused(tmp_path, rows_as(rows[:, :2], form), form, schema)[0][2] == "must have the shape (n, 3)"
    for other in (NAME, DAY):
        found = refused(
            tmp_path, rows_as(rows[:, :2], form), form, {"kind": "table", "columns": [PRICE, other]}
        )
        assert found[0][2].startswith(
            "must be csv, parquet, arrow or json, as the table has dates or categories"
        )


def test_a_declared_column_is_found_among_ten_thousand(tmp_path: Path) -> None:
    names = [f"c{at}" for at in range(9999)]
    line = ",".join(["0"] * 9999)
    text = "\n".join([",".join([*names, "x"]), *(f"{line},{value}" for value in (1, 2)), ""])
    _, rows = taken(tmp_path, text.encode(), "csv", one("number"))
    np.testing.assert_array_equal(rows, [[1], [2]])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([PRICE, PRICE], "different names; given twice: price"),
        ([PRICE | {"low": 5000}], "low must be below high"),
        ([PRICE | {"name": "a\nb"}], "match"),
        ([PRICE | {"missing": "category"}], "must be refused or filled"),
        ([PRICE | {"missing": "filled"}], "fill must be given"),
        ([PRICE | {"fill": 3}], "fill must be given"),
        ([PRICE | {"missing": "filled", "fill": "much"}], "fill must be a number"),
        ([PRICE | {"low": "2024-01-01"}], "low must be a number"),
        ([DAY | {"low": "2024-02-30"}], "low must be a date such as 2007-11-11"),
        ([DAY | {"low": 3}], "low must be a date"),
        ([NAME | {"categories": ["a"]}], "at least 2"),
        ([NAME | {"categories": ["a", "a"]}], "twice"),
        ([NAME | {"categories": ["a", "missing"], "missing": "category"}], "must not name missing"),
        ([NAME | {"missing": "filled", "fill": "Ulm"}], "one of the categories"),
        ([PRICE | {"categories": ["a", "b"]}], "for no other"),
        ([NAME, PRICE | {"name": "Straße=Köln"}], "these do: Straße=Köln"),
        ([PRICE | {"name": f"c{at}"} for at in range(2001)], "at most 2000"),
        ([], "at least 1"),
    ],
)  # fmt: skip
def test_schemas_that_make_no_sense_are_refused_in_words(columns: list[Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        SCHEMA.validate_json(json.dumps({"kind": "table", "columns": columns}))


def test_a_unit_may_name_whose_rows_they_are(tmp_path: Path) -> None:
    schema = one("number") | {"unit": {"column": "y", "rows": 2}}
    _, rows = taken(tmp_path, b"x;y\n1;a\n2;b\n3;a\n", "csv", schema)
    assert sorted(rows[:, :, 0].tolist()) == [[1, 3], [2, 2]]


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        ("1,234.5", ["1,234.50", "-1,000,000", "+7", ".5", "1e3"]),
        ("1.234,5", ["1.234,50", "-1.000.000", "+7", ",5", "1e3"]),
        ("1 234,5", ["1\u00a0234,50", "-1\u202f000 000", "+7", "0,5", "1000"]),
        ("1'234.5", ["1'234.50", "-1’000’000", "7", "0.5", "1'000"]),
        ("$1,234.5", ["$1,234.50", "-$1,000,000", "$+7", "$ .5", "1000"]),
        ("1.234,5 €", ["1.234,50\u00a0€", "€-1.000.000", "7€", "0,5 €", "1000"]),
        ("1234.5%", ["1234.5%", "-1000000 %", "7%", "0.5%", "1000"]),
        ("CHF 1'234.5", ["CHF 1'234.50", "CHF-1'000'000", "CHF 7", "0.5 CHF", "1000"]),
    ],
)
def test_numbers_are_read_in_the_format_that_is_declared(tmp_path: Path, form: str, texts: list[str]) -> None:
    schema = one("number", number_format=form, missing="filled", fill=0)
    expected = [1234.5, -1_000_000, 7, 0.5, 1000, np.nan]
    _, rows = taken(tmp_path, column(*texts, "NA"), "csv", schema)
    np.testing.assert_array_equal(rows[:, 0], expected)
    typed = json.dumps([{"x": text} for text in texts[:-1]] + [{"x": 1000.0}, {"x": None}]).encode()
    np.testing.assert_array_equal(taken(tmp_path, typed, "json", schema)[1][:, 0], expected)
    for kind in ("parquet", "arrow"):
        frame = table_as(pa.table({"x": pa.array([*texts, None]).dictionary_encode()}), kind)
        np.testing.assert_array_equal(taken(tmp_path, frame, kind, schema)[1][:, 0], expected)
        plain = table_as(pa.table({"x": [1234.5, None]}), kind)
        np.testing.assert_array_equal(taken(tmp_path, plain, kind, schema)[1][:, 0], [1234.5, np.nan])


@pytest.mark.parametrize(
    "form",
    ["1,234,5", "1234", "1234.5e", "E 1234.5", "$1,234.5€", "1.234.5", "many", "{1234.5", "1,234.56", ""],
)
def test_a_number_format_that_is_none_is_refused(form: str) -> None:
    with pytest.raises(ValidationError, match="number_format"):
        SCHEMA.validate_json(json.dumps(one("number", number_format=form)))
    with pytest.raises(ValidationError, match="number_format belongs to numbers"):
        SCHEMA.validate_json(json.dumps(one("boolean", number_format="1234.5%")))
    assert "number_format" not in SCHEMA.validate_json(json.dumps(one("number"))).model_dump(mode="json")


def test_lines_may_end_with_a_delimiter_and_the_header_need_not(tmp_path: Path) -> None:
    for header, end in (("", ","), (",", ""), (",,", ","), ("", ",,,")):
        text = f"age,x,sex{header}\n35,2,f{end}\n\n66,3,m{end}\n"
        np.testing.assert_array_equal(taken(tmp_path, text.encode(), "csv", one("number"))[1], [[2], [3]])
    unnamed = b"age,x,\n35,2,note\n66,3,\n"
    np.testing.assert_array_equal(taken(tmp_path, unnamed, "csv", one("number"))[1], [[2], [3]])
    shifted = b"age,x,sex\n35,2,f,\n66,3,m,extra\n"
    assert refused(tmp_path, shifted, "csv", one("number")) == [
        (None, None, "has 4 cells in line 3, and 3 columns in its header")
    ]


def test_a_row_of_totals_is_refused_with_its_line(tmp_path: Path) -> None:
    """Also where its other cells could be a record's; but not if it is a category, or as the line before."""
    gaps = one("number", missing="filled", fill=0)
    for encoding in ("utf-8", "utf-16"):
        for word in ("Total", "SUMME:", " Grand total "):
            text = f"who,x\nann,1\n\nbob,2\n{word},3\n\n".encode(encoding)
            assert refused(tmp_path, text, "csv", gaps) == [
                (2, None, "ends with a row of totals in line 5: delete it, and upload the rest")
            ]
    assert len(taken(tmp_path, b"who,x\nTotal,1\nTotal,2\n", "csv", gaps)[1]) == 2
    kind = {"name": "who", "type": "category", "categories": ["ann", "Total"]}
    both = {"kind": "table", "columns": [kind, *gaps["columns"]]}
    assert len(taken(tmp_path, b"who,x\nann,1\nTotal,2\n", "csv", both)[1]) == 2


def test_of_a_time_the_day_at_the_place_counts_in_every_format(tmp_path: Path) -> None:
    """A late evening west of Greenwich, and an early morning east of it; also in zones with summer time."""
    texts = ["2020-03-01T23:30:00-05:00", "2020-07-02 23:30-04:00", "2020/3/3 23:59:59 -0500"]
    days = [18322, 18445, 18324]
    _, rows = taken(tmp_path, column(*texts), "csv", one("date"))
    np.testing.assert_array_equal(rows[:, 0], days)
    _, rows = taken(tmp_path, json.dumps([{"x": text} for text in texts]).encode(), "json", one("date"))
    np.testing.assert_array_equal(rows[:, 0], days)
    utc = [
        datetime.datetime(2020, 3, 2, 4, 30), datetime.datetime(2020, 7, 3, 3, 30),
        datetime.datetime(2020, 3, 4, 4, 59, 59), None,
    ]  # fmt: skip
    filled = one("date", missing="filled", fill="1970-01-01")
    for zone in ("America/New_York", "-05:00"):
        for unit in ("s", "ms", "us", "ns"):
            frame = pa.table({"x": pa.array(utc, pa.timestamp(unit)).cast(pa.timestamp(unit, zone))})
            expected = [18322, 18445, 18324, np.nan]
            for form in ("parquet", "arrow"):
                _, rows = taken(tmp_path, table_as(frame, form), form, filled)
                np.testing.assert_array_equal(rows[:, 0], expected)
    east = pa.table({"x": pa.array([datetime.datetime(2020, 1, 1, 20)] * 2, pa.timestamp("us", "+05:30"))})
    np.testing.assert_array_equal(
        taken(tmp_path, table_as(east, "parquet"), "parquet", one("date"))[1][:, 0], [18263] * 2
    )


def test_a_zone_that_nobody_knows_is_refused_and_times_beyond_calendars_are_read(tmp_path: Path) -> None:
    far = np.array([2**62, -(2**62), 0], dtype=np.int64)
    frame = pa.table({"x": pa.array(far, pa.timestamp("s", "America/New_York"))})
    _, rows = taken(tmp_path, table_as(frame, "arrow"), "arrow", one("date"))
    np.testing.assert_array_equal(rows[:, 0], [*(far[:2] // 86_400), -1])
    lost = pa.table({"x": pa.array(far, pa.timestamp("s", "Atlantis/Town"))})
    ((_, _, rule),) = refused(tmp_path, table_as(lost, "arrow"), "arrow", one("date"))
    assert rule == "has times in a zone that is not known here: write them in UTC, or as dates"


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_gap_is_no_category_that_is_named_like_a_number_without_end(tmp_path: Path, form: Any) -> None:
    schema = one("category", categories=["Inf", "nan", "Low"], missing="category")
    texts = ["Inf", "", "Low", "NA", "nan", "Infinity"]
    content = column(*texts) if form == "csv" else json.dumps([{"x": text} for text in texts]).encode()
    assert refused(tmp_path, content, form, schema)[0][0] == 5  # of all of these only the last one is none
    content = (
        column(*texts[:5]) if form == "csv" else json.dumps([{"x": text} for text in texts[:5]]).encode()
    )
    _, rows = taken(tmp_path, content, form, schema)
    np.testing.assert_array_equal(rows[:, 0], [0, np.nan, 2, np.nan, 1])


def test_digits_with_an_underscore_are_another_category_than_those_without(tmp_path: Path) -> None:
    schema = one("category", categories=["10", "20"])
    assert [record for record, _, _ in refused(tmp_path, column("10", "2_0"), "csv", schema)] == [1]


def test_an_empty_line_among_records_of_one_column_is_asked_about(tmp_path: Path) -> None:
    schema = one("number", missing="filled", fill=0)
    assert refused(tmp_path, b"\nx\n1\n\n\n3\n", "csv", schema) == [
        (
            None,
            None,
            "has nothing in line 4, which may be a gap or an empty line: write NA there, or delete it",
        )
    ]
    _, rows = taken(tmp_path, b'\nx\n1\n""\nNA\n3\n\n\n', "csv", schema)
    np.testing.assert_array_equal(rows, [[1], [np.nan], [np.nan], [3]])

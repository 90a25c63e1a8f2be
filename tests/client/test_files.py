"""Files as people have them, through the client and over HTTP: the same rows by both ways."""

import bz2
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from privest.data.tables import Column
from privest_client import Client, DatasetInvalid, SchemaMismatch, table
from privest_client.cells import number_of_text
from privest_client.cells import read as read_cells
from privest_service.datasets.readers.cells import cells
from privest_service.datasets.readers.layout import Layout
from privest_service.datasets.readers.marks import Mark
from privest_service.datasets.readers.numbers import NumberFormat
from testing.server import Caller
from testing.uploads import table_as

SEX = {"name": "sex", "type": "category", "categories": ["f", "m"]}
PLAIN = b"age,sex,at\n35,f,2020-03-01\n66,m,2020-03-02\n29,f,2020-03-03\n"
ROWS = [
    {"age": 35, "sex": "f", "at": "2020-03-01"},
    {"age": 66, "sex": "m", "at": "2020-03-02"},
    {"age": 29, "sex": "f", "at": "2020-03-03"},
]
COLUMNS = [{"name": "age", "type": "integer"}, SEX, {"name": "at", "type": "date"}]


def frame_of(*times: str, zone: str | None = None) -> pd.DataFrame:
    at = (
        pd.to_datetime(list(times))
        if zone is None
        else pd.to_datetime(list(times), utc=True).tz_convert(zone)
    )
    return pd.DataFrame({"age": [35, 66, 29], "sex": ["f", "m", "f"], "at": at})


def packed(frame: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.to_parquet(file)
    return file.getvalue()


EUROS = "age;sex;at\n35,0 €;f;2020-03-01\n€66;m;2020-03-02\n29\u00a0€;f;2020-03-03\n"
PLACE = "America/New_York"
LATE = ["2020-03-01T23:30:00-05:00", "2020-03-02T23:59:00-05:00", "2020-03-03T22:00:00-05:00"]

FILES: dict[str, tuple[str, Callable[[], bytes], list[dict[str, Any]]]] = {
    "as it should be": ("a.csv", lambda: PLAIN, COLUMNS),
    "capitals": ("UP.CSV", lambda: PLAIN, COLUMNS),
    "tabs": ("a.tsv", lambda: PLAIN.replace(b",", b"\t"), COLUMNS),
    "a text file": ("a.txt", lambda: PLAIN.replace(b",", b";"), COLUMNS),
    "gzip": ("a.csv.gz", lambda: gzip.compress(PLAIN), COLUMNS),
    "gzip of tabs": ("A.TSV.GZ", lambda: gzip.compress(PLAIN.replace(b",", b"\t")), COLUMNS),
    "utf-16": ("a.csv", lambda: PLAIN.decode().encode("utf-16"), COLUMNS),
    "big-endian": ("a.csv", lambda: b"\xfe\xff" + PLAIN.decode().encode("utf-16-be"), COLUMNS),
    "trailing commas": ("a.csv", lambda: PLAIN.replace(b"\n", b",\n").replace(b"at,", b"at"), COLUMNS),
    "a header that does": ("a.csv", lambda: PLAIN.replace(b"at\n", b"at,\n"), COLUMNS),
    "many commas": ("a.csv", lambda: PLAIN.replace(b"\n", b",,,\n").replace(b"at,,,", b"at"), COLUMNS),
    "blank lines": ("a.csv", lambda: b"\n\n" + PLAIN.replace(b"\n", b"\n\n"), COLUMNS),
    "dates with slashes": ("a.csv", lambda: PLAIN.replace(b"-0", b"/0"), COLUMNS),
    "times with offsets": (
        "a.csv",
        lambda: pd.DataFrame(ROWS).assign(at=LATE).to_csv(index=False).encode(),
        COLUMNS,
    ),
    "times in a zone, Parquet": ("a.parquet", lambda: packed(frame_of(*LATE, zone=PLACE)), COLUMNS),
    "times with an offset, Parquet": ("a.PARQUET", lambda: packed(frame_of(*LATE)), COLUMNS),
    "times in a zone, Arrow": (
        "a.arrow",
        lambda: table_as(pa.Table.from_pandas(frame_of(*LATE, zone=PLACE)), "arrow"),
        COLUMNS,
    ),
    "times with an offset, JSON": (
        "a.json",
        lambda: json.dumps([row | {"at": at} for row, at in zip(ROWS, LATE, strict=True)]).encode(),
        COLUMNS,
    ),
    "thousands": (
        "a.csv",
        lambda: PLAIN.replace(b",", b";").replace(b"35", b"0,035.0"),
        [{"name": "age", "type": "integer", "number_format": "1,234.5"}, *COLUMNS[1:]],
    ),
    "percent": (
        "a.csv",
        lambda: PLAIN.replace(b",f", b"%,f").replace(b",m", b" %,m"),
        [{"name": "age", "type": "integer", "number_format": "1234.5%"}, *COLUMNS[1:]],
    ),
    "currency": (
        "a.csv",
        lambda: EUROS.encode("utf-16"),
        [{"name": "age", "type": "integer", "number_format": "1.234,5 €"}, *COLUMNS[1:]],
    ),
}  # fmt: skip


def said(columns: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said to the client of columns, as their schema has it."""
    return {each["name"]: {part: value for part, value in each.items() if part != "name"} for each in columns}


@pytest.fixture
def canonical(owner: Caller) -> str:
    """The fingerprint of the rows that each file holds."""
    made = owner.upload(json.dumps(ROWS).encode(), {"kind": "table", "columns": COLUMNS}, "rows.json")
    assert made.status_code == 201, made.text
    return made.json()["fingerprint"]


@pytest.mark.few(7)
@pytest.mark.filterwarnings("ignore:you have these rows already")
@pytest.mark.parametrize("name", FILES)
def test_a_file_holds_the_same_rows_by_both_ways(
    client: Client, owner: Caller, canonical: str, tmp_path: Path, name: str
) -> None:
    ending, content, columns = FILES[name]
    (tmp_path / ending).write_bytes(content())
    over_http = owner.upload(content(), {"kind": "table", "columns": columns}, ending)
    assert over_http.status_code == 201, over_http.text
    assert over_http.json()["fingerprint"] == canonical
    declared = client.upload(tmp_path / ending, {"kind": "table", "columns": columns})
    assert declared.fingerprint == canonical
    if ending.endswith((".json", ".arrow")):
        return
    made = client.upload(str(tmp_path / ending), columns=said(columns), confirm=True)
    assert made.fingerprint == canonical
    made = client.upload(tmp_path / ending, columns=said(columns[1:]), drop=["age"], confirm=True)
    assert (made.n, [each.name for each in made.schema_.columns]) == (3, ["sex", "at"])  # pyright: ignore


@pytest.mark.filterwarnings("ignore:you have these rows already")
@pytest.mark.parametrize("zone", ["America/New_York", None])
@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_of_a_frame_the_day_at_the_place_counts_as_well(
    client: Client, canonical: str, kind: str, zone: str | None
) -> None:
    frame: Any = frame_of(*LATE, zone=zone)
    frame = {
        "pandas": lambda: frame,
        "pyarrow": lambda: pa.Table.from_pandas(frame),
        "polars": lambda: pl.from_pandas(frame),
    }[kind]()
    assert client.upload(frame, columns=said([SEX]), confirm=True).fingerprint == canonical


@pytest.mark.filterwarnings("ignore:you have these rows already")
def test_categories_that_look_like_gaps_are_categories_where_they_are_declared(
    client: Client, owner: Caller, tmp_path: Path
) -> None:
    """They are so by both ways, from a file and from frames; in other columns the same words are gaps."""
    words = ["NA", "None", "yes", "null"]
    content = "answer,age\n" + "".join(f"{word},{20 + at}\n" for at, word in enumerate(words)) + "yes,NA\n"
    (tmp_path / "a.csv").write_text(content)
    answer = {"name": "answer", "type": "category", "categories": words}
    columns = [answer, {"name": "age", "type": "number", "missing": "filled", "fill": 0}]
    sent = owner.upload(content.encode(), {"kind": "table", "columns": columns}, "a.csv").json()
    rows = [{"answer": w, "age": 20 + at} for at, w in enumerate(words)] + [{"answer": "yes", "age": None}]
    right = owner.upload(json.dumps(rows).encode(), {"kind": "table", "columns": columns}, "a.json").json()
    assert sent["fingerprint"] == right["fingerprint"]
    made = client.upload(tmp_path / "a.csv", columns=said(columns), confirm=True)
    framed = client.upload(pd.DataFrame(rows), columns=said(columns), confirm=True)
    assert made.fingerprint == framed.fingerprint == right["fingerprint"]
    with pytest.raises(SchemaMismatch, match="age: 1 missing"):
        client.upload(tmp_path / "a.csv", columns=said([answer]), confirm=True)


BAD = {
    "thousands": (b"age;x\n1,200;1\n3,450.5;2\n", "number_format", "1,234.5"),
    "percent": (b"age;x\n12%;1\n3 %;2\n", "number_format", "1234.5%"),
    "currency": ("age;x\n1.200,50 €;1\n3,5 €;2\n".encode(), "number_format", "1.234,5€"),
    "a comma that may be of either": (b"age;x\n1,200;1\n3,450;2\n", "number_format", "1,234.5"),
    "totals": (b"x,age\n1,2\n2,3\n\nTotal,5\n", "totals", "5"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_told_with_the_option_or_the_line_by_both_ways(
    client: Client, owner: Caller, tmp_path: Path, name: str
) -> None:
    content, *words = BAD[name]
    (tmp_path / "a.csv").write_bytes(content)
    schema = {"kind": "table", "columns": [{"name": "age", "type": "number", "missing": "filled", "fill": 0}]}
    told = owner.upload(content, schema, "a.csv")
    assert told.status_code == 422
    assert all(word in told.text.replace("\\", "") for word in words), told.text
    with pytest.raises(DatasetInvalid) as refused:
        client.upload(tmp_path / "a.csv", schema)
    assert all(word in str(refused.value) for word in words)
    with pytest.raises(SchemaMismatch) as asked:
        client.upload(tmp_path / "a.csv", confirm=True)
    assert all(word in str(asked.value) for word in words)
    assert client.datasets.list() == []


def test_people_without_an_id_are_refused_by_both_ways(client: Client, owner: Caller, tmp_path: Path) -> None:
    content = b"who,x\n007,1\n7,2\nNA,3\n007,4\nNone,5\n"
    (tmp_path / "a.csv").write_bytes(content)
    unit, columns = {"column": "who", "rows": 2}, [{"name": "x", "type": "number"}]
    told = owner.upload(content, {"kind": "table", "columns": columns, "unit": unit}, "a.csv")
    assert [each["rule"][-8:] for each in told.json()["faults"]] == ["(line 4)", "(line 6)"]
    with pytest.raises(SchemaMismatch, match="who: missing in 2 rows"):
        client.upload(tmp_path / "a.csv", unit=unit, confirm=True)
    with pytest.raises(SchemaMismatch, match="who: missing in 1 row"):
        client.upload(pd.DataFrame({"who": ["a", None, "b"], "x": [1.0, 2, 3]}), unit=unit, confirm=True)
    (tmp_path / "b.csv").write_bytes(b"who,x,y\n007,1,1\n7,2,1\n007,4,1\n")
    assert client.upload(tmp_path / "b.csv", unit=unit, confirm=True).n == 2
    with pytest.warns(UserWarning, match="already"):
        assert client.upload(tmp_path / "b.csv", unit=unit, columns={"y": {}}, confirm=True).n == 2
    assert client.upload(tmp_path / "b.csv", unit=unit, drop=["y"], confirm=True).n == 2


def test_ids_and_an_index_draw_a_question(client: Client, tmp_path: Path) -> None:
    """They would join every query; who names or declares such a column has said that it is wanted."""
    rng = np.random.default_rng(1)
    ages = rng.integers(20, 80, size=60)
    frame = pd.DataFrame({"patient": rng.permutation(60) + 1000, "age": ages})
    question = (
        r"patient: whole numbers that are all different, as an id or an index: leave it out with "
        r"drop=\['patient'\], say whose rows are one record with unit=\{'column': 'patient', 'rows': 1\}, "
        r"or declare it, as columns=\{'patient': \{'type': 'integer'\}\}"
    )
    for made in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        for public in (False, True):
            with pytest.raises(SchemaMismatch, match=question):
                client.upload(made, values_are_public=public, confirm=True)
    assert client.upload(frame, columns={"patient": {"type": "integer"}}, confirm=True).n == 60
    assert client.upload(frame, drop=["patient"], confirm=True).n == 60
    assert client.plan("frechet-mean", frame, columns=["patient"], epsilon=50)
    few = frame[["age"]].drop_duplicates().head(4)
    few.to_csv(tmp_path / "index.csv")
    with pytest.raises(SchemaMismatch, match=r"'': rename it to .* or leave it out with drop=\[''\]"):
        client.upload(tmp_path / "index.csv", confirm=True)
    assert client.upload(tmp_path / "index.csv", drop=[""], confirm=True).n == 4
    few.to_parquet(tmp_path / "index.parquet")
    with pytest.raises(SchemaMismatch, match="__index_level_0__: whole numbers that are all different"):
        client.upload(tmp_path / "index.parquet", confirm=True)
    with pytest.raises(SchemaMismatch, match="index: whole numbers that are all different"):
        table(few.reset_index())
    names = pd.DataFrame({"name": [f"p{at}" for at in range(60)], "age": ages})
    with pytest.raises(SchemaMismatch, match="name: text: list what there may be"):
        table(names, values_are_public=True)
    assert table(frame[["age"]]).columns == [{"name": "age", "type": "integer"}]


FRAME = pl.DataFrame({"age": [1.0, 2.0]})
NO_FRAME = "is no frame: pass one of pandas, polars or pyarrow, as pandas.DataFrame(rows)"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (pd.Series([1.0, 2.0]), "a Series is one column and no frame: pass series.to_frame()"),
        (FRAME["age"], "a Series is one column and no frame: pass series.to_frame()"),
        (FRAME.lazy(), "a LazyFrame holds no rows yet: pass frame.collect()"),
        ({"age": [1, 2]}, f"a dict {NO_FRAME}"),
        ([{"age": 1}, {"age": 2}], f"a list of dict {NO_FRAME}"),
        (io.BytesIO(PLAIN), "a BytesIO does not say its format: pass the path of a file, or a frame"),
    ],
    ids=["pandas series", "polars series", "lazy frame", "dict of lists", "list of dicts", "bytes"],
)  # fmt: skip
def test_what_is_near_to_a_frame_is_told_what_to_pass_in_one_sentence(
    client: Client, rows: Any, words: str
) -> None:
    for schema in (None, {"kind": "table", "columns": [{"name": "age", "type": "number"}]}):
        with pytest.raises(SchemaMismatch) as told:
            client.upload(rows, schema)
        assert str(told.value).startswith(words)
        assert "\n" not in str(told.value)


def test_a_file_of_another_format_is_told_before_it_is_sent(client: Client, tmp_path: Path) -> None:
    for name in ("a.xlsx", "a.csv.bz2", "a"):
        (tmp_path / name).write_bytes(bz2.compress(PLAIN))
        with pytest.raises(SchemaMismatch, match=r"the service reads \.csv, .*pandas.read_excel"):
            client.upload(tmp_path / name, {"kind": "table", "columns": COLUMNS})


def test_rows_in_float32_are_stored_exactly(client: Client, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 128)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    sphere = {"kind": "points", "manifold": {"name": "sphere", "dim": 128}}
    assert client.upload(rows, sphere).n == 50
    factors = rng.normal(size=(50, 4, 20)).astype(np.float32)
    matrices = factors @ np.swapaxes(factors, 1, 2) * (1 + np.float32(2e-7) * np.tri(4, dtype=np.float32))
    assert matrices.dtype == np.float32
    spd = {"kind": "points", "manifold": {"name": "spd", "dim": 4}}
    assert client.upload(matrices, spd).n == 50
    flat = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 128)})
    parquet.write_table(flat, tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match="already"):
        assert client.upload(tmp_path / "a.parquet", sphere).n == 50
    with pytest.raises(DatasetInvalid, match="unit length"):
        client.upload(rows * np.float32(1 + 1e-5), sphere)


TEXTS = [
    *("1", "1.0", "+1", "-0.5", ".5", "5.", "1e3", "1e400", "1_000", "inf", "0", "²", "٣", "-", "--5"),
    *("1,5", "1,23", "1,234", "0,123", "1,2345", "1,234.5", "1.234,5", "12,345,678", "1 234", "1'234"),
    *("$5", "$-5", "-$5", "$$5", "5%", "5 %", "5\u00a0%", "5% ", "1e5%", "%"),
    *("nan", "NA", "n/a", "None", "null", "", " ", "true", "TRUE", "False", "yes", "Yes", "a,b"),
    *(
        "2020-01-31",
        "2020/1/31",
        "2020/01-31",
        "2020-02-31",
        "31.1.2020",
        "1/31/2020",
        "31/1/2020",
        "20200131",
    ),
    *("2020-W05-1", "2020-01-31T23:30-05:00", "2020/01/31 noon", "10000-01-01"),
]
NUMBER_FORMATS = ("1,234.5", "1.234,5", "1 234.5", "$1,234.5", "1234.5%", "1'234.5")

KINDS: dict[str, dict[str, Any]] = {
    "number": {"type": "number"},
    "integer": {"type": "integer"},
    **{form: {"type": "number", "number_format": form} for form in NUMBER_FORMATS},
    "date": {"type": "date"},
    **{form: {"type": "date", "format": form} for form in ("dd.mm.yyyy", "mm/dd/yyyy", "dd/mm/yyyy")},
    "boolean": {"type": "boolean"},
    "words": {"type": "category", "categories": ["NA", "yes", "1", "None"]},
    "truths": {"type": "category", "categories": ["true", "false"]},
    "digits": {"type": "category", "categories": ["0", "1", "5"]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_client_reads_each_cell_as_the_service_does(kind: str) -> None:
    """Numbers that stand for cells, and which cells are gaps or faults."""
    declared = KINDS[kind] | {"name": "x", "missing": "filled", "fill": 0}
    column = Column(
        "x", declared["type"], categories=tuple(declared.get("categories", ())), missing="filled", fill=0
    )
    layout = Layout(
        (1,), ("x",), {} if column.is_ordered else {"x": column.values}, columns=(column,),
        formats={"x": declared["format"]} if "format" in declared else {},
    )  # fmt: skip
    written = NumberFormat.of(declared["number_format"]) if "number_format" in declared else None
    code = layout.dater(0) if column.is_ordered else layout.coder(0)
    numbers, marks = cells(pa.array(TEXTS), column, code, written)
    found = read_cells(nw.from_native(pl.Series("x", TEXTS), series_only=True), declared)
    for at, text in enumerate(TEXTS):
        # Marks that are no fault alone: a point, a comma. A comma in doubt the client asks about.
        fine = marks[at] <= 2
        if column.type == "integer" and marks[at] == Mark.BROKEN:  # of which it tells with others
            continue
        assert (at not in found.strange) == fine, text
        if fine:
            np.testing.assert_equal(found.numbers[at], numbers[at], text)


def test_numbers_of_a_format_are_those_of_the_service() -> None:
    for form in ("1,234.5", "$1,234.5", "1 234,5 €"):
        for text in TEXTS:
            right = NumberFormat.of(form).read(text.strip())
            right = None if right == np.inf else right
            try:
                assert number_of_text(text, form) == right
            except ValueError:
                assert right is None, text

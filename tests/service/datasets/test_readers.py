"""What is read from files: the same records from every format, faults by record, hostile files refused."""

import gzip
import io
import json
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from privest_service.datasets import ingest as ingest_module
from privest_service.datasets.readers import arrays, room, tables
from privest_service.datasets.schemas import SCHEMA
from privest_service.formats import Format, format_of_name
from privest_service.upload_errors import RefusedUploadError
from testing.server import HANG_GUARD, Server, npy, problem
from testing.uploads import FORMATS, TABLES, arrow_file, refused, rows_as, table_as, taken

VECTORS = {"kind": "vectors", "dim": 3}
MATRICES = {"kind": "points", "manifold": {"name": "spd", "dim": 2}}
LABELLED = {"kind": "labelled", "features": ["age", "dose"], "label": "ill", "classes": ["no", "yes"]}
COLOURED = {
    "kind": "labelled",
    "features": ["age", "colour"],
    "label": "ill",
    "classes": ["0", "1"],
    "categories": {"colour": ["red", "green", "7"]},
}
ROWS = np.random.default_rng(0).standard_normal((50, 3))
SPDS = np.einsum("nij,nkj->nik", a := np.random.default_rng(1).standard_normal((50, 2, 2)), a) + np.eye(2)


# The same from all


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("rows", "schema"), [(ROWS, VECTORS), (SPDS, MATRICES)], ids=["vectors", "matrices"])
def test_every_format_gives_the_same_records(
    tmp_path: Path, form: Format, rows: np.ndarray, schema: dict[str, Any]
) -> None:
    mark, found = taken(tmp_path, rows_as(rows, form), form, schema)
    np.testing.assert_array_equal(found, rows)
    assert mark == taken(tmp_path, npy(rows), "npy", schema)[0]


ILL = pa.table({"ill": ["yes", "no", "no"], "other": [9, 9, 9], "dose": [1.5, 2, 3], "age": [50, 60, 70]})


@pytest.mark.parametrize("form", TABLES)
def test_labelled_tables_are_read_by_name(tmp_path: Path, form: Format) -> None:
    _, rows = taken(tmp_path, table_as(ILL, form), form, LABELLED)
    np.testing.assert_array_equal(rows, [[50, 1.5, 1], [60, 2, 0], [70, 3, 0]])


@pytest.mark.parametrize("form", TABLES)
def test_categories_become_indicators(tmp_path: Path, form: Format) -> None:
    table = pa.table({"age": [1, 2, 3], "ill": [0, 1, 0], "colour": ["7", "red", "green"]})
    _, rows = taken(tmp_path, table_as(table, form), form, COLOURED)
    np.testing.assert_array_equal(rows, [[1, 0, 0, 1, 0], [2, 1, 0, 0, 1], [3, 0, 1, 0, 0]])
    shape = SCHEMA.validate_python(COLOURED).shape(3)
    assert shape.features == ("age", "colour=red", "colour=green", "colour=7")


def test_categories_of_arrays_are_their_numbers(tmp_path: Path) -> None:
    schema = COLOURED | {"categories": {"colour": ["0.5", "3"]}}
    _, rows = taken(tmp_path, npy(np.array([[1, 0.5, 0], [2, 3, 1]])), "npy", schema)
    np.testing.assert_array_equal(rows, [[1, 1, 0, 0], [2, 0, 1, 1]])


def test_dictionaries_booleans_and_small_integers_are_read(tmp_path: Path) -> None:
    table = pa.table(
        {
            "age": pa.array([1, 2], pa.int8()),
            "dose": pa.array([True, False]),
            "ill": pa.array(["no", "yes"]).dictionary_encode(),
        }
    )
    for content in (table_as(table, "arrow"), arrow_file(table)):
        np.testing.assert_array_equal(taken(tmp_path, content, "arrow", LABELLED)[1], [[1, 1, 0], [2, 0, 1]])


@pytest.mark.parametrize("kind", [pa.list_(pa.list_(pa.float64())), pa.list_(pa.list_(pa.float64(), 2), 2)])
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_column_of_lists_holds_matrices(tmp_path: Path, form: Format, kind: pa.DataType) -> None:
    table = pa.table({"matrix": pa.array(SPDS.tolist(), kind)})
    np.testing.assert_array_equal(taken(tmp_path, table_as(table, form), form, MATRICES)[1], SPDS)


def test_csv_takes_what_python_takes_for_numbers(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf 1,2e0 ,0x\n".replace(b"0x", b"3") + b"\n4e1, +5,\t6\r\n" + b'"7","8",9'
    _, rows = taken(tmp_path, content, "csv", VECTORS, header=False)
    np.testing.assert_array_equal(rows, [[1, 2, 3], [40, 5, 6], [7, 8, 9]])


def test_wide_lines_fit(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((3, 30_000))
    schema = {"kind": "vectors", "dim": 30_000}
    content = "\n".join(",".join(map(repr, row)) for row in rows.tolist()).encode()
    np.testing.assert_array_equal(taken(tmp_path, content, "csv", schema, header=False)[1], rows)


MEDIA = {
    "npy": "application/x-npy",
    "npz": "application/x-npz",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
    "json": "application/json",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("backend", ["sqlite"])  # no format is the database's concern
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_goes_from_upload_to_answer(server: Server, form: Format) -> None:
    """A format is recognised by its content type and by its ending; both give one dataset and share caps."""
    owner = server.owner()
    content = rows_as(SPDS, form)
    uploads = [
        owner.upload(content, MATRICES, "rows", MEDIA[form]),
        owner.upload(content, MATRICES, f"rows.{form.upper()}"),
    ]
    assert [upload.status_code for upload in uploads] == [201, 201], uploads[0].text
    first, second = (upload.json() for upload in uploads)
    assert first["shape"] == [50, 2, 2]
    assert first["fingerprint"] == second["fingerprint"]
    assert first["id"] != second["id"]
    answer = owner.estimate(first["id"], delta=1e-6).json()
    assert answer["state"] == "committed"
    assert np.linalg.eigvalsh(answer["estimate"]["point"]).min() > 0
    truncated = owner.upload(content[: len(content) // 2 + 3], MATRICES, f"rows.{form}")
    if form != "csv":  # of which a part is one
        problem(truncated, 422, "dataset-invalid")
    assert owner.delete(f"/v1/datasets/{first['id']}").status_code == 204
    assert owner.estimate(second["id"], delta=1e-6).json()["state"] == "committed"


# Units


@pytest.mark.parametrize("form", TABLES)
def test_rows_of_a_unit_are_one_record(tmp_path: Path, form: Format) -> None:
    who = ["p", "q", "p", "r", "p", "q", "p"]
    table = pa.table({"x": range(7), "who": who, "z": range(10, 17), "w": range(7)})
    _, rows = taken(tmp_path, table_as(table, form), form, VECTORS | {"unit": {"column": "who", "rows": 3}})
    assert rows.shape == (3, 3, 3)
    np.testing.assert_array_equal(sorted(rows[:, :, 0].tolist()), [[0, 2, 4], [1, 1, 5], [3, 3, 3]])
    np.testing.assert_array_equal(rows[:, :, 1], rows[:, :, 0] + 10)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@patch.object(ingest_module, "_random_order", np.arange)
@given(
    who=st.lists(st.sampled_from("abcdef"), min_size=2, max_size=40).filter(lambda w: len(set(w)) > 1),
    places=st.integers(1, 7),
    data=st.data(),
)
def test_a_units_record_knows_nothing_of_other_units(
    tmp_path: Path, who: list[str], places: int, data: st.DataObject
) -> None:
    """Whatever rows the others have, and wherever they stand; and places differ by one in what they hold."""
    schema = {"kind": "vectors", "dim": 1, "unit": {"column": "who", "rows": places}}

    def records(names: list[str], values: list[float]) -> dict[str, list[float]]:
        content = table_as(pa.table({"who": names, "x": values}), "csv")
        rows = taken(tmp_path, content, "csv", schema)[1]
        return dict(zip(dict.fromkeys(names), rows[:, :, 0].tolist(), strict=True))

    values = [float(at) for at in range(len(who))]
    found = records(who, values)
    for name, record in found.items():
        own = [value for value, each in zip(values, who, strict=True) if each == name]
        counts = [record.count(value) for value in own]
        assert sum(counts) == places
        assert max(counts) - min(counts) <= 1
        assert record == sorted(record)
    kept = data.draw(st.sampled_from(sorted(set(who))))
    own = [(name, value) for name, value in zip(who, values, strict=True) if name == kept]
    others = data.draw(st.lists(st.tuples(st.just("z"), st.floats(-9, 9)), min_size=1, max_size=9))
    mixed = data.draw(st.permutations([None] * len(own) + others))
    mine = iter(own)
    now = [next(mine) if each is None else each for each in mixed]
    assert records([name for name, _ in now], [value for _, value in now])[kept] == found[kept]


def test_units_are_told_apart_by_their_names_as_they_are_written(tmp_path: Path) -> None:
    """Names differ as written, except for spaces and composed letters. A missing number is refused."""
    schema = {"kind": "vectors", "dim": 1, "unit": {"column": "who", "rows": 2}}
    names = ["e\u0301", "\u00e9 ", "01", "1", "1"]
    content = table_as(pa.table({"who": names, "x": range(5)}), "csv")
    assert len(taken(tmp_path, content, "csv", schema)[1]) == 3
    numbers = table_as(pa.table({"who": [1.0, 1, 2.5], "x": range(3)}), "arrow")
    assert len(taken(tmp_path, numbers, "arrow", schema)[1]) == 2
    gaps = table_as(pa.table({"who": [1.0, float("nan"), None], "x": range(3)}), "arrow")
    assert [fault[0] for fault in refused(tmp_path, gaps, "arrow", schema)] == [1, 2]


def test_fingerprints_are_of_the_data_not_of_what_is_made_of_it(tmp_path: Path) -> None:
    """A cap on rows therefore holds for every number of places and every regulariser."""
    content = b"who,x\np,1\nq,2\np,3\n"
    marks = set()
    for places in (1, 2, 3):
        schema = {"kind": "vectors", "dim": 1, "unit": {"column": "who", "rows": places}}
        marks.add(taken(tmp_path, content, "csv", schema)[0])
    assert len(marks) == 1
    windows = np.random.default_rng(0).standard_normal((9, 5, 2))
    for regulariser in (0.01, 0.1):
        for array in (windows, np.asfortranarray(windows)):
            raw = {"transform": "window-covariance", "length": 5, "channels": 2, "regulariser": regulariser}
            schema = {"kind": "points", "manifold": {"name": "spd", "dim": 2}, "raw": raw}
            marks.add(taken(tmp_path, npy(array), "npy", schema)[0])
    assert len(marks) == 2


def test_members_of_objects_may_change_their_order_but_not_their_names(tmp_path: Path) -> None:
    """A later block may change the order, too. Without names in the schema all members count."""
    schema = {"kind": "vectors", "dim": 2, "unit": {"column": "u", "rows": 1}}
    rows: list[dict[str, Any]] = [{"u": f"{i:05}", "a": 1, "b": 2} for i in range(5000)]
    turned = [*rows, {"u": "z", "b": 2, "a": 1}]
    assert (taken(tmp_path, json.dumps(turned).encode(), "json", schema)[1] == [1, 2]).all()
    for odd in ({"u": "z", "zzz": 7, "a": 1}, {"u": "z", "a": 1, "b": 2, "c": 3}, {"u": "z", "a": 1}):
        assert refused(tmp_path, json.dumps([*rows, odd]).encode(), "json", schema)[0][0] == 5000


@pytest.mark.costly
def test_many_categories_are_made_a_few_rows_at_a_time(tmp_path: Path) -> None:
    """A block of narrow rows becomes wide records: 4,000 rows of 8 numbers make 220 MB."""
    names = [f"c{at}" for at in range(1000)]
    schema = COLOURED | {
        "features": [f"f{at}" for at in range(7)],
        "categories": {f"f{at}": names for at in range(7)},
    }
    table = pa.table({f"f{at}": ["c7", "c9"] * 2000 for at in range(7)} | {"ill": [0, 1] * 2000})
    tracemalloc.start()
    _, rows = taken(tmp_path, table_as(table, "parquet"), "parquet", schema, 2**30)
    most = tracemalloc.get_traced_memory()[1] - rows.nbytes
    tracemalloc.stop()
    assert rows.shape == (4000, 7001)
    assert most < 50_000_000


def test_labels_match_as_numbers_and_truth_values_do(tmp_path: Path) -> None:
    def coded(values: pa.Array, *classes: str) -> list[float]:
        schema = LABELLED | {"classes": list(classes)}
        table = pa.table({"age": [1.0] * len(values), "dose": [1.0] * len(values), "ill": values})
        return taken(tmp_path, table_as(table, "arrow"), "arrow", schema)[1][:, -1].tolist()

    assert coded(pa.array([True, False]), "false", "true") == [1, 0]
    assert coded(pa.array([True, False]), "0", "1") == [1, 0]
    assert coded(pa.array([0.0, 1.0]), "0.0", "1.0") == [0, 1]
    assert coded(pa.array(["1.0", "0"]), "0", "1") == [1, 0]
    assert coded(pa.array(["no", "yes"], pa.string_view()), "no", "yes") == [0, 1]
    with pytest.raises(RefusedUploadError):
        coded(pa.array([2**53 + 1, 0]), "0", str(2**53))
    assert coded(pa.array([2**53 + 1, 0]), "0", str(2**53 + 1)) == [1, 0]


DECLARED: tuple[list[Any], ...] = ([0, 1], ["0", "1"], [False, True], ["False", "TRUE"], [0.0, 1.0])
"""Ways to declare classes that mean the same cells."""

TRUTHS: dict[str, tuple[Format, bytes]] = {
    f"{form}, {kind}": (form, table_as(pa.table({"age": [5, 6, 7], "ill": cells}), form))
    for form in TABLES
    for kind, cells in {
        "booleans": pa.array([False, True, True]),
        "whole numbers": pa.array([0, 1, 1], pa.int8()),
        "numbers": pa.array([0.0, 1.0, 1.0]),
        "texts": pa.array(["0", "1", "1.0"]),
        "words": pa.array(["False", "True", "true"]),
    }.items()
} | {"npy": ("npy", npy(np.array([[5.0, 0], [6, 1], [7, 1]])))}


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("classes", DECLARED, ids=str)
def test_classes_are_taken_by_their_string_form(tmp_path: Path, name: str, classes: list[Any]) -> None:
    form, content = TRUTHS[name]
    schema = {"kind": "labelled", "features": ["age"], "label": "ill", "classes": classes}
    np.testing.assert_array_equal(taken(tmp_path, content, form, schema)[1][:, -1], [0, 1, 1])


@pytest.mark.parametrize("form", TABLES)
def test_categories_are_taken_by_their_string_form(tmp_path: Path, form: Format) -> None:
    schema = {
        "kind": "labelled",
        "features": ["year", "smokes"],
        "label": "grade",
        "classes": [1, 2, 3],
        "categories": {"year": [2019, 2020], "smokes": [True, False]},
    }
    table = pa.table({"year": [2020, 2019], "smokes": [True, False], "grade": [3, 1]})
    _, rows = taken(tmp_path, table_as(table, form), form, schema)
    np.testing.assert_array_equal(rows, [[0, 1, 1, 0, 2], [1, 0, 0, 1, 0]])
    shape = SCHEMA.validate_python(schema).shape(2)
    assert shape.features == ("year=2019", "year=2020", "smokes=true", "smokes=false")
    assert shape.classes == ("1", "2", "3")


def test_what_is_declared_of_both_is_told_apart(tmp_path: Path) -> None:
    """1 is no other word for true where both are declared, whichever comes first."""
    schema = {"kind": "labelled", "features": ["x"], "label": "y", "classes": ["1", "true", "True"]}
    cells = [True, 1, 1.0, True, "True", "TRUE"]
    for order in (cells, cells[::-1]):
        content = json.dumps([{"x": 0, "y": cell} for cell in order]).encode()
        found = taken(tmp_path, content, "json", schema)[1][:, -1].tolist()
        assert found == ([1, 0, 0, 1, 2, 1] if order is cells else [1, 2, 1, 0, 0, 1])


@pytest.mark.parametrize("classes", [[0, None], [0, 0.5], [0, [1]], [0, "0"], [True, "true"], [1, 1.0]])
def test_other_classes_are_refused(classes: list[Any]) -> None:
    schema = {"kind": "labelled", "features": ["x"], "label": "y", "classes": classes}
    with pytest.raises(ValueError, match="classes"):
        SCHEMA.validate_python(schema)


PAIRS = {"kind": "vectors", "dim": 2}
MAYBE = {
    "years": b"2019,2020",
    "numbers of columns": b"0,1",
    "quoted years": b'"2019","2020"',
    "a mark of UTF-8": b"\xef\xbb\xbf2019,2020",
    "a mark, quoted": b'\xef\xbb\xbf"2019","2020"',
    "wavelengths": b"400.5,401",
    "a name and a year": b"age,2019",
    "nothing": b",",
    "half": b"1,",
    "missing": b"NA,NA",
    "no number": b"nan,nan",
}
"""First lines that may name columns, and may be a record."""


@pytest.mark.parametrize("name", MAYBE)
def test_a_first_line_with_numbers_is_what_it_is_said_to_be(tmp_path: Path, name: str) -> None:
    content = MAYBE[name] + b"\n1,2\n3,4\n"
    ((record, field, rule),) = refused(tmp_path, content, "csv", PAIRS)
    assert (record, field) == (None, None)
    assert "first line" in rule
    np.testing.assert_array_equal(taken(tmp_path, content, "csv", PAIRS, header=True)[1], [[1, 2], [3, 4]])
    if name in (
        "years",
        "numbers of columns",
        "quoted years",
        "a mark of UTF-8",
        "a mark, quoted",
        "wavelengths",
    ):
        first = [float(part.strip(b'"\xef\xbb\xbf')) for part in MAYBE[name].split(b",")]
        rows = taken(tmp_path, content, "csv", PAIRS, header=False)[1]
        np.testing.assert_array_equal(rows, [first, [1, 2], [3, 4]])
    else:
        assert refused(tmp_path, content, "csv", PAIRS, header=False)[0][0] == 0


def test_a_first_line_of_texts_is_a_header_and_one_of_names_always(tmp_path: Path) -> None:
    for first in (b"a,b", b'"a","b"', b"\xef\xbb\xbfa,b", b"x1,x2", b"2019a,b"):
        content = first + b"\n1,2\n3,4\n"
        for header in (None, True):
            assert len(taken(tmp_path, content, "csv", PAIRS, header=header)[1]) == 2
        assert refused(tmp_path, content, "csv", PAIRS, header=False)[0][0] == 0
    named = {"kind": "labelled", "features": ["2019", "2020"], "label": "2021", "classes": ["0", "1"]}
    for header in (None, True):
        rows = taken(tmp_path, b"2019,2020,2021\n1,2,0\n3,4,1\n", "csv", named, header=header)[1]
        np.testing.assert_array_equal(rows, [[1, 2, 0], [3, 4, 1]])
    ((_, _, rule),) = refused(tmp_path, b"1,2,0\n3,4,1\n", "csv", named, header=False)
    assert "finds columns by the names" in rule
    ((_, _, rule),) = refused(tmp_path, b"1,2,0\n3,4,1\n", "csv", named)
    assert rule == "must name every column of the schema; missing: 2019, 2020, 2021"


def test_a_name_that_goes_over_two_lines_makes_no_record(tmp_path: Path) -> None:
    for header in (None, True):
        assert refused(tmp_path, b'"a\n1",b\n1,2\n3,4\n', "csv", PAIRS, header=header)


def test_blank_lines_before_a_header_are_passed_over(tmp_path: Path) -> None:
    _, rows = taken(tmp_path, b"\n \n" + b"age,dose,ill\n1,2,no\n3,4,yes\n", "csv", LABELLED)
    np.testing.assert_array_equal(rows, [[1, 2, 0], [3, 4, 1]])


# Refusals

GOOD = rows_as(ROWS, "npy")


def npy_of(header: str, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_npy", ".npy"), content)
    return file.getvalue()


def damaged(compression: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("a.npy", GOOD)
    content = bytearray(file.getvalue())
    content[80:400] = bytes(320)
    return bytes(content)


BAD: dict[str, tuple[bytes, Format, str]] = {
    "npy of objects": (npy(np.array([[None] * 3] * 3), allow_pickle=True), "npy", "npy"),
    "npy of complex numbers": (npy(ROWS * 1j), "npy", "real numbers"),
    "npy of texts": (npy(np.array([["a"] * 3] * 3)), "npy", "real numbers"),
    "npy of another shape": (npy(ROWS.T), "npy", "shape (n, 3)"),
    "npy of a number": (npy(np.array(1.0)), "npy", "shape (n, 3)"),
    "npy that promises more": (
        npy_of("{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999, 3)}\n"),
        "npy",
        "npy",
    ),
    "npy of structures": (npy(np.zeros(5, [("a", "f8"), ("b", "f8"), ("c", "f8")])), "npy", "real numbers"),
    "npz of two arrays": (zipped(a_npy=GOOD, b_npy=GOOD), "npz", "one array"),
    "npz of a text": (zipped(readme=b"hello"), "npz", "one array"),
    "npz with an npz in it": (zipped(a_npy=zipped(a_npy=GOOD)), "npz", "npy"),
    "a bomb in npz": (zipped(a_npy=npy(np.zeros((10**6, 3)))), "npz", "at most"),
    "ragged csv, short": (b"1,2,3\n4,5\n", "csv", "3 columns"),
    "ragged csv, long": (b"1,2,3\n4,5,6,7\n", "csv", "3 columns"),
    "csv of words": (b"1,2,3\n4,five,6\n", "csv", "a number"),
    "csv of zeros": (b"\x00" * 5000, "csv", "no encoding"),
    "csv in another encoding": ("1,2,3\n4,5,ü\n".encode("utf-32"), "csv", "UTF-8"),
    "csv of ten million columns": (b"1," * 10_000_000, "csv", "too long"),
    "a line without end": (b"1,2,3\n" + b"4" * 5_000_000, "csv", "not a whole csv file"),
    "parquet of another width": (table_as(pa.table({"a": [1, 2]}), "parquet"), "parquet", "3 columns"),
    "parquet of dates": (
        table_as(pa.table({n: pa.array([1, 2], pa.timestamp("s")) for n in "abc"}), "parquet"),
        "parquet",
        "a number",
    ),
    "parquet of structures": (
        table_as(pa.table({n: [{"x": 1}, {"x": 2}] for n in "abc"}), "parquet"),
        "parquet",
        "a number",
    ),
    "parquet with gaps": (
        table_as(pa.table({n: [1.0, None] for n in "abc"}), "parquet"),
        "parquet",
        "finite",
    ),
    "ragged lists": (table_as(pa.table({"a": [[1.0, 2, 3], [1.0]]}), "parquet"), "parquet", "lists of 3"),
    "a stream of before 0.15": (
        table_as(pa.table({"a": [1.0], "b": [1.0]}), "arrow", use_legacy_format=True),
        "arrow",
        "before Arrow 0.15",
    ),
    "lists of another length": (table_as(pa.table({"a": [[1.0], [1.0]]}), "arrow"), "arrow", "lists of 3"),
    "a column twice": (
        table_as(pa.Table.from_arrays([pa.array([1.0, 2])] * 3, ["a", "a", "b"]), "arrow"),
        "arrow",
        "once",
    ),
    "JSON of words": (b'[["1", "2", "3"], ["x", 1, 2]]', "json", "numbers"),
    "ragged JSON": (b"[[1, 2, 3], [1, 2]]", "json", "shape (3)"),
    "JSON with NaN": (b"[[1, 2, 3], [1, 2, NaN]]", "json", "JSON"),
    "JSON that is no list": (b'{"rows": [[1, 2, 3]]}', "json", "list"),
    "JSON of null": (b"[null, null]", "json", "shape (3)"),
    "JSON nested deeply": (b"[" * 100_000, "json", "JSON"),
    "JSON with numbers in strings": (b'[["1", "2", "3"], [1, 2, 3]]', "json", "numbers"),
    "parquet with texts that are none": (
        table_as(pa.table({n: pa.array([b"1", b"\xff"]).view(pa.string()) for n in "abc"}), "parquet"),
        "parquet",
        "parquet",
    ),
    "a damaged lzma archive": (damaged(zipfile.ZIP_LZMA), "npz", "npz"),
    "a damaged bzip2 archive": (damaged(zipfile.ZIP_BZIP2), "npz", "npz"),
    "JSON with huge integers": (b"[[1, 2, 3], [1, 2, 1" + b"0" * 400 + b"]]", "json", "numbers"),
    "one record": (npy(ROWS[:1]), "npy", "at least 2 records"),
    "no records": (b"", "csv", "at least 2 records"),
    "too many records": (npy(np.zeros((800_000, 3))), "npy", "at most"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_words(tmp_path: Path, name: str) -> None:
    content, form, word = BAD[name]
    faults = refused(tmp_path, content, form, VECTORS, header=False)
    assert any(word in rule for _, _, rule in faults), faults
    assert len(faults) <= 20


@pytest.mark.parametrize("form", FORMATS)
def test_truncated_files_are_refused(tmp_path: Path, form: Format) -> None:
    whole = rows_as(ROWS, form)
    between_batches = whole.rfind(b"\xff\xff\xff\xff", 0, len(whole) - 8) if form == "arrow" else 2
    for length in (0, 1, 7, len(whole) // 3, between_batches, len(whole) - 9, len(whole) - 8):
        if form == "csv" and length > 7:
            continue  # a shorter CSV file is one
        assert refused(tmp_path, whole[:length], form, VECTORS)


def test_faults_are_told_by_record_and_field_in_order(tmp_path: Path) -> None:
    content = b"age,dose,ill\n1,2,no\n1,x,no\nnan,2,no\n1,2,maybe\n1,2,yes\n"
    for ending in (b"", b"1,,no\n" * 100):
        faults = refused(tmp_path, content + ending, "csv", LABELLED)
        assert faults[:3] == [
            (1, "dose", "must be a number"),
            (2, "age", "must be finite"),
            (3, "ill", "must be labelled with one of the classes"),
        ]
        assert len(faults) == (20 if ending else 3)


NAMELESS = "must not be empty, NA, NaN, null or none: write whose row it is, or leave the row out"


@pytest.mark.parametrize("kind", ["table", "labelled", "vectors"])
@pytest.mark.parametrize("form", TABLES)
def test_rows_of_unknown_people_are_refused_and_are_no_record(tmp_path: Path, form: Any, kind: str) -> None:
    """Each word for a gap, in any case of letters; beside known people, also where nothing else is wrong."""
    schema: dict[str, Any] = {
        "table": {"kind": "table", "columns": [{"name": "x", "type": "number"}]},
        "labelled": {"kind": "labelled", "features": ["x"], "label": "y", "classes": ["0", "1"]},
        "vectors": {"kind": "vectors", "dim": 2},
    }[kind] | {"unit": {"column": "who", "rows": 2}}
    people = ["ann", "NA", "Nan", "null", "None", " n/a ", "", None, "bob", "Nanette"]
    columns = {"x": [1.0] * 10, "y": [0, 1] * 5, "who": people}
    found = refused(tmp_path, table_as(pa.table(columns), form), form, schema)
    assert [(record, field) for record, field, _ in found] == [(at, "who") for at in range(1, 8)]
    lines = [f" (line {at + 2})" if form == "csv" else "" for at in range(1, 8)]
    assert [rule for *_, rule in found] == [NAMELESS + line for line in lines]
    kept = pa.table(columns).filter(pa.array([at in (0, 8, 9) for at in range(10)]))
    assert len(taken(tmp_path, table_as(kept, form), form, schema)[1]) == 3


def test_rows_of_unknown_numbers_are_refused_too(tmp_path: Path) -> None:
    schema = VECTORS | {"unit": {"column": "who", "rows": 3}}
    table = pa.table({"a": [1, 2], "b": [1, 2], "c": [1, 2], "who": [1.0, np.nan]})
    for form in ("parquet", "arrow"):
        assert refused(tmp_path, table_as(table, form), form, schema) == [(1, "who", NAMELESS)]


def test_a_unit_without_a_name_is_refused(tmp_path: Path) -> None:
    schema = VECTORS | {"unit": {"column": "who", "rows": 3}}
    assert refused(tmp_path, b"a,b,c,who\n1,2,3,p\n1,2,3, \n", "csv", schema) == [
        (1, "who", f"{NAMELESS} (line 3)")
    ]
    assert "must be a table" in refused(tmp_path, GOOD, "npy", schema)[0][2]
    assert "every column" in refused(tmp_path, b"a,b,c\n1,2,3\n", "csv", schema)[0][2]


def test_faults_of_raw_records_are_told_before_they_are_transformed(tmp_path: Path) -> None:
    raw = {"transform": "covariance-descriptor", "height": 3, "width": 4, "largest": 10}
    schema = {"kind": "points", "manifold": {"name": "spd", "dim": 8}, "raw": raw}
    images = np.ones((6, 3, 4))
    images[2, 1, 1], images[4, 0, 3] = 11, np.inf
    faults = refused(tmp_path, npy(images), "npy", schema)
    assert faults == [(2, None, "must be intensities from 0 to 10"), (4, "[0][3]", "must be finite")]


BOMBS = {
    "parquet": "one value of a gigabyte",
    "arrow": "a compressed batch",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("form", BOMBS)
def test_what_unpacks_to_more_memory_than_is_allowed_is_refused(tmp_path: Path, form: Format) -> None:
    """The work runs in a process of its own, under the limit that workers have; here it is small."""
    size = 600_000_000
    kind = pa.table({"a": pa.array(np.zeros(size // 8))})
    file = io.BytesIO()
    if form == "parquet":
        parquet.write_table(kind, file, compression="zstd", row_group_size=size)
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(file, kind.schema, options=options) as writer:
            writer.write_table(kind)
    (tmp_path / "bomb").write_bytes(file.getvalue())
    assert len(file.getvalue()) < 10_000_000
    script = f"""
import resource, sys
from privest_service.datasets.ingest import ingest
from privest_service.datasets.readers import tables
from privest_service.upload_errors import RefusedUploadError
from privest_service.datasets.schemas import SCHEMA
resource.setrlimit(resource.RLIMIT_DATA, (400_000_000,) * 2)
intake = SCHEMA.validate_json('{{"kind": "vectors", "dim": 1}}').intake()
try:
    source, target = {str(tmp_path / "bomb")!r}, {str(tmp_path / "rows.npy")!r}
    ingest(source, {form!r}, intake, target, 10**6)
except RefusedUploadError as refused:
    print(refused.faults[0].rule)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=HANG_GUARD
    )
    assert "memory" in done.stdout or "unpacks to more" in done.stdout


def coded(n: int, *values: str) -> pa.Array:
    """Make a column of this many texts, all of them the first of these values."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, dtype=np.int8)), pa.array(values))


def _a_hundred_kilobytes_of_texts() -> bytes:
    texts = coded(40_000_000, "no", "yes")
    file = io.BytesIO()
    parquet.write_table(pa.table({"age": texts, "dose": texts, "ill": texts}), file)
    return file.getvalue()


def one_batch(columns: dict[str, Any], **how: Any) -> bytes:
    """An Arrow stream of one batch."""
    file, batch = io.BytesIO(), pa.record_batch(columns)
    with pa.ipc.new_stream(file, batch.schema, options=pa.ipc.IpcWriteOptions(**how)) as writer:
        writer.write_batch(batch)
    return file.getvalue()


def _nulls() -> bytes:
    return one_batch({name: pa.nulls(10**9) for name in "ab"})


def _zeros() -> bytes:
    return one_batch({name: np.zeros(3_000_000) for name in "abc"}, compression="zstd")


CODED = LABELLED | {"categories": {name: ["no", "yes"] for name in LABELLED["features"]}}
GAPS = {"kind": "partial-vectors", "dim": 2}
ENORMOUS: dict[str, tuple[Callable[[], bytes], Format, dict[str, Any]]] = {
    "millions of coded texts": (_a_hundred_kilobytes_of_texts, "parquet", CODED),
    "nulls": (_nulls, "arrow", GAPS),
    "zeros in zstd": (_zeros, "arrow", VECTORS),
    "zeros in npz": (lambda: zipped(a_npy=npy(np.zeros((2**21, 3)))), "npz", VECTORS),
}
"""Small files that unpack to enormous tables."""


@pytest.mark.parametrize("what", ENORMOUS)
def test_a_small_file_of_an_enormous_table_is_refused_before_it_is_read(tmp_path: Path, what: str) -> None:
    """Its rows are counted: none is looked at, whatever memory and time a worker may take."""
    made, form, schema = ENORMOUS[what]
    content = made()
    assert len(content) < 2**20
    with patch.object(tables, "_block") as read, patch.object(arrays, "coded_rows") as also:
        [(record, field, rule)] = refused(tmp_path, content, form, schema, limit=2**34)
    assert not read.called
    assert not also.called
    assert (record, field) == (None, None)
    assert rule.startswith("unpacks to more than")
    assert f"a file of {len(content)} bytes" in rule
    assert "upload fewer rows at a time" in rule


def whole(table: pa.Table, form: Format) -> bytes:
    """A table as a file in one piece."""
    if form == "arrow":
        return arrow_file(table)
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_what_a_file_unpacks_to_is_counted_as_it_is_read(tmp_path: Path, form: Format) -> None:
    """The file claims less than it has."""
    content = whole(pa.table({name: np.zeros(50_000) for name in "abc"}), form)
    assert len(taken(tmp_path, content, form, VECTORS)[1]) == 50_000
    free = patch.object(room, "_FREE", 2**19), patch.object(room, "_RATIO", 0)
    with (
        free[0],
        free[1],
        patch.object(tables.Room, "require", autospec=True),
    ):  # what the file tells is believed
        assert len(taken(tmp_path, content, form, VECTORS)[1]) == 50_000
    asked, lies = room.Room.require, iter([0])

    def lied_to(self: room.Room, more: int) -> None:
        asked(self, next(lies, more))

    with free[0], free[1], patch.object(room.Room, "require", lied_to):
        [(_, _, rule)] = refused(tmp_path, content, form, VECTORS)
    assert rule.startswith("unpacks to more than")


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_long_text_that_is_said_often_is_kept_once(tmp_path: Path, form: Format) -> None:
    who = [f"{end}{'x' * 10**6}" for end in "ab"]
    codes = pa.DictionaryArray.from_arrays(pa.array(np.arange(20_000) % 2), pa.array(who))
    table = pa.table({"who": codes, "x": np.arange(20_000.0)})
    schema = {"kind": "vectors", "dim": 1, "unit": {"column": "who", "rows": 3}}
    content = whole(table, form)
    tracemalloc.start()
    try:
        assert len(taken(tmp_path, content, form, schema)[1]) == 2
        assert tracemalloc.get_traced_memory()[1] < 10**8
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_coded_columns_are_what_they_say(tmp_path: Path, form: Format) -> None:
    """Texts, numbers and gaps behind codes; entries that no row has do not count."""
    texts = pa.array(["yes", None, "no", "yes"]).dictionary_encode()
    numbers = pa.array([2.5, 1.0, None, 2.5]).dictionary_encode()
    table = pa.table({"age": numbers, "dose": range(4), "ill": texts})
    assert refused(tmp_path, table_as(table, form), form, LABELLED) == [
        (1, "ill", "must be labelled with one of the classes"),
        (2, "age", "must be finite"),
    ]
    whole = table.take([0, 3])
    rows = taken(tmp_path, table_as(whole, form), form, LABELLED)[1]
    np.testing.assert_array_equal(rows, [[2.5, 0, 1], [2.5, 3, 1]])
    odd = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["no", "yes", "neither"]))
    spare = pa.table({"age": [1.0, 2], "dose": [1.0, 2], "ill": odd})
    assert len(taken(tmp_path, table_as(spare, form), form, LABELLED)[1]) == 2


# Fuzz


@settings(max_examples=200)
@given(st.text(alphabet=st.sampled_from('12.,e-"\n\r\t x'), max_size=60))
def test_any_csv_is_records_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    directory = tmp_path_factory.getbasetemp() / "any-csv"
    directory.mkdir(exist_ok=True)
    with suppress(RefusedUploadError):
        assert np.isfinite(taken(directory, text.encode(), "csv", PAIRS, header=False)[1]).all()


def test_formats_are_known_by_their_endings() -> None:
    for name, form in {
        "a.NPY": "npy",
        "x.y.csv": "csv",
        "A.TSV": "csv",
        "a.txt": "csv",
        "a.csv.GZ": "csv",
        "a.json.gz": "json",
        "a.feather": "arrow",
        "a.parquet": "parquet",
    }.items():
        assert format_of_name(name) == form
    for name in ("a.pkl", "npy", "", ".xlsx", "a.gz"):
        assert format_of_name(name) is None


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_records_of_every_kind_are_read_in_the_dialects_that_people_have(
    tmp_path: Path, delimiter: str, encoding: str
) -> None:
    """Lines may end with a delimiter, or the header alone may."""
    for header, end in (("", ""), ("", ","), (",", ""), (",", ","), ("", ",,")):
        pairs = f"größe,b{header}\n1.5,2{end}\n3,4{end}\n".replace(",", delimiter).encode(encoding)
        np.testing.assert_array_equal(taken(tmp_path, pairs, "csv", PAIRS)[1], [[1.5, 2], [3, 4]])
        text = f"age,dose,ill{header}\n1,2,no{end}\n3,4,yes{end}\n".replace(",", delimiter)
        rows = taken(tmp_path, text.encode(encoding), "csv", LABELLED)[1]
        np.testing.assert_array_equal(rows, [[1, 2, 0], [3, 4, 1]])
    bare = f"1{delimiter}2{delimiter}\n3{delimiter}4{delimiter}\n".encode(encoding)
    np.testing.assert_array_equal(taken(tmp_path, bare, "csv", PAIRS, header=False)[1], [[1, 2], [3, 4]])


def test_cells_beyond_the_header_are_refused_unless_all_are_blank(tmp_path: Path) -> None:
    assert refused(tmp_path, b"a,b\n1,2,\n3,4,5\n", "csv", PAIRS) == [(1, None, "must have 2 columns")]
    assert refused(tmp_path, b"a,b\n1,2,7\n3,4,5\n", "csv", PAIRS) == [(0, None, "must have 2 columns")]


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_gzip_packed_is_read_as_what_is_in_it(tmp_path: Path, form: Any) -> None:
    content = rows_as(np.array([[1.0, 2.0], [3.0, 4.0]]), form)
    digest, _ = taken(tmp_path, content, form, PAIRS)
    assert taken(tmp_path, gzip.compress(content), form, PAIRS)[0] == digest
    assert refused(tmp_path, gzip.compress(content)[:-9], form, PAIRS) == [
        (None, None, f"is not a whole {form} file")
    ]


def test_a_bomb_in_gzip_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    """A small file may unpack to 32 MiB, and is refused beyond that."""
    bomb = gzip.compress(b"1,2\n" * 2**24)
    assert len(bomb) < 2**17
    ((_, _, rule),) = refused(tmp_path, bomb, "csv", PAIRS, header=False)
    assert rule.startswith(f"unpacks to more than the {2**25} bytes")
    twice = gzip.compress(bomb)
    assert "in no encoding" in refused(tmp_path, twice, "csv", PAIRS, header=False)[0][2]

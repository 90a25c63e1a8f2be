"""What people do wrong with tables, over HTTP: a clear word for each column, and nothing is stored."""

import datetime
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from testing.server import Server
from testing.uploads import table_as

Bad = tuple[bytes, str, list[dict[str, Any]], dict[str | None, str]]
"""A file, its name, the columns that are declared, and what is said of which field."""

NUMBER = {"name": "x", "type": "number"}
KIND = {"name": "kind", "type": "category", "categories": ["a", "b"]}
DAY = {"name": "day", "type": "date", "low": "2007-01-01", "high": "2009-12-31"}


def csv_of(header: str, *lines: str) -> bytes:
    return "\n".join([header, *lines, ""]).encode()


def mixed() -> bytes:
    return json.dumps([{"x": 1, "kind": "a"}, {"x": "two", "kind": 3}, {"x": [4], "kind": None}]).encode()


BAD: dict[str, Callable[[], Bad]] = {
    "names twice in the file": lambda: (
        csv_of("x,kind,x", "1,a,2", "3,b,4"),
        "rows.csv",
        [NUMBER, KIND],
        {"x": "is in the file more than once"},
    ),
    "names twice in the schema": lambda: (
        csv_of("x,kind", "1,a", "3,b"),
        "rows.csv",
        [NUMBER, NUMBER],
        {None: "columns must have different names; given twice: x"},
    ),
    "one value between bounds": lambda: (
        csv_of("x,kind", "1,a", "1,b"),
        "rows.csv",
        [NUMBER | {"low": 1, "high": 1}, KIND],
        {"x": "low must be below high: a column of one value says nothing"},
    ),
    "bounds too close for float64": lambda: (
        csv_of("x,kind", "1e17,a", "1e17,b"),
        "rows.csv",
        [NUMBER | {"low": 1e17, "high": 1e17 + 496}, KIND],
        {"x": "low and high too close for float64: they must be at least 1e+08 apart"},
    ),
    "integers too close for float64": lambda: (
        csv_of("x,kind", "5,a", "6,b"),
        "rows.csv",
        [NUMBER | {"type": "integer", "low": 10**12, "high": 10**12 + 999}, KIND],
        {"x": "they must be at least 1000 apart"},
    ),
    "bounds whose half is 0": lambda: (
        csv_of("x,kind", "0,a", "0,b"),
        "rows.csv",
        [NUMBER | {"low": 0, "high": 5e-324}, KIND],
        {"x": "they must be at least 1e-100 apart"},
    ),
    "one category": lambda: (
        csv_of("x,kind", "1,a", "1,a"),
        "rows.csv",
        [NUMBER, KIND | {"categories": ["a"]}],
        {"kind": "at least 2"},
    ),
    "a fill beyond bounds": lambda: (
        csv_of("x,kind", "1,a", "2,b"),
        "rows.csv",
        [NUMBER | {"low": 0, "high": 5, "missing": "filled", "fill": 7}, KIND],
        {"x": "fill must be from low to high"},
    ),
    "a fill before the first day": lambda: (
        csv_of("day,kind", "2008-01-01,a", "2009-01-01,b"),
        "rows.csv",
        [DAY | {"missing": "filled", "fill": "2006-12-31"}, KIND],
        {"day": "fill must be from low to high"},
    ),
    "no lines": lambda: (b"\n \n", "rows.csv", [NUMBER, KIND], {None: "has no lines"}),
    "a form of dates for numbers": lambda: (
        csv_of("x,kind", "1,a", "2,b"),
        "rows.csv",
        [NUMBER | {"format": "dd.mm.yyyy"}, KIND],
        {"x": "format belongs to dates"},
    ),
    "dates of another form": lambda: (
        csv_of("day,kind", "13.1.2008,a", "1.2.2008 07:30,b", "2008-01-13,a", "32.1.2008,a", "1.2.08,b"),
        "rows.csv",
        [DAY, KIND],
        {"day": 'not ISO in 4 rows; "format": "dd.mm.yyyy" fits 2 of them (first in line 2)'},
    ),
    "dates that are of two forms": lambda: (
        csv_of("day,kind", "1/2/2008,a", "1/13/2008,b", "2/1/2008,a", "13/1/2008,a"),
        "rows.csv",
        [DAY | {"format": "dd.mm.yyyy"}, KIND],
        {
            "day": 'neither ISO nor dd.mm.yyyy in 4 rows; "format": "mm/dd/yyyy" fits 3 of them, '
            '"format": "dd/mm/yyyy" fits 3 of them (first in line 2)'
        },
    ),
    "days that no calendar has": lambda: (
        csv_of("day,x", "2007-02-31,1", "10000-01-01,1", "2007-11-11,1"),
        "rows.csv",
        [DAY, NUMBER],
        {"day": "not ISO in 2 rows; 2007-11-11 is (first in line 2)"},
    ),
    "bounds that no calendar has": lambda: (
        csv_of("day,x", "2007-02-03,1", "2007-11-11,1"),
        "rows.csv",
        [DAY | {"high": "2009-13-01"}, NUMBER],
        {"day": "high must be a date such as 2007-11-11"},
    ),
    "categories that nobody declared": lambda: (
        csv_of("x,kind", "1,a", "1,c", "1,A"),
        "rows.csv",
        [NUMBER, KIND],
        {"kind": "none of the categories in 2 rows; declare them all (first in line 3)"},
    ),
    "mixed types": lambda: (
        mixed(),
        "rows.json",
        [NUMBER, KIND],
        {"x": "text in 2 rows; declare categories", "kind": "none of the categories in 1 row"},
    ),
    "ten thousand columns in the schema": lambda: (
        csv_of("x", "1", "2"),
        "rows.csv",
        [NUMBER | {"name": f"c{at}"} for at in range(10_000)],
        {"columns": "at most 2000"},
    ),
    "ten thousand columns in the file": lambda: (
        csv_of(",".join(f"c{at}" for at in range(10_000)), ",".join(["0"] * 10_000)),
        "rows.csv",
        [NUMBER, KIND],
        {"x": "is not in the file", "kind": "is not in the file"},
    ),
    "control characters in the schema": lambda: (
        csv_of("x,kind", "1,a", "1,b"),
        "rows.csv",
        [NUMBER | {"name": "x\x1b[31m"}, KIND],
        {"columns.0.name": "must be of one line, without control characters"},
    ),
    "control characters in the file": lambda: (
        csv_of("x\x1b[31m,kind", "1,a", "1,b"),
        "rows.csv",
        [NUMBER, KIND],
        {"x": "is not in the file"},
    ),
    "an index that is data": lambda: (
        csv_of(",kind", "0,a", "1,b"),  # as to_csv writes it
        "rows.csv",
        [NUMBER, KIND],
        {"x": "is not in the file"},
    ),
}


@pytest.fixture
def backend() -> str:
    """One database: nothing reaches it."""
    return "sqlite"


@pytest.mark.parametrize("bad", BAD)
def test_each_column_is_told_and_nothing_is_stored(server: Server, bad: str) -> None:
    owner = server.owner(1.0)
    content, name, columns, said = BAD[bad]()
    answer = owner.upload(content, {"kind": "table", "columns": columns}, name)
    assert answer.status_code == 422, answer.text
    found = [(each.get("field") or each.get("location"), each["rule"]) for each in answer.json()["faults"]]
    for field, words in said.items():
        assert any(field == where and words in rule for where, rule in found), found
    assert owner.get("/v1/datasets").json()["datasets"] == []


def test_a_day_beyond_its_bounds_is_drawn_in_to_them_however_far(server: Server) -> None:
    """It is no fault, as bounds are clips: a fault would tell an analyst nothing, and an owner too late."""
    far = pa.array(np.array([2**62, -(2**62), 0, 10**9], dtype=np.int64), pa.timestamp("s"))
    owner = server.owner(50.0, delta=1e-4)
    made = owner.upload(
        table_as(pa.table({"day": far}), "arrow"), {"kind": "table", "columns": [DAY]}, "d.arrow"
    )
    assert made.status_code == 201, made.text
    asked = owner.estimate(made.json()["id"], epsilon=20.0).json()
    (day,) = asked["estimate"]["columns"]
    assert "2007-01-01" <= day["low"] <= day["value"] <= day["high"] <= "2009-12-31"
    unbounded = [{"name": "day", "type": "date", "missing": "filled", "fill": "9999-12-31"}]
    content = io.BytesIO(csv_of("day,x", "0001-01-01,1", "9999-12-31,1", "NA,2")).read()
    made = owner.upload(content, {"kind": "table", "columns": unbounded}, "d.csv")
    assert made.status_code == 201, made.text
    assert datetime.date.fromisoformat(
        owner.get(f"/v1/datasets/{made.json()['id']}/dummy").json()["rows"][0]["day"]
    )

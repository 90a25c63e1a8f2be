"""Names that callers give: printable characters alone, wherever one may be given."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from testing.server import SPD3, Caller, Server, npy, problem, spd

UNPRINTABLE = {
    "C0": "\x1b[31mred",
    "C1": "a\x9b31mred",
    "turned around": "gnp\u202ecod",
    "zero width": "ad\u200bmin",
    "line separator": "a\u2028b",
    "byte-order mark": "\ufeffage",
}
PRINTABLE = ("[/x]", "[link=https://example.org]here[/link]", "Bäume 木 🌳", "10\u00a0000 rows", "a\\b'\"<i>")

TABLE = {
    "kind": "table",
    "columns": [
        {"name": "age", "type": "number", "low": 0, "high": 100},
        {"name": "group", "type": "category", "categories": ["a", "b"]},
    ],
    "unit": {"column": "who", "rows": 2},
}
LABELLED = {"kind": "labelled", "features": ["x"], "label": "y", "classes": ["a", "b"]}


@pytest.fixture
def backend() -> str:
    """What is refused comes to no database."""
    return "sqlite"


def _table(**changed: Any) -> dict[str, Any]:
    """A schema of a table, with other fields of its columns: `0_name` is the name of the first."""
    table = json.loads(json.dumps(TABLE))
    for place, value in changed.items():
        number, _, field = place.partition("_")
        table["columns"][int(number[1:])][field] = value
    return table


def _uploaded(owner: Caller, schema: object, **form: str) -> httpx.Response:
    file = {"file": ("rows.csv", b"age,group,who,x,y\n1,a,w,1,a\n2,b,v,2,b\n")}
    return owner.post("/v1/datasets", files=file, data={"schema": json.dumps(schema)} | form)


def _offered(owner: Caller, **body: Any) -> httpx.Response:
    return owner.put(f"/v1/sites/datasets/ds_{next(_fresh)}", json={"n": 9, "schema": SPD3} | body)


def _named(owner: Caller, name: str) -> httpx.Response:
    rows = {"file": ("rows.npy", npy(spd(9)))}
    return owner.post("/v1/datasets", files=rows, data={"schema": json.dumps(SPD3), "name": name})


def _granted(owner: Caller, purpose: str) -> httpx.Response:
    return owner.put(f"/v1/datasets/{owner.dataset(spd(9))}/grants/{owner.id}", json={"purpose": purpose})


_fresh = count()
_BUDGET = {"epsilon": 1.0, "delta": 1e-5}
_FILES = {"kind": "files", "root": "/usr"}

FIELDS: dict[str, Callable[[Caller, str], httpx.Response]] = {
    "owner": lambda it, name: it.server.admin.post("/v1/owners", json={"name": name, "budget": _BUDGET}),
    "analyst": lambda it, name: it.server.admin.post("/v1/analysts", json={"name": name}),
    "connection": lambda it, name: it.server.admin.post("/v1/connections", json=_FILES | {"name": name}),
    "dataset": _named,
    "dataset behind a connection": lambda it, name: it.post(
        "/v1/datasets", json={"uri": "none:x", "schema": SPD3, "name": name}
    ),
    "dataset at a site": lambda it, name: _offered(it, name=name),
    "column": lambda it, name: _uploaded(it, _table(c0_name=name)),
    "category": lambda it, name: _uploaded(it, _table(c1_categories=["a", name])),
    "column of the unit": lambda it, name: _uploaded(it, TABLE | {"unit": {"column": name, "rows": 2}}),
    "feature": lambda it, name: _uploaded(it, LABELLED | {"features": [name]}),
    "label": lambda it, name: _uploaded(it, LABELLED | {"label": name}),
    "class": lambda it, name: _uploaded(it, LABELLED | {"classes": ["a", name]}),
    "column at a site": lambda it, name: _offered(it, schema=_table(c0_name=name)),
    "channel": lambda it, name: it.post(
        f"/v1/owners/{it.id}/channels", json={"kind": "file", "name": name, "events": ["budget.spent"]}
    ),
    "publication": lambda it, name: it.put(f"/v1/published/{quote(name)}", json={"job": "job_x"}),
    "tag": lambda it, name: it.estimate("ds_none", tag=name),
    "purpose of a grant": _granted,
    "refusal of a site": lambda it, name: it.post(
        "/v1/sites/questions/job_x/decision", json={"decision": "refuse", "reason": name}
    ),
}
"""Everything that a caller names or says in words, by what it is."""

_ANY = ("owner", "analyst", "dataset", "dataset at a site")
"""Names that may be of any printable characters, and are given here with nothing else amiss."""


@pytest.mark.parametrize("field", FIELDS)
def test_a_name_that_cannot_be_shown_as_it_is_is_refused(server: Server, field: str) -> None:
    owner = server.owner()
    for kind, name in UNPRINTABLE.items():
        answer = FIELDS[field](owner, name)
        if field == "publication":  # whose name is in the path, where nothing has such a one
            problem(answer, 404, "not-found")
        else:
            problem(answer, 422, "invalid")
            assert "faults" in answer.json(), (kind, answer.text)
        assert name not in answer.text


@pytest.mark.parametrize("field", _ANY)
def test_a_name_is_of_any_printable_characters(server: Server, field: str) -> None:
    owner = server.owner()
    for name in PRINTABLE:
        answer = FIELDS[field](owner, name)
        assert answer.status_code in (200, 201), (name, answer.text)
        assert answer.json()["name"] == name


def test_the_place_of_a_name_in_a_schema_is_told(server: Server) -> None:
    told = problem(FIELDS["category"](server.owner(), "a\u200b"), 422, "invalid")
    rule = "must be of one line, without characters that nobody sees"
    assert told["faults"] == [{"location": "schema.columns.1.categories.1", "rule": rule}]

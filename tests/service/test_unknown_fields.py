"""Query parameters and form fields that no route declares are refused, on every route of the interface."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import yaml

from audit import access, served
from testing import ROOT
from testing.server import SPD3, Caller, Server, npy, problem, spd

DOCUMENT = yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader)
OPERATIONS = {operation.name: operation for operation in access.operations()}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A service of these tests, in which the audit plants a fault."""
    with served.alone() as server:
        yield server


def _described(name: str) -> dict[str, Any]:
    operation = OPERATIONS[name]
    return DOCUMENT["paths"][operation.path][operation.method.lower()]


def _query(name: str) -> dict[str, dict[str, Any]]:
    """The query parameters of an operation by name, as openapi.yaml has them."""
    return {each["name"]: each for each in _described(name).get("parameters", []) if each["in"] == "query"}


def _called(server: Server, name: str, *query: tuple[str, str]) -> httpx.Response:
    """Call an operation as the administrator, whose key has every scope, about things that do not exist."""
    operation = OPERATIONS[name]
    path = operation.path.replace("{number}", "0").replace("{", "").replace("}", "")
    return server.admin.request(operation.method, f"{path}?{urlencode(query)}")


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_unknown_query_parameter_is_refused_by_name_beside_the_known_ones(
    server: Server, name: str
) -> None:
    known = sorted(_query(name))
    listed = f"use {', '.join(known)}" if known else "this path takes none"
    answer = problem(_called(server, name, ("some-limit", "1")), 422, "invalid")
    rule = f"is not a known query parameter: {listed}"
    assert answer["faults"] == [{"location": "some-limit", "rule": rule}]
    answer = problem(_called(server, name, ("Anna of 1987", "1")), 422, "invalid")
    assert answer["faults"] == [{"location": "(a field not in lower-case words)", "rule": rule}]


@pytest.mark.parametrize("name", [name for name in OPERATIONS if _query(name)])
def test_a_query_parameter_that_counts_once_is_given_once(server: Server, name: str) -> None:
    for parameter, described in _query(name).items():
        kinds = {
            described["schema"].get("type"),
            *(x.get("type") for x in described["schema"].get("anyOf", ())),
        }
        answer = _called(server, name, (parameter, "1"), (parameter, "2"))
        twice = {"location": parameter, "rule": "is given more than once"}
        assert (twice in answer.json().get("faults", [])) == ("array" not in kinds), parameter


FORMS = [
    name
    for name in OPERATIONS
    if "multipart/form-data" in _described(name).get("requestBody", {}).get("content", {})
]


def _uploaded(owner: Caller, name: str, form: dict[str, Any]) -> httpx.Response:
    file = ("rows.npy", npy(spd(9)), "application/octet-stream")
    operation = OPERATIONS[name]
    data = {"schema": json.dumps(SPD3)} | form
    return owner.request(operation.method, operation.path, files={"file": file}, data=data)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("wrong", ["rows-of", "rowsof", "rows", "owner_id"])
def test_an_unknown_form_field_is_refused_by_name_beside_the_known_ones(
    server: Server, name: str, wrong: str
) -> None:
    owner = server.owner()
    first = owner.dataset(spd(9))
    answer = problem(_uploaded(owner, name, {wrong: first}), 422, "invalid")
    schema = _described(name)["requestBody"]["content"]["multipart/form-data"]["schema"]["$ref"]
    fields = DOCUMENT["components"]["schemas"][schema.rpartition("/")[2]]["properties"]
    rule = f"is not a known form field: use {', '.join(sorted(fields))}"
    assert answer["faults"] == [{"location": wrong, "rule": rule}]
    assert [each["id"] for each in owner.get("/v1/datasets").json()["datasets"]] == [first]
    assert _uploaded(owner, name, {"rows_of": first}).json()["rows_of"] == first


@pytest.mark.parametrize("name", FORMS)
def test_a_form_field_is_given_once(server: Server, name: str) -> None:
    answer = problem(_uploaded(server.owner(), name, {"name": ["one", "two"]}), 422, "invalid")
    assert answer["faults"] == [{"location": "name", "rule": "is given more than once"}]


def test_forms_are_among_the_operations() -> None:
    assert FORMS == ["create_dataset", "upload_dataset"]

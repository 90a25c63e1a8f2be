"""What a wrong request is told: the field by its own name, the rule in plain words, what would be right."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from privest import manifolds
from privest_service.connections.schemas import NEW_CONNECTION
from privest_service.datasets.schemas import SCHEMA
from privest_service.datasets.submissions import NewHandle
from privest_service.estimates.catalogue import KINDS
from privest_service.ledger.schemas import NewOwner
from privest_service.validation import faults_of
from testing.server import Server, problem

SPHERE = {"name": "sphere", "dim": 2}
POINTS = {"kind": "points", "manifold": SPHERE}
LABELLED = {"kind": "labelled", "features": ["a"], "label": "b", "classes": ["0", "1"]}
ASK = {"dataset": {"id": "ds_1"}, "privacy": {"epsilon": 1}}

CHECKS = {
    "schema": SCHEMA.validate_python,
    "handle": NewHandle.model_validate,
    "connection": NEW_CONNECTION.validate_python,
    "owner": NewOwner.model_validate,
    **{name: kind.request.model_validate for name, kind in KINDS.items()},
}
MANIFOLDS = ", ".join(manifolds.MANIFOLDS)
KINDS_OF_DATA = "must be one of: points, vectors, partial-vectors, labelled, table"

WRONG: list[tuple[str, Any, list[tuple[str | None, str]]]] = [
    (
        "schema",
        POINTS | {"manifold": "sphere"},
        [("manifold", 'must look like {"name": "sphere", "dim": 3}')],
    ),
    ("schema", POINTS | {"manifold": {"name": "globe"}}, [("manifold.name", f"must be one of: {MANIFOLDS}")]),
    ("schema", POINTS | {"manifold": {"dim": 3}}, [("manifold.name", "is missing")]),
    ("schema", POINTS | {"manifold": SPHERE | {"dim": "3"}}, [("manifold.dim", "must be a whole number")]),
    ("schema", POINTS | {"manifold": SPHERE | {"dim": 1}}, [("manifold.dim", "must be at least 2")]),
    (
        "schema",
        POINTS | {"raw": {"transform": "x"}},
        [("raw.transform", "must be one of: covariance-descriptor, window-covariance")],
    ),
    ("schema", {"kind": "points"}, [("manifold", "is missing")]),
    ("schema", {"kind": "dots"}, [("kind", KINDS_OF_DATA)]),
    ("schema", {}, [("kind", "is missing")]),
    ("schema", [], [(None, 'must look like {"kind": "vectors", "dim": 5}')]),
    ("schema", {"kind": "vectors", "dim": 2, "norm": 1}, [("norm", "is not a known field")]),
    (
        "schema",
        {"kind": "vectors", "dim": 2, "Anna of 1987": 1},
        [("(a field not in lower-case words)", "is not a known field")],
    ),
    (
        "schema",
        {"kind": "vectors", "dim": 2, "a" * 41: 1},
        [("(a field not in lower-case words)", "is not a known field")],
    ),
    ("schema", LABELLED | {"classes": ["0"]}, [("classes", "must have at least 2 parts")]),
    ("schema", LABELLED | {"scale": [0]}, [("scale.0", "must be above 0")]),
    ("schema", LABELLED | {"features": "a"}, [("features", "must be a list")]),
    ("robust-pca", {}, [("dataset", "is missing"), ("privacy", "is missing"), ("rank", "is missing")]),
    ("robust-pca", ASK | {"dataset": "ds_1", "rank": 2}, [("dataset", 'must look like {"id": "ds_1a2b3c"}')]),
    (
        "robust-pca",
        ASK | {"dataset": {"id": 5}, "rank": "2"},
        [("dataset.id", "must be a text"), ("rank", "must be a whole number")],
    ),
    ("robust-pca", ASK | {"dataset": [{"id": 5}], "rank": 2}, [("dataset.0.id", "must be a text")]),
    (
        "robust-pca",
        ASK | {"dataset": [{"id": "a"}] * 2, "rank": 2},
        [("dataset", "must name each dataset once")],
    ),
    ("robust-pca", ASK | {"privacy": 1, "rank": 2}, [("privacy", 'must look like {"epsilon": 0.5}')]),
    ("robust-pca", ASK | {"privacy": {"epsilon": 0}, "rank": 2}, [("privacy.epsilon", "must be above 0")]),
    (
        "robust-pca",
        ASK | {"dataset": {"inline": {"schema": {"kind": "vectors"}, "rows": [1, 2]}}, "rank": 2},
        [("dataset.inline.schema.dim", "is missing")],
    ),
    (
        "logistic-regression",
        ASK | {"solver": "sgd"},
        [
            (
                "solver",
                "must be one of: newton, clipped, escape, spider, "
                "gd, gd-opt, hb, hb-opt, nag, nag-opt, masg, masg-opt",
            )
        ],
    ),
    ("connection", {"kind": "zip"}, [("kind", "must be one of: files, object-store, database")]),
    (
        "connection",
        {"kind": "object-store", "name": "a", "url": "s3://x", "options": {"a": [1]}},
        [("options.a", "must be a text")],
    ),
    ("handle", {"uri": "a:b", "schema": {"kind": "dots"}}, [("schema.kind", KINDS_OF_DATA)]),
    (
        "owner",
        {"name": "", "budget": 3},
        [("name", "must not be empty"), ("budget", 'must look like {"epsilon": 3, "delta": 1e-05}')],
    ),
    (
        "owner",
        {"name": "x", "budget": {"epsilon": 1, "delta": 1, "composition": "rdp"}},
        [("budget.delta", "must be below 1"), ("budget.composition", "must be one of: gdp, basic")],
    ),
]


@pytest.mark.parametrize(("what", "given", "told"), WRONG, ids=str)
def test_a_fault_names_its_field_and_says_what_would_be_right(
    what: str, given: Any, told: list[tuple[str | None, str]]
) -> None:
    with pytest.raises(ValidationError) as error:
        CHECKS[what](given)
    assert [(fault.location, fault.rule) for fault in faults_of(error.value.errors(), given)] == told


ROUTES = {
    "owner": "/v1/owners",
    "connection": "/v1/connections",
    **{name: f"/v1/estimates/{name}/plan" for name in ("robust-pca", "logistic-regression")},
}
SENT = [(what, given, told) for what, given, told in WRONG if what in ROUTES]
PADDINGS = pytest.mark.parametrize("padding", [b"", b" " * 20_000], ids=["short", "long"])
"""Bodies short and long. Long ones are read by code of our own, in a thread."""


@PADDINGS
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_body_of_any_length_is_told_the_same(server: Server, padding: bytes) -> None:
    owner, kind = server.owner(), {"Content-Type": "application/json"}
    for what, given, told in SENT:
        caller = owner if ROUTES[what].startswith("/v1/estimates") else server.admin
        sent = caller.post(ROUTES[what], content=padding + json.dumps(given).encode(), headers=kind)
        faults = problem(sent, 422, "invalid")["faults"]
        assert [(fault.get("location"), fault["rule"]) for fault in faults] == told, given


@PADDINGS
def test_the_same_is_answered(server: Server, padding: bytes) -> None:
    owner = server.owner()
    asked = owner.post("/v1/estimates/frechet-mean/plan", json=ASK | {"dataset": "ds_1"})
    (fault,) = problem(asked, 422, "invalid")["faults"]
    assert fault == {"location": "dataset", "rule": 'must look like {"id": "ds_1a2b3c"}'}
    (fault,) = problem(owner.upload(b"", POINTS | {"manifold": "sphere"}), 422, "invalid")["faults"]
    assert fault["location"] == "manifold"
    (fault,) = problem(owner.get(f"/v1/owners/{owner.id}/ledger?limit=many"), 422, "invalid")["faults"]
    assert fault == {"location": "limit", "rule": "must be a whole number"}
    for content, kind, rule in (
        (b"{}", "application/x-www-form-urlencoded", "sent with the header Content-Type: application/json"),
        (b"{", "application/json", "is not JSON"),
        (b"", "application/json", "the body is missing"),
        (b"[]", "application/json", "must be an object"),
    ):
        sent = owner.post(
            "/v1/estimates/robust-pca/plan",
            content=content and padding + content,
            headers={"Content-Type": kind},
        )
        (fault,) = problem(sent, 422, "invalid")["faults"]
        assert "location" not in fault
        assert rule in fault["rule"]
    table = owner.upload(b"1,2\n3,4\n", "{kind: vectors}", "rows.csv")
    (fault,) = problem(table, 422, "invalid")["faults"]
    assert fault == {"location": "schema", "rule": "is not JSON, or names a field twice"}
    files, data = {"file": ("a.csv", b"1,2\n")}, {"schema": "{}", "header": "yes"}
    (fault,) = problem(owner.post("/v1/datasets", files=files, data=data), 422, "invalid")["faults"]
    assert fault == {"location": "header", "rule": "must be one of: true, false"}
    form = owner.post("/v1/datasets", files={"schema": (None, "{}")})
    told = problem(form, 422, "invalid")["faults"]
    assert {"location": "file", "rule": "is missing"} in told

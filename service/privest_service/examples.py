"""Examples of the interface: a body for every call that takes one, and a value for every parameter."""

import json
from dataclasses import MISSING, fields
from typing import Any, get_origin

from fastapi import FastAPI

from privest.options import Doc, Option, declared
from privest_service.declarations import example_of_list
from privest_service.estimates.catalogue import KINDS, Kind

_DATASET = "ds_3f9a1c5e7b2d4f60"
_ANALYST = "an_5c0e8d2b6a914f73"
_OWNER = "own_7d1b3f5a9c2e4860"
_JOB = "job_b4d6f8091a2c3e5f"

_PARAMETERS: dict[str, Any] = {
    "dataset_id": _DATASET,
    "analyst_id": _ANALYST,
    "owner_id": _OWNER,
    "job_id": _JOB,
    "key_id": "key_91b3d5f70c2e4a68",
    "channel_id": "chn_0a2c4e6f8b1d3957",
    "name": "warehouse",
    "limit": 50,
    "idempotency-key": "0b9f2a51-6a0e-4c1f-9d59-3d3a6f1f2f10",
    "prefer": "wait=30",
    "Privest-Reason": "asked for by the ethics board",
    "n": 100,
    "state": ["committed"],
    "dataset": _DATASET,
    "since": "2026-11-01T00:00:00Z",
    "until": "2026-12-01T00:00:00Z",
    "window": 1,
    "kind": "grant.made",
    "actor": _OWNER,
    "text": "board",
    "tag": "beaks, second try",
    "number": 0,
    "label": "gradient",
    "wait": 10.0,
    "mark": "",
    "ending": "csv",
}
"""A value of each parameter, by its name, which means the same in all calls; others have defaults."""

_NUMBERS = [0.4, -0.2]
"""What stands for an option without a usual value that is no list of options: those are lists of numbers."""

_VECTORS = {"kind": "vectors", "dim": 5, "norm_bound": 2.0}
_BUDGET = {"epsilon": 3.0, "delta": 1e-5}

_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_RECEIPT = {
    "statement": {
        "job": _JOB,
        "kind": "robust-pca",
        "dataset": _DATASET,
        "adjacency": "replace-one",
        "entries": [],
        "commitments": [_DIGEST],
        "plan": _DIGEST,
        "answer": _DIGEST,
        "at": "2026-11-01T00:00:00+00:00",
    },
    "signature": "c2lnbmVk",
    "public_key": "a2V5",
}

_BODIES: dict[str, Any] = {
    "create_owner": {"name": "City hospital", "budget": _BUDGET},
    "create_analyst": {"name": "Ada"},
    "issue_owner_key": {"scopes": ["read"], "expires_in": 86_400},
    "issue_analyst_key": {"scopes": ["read", "estimate"], "expires_in": 86_400},
    "create_connection": {"name": "warehouse", "kind": "files", "root": "/srv/tables"},
    "create_dataset": {"uri": "warehouse:penguins.csv", "name": "penguins", "schema": _VECTORS},
    "put_grant": {**_BUDGET, "purpose": "a study of beaks", "max_epsilon": 0.5},
    "publish_answer": {"job": _JOB, "readers": [_ANALYST], "sql": True},
    "put_cap": _BUDGET,
    "decide_on_job": {"decision": "approve"},
    "change_budget": {"frozen": True},
    "offer_dataset": {"name": "penguins", "n": 333, "schema": _VECTORS},
    "decide_at_site": {"decision": "accept"},
    "exchange_answer": "8 bytes ",
    "end_at_site": {"receipt": _RECEIPT},
    "create_channel": {"kind": "webhook", "url": "https://example.org/privest", "events": ["budget.spent"]},
    "create_analyst_channel": {"kind": "webhook", "url": "https://example.org/privest"},
}

_ROWS = "bill,flipper\n39.1,181\n46.5,217\n"
_PLANE = {"kind": "vectors", "dim": 2}
_FORMS: dict[str, Any] = {
    "create_dataset": {"file": _ROWS, "name": "penguins", "schema": json.dumps(_PLANE)},
    "upload_dataset": {"file": _ROWS, "name": "penguins", "schema": _PLANE},
}

_ANSWERS: dict[str, Any] = {
    "me": {"role": "analyst", "id": _ANALYST},
    "list_requests": {"requests": []},
    "read_keys": {"keys": []},
    "healthz": {"status": "ok"},
    "readyz": {"status": "ok"},
    "read_metrics": "# TYPE privest_requests_total counter\n",
}
"""What is answered where nothing is asked with."""


def _question(kind: Kind) -> dict[str, Any]:
    """A question of one kind, with what it cannot do without."""
    spec = kind.estimator.spec
    types = declared(spec)
    needed = [each.name for each in fields(spec) if each.default is MISSING]
    chosen = {name: _value(*types[name]) for name in needed}
    return {"dataset": {"id": _DATASET}, "privacy": {"epsilon": 0.5}, **chosen}


def _value(hint: object, doc: Doc) -> Any:
    """A value of an option that every question of its kind makes."""
    if get_origin(hint) is tuple:
        return example_of_list(hint)
    usual = doc.usual if isinstance(doc, Option) else None
    return _NUMBERS if usual is None else usual


def _bodies() -> dict[str, Any]:
    asked = {kind.name: _question(kind) for kind in KINDS.values()}
    questions = {"questions": [{"kind": name, "body": body} for name, body in list(asked.items())[:2]]}
    found = {**_BODIES, "plan_workload": questions, "estimate_workload": questions}
    for name, body in asked.items():
        called = name.replace("-", "_")
        found |= {f"plan_{called}": body, f"estimate_{called}": body}
    return found


def install(app: FastAPI) -> None:
    """Put an example of each call into the interface."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        document, bodies = plain(), _bodies()
        for operation in (each for item in document["paths"].values() for each in item.values()):
            name = operation["operationId"]
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in _PARAMETERS:
                    parameter["example"] = _PARAMETERS[parameter["name"]]
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                content["example"] = (_FORMS if media.startswith("multipart") else bodies)[name]
            if name in _ANSWERS:
                (content,) = operation["responses"]["200"]["content"].values()
                content["example"] = _ANSWERS[name]
        return document

    app.openapi = openapi

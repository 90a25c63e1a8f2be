"""Who may call what: every operation of openapi.yaml by every role, and what refusals tell."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import yaml

from audit import served
from audit.lines import Finding, Line, Section
from audit.questions import needed, schemas, usual
from privest.arrays import Array
from privest.data.metadata import DatasetMetadata
from privest_service.datasets.schemas import SCHEMA
from privest_service.estimates.catalogue import KINDS
from privest_service.ledger.receipts import Receipt, Statement, digest_of, for_analyst
from testing.server import SIGNER, SPD3, Caller, Server, body_of, npy, until

ROLES = ("admin", "owner", "other owner", "granted", "stranger", "nobody")
"""Callers of the audit. The owner holds the dataset; the granted analyst holds its grant and the job."""

FOREIGN = ("admin", "other owner", "stranger", "nobody")
"""Callers who cannot know whether a dataset or a job exists."""

_METHODS = ("get", "put", "post", "delete", "patch")
_BUDGET = {"epsilon": 1.0, "delta": 1e-5}

_EVERYBODY = (200,) * 6
_WITH_A_KEY = (200, 200, 200, 200, 200, 401)
_READERS = (404, 200, 404, 200, 404, 401)
_ASKERS = (403, 200, 404, 200, 404, 401)
_SITES = (403, 200, 200, 403, 403, 401)
_UPLOADERS = (403, 201, 201, 403, 403, 401)


def _owner(status: int) -> tuple[int, ...]:
    """Statuses by caller where only the owner may act; the granted analyst knows of the dataset."""
    return (404, status, 404, 403, 404, 401)


def _account(status: int) -> tuple[int, ...]:
    """An owner about itself, or the administrator."""
    return (status, status, 404, 403, 403, 401)


def _analyst(status: int) -> tuple[int, ...]:
    """An analyst about itself, or the administrator."""
    return (status, 403, 403, status, 404, 401)


def _admin(status: int) -> tuple[int, ...]:
    return (status, 403, 403, 403, 403, 401)


# What each role, in the order of ROLES, is answered by an operation.
TABLE: Mapping[str, tuple[int, ...]] = {
    "healthz": _EVERYBODY,
    "readyz": _EVERYBODY,
    "read_keys": _WITH_A_KEY,
    "me": _WITH_A_KEY,
    "read_metrics": _admin(200),
    "list_owners": _admin(200),
    "list_analysts": _admin(200),
    "list_owner_keys": _account(200),
    "list_analyst_keys": _analyst(200),
    "read_acts": _WITH_A_KEY,
    "list_datasets": _WITH_A_KEY,
    "create_dataset": _UPLOADERS,
    "upload_dataset": _UPLOADERS,
    "read_dataset": _READERS,
    "read_dummy": _READERS,
    "delete_dataset": _owner(204),
    "put_grant": _owner(200),
    "delete_grant": _owner(204),
    "put_cap": _owner(200),
    "create_owner": _admin(201),
    "create_analyst": _admin(201),
    "issue_owner_key": _account(201),
    "revoke_owner_key": _account(204),
    "issue_analyst_key": _analyst(201),
    "revoke_analyst_key": _analyst(204),
    "list_connections": (200, 200, 200, 403, 403, 401),
    "create_connection": _admin(201),
    "delete_connection": _admin(204),
    "assign_connection": _admin(204),
    "withdraw_connection": _admin(204),
    "read_grant": (404, 200, 404, 200, 404, 401),
    "list_grants": (403, 200, 200, 200, 200, 401),
    "read_job": _READERS,
    "list_jobs": (403, 200, 200, 200, 200, 401),
    "list_requests": (403, 200, 200, 403, 403, 401),
    "decide_on_job": (404, 200, 404, 403, 404, 401),
    "withdraw_job": (404, 403, 404, 200, 404, 401),
    "list_published": _WITH_A_KEY,
    "read_published": _READERS,
    "read_published_file": _READERS,
    "publish_answer": (403, 404, 404, 200, 404, 401),
    "withdraw_published": (403, 204, 404, 204, 404, 401),
    "read_receipt": _READERS,
    "read_model": (404, 404, 404, 200, 404, 401),
    "watch_job": _READERS,
    "read_budget": _account(200),
    "change_budget": _account(200),
    "create_channel": _account(201),
    "list_channels": _account(200),
    "test_channel": _account(204),
    "delete_channel": _account(204),
    "create_analyst_channel": _analyst(201),
    "list_analyst_channels": _analyst(200),
    "test_analyst_channel": _analyst(204),
    "delete_analyst_channel": _analyst(204),
    "read_ledger": _account(200),
    "read_heads": _account(200),
    "export_ledger": _account(200),
    "read_report": _account(200),
    "offer_dataset": _SITES,
    "list_site_questions": _SITES,
    "decide_at_site": (403, 200, 404, 403, 403, 401),
    "exchange_answer": (403, 200, 404, 403, 403, 401),
    "end_at_site": (403, 204, 404, 403, 403, 401),
    "plan_workload": _ASKERS,
    "estimate_workload": (403, 202, 404, 202, 404, 401),
} | {f"{verb}_{kind.replace('-', '_')}": _ASKERS for verb in ("estimate", "plan") for kind in KINDS}


@dataclass(frozen=True)
class Operation:
    """An operation of openapi.yaml.

    Attributes:
        name: its operationId.
        method: of HTTP.
        path: with names in braces.
    """

    name: str
    method: str
    path: str


def operations() -> list[Operation]:
    """All of them."""
    document = yaml.load(Path("openapi.yaml").read_text(), yaml.CSafeLoader)
    return [
        Operation(item[method]["operationId"], method.upper(), path)
        for path, item in document["paths"].items()
        for method in _METHODS
        if method in item
    ]


_fresh = count()


class Scene:
    """Everybody around one owner's datasets, one of each kind, and a job of the granted analyst.

    Args:
        server: on which it is played.
        rows: of a dataset.
    """

    def __init__(self, server: Server, rows: Callable[[DatasetMetadata], Array] = usual) -> None:
        self._server, self._rows = server, rows
        self._owner, self._granted, nobody = server.owner(epsilon=50.0), server.analyst(), server.analyst()
        nobody.headers.clear()
        people = (server.admin, self._owner, server.owner(), self._granted, server.analyst(), nobody)
        self.people: dict[str, Caller] = dict(zip(ROLES, people, strict=True))
        self.datasets = {kind.dataset_kind: self._dataset(kind.dataset_kind) for kind in KINDS.values()}
        self.names = {"owner_id": self._owner.id, "analyst_id": self._granted.id}
        job = self._granted.estimate(self.datasets["points"], epsilon=0.01, delta=1e-7)
        self.names["job_id"] = job.json()["id"]
        self._at_present = list[tuple[Caller, str]]()
        self._receipt = dict[str, Any]()

    def _dataset(self, kind: str) -> str:
        schema = schemas(kind)[0]
        dataset = self._owner.dataset(self._rows(SCHEMA.validate_python(schema).shape(2)), schema)
        self._owner.grant(dataset, self._granted, publish="allowed")
        return dataset

    def _published(self) -> str:
        """The name of an answer to the granted analyst that is published for nobody else."""
        name = f"published_{next(_fresh)}"
        job = self._granted.estimate(self.datasets["points"], epsilon=0.01, delta=1e-7, reuse=False).json()[
            "id"
        ]
        self._granted.put(f"/v1/published/{name}", json={"job": job})
        return name

    def _request(self) -> str:
        """A new question that waits for the owner's approval, on rows of its own."""
        dataset = self._dataset("points")
        self._owner.grant(dataset, self._granted, approval="required")
        return self._granted.estimate(dataset, epsilon=0.01, delta=1e-7).json()["id"]

    def _at_sites(self, *owners: Caller) -> list[dict[str, Any]]:
        """Ask a new question of the sites of these owners, which are not there; return what each is told."""
        for owner, job_id in self._at_present:  # no more may wait than an analyst is allowed
            owner.post(f"/v1/sites/questions/{job_id}/decision", json={"decision": "refuse"})
        offered = list[str]()
        for owner in owners:
            made = owner.put(f"/v1/sites/datasets/ds_{next(_fresh)}", json={"n": 60, "schema": SPD3})
            offered.append(made.json()["id"])
            owner.grant(offered[-1], self._granted)
        asked = {"dataset": [{"id": each} for each in offered], "privacy": {"epsilon": 0.01, "delta": 1e-7}}
        headers = {"Idempotency-Key": f"once {next(_fresh)}"}
        ask = partial(self._granted.post, "/v1/estimates/frechet-mean", headers=headers, json=asked)
        answer = until(lambda: told if (told := ask()).status_code != 503 else None)
        if answer.status_code != 202:
            raise ValueError(answer.text)
        told = [owner.get("/v1/sites/questions").json()["questions"][-1] for owner in owners]
        self._at_present = [(owner, each["job"]) for owner, each in zip(owners, told, strict=True)]
        return told

    def _begun_at_sites(self) -> str:
        """Begin a new question at two sites; return its id for the owner, who has yet to answer."""
        owners = self._owner, self._server.owner()
        told = self._at_sites(*owners)
        self._receipt = _receipt_of(told[0])
        ids = [each["job"] for each in told]
        for owner, job_id in zip(owners, ids, strict=True):
            owner.post(f"/v1/sites/questions/{job_id}/decision", json={"decision": "accept"})
        others = f"/v1/sites/questions/{ids[1]}/answers/0"
        threading.Thread(target=_given, args=(owners[1], others), daemon=True).start()
        return ids[0]

    def prepared(self, operation: Operation) -> dict[str, str]:
        """What stands for the names in a path; what the operation would end is made anew."""
        names = self.names | {"dataset_id": self.datasets["points"], "name": "none"}
        if operation.name in ("delete_dataset", "delete_grant", "put_grant", "put_cap"):
            names["dataset_id"] = self._dataset("points")
        elif operation.name in ("decide_on_job", "withdraw_job"):
            names["job_id"] = self._request()
        elif operation.name == "decide_at_site":
            names["job_id"] = self._at_sites(self._owner)[0]["job"]
        elif operation.path.startswith("/v1/sites/questions/"):
            names["job_id"] = self._begun_at_sites()
        elif "{key_id}" in operation.path:
            person = self._owner if "owner" in operation.name else self._granted
            whose = operation.path.split("/")[2]
            names["key_id"] = person.post(f"/v1/{whose}/{person.id}/keys").json()["id"]
        elif "{channel_id}" in operation.path:
            person = self._granted if "analyst" in operation.name else self._owner
            path = f"/v1/{operation.path.split('/')[2]}/{person.id}/channels"
            made = person.get(path).json()["channels"] or [person.post(path, json=_CHANNEL).json()]
            names["channel_id"] = made[0]["id"]
        elif operation.path.startswith("/v1/published/"):
            names["name"] = self._published()
        elif "{name}" in operation.path:
            names["name"] = f"roles{next(_fresh)}"
            self._server.admin.post("/v1/connections", json=_files(names["name"]))
            self._server.admin.put(f"/v1/connections/{names['name']}/owners/{self._owner.id}")
        return names

    def call(
        self, operation: Operation, role: str, names: dict[str, str], dataset: str = ""
    ) -> httpx.Response:
        """One call, about another dataset if one is given; made again while the service is too busy."""
        content = self._content(operation, dataset)
        headers = {"Idempotency-Key": f"once {next(_fresh)}", "Prefer": "wait=240"}
        headers |= content.pop("headers", {})
        path = operation.path.format(number=0, ending="csv", **names)
        request = partial(self.people[role].request, operation.method, path, headers=headers, **content)
        return until(lambda: answer if (answer := request()).status_code != 503 else None)

    def _content(self, operation: Operation, dataset: str) -> dict[str, Any]:
        if operation.name in ("plan_workload", "estimate_workload"):
            body = body_of(dataset or self.datasets["points"], 0.01, delta=1e-7, reuse=False)
            return {"json": {"questions": [{"kind": "frechet-mean", "body": body}]}}
        if operation.path.startswith("/v1/estimates"):
            kind = KINDS[operation.path.split("/")[3]]
            about = dataset or self.datasets[kind.dataset_kind]
            return {"json": body_of(about, 0.01, delta=1e-7, reuse=False, **needed(kind))}
        if operation.name in ("create_dataset", "upload_dataset"):
            rows = usual(SCHEMA.validate_python(_VECTORS).shape(2))
            return {"files": {"file": ("rows.npy", npy(rows))}, "data": {"schema": json.dumps(_VECTORS)}}
        if operation.name == "exchange_answer":
            return dict(_ANSWER)
        bodies = {
            "offer_dataset": {"n": 2, "schema": _VECTORS},
            "decide_at_site": {"decision": "refuse"},
            "end_at_site": {"receipt": self._receipt},
            "create_channel": _CHANNEL,
            "create_analyst_channel": _CHANNEL,
            "create_owner": {"name": "x", "budget": _BUDGET},
            "create_analyst": {"name": "x"},
            "create_connection": _files(f"roles{next(_fresh)}"),
            "put_grant": {},
            "put_cap": {},
            "publish_answer": {"job": self.names["job_id"]},
            "decide_on_job": {"decision": "approve"},
            "change_budget": {},
        }
        return {"json": bodies[operation.name]} if operation.name in bodies else {}


_VECTORS = {"kind": "vectors", "dim": 2}
_ANSWER = {
    "content": bytes(8),
    "params": {"label": "gradient"},
    "headers": {"Content-Type": "application/octet-stream"},
}
_NOBODYS = "0" * 24
_CHANNEL = {"kind": "webhook", "url": "https://192.0.2.1/"}  # which no network has


def _receipt_of(told: dict[str, Any]) -> dict[str, Any]:
    """Return the analyst's receipt that a site sends at the end of a question, as JSON."""
    statement = Statement(
        job=f"job_{_NOBODYS}",
        kind=told["kind"],
        dataset=told["dataset"],
        adjacency="replace-one",
        entries=[],
        hub_job=told["job"],
        plan=told["plan"],
        answer=digest_of("{}"),
        at="2026-11-28T12:00:00.000000+00:00",
    )
    return for_analyst(SIGNER, Receipt(statement=statement, signature="", public_key="")).model_dump(
        mode="json"
    )


def _given(owner: Caller, path: str) -> None:
    """Give an answer, and wait for the other site's, which may never come."""
    with suppress(httpx.HTTPError):
        owner.post(path, **_ANSWER)


def _files(name: str) -> dict[str, str]:
    return {"name": name, "kind": "files", "root": "/usr"}


def _said(answer: httpx.Response) -> tuple[Any, ...]:
    """All but what names the request itself."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
    return answer.status_code, headers, answer.content


def wrong(server: Server, chosen: Callable[[Operation], bool] = lambda _: True) -> Iterator[str]:
    """Cells in which an answer is not that of the table, or tells whether somebody else's thing is there."""
    scene = Scene(server)
    for operation in filter(chosen, operations()):
        if operation.name not in TABLE:
            yield f"{operation.name} is not in the table"
            continue
        names: dict[str, str] | None = None
        for role, status in zip(ROLES, TABLE[operation.name], strict=True):
            names = names or scene.prepared(operation)
            answer = scene.call(operation, role, names)
            if answer.status_code != status:
                yield f"{operation.name} by {role}: {answer.status_code}, not {status}"
            elif status >= 400 and role in FOREIGN:
                none = {name: f"{value.split('_')[0]}_{_NOBODYS}" for name, value in names.items()}
                if _said(scene.call(operation, role, none, f"ds_{_NOBODYS}")) != _said(answer):
                    yield f"{operation.name} by {role}: tells whether it is there"
            if answer.status_code < 300:  # what a refusal leaves as it was serves the next role, too
                names = None


def _attack(long: bool) -> Finding:  # noqa: ARG001 - there is one form
    server = served.shipped()
    found = list(wrong(server))
    cells = len(ROLES) * len(operations())
    exchanged = dict(TABLE)
    exchanged["read_job"] = exchanged["read_dataset"] = _WITH_A_KEY
    with patch.dict(TABLE, exchanged):
        seen = list(wrong(server, lambda operation: operation.name in ("read_job", "read_dataset")))
    return Finding(
        holds=not found and len(seen) == 6,
        claimed="a key does what its role may, and a refusal is the same, byte for byte, if there is nothing",
        found="; ".join([f"{len(found)} of {cells} cells are otherwise", *found[:3]]),
        power=f"a table that lets everybody read datasets and jobs: {len(seen)} cells are otherwise",
    )


SECTION = Section(
    "Who may call what",
    """\
Every operation of openapi.yaml is called by every role: the administrator, the owner of what it is about,
another owner, an analyst with a grant, one without, and nobody.""",
    (Line("access", "every operation by every role", _attack),),
)

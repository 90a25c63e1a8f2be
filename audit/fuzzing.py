"""Requests and files that nobody would send: what a server says of them, and not of what is in rows."""

import re
import struct
from contextlib import suppress
from functools import cache
from ipaddress import IPv6Address
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import schemathesis
import yaml
from hypothesis import given, seed, settings
from hypothesis.errors import Flaky, Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.core.failures import Failure, FailureGroup

from audit import readers, served
from audit.access import ROLES, TABLE, Operation, Scene, operations
from audit.faulty import SECRET
from audit.lines import Finding, Line, Section
from audit.questions import needed, usual
from privest.arrays import Array
from privest.data.metadata import DatasetMetadata
from privest_service.estimates.catalogue import KINDS
from testing.server import Caller, Server, body_of, npy

_TOLD = re.compile(
    rb"(?<![\w.])7\d*e\+?77(?!\w)|731828182|"
    + b"|".join(re.escape(struct.pack(f"{end}d", SECRET)) for end in "<>")
)
"""Pattern of the secret, exact or rounded, in digits or bytes."""


def tells(said: bytes) -> bool:
    """Whether the secret is in these bytes, in any usual rendering."""
    return any(map(_TOLD.search, (said, said.replace(b",", b"").replace(b".", b""))))


def _secret_rows(shape: DatasetMetadata) -> Array:
    rows = usual(shape)
    rows.reshape(len(rows), -1)[::2, 0] = SECRET
    return rows


def _is_harmless(case: schemathesis.Case) -> bool:
    """Whether all that was made wrong is a query that nobody reads, or a key that the call then brings."""
    wrong = getattr(case.meta.phase.data, "mutations", ()) if case.meta else ()
    return bool(wrong) and all(
        each.parameter == "Authorization"
        or (each.keywords == ("additionalProperties",) and each.parameter_location == "query")
        for each in wrong
    )


class Company:
    """People around datasets with a secret, and all that the server says to them.

    Args:
        server: that is attacked; it believes what is said about where requests come from.
    """

    def __init__(self, server: Server) -> None:
        self.server, self._since = server, server.log.stat().st_size
        self.scene = Scene(server, _secret_rows)
        self.answers = 0
        self.broken = list[str]()
        self._random = Random(0)  # noqa: S311 - which requests are made, the same in every run
        self._told = list[str]()

    def hears(self, method: str, path: str, headers: Any, content: bytes) -> None:
        """Note an answer."""
        self.answers += 1
        if tells(content) or tells(str(headers).encode()):
            self._told.append(f"{method} {path}")

    def checks(self, case: schemathesis.Case, answer: Any, *left_out: str) -> None:
        """Note what an answer breaks: were it raised, the same would be tried again on a server that went on.

        Left out is always whether what is valid is taken: some rules are beyond a schema (a rank is at most
        dim).
        """
        if _is_harmless(case):
            left_out = (*left_out, "negative_data_rejection")
        excluded: Any = CHECKS.get_by_names(["positive_data_acceptance", *left_out])
        try:
            case.validate_response(answer, excluded_checks=excluded)
        except FailureGroup as failures:
            name = case.operation.definition.raw["operationId"]
            self.broken += [f"{name}: {type(each).__name__} {case.query}" for each in failures.exceptions]

    @property
    def told(self) -> list[str]:
        """Where the secret was seen, the log included."""
        log = self.server.log.read_bytes()[self._since :]
        return [*self._told, *(["the log"] if tells(log) else [])]

    def anybody(self) -> Caller:
        """One of them."""
        return self._random.choice(list(self.scene.people.values()))

    def allowed(self, name: str) -> str:
        """The role of one who may do it."""
        return next(role for role, status in zip(ROLES, TABLE[name], strict=True) if status < 300)

    def use(self, name: str, *, spoilt: bool = False) -> None:
        """Do it, as it is meant to be done, by somebody who may.

        Raises:
            Failure: the answer breaks the interface, or one with another form of it if it is spoilt.
            RuntimeError: it could not be done.
        """
        operation = _named()[name]
        answer = self.scene.call(operation, self.allowed(name), self.scene.prepared(operation))
        self.hears(operation.method, operation.path, answer.headers, answer.content)
        answer.request.read()  # of a form, which the check wants whole
        attacked(spoilt=name if spoilt else "")[name].validate_response(answer)
        if answer.status_code >= 300 or (
            operation.path.startswith("/v1/estimates/")
            and name.startswith("estimate_")
            and answer.json()["state"] != "committed"
        ):
            raise RuntimeError(f"{name}: {answer.text}")

    def elsewhere(self, case: schemathesis.Case) -> None:
        """Have it come from another address each time: by that, keys that open nothing are counted."""
        case.headers["X-Forwarded-For"] = str(IPv6Address(self._random.getrandbits(128)))

    def aim(self, case: schemathesis.Case, *, path: bool) -> None:
        """Have a request be about what is there, and end nothing that others need.

        Args:
            case: the request.
            path: whether the names in its path are to be those of what is there, too.
        """
        operation = _named()[case.operation.definition.raw["operationId"]]
        needed_by_others = {*self.scene.names.values(), *self.scene.datasets.values()}
        if path or (operation.name in _ENDING and needed_by_others & {*case.path_parameters.values()}):
            there = self.scene.prepared(operation)
            if operation.name == "change_budget":
                there["owner_id"] = self.scene.people["other owner"].id
            case.path_parameters |= {name: there[name] for name in case.path_parameters if name in there}
        if operation.path.startswith("/v1/estimates/") and isinstance(case.body, dict):
            kind = KINDS[operation.path.split("/")[3]]
            case.body |= body_of(self.scene.datasets[kind.dataset_kind], 0.01, delta=1e-7, **needed(kind))
            case.headers["Idempotency-Key"] = f"fuzz {self._random.getrandbits(64)}"

    def often(self) -> bool:
        """True every other time."""
        return self._random.random() < 0.5

    def uploads(self) -> None:
        """Files that hold the secret where it is wrong."""
        labelled = {"kind": "labelled", "features": ["a"], "label": "y", "classes": ["0", "1"]}
        vectors = {"kind": "vectors", "dim": 2}
        owner = self.scene.people["owner"]
        for name, content, schema in (
            ("a.csv", f"{SECRET}x,1\n2,3\n", vectors),
            ("a.csv", f"1,2\n3,4,{SECRET}\n", vectors),
            ("a.csv", f"a,y\n1,{SECRET}\n2,0\n", labelled),
            ("a.csv", f"{SECRET},{SECRET}y\n1,0\n", labelled),
            ("a.json", f"[[1,2],[3,{SECRET}", vectors),
            ("a.json", f'[[1,2],[3,"{SECRET}"]]', vectors),
            ("a.json", f'[{{"a": 1, "y": "{SECRET}"}}]', labelled),
            ("a.npy", npy(np.full((3, 3), SECRET)), vectors),
            ("a.npy", npy(np.array([[SECRET, np.nan]])), vectors),
            ("a.npy", npy(np.full((3, 2), SECRET))[:-3], vectors),
            ("a.parquet", f"PAR1{SECRET}PAR1", vectors),
            ("a.arrow", f"ARROW1{SECRET}", vectors),
        ):
            sent = content if isinstance(content, bytes) else content.encode()
            bare = False if name == "a.csv" and schema is vectors else None
            answer = owner.upload(sent, schema, name, header=bare)
            if answer.status_code != 422:
                raise RuntimeError(f"taken: {content!r}")
            self.hears("POST", "/v1/datasets", answer.headers, answer.content)


_AT_A_TIME = 5
"""Sequences in one run of hypothesis, which compares what may follow equal beginnings."""

_ENDING = (
    *("delete_dataset", "delete_grant", "put_grant", "put_cap"),
    *("change_budget", "revoke_owner_key", "revoke_analyst_key", "decide_on_job", "withdraw_job"),
)


@cache
def _schema(spoilt: str = "") -> Any:
    """The interface; spoilt, with another form of what an operation answers."""
    document = yaml.load(Path("openapi.yaml").read_text(), yaml.CSafeLoader)
    for item in document["paths"].values():
        for operation in item.values():
            if spoilt and operation["operationId"] == spoilt:
                operation["responses"]["200"]["content"]["application/json"]["schema"] = {"type": "null"}
    return schemathesis.openapi.from_dict(document)


@cache
def _named() -> dict[str, Operation]:
    return {operation.name: operation for operation in operations()}


@cache
def attacked(spoilt: str = "") -> dict[str, Any]:
    """All operations by name."""
    found = [operation.ok() for operation in _schema(spoilt).get_all_operations()]
    return {operation.definition.raw["operationId"]: operation for operation in found}


def attack_operation(company: Company, name: str, mode: GenerationMode, examples: int) -> None:
    """Requests to one operation, valid or not, by everybody."""

    @settings(max_examples=examples, **readers.DRAWN)
    @given(case=attacked()[name].as_strategy(generation_mode=mode))
    def attack(case: schemathesis.Case) -> None:
        company.elsewhere(case)
        caller = company.anybody()
        if mode is GenerationMode.POSITIVE and company.often():
            company.aim(case, path=True)
            caller = company.scene.people[company.allowed(name)]
        answer = case.call(base_url=company.server.url, headers=caller.headers)
        company.hears(case.method, case.path, answer.headers, answer.content)
        company.checks(case, answer)

    with suppress(Unsatisfiable):  # nothing can be wrong in some
        attack()


def attack_sequences(company: Company, examples: int, steps: int) -> None:
    """Requests one after the other, each about what an earlier answer named, by somebody who may."""

    class Sequences(_schema().as_state_machine()):
        def before_call(self, case: schemathesis.Case) -> None:
            company.aim(case, path=False)
            company.elsewhere(case)

        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            caller = company.scene.people[company.allowed(case.operation.definition.raw["operationId"])]
            return {"base_url": company.server.url, "headers": caller.headers}

        def after_call(self, response: Any, case: schemathesis.Case) -> None:
            company.hears(case.method, case.path, response.headers, response.content)

        def validate_response(self, response: Any, case: schemathesis.Case, **_: Any) -> None:
            # What is wrong with a request may be that it has no key, and then it was given one.
            company.checks(case, response, "negative_data_rejection")

    how = settings(max_examples=_AT_A_TIME, stateful_step_count=steps, **readers.DRAWN)
    for begun in range(0, examples, _AT_A_TIME):
        seed(begun)(Sequences)
        with suppress(Flaky):  # what can be asked depends on what is there, which grows
            Sequences.run(settings=how)


def _interface(long: bool) -> Finding:
    company = Company(served.shipped())
    owner = company.scene.people["owner"]
    for name in attacked():
        company.use(name)
    company.uploads()
    attack_sequences(company, *((300, 20) if long else (10, 6)))
    for name in attacked() if long else ("create_dataset", "estimate_logistic_regression"):
        for mode in GenerationMode:
            attack_operation(company, name, mode, 100 if long else 4)
    charged, told = owner.budget()["queries"], company.told
    telling, seen = Company(served.faulty(0.05)), False
    telling.use("read_dataset")
    try:
        company.use("read_dataset", spoilt=True)
    except Failure:
        seen = True
    return Finding(
        holds=not company.broken and not told and len(telling.told) == 2 and seen,
        claimed="answers are as openapi.yaml says, and a number in the rows is nowhere in them or in the log",
        found="; ".join(
            [
                f"{company.answers} answers, {charged} charged, told in {len(told)}",
                *told[:3],
                *company.broken[:3],
            ]
        ),
        power=f"the number rounded, in a dataset's name and the log: told in {len(telling.told)}; "
        f"an interface with another form of that answer: {'seen' if seen else 'NOT seen'}",
    )


SECTION = Section(
    "What nobody would send",
    """\
Requests are made from openapi.yaml by schemathesis, valid and not, one by one and in sequences, in which each
is about what an earlier answer named; before them each operation is done once as it is meant to be. Left out
is one check, as some rules are beyond a schema, and of sequences that of requests which are wrong.
Files are made of good ones, with bits turned, pieces lost or repeated, and numbers made extreme.""",
    (
        Line("requests", "every operation, while the rows hold a number that nothing may tell", _interface),
        Line("files", "every format, mangled and cut, in a worker", readers.line),
    ),
)

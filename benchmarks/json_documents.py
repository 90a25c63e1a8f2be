"""JSON as the service reads and writes it, beside orjson and msgspec: pace, and what each takes as JSON."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pydantic import BaseModel, TypeAdapter

from benchmarks.large_cases import LOGISTIC
from benchmarks.peers import call
from benchmarks.peers.json_documents import microseconds, seen
from benchmarks.report import publish, spread, table
from benchmarks.scaling import INGEST, alone
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.views import PlanView
from privest_service.inputs import from_json
from testing.server import SPD3, Server, body_of, spd

ROUNDS, ROWS = 5, 50_000
STRANGE = {
    "a field twice": b'{"epsilon": 1, "epsilon": 9}',
    "a field twice, spelt otherwise": b'{"name": 1, "n\\u0061me": 9}',
    "a number beyond float64": b"[1e999]",
    "NaN": b"[NaN]",
    "half of a surrogate pair": b'["\\ud800"]',
    "a whole number of 80 bits": b"[1208925819614629174706176]",
    "bytes that are no UTF-8": b'["\xff"]',
}
"""Documents on which readers differ; `tests/service/test_edge.py` has what a request makes of them."""


def documents(directory: Path) -> tuple[dict[str, bytes], dict[str, BaseModel]]:
    """Documents by name: those that callers send, and those that are answered, with their models."""
    kind = KINDS["frechet-mean"]
    server = Server(directory, f"sqlite:///{directory}/privest.db")
    try:
        owner = server.owner()
        dataset = owner.dataset(spd(60))
        plan, job = owner.plan(dataset).content, owner.estimate(dataset, wait=60).content
    finally:
        server.stop()
    rows = {"inline": {"schema": SPD3, "rows": spd(1000).tolist()}}
    sent = {
        "a question": json.dumps(body_of(dataset, 0.1)).encode(),
        "a question with 1,000 matrices of SPD(3)": json.dumps(
            {"dataset": rows, "privacy": {"epsilon": 1.0}}
        ).encode(),
    }
    plans: TypeAdapter[PlanView] = TypeAdapter(kind.plan_view)
    answered = {"a plan": plans.validate_json(plan), "an estimate": kind.job.model_validate_json(job)}
    return sent | {"a plan": plan, "an estimate": job}, answered


def upload(directory: Path) -> tuple[bytes, float]:
    """Rows as a document, and the seconds in which a worker makes a dataset of it."""
    document = json.dumps(LOGISTIC.made(np.random.default_rng(0), ROWS).tolist()).encode()
    source = directory / "rows.upload"
    source.write_bytes(document)
    taken, _, _ = alone(
        INGEST, str(source), "json", json.dumps(LOGISTIC.declared), str(directory / "rows.npy")
    )
    return document, taken


def rounds(does: Callable[[], object]) -> str:
    return spread([microseconds(does) for _ in range(ROUNDS)], ",.1f")


def main() -> None:
    rows = f"{ROWS:,} rows of 21 numbers"
    with TemporaryDirectory() as name:
        directory = Path(name)
        found, answers = documents(directory)
        found[rows], ingested = upload(directory)
        for folder, each in (("timed", found), ("strange", STRANGE)):
            (directory / folder).mkdir()
            for title, document in each.items():
                (directory / folder / f"{title}.json").write_bytes(document)
        theirs: dict[str, Any] = call("json_documents.py", directory, str(ROUNDS))

    def beside(what: str, title: str) -> list[str]:
        return [spread(times, ",.1f") for times in theirs[what][title].values()]

    reading = [
        [
            *(title, f"{len(document):,}", rounds(partial(from_json, document))),
            *(rounds(partial(json.loads, document)), *beside("read", title)),
        ]
        for title, document in found.items()
    ]
    writing = [
        [
            *(title, rounds(model.model_dump_json), rounds(partial(model.model_dump, mode="json"))),
            *(rounds(partial(json.dumps, model.model_dump(mode="json"))), *beside("write", title)),
        ]
        for title, model in answers.items()
    ]
    strange = [
        [title, seen(from_json, document), seen(json.loads, document), *theirs["seen"][title].values()]
        for title, document in STRANGE.items()
    ]
    versions = " and ".join(f"{name} {version}" for name, version in theirs["versions"].items())
    names = ["json", "orjson", "msgspec"]
    body = f"""
Processor time in microseconds, medians of {ROUNDS} rounds with the least and the most; {versions} in an
environment of their own. Reading: the service's reader is the standard library's with a look at each object,
whose fields must be named once.

{table(["read", "bytes", "the service's", *names], reading)}

Writing: answers are written by their pydantic models. Before, they were made dictionaries (the third column),
which the standard library wrote.

{table(["written", "by its model", "made a dictionary", *names], writing)}

What each makes of documents that are read in more than one way; models then refuse what is not finite:

{table(["document", "the service's", *names], strange)}

orjson and msgspec keep the last of two fields with one name, without a word, and cannot be told otherwise: a
proxy or a log that reads the first one would see another ε than is charged. So neither reads requests, where
they would save microseconds of the millisecond or more that a plan or a charge takes. A worker makes a
dataset of the uploaded rows in {ingested:.1f} s, of which reading the JSON is the time above; larger tables
come as csv, Parquet or Arrow. For answers neither is needed: a model writes itself in about the time in which
it is made a dictionary for either of them.
"""
    publish("json-documents", "Reading and writing JSON", body)


if __name__ == "__main__":
    main()

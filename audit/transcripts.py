"""Whether two worlds are told apart by what a server says and logs, but for released numbers."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np

from audit import served
from audit.faulty import TRIPWIRE
from audit.lines import Finding, Line, Section
from audit.outcomes import masked_job
from audit.questions import Question, every, usual, worlds
from privest.arrays import Array
from testing.server import HANG_GUARD, PLAIN, Caller, Server, body_of, npy

_OWN = re.compile(
    r"\b(job|ds|own|anl|key)_[0-9a-f]+\b|(?<!\.)\b[0-9a-f]{16,}\b|\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)"
)
"""Pattern of ids, digests and times."""

_RANDOM = {"x-request-id", "date", "content-length", "etag"}
"""Headers that differ between any two answers; lengths and tags follow from bodies, which are compared."""

_BRIEF = re.compile(r"(?<=account&#34;: )\d+|\b[0-9a-f]{10}\b|(?<![\w+/])[\w+/]{86}==|\b\d\d:\d\d(:\d\d)?\b")
"""Numbers of accounts, digests, signatures and times, as pages show them."""

_OVER_TIME = re.compile(r'<svg id="burn-down".*?</svg>', re.DOTALL)
_PICTURE = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_FOUND = re.compile(r'<section class="card" aria-labelledby="h-error">.*?</section>', re.DOTALL)
_WARNINGS = re.compile(r'<div class="notice warn" role="status"><ul class="warnings">.*?</div>', re.DOTALL)
_ESTIMATE = re.compile(r'(<section class="card" aria-labelledby="h-table-1"|<div class="grid).*', re.DOTALL)
_NO_END = re.compile(r"((?:low|high)(?:&#34;|&quot;): )null")
_NUMBER = re.compile(r"[-−+]?\d[\d.]*(e[-+]\d+)?")

_OTHER = {"signature", "public_key", "account"}


def told(answer: httpx.Response) -> Any:
    """What an answer says, but for ids, digests, signatures, times, and the values of released numbers."""
    said = answer.text
    if "json" in answer.headers.get("content-type", ""):
        said = json.dumps(_plain(answer.json()))
    return answer.status_code, _OWN.sub("…", _heads(answer)), _OWN.sub("…", said)


def _heads(answer: httpx.Response) -> str:
    return json.dumps({name: value for name, value in answer.headers.items() if name not in _RANDOM})


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if not isinstance(value, dict):
        return value
    if value.get("estimate") is not None:
        value = masked_job(value)
    return {name: "…" if name in _OTHER else _plain(part) for name, part in value.items()}


def shown(page: httpx.Response, *, answer: bool = False) -> Any:
    """What a page says, masked as an answer is, and without numbers in a picture over time.

    For the page of an answer what it says of the error is left out as well, and the numbers below that. Its
    warnings are left out too, as in `masked_job`: a run finds some of them in what was released.

    Raises:
        RuntimeError: it is none, but the way to another.
    """
    if page.is_redirect:
        raise RuntimeError(f"no page: {page.headers['location']}")
    said = _BRIEF.sub("…", _OWN.sub("…", page.text))
    if answer:
        said = _FOUND.sub("…", _WARNINGS.sub("", _PICTURE.sub("", said)))
        # The end of an interval is null where nobody knows it, by what was released.
        said = _ESTIMATE.sub(lambda it: _NUMBER.sub("#", _NO_END.sub(r"\1#", it[0])), said)
    return page.status_code, _heads(page), _OVER_TIME.sub(lambda it: _NUMBER.sub("#", it[0]), said)


def _pages(owner: Caller, question: Question, dataset: str, job: str) -> Iterator[Any]:
    """The dashboard, as its owner sees it."""
    with httpx.Client(base_url=f"{owner.server.url}/dashboard", verify=PLAIN, timeout=HANG_GUARD) as visitor:
        if visitor.post("/sign-in", data={"key": owner.key}).status_code != 303:
            raise RuntimeError("no way in")
        for path in (
            *(
                "",
                "/datasets",
                f"/datasets/{dataset}",
                f"/datasets/{dataset}/delete",
                "/analysts",
                "/answers",
            ),
            *("/ledger", "/ledger/1", "/ledger/2"),
        ):
            yield shown(visitor.get(path))
        asked = {"kind": question.kind.name, "options": json.dumps(question.options)}
        yield shown(visitor.get("/what-if", params={"dataset": dataset, **asked}))
        yield shown(visitor.get(f"/answers/{job}"), answer=True)


def logged(server: Server, since: int) -> list[str]:
    """What a server logged since so many bytes, but for times, ids and its order: jobs end when they do."""
    lines = server.log.read_bytes()[since:].decode().splitlines()
    return sorted(_OWN.sub("…", line) for line in lines)


def conversation(server: Server, question: Question, rows: Array) -> Iterator[Any]:
    """An owner of its own uploads rows, asks about them in several ways, some wrong, and removes them."""
    since = server.log.stat().st_size
    owner = server.owner(epsilon=4.0, delta=1e-4)
    uploaded = owner.upload(npy(rows), question.schema)
    yield told(uploaded)
    dataset = uploaded.json().get("id", "ds_none")
    for path in ("", f"/{dataset}", f"/{dataset}/dummy"):
        yield told(owner.get(f"/v1/datasets{path}"))
    kind, options = question.kind.name, {"delta": 1e-6, **question.options}
    yield told(owner.plan(dataset, kind=kind, epsilon=2.0, **options))
    asked = owner.estimate(dataset, kind=kind, epsilon=2.0, key="once", **options)
    yield told(asked)
    job = asked.json().get("id", "job_none")
    for path in ("", "/events", "/receipt"):
        yield told(owner.get(f"/v1/jobs/{job}{path}"))
    yield told(owner.estimate(dataset, kind=kind, epsilon=2.0, key="once", **options))
    yield told(owner.estimate(dataset, kind=kind, epsilon=2.0, **options))
    yield told(owner.estimate(dataset, kind=kind, epsilon=9.0, **options))
    yield told(owner.estimate(dataset, kind=kind, epsilon=-1.0, **options))
    yield told(owner.estimate(dataset, kind=kind, epsilon=2.0, **options, nothing=1))
    yield told(owner.estimate(dataset, kind="robust-pca", epsilon=0.1, rank=7))
    yield told(_inline(owner, question, rows, kind, options))
    for path in ("/budget", "/ledger"):
        yield told(owner.get(f"/v1/owners/{owner.id}{path}"))
    yield from _pages(owner, question, dataset, job)
    yield told(owner.delete(f"/v1/datasets/{dataset}"))
    yield told(owner.get(f"/v1/datasets/{dataset}"))
    yield logged(server, since)


def _inline(owner: Caller, question: Question, rows: Array, kind: str, options: dict[str, Any]) -> Any:
    """Ask with the same rows sent in the request."""
    body = body_of("", 0.5, **options)
    records = np.where(np.isnan(rows), np.array(None), rows).tolist()
    body["dataset"] = {"inline": {"schema": question.schema, "rows": records}}
    headers = {"Idempotency-Key": "inline", "Prefer": "wait=240"}
    return owner.post(f"/v1/estimates/{kind}", json=body, headers=headers)


def _questions(long: bool) -> list[Question]:
    """One for each schema and kind; in the quick form of each kind.

    None is about a table: its upload tells its owner how many values are outside the declared bounds.
    """
    found = dict[str, Question]()
    for question in (each for each in every() if each.recipe is None):
        found.setdefault(f"{question.kind.name} {question.schema if long else ''}", question)
    return list(found.values())


def _attack(long: bool) -> Finding:
    apart, pairs, said = list[str](), 0, 0
    questions = _questions(long)
    list(
        conversation(served.shipped(), questions[0], usual(questions[0].shape))
    )  # libraries' words on import
    for question in questions:
        one = list(conversation(served.shipped(), question, usual(question.shape)))
        for name, rows in worlds(question.shape, together=not long):
            other = list(conversation(served.shipped(), question, rows))
            pairs, said = pairs + 1, said + len(one)
            apart += [f"{question} ({name}), call {at}: {said}" for at, said in different(one, other)]
    vectors = next(question for question in questions if question.kind.dataset_kind == "vectors")
    failing = usual(vectors.shape)
    failing[0, :2] = TRIPWIRE, -1.0
    broken = [
        list(conversation(served.faulty(0.05), vectors, rows)) for rows in (usual(vectors.shape), failing)
    ]
    seen = len(list(different(*broken)))
    return Finding(
        holds=not apart and seen > 0,
        claimed="the same answers, errors and log lines, but for the values of released numbers",
        found="; ".join([f"{len(apart)} of {said} differ, of {pairs} pairs of worlds", *apart[:3]]),
        power=f"where one record makes a run fail: {seen} of {len(broken[0])}",
    )


def different(one: list[Any], other: list[Any]) -> Iterator[tuple[int, str]]:
    """Yield which parts of two conversations differ, and from where on."""
    for at, pair in enumerate(zip(map(str, one), map(str, other), strict=True)):
        if pair[0] != pair[1]:
            same = next((n for n, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), 0)
            yield at, " ≠ ".join(said[same : same + 60] for said in pair)


SECTION = Section(
    "What a server tells beside its answers",
    """\
An owner of a dataset asks a server, as it is shipped, for all that is to be had about it: facts, plans,
estimates, receipts, bills, pages of the dashboard, with requests that are refused among them. Compared are
status, headers, bodies and log lines. Masked are ids, digests, signatures, numbers of accounts, times; of
estimates the values of their numbers, warnings and all that is said of their error, and on their own pages
the pictures and all numbers below the heading; and all numbers in the picture of a budget over time. The
worlds are those of the last section.""",
    (Line("transcripts", "all that a server says and logs", _attack),),
)

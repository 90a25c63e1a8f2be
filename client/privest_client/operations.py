"""What can be asked of the service, each as a conversation."""

import json
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import inf
from numbers import Real
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from privest_client import models
from privest_client.answers import Estimate, Kind, LinearClassifier
from privest_client.calls import STOPS, Conversation, Pause, Request, call
from privest_client.data import Counted, Schema, Upload
from privest_client.errors import (
    AnswerWithheld,
    Forbidden,
    InvalidRequest,
    JobFailed,
    NotApproved,
    NotFound,
    SchemaMismatch,
    StillRunning,
    UnexpectedAnswer,
)
from privest_client.estimators import KINDS
from privest_client.showing import Dataset
from privest_client.tables import Column, Table, column_name, is_frame, table
from privest_client.tables import named as named_frame

_UNAPPROVED = {
    "denied": "was denied by an owner of the data",
    "expired": "was not decided by all owners of the data in time",
    "withdrawn": "was withdrawn, or a grant or a dataset that it needs is gone",
}
"""States in which a question ends that had to be approved, in words."""

_FINAL = ("committed", "failed", "voided", *_UNAPPROVED)

WAIT = 600.0
"""Seconds to wait for an estimate, unless told otherwise."""

_FIRST_WAIT = 2
"""Seconds until the service tells the id of a job that is not over: an interrupted call names it."""

_NO_CHOICES = {"dataset", "privacy"}
"""Fields of a request that have parameters of their own."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")

_PUBLISHED = re.compile(r"[a-z][a-z0-9_]{0,62}")

M = TypeVar("M", bound=BaseModel)

Told = Callable[[str], None]
"""A function that is told the state of a job whenever it was asked for."""


@dataclass(frozen=True)
class Question:
    """A request for an estimate, as it is sent.

    Attributes:
        kind: of estimate.
        body: as JSON.
        schema: of rows that come with it.
    """

    kind: Kind
    body: dict[str, Any]
    schema: Schema | None = None

    @classmethod
    def of(cls, kind: str, dataset: Any, privacy: dict[str, Any], choices: dict[str, Any]) -> "Question":
        """What was asked for, once its choices are known ones; what they may be, the service says.

        Args:
            kind: name of it.
            dataset: an id, a dataset, a list of several, a table or a frame.
            privacy: ε and δ, or what a plan finds ε by.
            choices: of the kind; what is as it is by default is left to the service.

        Raises:
            SchemaMismatch: the dtypes of a frame do not tell what its columns are.
            InvalidRequest: there is no such kind, it has no such choice, or JSON cannot hold one.
        """
        if kind not in KINDS:
            raise _invalid([{"rule": f"there is no {kind}: the kinds are {', '.join(KINDS)}"}])
        usual = {
            field.alias or name: field.default for name, field in KINDS[kind].request.model_fields.items()
        }
        if unknown := choices.keys() - usual.keys():
            rule = (
                f"{kind} has no such choice: its choices are {', '.join(sorted(usual.keys() - _NO_CHOICES))}"
            )
            raise _invalid([{"location": name, "rule": rule} for name in sorted(unknown)])
        require_numbers(privacy)
        chosen = {name: value for name, value in choices.items() if not _same(value, usual[name])}
        for name in {"columns", "features"} & chosen.keys():
            chosen[name] = _names_of(chosen[name])
        if "label" in chosen:
            chosen["label"] = column_name(chosen["label"])
        if is_frame(dataset):
            dataset = _asked_columns(dataset, chosen)
        schema = dataset.schema if isinstance(dataset, Table) else None
        body = {"dataset": _about(dataset), "privacy": privacy} | chosen
        try:
            return cls(KINDS[kind], json.loads(json.dumps(body, default=_plain, allow_nan=False)), schema)
        except (TypeError, ValueError) as error:
            raise _invalid([{"rule": f"a choice cannot be sent: {error}"}]) from None


def _names_of(named: Any) -> list[str]:
    """Names of columns as texts, as a schema has them: those of a frame may be numbers, or a single one."""
    return [column_name(name) for name in ([named] if isinstance(named, str | int) else named)]


def _same(value: Any, usual: Any) -> bool:
    return type(value) is type(usual) and not hasattr(value, "shape") and value == usual


def _asked_columns(frame: Any, choices: dict[str, Any]) -> Table:
    """A frame as a table of those columns alone that a question names; of all where it names none."""
    named = choices.get("columns")
    if choices.get("features") is not None and choices.get("label") is not None:
        named = [*choices["features"], choices["label"]]
    found = named_frame(frame).columns
    chosen = found if named is None else [name for name in found if name in named]
    # Who names a column has said that it is wanted.
    said: dict[str, Column] = {} if named is None else {name: {} for name in chosen}
    return table(frame, columns=said, drop=[name for name in found if name not in chosen])


def given(**choices: Any) -> dict[str, Any]:
    """Choices without those that were not made."""
    return {name: value for name, value in choices.items() if value is not None}


def to_plan(
    epsilon: float | None,
    within: float | Mapping[str, float] | None,
    share: float | None,
    delta: float | None,
) -> dict[str, Any]:
    """The ε and δ of a question that is only planned, or what its ε is to be found by.

    Raises:
        InvalidRequest: there is not just one of the first three.
    """
    if sum(each is not None for each in (epsilon, within, share)) != 1:
        raise _invalid([{"rule": "say one of epsilon, within and share: a plan finds epsilon by the others"}])
    target = given(columns=dict(within)) if isinstance(within, Mapping) else given(within=within)
    return given(epsilon=epsilon, target=target or None, share=share, delta=delta)


_NUMBERS = {
    "epsilon": "above 0, as epsilon=0.5",
    "delta": "from 0 to below 1, as delta=1e-6",
    "share": "above 0 and at most 1, as share=0.5",
}
"""What parameters are that are numbers, in words."""


def require_numbers(privacy: dict[str, Any]) -> None:
    """See that ε and δ are numbers that there may be, before anything is sent.

    Raises:
        InvalidRequest: one of them is none.
    """
    for name in _NUMBERS.keys() & privacy.keys():
        value = privacy[name]
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < inf:
            rule = f"must be a number {_NUMBERS[name]}, and not {value!r}"
            raise _invalid([{"location": name, "rule": rule}])


def scored(found: Any, metric: str) -> dict[str, Any]:
    """The choices of a question about how good a classifier is.

    Raises:
        InvalidRequest: it is no classifier.
    """
    if not isinstance(found, LinearClassifier):
        raise _invalid([{"rule": "name the rows first and then the classifier, as score(rows, found)"}])
    chosen = {"coefficients": found.coefficients, "intercept": found.intercept, "metric": metric}
    return chosen | given(label=found.label, features=found.names_to_ask)


def published_path(name: str) -> str:
    """Where a published answer is.

    Raises:
        InvalidRequest: there is no such name.
    """
    if not isinstance(name, str) or not _PUBLISHED.fullmatch(name):
        raise _invalid(
            [{"location": "name", "rule": "must be of small letters, digits and _, a letter first"}]
        )
    return f"/v1/published/{name}"


def grant_path(dataset: Any, analyst: Any) -> str:
    """Where the grant of an analyst on a dataset is."""
    return f"/v1/datasets/{id_of(dataset)}/grants/{id_of(analyst)}"


def _about(dataset: Any) -> Any:
    if isinstance(dataset, Table):
        return {"inline": {"schema": dataset.schema, "rows": dataset.rows()}}
    if isinstance(dataset, list | tuple):
        return [_about(each) for each in dataset]
    if isinstance(dataset, dict) and not dataset.keys() & {"id", "inline"}:
        raise _invalid([{"rule": "a dict is no dataset: of rows make a frame, as pandas.DataFrame(rows)"}])
    return dataset if isinstance(dataset, dict) else {"id": id_of(dataset)}


def id_of(thing: Any) -> str:
    """The id of a dataset, an analyst or a job, for a path.

    Args:
        thing: what the service or this client told of it, or its id itself.

    Raises:
        InvalidRequest: it is neither.
    """
    found = thing if isinstance(thing, str) else getattr(thing, "id", None)
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise _invalid(
            [{"rule": f"a {type(thing).__name__} is no id, and has none: pass an id, as ds_1a2b3c"}]
        )
    return found


def _plain(value: Any) -> Any:
    """Turn arrays into lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


def _some(ids: Sequence[str]) -> str:
    """At most three of them, and how many more there are."""
    more = len(ids) - 3
    return ", ".join(ids[:3]) + (f" and {more} more" if more > 0 else "")


def _invalid(faults: Sequence[dict[str, Any]]) -> InvalidRequest:
    return InvalidRequest(422, "invalid", "The request is not valid", faults=faults)


def fetch(model: type[M], method: str, path: str, **content: Any) -> Conversation[M]:
    """What answers a request, read as a model.

    Raises:
        PrivestError: see `call`.
    """
    response = yield from call(Request(method, path, content))
    return _read(model, response)


def change(model: type[M], method: str, path: str, told: dict[str, Any]) -> Conversation[M]:
    """Change something of an owner's or an analyst's; sent once, as a second request might change it again.

    Raises:
        PrivestError: see `call`.
    """
    request = Request(method, path, {"json": told}, repeatable=False)
    return _read(model, (yield from call(request)))


def datasets() -> Conversation[list[Dataset]]:
    """All datasets, page by page.

    Raises:
        PrivestError: see `call`.
    """
    found, cursor = list[Dataset](), None
    while True:
        params = {"params": {"cursor": cursor}} if cursor else {}
        page = yield from fetch(models.DatasetList, "GET", "/v1/datasets", **params)
        found += [Dataset.model_validate(each.model_dump(by_alias=True)) for each in page.datasets]
        if not (cursor := page.next):
            return found


def grants() -> Conversation[list[models.GrantView]]:
    """All grants, page by page.

    Raises:
        PrivestError: see `call`.
    """
    return (yield from _pages(models.GrantList, "/v1/grants", "grants", {}))


def publications() -> Conversation[list[models.PublicationView]]:
    """All published answers, page by page.

    Raises:
        PrivestError: see `call`.
    """
    return (yield from _pages(models.PublicationList, "/v1/published", "published", {}))


def _pages(model: type[BaseModel], path: str, name: str, chosen: dict[str, Any]) -> Conversation[list[Any]]:
    """What all pages of a list have under a name, whose `next` tells where the next one begins."""
    found, params = list[Any](), {"limit": 1000, **chosen}
    while True:
        page: Any = yield from fetch(model, "GET", path, params=params)
        found += getattr(page, name)
        if not page.next:
            return found
        params["cursor"] = page.next


def allowance(dataset: Any) -> Conversation[models.GrantView]:
    """The caller's own grant on a dataset.

    Raises:
        PrivestError: see `call`.
    """
    own = yield from fetch(models.PrincipalView, "GET", "/v1/me")
    return (yield from fetch(models.GrantView, "GET", grant_path(dataset, own.id)))


def acts(**wanted: Any) -> Conversation[list[models.ActView]]:
    """What was done, page by page.

    Raises:
        PrivestError: see `call`.
    """
    found, params = list[models.ActView](), given(**wanted) | {"limit": 500}
    while True:
        page = yield from fetch(models.ActPage, "GET", "/v1/acts", params=params)
        found += page.acts
        if not page.next:
            return found
        params["cursor"] = page.next


def _read(model: type[M], response: Any) -> M:
    try:
        return model.model_validate_json(response.content)
    except ValidationError:
        raise UnexpectedAnswer(
            f"an answer that is no {model.__name__}: client and service are of different versions"
        ) from None


def upload(
    rows: Upload,
    schema: Schema,
    name: str | None,
    rows_of: Any,
    sent: Callable[[int], None],
    *,
    once: bool = False,
) -> Conversation[Dataset]:
    """Register rows.

    Args:
        rows: as a file.
        schema: public.
        name: for people.
        rows_of: a dataset, or its id, that is declared to hold the same rows.
        sent: is told of bytes that are on their way.
        once: whether a dataset that has these rows already, under this schema, is taken in place of a copy.

    Raises:
        SchemaMismatch: the service counted other records than there are.
        PrivestError: see `call`.
    """
    file = (rows.name, Counted(rows.file, sent), "application/octet-stream")
    fields = {"schema": json.dumps(schema, default=_plain)} | ({} if name is None else {"name": name})
    if rows_of is not None:
        fields["rows_of"] = id_of(rows_of)
    if rows.header is not None:
        fields["header"] = json.dumps(rows.header)
    content = {"files": {"file": file}, "data": fields}
    response = yield from call(Request("POST", "/v1/datasets", content, repeatable=False))
    made = _read(Dataset, response)
    if outside := made.values_outside():
        warnings.warn(
            f"values outside the declared bounds count as the nearer bound: {outside}. If they are right, "
            "declare wider bounds and upload again",
            stacklevel=2,
        )
    if once:
        for other in made.same_rows or ():
            former = yield from fetch(Dataset, "GET", f"/v1/datasets/{other}")
            if former.schema_ == made.schema_:
                yield from call(Request("DELETE", f"/v1/datasets/{made.id}"))
                return former
    if made.same_rows and rows_of is None:
        warnings.warn(
            f"you have these rows already, as {_some(made.same_rows)}: questions about this copy are "
            "charged anew. To ask about the other, take its id, and delete this one; or upload with "
            "once=True",
            stacklevel=2,
        )
    if rows.records not in (None, made.n):
        raise SchemaMismatch(
            f"the service counted {made.n} records and the data have {rows.records} rows: look for empty "
            f"ones, and delete what was stored with client.datasets.delete({made.id!r})"
        )
    return made


def plan(question: Question) -> Conversation[Any]:
    """The exact cost of a question; free.

    Raises:
        PrivestError: see `call`.
    """
    path = f"/v1/estimates/{question.kind.name}/plan"
    return (yield from fetch(question.kind.plan, "POST", path, json=question.body))


def estimate(question: Question, key: str | None, timeout: float, told: Told) -> Conversation[Any]:
    """An estimate, once its job is over.

    Args:
        question: what is asked.
        key: by which it is charged once, however often it is sent; a new one by default.
        timeout: seconds to wait for the run.
        told: of the job's states.

    Raises:
        AnswerWithheld: another one asked.
        JobFailed: the run came to no end.
        StillRunning: the time is over.
        PrivestError: see `call`.
    """
    key = key or uuid4().hex
    headers = {"Idempotency-Key": key, "Prefer": f"wait={max(0, min(_FIRST_WAIT, int(timeout)))}"}
    path = f"/v1/estimates/{question.kind.name}"
    begun = time.monotonic()
    told("asked")
    try:
        response = yield from call(Request("POST", path, {"json": question.body, "headers": headers}))
    except STOPS as stop:
        stop.add_note(f"the question may be charged: the same call with key={key!r} is charged once")
        raise
    job = _read(question.kind.job, response)
    left = timeout - (time.monotonic() - begun)
    return (yield from _ended(question.kind, job, left, told, question.schema))


def question(
    kind: str,
    dataset: Any,
    columns: Sequence[str] | None = None,
    *,
    epsilon: float | None = None,
    within: float | Mapping[str, float] | None = None,
    share: float | None = None,
    delta: float | None = None,
    **choices: Any,
) -> Question:
    """A question of several that are priced or asked together, with the parameters of `Client.plan`.

    Raises:
        InvalidRequest: it cannot be one.
    """
    privacy = to_plan(epsilon, within, share, delta)
    return Question.of(kind, dataset, privacy, choices | given(columns=columns))


def _several(questions: Sequence[Question]) -> dict[str, Any]:
    return {"questions": [{"kind": each.kind.name, "body": each.body} for each in questions]}


def price(questions: Sequence[Question]) -> Conversation[models.WorkloadView]:
    """The price of several questions, each and together; free.

    Raises:
        PrivestError: see `call`.
    """
    return (yield from fetch(models.WorkloadView, "POST", "/v1/plans", json=_several(questions)))


def ask_all(questions: Sequence[Question], key: str | None) -> Conversation[list[models.JobView]]:
    """The jobs of several questions, which are all charged, or none.

    Raises:
        PrivestError: see `call`.
    """
    key = key or uuid4().hex
    content = {"json": _several(questions), "headers": {"Idempotency-Key": key}}
    try:
        response = yield from call(Request("POST", "/v1/estimates", content))
    except STOPS as stop:
        stop.add_note(f"the questions may be charged: the same call with key={key!r} is charged once")
        raise
    found = (job.root.model_dump(by_alias=True, mode="json") for job in _read(models.JobList, response).jobs)
    return [models.JobView.model_validate(job) for job in found]


def jobs(
    state: Sequence[str], dataset: Any, tag: str | None, since: date | None, until: date | None
) -> Conversation[list[models.JobLine]]:
    """Questions that the caller asked, newest first, of all pages.

    Raises:
        PrivestError: see `call`.
    """
    chosen = given(
        state=list(state) or None,
        dataset=None if dataset is None else id_of(dataset),
        tag=tag,
        since=since and since.isoformat(),
        until=until and until.isoformat(),
    )
    return (yield from _pages(models.JobPage, "/v1/jobs", "jobs", chosen))


def wait(job_id: str, timeout: float, told: Told) -> Conversation[Any]:
    """The answer of a job that was asked for before.

    Raises:
        AnswerWithheld: another one asked.
        JobFailed: the run came to no end.
        StillRunning: the time is over.
        PrivestError: see `call`.
    """
    found = yield from fetch(models.JobView, "GET", f"/v1/jobs/{job_id}")
    kind = KINDS[found.kind]
    job = kind.job.model_validate(found.model_dump(by_alias=True, mode="json"))
    return (yield from _ended(kind, job, timeout, told))


def _ended(
    kind: Kind, job: Any, timeout: float, told: Told, schema: Schema | None = None
) -> Conversation[Estimate]:
    """The answer of a job, once that is over.

    Raises:
        JobFailed: it came to no end.
        NotApproved: it was denied, withdrawn or not decided in time.
        StillRunning: the time is over.
        AnswerWithheld: another one asked.
    """
    try:
        job = yield from _over(kind, job, timeout, told)
    except STOPS as stop:
        stop.add_note(f"job {job.id} goes on, and is charged once: client.wait({job.id!r}) has its answer")
        raise
    if job.state in _UNAPPROVED:
        reason = f" ({job.approval.reason})" if job.approval and job.approval.reason else ""
        raise NotApproved(f"job {job.id} {_UNAPPROVED[job.state]}{reason}: nothing was charged", job)
    if job.state != "committed":
        given_back = "was given back before it ran, by the owner or an upgrade of the service"
        why = given_back if job.state == "voided" else "failed, and stays charged"
        raise JobFailed(f"job {job.id} {why}: ask again if the budget allows", job)
    if job.estimate is None:
        raise AnswerWithheld(
            f"job {job.id} is answered, and its answer is for whoever asked alone: you may see what it cost, "
            "in `charges` of this error's job",
            job,
        )
    return kind.answer(job, schema or (yield from _schema_of(job)))


def _schema_of(job: Any) -> Conversation[Schema | None]:
    """The schema of the one dataset that a job is about, where there is one that the caller may look at."""
    about = job.receipt.statement.dataset if job.receipt else None
    if not isinstance(about, str):
        return None
    try:
        response = yield from call(Request("GET", f"/v1/datasets/{about}"))
    except (NotFound, Forbidden):
        return None
    return response.json()["schema"]


def _over(kind: Kind, job: Any, timeout: float, told: Told) -> Conversation[Any]:
    deadline, pause = time.monotonic() + timeout, 0.1
    while job.state not in _FINAL:
        told(job.state)
        if time.monotonic() >= deadline:
            how = "waits for the owner's approval" if job.state == "requested" else "still runs"
            raise StillRunning(f"job {job.id} {how}: client.wait({job.id!r}) waits on", job.id)
        yield Pause(pause)
        pause = min(1.5 * pause, 10.0 if job.state == "requested" else 2.0)
        job = yield from fetch(kind.job, "GET", f"/v1/jobs/{job.id}")
    return job

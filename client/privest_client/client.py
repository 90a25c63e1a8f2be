"""The client that waits: written by `make openapi` from async_client.py. Do not edit."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast

import httpx

from privest_client import data, models, operations
from privest_client.answers import FrechetMean, LinearClassifier, Score, Subspace
from privest_client.calls import (
    LARGEST_FILE,
    STOPS,
    Bearer,
    Conversation,
    Pause,
    Received,
    Request,
    content_of,
    from_environment,
    options_of,
)
from privest_client.errors import surfaced
from privest_client.estimators import Estimates
from privest_client.frames import rows_as_told
from privest_client.operations import WAIT, Question, given, id_of
from privest_client.showing import (
    Budget,
    Dataset,
    Plan,
    Prices,
    announced,
    confirmed,
    progress_of_job,
    progress_of_upload,
)
from privest_client.tables import Column, Table, is_frame, require_no_other, table

T = TypeVar("T")


@surfaced
class Client(Estimates):
    """A Privest service, asked with one key.

    Every call raises a `PrivestError` that says what to do. Calls are repeated while the service is busy or
    out of reach, estimates under the same idempotency key, so that nothing is charged twice.

    Args:
        url: of the service.
        key: of an owner or an analyst, or a platform's token; or a function that returns one, which is asked
            before each request, so that tokens may end.
        on_behalf_of: with the key of a service account, the token of the person for whom it asks; or a
            function that returns one, as for `key`.
        progress: whether to show bars in terminals, and lines elsewhere.
        verify: how the service's certificate is checked: False, or an `ssl.SSLContext`, as httpx takes it.
        proxy: address of a proxy; by default what the environment says.
        plain_http: whether the key may travel unencrypted, by http, to a machine other than this one.

    Raises:
        PrivestError: the address is neither https nor of this machine, and `plain_http` is false.
    """

    def __init__(
        self,
        url: str,
        key: str | Callable[[], str],
        *,
        on_behalf_of: str | Callable[[], str] | None = None,
        progress: bool = True,
        verify: Any = True,
        proxy: str | None = None,
        plain_http: bool = False,
    ) -> None:
        self._progress = progress
        self._http = httpx.Client(
            **options_of(url, Bearer(key, on_behalf_of), verify, proxy, plain_http)
        )
        self.datasets = Datasets(self)
        self.published = Published(self)

    @classmethod
    def from_env(cls, **options: Any) -> Self:
        """Return a client of the service at PRIVEST_URL with the key in PRIVEST_KEY.

        With PRIVEST_PLAIN_HTTP=1 the key may travel unencrypted to another machine.

        Args:
            options: as of the class.

        Raises:
            PrivestError: there is no key.
        """
        return cls(**from_environment() | options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def run(self, conversation: Conversation[T]) -> T:
        """Hold a conversation to its end."""
        try:
            step = next(conversation)
            while True:
                try:
                    response = self._carried(step)
                except (httpx.TransportError, *STOPS) as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(response)
        except StopIteration as end:
            return cast("T", end.value)

    def _carried(self, step: Request | Pause) -> httpx.Response | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        with self._http.stream(step.method, step.path, **content_of(step)) as answer:
            received = Received(answer, step.most)
            for piece in answer.iter_bytes():
                received.add(piece)
        return received.whole()

    def me(self) -> models.PrincipalView:
        """Return the role and the id of the caller."""
        return self.run(operations.fetch(models.PrincipalView, "GET", "/v1/me"))

    def budget(self, owner: str | None = None) -> Budget:
        """What an owner has spent and has left.

        Args:
            owner: its id; by default the holder of the key.
        """
        owner = id_of(owner or self.me())
        return Budget(self.run(operations.fetch(models.Budget, "GET", f"/v1/owners/{owner}/budget")))

    def change_budget(self, owner: str | None = None, **changes: Any) -> Budget:
        """Raise, freeze or renew a budget, or say how it is renewed and how fast it may be spent.

        Args:
            owner: its id; by default the holder of the key.
            changes: `epsilon`, `delta`, `frozen`, `window`, `replaces`, `renewal` and `pace`, as openapi.yaml
                has them: `renewal={"every": "month", "most": 12}`.
        """
        path = f"/v1/owners/{id_of(owner or self.me())}/budget"
        return Budget(self.run(operations.change(models.Budget, "PATCH", path, changes)))

    def report(
        self,
        owner: str | None = None,
        *,
        format: Literal["html", "csv"] = "html",  # noqa: A002
        keys: Sequence[str] = (),
    ) -> bytes:
        """A report for an auditor: all that happened to an owner's budget, and whether the record is intact.

        Args:
            owner: its id; by default the holder of the key.
            format: `html` to read and print, or `csv` for spreadsheets.
            keys: earlier signing keys of the service, each with its end: `BASE64=2026-01-31T12:00Z`.
        """
        path = f"/v1/owners/{id_of(owner or self.me())}/report"
        params = {"params": {"format": format, "keys": list(keys)}, "timeout": WAIT}  # it is all read again
        return (self.run(operations.call(Request("GET", path, params, most=LARGEST_FILE)))).content

    def channels(self, owner: str | None = None) -> list[models.ChannelView]:
        """The ways on which an owner or an analyst is sent notices, and how their deliveries fare.

        Args:
            owner: its id; by default the holder of the key, who may be an analyst.
        """
        path = self._channels_path(owner)
        return (self.run(operations.fetch(models.ChannelList, "GET", path))).channels

    def add_channel(
        self,
        kind: Literal["webhook", "mail", "file", "object-store"],
        owner: str | None = None,
        **choices: Any,
    ) -> models.CreatedChannel:
        """Have notices sent somewhere; the answer has the secret of a webhook, this once.

        An analyst has webhooks alone, which are told when its questions end.

        Args:
            kind: of the way.
            owner: its id; by default the holder of the key, who may be an analyst.
            choices: `url`, `to`, `name` or `connection`, and `events` and `heads`, as openapi.yaml has them.
        """
        path, told = self._channels_path(owner), {"kind": kind} | choices
        return self.run(operations.change(models.CreatedChannel, "POST", path, told))

    def _channels_path(self, owner: str | None) -> str:
        if owner is not None:
            return f"/v1/owners/{id_of(owner)}/channels"
        holder = self.me()
        return f"/v1/{holder.role}s/{holder.id}/channels"

    def plan(
        self,
        kind: str,
        dataset: Any,
        columns: Sequence[str] | None = None,
        *,
        epsilon: float | None = None,
        within: float | Mapping[str, float] | None = None,
        share: float | None = None,
        delta: float | None = None,
        **choices: Any,
    ) -> Plan:
        """The exact cost of a question and what to expect of it; free, and reads no record.

        One of `epsilon`, `within` and `share` is given; the plan's `epsilon` is what to ask with.

        Args:
            kind: name of an estimator, as `robust-pca`: one of `privest_client.estimators.KINDS`.
            dataset: what is asked about, as of `estimate`.
            columns: names of columns of a table, of a kind that takes them; by default all.
            epsilon: ε.
            within: how far off the answer may be in 95 of 100 runs; of means of a table also by column, each
                in its own units. The least ε is found for which the plan foretells that.
            share: of what is left of the budget or cap with least room, that may be taken.
            delta: δ; n^−1.5 by default.
            choices: of the kind, as openapi.yaml has them.
        """
        privacy = operations.to_plan(epsilon, within, share, delta)
        question = Question.of(kind, dataset, privacy, choices | given(columns=columns))
        return Plan(self.run(operations.plan(question)))

    def price(self, questions: Sequence[Question]) -> Prices:
        """What several questions cost, each and together, and whether limits cover them; free.

        Args:
            questions: made by `privest_client.question`, at most 50.
        """
        return Prices(self.run(operations.price(questions)))

    def estimate_all(
        self, questions: Sequence[Question], *, key: str | None = None, timeout: float = WAIT
    ) -> list[Any]:
        """The answers of several questions, in their order: all of them are charged, or none.

        Args:
            questions: as of `price`, each with its epsilon.
            key: by which they are charged once; by default this call is its own.
            timeout: seconds to wait for each.

        Raises:
            JobFailed: a run came to no end; it stays charged.
            StillRunning: the time is over.
            Problem: the service refuses one of them, and charges nothing.
        """
        jobs = self.run(operations.ask_all(questions, key))
        return [self.wait(job.id, timeout=timeout) for job in jobs]

    def estimate(
        self,
        kind: str,
        dataset: Any,
        columns: Sequence[str] | None = None,
        *,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = WAIT,
        **choices: Any,
    ) -> Any:
        """An estimate of any kind, charged to the owners of its datasets.

        Args:
            kind: as of `plan`.
            dataset: a dataset or its id, or a list of several; or a frame of your own, or a `Table`, whose
                rows are sent with the question and kept for it alone.
            columns: as of `plan`.
            epsilon: ε.
            delta: δ; n^−1.5 by default.
            key: by which it is charged once, however often it is asked for; by default this call is its own.
            timeout: seconds to wait.
            choices: of the kind.

        Raises:
            JobFailed: the run came to no end; it stays charged.
            StillRunning: the time is over.
            Problem: the service refuses, and charges nothing.
        """
        privacy = {"epsilon": epsilon} | given(delta=delta)
        question = Question.of(kind, dataset, privacy, choices | given(columns=columns))
        with progress_of_job(kind, self._progress) as told:
            return self.run(operations.estimate(question, key, timeout, told))

    def mean(
        self,
        data: Any,
        columns: Sequence[str] | None = None,
        *,
        epsilon: float,
        delta: float | None = None,
    ) -> FrechetMean:
        """Means of columns and shares of categories, each with its interval; see `frechet_mean` for more.

        Args:
            data: as of `estimate`.
            columns: names; by default all.
            epsilon: ε.
            delta: δ; n^−1.5 by default.
        """
        chosen = given(columns=columns)
        return self.estimate("frechet-mean", data, epsilon=epsilon, delta=delta, **chosen)

    def pca(
        self,
        data: Any,
        columns: Sequence[str] | None = None,
        *,
        rank: int,
        epsilon: float,
        delta: float | None = None,
    ) -> Subspace:
        """Directions along which records differ most, with a loading for each column; see `robust_pca`.

        A centre is estimated, too, and taken off, as else directions would lead to where records are.

        Args:
            data: as of `estimate`.
            columns: names; by default all.
            rank: number of directions.
            epsilon: ε.
            delta: δ; n^−1.5 by default.
        """
        chosen = given(rank=rank, columns=columns, center=True)
        return self.estimate("robust-pca", data, epsilon=epsilon, delta=delta, **chosen)

    def classify(
        self,
        data: Any,
        label: str | None = None,
        features: Sequence[str] | None = None,
        *,
        epsilon: float,
        delta: float | None = None,
    ) -> LinearClassifier:
        """A classifier that tells a label by other columns; see `logistic_regression` for more.

        Args:
            data: as of `estimate`.
            label: name of the column to be told; not of labelled rows, which have declared theirs.
            features: names of the columns to tell it by; by default all others.
            epsilon: ε.
            delta: δ; n^−1.5 by default.
        """
        chosen = given(label=label, features=features)
        return self.estimate("logistic-regression", data, epsilon=epsilon, delta=delta, **chosen)

    def score(
        self,
        data: Any,
        found: LinearClassifier,
        *,
        epsilon: float,
        delta: float | None = None,
        metric: Literal["accuracy", "auc"] = "accuracy",
    ) -> Score:
        """How well a classifier tells its label in other rows; see `classifier_score` for more.

        Args:
            data: as of `estimate`; other rows than those that it was fitted to, or it looks too good.
            found: a classifier that was asked for, whose label and features are asked about.
            epsilon: ε.
            delta: δ; n^−1.5 by default.
            metric: the share of right answers, or the area under the ROC curve of two classes.
        """
        chosen = operations.scored(found, metric)
        return self.estimate("classifier-score", data, epsilon=epsilon, delta=delta, **chosen)

    def upload(
        self,
        rows: Any,
        schema: data.Schema | None = None,
        *,
        columns: dict[str, Column] | None = None,
        drop: Sequence[str] = (),
        values_are_public: bool = False,
        bounds: Literal["offered"] | None = None,
        name: str | None = None,
        label: str | None = None,
        confirm: bool | Callable[[Any], bool] | None = None,
        header: bool | None = None,
        rows_of: Any = None,
        once: bool = False,
        **declared: Any,
    ) -> Dataset:
        """Register rows under a public schema.

        Args:
            rows: a frame of pandas, polars or pyarrow, a `Table`, an array, or the path of a file, which is
                sent as it is and read by the service. Without a schema one is made of a csv or Parquet file
                as of a frame; columns to drop are taken out before the rest is sent.
            schema: what everybody may know; without one it is made of a frame's names and dtypes, or of the
                form of an array. It is shown, and to be confirmed.
            columns: of a frame without a schema, what its dtypes do not tell, by names of columns: `type`,
                `low` and `high`, `categories`, `missing` (`refused`, `category` or `filled`) with `fill`, and
                `format` of texts that are dates (`dd.mm.yyyy`, `mm/dd/yyyy` or `dd/mm/yyyy`), and
                `number_format` of texts that are numbers: how 1234.5 is written, as `1,234.5` or `$1,234.5`.
            drop: of a frame without a schema, names of columns that stay at home.
            values_are_public: of a frame without a schema, whether bounds, categories and gaps may be read
                off the values, as everybody may know these anyway. Then nothing is to be confirmed.
            bounds: of a frame without a schema: numbers without declared bounds get those that a well-known
                name suggests, as 0 to 110 for `age`, where a person confirms the schema that shows them.
                With `confirm=True` they are used only if this is `offered`.
            name: for people.
            label: of a frame of numbers, the column that holds the class: then it is no table, but labelled.
            confirm: of an inferred schema: True where it needs no look, or what is asked; by default the
                terminal.
            header: of the path of a csv file, whether its first line names the columns; needed where that
                line holds numbers.
            rows_of: a dataset of yours, or its id, that holds the same rows: both are counted together, and a
                cap on either holds for both. The answer's `same_rows` names those that could be.
            once: whether a dataset of yours that has these rows already, under this schema, is taken in place
                of a copy, about which all questions would be charged anew.
            declared: parts that the schema gets besides, as `unit`, `classes` and `norm_bound`.

        Returns:
            What everybody may know of it: look whether `n` is the number of records that you meant.

        Raises:
            SchemaMismatch: the rows cannot be of that schema, it was not confirmed, or the service counted
                other records than there are.
            Problem: the service refuses.
        """
        require_no_other(rows)
        path = Path(rows) if schema is None and header is None and data.is_table_file(rows) else None
        if path is not None:
            rows = data.read_file(path, columns, declared.get("unit"))
        if isinstance(rows, Table) or (schema is None and label is None and is_frame(rows)):
            if not isinstance(rows, Table):
                unit = declared.pop("unit", None)
                if confirm is not True and not values_are_public:
                    bounds = "offered"
                rows = table(
                    rows,
                    columns=columns,
                    drop=drop,
                    unit=unit,
                    values_are_public=values_are_public,
                    bounds=bounds,
                )
                rows = replace(rows, path=None if drop else path)
                if values_are_public and not callable(confirm):
                    announced(rows)
                else:
                    confirmed(rows, confirm)
            whole = rows.schema | declared
        else:
            whole = (schema or data.infer(rows, label=label)) | declared
            data.check(rows, whole)
            if schema is None:
                confirmed(whole, confirm)
        file = data.opened(rows, whole, header)
        with file.file, progress_of_upload(file, self._progress) as sent:
            return self.run(operations.upload(file, whole, name, rows_of, sent, once=once))

    def model(self, job: Any, format: Literal["json", "onnx", "pmml"] = "json") -> bytes:  # noqa: A002
        """The answer of a job as a file for other programs, with a card that the service signs.

        Args:
            job: an answer, or the id of its job.
            format: `onnx` and `pmml` are for classifiers.
        """
        path = f"/v1/jobs/{id_of(job)}/model"
        found = self.run(
            operations.call(Request("GET", path, {"params": {"format": format}}, most=LARGEST_FILE))
        )
        return found.content

    def wait(self, job: Any, *, timeout: float = WAIT) -> Any:
        """The answer of a job that was asked for before, by its id; charges nothing."""
        with progress_of_job(id_of(job), self._progress) as told:
            return self.run(operations.wait(id_of(job), timeout, told))

    def requests(self) -> list[models.RequestView]:
        """Questions that wait for the decision of the key's holder, an owner; oldest first."""
        return (self.run(operations.fetch(models.RequestList, "GET", "/v1/requests"))).requests

    def jobs(
        self,
        *,
        state: Sequence[str] = (),
        dataset: Any = None,
        tag: str | None = None,
        since: date | None = None,
        until: date | None = None,
    ) -> list[models.JobLine]:
        """Questions that the key's holder asked, newest first; `wait` has the answer of each by its id.

        Args:
            state: one of these, as `committed`; by default any.
            dataset: that they are about, alone or with others.
            tag: that they were asked with.
            since: asked then or later: a datetime with a time zone, or a day, which begins in UTC.
            until: asked before then.
        """
        return self.run(operations.jobs(state, dataset, tag, since, until))

    def grants(self) -> list[models.GrantView]:
        """An analyst's grants, or those on an owner's datasets, each with what is `left` of its cap."""
        return self.run(operations.grants())

    def allowance(self, dataset: Any) -> models.GrantView:
        """The grant of the key's holder, an analyst, on a dataset: its terms, and what is `left` of its cap.

        How many more questions of a kind fit is told by a plan of one: `client.plan(…).told.room.times`.
        """
        return self.run(operations.allowance(dataset))

    def acts(
        self,
        *,
        kind: str | None = None,
        actor: str | None = None,
        text: str | None = None,
        since: Any = None,
        until: Any = None,
    ) -> list[models.ActView]:
        """The record of who did what, newest first: an owner's own; the service's for administrators.

        Args:
            kind: such as `grant.made`.
            actor: the id of whoever acted, or a role.
            text: in ids, names, details or reasons.
            since: no earlier than: a datetime with a time zone, a day, or one as text.
            until: earlier than, likewise.
        """
        begin, end = (each and str(each) for each in (since, until))
        return self.run(operations.acts(kind=kind, actor=actor, text=text, since=begin, until=end))

    def decide(
        self, job: Any, decision: Literal["approve", "deny"], *, reason: str | None = None
    ) -> models.JobView:
        """Decide on a question about one's own dataset; the last approval that it needs charges it.

        Args:
            job: the question, or its id.
            decision: the same once more changes nothing.
            reason: of a denial it is told to whoever asked.

        Raises:
            Problem: something does not allow it at present; the question goes on waiting.
        """
        body = given(decision=decision, reason=reason)
        return self.run(
            operations.fetch(models.JobView, "POST", f"/v1/jobs/{id_of(job)}/decision", json=body)
        )

    def withdraw(self, job: Any) -> models.JobView:
        """End a question of one's own that has not begun; what was charged for it is given back."""
        return self.run(operations.fetch(models.JobView, "POST", f"/v1/jobs/{id_of(job)}/withdrawal"))


@surfaced
class Datasets:
    """The datasets of a key's holder. One is named by its id, or by what the service told of it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.upload = client.upload

    def list(self) -> list[Dataset]:
        """All that may be asked about."""
        return self._client.run(operations.datasets())

    def get(self, dataset: Any) -> Dataset:
        """What is public of one."""
        return self._client.run(operations.fetch(Dataset, "GET", f"/v1/datasets/{id_of(dataset)}"))

    def dummy(self, dataset: Any, n: int = 20) -> Any:
        """The rows that a question asked of dummies is answered from: made of the schema alone, and free.

        Args:
            dataset: one of those that the key may ask about.
            n: number of rows.

        Returns:
            A frame of a table's columns, or an array.
        """
        path = f"/v1/datasets/{id_of(dataset)}/dummy"
        told = self._client.run(operations.fetch(models.DummyRows, "GET", path, params={"n": n}))
        return rows_as_told(told.rows)

    def delete(self, dataset: Any) -> None:
        """Delete the rows; the ledger keeps what was charged for them."""
        self._client.run(operations.call(Request("DELETE", f"/v1/datasets/{id_of(dataset)}")))

    def grant(
        self,
        dataset: Any,
        analyst: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        expires: Any = None,
        **terms: Any,
    ) -> models.GrantView:
        """Let an analyst ask about a dataset; this replaces all that the grant said before.

        Args:
            dataset: which.
            analyst: who.
            epsilon: ε that the analyst may spend; by default as much as the budget has.
            delta: δ that it may spend; with an ε alone.
            expires: when it ends by itself: a datetime with a time zone, or one as text.
            terms: `approval="required"`, `purpose`, `kinds`, `max_epsilon`, `decide_within` (hours) and
                `publish="allowed"`, as `models.NewGrant` has them.
        """
        operations.require_numbers(given(epsilon=epsilon, delta=delta))
        end, path = expires and str(expires), operations.grant_path(dataset, analyst)
        body = given(epsilon=epsilon, delta=delta, expires=end, **terms)
        return self._client.run(operations.fetch(models.GrantView, "PUT", path, json=body))

    def revoke(self, dataset: Any, analyst: Any) -> None:
        """Take a grant back."""
        self._client.run(operations.call(Request("DELETE", operations.grant_path(dataset, analyst))))


@surfaced
class Published:
    """Published answers: tables under a name. To read one costs nothing, however often it is read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> list[models.PublicationView]:
        """What the key's holder published or may read, and what is published of its data, by name."""
        return self._client.run(operations.publications())

    def publish(
        self, job: Any, name: str, *, readers: Sequence[Any] = (), sql: bool = False
    ) -> models.PublicationView:
        """Publish an answer under a name, in place of what the name stood for before.

        For a refresh ask the question again, with `reuse=False`, which is charged, and publish its answer.

        Args:
            job: an answer to a question of one's own, or the id of its job.
            name: small letters, digits and `_`; it stays the publisher's for good.
            readers: analysts and owners who may read it, besides the publisher and the owners of the data.
            sql: whether everybody may read it who has the database's reading role.
        """
        body = {"job": id_of(job), "readers": [id_of(each) for each in readers], "sql": sql}
        path = operations.published_path(name)
        return self._client.run(operations.fetch(models.PublicationView, "PUT", path, json=body))

    def read(self, name: str) -> models.PublishedTable:
        """A published answer, with its numbers in `values`."""
        path = operations.published_path(name)
        return self._client.run(operations.fetch(models.PublishedTable, "GET", path))

    def file(self, name: str, format: Literal["csv", "parquet", "arrow"] = "csv") -> bytes:  # noqa: A002
        """A published answer as a file, a row for each number: for `pandas.read_csv(io.BytesIO(…))`."""
        path = f"{operations.published_path(name)}.{format}"
        return (self._client.run(operations.call(Request("GET", path, most=LARGEST_FILE)))).content

    def withdraw(self, name: str) -> None:
        """Withdraw a published answer at once; an owner of its data does so for good."""
        self._client.run(operations.call(Request("DELETE", operations.published_path(name))))

"""The client: in this thread, and, with the same names, in an event loop."""

import asyncio
import time
from collections.abc import Callable
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import httpx

from privest_client import data, models, operations
from privest_client.calls import Conversation, Pause, Request
from privest_client.estimators import AsyncEstimates, Estimates
from privest_client.operations import Question, id_of
from privest_client.showing import Budget, Plan, confirmed, progress_of_job, progress_of_upload

T = TypeVar("T")

_NAME = f"privest-client/{version('privest-client')}"
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_WAIT = 600.0
"""Seconds to wait for an estimate, unless told otherwise."""


class _Face:
    """What both clients are made of."""

    def __init__(self, url: str, key: str, *, progress: bool = True) -> None:
        self._options: dict[str, Any] = {
            "base_url": url.rstrip("/"),
            "headers": {"Authorization": f"Bearer {key}", "User-Agent": _NAME},
            "timeout": _TIMEOUT,
        }
        self._progress = progress


def _content(request: Request) -> dict[str, Any]:
    """Keyword arguments of httpx; files from their beginning, also when they are sent again."""
    for _, file, *_ in request.content.get("files", {}).values():
        file.seek(0)
    return request.content


class Client(_Face, Estimates):
    """A Privest service, asked with one key.

    Every call raises a `PrivestError` that says what to do. Calls are repeated while the service is busy or
    out of reach, estimates under the same idempotency key, so that nothing is charged twice.

    Args:
        url: of the service.
        key: of an owner or an analyst, or a platform's token.
        progress: whether to show bars.
    """

    def __init__(self, url: str, key: str, *, progress: bool = True) -> None:
        super().__init__(url, key, progress=progress)
        self._http = httpx.Client(**self._options)
        self.datasets = Datasets(self)

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
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = conversation.send(None)
                    continue
                try:
                    response = self._http.request(step.method, step.path, **_content(step))
                except httpx.TransportError as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(response)
        except StopIteration as end:
            return cast("T", end.value)

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

    def plan(
        self, kind: str, dataset: Any, *, epsilon: float, delta: float | None = None, **choices: Any
    ) -> Plan:
        """The exact cost of a question and what to expect of it; free, and reads no record.

        Args:
            kind: name of an estimator, as `robust-pca`: one of `privest_client.estimators.KINDS`.
            dataset: its id, or a list of several.
            epsilon: ε.
            delta: δ; n^−1.5 by default.
            choices: of the kind, as openapi.yaml has them.
        """
        return Plan(self.run(operations.plan(Question.of(kind, dataset, epsilon, delta, choices))))

    def estimate(
        self,
        kind: str,
        dataset: Any,
        *,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = _WAIT,
        **choices: Any,
    ) -> Any:
        """An estimate of any kind, charged to the owners of its datasets.

        Args:
            kind: as of `plan`.
            dataset: its id, or a list of several.
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
        question = Question.of(kind, dataset, epsilon, delta, choices)
        with progress_of_job(kind, self._progress) as told:
            return self.run(operations.estimate(question, key, timeout, told))

    def wait(self, job: Any, *, timeout: float = _WAIT) -> Any:
        """The answer of a job that was asked for before, by its id; charges nothing."""
        with progress_of_job(id_of(job), self._progress) as told:
            return self.run(operations.wait(id_of(job), timeout, told))


def _grant(dataset: Any, analyst: Any) -> str:
    return f"/v1/datasets/{id_of(dataset)}/grants/{id_of(analyst)}"


class Datasets:
    """The datasets of a key's holder. One is named by its id, or by what the service told of it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def upload(
        self,
        rows: Any,
        schema: data.Schema | None = None,
        *,
        name: str | None = None,
        label: str | None = None,
        confirm: bool | Callable[[data.Schema], bool] | None = None,
        header: bool | None = None,
        rows_of: Any = None,
        **declared: Any,
    ) -> models.DatasetView:
        """Register rows under a public schema.

        Args:
            rows: an array, a frame with `to_csv` or `write_csv`, or the path of a file.
            schema: what everybody may know; without one it is inferred from the form of the rows, shown, and
                to be confirmed.
            name: for people.
            label: of a frame, the column that holds the class.
            confirm: of an inferred schema: True where it needs no look, or what is asked; by default the
                terminal.
            header: of the path of a csv file, whether its first line names the columns; needed where that
                line holds numbers.
            rows_of: a dataset of yours, or its id, that holds the same rows: both are counted together, and a
                cap on either holds for both. The answer's `same_rows` names those that could be.
            declared: parts that the schema gets besides, as `classes` and `norm_bound`.

        Returns:
            What everybody may know of it: look whether `n` is the number of records that you meant.

        Raises:
            SchemaMismatch: the rows cannot be of that schema, it was not confirmed, or the service counted
                other records than there are.
            Problem: the service refuses.
        """
        whole = (schema or data.infer(rows, label=label)) | declared
        data.check(rows, whole)
        if schema is None:
            confirmed(whole, confirm)
        file = data.opened(rows, whole, header)
        with file.file, progress_of_upload(file, self._client._progress) as sent:
            return self._client.run(operations.upload(file, whole, name, rows_of, sent))

    def list(self) -> list[models.DatasetView]:
        """All that may be asked about."""
        return self._client.run(operations.datasets())

    def get(self, dataset: Any) -> models.DatasetView:
        """What is public of one."""
        return self._client.run(operations.fetch(models.DatasetView, "GET", f"/v1/datasets/{id_of(dataset)}"))

    def delete(self, dataset: Any) -> None:
        """Delete the rows; the ledger keeps what was charged for them."""
        self._client.run(operations.call(Request("DELETE", f"/v1/datasets/{id_of(dataset)}")))

    def grant(
        self, dataset: Any, analyst: Any, *, epsilon: float | None = None, delta: float | None = None
    ) -> models.GrantView:
        """Let an analyst ask about a dataset, up to (ε, δ) if these are given."""
        cap = {name: value for name, value in (("epsilon", epsilon), ("delta", delta)) if value is not None}
        path = _grant(dataset, analyst)
        return self._client.run(operations.fetch(models.GrantView, "PUT", path, json=cap))

    def revoke(self, dataset: Any, analyst: Any) -> None:
        """Take a grant back."""
        self._client.run(operations.call(Request("DELETE", _grant(dataset, analyst))))


class AsyncClient(_Face, AsyncEstimates):
    """As `Client`, in an event loop.

    Args:
        url: of the service.
        key: of an owner or an analyst, or a platform's token.
    """

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, key, progress=False)
        self._http = httpx.AsyncClient(**self._options)
        self.datasets = AsyncDatasets(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def run(self, conversation: Conversation[T]) -> T:
        """Hold a conversation to its end."""
        try:
            step = next(conversation)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = conversation.send(None)
                    continue
                try:
                    response = await self._http.request(step.method, step.path, **_content(step))
                except httpx.TransportError as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(response)
        except StopIteration as end:
            return cast("T", end.value)

    async def me(self) -> models.PrincipalView:
        """Return the role and the id of the caller."""
        return await self.run(operations.fetch(models.PrincipalView, "GET", "/v1/me"))

    async def budget(self, owner: str | None = None) -> Budget:
        """See `Client.budget`."""
        owner = id_of(owner or await self.me())
        return Budget(await self.run(operations.fetch(models.Budget, "GET", f"/v1/owners/{owner}/budget")))

    async def plan(
        self, kind: str, dataset: Any, *, epsilon: float, delta: float | None = None, **choices: Any
    ) -> Plan:
        """See `Client.plan`."""
        return Plan(await self.run(operations.plan(Question.of(kind, dataset, epsilon, delta, choices))))

    async def estimate(
        self,
        kind: str,
        dataset: Any,
        *,
        epsilon: float,
        delta: float | None = None,
        key: str | None = None,
        timeout: float = _WAIT,
        **choices: Any,
    ) -> Any:
        """See `Client.estimate`."""
        question = Question.of(kind, dataset, epsilon, delta, choices)
        return await self.run(operations.estimate(question, key, timeout, lambda _: None))

    async def wait(self, job: Any, *, timeout: float = _WAIT) -> Any:
        """See `Client.wait`."""
        return await self.run(operations.wait(id_of(job), timeout, lambda _: None))


class AsyncDatasets:
    """As `Datasets`, in an event loop."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def upload(
        self,
        rows: Any,
        schema: data.Schema,
        *,
        name: str | None = None,
        header: bool | None = None,
        rows_of: Any = None,
        **declared: Any,
    ) -> models.DatasetView:
        """See `Datasets.upload`; the schema is to be stated, as nobody is there to confirm one."""
        whole = schema | declared
        data.check(rows, whole)
        file = data.opened(rows, whole, header)
        with file.file:
            return await self._client.run(operations.upload(file, whole, name, rows_of, lambda _: None))

    async def list(self) -> list[models.DatasetView]:
        """See `Datasets.list`."""
        return await self._client.run(operations.datasets())

    async def get(self, dataset: Any) -> models.DatasetView:
        """See `Datasets.get`."""
        return await self._client.run(
            operations.fetch(models.DatasetView, "GET", f"/v1/datasets/{id_of(dataset)}")
        )

    async def delete(self, dataset: Any) -> None:
        """See `Datasets.delete`."""
        await self._client.run(operations.call(Request("DELETE", f"/v1/datasets/{id_of(dataset)}")))

"""A site's connection to its hub. The site makes all calls, and bounds each answer of the hub."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
import numpy as np
from pydantic import BaseModel, ValidationError

from privest.arrays import Array
from privest_service.bounded_http import PLAIN, UnfitAnswerError, read_body
from privest_service.sites.schemas import LARGEST_LIST

_PATIENCE = 40.0
"""Seconds that the hub may take over an answer, which it holds back for up to twenty."""

_PAUSES = (0.05, 0.2, 1.0)
"""Fewest seconds from one attempt at an exchange to the next; the last one for ever."""

M = TypeVar("M", bound=BaseModel)


class OverError(Exception):
    """The hub does not go on with a question."""


class UnreachableError(Exception):
    """The hub cannot be reached, or cannot answer, at present."""


@dataclass(frozen=True)
class Hub:
    """Where the hub is, and how a site calls it.

    Attributes:
        url: without a path of the interface.
        key: of the owner as whom the site calls.
        authorities: file of the certificates that may vouch for the hub, instead of the system's.
        certificate: file of the site's own certificate and its key.
        proxy: through which it is called.
    """

    url: str
    key: str = field(repr=False)
    authorities: str | None = None
    certificate: str | None = None
    proxy: str | None = None

    @classmethod
    def through_proxies(
        cls, url: str, key: str, authorities: str | None = None, certificate: str | None = None
    ) -> "Hub":
        """Return the hub as the environment says that it is reached; workers have no such environment.

        Plain http leads to this machine alone, so no proxy is asked: it would read the key.
        """
        parts = urlsplit(url)
        direct = parts.scheme == "http" or proxy_bypass(parts.hostname or "")
        return cls(url, key, authorities, certificate, None if direct else getproxies().get(parts.scheme))

    def as_json(self) -> str:
        """Text for a worker."""
        return json.dumps(asdict(self))

    def link(self) -> "Link":
        """Return a connection, made when it is needed."""
        return Link(self)


class Link:
    """Calls to a hub over one connection that is kept."""

    def __init__(self, hub: Hub) -> None:
        from ssl import create_default_context  # noqa: PLC0415 - reads all certificates

        context: Any = True
        if hub.url.startswith("https:"):
            context = create_default_context(cafile=hub.authorities)
            if hub.certificate:
                context.load_cert_chain(hub.certificate)
        self._http = httpx.Client(
            base_url=hub.url,
            headers={"Authorization": f"Bearer {hub.key}"} | PLAIN,
            timeout=_PATIENCE,
            verify=context,
            proxy=hub.proxy,
            trust_env=False,
        )

    def close(self) -> None:
        """End the connection."""
        self._http.close()

    def call(self, method: str, path: str, *, most: int = LARGEST_LIST, **content: Any) -> httpx.Response:
        """Make one call, and return the status and the body of its answer.

        Args:
            method: of HTTP.
            path: from the hub's root.
            most: bytes that the body may have. The body of a refusal is not read.
            content: keyword arguments of `httpx.Client.stream`.

        Raises:
            OverError: the hub refuses the call.
            UnreachableError: the hub does not answer, or cannot at present.
            UnfitAnswerError: the body is compressed or too long.
        """
        try:
            with self._http.stream(method, path, **content) as answer:
                status = answer.status_code
                body = read_body(answer, most, _PATIENCE) if status < 400 else b""
        except httpx.TransportError:
            raise UnreachableError from None
        if status in (401, 408, 429) or status >= 500:
            raise UnreachableError
        if status >= 400:
            raise OverError(status)
        return httpx.Response(status, content=body)

    def asked(self, model: type[M], method: str, path: str, body: Any = None, **query: Any) -> M:
        """Make one call whose answer is a document.

        Raises:
            UnfitAnswerError: the answer is no such document, or a part of it is longer than it may be.
        """
        given = {} if body is None else {"json": body}
        answer = self.call(method, path, params=query, **given)
        try:
            return model.model_validate_json(answer.content)
        except ValidationError:
            raise UnfitAnswerError(f"it is no {model.__name__} of this version") from None


@dataclass
class Exchange:
    """Gives a site's noisy answers to its hub, one after the other, for the weighted sums of all.

    An answer is drawn once. After a broken connection the same bits are sent again. It leaves at one of few
    public moments, because the time that it took to compute may tell of rows; waiting for others does not.
    The run ends at such a moment, too.
    """

    link: Link
    job_id: str
    leave: Callable[[float], None]
    """Waits until the next public moment, given when the computation began."""

    _number: int = 0
    _since: float = field(default_factory=time.monotonic)

    def __call__(self, label: str, own: Array) -> Array:
        """Return the weighted sum of all sites' answers, of the shape of this one.

        Raises:
            OverError: the run is over.
            ValueError: what came back has another length.
        """
        numbers = np.ascontiguousarray(own, dtype="<f8").tobytes()
        self.end()
        try:
            found = self._sent(label, numbers)
        except UnfitAnswerError as unfit:
            raise ValueError(f"the hub's sum is refused: {unfit}") from None
        finally:
            self._since = time.monotonic()
        if len(found) != len(numbers):
            raise ValueError(f"the hub's sum is refused: it has {len(found):,} bytes, not {len(numbers):,}")
        self._number += 1
        return np.frombuffer(found, "<f8").astype(np.float64).reshape(own.shape)

    def end(self) -> None:
        """Wait for the next public moment after what was computed since the last sum came, or the begin."""
        self.leave(self._since)

    def _sent(self, label: str, numbers: bytes) -> bytes:
        """Send an answer until the sum comes back.

        A hub that others keep waiting holds its answer back. One that does not is asked once a second: a
        pause is counted from when the attempt began.
        """
        path = f"/v1/sites/questions/{self.job_id}/answers/{self._number}"
        headers = {"Content-Type": "application/octet-stream"}
        pauses = list(_PAUSES)
        while True:
            begun = time.monotonic()
            try:
                answer = self.link.call(
                    "POST", path, most=len(numbers), content=numbers, params={"label": label}, headers=headers
                )
                if answer.status_code == 200:
                    return answer.content
            except UnreachableError:
                pass
            pause = pauses.pop(0) if len(pauses) > 1 else pauses[0]
            time.sleep(max(0.0, begun + pause - time.monotonic()))

"""A site's connection to its hub: calls of its own, and nobody calls it."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
import numpy as np

from privest.arrays import Array

_PATIENCE = 40.0
"""Seconds that the hub may take over an answer, which it holds back for up to twenty."""

_PAUSES = (0.05, 0.2, 1.0)
"""Seconds between attempts on a broken connection; the last one for ever."""


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
        """Return the hub as the environment says that it is reached; workers have no such environment."""
        parts = urlsplit(url)
        direct = proxy_bypass(parts.hostname or "")
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
            headers={"Authorization": f"Bearer {hub.key}"},
            timeout=_PATIENCE,
            verify=context,
            proxy=hub.proxy,
            trust_env=False,
        )

    def close(self) -> None:
        """End the connection."""
        self._http.close()

    def call(self, method: str, path: str, **content: Any) -> httpx.Response:
        """One call.

        Raises:
            OverError: the hub refuses it.
            UnreachableError: it does not answer, or cannot at present.
        """
        try:
            answer = self._http.request(method, path, **content)
        except httpx.TransportError:
            raise UnreachableError from None
        if answer.status_code in (401, 408, 429) or answer.status_code >= 500:
            raise UnreachableError
        if answer.status_code >= 400:
            raise OverError(answer.status_code)
        return answer

    def asked(self, method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        """One call that is answered with an object."""
        given = {} if body is None else {"json": body}
        answer = self.call(method, path, params=query, **given)
        return answer.json() if answer.content else {}


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
        """The weighted sum of all sites' answers.

        Raises:
            OverError: the run is over.
            ValueError: what came back is no such sum.
        """
        numbers = np.ascontiguousarray(own, dtype="<f8").tobytes()
        self.end()
        try:
            answer = np.frombuffer(self._sent(label, numbers), "<f8").astype(np.float64)
        finally:
            self._since = time.monotonic()
        self._number += 1
        return answer.reshape(own.shape) if answer.size == own.size else answer

    def end(self) -> None:
        """Wait for the next public moment after what was computed since the last sum came, or the begin."""
        self.leave(self._since)

    def _sent(self, label: str, numbers: bytes) -> bytes:
        path, pauses = f"/v1/sites/questions/{self.job_id}/answers/{self._number}", list(_PAUSES)
        headers: Mapping[str, str] = {"Content-Type": "application/octet-stream"}
        while True:
            try:
                answer = self.link.call(
                    "POST", path, content=numbers, params={"label": label}, headers=headers
                )
            except UnreachableError:
                time.sleep(pauses.pop(0) if len(pauses) > 1 else pauses[0])
                continue
            if answer.status_code == 200:
                return answer.content

"""Calls of the service as conversations: what is asked and what is made of answers, whoever carries them.

A conversation yields requests and pauses and is sent responses, or thrown what went wrong on the way. So
every call is written once; `Client` holds conversations in this thread, and `AsyncClient` in an event loop.
"""

import os
from asyncio import CancelledError
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from importlib.metadata import version
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from privest_client.errors import KNOWN, PrivestError, Problem, UnexpectedAnswer, Unreachable

STOPS = (KeyboardInterrupt, CancelledError)
"""What ends a conversation from outside: it is thrown in, so that it can say how to come back."""

_NAME = f"privest-client/{version('privest-client')}"
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)

_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between tries where the service names no pause."""

_LONGEST = 60.0

LARGEST_DOCUMENT, LARGEST_FILE = 64 * 2**20, 2**30
"""Most bytes of an answer that is a document, and of one that is a file."""

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """One HTTP request.

    Attributes:
        method: of HTTP.
        path: from the service's root.
        content: keyword arguments of `httpx.Client.request`.
        repeatable: whether it may be sent again when no answer came.
        most: bytes that the body of its answer may have.
    """

    method: str
    path: str
    content: dict[str, Any] = field(default_factory=dict)
    repeatable: bool = True
    most: int = LARGEST_DOCUMENT


@dataclass(frozen=True)
class Pause:
    """A wait for a number of seconds."""

    seconds: float


class Bearer(httpx.Auth):
    """A key or a token in each request's header, and perhaps that of a person for whom is asked."""

    def __init__(
        self, key: str | Callable[[], str], on_behalf_of: str | Callable[[], str] | None = None
    ) -> None:
        self._key, self._person = key, on_behalf_of

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Ask for the token and send the request with it."""
        key = self._key if isinstance(self._key, str) else self._key()
        request.headers["Authorization"] = f"Bearer {key}"
        if self._person is not None:
            token = self._person if isinstance(self._person, str) else self._person()
            request.headers["Privest-On-Behalf-Of"] = token
        yield request


def options_of(
    url: str, bearer: Bearer, verify: Any, proxy: str | None, plain_http: bool = False
) -> dict[str, Any]:
    """Return keyword arguments of both clients of httpx.

    Args:
        url: of the service.
        bearer: the key.
        verify: how the service's certificate is checked.
        proxy: address of a proxy.
        plain_http: whether the key may travel unencrypted to another machine.

    Raises:
        PrivestError: the address is neither https nor of this machine, and `plain_http` is false.
    """
    near = urlsplit(url).scheme == "http" and _is_here(url)
    if not plain_http and urlsplit(url).scheme != "https":
        if not near:
            raise PrivestError(_unencrypted(url))
        if proxy is not None and not _is_here(proxy):
            raise PrivestError(_unencrypted(proxy))
    return {
        "base_url": url.rstrip("/"),
        "auth": bearer,
        "headers": {"User-Agent": _NAME, "Accept-Encoding": "identity"},
        "timeout": _TIMEOUT,
        "verify": verify,
        "proxy": proxy,
        # A proxy of the environment, which would read the key, has no part in a call within this machine.
        "trust_env": not near,
    }


def _is_here(url: str) -> bool:
    """Return whether an address is one of this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _unencrypted(url: str) -> str:
    return (
        f"the key would travel unencrypted to {urlsplit(url).hostname or url}: give an https:// address. "
        "If nobody can listen on the way, say plain_http=True, or PRIVEST_PLAIN_HTTP=1 beside PRIVEST_URL"
    )


def from_environment() -> dict[str, Any]:
    """Return arguments of a client from the environment.

    PRIVEST_URL is the address of the service, by default this machine's, and PRIVEST_KEY the key. With
    PRIVEST_PLAIN_HTTP=1 the key may travel unencrypted to another machine.

    Raises:
        PrivestError: there is no key.
    """
    if not (key := os.environ.get("PRIVEST_KEY")):
        raise PrivestError("set PRIVEST_KEY to your key, and PRIVEST_URL to the address of the service")
    return {
        "url": os.environ.get("PRIVEST_URL", "http://127.0.0.1:8000"),
        "key": key,
        "plain_http": os.environ.get("PRIVEST_PLAIN_HTTP") == "1",
    }


class Received:
    """The body of an answer as it arrives, of which no more is taken than was asked for.

    Args:
        answer: opened as a stream.
        most: bytes that the body may have.

    Raises:
        UnexpectedAnswer: it is compressed, or says that it is longer.
    """

    def __init__(self, answer: httpx.Response, most: int) -> None:
        self._answer, self._most, self._body = answer, most, bytearray()
        if answer.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise UnexpectedAnswer(
                "the answer is compressed, which was not asked for: check that no proxy between compresses it"
            )
        declared = answer.headers.get("content-length", "")
        if declared.isascii() and declared.isdecimal():
            self._require(int(declared[:19]))

    def add(self, piece: bytes) -> None:
        """Take a further piece.

        Raises:
            UnexpectedAnswer: the body is too long by it.
        """
        self._body += piece
        self._require(len(self._body))

    def whole(self) -> httpx.Response:
        """Return the answer with its body."""
        answer = self._answer
        return httpx.Response(
            answer.status_code, headers=answer.headers, content=bytes(self._body), request=answer.request
        )

    def _require(self, size: int) -> None:
        if size > self._most:
            raise UnexpectedAnswer(
                f"the answer has more than {self._most:,} bytes: check that the address is that of a Privest "
                "service, and ask for less"
            )


def content_of(request: Request) -> dict[str, Any]:
    """Keyword arguments of httpx; files from their beginning, also when they are sent again."""
    for _, file, *_ in request.content.get("files", {}).values():
        file.seek(0)
    return request.content


Conversation = Generator[Request | Pause, httpx.Response | None, T]


def call(request: Request) -> Conversation[httpx.Response]:
    """The answer to a request, which is sent again while the service is busy or out of reach.

    Raises:
        Unreachable: it stayed so.
        Problem: the service refuses.
        UnexpectedAnswer: what answered is no Privest service.
    """
    for pause in (*_PAUSES, None):
        try:
            response = yield request
        except httpx.TransportError as error:
            unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            if pause is None or not (unsent or request.repeatable):
                raise Unreachable(_unreachable(error, request)) from error
            yield Pause(pause)
            continue
        assert response is not None  # noqa: S101 - of whoever carries requests
        if response.is_success:
            return response
        problem = _problem(response)
        if pause is None or problem.slug not in ("too-many-requests", "unavailable"):
            raise problem
        yield Pause(min(problem.retry_after or pause, _LONGEST))
    raise AssertionError("not reached")


def _unreachable(error: httpx.TransportError, request: Request) -> str:
    advice = (
        "check the address, and that the service runs"
        if request.repeatable
        else "it may have arrived: look before you send it again"
    )
    return f"no answer from the service ({type(error).__name__}): {advice}"


def _problem(response: httpx.Response) -> Problem:
    """The exception that a refusal stands for.

    Raises:
        UnexpectedAnswer: it is none of the service's.
    """
    try:
        told = response.json()
        slug = told["type"].rpartition(":")[2]
        kind = KNOWN[slug]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UnexpectedAnswer(
            f"status {response.status_code} that this client does not know: check that the address is that "
            "of a Privest service, and that client and service are of one version"
        ) from None
    wait = response.headers.get("retry-after", "")
    return kind(
        response.status_code,
        slug,
        told["title"],
        told.get("detail"),
        told.get("faults") or (),
        float(wait) if wait.isdigit() else None,
        told.get("room"),
    )

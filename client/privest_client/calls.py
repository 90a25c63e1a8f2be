"""Calls of the service as conversations: what is asked and what is made of answers, whoever carries them.

A conversation yields requests and pauses and is sent responses, or thrown what went wrong on the way. So
every call is written once; `Client` holds conversations in this thread, and `AsyncClient` in an event loop.
"""

import os
from asyncio import CancelledError
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, TypeVar

import httpx

from privest_client.errors import KNOWN, PrivestError, Problem, UnexpectedAnswer, Unreachable

STOPS = (KeyboardInterrupt, CancelledError)
"""What ends a conversation from outside: it is thrown in, so that it can say how to come back."""

_NAME = f"privest-client/{version('privest-client')}"
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)

_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between tries where the service names no pause."""

_LONGEST = 60.0

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """One HTTP request.

    Attributes:
        method: of HTTP.
        path: from the service's root.
        content: keyword arguments of `httpx.Client.request`.
        repeatable: whether it may be sent again when no answer came.
    """

    method: str
    path: str
    content: dict[str, Any] = field(default_factory=dict)
    repeatable: bool = True


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


def options_of(url: str, bearer: Bearer, verify: Any, proxy: str | None) -> dict[str, Any]:
    """Keyword arguments of both clients of httpx."""
    return {
        "base_url": url.rstrip("/"),
        "auth": bearer,
        "headers": {"User-Agent": _NAME},
        "timeout": _TIMEOUT,
        "verify": verify,
        "proxy": proxy,
    }


def from_environment() -> tuple[str, str]:
    """The address of the service in PRIVEST_URL, by default this machine's, and the key in PRIVEST_KEY.

    Raises:
        PrivestError: there is no key.
    """
    if not (key := os.environ.get("PRIVEST_KEY")):
        raise PrivestError("set PRIVEST_KEY to your key, and PRIVEST_URL to the address of the service")
    return os.environ.get("PRIVEST_URL", "http://127.0.0.1:8000"), key


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

"""Calls of the service as conversations: what is asked and what is made of answers, whoever carries them.

A conversation yields requests and pauses and is sent responses, or thrown what went wrong on the way. So
every call is written once; `Client` holds conversations in this thread, and `AsyncClient` in an event loop.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from privest_client.errors import KNOWN, Problem, UnexpectedAnswer, Unreachable

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
    )

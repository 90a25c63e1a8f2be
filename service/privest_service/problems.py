"""Errors as RFC 9457 problem documents: one class for each type, and nothing that was submitted in any."""

import errno
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, ClassVar, TypeVar

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from privest_service.telemetry import metrics

T = TypeVar("T")

MEDIA_TYPE = "application/problem+json"


class Fault(BaseModel):
    """The place where a request or an upload is wrong, and the rule that it breaks; never a value."""

    location: str | None = Field(default=None, description="field of the request")
    record: int | None = Field(default=None, description="index of the record in an upload, from 0")
    field: str | None = Field(default=None, description="field of that record, or column of a schema")
    rule: str


class ProblemDocument(BaseModel):
    """A problem document as in RFC 9457."""

    type: str
    title: str
    status: int
    detail: str | None = None
    scope: str | None = Field(default=None, description="of the budget that refuses, for those who may know")
    faults: list[Fault] | None = None
    room: dict[str, Any] | None = Field(
        default=None, description="as of a plan: what the question takes of the limit, and what is left of it"
    )


class Problem(Exception):  # noqa: N818 - the RFC's word
    """Base of what the service answers instead of a result."""

    slug: ClassVar[str]
    status: ClassVar[HTTPStatus]
    title: ClassVar[str]

    def __init__(
        self,
        detail: str | None = None,
        *,
        scope: str | None = None,
        faults: Sequence[Fault] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(self.slug)
        self.detail = detail
        self.scope = scope
        self.faults = faults
        self.headers = headers
        self.dataset: str | None = None
        """The dataset whose budget or grant refuses; told to its owner alone."""
        self.room: dict[str, Any] | None = None
        """What a refused question takes and what is left, for those who may know."""
        self.place: int | None = None
        """The place of the question that is refused, of several that are asked together."""

    def response(self) -> JSONResponse:
        """The problem document, to be sent: it is counted."""
        metrics.REFUSALS.labels(self.slug).inc()
        document = ProblemDocument(
            type=f"urn:privest:problem:{self.slug}",
            title=self.title,
            status=self.status,
            detail=self.detail,
            scope=self.scope,
            faults=list(self.faults) if self.faults else None,
            room=self.room,
        )
        return JSONResponse(
            document.model_dump(exclude_none=True), self.status, self.headers, media_type=MEDIA_TYPE
        )


class Unauthenticated(Problem):
    """No key, or one that opens nothing."""

    slug, status, title = "unauthenticated", HTTPStatus.UNAUTHORIZED, "A valid API key is needed"


class Forbidden(Problem):
    """The key's role may not do this."""

    slug, status, title = "forbidden", HTTPStatus.FORBIDDEN, "This key may not do that"


class NotFound(Problem):
    """No such thing, or somebody else's."""

    slug, status, title = "not-found", HTTPStatus.NOT_FOUND, "Not found, or not visible to this key"


class IdempotencyKeyMissing(Problem):
    """A charged request without an Idempotency-Key."""

    slug, status = "idempotency-key-missing", HTTPStatus.BAD_REQUEST
    title = "An Idempotency-Key header is needed"


class IdempotencyKeyReused(Problem):
    """The key came with another body before."""

    slug, status = "idempotency-key-reused", HTTPStatus.UNPROCESSABLE_ENTITY
    title = "This Idempotency-Key was used for another request"


class Invalid(Problem):
    """A request that breaks a rule."""

    slug, status, title = "invalid", HTTPStatus.UNPROCESSABLE_ENTITY, "The request is not valid"


class DatasetInvalid(Problem):
    """An upload that breaks a rule of its schema."""

    slug, status = "dataset-invalid", HTTPStatus.UNPROCESSABLE_ENTITY
    title = "The dataset is not valid"


class BudgetExceeded(Problem):
    """The request costs more than is left of a budget."""

    slug, status, title = "budget-exceeded", HTTPStatus.CONFLICT, "The privacy budget does not cover this"


class PaceExceeded(BudgetExceeded):
    """The request is covered, but not by what seven days may take of a window's budget."""

    slug, title = "pace-exceeded", "The privacy budget may not be spent this fast"


class AccountFrozen(Problem):
    """The owner or an administrator froze the budget."""

    slug, status, title = "account-frozen", HTTPStatus.CONFLICT, "The privacy budget is frozen"


class GrantRefuses(Problem):
    """The caller's own grant does not allow this question."""

    slug, status, title = "grant-refuses", HTTPStatus.FORBIDDEN, "Your grant does not allow this"

    def __init__(self, detail: str, dataset: str) -> None:
        super().__init__(detail)
        self.dataset = dataset


class NotRequested(Problem):
    """A decision on a question that does not wait for one, or not any more."""

    slug, status, title = "not-requested", HTTPStatus.CONFLICT, "This question does not wait for a decision"


class ApprovalRefused(Problem):
    """A question that its owner approves and that cannot be charged at present."""

    slug, status, title = "approval-refused", HTTPStatus.CONFLICT, "This question cannot be approved now"


class NameTaken(Problem):
    """A name under which somebody else published, or did once."""

    slug, status, title = "name-taken", HTTPStatus.CONFLICT, "This name is somebody else's"


class WindowReplaced(Problem):
    """A new window was asked for in place of one that is not the present one, or no more."""

    slug, status, title = "window-replaced", HTTPStatus.CONFLICT, "Another window is in force"


class WindowNotAllowed(Problem):
    """The budget's own rules allow no new window now."""

    slug, status, title = "window-not-allowed", HTTPStatus.CONFLICT, "No new window may be opened now"


class SessionOver(Problem):
    """A run with sites that does not go on: one of them refused, broke a rule, or stayed away."""

    slug, status, title = "session-over", HTTPStatus.CONFLICT, "This run with other sites is over"


class MethodNotAllowed(Problem):
    """The path is there, and does not take this method; `Allow` lists those that it takes."""

    slug, status = "method-not-allowed", HTTPStatus.METHOD_NOT_ALLOWED
    title = "This path does not take this method"


class TooLarge(Problem):
    """A body beyond the limit."""

    slug, status, title = "too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large"


class UnsupportedMediaType(Problem):
    """A format that is not read."""

    slug, status = "unsupported-media-type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    title = "This format is not read here"


class TooManyRequests(Problem):
    """A caller asks too often."""

    slug, status = "too-many-requests", HTTPStatus.TOO_MANY_REQUESTS
    title = "Too many requests"


class Unavailable(Problem):
    """The service cannot answer now. It may in some seconds."""

    slug, status, title = (
        "unavailable",
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The service cannot do this at the moment",
    )

    def __init__(self, detail: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after)} if retry_after else None)


class DatabaseUnavailable(Unavailable):
    """The database is gone, hangs or is full; what was about to be committed is there or is not."""


_FULL = (errno.ENOSPC, errno.EDQUOT)

WHEN_FULL = 10
"""Seconds after which to ask a full disk again: what fills it for a moment is an upload, which ends soon."""


def full_disk(error: Exception) -> Unavailable | None:
    """Return the problem for a full disk; None if it is another error."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return Unavailable(
            "The disk is full at present. Nothing was stored. Try again later.", retry_after=WHEN_FULL
        )
    return None


BY_STATUS: dict[int, type[Problem]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    400: Invalid,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    503: Unavailable,
}
"""Problems by the status that the framework answers with."""


def by_status(status: int) -> Problem:
    """Return the problem for a status that the framework answers with."""
    return BY_STATUS.get(status, Invalid)()


def documented(*problems: type[Problem]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of an endpoint for openapi.yaml."""
    by_status: dict[int | str, dict[str, Any]] = {}
    for problem in (Unauthenticated, Forbidden, Invalid, TooManyRequests, *problems):
        entry = by_status.setdefault(
            int(problem.status),
            {
                "description": "",
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
            },
        )
        entry["description"] = "; ".join(filter(None, [entry["description"], problem.slug]))
    return by_status


def blank(status: int, headers: dict[str, str]) -> JSONResponse:
    """A problem that says no more than its status."""
    document = ProblemDocument(type="about:blank", title=HTTPStatus(status).phrase, status=status)
    return JSONResponse(document.model_dump(exclude_none=True), status, headers, media_type=MEDIA_TYPE)


def in_place(place: int | None, act: Callable[..., T], *given: Any) -> T:
    """Do something about one of several queries; a refusal says which one, counted from 1, if it has a place.

    Raises:
        Problem: whatever refuses it.
    """
    try:
        return act(*given)
    except Problem as refused:
        if place is not None:
            refused.place = place
            refused.detail = f"Question {place + 1}: {refused.detail or refused.title}"
        raise

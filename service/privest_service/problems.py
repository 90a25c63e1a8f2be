"""Errors as RFC 9457 problem documents: one class for each type, and nothing that was submitted in any."""

import errno
import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from itertools import islice
from typing import Any, ClassVar, cast

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privest_service.telemetry import metrics

MEDIA_TYPE = "application/problem+json"

log = structlog.get_logger()

MOST_FAULTS = 20
"""Told at a time."""


class Fault(BaseModel):
    """Where a request or an upload is wrong, and which rule it breaks; never a value."""

    location: str | None = Field(default=None, description="field of the request")
    record: int | None = Field(default=None, description="index of the record in an upload, from 0")
    field: str | None = Field(default=None, description="field of that record")
    rule: str


class ProblemDocument(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str | None = None
    scope: str | None = Field(default=None, description="of the budget that refuses, for those who may know")
    faults: list[Fault] | None = None


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

    slug, status, title = "not-found", HTTPStatus.NOT_FOUND, "There is no such thing"


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
    """What was asked costs more than is left."""

    slug, status, title = "budget-exceeded", HTTPStatus.CONFLICT, "The privacy budget does not cover this"


class AccountFrozen(Problem):
    """The owner or an administrator froze the budget."""

    slug, status, title = "account-frozen", HTTPStatus.CONFLICT, "The privacy budget is frozen"


class WindowReplaced(Problem):
    """A new window was asked for in place of one that is not the present one, or no more."""

    slug, status, title = "window-replaced", HTTPStatus.CONFLICT, "Another window is the present one"


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
    """Not so often."""

    slug, status = "too-many-requests", HTTPStatus.TOO_MANY_REQUESTS
    title = "Too many requests"


class Unavailable(Problem):
    """Not now; perhaps some seconds later."""

    slug, status, title = "unavailable", HTTPStatus.SERVICE_UNAVAILABLE, "Not possible at the moment"

    def __init__(self, detail: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after)} if retry_after else None)


class DatabaseUnavailable(Unavailable):
    """The database is gone, hangs or is full; what was about to be committed is there or is not."""


_FULL = (errno.ENOSPC, errno.EDQUOT)


def full_disk(error: Exception) -> Unavailable | None:
    """What is answered if the disk of the data is full; None if it is another error."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return Unavailable("there is no room on the disk at present; nothing was stored")
    return None


_BY_STATUS: dict[int, type[Problem]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    400: Invalid,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    503: Unavailable,
}


def by_status(status: int) -> Problem:
    """What the framework found wrong before any of this service's own code did."""
    return _BY_STATUS.get(status, Invalid)()


NO_JSON = "is not JSON, or names a field twice"

_OBJECT, _WHOLE, _NUMBER, _TRUTH = (
    "must be an object",
    "must be a whole number",
    "must be a number",
    "must be true or false",
)
_RULES = {
    "missing": "is missing",
    "union_tag_not_found": "is missing",
    "extra_forbidden": "is not a known field",
    "json_invalid": NO_JSON,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dict_type": _OBJECT,
    "list_type": "must be a list",
    "string_type": "must be a text",
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} parts",
    "too_long": "must have at most {max_length} parts",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
}
"""What is said of a kind of validation error: by limits of the interface, never by what was submitted."""

_ONE_OF = "must be one of: "


def faults_of_request(error: RequestValidationError) -> list[Fault]:
    """The faults of a body, or of what stands in path, query and headers."""
    if isinstance(error.body, bytes):
        return [Fault(rule="must be JSON, sent with the header Content-Type: application/json")]
    found = list(islice(error.errors(), MOST_FAULTS))
    if error.body is None and any(each["loc"] == ("body",) for each in found):
        return [Fault(rule="the body is missing")]
    faults = list[Fault]()
    for each in found:
        source, *place = each["loc"]  # the first part says which of these it is in
        given = error.body if source == "body" else dict.fromkeys(place)
        faults += faults_of([each | {"loc": place}], given)
    return _merged(faults)


def faults_of(errors: Iterable[Any], given: Any) -> list[Fault]:
    """The first validation errors without inputs: the place by known field names, and the rule.

    Args:
        errors: as pydantic has them.
        given: what was validated.
    """
    return _merged(
        Fault(location=_place(error, given), rule=rule_of(error)) for error in islice(errors, MOST_FAULTS)
    )


def _merged(faults: Iterable[Fault]) -> list[Fault]:
    """One fault for each place: where a value fits none of several alternatives, all their values count."""
    found = dict[str | None, Fault]()
    for fault in faults:
        first = found.setdefault(fault.location, fault)
        if first is not fault and fault.rule.startswith(_ONE_OF) and first.rule.startswith(_ONE_OF):
            first.rule += f", {fault.rule.removeprefix(_ONE_OF)}"
    return list(found.values())


def _place(error: Any, given: Any) -> str | None:
    """Where an error is, by names of fields alone: pydantic puts those of alternatives between them."""
    place, here = list[str](), given
    for part in error["loc"]:
        if isinstance(here, dict) and part in here:
            here = cast("dict[Any, Any]", here)[part]
            place.append(str(part))
        elif isinstance(here, list) and isinstance(part, int) and part < len(cast("list[Any]", here)):
            here = cast("list[Any]", here)[part]
            place.append(str(part))
        elif error["type"] == "missing" and part == error["loc"][-1]:
            place.append(str(part))
    if error["type"] == "extra_forbidden":
        place = [*place[:-1], "(unknown field)"]
    elif error["type"].startswith("union_tag"):
        place += _quoted(error["ctx"]["discriminator"])
    return ".".join(place) or None


def rule_of(error: Any) -> str:
    """Which rule a validation error breaks, in plain words."""
    limits = error.get("ctx", {})
    for listed in ("expected_tags", "expected"):
        if known := _quoted(str(limits.get(listed, ""))):
            return _ONE_OF + ", ".join(known)
    if limits.get("min_length") == 1:
        return "must not be empty"
    if rule := _RULES.get(error["type"]):
        return rule.format(
            **{name: f"{it:g}" if isinstance(it, float) else it for name, it in limits.items()}
        )
    return error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


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


def install(app: FastAPI) -> None:
    """Answer every error with a problem document; in the event loop, as threads may all be waiting."""

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> JSONResponse:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return Invalid(faults=faults_of_request(error)).response()

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == MethodNotAllowed.status:
            allowed = ", ".join(_methods(app, request.scope))
            return MethodNotAllowed(f"it takes {allowed}", headers={"Allow": allowed}).response()
        if known := _BY_STATUS.get(error.status_code):
            return known().response()
        return blank(error.status_code, dict(error.headers or {}))

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: Exception) -> JSONResponse:
        return blank(400, {})  # to nobody: its body will not come

    @app.exception_handler(OSError)
    async def no_room(_: Request, error: OSError) -> JSONResponse:
        if full := full_disk(error):
            return full.response()
        raise error

    @app.exception_handler(RecursionError)
    async def too_deep(_: Request, __: Exception) -> JSONResponse:
        return Invalid("the document is nested too deeply").response()

    app.add_middleware(_too_large)
    app.add_middleware(_unforeseen)


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_OF_FILES = ("GET", "HEAD")


def _methods(app: FastAPI, scope: Scope) -> list[str]:
    """All methods that a path takes: the framework tells those of the first route alone."""
    at = {"type": "http", "path": scope["path"], "root_path": scope.get("app_root_path", scope["root_path"])}

    def takes(route: BaseRoute, method: str) -> bool:
        if isinstance(route, Mount) and method not in _OF_FILES:
            return False
        return route.matches({**at, "method": method})[0] is Match.FULL

    return [method for method in _METHODS if any(takes(route, method) for route in app.routes)]


def _too_large(inner: ASGIApp) -> ASGIApp:
    """Put a problem document in place of what the framework's limit on bodies answers in plain text."""

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        replaced = False

        async def pass_on(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start" and message["status"] == TooLarge.status:
                replaced = Headers(raw=message["headers"]).get("content-type") != MEDIA_TYPE
                if replaced:
                    await TooLarge().response()(scope, receive, send)
            if not replaced:
                await send(message)

        await inner(scope, receive, pass_on)

    return limited


def _unforeseen(inner: ASGIApp) -> ASGIApp:
    """Answer what nobody expected here: the framework would answer, too, and then have the server log it."""

    async def contained(scope: Scope, receive: Receive, send: Send) -> None:
        begun = scope["type"] != "http"

        async def pass_on(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await inner(scope, receive, pass_on)
        except Exception:
            if begun:
                raise
            log.exception("a request failed")
            await blank(500, {})(scope, receive, send)

    return contained


def blank(status: int, headers: dict[str, str]) -> JSONResponse:
    """A problem that says no more than its status."""
    document = ProblemDocument(type="about:blank", title=HTTPStatus(status).phrase, status=status)
    return JSONResponse(document.model_dump(exclude_none=True), status, headers, media_type=MEDIA_TYPE)

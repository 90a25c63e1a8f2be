"""Every error is answered with a problem document, whatever raised it."""

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privest_service.problems import (
    BY_STATUS,
    MEDIA_TYPE,
    Invalid,
    MethodNotAllowed,
    Problem,
    TooLarge,
    blank,
    full_disk,
)
from privest_service.validation import faults_of_request

log = structlog.get_logger()


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
            return MethodNotAllowed(f"Use one of {allowed}.", headers={"Allow": allowed}).response()
        if known := BY_STATUS.get(error.status_code):
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
        return Invalid("The document is nested too deeply. Send a flatter one.").response()

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

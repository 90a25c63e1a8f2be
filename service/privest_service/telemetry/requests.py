"""Every request, as it is told: by the template of its route, never by its path."""

import secrets

import structlog
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger()

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def install(app: FastAPI) -> None:
    """Log every request, and name it in the answer."""

    def record(inner: ASGIApp) -> ASGIApp:
        async def recorded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                try:
                    return await inner(scope, receive, send)
                except Exception:
                    log.exception("the service did not start, or did not end well")
                    raise
            request_id = secrets.token_hex(8)
            structlog.contextvars.bind_contextvars(request=request_id)
            method = scope["method"] if scope["method"] in _METHODS else "other"

            async def named(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route = getattr(scope.get("route"), "path", "unknown")
                    log.info("request", method=method, route=route, status=message["status"])
                    headers = [*message["headers"], (b"x-request-id", request_id.encode())]
                    message = {**message, "headers": headers}
                await send(message)

            return await inner(scope, receive, named)

        return recorded

    app.add_middleware(record)

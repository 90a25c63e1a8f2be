"""Logs: one JSON line for each request and job. Never a value, a duration, or a path with names in it."""

import logging
import secrets
import sys

import structlog
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger()


def configure() -> None:
    """Write JSON lines to standard error, the library's own messages included."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.getLogger("uvicorn.access").disabled = True


def install(app: FastAPI) -> None:
    """Log every request by its route, and name it in the answer."""

    def record(inner: ASGIApp) -> ASGIApp:
        async def recorded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await inner(scope, receive, send)
            request_id = secrets.token_hex(8)
            structlog.contextvars.bind_contextvars(request=request_id)

            async def named(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route = getattr(scope.get("route"), "path", None)
                    log.info("request", method=scope["method"], route=route, status=message["status"])
                    headers = [*message["headers"], (b"x-request-id", request_id.encode())]
                    message = {**message, "headers": headers}
                await send(message)

            return await inner(scope, receive, named)

        return recorded

    app.add_middleware(record)

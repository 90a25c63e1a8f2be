"""Logs: one JSON line for each request and job. Never a value, a duration, or a path with names in it."""

import logging
import secrets
import sys
from collections.abc import Awaitable, Callable

import structlog
from fastapi import FastAPI, Request, Response

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

    @app.middleware("http")
    async def record(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        request_id = secrets.token_hex(8)
        structlog.contextvars.bind_contextvars(request=request_id)
        response = await proceed(request)
        route = request.scope.get("route")
        log.info(
            "request",
            method=request.method,
            route=getattr(route, "path", None),
            status=response.status_code,
        )
        response.headers["X-Request-Id"] = request_id
        return response

"""Every request, as it is told: by the template of its route, never by its path."""

import re
import secrets
import time
from contextvars import ContextVar

import structlog
from fastapi import FastAPI
from opentelemetry.trace import Span
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privest_service.telemetry import metrics, traces

log = structlog.get_logger()

_ID = re.compile(r"[A-Za-z0-9._~-]{1,64}")
"""An id of a request that a caller may choose: no character of it means anything in a log or a header."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class _Clock:
    """Measures how long a request has taken, once that may be told."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self.seconds: float | None = None

    def stop(self) -> None:
        """Stop the clock, so that nothing that follows has a part in the time."""
        if self.seconds is None:
            self.seconds = time.perf_counter() - self._begun


_clock: ContextVar[_Clock] = ContextVar("clock")


def stop_clock() -> None:
    """Have the time that the present request has taken until now be told.

    Only where no row had a part in it: none came with the request, and no run was waited for.
    """
    _clock.get().stop()


def install(app: FastAPI) -> None:
    """Count, log and trace every request, and name it in the answer."""

    def record(inner: ASGIApp) -> ASGIApp:
        async def recorded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                with traces.request(Headers(scope=scope).get("traceparent", "")) as span:
                    return await answered(scope, receive, send, span)
            try:
                return await inner(scope, receive, send)
            except Exception:
                log.exception("the service did not start, or did not end well")
                raise

        async def answered(scope: Scope, receive: Receive, send: Send, span: Span) -> None:
            chosen = Headers(scope=scope).get("x-request-id", "")
            request_id = chosen if _ID.fullmatch(chosen) else secrets.token_hex(8)
            structlog.contextvars.bind_contextvars(request=request_id)
            if span.is_recording():
                structlog.contextvars.bind_contextvars(trace=f"{span.get_span_context().trace_id:032x}")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            clock = _Clock()
            _clock.set(clock)

            async def named(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route, status = getattr(scope.get("route"), "path", "unknown"), message["status"]
                    if method == "GET":  # which brings no rows, and waits for no run
                        clock.stop()
                    if clock.seconds is not None:
                        metrics.DURATIONS.labels(route, method).observe(clock.seconds)
                    metrics.REQUESTS.labels(route, method, f"{status // 100}xx").inc()
                    traces.end_request(span, method, route, status, clock.seconds or 0.0)
                    log.info("request", method=method, route=route, status=status)
                    headers = [*message["headers"], (b"x-request-id", request_id.encode())]
                    message = {**message, "headers": headers}
                await send(message)

            await inner(scope, receive, named)

        return recorded

    app.add_middleware(record)

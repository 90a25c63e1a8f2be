"""Traces, sent to where OTEL_EXPORTER_OTLP_ENDPOINT says: how long requests, their plans and charges took.

A span is as long as may be told, if only nothing. All of a request's spans begin at the whole second in which
it came, and none tells of a run: what follows a run, a claim too, begins when that ended.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry.context import Context
from opentelemetry.trace import NoOpTracer, Span, SpanKind, Status, StatusCode, Tracer, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


class _Here:
    tracer: Tracer = NoOpTracer()


_second: ContextVar[int] = ContextVar("second")
"""Start of the second in which the present request came, in nanoseconds."""


def configure() -> None:
    """Trace from now on, if the environment says where to.

    No other library of this process is told of it: what they would trace holds paths and query strings.

    Raises:
        ValueError: what that needs is not installed.
    """
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - optional
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ValueError(
            "OpenTelemetry is not installed. Install it with pip install 'privest[otel]'."
        ) from None
    os.environ.setdefault("OTEL_SERVICE_NAME", "privest")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _Here.tracer = provider.get_tracer("privest")


@contextmanager
def request(traceparent: str) -> Iterator[Span]:
    """The span of a request, in the trace of whoever sent it; `end_request` ends it."""
    _second.set(int(time.time()) * 10**9)
    # Not `tracestate`, in which callers may write what they like.
    parent = TraceContextTextMapPropagator().extract({"traceparent": traceparent}, Context())
    span = _Here.tracer.start_span("request", parent, SpanKind.SERVER, start_time=_second.get())
    try:
        with use_span(span, record_exception=False, set_status_on_exception=False):
            yield span
    finally:
        if span.is_recording():  # it was never answered
            span.end(_second.get())


def end_request(span: Span, method: str, route: str, status: int, seconds: float) -> None:
    """End a request's span."""
    span.update_name(f"{method} {route}")
    span.set_attributes(
        {"http.request.method": method, "http.route": route, "http.response.status_code": status}
    )
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))
    span.end(_second.get() + int(seconds * 1e9))


@contextmanager
def step(name: str) -> Iterator[None]:
    """A span of something that a request needs, which no row may have a part in."""
    begun = time.perf_counter_ns()
    second = _second.get(0)
    span = _Here.tracer.start_span(name, start_time=second)
    try:
        yield
    finally:
        span.end(second + time.perf_counter_ns() - begun)

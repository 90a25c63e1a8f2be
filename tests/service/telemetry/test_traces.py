"""What a collector of traces is told: requests, plans, charges; no run, no id, no moment but in seconds."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from privest_service.telemetry import traces
from testing.server import (
    ADMIN_KEY,
    LABELLED,
    Server,
    body_of,
    slow_rows,
    told_apart,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = {
    "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01",
    "tracestate": "vendor=sk-4711",
    "baggage": "key=sk-4711",
    "User-Agent": "sk-4711",
}
"""Headers that a caller may send, with a secret wherever it fits."""


class Collector(ThreadingHTTPServer):
    """Takes what is sent by OTLP over HTTP."""

    def __init__(self) -> None:
        self.paths = set[str]()
        self.received = list[bytes]()
        super().__init__(("127.0.0.1", 0), _Receiver)

    @property
    def spans(self) -> list[Span]:
        """All spans that arrived."""
        return [
            span
            for content in self.received
            for of_resource in ExportTraceServiceRequest.FromString(content).resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    def named(self, name: str) -> list[Span]:
        """Spans with a name, in the order in which they ended."""
        return [span for span in self.spans if span.name == name]


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.paths.add(self.path)
        self.server.received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def seconds(span: Span) -> float:
    """Duration of a span in seconds."""
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["sqlite"])
def test_traces_of_requests(start_server: Callable[..., Server], collector: Collector) -> None:
    server = start_server(
        job_timeout=6,
        environment={
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "FASTAPI_OTEL_AUTO_CONFIGURE": "true",  # of which the service wants to know nothing
        },
    )
    owner = server.owner(epsilon=2.0)
    owner.headers |= CALLER
    rows, slow = owner.dataset(), owner.dataset(*slow_rows())
    begun = time.monotonic()
    running = owner.estimate(slow, steps=1000, epsilon=0.2).json()
    waited = time.monotonic() - begun
    assert running["state"] == "failed"
    job = owner.estimate(rows).json()
    inline = {"inline": {"schema": LABELLED, "rows": told_apart(2000, apart=1.0).tolist()}}
    asked = body_of("", 0.5) | {"dataset": inline}
    assert owner.post("/v1/estimates/logistic-regression/plan", json=asked).status_code == 200
    assert owner.get(f"/v1/jobs/{job['id']}").json()["state"] == "committed"
    assert owner.get("/v1/jobs?tag=sk-4711").status_code == 200
    assert owner.get("/v1/jobs?sk-4711").status_code == 422
    assert owner.get("/sk-4711").status_code == 404
    server.stop()  # which sends the rest

    spans = collector.spans
    assert collector.paths == {"/v1/traces"}
    sent = b"".join(collector.received)
    ids = owner.id, owner.key, rows, slow, job["id"], running["id"]
    for word in ("sk-4711", ADMIN_KEY, "127.0.0.1", *ids):
        assert word.encode() not in sent, word
    assert b"service.name" in sent
    steps, requests = ("plan", "charge"), {span.span_id: span for span in spans if " " in span.name}
    for span in spans:
        assert span.span_id in requests or span.name in steps, span.name
        assert not [*span.events, *span.links, *span.trace_state]
        assert span.start_time_unix_nano % 10**9 == 0
        attributes = {attribute.key for attribute in span.attributes}
        if span.name in steps:
            assert not attributes
            assert requests[span.parent_span_id].start_time_unix_nano == span.start_time_unix_nano
        else:
            assert attributes == {"http.request.method", "http.route", "http.response.status_code"}
    # Waiting is no part of a request, nor is the run; and what comes with rows has no length.
    first, second = collector.named("POST /v1/estimates/frechet-mean")
    assert 0 < seconds(first) < waited / 2
    assert seconds(second) > 0
    assert all(seconds(span) > 0 for name in steps for span in collector.named(name))
    assert (len(collector.named("plan")), len(collector.named("charge"))) == (3, 2)
    for name in ("POST /v1/datasets", "POST /v1/estimates/logistic-regression/plan", "POST /v1/owners"):
        assert [seconds(span) for span in collector.named(name)] == [0.0] * len(collector.named(name)) != []
    [look] = collector.named("GET /v1/jobs/{job_id}")
    assert seconds(look) > 0
    assert len(collector.named("GET /v1/jobs")) == 2
    assert len(collector.named("GET unknown")) == 1
    # It goes on with the caller's trace, which the log names, and the job as well.
    assert look.trace_id.hex() == TRACE
    assert look.parent_span_id.hex() == "00f067aa0ba902b7"
    log = [json.loads(line) for line in server.log.read_text().splitlines()]
    [reserved] = [line for line in log if line["event"] == "job reserved" and line["job"] == job["id"]]
    assert reserved["trace"] == TRACE


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ValueError, match=r"privest\[otel\]"):
        traces.configure()

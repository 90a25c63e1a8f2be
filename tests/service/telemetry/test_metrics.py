"""What is counted, by which labels, and what no metric tells: how long runs took, or anything about rows."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from sqlalchemy import event, text

from privest_service.database import Database, once_committed
from privest_service.jobs import service as jobs
from privest_service.settings import Settings
from privest_service.telemetry import metrics
from testing.server import (
    ADMIN_KEY,
    LABELLED,
    PLAIN,
    Caller,
    Server,
    body_of,
    free_address,
    problem,
    slow_rows,
    told_apart,
    until,
)
from testing.world import World

ENDLESS = {"steps": 1000, "epsilon": 0.2}
LABELS = {
    "route": re.compile(r"unknown|/[a-z0-9_/{}:.-]*"),
    "method": re.compile("GET|POST|PATCH|PUT|DELETE|other"),
    "status": re.compile("[2345]xx"),
    "reason": re.compile("[a-z-]+"),
    "kind": re.compile("frechet-mean|logistic-regression"),
    "state": re.compile("committed|failed|voided"),
    "outcome": re.compile("whole|faulty"),
    "le": re.compile(r"[0-9.]+|\+Inf"),
    "version": re.compile(r"[0-9.]+"),
    "python": re.compile(r"[0-9.]+"),
}
ESTIMATE = "/v1/estimates/frechet-mean"


def samples(exposition: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of all that is told."""
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


class Scrapes:
    """A server's metrics, as they were when first looked at in this second."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of the series with this name and these labels."""
        found = samples(self._server.admin.get("/metrics").text)
        return sum(value for key, told, value in found if key == name and labels.items() <= told.items())


def verify(server: Server, owner: Caller) -> None:
    """Have an owner verify its ledger on the dashboard."""
    with httpx.Client(base_url=f"{server.url}/dashboard", verify=PLAIN, follow_redirects=True) as desk:
        page = desk.post("/sign-in", data={"key": owner.key}).text
        [token] = set(re.findall(r'name="token" value="([^"]+)"', page))
        assert desk.post("/ledger/verify", data={"token": token}).status_code == 200


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["postgresql"])
def test_what_is_told_and_what_is_not(start_server: Callable[..., Server]) -> None:
    address = free_address()
    server = start_server(metrics_address=address, job_timeout=6)
    owner, analyst = server.owner(epsilon=2.0), server.analyst()
    rows, slow = owner.dataset(), owner.dataset(*slow_rows())
    owner.grant(rows, analyst)
    job = analyst.estimate(rows).json()
    problem(analyst.estimate(rows, epsilon=50.0), 409, "budget-exceeded")
    assert owner.plan(rows).status_code == 200
    # What brings rows, and what waits for a run that ends by its time.
    inline = {"inline": {"schema": LABELLED, "rows": told_apart(50, apart=1.0).tolist()}}
    asked = body_of("", 0.5) | {"dataset": inline}
    assert owner.post("/v1/estimates/logistic-regression/plan", json=asked).status_code == 200
    headers = {"Idempotency-Key": "i", "Prefer": "wait=240"}
    answer = owner.post("/v1/estimates/logistic-regression", json=asked, headers=headers)
    assert answer.json()["state"] == "committed"
    running, asked_at = owner.estimate(slow, **ENDLESS, wait=0).json()["id"], time.monotonic()
    waiting = [owner.estimate(rows, wait=0, epsilon=0.1 + i / 100).json()["id"] for i in range(2)]
    until(lambda: owner.get(f"/v1/jobs/{running}").json()["state"] != "reserved")
    tell = Scrapes(server)
    assert tell("privest_jobs_waiting") == 2
    assert 0 <= tell("privest_oldest_waiting_job_seconds") <= time.monotonic() - asked_at
    planned, begun = tell("privest_request_duration_seconds_sum", route=ESTIMATE), time.monotonic()
    assert owner.estimate(rows, epsilon=0.05).json()["state"] == "committed"  # after all of them
    waited = time.monotonic() - begun
    assert owner.get(f"/v1/jobs/{running}").json()["state"] == "failed"
    verify(server, owner)
    for method, path in (("GET", f"/{owner.id}"), ("BREW", "/healthz")):
        httpx.request(method, server.url + path, verify=PLAIN)

    told = httpx.get(f"http://{address}/metrics", verify=PLAIN).text
    for name, labels, _ in samples(told):
        assert name.startswith("privest_"), name
        assert not name.endswith("_created"), name
        for label, value in labels.items():
            assert LABELS[label].fullmatch(value), (name, label, value)
    ids = [owner.id, owner.key, analyst.id, rows, slow, job["id"], running, *waiting, ADMIN_KEY, "An owner"]
    assert not [word for word in ids if word in told]

    assert tell("privest_jobs_waiting") == 0
    assert tell("privest_charges_total", kind="frechet-mean") == 5
    assert tell("privest_jobs_total", kind="frechet-mean", state="committed") == 4
    assert tell("privest_jobs_total", kind="frechet-mean", state="failed") == 1
    assert tell("privest_jobs_total", kind="logistic-regression", state="committed") == 1
    assert tell("privest_refusals_total", reason="budget-exceeded") == 1
    assert tell("privest_requests_total", route="unknown", status="4xx") == 1
    assert tell("privest_requests_total", method="other") == 1
    assert tell("privest_requests_total", route=ESTIMATE, status="2xx") == 5
    assert tell("privest_ledger_verifications_total", outcome="whole") == 1
    assert tell("privest_ledger_entries_verified_total") > 10
    assert tell("privest_ledger_accounts_faulty_total") == 0
    assert tell("privest_ledger_last_verification_timestamp_seconds") > 1e9
    assert tell("privest_build_info") == 1
    # Of estimates the time to the charge, though the last of them waited for the others to end.
    assert tell("privest_request_duration_seconds_count", route=ESTIMATE) == 5
    assert tell("privest_request_duration_seconds_sum", route=ESTIMATE) - planned < waited / 2
    assert tell("privest_request_duration_seconds_count", route=f"{ESTIMATE}/plan") == 1
    timed = {labels["route"] for name, labels, _ in samples(told) if name.endswith("_seconds_count")}
    assert "/healthz" not in timed  # the method was none
    assert not timed & {"/v1/datasets", "/v1/estimates/logistic-regression"}
    assert "/v1/estimates/logistic-regression/plan" not in timed


def test_no_look_at_the_queue_scans_a_table(database: Database) -> None:
    world = World.make(database)
    world.submit(database, "k")
    asked: list[tuple[str, Any]] = []

    @event.listens_for(database.engine, "before_cursor_execute")
    @event.listens_for(database._reader, "before_cursor_execute")
    def look(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        asked.append((statement, parameters))

    with database.read() as session:
        count, seconds = jobs.queue(session)
    assert (count, 0 <= seconds < 60) == (1, True)
    statement, parameters = [each for each in asked if "count" in each[0]][-1]
    explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
    with database.write() as session:
        if not database.is_sqlite:
            session.execute(text("SET LOCAL enable_seqscan = off"))
        found = session.connection().exec_driver_sql(f"{explain} {statement}", parameters).all()
    plan = "\n".join(str(line) for line in found)
    assert "ix_jobs_waiting" in plan
    assert not re.search("Seq Scan|SCAN", plan), plan


def test_only_what_is_committed_is_counted(database: Database) -> None:
    counted = list[int]()

    def fail() -> None:
        with database.write() as session:
            once_committed(session, lambda: counted.append(1))
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert counted == []
    with database.write() as session:
        once_committed(session, lambda: counted.append(2))
        assert counted == []
    assert counted == [2]


def test_often_looks_see_no_finer_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, moment = metrics._BySeconds(), [100.1]
    monkeypatch.setattr(metrics.time, "time", lambda: moment[0])

    def told() -> float:
        families = {family.name: family for family in seen.collect()}
        return sum(sample.value for sample in families["privest_worker_pools_renewed"].samples)

    before = told()
    metrics.RENEWALS.inc()
    moment[0] = 100.9
    assert told() == before
    moment[0] = 101.0
    assert told() == before + 1


def test_addresses_that_cannot_be_had() -> None:
    for wrong in ("9464", "127.0.0.1", "http://127.0.0.1:9464", "127.0.0.1:x"):
        with pytest.raises(ValidationError, match="must be a host and a port"):
            Settings(admin_key=ADMIN_KEY, metrics_address=wrong)  # pyright: ignore
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(
            ValueError, match="PRIVEST_METRICS_ADDRESS cannot be listened on: Address already in use"
        ):
            metrics.serve(f"127.0.0.1:{taken.getsockname()[1]}")

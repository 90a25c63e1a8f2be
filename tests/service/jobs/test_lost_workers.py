"""Workers that crash, hang or are left behind: their job fails, stays charged and says nothing."""

import os
import re
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from sqlalchemy import select, update

from privest_service.database import Database, now
from privest_service.jobs.models import Job, Transition
from testing.server import (
    HANG_GUARD,
    SPD3,
    Caller,
    Server,
    books_balance,
    npy,
    problem,
    slow_rows,
    spd,
    until,
    worker_on,
)

pytestmark = pytest.mark.both

ENDLESS = {"steps": 1000, "epsilon": 0.2, "wait": 0}

on_one_database = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests of processes, in which the ledger plays no part."""


def state_of(caller: Caller, job: str, state: str) -> None:
    """Wait until a job is in a state."""
    until(lambda: caller.get(f"/v1/jobs/{job}").json()["state"] == state)


def says_nothing(job: dict, server: Server) -> None:
    """A failed job has its charge and no word on why."""
    assert job["state"] == "failed"
    assert job["estimate"] is None
    assert job["uncertainty"] is None
    assert job["warnings"] == []
    known = {"id", "kind", "state", "estimate", "uncertainty", "warnings", "privacy", "charges", "reused"}
    known |= {"dummy", "forecast", "approval", "tag", "person", "through"}  # of plan, grant or question
    assert set(job) == known | (set(job) & {"receipt"})
    assert job["charges"][0]["mu_squared"] > 0
    log = server.log.read_text()
    for word in ("Traceback", "ProcessExpired", "LinAlg", "TimeoutError", ".npy"):
        assert word not in log, word


def test_a_killed_worker_fails_its_job_and_nothing_else(server: Server) -> None:
    owner = server.owner()
    dataset = owner.dataset(*slow_rows())
    job = owner.estimate(dataset, key="k", **ENDLESS).json()["id"]
    os.kill(worker_on(server, owner, dataset).pid, signal.SIGKILL)
    ended = owner.ended(job)
    says_nothing(ended, server)
    assert owner.budget()["queries"] == 1
    assert owner.ledger()[0]["state"] == "failed"
    problem(owner.get(f"/v1/jobs/{job}/receipt"), 404, "not-found")
    # It replays as failed, and is no answer to a new request.
    again = owner.estimate(dataset, key="k", **ENDLESS)
    assert (again.status_code, again.json()) == (200, ended)
    fresh = owner.estimate(dataset, steps=1, epsilon=0.2)
    assert fresh.json()["state"] == "committed"
    assert owner.budget()["queries"] == 2


@pytest.mark.costly
@on_one_database
def test_a_job_over_its_time_fails(start_server: Callable[..., Server], tmp_path: Path) -> None:
    # In a directory whose name is too long for a socket in it.
    server = start_server(job_timeout=6, data_dir=tmp_path / ("x" * 100))
    owner = server.owner()
    dataset = owner.dataset(*slow_rows())
    job = owner.estimate(dataset, **ENDLESS | {"wait": 240}).json()
    says_nothing(job, server)
    assert owner.estimate(dataset, steps=1).json()["state"] == "committed"
    assert owner.budget()["queries"] == 2


def test_a_run_that_throws_fails_silently(server: Server) -> None:
    owner = server.owner()
    dataset, other = owner.dataset(), owner.dataset()
    folder = server.data_dir / "rows" / owner.id
    (folder / f"{dataset}.npy").unlink()
    np.save(folder / f"{other}.npy", spd(3))  # another number of rows than was planned for
    for broken in (dataset, other):
        says_nothing(owner.estimate(broken).json(), server)
    # A failed job is not reused: the next request is charged anew.
    says_nothing(owner.estimate(dataset).json(), server)
    assert owner.budget()["queries"] == 3


def holds_a_draft(process: psutil.Process) -> bool:
    """Whether a process has rows open that are being accepted."""
    return any("/incoming/ds_" in opened.path for opened in process.open_files())


def test_an_upload_that_kills_its_worker_is_refused(server: Server) -> None:
    owner = server.owner()
    text = "\n".join(["a,b,c", *["0.25,0.5,-0.125"] * 400_000])  # which takes its worker seconds to read
    schema = {"kind": "points", "manifold": {"name": "euclidean", "dim": 3}, "radius": 1.0}
    uploads = list[Future[httpx.Response]]()

    def reading() -> psutil.Process | None:
        """The stopped worker of an upload; if one was too quick to be seen, that of another upload."""
        if not uploads or uploads[-1].done():
            assert all(each.result().status_code == 201 for each in uploads), uploads[-1].result().text
            uploads.append(pool.submit(owner.upload, text.encode(), schema, "rows.csv", "text/csv"))
        for process in psutil.Process(server.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if holds_a_draft(process):
                    process.suspend()
                    with suppress(psutil.Error):
                        if holds_a_draft(process):  # else it came to its end before it was stopped
                            return process
                    process.resume()
        return None

    with ThreadPoolExecutor(1) as pool:
        until(reading).kill()
        problem(uploads.pop().result(), 503, "unavailable")
    assert len(owner.get("/v1/datasets").json()["datasets"]) == len(uploads)
    incoming = (server.data_dir / "incoming").iterdir()
    assert not [file for file in incoming if not file.name.startswith("pymp-")]
    assert owner.estimate(owner.dataset()).status_code == 200


@on_one_database
def test_workers_that_are_killed_while_idle_are_replaced(start_server: Callable[..., Server]) -> None:
    server = start_server()
    owner = server.owner(epsilon=20.0)
    dataset = owner.dataset()
    assert owner.estimate(dataset).json()["state"] == "committed"
    web = psutil.Process(server.process.pid)
    for worker in (child for each in web.children() for child in each.children()):
        worker.kill()
    # A request before the death was seen may be lost with it, but none after.
    until(lambda: owner.upload(npy(spd(60)), SPD3).status_code == 201)
    until(lambda: owner.estimate(dataset).json()["state"] == "committed")
    until(
        lambda: owner.get("/readyz").status_code == 200
    )  # a look may outlast its patience on a busy machine
    until(lambda: re.search(r"\nprivest_worker_pools_renewed_total [1-9]", server.admin.get("/metrics").text))


@pytest.mark.parametrize("backend", ["postgresql"])
def test_after_a_crash_what_was_reserved_runs_and_what_was_claimed_fails(
    start_server: Callable[..., Server],
) -> None:
    server = start_server()
    owner = server.owner()
    slow, quick = owner.dataset(*slow_rows()), owner.dataset()
    running = owner.estimate(slow, **ENDLESS).json()["id"]
    state_of(owner, running, "claimed")
    waiting = owner.estimate(quick, wait=0).json()["id"]
    server.kill()

    server = start_server()
    owner = Caller(server, owner.id, owner.key)
    assert owner.ended(waiting)["state"] == "committed"
    # Its lease has not run out: another process might still be at it.
    assert owner.get(f"/v1/jobs/{running}").json()["state"] == "claimed"
    database = Database(server.database_url)
    with database.write() as session:
        session.execute(update(Job).where(Job.id == running).values(lease_until=now() - timedelta(seconds=1)))
    says_nothing(owner.ended(running), server)
    with database.read() as session:
        states = session.scalars(
            select(Transition.state).where(Transition.job_id == running).order_by(Transition.at)
        ).all()
    database.close()
    assert states == ["reserved", "claimed", "failed"]
    assert owner.budget()["queries"] == 2
    assert books_balance(server)


@pytest.mark.costly
@on_one_database
def test_a_graceful_stop_lets_a_running_job_end_and_claims_no_more(
    start_server: Callable[..., Server],
) -> None:
    server = start_server()
    owner = server.owner()
    dataset = owner.dataset(*slow_rows())
    running = owner.estimate(dataset, steps=30, wait=0).json()["id"]
    worker_on(server, owner, dataset)
    waiting = owner.estimate(dataset, steps=1, wait=0).json()["id"]
    children = psutil.Process(server.process.pid).children(recursive=True)
    server.stop()
    assert server.process.returncode in (0, -signal.SIGTERM)
    assert not psutil.wait_procs(children, timeout=HANG_GUARD)[1]
    database = Database(server.database_url)
    with database.read() as session:
        states = [session.get_one(Job, job).state for job in (running, waiting)]
    database.close()
    assert states == ["committed", "reserved"]


@on_one_database
def test_limits_of_uploads_and_of_the_queue(start_server: Callable[..., Server]) -> None:
    server = start_server(max_upload_bytes=8_000_000, max_waiting_jobs=2)
    owner = server.owner(epsilon=9.0)
    slow, quick = owner.dataset(*slow_rows()), owner.dataset()
    problem(owner.upload(npy(spd(12_000, dim=10)), slow_rows()[1]), 413, "too-large")
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.npy"\r\n\r\n'
    stream = (part if i == 0 else b"x" * 1_000_000 for i in range(20))
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    problem(owner.post("/v1/datasets", content=stream, headers=headers), 413, "too-large")
    assert len(owner.get("/v1/datasets").json()["datasets"]) == 2

    state_of(owner, owner.estimate(slow, **ENDLESS).json()["id"], "claimed")
    answers = [owner.estimate(quick, epsilon=0.1 * i, wait=0, key=f"k{i}") for i in (1, 2, 3)]
    assert [answer.status_code for answer in answers] == [202, 202, 503]
    problem(answers[2], 503, "unavailable")
    assert owner.budget()["queries"] == 3
    server.kill()

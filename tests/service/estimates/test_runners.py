"""Engines: bounds of local workers, jobs on a real Dask cluster, and the permits that no run uses twice."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy import select
from structlog.testing import capture_logs

from privest.data.metadata import VectorsMetadata
from privest.data.records import Records
from privest.estimators.frechet_mean.frechet_mean import Mean
from privest.estimators.registry import ESTIMATORS
from privest.privacy.accounting import PrivacyTarget
from privest_service import settings
from privest_service.database import Database
from privest_service.datasets.schemas import SCHEMA
from privest_service.datasets.store import Store
from privest_service.estimates import cluster as on_workers
from privest_service.estimates import engine as engine_module
from privest_service.estimates import worker
from privest_service.estimates.catalogue import KINDS
from privest_service.estimates.engine import Claimed, Engine, Run
from privest_service.estimates.runners import Runners, runners
from privest_service.estimates.runners import dask as on_dask
from privest_service.estimates.tasks import OpenRows, plan_job, run_job
from privest_service.jobs.models import Job, Transition
from testing import ROOT, remote_jobs
from testing.dask_cluster import Cluster
from testing.server import (
    HANG_GUARD,
    SIGNER,
    SPD3,
    Caller,
    Server,
    books_balance,
    free_address,
    slow_rows,
    spd,
    until,
)
from testing.world import World, claimed

ENDLESS = {"steps": 1000, "epsilon": 0.2, "wait": 0}

on_one_database = pytest.mark.parametrize("backend", ["sqlite"])
"""Marks tests of processes, in which the ledger plays no part."""


def free_port() -> int:
    return int(free_address().rpartition(":")[2])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two workers. A test that ends one starts another."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), free_port())
    cluster.start(2)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def served(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[str], str]
) -> Iterator[Server]:
    """A service on that cluster."""
    directory = tmp_path_factory.mktemp("served")
    server = Server(directory, new_database("sqlite"), engine=cluster.engine, workers=2)
    yield server
    server.stop()


@pytest.fixture
def on_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runners]:
    """The cluster as the engine sees it, ready, from a service that has a key in its environment."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of what tests have done there
    monkeypatch.setenv("PRIVEST_ADMIN_KEY", remote_jobs.KEY)
    with _started(runners(cluster.engine, workers=4, memory=2**31)) as ready:
        yield ready


class _started:  # noqa: N801 - used as a function
    def __init__(self, made: Runners) -> None:
        self.made = made

    def __enter__(self) -> Runners:
        self.made.start()
        until(lambda: self.made.healthy)
        return self.made

    def __exit__(self, *_: object) -> None:
        self.made.stop()


def ready(server: Server, status: int = 200) -> None:
    """Wait until the probe answers so."""
    until(lambda: httpx.get(f"{server.url}/readyz").status_code == status)


def workers_are(cluster: Cluster, count: int) -> None:
    """Wait until the scheduler knows of so many workers."""
    with Client(f"tcp://127.0.0.1:{cluster.port}", set_as_default=False) as client:
        until(lambda: len(client.nthreads()) == count)


def rows_in(directory: Path) -> str:
    """A directory with the rows that `remote_jobs` opens."""
    np.save(directory / "rows.npy", np.zeros((8 * 4096, 1)))
    return str(directory)


def fails(ready: Runners, function: Callable[..., str], *args: str, seconds: float = HANG_GUARD) -> str:
    """The name of the error that a run ends with."""
    error = ready.call(seconds, function, *args).exception(HANG_GUARD)
    assert error is not None
    assert remote_jobs.SECRET not in repr(error)
    return type(error).__name__


# Permits


def test_a_permit_is_used_once_and_before_any_row_is_opened(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run_token = store.run_token("job_1")
    assert run_token.stat().st_mode & 0o777 == 0o600
    with ThreadPoolExecutor(8) as pool:
        tries = [pool.submit(worker.use_up, str(run_token)) for _ in range(8)]
    assert sum(run.exception() is None for run in tries) == 1
    assert not run_token.exists()
    with pytest.raises(worker.RunTokenGoneError):
        worker.use_up(str(run_token))
    store.run_token("job_2")
    store.withdraw("job_2")
    store.withdraw("job_2")
    assert list((tmp_path / "permits").iterdir()) == []


def test_a_run_without_a_permit_touches_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, opened = World.make(database), list[str]()
    job_id = world.submit(database, "k")
    with database.read() as session:
        job = session.get_one(Job, job_id)
    np.save(tmp_path / "rows.npy", np.zeros((50, 2)))
    path, run_token = str(tmp_path / "rows.npy"), str(Store(tmp_path).run_token(job_id))
    load = np.load
    monkeypatch.setattr(np, "load", lambda path, **how: (opened.append(path), load(path, **how))[1])
    assert "point" in run_job(job.kind, job.plan, run_token, path)
    assert opened == [path]
    with pytest.raises(worker.RunTokenGoneError):
        run_job(job.kind, job.plan, run_token, path)
    assert opened == [path]


# Durations


@given(st.floats(0.0, 1e4))
def test_a_run_may_end_at_few_moments(seconds: float) -> None:
    end = worker.public_end(seconds)
    assert seconds <= end <= max(2**-7, min(2 * seconds, seconds + 4.0))
    assert worker.public_end(end) == end
    assert 128 * end in {2**k for k in range(9)} or end % 4 == 0


@pytest.mark.parametrize(("took", "seen"), [(0.0, 2**-7), (0.004, 2**-7), (0.3, 0.5), (6.0, 8.0)])
@pytest.mark.parametrize("fails", [False, True])
def test_a_run_ends_at_such_a_moment_whatever_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took: float, seen: float, fails: bool
) -> None:
    kind, clock = KINDS["frechet-mean"], [0.0]
    asked = kind.request.model_validate({"dataset": {"id": "ds_1"}, "privacy": {"epsilon": 1.0}})
    shape = SCHEMA.validate_python(SPD3).shape(50)
    plan = plan_job(kind.name, kind.options(asked), [(shape, PrivacyTarget(1.0, 1e-6))])

    def slow_rows(*_: object) -> np.ndarray:
        clock[0] += took
        if fails:
            raise EOFError
        return spd(50)

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(worker, "rows_in", slow_rows)
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    with pytest.raises(EOFError) if fails else nullcontext():
        run_job(kind.name, plan, str(Store(tmp_path).run_token("job_1")), "rows.npy")
    assert clock[0] == pytest.approx(seen, abs=1e-9)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    kind = KINDS["frechet-mean"]
    asked = kind.request.model_validate({"dataset": {"id": "ds_1"}, "privacy": {"epsilon": 1.0}})
    shape = SCHEMA.validate_python(SPD3).shape(50)
    plan = plan_job(kind.name, kind.options(asked), [(shape, PrivacyTarget(1.0, 1e-6))])
    lost = replace(kind.estimator, run=lambda *_: Mean(np.array([[number]])))
    monkeypatch.setitem(ESTIMATORS, kind.name, lost)
    monkeypatch.setattr(worker, "gates", lambda *_: [None])
    with pytest.raises(ValueError, match="not JSON compliant"):
        run_job(kind.name, plan, str(Store(tmp_path).run_token("job_1")), "rows.npy")


def test_an_end_that_comes_twice_counts_once(database: Database) -> None:
    world = World.make(database)
    job = world.submit(database, "k")
    assert claimed(database) == job
    world.end(database, job, '{"point": [0, 0]}')
    for late in ('{"point": [1, 1]}', None):
        world.end(database, job, late)
    assert world.check(database) == "committed"
    with database.read() as session:
        assert session.get_one(Job, job).result == '{"point": [0, 0]}'


def test_an_engine_that_is_not_able_claims_nothing_but_buries_the_lost(
    database: Database, tmp_path: Path
) -> None:
    world = World.make(database)
    world.submit(database, "k")
    store = Store(tmp_path)
    engine = Engine(database, store, workers=1, job_timeout=-100.0)
    assert engine._claim(able=False) is None
    assert world.check(database) == "reserved"
    assert engine._claim() is not None
    other = World.make(database)
    other.submit(database, "k")
    assert engine._claim(able=False) is None  # the lease ran out before it was given
    assert world.check(database) == "failed"
    assert other.check(database) == "reserved"
    assert list((tmp_path / "permits").iterdir()) == []


def test_a_claim_without_a_permit_did_not_happen(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, store = World.make(database), Store(tmp_path)
    job = world.submit(database, "k")
    engine = Engine(database, store, workers=1, job_timeout=600.0)
    run_token = store.run_token

    def and_then_fails(job_id: str) -> Path:
        run_token(job_id)
        raise OSError

    monkeypatch.setattr(store, "run_token", and_then_fails)
    with pytest.raises(OSError):  # noqa: PT011 - any
        engine._claim()
    assert world.check(database) == "reserved"
    monkeypatch.setattr(store, "run_token", run_token)
    found = engine._claim()
    assert found is not None
    kind, _, run_token, *_ = found.run.given
    assert (found.job.id, kind, Path(run_token).exists()) == (job, found.job.kind, True)


def test_a_job_that_cannot_be_begun_ends(database: Database, tmp_path: Path) -> None:
    world, store = World.make(database), Store(tmp_path)
    job = world.submit(database, "k")
    engine = Engine(database, store, workers=1, job_timeout=600.0)
    found = engine._claim()
    assert found is not None
    engine._run(found)  # nothing was started that could run it
    until(lambda: world.check(database) == "failed")
    assert list((tmp_path / "permits").iterdir()) == []
    assert job == found.job.id


def test_no_work_comes_between_a_claim_and_its_run_and_a_dummy_has_a_minute(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, done = World.make(database), list[object]()
    world.submit(database, "k")
    monkeypatch.setattr(engine_module, "_PATIENCE", 0.0)
    engine = Engine(
        database, Store(tmp_path), workers=2, job_timeout=600.0, housekeeping=[lambda: done.append("tidied")]
    )
    claim = engine._claim

    def claiming(*, able: bool) -> Claimed | None:
        if found := claim():
            done.append("claimed")
        return found

    def run(seconds: float, *_: object) -> Future[str]:
        done.append(seconds)
        engine._stopping.set()
        return Future[str]()

    monkeypatch.setattr(engine, "_claim", claiming)
    monkeypatch.setattr(engine._runners, "call", run)
    engine._feed()
    assert done == ["tidied", "claimed", 600.0]
    with database.read() as session:
        (job,) = world.jobs(session)
    job.dummy = True
    for timeout in (600.0, 20.0):
        engine._job_timeout = timeout
        engine._run(Claimed(job, Run(str, [])))
    assert done[3:] == [60.0, 20.0]


# Uploads and plans


# Local workers


@pytest.mark.costly
def test_workers_keep_the_memory_that_they_need_again_at_once(on_cluster: Runners) -> None:
    with _started(runners("local", workers=1, memory=2**31)) as local:
        for ready in (local, on_cluster):
            assert int(ready.call(HANG_GUARD, remote_jobs.faults, "").result(HANG_GUARD)) < 10_000
    code, path = "from testing import remote_jobs; print(remote_jobs.faults(''))", str(ROOT)
    # As a process is that freed no large block yet, which some imports do, and which moves the threshold.
    usual = os.environ | {"PYTHONPATH": path, "MALLOC_MMAP_THRESHOLD_": str(2**17)}
    alone = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=usual)
    assert int(alone.stdout) > 50_000  # or it would be no matter


def test_a_worker_takes_no_more_memory_than_it_may_and_mapped_rows_take_none(tmp_path: Path) -> None:
    rows = np.lib.format.open_memmap(tmp_path / "rows.npy", mode="w+", shape=(2**20, 128))
    rows[-1] = 1.0  # a gigabyte, all but a few bytes of it a hole
    with _started(runners("local", workers=1, memory=2**28)) as ready:
        assert ready.call(HANG_GUARD, remote_jobs.greedy, str(2**25)).result(HANG_GUARD) == "1"
        assert (
            ready.call(HANG_GUARD, remote_jobs.frugal, f"{tmp_path}/rows.npy").result(HANG_GUARD) == "128.0"
        )
        before = ready.call(HANG_GUARD, remote_jobs.pid, "").result(HANG_GUARD)
        assert fails(ready, remote_jobs.greedy, str(2**28)) == "MemoryError"
        assert ready.call(HANG_GUARD, remote_jobs.pid, "").result(HANG_GUARD) == before


@pytest.mark.costly
@on_one_database
def test_what_needs_too_much_memory_fails_alone(start_server: Callable[..., Server]) -> None:
    server = start_server(worker_memory=5 * 2**26)
    owner = server.owner(epsilon=9.0)
    # An upload, small as it comes: a record of it takes 160 MB.
    packed = io.BytesIO()
    np.savez_compressed(packed, np.zeros((2, 1_000_000, 20), dtype=np.uint8))
    raw = {"transform": "window-covariance", "length": 1_000_000, "channels": 20}
    schema = {"kind": "points", "manifold": {"name": "spd", "dim": 20}, "raw": raw}
    refused = owner.upload(packed.getvalue(), schema, "rows.npz")
    assert refused.status_code in (413, 422), refused.text
    assert owner.get("/v1/datasets").json() == {"datasets": [], "next": None}
    # A job.
    wide = owner.dataset(np.ones((40, 100_000)), {"kind": "vectors", "dim": 100_000})
    asked = {"kind": "robust-pca", "rank": 10, "start": "sketch", "steps": 1, "epsilon": 1.0}
    answer = owner.estimate(wide, **asked)
    job = answer.json()
    assert answer.status_code == 200, answer.text
    assert job["state"] == "failed"
    assert job["estimate"] is None
    assert owner.budget()["queries"] == 1
    assert owner.estimate(owner.dataset()).json()["state"] == "committed"
    assert "MemoryError" not in server.log.read_text()
    assert books_balance(server)


# The setting


@pytest.mark.parametrize("name", ["dask", "dask://", "dask://host", "tcp://host:1", "dask://a:1/x", "Local"])
def test_engines_that_there_are_not(name: str) -> None:
    with pytest.raises(ValidationError, match="must be local, dask://host:port or dask"):
        settings.Settings(admin_key="x" * 16, engine=name)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["dask://127.0.0.1:8786", "dask+tls://10.0.0.1:1", "dask://[::1]:8786"])
def test_engines_that_there_are_if_dask_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.Settings(admin_key="x" * 16, engine=name).engine == name  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(settings, "find_spec", lambda _: None)
    with pytest.raises(ValidationError, match=r"pip install 'privest\[dask\]'"):
        settings.Settings(admin_key="x" * 16, engine=name)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["dask://host:8786", "dask://10.0.0.1:1", "dask://127.0.0.1.example.org:1"])
def test_a_scheduler_on_another_machine_needs_tls(name: str) -> None:
    with pytest.raises(ValidationError, match=r"must be dask\+tls://host:port, because"):
        settings.Settings(admin_key="x" * 16, engine=name)  # pyright: ignore[reportArgumentType]


def test_without_a_cluster_there_is_no_dask() -> None:
    code = """import sys
from privest_service.estimates.engine import Engine
Engine(None, None, workers=1, job_timeout=1.0)
Engine(None, None, workers=1, job_timeout=1.0, engine="dask://127.0.0.1:1")
print("dask" in sys.modules, "distributed" in sys.modules)"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout.split() == ["False", "False"]


# On a cluster


def _certificate(directory: Path) -> list[str]:
    """The options of Dask's commands that make a certificate the only one that is trusted."""
    key, today = Ed25519PrivateKey.generate(), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "privest")])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, today, today + timedelta(days=1))
    signed = made.sign(key, None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "key.pem").write_bytes(pem)
    (directory / "cert.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    files = {"ca-file": "cert.pem", "cert": "cert.pem", "key": "key.pem"}
    return ["--protocol=tls", *(f"--tls-{name}={directory / file}" for name, file in files.items())]


@pytest.mark.costly
def test_a_cluster_behind_tls_is_for_those_with_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    options = _certificate(tmp_path)
    secured = Cluster(tmp_path, free_port(), options, "dask+tls")
    secured.start(1)
    files = {"CA_FILE": "cert.pem", "CLIENT__CERT": "cert.pem", "CLIENT__KEY": "key.pem"}
    try:
        with monkeypatch.context() as having:
            for name, file in files.items():
                having.setenv(f"DASK_DISTRIBUTED__COMM__TLS__{name}", str(tmp_path / file))
            with _started(runners(secured.engine, workers=1, memory=2**31)) as ready:
                found = ready.call(HANG_GUARD, remote_jobs.pid, "").result(HANG_GUARD)
        assert int(found) == secured.workers[0].pid
        bare = runners(secured.engine, workers=1, memory=2**31)
        with capture_logs() as logs:
            bare.start()
            until(lambda: logs)
        assert (logs[0]["event"], logs[0]["why"]) == ("cluster lost", "TypeError")  # no certificate is none
        assert fails(bare, remote_jobs.pid, "") == "RunLostError"
        assert not bare.healthy
        bare.stop()
    finally:
        secured.stop()


def test_what_a_worker_answers_runs_nothing_in_the_service(on_cluster: Runners, tmp_path: Path) -> None:
    """It is unpickled elsewhere, in a process that writes no file and begins no program."""
    for hostile in (remote_jobs.writes_file, remote_jobs.begins_program):
        assert fails(on_cluster, hostile, str(tmp_path)) == "RunLostError"
    assert list(tmp_path.iterdir()) == []
    assert on_cluster.call(HANG_GUARD, remote_jobs.pid, "").result(HANG_GUARD)  # and others go on


@pytest.mark.costly
def test_what_a_worker_answers_finds_no_key(on_cluster: Runners, tmp_path: Path) -> None:
    """Neither in the environment of the process that unpickles it, nor in a file, nor in the service's."""
    (tmp_path / "signing.pem").write_text(remote_jobs.KEY)
    found = on_cluster.call(HANG_GUARD, remote_jobs.tells_environment, "").result(HANG_GUARD)
    assert "PATH" in found  # it did run where it was unpickled
    assert remote_jobs.KEY not in found
    assert fails(on_cluster, remote_jobs.tells_file, str(tmp_path / "signing.pem")) == "RunLostError"
    for file in ("environ", "maps"):
        assert fails(on_cluster, remote_jobs.tells_file, f"/proc/{os.getpid()}/{file}") == "RunLostError"


@pytest.mark.costly
def test_what_a_worker_answers_is_json_or_no_answer(on_cluster: Runners) -> None:
    for answer in ("", "no JSON", "[NaN]", "[" * 100_000):
        assert fails(on_cluster, remote_jobs.says, answer) == "RunLostError"
    assert on_cluster.call(HANG_GUARD, remote_jobs.says, '{"a":1.5}').result(HANG_GUARD) == '{"a":1.5}'


@pytest.mark.parametrize(
    "line", [b"no JSON\n", b'{"able":"yes"}\n', b'{"x":1}\n', b'{"why":"a\\nb"}\n', b"x" * (2**20) + b"\n"]
)
def test_a_process_that_says_what_it_may_not_is_ended(
    line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that a worker took over might."""
    (tmp_path / "line").write_bytes(line)
    script = f"#!{sys.executable}\nimport sys\nsys.stdout.write(open('{tmp_path}/line').read())\n"
    script += "sys.stdout.flush()\nsys.stdin.read()\n"
    (tmp_path / "python").write_text(script)
    (tmp_path / "python").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(on_dask, "_LONGEST", 2**16)
    made = runners("dask://127.0.0.1:1", workers=1, memory=2**31)
    with capture_logs() as logs:
        made.start()
        until(lambda: logs)
    assert (logs[0]["event"], logs[0]["why"]) in {
        ("cluster lost", "ValidationError"),
        ("cluster lost", "ValueError"),
    }
    assert not made.healthy
    made.stop()


@pytest.mark.costly
def test_sums_have_the_same_bits_wherever_they_are_made(
    cluster: Cluster, on_cluster: Runners, tmp_path: Path
) -> None:
    here = {1: {}, 2: {}}
    for name, (_, rows, wanted) in remote_jobs.datasets().items():
        np.save(tmp_path / f"{name}.npy", rows)
        for threads, found in here.items():
            records = Records(rows, threads, grouped=name == "groups")
            found[name] = [records.sum(of_chunk).tobytes().hex() for of_chunk in wanted]
    assert here[1] == here[2]

    def there() -> dict[str, list[str]]:
        return json.loads(on_cluster.call(HANG_GUARD, remote_jobs.sums, str(tmp_path)).result(HANG_GUARD))

    workers_are(cluster, 2)
    assert there() == here[1]
    cluster.kill(cluster.workers[0])
    workers_are(cluster, 1)
    assert there() == here[1]  # one thread for the job and its parts
    cluster.add()


def test_jobs_small_and_large_end_to_end(served: Server) -> None:
    owner = served.owner(epsilon=9.0)
    small = owner.estimate(owner.dataset()).json()
    assert small["state"] == "committed"
    assert np.linalg.eigvalsh(small["estimate"]["point"]).min() > 0
    rows = np.random.default_rng(1).standard_normal((90_000, 100)) / 10 + 0.02
    assert rows.nbytes > 2**26
    plane = {"kind": "points", "manifold": {"name": "euclidean", "dim": 100}, "radius": 3.0}
    dataset = owner.dataset(rows, plane)
    large = owner.estimate(dataset, epsilon=1.0).json()
    assert large["state"] == "committed"
    both = {"dataset": [{"id": dataset}, {"id": owner.dataset(rows[:500] + 0.2, plane)}]}
    headers = {"Idempotency-Key": "both", "Prefer": "wait=240"}
    asked = both | {"privacy": {"epsilon": 1.0, "delta": 1e-6}}
    found = owner.post("/v1/estimates/frechet-mean", headers=headers, json=asked).json()
    assert found["state"] == "committed"
    assert len(found["charges"]) == 2
    assert np.abs(np.array(large["estimate"]["point"]) - rows.mean(axis=0)).max() < 0.01
    assert owner.get(f"/v1/jobs/{large['id']}/receipt").status_code == 200
    assert list((served.data_dir / "permits").iterdir()) == []
    assert books_balance(served)


def test_synthetic_rows_are_summed_by_one_thread_that_looks_at_the_time(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_workers, "_PARTITION_BYTES", 1)
    monkeypatch.setattr(on_workers, "_LEAST_CHUNKS", 1)
    world = World.make(database)
    world.submit(database, "k")
    with database.read() as session:
        (job,) = world.jobs(session)

    def dummy(seconds: float) -> str | None:
        run_token = Store(tmp_path).run_token(job.id)
        return on_workers.attempt(seconds, run_job, job.kind, job.plan, str(run_token))

    assert "point" in (dummy(HANG_GUARD) or "")
    assert dummy(-1.0) is None

    def look(_: str, records: OpenRows | None = None) -> str:
        assert records
        rows = records("", VectorsMetadata(10 * 4096, 2))
        parts = rows._ends  # pyright: ignore[reportAttributeAccessIssue]
        return f"{rows._threads} {len(parts) - 1} {len(rows)}"

    assert on_workers.attempt(HANG_GUARD, look, "") == "1 1 40960"


@pytest.mark.costly
def test_a_run_that_fails_says_nothing_to_anyone(
    cluster: Cluster, on_cluster: Runners, tmp_path: Path
) -> None:
    directory = rows_in(tmp_path)
    for function in (remote_jobs.explode, remote_jobs.leave, remote_jobs.explode_in_a_part):
        assert fails(on_cluster, function, directory) == "RunLostError"
    # That a client has gone is Dask's own word, with a trace of Dask's alone.
    gone = r"Traceback \(most recent call last\):\n(?: .*\n)+distributed\.comm\.core\.CommClosedError"
    said = re.sub(gone, "", cluster.log.read_text())
    assert "distributed.worker" in said
    for word in (remote_jobs.SECRET, "Compute Failed", "Traceback", str(tmp_path)):
        assert word not in said, word


@pytest.mark.costly
def test_a_run_over_its_time_is_given_up_and_ends(on_cluster: Runners, tmp_path: Path) -> None:
    directory = rows_in(tmp_path)
    assert fails(on_cluster, remote_jobs.hang, directory, seconds=1.0) == "TimeoutError"
    until((tmp_path / "refused").exists)
    assert on_cluster.call(HANG_GUARD, remote_jobs.pid, "").result(HANG_GUARD)


@pytest.mark.costly
def test_a_sum_survives_the_worker_that_made_a_part_of_it(
    cluster: Cluster, on_cluster: Runners, tmp_path: Path
) -> None:
    directory = rows_in(tmp_path)
    (tmp_path / "bullet").touch()
    workers_are(cluster, 2)
    assert on_cluster.call(HANG_GUARD, remote_jobs.survive, directory).result(HANG_GUARD) == f"[{8 * 4096}]"
    assert not (tmp_path / "bullet").exists()
    assert sum(process.poll() is None for process in cluster.workers) == 1
    cluster.workers = [process for process in cluster.workers if process.poll() is None]
    cluster.add()


@pytest.mark.costly
def test_a_killed_worker_fails_its_job_whose_rows_are_not_read_again(
    cluster: Cluster, served: Server
) -> None:
    workers_are(cluster, 2)
    owner = served.owner()
    slow = owner.dataset(*slow_rows())
    job = owner.estimate(slow, **ENDLESS).json()["id"]
    path = str(served.data_dir.resolve() / "rows" / owner.id / f"{slow}.npy")
    reader = until(lambda: cluster.reading(path))
    cluster.kill(reader)
    # Dask begins it again on the other worker, which finds no run_token and is free at once.
    ended = owner.ended(job)
    assert (ended["state"], ended["estimate"]) == ("failed", None)
    assert cluster.reading(path) is None
    assert owner.budget()["queries"] == 1
    assert owner.estimate(slow, steps=1, epsilon=0.2).json()["state"] == "committed"
    assert owner.budget()["queries"] == 2
    assert books_balance(served)
    cluster.add()


@pytest.mark.costly
def test_without_a_scheduler_nothing_is_claimed_until_it_returns(cluster: Cluster, served: Server) -> None:
    ready(served)
    owner = served.owner()
    slow, quick = owner.dataset(*slow_rows()), owner.dataset()
    running = owner.estimate(slow, **ENDLESS).json()["id"]
    path = str(served.data_dir.resolve() / "rows" / owner.id / f"{slow}.npy")
    until(lambda: cluster.reading(path))
    cluster.stop()
    ready(served, 503)
    assert owner.ended(running)["state"] == "failed"
    waiting = owner.estimate(quick, wait=0).json()
    assert waiting["state"] == "reserved"
    ready(served, 503)
    assert owner.get(f"/v1/jobs/{waiting['id']}").json()["state"] == "reserved"
    cluster.start(2)
    assert owner.ended(waiting["id"])["state"] == "committed"
    ready(served)
    assert owner.budget()["queries"] == 2
    assert books_balance(served)


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["postgresql"])
def test_replicas_share_a_ledger_and_a_cluster(cluster: Cluster, start_server: Callable[..., Server]) -> None:
    first = start_server(engine=cluster.engine)
    second = start_server(engine=cluster.engine)
    owner = first.owner(epsilon=3.0)
    there = Caller(second, owner.id, owner.key)
    dataset = owner.dataset(spd(60))
    asked = [caller.estimate(dataset, epsilon=0.1, reuse=False, wait=0) for caller in (owner, there) * 6]
    jobs = [answer.json()["id"] for answer in asked]
    assert {there.ended(job)["state"] for job in jobs} == {"committed"}
    assert owner.budget()["queries"] == len(jobs)
    database = Database(first.database_url, signer=SIGNER)
    with database.read() as session:
        states = session.scalars(select(Transition.state)).all()
    database.close()
    assert sorted(states) == sorted(["reserved", "claimed", "committed"] * len(jobs))
    assert books_balance(first)

"""From the last release to this version and back, under load: no charge is lost or doubled, no key closed."""

import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privest_service.database.migrate import RELEASES
from testing.commands import privest
from testing.releases import Release, last_release
from testing.roles import Roles
from testing.server import HANG_GUARD, PLAIN, Caller, Server, body_of, npy, slow_rows, until, worker_on

PAUSE = 0.3
"""Seconds between the questions of a caller: services have to start beside them, on few processors."""

Asked = tuple[str, str, str]
"""A key, the kind of estimate, and the dataset."""


@pytest.fixture(scope="module")
def release() -> Release:
    found = last_release()
    if found is None:
        pytest.skip("git does not know the last release here")
    return found


@pytest.fixture(scope="module")
def former(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the last release."""
    return release.install(tmp_path_factory.mktemp("release"))


@dataclass
class Deployment:
    """A service with its database, under two roles where there are roles."""

    directory: Path
    url: str
    migration_url: str | None
    stack: ExitStack

    def serve(self, program: Path | None) -> Server:
        """Migrate and serve as docs/upgrades.md says, with this version or another's program."""
        if self.migration_url:
            self.run("migrate", program=program)
        server = Server(self.directory, self.url, program=[str(program)] if program else ())
        self.stack.callback(lambda: server.process.poll() is None and server.stop())
        return server

    def run(self, *arguments: object, program: Path | None = None) -> str:
        """What a command says that ends well."""
        done = self.tried(*arguments, program=program)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tried(self, *arguments: object, program: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """A command's end; only migrations are told of the role that owns the tables."""
        more = {"migration_url": self.migration_url} if self.migration_url and "migrate" in arguments else {}
        return privest(self.directory, *arguments, program=program, database_url=self.url, **more)


@pytest.fixture
def deployment(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    with ExitStack() as stack:
        if backend == "sqlite":
            yield Deployment(tmp_path, f"sqlite:///{tmp_path}/privest.db", None, stack)
            return
        roles = Roles(request.getfixturevalue("database_url"))
        stack.callback(roles.drop)
        yield Deployment(tmp_path, roles.running, roles.making, stack)


@dataclass
class Line:
    """The one address that callers know: the service is behind it, or for a while nobody."""

    server: Server
    over: threading.Event = field(default_factory=threading.Event)
    refused: int = 0

    def post(self, http: httpx.Client, path: str, **content: Any) -> httpx.Response:
        """The answer of whoever serves, now or later."""
        while True:
            try:
                answer = http.post(f"{self.server.url}{path}", **content)
                if answer.status_code != 503:
                    return answer
            except httpx.TransportError:
                pass
            self.refused += 1
            assert not self.over.wait(PAUSE), "nobody serves"

    def ask(self, http: httpx.Client, caller: Caller, asked: Asked) -> dict[str, Any]:
        """The job of one question under its key, once it is over."""
        key, kind, dataset = asked
        headers = caller.headers | {"Idempotency-Key": key, "Prefer": "wait=5"}
        body = body_of(dataset, 0.05, reuse=False, **_OPTIONS[kind])
        latest = time.monotonic() + HANG_GUARD
        while time.monotonic() < latest:
            answer = self.post(http, f"/v1/estimates/{kind}", headers=headers, json=body)
            assert answer.status_code in (200, 202), answer.text
            if answer.status_code == 200:
                return answer.json()
        raise AssertionError("nobody answers a charged question")


_OPTIONS: dict[str, dict[str, Any]] = {
    "frechet-mean": {},
    "robust-pca": {"rank": 2},
    "matrix-completion": {"rank": 2},
    "logistic-regression": {},
}


def datasets(owner: Caller) -> dict[str, str]:
    """One for each estimator, by its name."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 4)) / 4
    told = (rows[:, :1] > 0).astype(float)
    gaps = np.where(rng.random(rows.shape) < 0.4, np.nan, rows)
    features = [f"x{place}" for place in range(4)]
    labelled = {"kind": "labelled", "label": "ill", "features": features, "classes": [0, 1]}
    csv = (
        ",".join(["ill", *features])
        + "\n"
        + "".join(",".join(f"{value:g}" for value in row) + "\n" for row in np.hstack([told, rows]))
    )
    uploads = {
        "robust-pca": owner.upload(npy(rows), {"kind": "vectors", "dim": 4}),
        "matrix-completion": owner.upload(npy(gaps), {"kind": "partial-vectors", "dim": 4}),
        "logistic-regression": owner.upload(csv.encode(), labelled, name="rows.csv"),
    }
    assert all(answer.status_code == 201 for answer in uploads.values()), uploads
    return {"frechet-mean": owner.dataset()} | {kind: each.json()["id"] for kind, each in uploads.items()}


@contextmanager
def held_up(
    server: Server, owner: Caller, slow: str, about: dict[str, str], when: str
) -> Iterator[list[str]]:
    """Jobs of every estimator that wait, while the only worker is stopped at another until the end."""
    first = owner.estimate(slow, epsilon=0.1, key=f"{when}-slow", wait=0, steps=10, reuse=False)
    assert first.status_code == 202, first.text[:500]
    worker = worker_on(server, owner, slow)
    worker.suspend()
    try:
        jobs = [first] + [
            owner.estimate(
                about[kind], kind=kind, epsilon=0.1, key=f"{when}-{kind}", wait=0, reuse=False, **options
            )
            for kind, options in _OPTIONS.items()
        ]
        assert {answer.status_code for answer in jobs} == {202}, [answer.text[:500] for answer in jobs]
        yield [answer.json()["id"] for answer in jobs]
    finally:
        worker.resume()


def told_to_end(server: Server) -> None:
    """Send SIGTERM, and wait until it is heeded."""
    server.process.send_signal(signal.SIGTERM)

    def deaf() -> bool:
        try:
            return httpx.get(f"{server.url}/readyz", verify=PLAIN).status_code == 503
        except httpx.TransportError:
            return True

    until(deaf)


def charges(owner: Caller) -> dict[str, Counter[str]]:
    """How often each job was charged and given back."""
    moved = dict[str, Counter[str]]()
    for entry in owner.ledger():
        if entry["job"]:
            moved.setdefault(entry["job"], Counter())[entry["kind"]] += 1
    return moved


def require_same(former: dict[str, Any], later: dict[str, Any]) -> None:
    """Both versions tell the same of a job, in the fields of an answer that the former knows."""
    for name in ("id", "kind", "state"):
        assert former[name] == later[name]
    if former["state"] == "committed":
        assert {name: later["estimate"][name] for name in former["estimate"]} == former["estimate"]


def require_each_charged_once(owner: Caller, ended: dict[str, str]) -> None:
    """Every job is charged once, what was voided is given back once, and nothing else is charged.

    Args:
        owner: of all of them.
        ended: states by job.
    """
    assert set(ended.values()) <= {"committed", "voided"}
    voided = {job for job, state in ended.items() if state == "voided"}
    found = charges(owner)
    for job in ended:
        assert found[job] == Counter(debit=1, void=job in voided) + Counter(), job
    assert owner.budget()["queries"] == sum(not entries["void"] for entries in found.values())


@pytest.mark.costly
def test_releases_and_their_tables_are_known(release: Release) -> None:
    assert RELEASES[release.version] == release.tables


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["postgresql", pytest.param("sqlite", marks=pytest.mark.prove)])
def test_an_upgrade_and_the_way_back_under_load(
    deployment: Deployment, release: Release, former: Path
) -> None:
    first = deployment.serve(former)
    owner, analyst = first.owner(epsilon=30.0), first.analyst()
    about, slow = datasets(owner), owner.dataset(*slow_rows())
    assert owner.grant(about["robust-pca"], analyst, epsilon=10, delta=1e-5).status_code == 200
    line = Line(first)
    answers = dict[Asked, tuple[Caller, dict[str, Any]]]()

    def call(caller: Caller, name: str, kinds: list[str]) -> None:
        with httpx.Client(timeout=HANG_GUARD, verify=PLAIN) as http:
            number = 0
            while not line.over.wait(PAUSE):
                kind = kinds[number % len(kinds)]
                asked = f"{name}-{number}", kind, about[kind]
                answers[asked] = caller, line.ask(http, caller, asked)
                number += 1

    def answered_since(seen: int) -> bool:
        return len(answers) >= seen + len(_OPTIONS) + 2

    with ThreadPoolExecutor(2) as pool:
        calls = [
            pool.submit(call, owner, "owner", list(_OPTIONS)),
            pool.submit(call, analyst, "analyst", ["robust-pca"]),
        ]
        try:
            until(lambda: answered_since(0) or any(each.done() for each in calls))
            receipt = deployment.directory / "receipt.json"
            known = next(job["id"] for caller, job in answers.values() if caller is owner)
            receipt.write_text(owner.get(f"/v1/jobs/{known}/receipt").text)
            by_first = dict(answers)
            with held_up(first, owner, slow, about, "before") as waited:
                told_to_end(first)
            assert first.process.wait(HANG_GUARD) == 0
            line.server = second = deployment.serve(None)
            before = len(answers)
            until(lambda: answered_since(before) or any(each.done() for each in calls))
        finally:
            line.over.set()
        for each in calls:
            each.result()
    assert line.refused > 0  # or else nobody came while nobody served

    owner = Caller(second, owner.id, owner.key)
    with httpx.Client(timeout=HANG_GUARD, verify=PLAIN) as http:
        for asked, (caller, job) in answers.items():
            require_same(job, line.ask(http, caller, asked))
    jobs = [job for _, job in answers.values()] + [owner.ended(job) for job in waited]
    ended = {job["id"]: job["state"] for job in jobs}
    require_each_charged_once(owner, ended)
    assert "0 faults" in deployment.run("verify-ledger", "--receipt", receipt)

    with held_up(second, owner, slow, about, "after") as waited:
        deployment.run("backup", deployment.directory / "backup")
        refused = deployment.tried("migrate", "--back-to", release.version)
        told_to_end(second)
    assert refused.returncode == 2
    assert "Stop the service first" in refused.stderr
    assert second.process.wait(HANG_GUARD) == 0
    told = deployment.run("migrate", "--back-to", release.version)
    assert f"{len(_OPTIONS)} waiting jobs given back" in told, told
    third = deployment.serve(former)
    owner = Caller(third, owner.id, owner.key)
    for asked, (caller, job) in answers.items():  # each reads its own
        seen = Caller(third, caller.id, caller.key).get(f"/v1/jobs/{job['id']}")
        if asked in by_first or seen.status_code == 200:
            require_same(seen.json(), job)
        else:  # it cannot show every answer of a later version
            assert seen.status_code == 500
    ended |= dict.fromkeys(waited, "voided") | {waited[0]: "committed"}
    back = owner.estimate(about["frechet-mean"], key="back", reuse=False).json()
    require_each_charged_once(owner, ended | {back["id"]: back["state"]})
    third.stop()
    # It does not know alternatives, which means of the later version have: it names these alone.
    *faults, _ = deployment.tried("verify-ledger", "--receipt", receipt, program=former).stdout.splitlines()
    unknown = re.compile(r"account \d+: the mechanism of entry \d+ does not keep what it promises")
    assert not [fault for fault in faults if not unknown.fullmatch(fault)]
    early = deployment.tried("verify-ledger")
    assert early.returncode == 2
    assert "Run `privest migrate` first" in early.stderr
    deployment.run("migrate")
    assert "0 faults" in deployment.run("verify-ledger", "--receipt", receipt)

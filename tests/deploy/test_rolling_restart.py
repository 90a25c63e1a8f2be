"""Two replicas, restarted one after the other under load: each question ends in one answer and one charge."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import count

import httpx
import pytest

from testing.server import HANG_GUARD, PLAIN, Caller, Server, body_of, books_balance, slow_rows, worker_on

pytestmark = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)  # SQLite has one process

PAUSE = 0.4
"""Seconds between the questions of a caller: replicas have to start beside them, on few processors."""


@dataclass
class Replica:
    """A place behind the balancer, and whether whoever is in it was told to go."""

    server: Server
    leaves: bool = False


@dataclass
class Balancer:
    """Sends each request to the next replica, and again elsewhere when one that goes does not answer."""

    replicas: list[Replica]
    met: Counter[object] = field(default_factory=Counter[object])
    _turns: count = field(default_factory=count)

    def post(self, http: httpx.Client, path: str, **content: object) -> httpx.Response:
        while True:
            replica = self.replicas[next(self._turns) % len(self.replicas)]
            url = replica.server.url
            try:
                answer = http.post(f"{url}{path}", **content)
            except httpx.TransportError:
                if not replica.leaves and url == replica.server.url:
                    raise
                self.met["refused"] += 1
                continue
            self.met[answer.status_code] += 1
            if answer.status_code != 503:
                return answer
            assert replica.leaves, answer.text

    def restart(self, replica: Replica, start: Callable[[], Server]) -> None:
        """Restart like an orchestrator: send SIGTERM, wait for the end, start again."""
        replica.leaves = True
        replica.server.stop()
        assert replica.server.process.returncode == 0
        replica.server = start()
        replica.leaves = False


@pytest.mark.costly
@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.prove)])
def test_a_rolling_restart_loses_no_answer_and_doubles_no_charge(
    start_server: Callable[..., Server], rounds: int
) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: start_server(), range(2))
    balancer = Balancer([Replica(first), Replica(second)])
    owner = first.owner(epsilon=30.0)
    quick, slow = owner.dataset(), owner.dataset(*slow_rows())
    keys, over = count(), threading.Event()

    def ask(http: httpx.Client, key: str, dataset: str) -> dict[str, object]:
        """One question under one key, until it is answered."""
        body = body_of(dataset, 0.05, steps=10, reuse=False)
        headers = owner.headers | {"Idempotency-Key": key, "Prefer": "wait=5"}
        latest = time.monotonic() + HANG_GUARD
        while time.monotonic() < latest:
            answer = balancer.post(http, "/v1/estimates/frechet-mean", headers=headers, json=body)
            assert answer.status_code in (200, 202), answer.text
            if answer.status_code == 200:
                return answer.json()
        raise AssertionError("nobody answers a charged question")

    def call(dataset: str) -> dict[tuple[str, str], dict[str, object]]:
        answers = {}
        with httpx.Client(timeout=HANG_GUARD, verify=PLAIN) as http:
            while not over.wait(PAUSE):
                key = f"key-{next(keys)}"
                answers[key, dataset] = ask(http, key, dataset)
        return answers

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(call, dataset) for dataset in (quick, quick, slow)]
        try:
            for _ in range(rounds):
                for replica in balancer.replicas:
                    worker_on(replica.server, owner, slow)  # which is at work on a job that it has claimed
                    balancer.restart(replica, start_server)
        finally:
            over.set()
        answers = {asked: job for done in as_completed(calls) for asked, job in done.result().items()}
    now = Caller(balancer.replicas[0].server, owner.id, owner.key)
    with httpx.Client(timeout=HANG_GUARD, verify=PLAIN) as http:
        assert all(ask(http, *asked) == job for asked, job in answers.items())
    assert {job["state"] for job in answers.values()} == {"committed"}
    charged = {entry["job"] for entry in now.ledger()} - {None}
    assert charged <= {job["id"] for job in answers.values()}  # whose latest it shows
    assert now.budget()["queries"] == len(answers)
    assert books_balance(now.server)
    assert balancer.met["refused"] > 0  # or else nobody came while a replica was away

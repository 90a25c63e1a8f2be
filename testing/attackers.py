"""One caller who takes all there is, in a process of its own, and what a second caller notices of it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

import httpx
import numpy as np

from privest_service.database import Database, now
from privest_service.database.tables import new_id
from privest_service.datasets.models import Dataset
from testing.processes import clean
from testing.server import HANG_GUARD, LABELLED, PLAIN, SPD3, Caller, Server, body_of, npy, slow_rows, spd

_LONGEST = 60.0
"""Seconds after which every attack ends."""


@dataclass(frozen=True)
class Attack:
    """What is sent over and over, by so many at once.

    Attributes:
        resource: that it is after.
        threads: at once.
        requests: keyword arguments of httpx, which the threads send in turn.
    """

    resource: str
    threads: int
    requests: list[dict[str, Any]]


def _send(url: str, attack: Attack, stop: Any, answers: Any) -> None:
    def go_on(number: int) -> None:
        with httpx.Client(base_url=url, timeout=_LONGEST, verify=PLAIN) as client:
            turn, end = number, time.monotonic() + _LONGEST
            while not stop.is_set() and time.monotonic() < end:
                request = dict(attack.requests[turn % len(attack.requests)])
                if request.pop("fresh", False):
                    request["headers"] = request["headers"] | {"Idempotency-Key": new_id("k")}
                turn += attack.threads
                with suppress(httpx.TransportError):
                    client.request(**request)
                with answers.get_lock():
                    answers.value += 1

    for number in range(attack.threads):
        threading.Thread(target=go_on, args=(number,), daemon=True).start()
    stop.wait(_LONGEST)


@contextmanager
def under(attack: Attack, server: Server) -> Iterator[Any]:
    """While it goes on: how many of its requests are over."""
    stop, answers = clean.Event(), clean.Value("q", 0)
    process = clean.Process(target=_send, args=(server.url, attack, stop, answers), daemon=True)
    process.start()
    try:
        yield answers
    finally:
        stop.set()
        process.join(HANG_GUARD)
        if process.is_alive():
            process.kill()
            process.join()


def pace(caller: Caller, times: int = 25) -> float:
    """Median of seconds in which a caller is told who it is."""
    took = list[float]()
    for _ in range(times):
        begun = time.perf_counter()
        assert caller.get("/v1/me").status_code == 200
        took.append(time.perf_counter() - begun)
    return median(took)


def beside(attack: Attack, server: Server, caller: Caller) -> tuple[float, float]:
    """Seconds of a second caller's request, when nobody else asks and beside an attack."""
    pace(caller, 5)
    idle = pace(caller)
    with under(attack, server) as answers:
        deadline = time.monotonic() + 20
        while answers.value < attack.threads // 4 and time.monotonic() < deadline:
            time.sleep(0.05)  # attacks that only wait have no answers
        return idle, pace(caller)


# The attacks, each one prepared on a running service


def _start(length: int) -> list[list[float]]:
    return [[float(i) for i in range(length)]]


def bodies_of_strangers(server: Server) -> Attack:
    """Long documents without a key."""
    body = json.dumps({f"f{i:05d}": i for i in range(60_000)})
    headers = {"Content-Type": "application/json"}
    path = "/v1/estimates/frechet-mean"
    return Attack("bodies without a key", 16, [_post(path, headers=headers, content=body)])


def bodies(server: Server) -> Attack:
    """Long documents under a key."""
    owner = server.owner()
    content = json.dumps(body_of("ds_none", 0.1, start=_start(90_000)))
    headers = owner.headers | {"Content-Type": "application/json"}
    post = _post("/v1/estimates/frechet-mean", headers=headers, content=content, fresh=True)
    return Attack("long documents", 16, [post])


def inline(server: Server) -> Attack:
    """Questions that bring their rows."""
    owner = server.owner(epsilon=1000.0)
    about = {"inline": {"schema": SPD3, "rows": spd(4000).round(6).tolist()}}
    body = {"dataset": about, "privacy": {"epsilon": 1e-3}, "reuse": False}
    return Attack(
        "questions that bring rows",
        16,
        [_post("/v1/estimates/frechet-mean", headers=owner.headers, json=body, fresh=True)],
    )


def waits(server: Server) -> Attack:
    """Callers who want to be waited for."""
    owner = server.owner(epsilon=100.0)
    rows, schema = slow_rows()
    dataset = owner.dataset(rows, schema)
    asked = _post(
        "/v1/estimates/frechet-mean",
        headers=owner.headers | {"Prefer": "wait=50"},
        json=body_of(dataset, 0.5, steps=900),
        fresh=True,
    )
    return Attack("long waits", 120, [asked])


def streams(server: Server) -> Attack:
    """Streams of a job's states."""
    owner = server.owner(epsilon=100.0)
    job = owner.estimate(owner.dataset(*slow_rows()), epsilon=0.5, steps=900, wait=0).json()["id"]
    return Attack(
        "streams", 60, [{"method": "GET", "url": f"/v1/jobs/{job}/events", "headers": owner.headers}]
    )


def exports(server: Server) -> Attack:
    """A long ledger, again and again."""
    owner = server.owner()
    dataset = owner.dataset()
    for number in range(300):
        assert owner.put(f"/v1/datasets/{dataset}/cap", json=_cap(number)).status_code == 200
    return Attack("exports", 24, [_get(f"/v1/owners/{owner.id}/ledger/export", owner)])


def _cap(number: int) -> dict[str, float]:
    return {"epsilon": 0.5 + number / 1000, "delta": 1e-6}


def lists(server: Server) -> Attack:
    """Many datasets with long schemas, listed."""
    owner = server.owner()
    schema = json.dumps(
        LABELLED | {"features": [f"feature {i}" for i in range(500)], "mean": None, "scale": None}
    )
    database = Database(server.database_url)
    with database.write() as session:
        for number in range(3000):
            row = {"owner_id": owner.id, "kind": "labelled", "dataset_schema": schema, "n": 100}
            session.add(Dataset(id=new_id("ds"), fingerprint=str(number), created_at=now(), **row))
    database.close()
    return Attack("lists", 16, [_get("/v1/datasets", owner)])


def plans(server: Server) -> Attack:
    """Plans that a worker makes, all of them different."""
    owner = server.owner()
    dataset = owner.dataset()
    asked = [
        _post(
            "/v1/estimates/frechet-mean/plan",
            headers=owner.headers,
            json=body_of(dataset, 0.1 + number / 1e4, solver="rsgd", steps=50),
        )
        for number in range(500)
    ]
    return Attack("plans", 24, asked)


def uploads(server: Server) -> Attack:
    """Files under a key, and files of whoever is not signed in."""
    owner = server.owner()
    content = npy(np.zeros((100_000, 3, 3)))
    form = {"files": {"file": ("rows.npy", content)}, "data": {"schema": json.dumps(SPD3)}}
    return Attack(
        "uploads",
        16,
        [
            _post("/v1/datasets", headers=owner.headers, **form),
            _post("/dashboard/datasets/new", headers={}, **form),
        ],
    )


def _post(path: str, **content: Any) -> dict[str, Any]:
    return {"method": "POST", "url": path, **content}


def _get(path: str, caller: Caller) -> dict[str, Any]:
    return {"method": "GET", "url": path, "headers": caller.headers}


ATTACKS: dict[str, Callable[[Server], Attack]] = {
    each.__name__: each
    for each in (bodies_of_strangers, bodies, inline, waits, streams, exports, lists, plans, uploads)
}

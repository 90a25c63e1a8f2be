"""The other accountant's ε in a plan: told, never charged, and never computed in the web process."""

import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import psutil
import pytest

from privest_service.estimates import service
from testing.server import Caller, Server

CHOICES = [{}, {"solver": "rsgd"}, {"solver": "rsvrg", "sampling": "fixed"}]


def opinion(owner: Caller, dataset: str, **choices: object) -> dict:
    answer = owner.plan(dataset, epsilon=0.8, **choices)
    assert answer.status_code == 200, answer.text
    return answer.json()["second_opinion"]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_a_plan_tells_it_and_tells_it_again(server: Server, choices: dict) -> None:
    owner = server.owner(epsilon=9.0)
    dataset = owner.dataset()
    told = opinion(owner, dataset, delta=1e-6, **choices)
    assert told["accountant"] == f"autodp {version('autodp')}, Rényi"
    assert told["delta"] == 1e-6
    assert told["epsilon"] > 0.8 * 0.8
    assert opinion(owner, dataset, delta=1e-6, **choices) == told
    assert opinion(owner, dataset, delta=1e-5, **choices)["delta"] == 1e-5


def test_pure_epsilon_is_the_sum(server: Server) -> None:
    owner = server.owner(epsilon=9.0, delta=0.0, composition="basic")
    told = opinion(owner, owner.dataset())
    assert told["accountant"].endswith("pure")
    assert told["epsilon"] == pytest.approx(0.8, rel=1e-6)


@pytest.mark.parametrize("backend", ["sqlite"])  # where the test can look
def test_what_is_stored_and_charged_knows_nothing_of_it(server: Server) -> None:
    owner = server.owner(epsilon=9.0)
    dataset = owner.dataset()
    opinion(owner, dataset)
    job = owner.estimate(dataset, epsilon=0.8).json()
    assert job["state"] == "committed"
    assert job["charges"][0]["epsilon"] == 0.8
    assert "autodp" not in json.dumps(job)
    with sqlite3.connect(server.database_url.removeprefix("sqlite:///")) as database:
        (plan,) = database.execute("SELECT plan FROM jobs WHERE id = ?", (job["id"],)).fetchone()
    assert "opinion" not in plan


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["sqlite"])
def test_it_is_null_where_the_worker_is_lost_and_not_for_ever(start_server) -> None:
    """A plan does not need it."""
    server = start_server(fresh=True)  # workers of one that was forked have read the accountant
    owner = server.owner()
    dataset = owner.dataset()
    web = psutil.Process(server.process.pid)
    before = set(web.children(recursive=True))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(owner.plan, dataset)
        while not asked.done():
            for worker in set(web.children(recursive=True)) - before:
                with suppress(psutil.NoSuchProcess):
                    if sum(worker.cpu_times()[:2]) > 0.2:  # it has begun to read the accountant
                        worker.kill()
        answer = asked.result()
    assert answer.status_code == 200
    assert answer.json()["second_opinion"] is None
    again = owner.plan(dataset).json()
    assert again.pop("second_opinion")["epsilon"] > 0
    assert again | {"second_opinion": None} == answer.json()


def test_the_cache_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_ROOM", 12)
    nobody: Any = None
    planner, made = service.Planner(nobody), list[str]()

    def makes(name: str, text: str) -> bool:
        """Return whether the text of a name had to be made."""
        made.clear()
        found = planner._cached(name, lambda: made.append(name) or text)
        assert found == text
        return bool(made)

    assert [makes("a", "1234"), makes("b", "5678")] == [True, True]
    assert [makes("a", "1234"), makes("b", "5678")] == [False, False]
    assert makes("c", "4567")  # which leaves no room for the oldest
    assert not makes("b", "5678")
    for _ in range(2):
        assert makes("long", "x" * 9)  # with its name it is more than there is room for
    assert not makes("c", "4567")
    assert makes("long", "x" * 8)
    assert makes("b", "5678")


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_web_process_does_not_import_it(shared_server: Callable[..., Server]) -> None:
    server = shared_server(fresh=True)
    owner = server.owner()
    opinion(owner, owner.dataset())
    loaded = {mapped.path for mapped in psutil.Process(server.process.pid).memory_maps()}
    assert not [path for path in loaded if "/scipy/stats/" in path]  # autodp imports it

"""How long a second caller's query waits beside one caller whose plans take long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from os import getloadavg
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.report import publish, spread, table
from testing.attackers import Attack, under
from testing.server import Caller, Server, spd

DATASETS, MOST_FREE, THREADS, TIMES = 100, 24, 4, 9
GOAL = 3.0
HOW: dict[str, Any] = {"solver": "rsgd", "steps": 30}
"""Batches whose certificates are searched for each dataset, as each has another number of records."""


def attack(what: str, owner: Caller, datasets: list[str], *, free: bool) -> Attack:
    """So many requests at once over several datasets, each with an ε of its own, over and over."""
    path = f"/v1/estimates/frechet-mean{'/plan' if free else ''}"
    about = [{"id": each} for each in datasets]
    bodies = [
        {"dataset": about, "privacy": {"epsilon": 0.1 + 0.001 * place, "delta": 1e-6}, **HOW}
        for place in range(200)
    ]
    headers = owner.headers
    request: dict[str, Any] = {"method": "POST", "url": path, "headers": headers, "fresh": True}
    return Attack(what, THREADS, [request | {"json": body} for body in bodies])


@contextmanager
def begun(what: Attack, server: Server) -> Iterator[None]:
    """An attack that has gone on for a while."""
    with under(what, server):
        time.sleep(2.0)
        yield


def seconds(ask: Callable[[float], int], expected: int, start: float) -> list[float]:
    """Seconds until each of several requests is answered, each with an ε of its own."""
    taken = list[float]()
    for place in range(TIMES):
        before = time.perf_counter()
        status = ask(start + 0.001 * place)
        taken.append(time.perf_counter() - before)
        assert status == expected, status
    return taken


def main() -> None:
    with TemporaryDirectory() as directory:
        server = Server(Path(directory), f"sqlite:///{directory}/privest.db")
        try:
            other, caller = server.owner(epsilon=1e6, delta=0.9), server.owner(epsilon=1e3, delta=0.1)
            datasets = [other.dataset(spd(1_000 + 10 * place)) for place in range(DATASETS)]
            own = caller.dataset(spd(1_000))

            def query(epsilon: float) -> int:
                return caller.estimate(own, epsilon=epsilon, delta=1e-6, wait=0, **HOW).status_code

            def plan(epsilon: float) -> int:
                return caller.plan(own, epsilon=epsilon, delta=1e-6, **HOW).status_code

            query(0.5)  # which imports what certificates need
            attacks = [
                None,
                attack(f"free plans over {DATASETS} datasets (refused)", other, datasets, free=True),
                attack(f"free plans over {MOST_FREE} datasets", other, datasets[:MOST_FREE], free=True),
                attack(f"queries over {DATASETS} datasets", other, datasets, free=False),
            ]
            rows = list[list[str]]()
            for place, each in enumerate(attacks):
                with nullcontext() if each is None else begun(each, server):
                    queries = seconds(query, 202, 0.1 * (place + 1))
                    plans = seconds(plan, 200, 0.1 * (place + 1) + 0.05)
                what = "nothing" if each is None else f"{THREADS} × {each.resource}"
                rows.append([what, spread(queries, ".2f"), spread(plans, ".2f"), f"{GOAL:g}"])
                print(*rows[-1], flush=True)
        finally:
            server.kill()
    head = ["what the other caller sends", "query accepted, s", "free plan, s", "goal of the query, s"]
    body = f"""
A mean on SPD(3) by 30 random batches (`rsgd`), each time with another ε, so that no plan was made before:
seconds until the query is accepted (202, charged), and until its free plan is answered. Beside it another
caller sends requests of the same kind, {THREADS} at a time, again and again, over datasets of unequal
sizes, so that each takes a certificate of its own. Medians of {TIMES}, with the
least and the most; SQLite, one worker; the load of the machine was {getloadavg()[0]:.0f} at the end.

{table(head, rows)}
"""
    publish("long-plans", "A query beside long plans", body)


if __name__ == "__main__":
    main()

"""Joint runs of three sites over wires with delay, against the same question in one service."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.report import publish, table
from privest.arrays import Array
from testing.sites import BUDGET, Sites, sites
from testing.wire import Wire, wired

SITES, ROWS, COLUMNS, RANK, STEPS = 3, 25_000, 50, 3, 100
DELAYS = (0.0, 0.001, 0.02, 0.1)
LOCAL_STEPS = (1, 5, 10)
SCHEMA = {"kind": "vectors", "dim": COLUMNS}
QUESTION: dict[str, Any] = {"rank": RANK, "solver": "ggd", "epsilon": 0.5, "reuse": False, "wait": 600}


def rows(place: int) -> Array:
    """Rows of one site near a subspace that all have."""
    rng = np.random.default_rng(place)
    spread = np.where(np.arange(COLUMNS) < RANK, 1.0, 0.1)
    return rng.standard_normal((ROWS, COLUMNS)) * spread


@contextmanager
def over_wires() -> Iterator[tuple[Sites, list[Wire]]]:
    """A hub, and sites that offer their rows over a wire each."""
    with ExitStack() as stack:
        directory, wires = stack.enter_context(TemporaryDirectory()), list[Wire]()
        names = (f"sqlite:///{directory}/{number}.db" for number in itertools.count())

        def through(url: str) -> str:
            wires.append(stack.enter_context(wired(url)))
            return wires[-1].url

        made = sites(Path(directory), lambda: next(names), SITES, through)
        yield stack.enter_context(made).offering([rows(place) for place in range(SITES)], SCHEMA), wires


def asked(ask: Callable[[], Any]) -> float:
    """Seconds until a question is answered."""
    begun = perf_counter()
    job = ask().json()
    assert job["state"] == "committed", job
    return perf_counter() - begun


def in_one_service(them: Sites) -> list[str]:
    """Upload all rows at the hub, for as many owners; return the datasets."""
    owners = [them.hub.owner(**BUDGET) for _ in range(SITES)]
    datasets = [owner.dataset(rows(place), SCHEMA) for place, owner in enumerate(owners)]
    for owner, dataset in zip(owners, datasets, strict=True):
        assert owner.grant(dataset, them.analyst).status_code == 200
    return datasets


def measured(
    them: Sites, wires: list[Wire], delay: float, question: dict[str, Any]
) -> tuple[int, float, float]:
    """Rounds, KB that one site sends and gets, and seconds, of one run over wires with a delay."""
    for wire in wires:
        wire.delay = delay / 2  # either way
    rounds, sent = len(wires[0].answers()), len(wires[0].all)
    took = asked(lambda: them.ask("robust-pca", **question))
    return len(wires[0].answers()) - rounds, (len(wires[0].all) - sent) / 1e3, took


def main() -> None:
    with over_wires() as (them, wires):
        lines = list[list[object]]()
        about = [{"id": dataset} for dataset in in_one_service(them)]
        for local_steps in LOCAL_STEPS:
            question = QUESTION | {"local_steps": local_steps, "steps": STEPS // local_steps}
            asked(lambda question=question: them.ask("robust-pca", about=about, **question))  # warms up
            for delay in DELAYS:
                # once more for each: what else the machine does changes
                alone = asked(lambda question=question: them.ask("robust-pca", about=about, **question))
                rounds, sent, took = measured(them, wires, delay, question)
                beside = 1e3 * (took - 3 * alone) / rounds
                lines.append(
                    [
                        local_steps,
                        f"{1e3 * delay:g}",
                        rounds,
                        f"{sent:.0f}",
                        f"{took:.1f}",
                        f"{alone:.1f}",
                        f"{took / alone:.1f}×",
                        f"{max(0.0, beside):.0f}",
                    ]
                )
    header = [
        "local steps",
        "delay, ms",
        "rounds",
        "KB a site",
        "seconds",
        "in one",
        "ratio",
        "beyond 3×, ms",
    ]
    load = f"{os.getloadavg()[0]:.0f}"
    body = f"""
Robust PCA (rank {RANK}, {COLUMNS} columns,
{STEPS} steps of `ggd` in all) over {SITES} sites of {ROWS:,} rows.
Each is a service of its own with SQLite. All are on this machine, whose load was {load} at the end.
The delay is what a wire between site and hub adds to a round trip. “In one” is the same question where one
service has all rows. The goal is 3× that and 10 ms a round: the last column is what each round takes
beyond the 3×.

{table(header, lines)}
"""
    publish("sites", "Sites: rounds, bytes and seconds", body)


if __name__ == "__main__":
    main()
